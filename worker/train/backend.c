/* worker/train/backend.c - see backend.h. With a device, the variables' buffers stay where they are, in memory of the
 * host, from which the client sends and into which it receives; they are pinned, so that they come and go quickly. */
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

sg_status sg_backend_choose(sg_workload *w, uint32_t worker, sg_error *err)
{
    if (w->config->train.backend == SG_BACKEND_CPU)
        return SG_OK;
    const sg_kernel *kernel = NULL;
    sg_error why;
    sg_status status = sg_kernel_cuda(worker, &kernel, &why);
    if (status != SG_OK)
        return sg_error_set(err, status, "train.backend is %s", why.message);
    sg_tape_destroy(w->tape);
    w->tape = sg_tape_create(kernel);
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
