/* Fits y = w . x + b, as least_squares.c does, and sends each gradient as soon as it is ready: that of b travels while
 * the one of w is computed. New values may come after the next step has begun: each is awaited where it is read.
 *     cc overlapped.c $(pkg-config --cflags --libs shardgrad) -lm && ./a.out cluster.yaml WORKER */
#include <math.h>
#include <shardgrad/shardgrad.h>
#include <stdio.h>
#include <stdlib.h>

enum { W, B, N_VARIABLES }; /* in the order in which they are declared; those that are read first come first */

static const float rows[8][3] = {{-1, 0, 0},  {-0.5f, 0, 0}, {0.5f, 0, 0}, {1, 0, 0},
                                 {0, -1, -1}, {0, -1, 1},    {0, 1, -1},   {0, 1, 1}};
static const float answer_w[3] = {1, -2, 0.5f}, answer_b = 3;

static float w[3], w_gradient[3], b, b_gradient;
static sg_op *ops[N_VARIABLES]; /* that bring the variables' next values; NULL: they are there */

static float dot(const float *x, const float *weight)
{
    return weight[0] * x[0] + weight[1] * x[1] + weight[2] * x[2];
}

static sg_status send_gradient(sg_client *client, const sg_step *step, uint32_t variable, sg_error *err)
{
    return sg_client_push_pull(client, step, &variable, 1, &ops[variable], err);
}

/* Before a variable is read. */
static sg_status await_value(uint32_t variable, sg_error *err)
{
    if (ops[variable] == NULL)
        return SG_OK;
    sg_status status = sg_op_wait(ops[variable], UINT64_MAX, err);
    sg_op_destroy(ops[variable]);
    ops[variable] = NULL;
    return status;
}

/* The mean over this worker's rows of (prediction - y)^2 / 2: each of w and b is awaited where it is needed, and its
 * gradient is sent once nothing reads the variable any more, as the op overwrites it. */
static sg_status forward_backward(sg_client *client, sg_step *step, sg_error *err)
{
    float error[8];
    uint64_t begin, end;
    sg_step_rows(step, 8, &begin, &end);
    step->examples = end - begin;
    step->loss = w_gradient[0] = w_gradient[1] = w_gradient[2] = b_gradient = 0;
    sg_status status = await_value(W, err);
    for (uint64_t i = begin; i < end; i++)
        error[i] = dot(rows[i], w) - dot(rows[i], answer_w) - answer_b;
    if (status == SG_OK)
        status = await_value(B, err);
    for (uint64_t i = begin; i < end; i++) {
        error[i] += b;
        step->loss += error[i] * error[i] / 2 / (float)step->examples;
        b_gradient += error[i] / (float)step->examples;
    }
    if (status == SG_OK)
        status = send_gradient(client, step, B, err);
    for (uint64_t i = begin; i < end; i++)
        for (int k = 0; k < 3; k++)
            w_gradient[k] += error[i] * rows[i][k] / (float)step->examples;
    return status == SG_OK ? send_gradient(client, step, W, err) : status;
}

/* Before the client is closed, and where what is under way is of a step that came to nothing. */
static void forget_ops(void)
{
    for (uint32_t i = 0; i < N_VARIABLES; i++) {
        if (ops[i] != NULL)
            sg_op_cancel(ops[i]);
        sg_op_destroy(ops[i]);
        ops[i] = NULL;
    }
}

/* begin_step does not wait for the values: await_value does. But it may have come back after the step before came to
 * nothing: as another incarnation. */
static sg_status begin_step(sg_client *client, sg_step *step, sg_error *err)
{
    sg_client_info before, after;
    sg_client_get_info(client, &before);
    step->values_later = true;
    const sg_status status = sg_client_begin_step(client, step, err);
    sg_client_get_info(client, &after);
    if (after.incarnation != before.incarnation)
        forget_ops();
    return status;
}

static sg_status train(sg_client *client, sg_error *err)
{
    sg_step step = {0};
    sg_status status;
    while ((status = begin_step(client, &step, err)) == SG_OK && step.number < 200) {
        status = forward_backward(client, &step, err);
        if (!sg_client_goes_on(status))
            break;
        if (status != SG_OK)
            forget_ops();
    }
    for (uint32_t i = 0; i < N_VARIABLES && status == SG_OK; i++)
        status = await_value(i, err);
    forget_ops();
    return status;
}

int main(int argc, char **argv)
{
    sg_client *client = NULL;
    sg_error err;
    sg_client_options options = {.config = argc > 1 ? argv[1] : "", .worker = argc > 2 ? (uint32_t)atoi(argv[2]) : 0};
    sg_variable model[N_VARIABLES] = {
        [W] = {.name = "w", .rank = 1, .shape = {3}, .value = w, .gradient = w_gradient},
        [B] = {.name = "b", .value = &b, .gradient = &b_gradient},
    };
    sg_status status = sg_client_open(&options, &client, &err);
    if (status == SG_OK)
        status = sg_client_declare(client, model, N_VARIABLES, &err);
    if (status == SG_OK)
        status = train(client, &err);
    sg_client_close(client);
    if (status != SG_OK)
        return fprintf(stderr, "%s\n", err.message), sg_status_exit_code(status);
    printf("w = %g %g %g, b = %g\n", (double)w[0], (double)w[1], (double)w[2], (double)b);
    float off = fmaxf(fmaxf(fabsf(w[0] - answer_w[0]), fabsf(w[1] - answer_w[1])),
                      fmaxf(fabsf(w[2] - answer_w[2]), fabsf(b - answer_b)));
    return off <= 1e-4f ? 0 : 1;
}
