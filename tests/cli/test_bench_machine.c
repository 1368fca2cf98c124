#include "worker/cli/bench/machine.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

TestSuite(bench_machine, .timeout = 20);

Test(bench_machine, a_stream_takes_any_number_of_bytes_again_and_again_and_leaves_no_process)
{
    static const uint64_t sizes[] = {1, 4096, (1 << 20) + 1, 5 << 20};
    sg_bench_tcp *tcp;
    cr_assert_eq(sg_bench_tcp_create(&tcp, NULL), SG_OK);
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        double seconds = 0;
        cr_assert_eq(sg_bench_tcp_send(tcp, sizes[i], &seconds, NULL), SG_OK);
        cr_assert(seconds > 0);
    }
    sg_bench_tcp_destroy(tcp);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a child is left");
}

Test(bench_machine, the_pass_adds_and_the_copy_copies)
{
    enum { N = 4096 };
    float *a = sg_try_alloc_aligned(N * sizeof(float)), *b = sg_try_alloc_aligned(N * sizeof(float)),
          *sum = sg_try_alloc_aligned(N * sizeof(float));
    for (size_t i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 0.5f;
    }
    cr_assert(sg_bench_machine_pass(sum, a, b, N) > 0);
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(sum[i], (float)i + 0.5f);
    cr_assert(sg_bench_machine_copy(sum, a, N * sizeof(float)) > 0);
    cr_assert_eq(memcmp(sum, a, N * sizeof(float)), 0);
    free(a);
    free(b);
    free(sum);
}
