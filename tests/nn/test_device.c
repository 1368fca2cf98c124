/* tests/nn/test_device.c - a tape whose table has memory of its own. The device here is made of the plain loops: its
 * copies to the host are done as late as they may be, and of its memory the host has no other way to see anything. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/model_fixture.h"
#include "worker/nn/layers.h"

TestSuite(device, .timeout = 240);

enum { max_copies = 64, n_inputs = 600, n_outputs = 300, n_rows = 4 };

static struct {
    size_t n_alive, limit_bytes;
    uint64_t n_copies, n_done;
    struct {
        void *to;
        const void *from;
        size_t n_bytes;
    } copies[max_copies];
    size_t uploaded_bytes;
    size_t n_fences;
    const char *failure;
} device;

static void *try_alloc(size_t n_bytes)
{
    if (n_bytes > device.limit_bytes)
        return NULL;
    device.n_alive++;
    void *bytes = sg_try_alloc_aligned(n_bytes);
    memset(bytes, 0xff, n_bytes); /* NaN, where nobody writes */
    return bytes;
}

static void release(void *memory)
{
    device.n_alive -= memory != NULL;
    free(memory);
}

static void fence(void)
{
    device.n_fences++;
}

static void upload(void *to, const void *from_host, size_t n_bytes)
{
    if (n_bytes > 0)
        memcpy(to, from_host, n_bytes);
    device.uploaded_bytes += n_bytes;
}

static uint64_t download(void *to_host, const void *from, size_t n_bytes)
{
    cr_assert(device.n_copies < max_copies);
    device.copies[device.n_copies].to = to_host;
    device.copies[device.n_copies].from = from;
    device.copies[device.n_copies].n_bytes = n_bytes;
    return device.n_copies++;
}

static bool is_over(uint64_t number)
{
    return number < device.n_done;
}

static void wait_for(uint64_t number)
{
    for (; device.n_done <= number; device.n_done++)
        memcpy(device.copies[device.n_done].to, device.copies[device.n_done].from,
               device.copies[device.n_done].n_bytes);
}

static const char *failure(bool *of_memory)
{
    *of_memory = device.failure && strcmp(device.failure, "full") == 0;
    return device.failure;
}

/* The table, with a device. */
static const sg_kernel *table(void)
{
    static const sg_kernel_device made = {.try_alloc = try_alloc,
                                          .release = release,
                                          .fence = fence,
                                          .upload = upload,
                                          .download = download,
                                          .is_over = is_over,
                                          .wait = wait_for,
                                          .failure = failure};
    static sg_kernel kernel;
    kernel = *sg_kernel_ref_float();
    kernel.name = "paper";
    kernel.device = &made;
    memset(&device, 0, sizeof device);
    device.limit_bytes = SIZE_MAX;
    return &kernel;
}

/* A dense layer large enough to be read and told in parts, and one that is not. */
typedef struct network {
    float x[n_rows * n_inputs], weight[n_inputs * n_outputs], bias[n_outputs], second[n_outputs * 3], third[3];
    float dweight[n_inputs * n_outputs], dbias[n_outputs], dsecond[n_outputs * 3], dthird[3];
    uint32_t labels[n_rows];
    size_t n_told, n_read;            /* elements of weight */
    float told[n_inputs * n_outputs]; /* the gradient of weight as it was when it was told */
} network;

static network *network_make(void)
{
    network *n = sg_xcalloc(1, sizeof *n);
    for (size_t i = 0; i < SG_ARRAY_LEN(n->x); i++)
        n->x[i] = (float)(i * 7 % 13) / 13 - 0.4F;
    for (size_t i = 0; i < SG_ARRAY_LEN(n->weight); i++)
        n->weight[i] = (float)(i * 11 % 17) / 170 - 0.05F;
    for (size_t i = 0; i < SG_ARRAY_LEN(n->second); i++)
        n->second[i] = (float)(i * 5 % 19) / 190 - 0.04F;
    for (uint32_t i = 0; i < n_rows; i++)
        n->labels[i] = i % 3;
    return n;
}

