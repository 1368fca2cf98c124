/* tests/nn/test_two_groups.c - networks that are trained against each other, or one by the other, with nothing but the
 * layers: a generative adversarial network, and an actor with its critic. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "common/random.h"
#include "worker/nn/layers.h"

TestSuite(two_groups, .timeout = 240);

enum { n_rows = 64, n_hidden = 16, n_values = 4 * n_hidden + 1 };

/* Two dense layers with a leaky relu between them, from one or two inputs to one output. */
typedef struct network {
    uint64_t n_inputs;
    double values[n_values], gradients[n_values], velocities[n_values];
    sg_tensor *tensors[4]; /* of the pass under way */
} network;

/* Uniform in [-1, 1). */
static void fill(double *out, size_t n, const char *name, uint64_t number)
{
    const uint64_t stream = sg_random_stream(name, number);
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        sg_random_block(1, stream, i, words);
        out[i] = (double)words[0] / 2147483648.0 - 1;
    }
}

static network network_make(const char *name, uint64_t n_inputs)
{
    network net = {.n_inputs = n_inputs};
    fill(net.values, n_values, name, 0);
    return net;
}

static void put_on_tape(sg_tape *tape, network *net)
{
    const struct {
        uint32_t rank;
        uint64_t shape[2];
    } variables[] = {{2, {net->n_inputs, n_hidden}}, {1, {n_hidden}}, {2, {n_hidden, 1}}, {1, {1}}};
    double *value = net->values, *gradient = net->gradients;
    for (size_t i = 0; i < 4; i++) {
        net->tensors[i] = sg_tape_variable(tape, value, gradient, variables[i].rank, variables[i].shape);
        value += net->tensors[i]->n_elems;
        gradient += net->tensors[i]->n_elems;
    }
}

/* Of x[n_rows, n_inputs]: [n_rows, 1]. */
static sg_tensor *apply(sg_tape *tape, const network *net, sg_tensor *x)
{
    sg_tensor *const *v = net->tensors;
    sg_tensor *hidden = sg_leaky_relu_forward(tape, sg_dense_forward(tape, x, v[0], v[1], SG_DENSE_LINEAR), 0.2);
    return sg_dense_forward(tape, hidden, v[2], v[3], SG_DENSE_LINEAR);
}

static sg_tensor *rows_of(sg_tape *tape, const double *rows)
{
    return sg_tape_input(tape, rows, 2, (uint64_t[]){n_rows, 1});
}

/* The gradients of this network alone. */
static void go_back(sg_tape *tape, const sg_tensor *loss, network *net)
{
    sg_error err = {0};
    cr_assert(sg_tape_backward_of(tape, loss, net->tensors, 4, &err) == SG_OK, "%s", err.message);
}

/* One step of rmsprop. */
static void descend(network *net, double rate)
{
    for (size_t i = 0; i < n_values; i++) {
        const double g = net->gradients[i];
        net->velocities[i] = 0.99 * net->velocities[i] + 0.01 * g * g;
        net->values[i] -= rate * g / (sqrt(net->velocities[i]) + 1e-8);
    }
}

/* The mean of log(1 + e^(sign * x)). */
static sg_tensor *softplus_mean(sg_tape *tape, sg_tensor *x, double sign)
{
    return sg_mean_forward(tape, sg_softplus_forward(tape, sg_scale_forward(tape, x, sign)));
}

Test(two_groups, a_generator_and_a_discriminator_are_trained_against_each_other)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    network generator = network_make("generator", 1), discriminator = network_make("discriminator", 1);
    const double mean = 3, half_width = 1; /* of what is real: uniform */
    double noise[n_rows], real[n_rows];
    double sum = 0, low = 100, high = -100;
    for (uint64_t i = 0; i < 2000; i++) {
        fill(noise, n_rows, "noise", i);
        fill(real, n_rows, "real", i);
        for (size_t row = 0; row < n_rows; row++)
            real[row] = mean + half_width * real[row];
        const double rate = 0.005 / (1 + (double)i / 200);

        sg_tape_begin(tape); /* one pass forwards for both */
        put_on_tape(tape, &generator);
        put_on_tape(tape, &discriminator);
        sg_tensor *fake = apply(tape, &generator, rows_of(tape, noise));
        sg_tensor *says_of_real = apply(tape, &discriminator, rows_of(tape, real));
        sg_tensor *says_of_fake = apply(tape, &discriminator, fake);
        sg_tensor *judged =
            sg_add_forward(tape, softplus_mean(tape, says_of_real, -1), softplus_mean(tape, says_of_fake, 1));
        sg_tensor *deceived = softplus_mean(tape, says_of_fake, -1);
        go_back(tape, judged, &discriminator);
        go_back(tape, deceived, &generator);
        descend(&discriminator, rate);
        descend(&generator, rate);
        for (size_t row = 0; row < n_rows && (i == 0 || i >= 1900); row++) {
            const double made = sg_tape_get(tape, fake, row);
            cr_assert(i > 0 || fabs(made - mean) > half_width, "it begins with what is wanted");
            if (i == 0)
                continue;
            sum += made;
            low = fmin(low, made);
            high = fmax(high, made);
        }
    }
    sum /= 100.0 * n_rows;
    cr_assert(fabs(sum - mean) < 0.3, "what is generated has the mean %.3f, from %.3f to %.3f", sum, low, high);
    cr_assert(high - low > 0.5 && high - low < 4, "from %.3f to %.3f", low, high);
    sg_tape_destroy(tape);
}

/* The best action in state s is 0.5 - s: what is further away is worth less, by the square. */
Test(two_groups, an_actor_learns_what_its_critic_values)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    network actor = network_make("actor", 1), critic = network_make("critic", 2);
    double states[n_rows], explored[n_rows], actions[n_rows], rewards[n_rows];
    double away = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        fill(states, n_rows, "states", i);
        fill(explored, n_rows, "explored", i);
        const double rate = 0.01 / (1 + (double)i / 500);

        sg_tape_begin(tape);
        put_on_tape(tape, &actor);
        put_on_tape(tape, &critic);
        sg_tensor *state = rows_of(tape, states);
        sg_tensor *chosen = apply(tape, &actor, state);
        for (size_t row = 0; row < n_rows; row++) {
            actions[row] = sg_tape_get(tape, chosen, row) + explored[row];
            rewards[row] = -pow(actions[row] - (0.5 - states[row]), 2);
        }
        /* The critic: what actions near the actor's are worth. The actor: towards what the critic values. */
        sg_tensor *value =
            apply(tape, &critic, sg_concat_forward(tape, (sg_tensor *[]){state, rows_of(tape, actions)}, 2, 1));
        sg_tensor *of_chosen = apply(tape, &critic, sg_concat_forward(tape, (sg_tensor *[]){state, chosen}, 2, 1));
        go_back(tape, sg_mean_squared_error_forward(tape, value, rows_of(tape, rewards)), &critic);
        go_back(tape, sg_scale_forward(tape, sg_mean_forward(tape, of_chosen), -1), &actor);
        descend(&critic, rate);
        descend(&actor, rate / 4);
        for (size_t row = 0; row < n_rows && i >= 2900; row++)
            away += fabs(sg_tape_get(tape, chosen, row) - (0.5 - states[row])) / (100 * n_rows);
    }
    cr_assert(away < 0.15, "the actions are %.3f away from the best, on average", away);
    sg_tape_destroy(tape);
}
