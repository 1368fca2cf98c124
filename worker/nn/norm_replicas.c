/* worker/nn/norm_replicas.c - see norm_replicas.h. Sums are the host's, in double.
 *
 * First the mean, then the squares of the distances from it: in one go, from the squares of the elements, what a large
 * mean leaves of a small deviation would be lost. */
#include "worker/nn/norm_replicas.h"

static double *numbers_of(sg_tape *tape, const void *elems, size_t n)
{
    const size_t elem_bytes = sg_tape_kernel(tape)->elem_bytes;
    double *numbers = sg_tape_note(tape, n * sizeof *numbers);
    const void *host = sg_tape_take(tape, elems, n * elem_bytes);
    for (size_t i = 0; numbers && host && i < n; i++)
        numbers[i] = elem_bytes == sizeof(double) ? ((const double *)host)[i] : (double)((const float *)host)[i];
    return host ? numbers : NULL;
}

static const void *elems_of(sg_tape *tape, const double *numbers, size_t n)
{
    const size_t elem_bytes = sg_tape_kernel(tape)->elem_bytes;
    void *host = sg_tape_note(tape, n * elem_bytes);
    for (size_t i = 0; host && i < n; i++) {
        if (elem_bytes == sizeof(double))
            ((double *)host)[i] = numbers[i];
        else
            ((float *)host)[i] = (float)numbers[i];
    }
    return host ? sg_tape_bring(tape, host, n * elem_bytes) : NULL;
}

static bool add_up(sg_tape *tape, const sg_batch_norm_replicas *replicas, double *sums, size_t n)
{
    sg_error err;
    sg_status status = replicas->add_up(replicas->user, sums, n, &err);
    if (status != SG_OK)
        sg_tape_fail(tape, status, "%s", err.message);
    return status == SG_OK;
}

static double own_elems(const sg_norm_shape *shape)
{
    return (double)(shape->images * shape->plane);
}

bool sg_norm_replicas_combine(sg_tape *tape, const sg_batch_norm_replicas *replicas, const sg_norm_shape *shape,
                              void **mean, void **variance, double *n_seen)
{
    const size_t n = shape->channels;
    const double own = own_elems(shape);
    double *means = numbers_of(tape, *mean, n), *squares = numbers_of(tape, *variance, n);
    double *sums = sg_tape_note(tape, (n + 1) * sizeof *sums); /* of the elements; and their number */
    if (!means || !squares || !sums)
        return false;
    for (size_t c = 0; c < n; c++)
        sums[c] = own * means[c];
    sums[n] = own;
    if (!add_up(tape, replicas, sums, n + 1))
        return false;
    *n_seen = sums[n];
    for (size_t c = 0; c < n; c++) {
        const double common = *n_seen > 0 ? sums[c] / *n_seen : 0, away = means[c] - common;
        squares[c] = own * (squares[c] + away * away);
        means[c] = common;
    }
    if (!add_up(tape, replicas, squares, n))
        return false;
    for (size_t c = 0; c < n; c++)
        squares[c] = *n_seen > 0 ? squares[c] / *n_seen : 0;
    *mean = (void *)(uintptr_t)elems_of(tape, means, n); /* nobody writes them from here on */
    *variance = (void *)(uintptr_t)elems_of(tape, squares, n);
    return *mean && *variance;
}

/* batch_backward divides by the number of the own elements, where that of all is meant. */
const void *sg_norm_replicas_sums(sg_tape *tape, const sg_batch_norm_replicas *replicas, const sg_norm_shape *shape,
                                  const void *sums, double n_seen)
{
    const size_t n = 2 * shape->channels;
    double *all = numbers_of(tape, sums, n);
    if (!all || !add_up(tape, replicas, all, n))
        return NULL;
    for (size_t i = 0; i < n; i++)
        all[i] *= n_seen > 0 ? own_elems(shape) / n_seen : 0;
    return elems_of(tape, all, n);
}
