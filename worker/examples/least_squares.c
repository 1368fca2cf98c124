/* Fits y = w . x + b to eight rows, of which each of two workers sees four. The first four say nothing of w[1] and
 * w[2], the others nothing of w[0]: alone, no worker can find the answer.
 *     cc least_squares.c $(pkg-config --cflags --libs shardgrad) -lm && ./a.out cluster.yaml WORKER */
#include <math.h>
#include <shardgrad/shardgrad.h>
#include <stdio.h>
#include <stdlib.h>

static const float rows[8][3] = {{-1, 0, 0},  {-0.5f, 0, 0}, {0.5f, 0, 0}, {1, 0, 0},
                                 {0, -1, -1}, {0, -1, 1},    {0, 1, -1},   {0, 1, 1}};
static const float answer_w[3] = {1, -2, 0.5f}, answer_b = 3;

static float w[3], w_gradient[3], b, b_gradient;

static float predict(const float *x, const float *weight, float bias)
{
    return weight[0] * x[0] + weight[1] * x[1] + weight[2] * x[2] + bias;
}

/* The mean over this worker's rows of (prediction - y)^2 / 2, and its gradients. */
static void forward_backward(sg_step *step)
{
    uint64_t begin, end;
    sg_step_rows(step, 8, &begin, &end);
    step->examples = end - begin;
    step->loss = w_gradient[0] = w_gradient[1] = w_gradient[2] = b_gradient = 0;
    for (uint64_t i = begin; i < end; i++) {
        const float error = predict(rows[i], w, b) - predict(rows[i], answer_w, answer_b);
        step->loss += error * error / 2 / (float)step->examples;
        b_gradient += error / (float)step->examples;
        for (int k = 0; k < 3; k++)
            w_gradient[k] += error * rows[i][k] / (float)step->examples;
    }
}

int main(int argc, char **argv)
{
    sg_client *client = NULL;
    sg_error err;
    sg_client_options options = {.config = argc > 1 ? argv[1] : "", .worker = argc > 2 ? (uint32_t)atoi(argv[2]) : 0};
    sg_variable model[] = {
        {.name = "w", .rank = 1, .shape = {3}, .value = w, .gradient = w_gradient},
        {.name = "b", .value = &b, .gradient = &b_gradient},
    };
    sg_step step = {0};
    sg_status status = sg_client_open(&options, &client, &err);
    if (status == SG_OK)
        status = sg_client_declare(client, model, 2, &err);
    while (status == SG_OK && (status = sg_client_begin_step(client, &step, &err)) == SG_OK && step.number < 200) {
        forward_backward(&step);
        status = sg_client_end_step(client, &step, &err);
        if (sg_client_goes_on(status)) /* if only with the step that begin_step comes back with */
            status = SG_OK;
    }
    sg_client_close(client);
    if (status != SG_OK)
        return fprintf(stderr, "%s\n", err.message), sg_status_exit_code(status);
    printf("w = %g %g %g, b = %g\n", (double)w[0], (double)w[1], (double)w[2], (double)b);
    float off = fmaxf(fmaxf(fabsf(w[0] - answer_w[0]), fabsf(w[1] - answer_w[1])),
                      fmaxf(fabsf(w[2] - answer_w[2]), fabsf(b - answer_b)));
    return off <= 1e-4f ? 0 : 1;
}
