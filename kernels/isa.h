/* kernels/isa.h - one loop, compiled for several instruction sets, the best of which is chosen when it runs.
 *
 * A loop is written once as an SG_ISA_INLINE function and wrapped once per set with SG_ISA_TARGET_...; a table indexed
 * by sg_isa holds the wrappers. No ifunc: tests call each variant, and sanitizers are not disturbed. */
#ifndef SG_KERNELS_ISA_H
#define SG_KERNELS_ISA_H

#include <stdbool.h>

typedef enum sg_isa { SG_ISA_PORTABLE, SG_ISA_AVX2, SG_ISA_AVX512, SG_ISA_COUNT } sg_isa;

#if defined(__CUDACC__)
#define SG_ISA_INLINE static __host__ __device__ __forceinline__
#else
#define SG_ISA_INLINE static inline __attribute__((always_inline))
#endif

/* Before a loop whose iterations do not depend on each other, though the compiler cannot know it. */
#if defined(__clang__)
#define SG_ISA_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define SG_ISA_LOOP _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
#define SG_ISA_TARGET_AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define SG_ISA_TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#else
#define SG_ISA_TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#endif
#else
#define SG_ISA_TARGET_AVX2
#define SG_ISA_TARGET_AVX512
#endif

/* Whether this machine runs it. */
static inline bool sg_isa_has(sg_isa isa)
{
    switch (isa) {
    case SG_ISA_PORTABLE:
        return true;
#if defined(__x86_64__)
    case SG_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case SG_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("fma");
#endif
    default:
        return false;
    }
}

static inline sg_isa sg_isa_best(void)
{
    return sg_isa_has(SG_ISA_AVX512) ? SG_ISA_AVX512 : sg_isa_has(SG_ISA_AVX2) ? SG_ISA_AVX2 : SG_ISA_PORTABLE;
}

#endif
