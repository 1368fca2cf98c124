/* tests/kernels/arrays.h - arrays for the comparison of every kernel table with the plain loops in double precision. */
#ifndef SG_TESTS_KERNELS_ARRAYS_H
#define SG_TESTS_KERNELS_ARRAYS_H

#include "kernels/kernel.h"

/* The same numbers in float and in double, with one more element behind that nobody may write. */
typedef struct sg_array {
    size_t n_elems;
    float *f;
    double *d;
} sg_array;

/* Numbers in [-limit, limit), a function of the name. */
sg_array sg_array_make(const char *name, size_t n_elems, float limit);
void sg_array_free(sg_array *a);

/* Asserts that f is d within the bound, and that nothing was written behind it. */
void sg_array_assert_near(const sg_kernel *kernel, const char *what, const sg_array *a, double bound);

/* The same of elements that are sums of n_terms products: within what rounding each of them may make of it, beside the
 * root mean square of the elements, so that no array of zeros passes. */
void sg_array_assert_sums(const sg_kernel *kernel, const char *what, const sg_array *a, size_t n_terms);

/* Of float: the plain loops, the CPU's for every instruction set that this machine has, CUDA's on the device that
 * stands in for one (tests/support/cuda), and oneDNN's where it was found. A new backend: here. */
void sg_for_each_table(void (*check)(const sg_kernel *kernel));

#endif
