/* worker/train/backend.c - see backend.h. oneDNN computes in memory of the host like cpu. With a device, the variables'
 * buffers stay where they are, in memory of the host, from which the client sends and into which it receives; they are
 * pinned, so that they come and go quickly. */
#include "worker/train/backend.h"

#include "kernels/cuda_load.h"

static void pin_all(sg_workload *w, const sg_kernel_device *device)
{
    for (size_t i = 0; i < w->model->n_variables; i++) {
        const sg_variable *v = &w->model->variables[i];
        device->pin(v->value, sg_workload_n_elems(v) * sizeof(float));
        device->pin(v->gradient, sg_workload_n_elems(v) * sizeof(float));
    }
}

static sg_status find_cuda(uint32_t worker, const sg_kernel **kernel, sg_error *err)
{
    sg_error why;
    sg_status status = sg_kernel_cuda(worker, kernel, &why);
    return status == SG_OK ? SG_OK : sg_error_set(err, status, "train.backend is %s", why.message);
}

/* Whether it can make plans on this machine. */
static bool works(const sg_kernel *onednn)
{
    void *plans = onednn ? onednn->conv->planner->create() : NULL;
    if (plans)
        onednn->conv->planner->destroy(plans);
    return plans != NULL;
}

static sg_status find(const sg_config *config, uint32_t worker, const sg_kernel **kernel, sg_error *err)
{
    const sg_kernel *onednn = sg_kernel_onednn();
    *kernel = sg_kernel_cpu();
    if (config->train.backend == SG_BACKEND_CUDA)
        return find_cuda(worker, kernel, err);
    if (config->train.backend == SG_BACKEND_CPU)
        return SG_OK;
    if (works(onednn))
        *kernel = onednn;
    else if (config->train.backend == SG_BACKEND_ONEDNN)
        return sg_error_set(err, SG_CONFIG,
                            onednn ? "train.backend is onednn, which has no convolution in vectors for this machine; "
                                     "wanted auto or cpu"
                                   : "train.backend is onednn, without which this program was built; wanted auto or "
                                     "cpu, or a build that found oneDNN 2 (Debian: libdnnl-dev)");
    return SG_OK;
}

sg_status sg_backend_choose(sg_workload *w, uint32_t worker, sg_error *err)
{
    const sg_kernel *kernel;
    sg_status status = find(w->config, worker, &kernel, err);
    if (status != SG_OK)
        return sg_config_locate(w->config, status, err);
    if (kernel != sg_tape_kernel(w->tape)) {
        sg_tape_destroy(w->tape);
        w->tape = sg_tape_create(kernel);
    }
    if (kernel->device)
        pin_all(w, kernel->device);
    sg_log_info(w->log, "backend", "name=%s", kernel->name);
    return SG_OK;
}

void sg_backend_leave(sg_workload *w)
{
    const sg_kernel_device *device = w->tape ? sg_tape_kernel(w->tape)->device : NULL;
    for (size_t i = 0; device && i < w->model->n_variables; i++) {
        device->unpin(w->model->variables[i].value);
        device->unpin(w->model->variables[i].gradient);
    }
}