static sg_tensor *loss_of(network *n, sg_tape *tape)
{
    sg_tensor *x = sg_tape_input(tape, n->x, 2, (uint64_t[]){n_rows, n_inputs});
    sg_tensor *w = sg_tape_variable(tape, n->weight, n->dweight, 2, (uint64_t[]){n_inputs, n_outputs});
    sg_tensor *b = sg_tape_variable(tape, n->bias, n->dbias, 1, (uint64_t[]){n_outputs});
    sg_tensor *second = sg_tape_variable(tape, n->second, n->dsecond, 2, (uint64_t[]){n_outputs, 3});
    sg_tensor *third = sg_tape_variable(tape, n->third, n->dthird, 1, (uint64_t[]){3});
    if (w)
        w->tag = 1;
    sg_tensor *hidden = sg_dense_forward(tape, x, w, b, SG_DENSE_RELU);
    return sg_softmax_cross_entropy_forward(tape, sg_dense_forward(tape, hidden, second, third, SG_DENSE_LINEAR),
                                            n->labels, n_rows);
}

/* Overwrites what it is told of, as the next values that arrive would. */
static void take(void *user, const sg_tensor *variable, size_t first, size_t n_elems)
{
    network *n = user;
    if (variable->tag != 1)
        return;
    cr_assert(first == n->n_told, "parts come in order");
    memcpy(n->told + first, n->dweight + first, n_elems * sizeof(float));
    memset(n->weight + first, 0xff, n_elems * sizeof(float));
    memset(n->dweight + first, 0xff, n_elems * sizeof(float));
    n->n_told += n_elems;
}

static sg_status note_read(void *user, const sg_tensor *variable, size_t first, size_t n_elems, sg_error *err)
{
    (void)err;
    network *n = user;
    if (variable->tag == 1 && first + n_elems > n->n_read)
        n->n_read = first + n_elems;
    return SG_OK;
}

Test(device, gradients_are_those_of_the_plain_loops_in_the_buffers_of_the_host)
{
    network *want = network_make(), *n = network_make();
    sg_error err = {0};
    sg_tape *plain = sg_tape_create(sg_kernel_ref_float()), *tape = sg_tape_create(table());
    sg_tape_begin(plain);
    sg_tape_begin(tape);
    const sg_tensor *want_loss = loss_of(want, plain), *loss = loss_of(n, tape);
    cr_assert_eq(sg_tape_get(tape, loss, 0), sg_tape_get(plain, want_loss, 0));
    for (size_t i = 0; i < 2; i++) { /* gradients of several passes add up */
        cr_assert_eq(sg_tape_backward(plain, want_loss, &err), SG_OK);
        cr_assert_eq(sg_tape_backward(tape, loss, &err), SG_OK, "%s", err.message);
        cr_assert_arr_eq(n->dweight, want->dweight, sizeof n->dweight);
        cr_assert_arr_eq(n->dbias, want->dbias, sizeof n->dbias);
        cr_assert_arr_eq(n->dsecond, want->dsecond, sizeof n->dsecond);
        cr_assert_arr_eq(n->dthird, want->dthird, sizeof n->dthird);
    }
    sg_tape_destroy(tape);
    sg_tape_destroy(plain);
    cr_assert_eq(device.n_alive, 0u, "the device's memory is given back");
    free(want);
    free(n);
}

