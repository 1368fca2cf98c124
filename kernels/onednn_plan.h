/* kernels/onednn_plan.h - what oneDNN is asked to prepare for a convolution; for onednn*.c alone.
 *
 * A plan holds, for one shape, three ways: forward, back to the input, back to the weight. Each is a oneDNN primitive
 * with the memory objects for its arguments, whose addresses are set at every call, and the reorder between the
 * weight's C order and what the primitive wants. Everything is made with the plan, so that nothing is when it is used;
 * scratch memory is the caller's.
 *
 * Threads: as many as OpenBLAS may use when the plans are made, which is the worker's one setting. */
#ifndef SG_KERNELS_ONEDNN_PLAN_H
#define SG_KERNELS_ONEDNN_PLAN_H

#include <oneapi/dnnl/dnnl.h>

#include "kernels/conv.h"

/* Of the OpenMP library that oneDNN brings along; its header comes with a compiler. The number is one for each thread
 * that calls, so it is set before every call of oneDNN. */
void omp_set_num_threads(int n_threads);

/* Whether the number of threads is ours to set: not where oneDNN was built for another library of threads. */
bool sg_onednn_has_our_threads(void);

#define SG_ONEDNN_MAX_ARGUMENTS 5

typedef struct sg_onednn_way {
    dnnl_primitive_t convolve; /* NULL: oneDNN has nothing fast for it */
    dnnl_primitive_t reorder;  /* of the weight, to what convolve wants, or its gradient back; NULL: that is C order */
    dnnl_exec_arg_t arguments[SG_ONEDNN_MAX_ARGUMENTS];
    dnnl_memory_t x, y, weight, plain_weight, bias, scratchpad;
    size_t weight_bytes, scratchpad_bytes;
} sg_onednn_way;

typedef struct sg_onednn_plan {
    sg_conv_plan base; /* first: what others have of it */
    sg_conv_shape shape;
    struct sg_onednn_plan *next;
    bool is_possible; /* false: C order it is; kept, so as not to try again */
    sg_onednn_way forward, backward_input, backward_weight;
    float *no_bias; /* [outputs] zeros */
    struct sg_onednn_plans *plans;
} sg_onednn_plan;

typedef struct sg_onednn_plans {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t scratchpad_is_ours;
    int n_threads;
    size_t block; /* that oneDNN wants on this machine */
    size_t count;
    sg_onednn_plan *first;
} sg_onednn_plans;

extern const sg_conv_planner sg_onednn_planner;

#endif
