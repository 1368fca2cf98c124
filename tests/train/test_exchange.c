#include "worker/train/exchange.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/train/cluster.h"
#include "tests/train/fixture.h"

TestSuite(exchange, .timeout = 20);

enum { n_large = 20000, n_small = 5, n_variables = 4 };
enum { large, small, fixed, other };

/* A large variable, small ones and one that is frozen; one ps, rule sgd with rate 1, so that a gradient is taken off.
 */
typedef struct setting {
    job j;
    cluster_ps ps;
    const char *const *set;
    sg_client *client;
    sg_exchange *exchange;
    sg_variable variables[n_variables];
    float values[n_variables][n_large], gradients[n_variables][n_large];
    sg_step step;
} setting;

static void declare(setting *s)
{
    static const char *const names[] = {"large", "small", "fixed", "other"};
    for (size_t i = 0; i < n_variables; i++)
        s->variables[i] = (sg_variable){.name = names[i],
                                        .rank = 1,
                                        .shape = {i == large ? n_large : n_small},
                                        .value = s->values[i],
                                        .gradient = s->gradients[i],
                                        .frozen = i == fixed};
    sg_error err = {0};
    cr_assert_eq(sg_client_declare(s->client, s->variables, n_variables, &err), SG_OK, "%s", err.message);
    s->exchange = sg_exchange_create(s->client, s->variables, n_variables);
}

static void open_worker(setting *s, uint32_t worker)
{
    sg_error err = {0};
    sg_client_options options = {
        .config = s->j.path, .set = s->set, .coordinator = sg_ps_address(s->ps.ps), .worker = worker};
    cr_assert_eq(sg_client_open(&options, &s->client, &err), SG_OK, "%s", err.message);
}

static setting *setting_open(const char *const *set)
{
    static setting s;
    memset(&s, 0, sizeof s);
    s.set = set;
    job_init(&s.j, "slice_bytes: 4096\nupdate: {rule: sgd, learning_rate: 1}\n", set);
    cluster_ps_start(&s.ps, s.j.config, 0, NULL);
    open_worker(&s, 0);
    return &s;
}

static void setting_close(setting *s)
{
    sg_exchange_destroy(s->exchange);
    sg_client_close(s->client);
    cluster_ps_join(&s->ps);
    job_deinit(&s->j);
}

static void begin(setting *s)
{
    sg_error err = {0};
    s->step.values_later = true;
    cr_assert_eq(sg_client_begin_step(s->client, &s->step, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_exchange_finish(s->exchange, &err), SG_OK, "%s", err.message);
    s->step.examples = 3;
    sg_exchange_begin(s->exchange, &s->step);
}

static void send(setting *s, size_t variable, float gradient, bool left_out)
{
    sg_error err = {0};
    for (size_t i = 0; i < s->variables[variable].shape[0]; i++)
        s->gradients[variable][i] = gradient;
    const sg_range all = {.variable = (uint32_t)variable, .n_elems = s->variables[variable].shape[0]};
    cr_assert_eq(sg_exchange_send(s->exchange, &all, left_out, &err), SG_OK, "%s", err.message);
}

static sg_status wait_for(setting *s, size_t variable)
{
    const sg_range all = {.variable = (uint32_t)variable, .n_elems = s->variables[variable].shape[0]};
    return sg_exchange_wait(s->exchange, &all, NULL);
}

static void expect_values(const setting *s, size_t variable, float wanted)
{
    for (size_t i = 0; i < s->variables[variable].shape[0]; i++)
        cr_assert_eq(s->values[variable][i], wanted, "%s[%zu] is %f, wanted %f", s->variables[variable].name, i,
                     (double)s->values[variable][i], (double)wanted);
}

Test(exchange, what_was_waited_for_has_its_next_value)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", NULL};
    setting *s = setting_open(set);
    declare(s);
    for (int step = 1; step <= 10; step++) {
        begin(s);
        send(s, other, 1, false);
        send(s, small, 2, false);
        send(s, large, 3, false);
        cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
        cr_assert_eq(wait_for(s, fixed), SG_OK, "nothing of it is under way");
        for (size_t i = 0; i < n_variables; i++) {
            cr_assert_eq(wait_for(s, i), SG_OK);
            expect_values(s, i, (const float[]){-3, -2, 0, -1}[i] * (float)step);
        }
    }
    setting_close(s);
}

