/* On what a workload computes, as its configuration says. */
#include <criterion/criterion.h>

#include "tests/train/fixture.h"
#include "worker/train/backend.h"

TestSuite(backend, .timeout = 60);

static void expect(const char *backend, sg_status status, const sg_kernel *kernel)
{
    char set[64];
    snprintf(set, sizeof set, "train.backend=%s", backend);
    job j;
    job_init(&j, "", (const char *const[]){set, NULL});
    sg_workload *w;
    sg_error err = {0};
    cr_assert_eq(sg_workload_create(j.config, true, &w, NULL), SG_OK);
    cr_assert_eq(sg_backend_choose(w, 0, &err), status, "%s", err.message);
    if (status == SG_OK)
        cr_assert_eq(sg_tape_kernel(w->tape), kernel, "%s: %s", backend, sg_tape_kernel(w->tape)->name);
    else
        cr_assert_not_null(strstr(err.message, "train.backend is onednn, "), "%s", err.message);
    sg_workload_destroy(w);
    job_deinit(&j);
}

/* oneDNN may be found and not know this machine's processor. */
static bool has_onednn(void)
{
    const sg_kernel *onednn = sg_kernel_onednn();
    void *plans = onednn ? onednn->conv->planner->create() : NULL;
    if (plans)
        onednn->conv->planner->destroy(plans);
    return plans != NULL;
}

Test(backend, onednn_is_chosen_where_it_is_and_refused_where_it_is_not)
{
    if (has_onednn()) {
        expect("auto", SG_OK, sg_kernel_onednn());
        expect("onednn", SG_OK, sg_kernel_onednn());
    } else {
        expect("auto", SG_OK, sg_kernel_cpu());
        expect("onednn", SG_CONFIG, NULL);
    }
    expect("cpu", SG_OK, sg_kernel_cpu());
}