Test(device, a_part_is_told_when_it_has_come_to_the_host_and_its_buffers_may_be_overwritten)
{
    network *want = network_make(), *n = network_make();
    sg_error err = {0};
    sg_tape *plain = sg_tape_create(sg_kernel_ref_float()), *tape = sg_tape_create(table());
    sg_tape_begin(plain);
    cr_assert_eq(sg_tape_backward(plain, loss_of(want, plain), &err), SG_OK);
    for (size_t step = 0; step < 3; step++) {
        network *fresh = network_make();
        memcpy(n->weight, fresh->weight, sizeof n->weight);
        free(fresh);
        n->n_told = n->n_read = 0;
        device.n_copies = device.n_done = device.uploaded_bytes = 0;
        sg_tape_begin(tape);
        sg_tape_listen_to_reads(tape, note_read, n);
        const sg_tensor *loss = loss_of(n, tape);
        cr_assert_eq(n->n_read, SG_ARRAY_LEN(n->weight));
        cr_assert_eq(device.uploaded_bytes,
                     sizeof n->x + sizeof n->weight + sizeof n->bias + sizeof n->second + sizeof n->third +
                         sizeof n->labels,
                     "each value goes once");
        cr_assert_eq(sg_tape_backward_last(tape, loss, take, n, &err), SG_OK, "%s", err.message);
        cr_assert_eq(n->n_told, SG_ARRAY_LEN(n->weight));
        cr_assert_arr_eq(n->told, want->dweight, sizeof n->told);
        cr_assert_eq(device.n_done, device.n_copies, "nothing is under way");
        cr_assert_eq(device.n_fences, step + 1);
    }
    sg_tape_destroy(tape);
    sg_tape_destroy(plain);
    free(want);
    free(n);
}

Test(device, a_pass_of_known_size_asks_the_device_for_nothing)
{
    network *n = network_make();
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(table());
    uint64_t allocations = 0;
    for (size_t i = 0; i < 6; i++) {
        device.n_copies = device.n_done = 0;
        sg_tape_begin(tape);
        cr_assert_eq(sg_tape_backward(tape, loss_of(n, tape), &err), SG_OK);
        if (i == 2)
            allocations = sg_tape_get_stats(tape).allocations;
    }
    cr_assert(allocations > 1);
    cr_assert_eq(sg_tape_get_stats(tape).allocations, allocations);
    sg_tape_destroy(tape);
    free(n);
}

Test(device, a_device_without_memory_and_one_that_fails_end_the_pass_with_a_reason)
{
    network *n = network_make();
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(table());
    device.limit_bytes = 100000;
    sg_tape_begin(tape);
    cr_assert_null(loss_of(n, tape));
    cr_assert_eq(sg_tape_check(tape, &err), SG_EXHAUSTED);
    cr_assert_not_null(strstr(err.message, "no memory on the device for 720000 bytes"), "%s", err.message);
    device.limit_bytes = SIZE_MAX;
    device.failure = "it is unplugged";
    sg_tape_begin(tape);
    cr_assert_null(loss_of(n, tape));
    cr_assert_eq(sg_tape_check(tape, &err), SG_INTERNAL);
    cr_assert_str_eq(err.message, "paper: the device failed: it is unplugged; start again");
    device.limit_bytes = 100000;
    sg_tape_begin(tape);
    cr_assert_null(loss_of(n, tape));
    cr_assert_eq(sg_tape_check(tape, &err), SG_INTERNAL, "one that failed gives no memory either: %s", err.message);
    device.limit_bytes = SIZE_MAX;
    device.failure = "full";
    sg_tape_begin(tape);
    cr_assert_null(loss_of(n, tape));
    cr_assert_eq(sg_tape_check(tape, &err), SG_EXHAUSTED);
    cr_assert_str_eq(err.message, "no memory on the device for its own work: full; use a smaller batch");
    device.failure = NULL;
    sg_tape_begin(tape);
    const sg_tensor *loss = loss_of(n, tape);
    device.failure = "it is unplugged";
    cr_assert_eq(sg_tape_backward_last(tape, loss, take, n, &err), SG_INTERNAL, "a failure on the way back");
    cr_assert_eq(n->n_told, 0u, "what a device that failed has computed is told to nobody");
    cr_assert_eq(device.n_done, device.n_copies);
    sg_tape_destroy(tape);
    free(n);
}