static void send_part(setting *s, uint64_t first, uint64_t n, float gradient, bool left_out)
{
    sg_error err = {0};
    for (uint64_t i = first; i < first + n; i++)
        s->gradients[large][i] = gradient;
    cr_assert_eq(sg_exchange_send(s->exchange, &(sg_range){large, first, n}, left_out, &err), SG_OK, "%s", err.message);
}

static void expect_large(const setting *s, size_t first, size_t end, float wanted)
{
    for (size_t i = first; i < end; i++)
        cr_assert_eq(s->values[large][i], wanted, "element %zu is %f, wanted %f", i, (double)s->values[large][i],
                     (double)wanted);
}

/* Slices have 1024 elements; parts end anywhere. What was sent when most of it was final is not touched any more. */
Test(exchange, a_large_variable_goes_slice_by_slice_as_its_parts_are_final)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", NULL};
    static const uint64_t ends[] = {1, 1000, 1024, 1025, 9000, 17 * 1024 + 5, n_large - 1, n_large};
    setting *s = setting_open(set);
    declare(s);
    for (int step = 1; step <= 5; step++) {
        begin(s);
        for (size_t i = 0; i < SG_ARRAY_LEN(ends); i++) {
            const uint64_t first = i == 0 ? 0 : ends[i - 1];
            send_part(s, first, ends[i] - first, (float)(i + 1), false);
        }
        send(s, small, 2, false);
        send(s, other, 1, false);
        cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
        cr_assert_eq(wait_for(s, large), SG_OK);
        for (size_t i = 0; i < SG_ARRAY_LEN(ends); i++)
            expect_large(s, i == 0 ? 0 : ends[i - 1], ends[i], -(float)(i + 1) * (float)step);
        cr_assert_eq(sg_exchange_finish(s->exchange, NULL), SG_OK);
        expect_values(s, small, -2 * (float)step);
        expect_values(s, other, -1 * (float)step);
    }
    setting_close(s);
}

/* Parts of one variable that take turns with those of others do not go in one. */
Test(exchange, parts_that_take_turns_with_other_variables_all_go)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", NULL};
    setting *s = setting_open(set);
    declare(s);
    s->gradients[small][0] = s->gradients[other][0] = 2;
    for (int step = 1; step <= 3; step++) {
        begin(s);
        for (uint32_t i = 0; i < n_small; i++) {
            send_part(s, (uint64_t)i * 1024, 1024, 1, false);
            cr_assert_eq(sg_exchange_send(s->exchange, &(sg_range){small, i, 1}, false, NULL), SG_OK);
            cr_assert_eq(sg_exchange_send(s->exchange, &(sg_range){other, i, 1}, false, NULL), SG_OK);
        }
        send_part(s, n_small * 1024, n_large - n_small * 1024, 1, false);
        cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
        cr_assert_eq(sg_exchange_finish(s->exchange, NULL), SG_OK);
        expect_values(s, large, -1 * (float)step);
        cr_assert_eq(s->values[other][0], -2 * (float)step);
    }
    setting_close(s);
}

/* The slice in which a part that is left out begins is left out with it. */
Test(exchange, slices_before_a_part_that_is_left_out_count)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", NULL};
    setting *s = setting_open(set);
    declare(s);
    begin(s);
    send(s, other, 1, false);
    send_part(s, 0, 3000, 3, false);
    send_part(s, 3000, n_large - 3000, 3, true);
    send(s, small, 2, true);
    cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
    cr_assert_eq(sg_exchange_finish(s->exchange, NULL), SG_OK);
    expect_large(s, 0, 2048, -3);
    expect_large(s, 2048, n_large, 0);
    expect_values(s, other, -1);
    expect_values(s, small, 0);
    setting_close(s);
}

/* The first two are small and wait for the third to go with them, but count all the same. */
Test(exchange, what_is_left_out_weighs_nothing_and_what_came_before_it_does)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", NULL};
    setting *s = setting_open(set);
    declare(s);
    begin(s);
    send(s, other, 1, false);
    send(s, small, 2, false);
    send(s, large, 3, true);
    cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
    begin(s);
    expect_values(s, other, -1);
    expect_values(s, small, -2);
    expect_values(s, large, 0);
    send(s, large, 3, true);
    send(s, other, 1, true);
    send(s, small, 2, true);
    cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
    begin(s);
    expect_values(s, other, -1);
    send(s, large, 3, false);
    send(s, small, 2, false);
    send(s, other, 1, false);
    cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
    cr_assert_eq(sg_exchange_finish(s->exchange, NULL), SG_OK);
    expect_values(s, large, -3);
    setting_close(s);
}

static void *declare_and_begin(void *user)
{
    declare(user);
    begin(user);
    return NULL;
}

static void send_rest(setting *s, uint64_t first)
{
    send_part(s, first, n_large - first, 3, false);
    send(s, small, 2, false);
    send(s, other, 1, false);
    cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
}

/* Of two workers one pushes the second part of the variable later: no value of it can be there before. */
Test(exchange, who_waits_for_a_part_does_not_wait_for_the_rest)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", "workers=2", NULL};
    enum { cut = 16 * 1024 };
    setting *s = setting_open(set);
    static setting peer;
    peer = (setting){.set = set};
    peer.j = s->j;
    peer.ps = s->ps;
    open_worker(&peer, 1);
    pthread_t thread;
    pthread_create(&thread, NULL, declare_and_begin, &peer);
    declare(s);
    begin(s);
    pthread_join(thread, NULL);
    send_part(&peer, 0, cut, 3, false);
    send_part(s, 0, cut, 3, false);
    send_rest(s, cut);
    cr_assert_eq(sg_exchange_wait(s->exchange, &(sg_range){large, 5, 2000}, NULL), SG_OK);
    cr_assert_eq(sg_exchange_wait(s->exchange, &(sg_range){large, 2000, cut - 2000}, NULL), SG_OK);
    expect_large(s, 0, cut, -3);
    expect_large(s, cut, n_large, 0);
    send_rest(&peer, cut);
    cr_assert_eq(sg_exchange_wait(s->exchange, &(sg_range){large, cut - 1, n_large - cut + 1}, NULL), SG_OK);
    expect_large(s, 0, n_large, -3);
    sg_exchange_destroy(peer.exchange);
    sg_client_close(peer.client);
    setting_close(s);
}

/* The other worker takes part in the step and never pushes, so that nothing comes back. */
Test(exchange, destroying_it_does_not_wait_for_other_workers)
{
    static const char *const set[] = {"ps=[127.0.0.1:0]", "workers=2", NULL};
    setting *s = setting_open(set);
    static setting peer;
    peer = (setting){.set = set};
    peer.j = s->j;
    peer.ps = s->ps;
    open_worker(&peer, 1);
    pthread_t thread;
    pthread_create(&thread, NULL, declare_and_begin, &peer);
    declare(s);
    begin(s);
    pthread_join(thread, NULL);
    send(s, large, 3, false);
    send(s, small, 2, false);
    cr_assert_eq(sg_exchange_send(s->exchange, &(sg_range){.variable = other, .n_elems = n_small}, false, NULL), SG_OK);
    cr_assert_eq(sg_exchange_flush(s->exchange, NULL), SG_OK);
    sg_exchange_destroy(s->exchange);
    sg_exchange_destroy(NULL);
    s->exchange = NULL;
    sg_exchange_destroy(peer.exchange);
    sg_client_close(peer.client);
    setting_close(s);
}
