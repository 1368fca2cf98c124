/* The cut of a checkpoint: which version of each slice is kept, with which slots, while rounds go on. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/store_internal.h"
#include "store_fixture.h"

TestSuite(store_cut, .timeout = 30);

#define NUMBER 5u /* of every cut */

typedef struct cut_rig {
    fixture f;
    unsigned n_told;
    uint64_t mark, ticket_mark;
    bool urgent;
    sg_status status;
    char message[SG_ERROR_MESSAGE_BYTES];
} cut_rig;

static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
/* Of 16 and 4 elements: slices 0 and 1, of group 0; slice 2 is of group 1, slice 3 is never trained. */
static const fixture_variable variables[] = {{.name = "weight", .n_elems = 20},
                                             {.name = "critic", .n_elems = 4, .group = 1},
                                             {.name = "fixed", .n_elems = 4, .frozen = true}};

static void on_cut(void *user, const sg_store_cut *made, sg_status status, const char *message)
{
    cut_rig *r = user;
    r->n_told++;
    r->mark = made->mark;
    r->ticket_mark = made->ticket_mark;
    r->urgent = made->urgent;
    r->status = status;
    snprintf(r->message, sizeof r->message, "%s", message ? message : "");
}

static void start(cut_rig *r, sg_mode mode, sg_rule rule, uint32_t n_workers)
{
    *r = (cut_rig){.n_told = 0};
    sg_store_options options = fixture_options(mode, rule);
    options.on_cut = on_cut;
    options.cut_user = r;
    fixture_init(&r->f, &options);
    fixture_start(&r->f, variables, SG_ARRAY_LEN(variables), n_workers, 8.0f);
}

static void stop(cut_rig *r)
{
    fixture_stop(&r->f);
}

static void push(cut_rig *r, uint32_t worker, uint64_t step, uint32_t slice, uint64_t members, uint64_t mark)
{
    fixture_push one = fixture_a_push(worker, step, members, ones, slice == 0 ? 16 : 4);
    one.slices = &slice;
    one.group = slice == 2;
    one.mark = mark;
    sg_error err = {0};
    cr_assert_eq(fixture_send(&r->f, &one, NULL, NULL, &err), SG_OK, "%s", err.message);
}

static sg_status cut_marked(cut_rig *r, uint64_t mark, uint64_t ticket_mark, const uint64_t first_steps[2],
                            size_t n_steps, sg_error *err)
{
    uint64_t steps[2] = {first_steps[0], first_steps[1]};
    Shardgrad__V1__Cut message = SHARDGRAD__V1__CUT__INIT;
    message.mark = mark;
    message.ticket_mark = ticket_mark;
    message.number = NUMBER;
    message.steps = steps;
    message.n_steps = n_steps;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT;
    order.cut = &message;
    return fixture_order(&r->f, &order, err);
}

static sg_status cut(cut_rig *r, uint64_t mark, uint64_t first, uint64_t second, size_t n_steps, sg_error *err)
{
    return cut_marked(r, mark, mark, (const uint64_t[]){first, second}, n_steps, err);
}

static void cut_ok(cut_rig *r, uint64_t mark, uint64_t first, uint64_t second)
{
    sg_error err = {0};
    cr_assert_eq(cut(r, mark, first, second, 2, &err), SG_OK, "%s", err.message);
}

static sg_store_kept take(cut_rig *r, uint32_t place)
{
    sg_store_kept kept;
    sg_error err = {0};
    const sg_store_cut the_cut = {.generation = 1, .number = NUMBER, .ticket_mark = r->ticket_mark};
    cr_assert_eq(sg_store_take_kept(r->f.store, &the_cut, place, &kept, &err), SG_OK, "%s", err.message);
    cr_assert_eq(kept.slice, place);
    return kept;
}

static void expect(cut_rig *r, uint32_t place, uint64_t step, float value, size_t n_slots, float slot)
{
    sg_store_kept kept = take(r, place);
    cr_assert_eq(kept.version->step, step, "slice %u is of step %lu", place, kept.version->step);
    cr_assert_eq(kept.version->values[0], value, "%g", (double)kept.version->values[0]);
    cr_assert_eq(kept.n_slots, n_slots);
    for (size_t i = 0; i < n_slots; i++)
        cr_assert_eq(kept.slots[i]->values[kept.version->n_elems - 1], slot, "%g", (double)kept.slots[i]->values[0]);
    sg_store_kept_deinit(&kept);
}

Test(store_cut, of_the_initial_values_is_complete_at_once)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    cut_ok(&r, 0, 0, 0);
    cr_assert_eq(r.n_told, 1);
    cr_assert_eq(r.status, SG_OK);
    cr_assert_eq(sg_store_n_slices(r.f.store), 4);
    for (uint32_t place = 0; place < 4; place++)
        expect(&r, place, 0, 8.0f, place == 3 ? 0 : 1, 0.0f);
    stop(&r);
}

/* Momentum's slot after s steps of gradient 1 is 1 + 0.9 + ...; step 1 is the first with mark 1. */
Test(store_cut, keeps_values_and_slots_of_before_the_first_step_with_the_mark_however_far_rounds_go)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    for (uint32_t slice = 0; slice < 3; slice++)
        push(&r, 0, 0, slice, 0x1, 0);
    push(&r, 0, 1, 0, 0x1, 1);
    push(&r, 0, 2, 0, 0x1, 1);
    cut_ok(&r, 1, 1, 1);
    cr_assert_eq(r.n_told, 1);
    push(&r, 0, 1, 1, 0x1, 1);
    push(&r, 0, 3, 0, 0x1, 1);
    expect(&r, 0, 1, 7.0f, 1, 1.0f);
    expect(&r, 1, 1, 7.0f, 1, 1.0f);
    expect(&r, 2, 1, 7.0f, 1, 1.0f);
    expect(&r, 3, 0, 8.0f, 0, 0.0f);
    stop(&r);
}

Test(store_cut, what_was_taken_is_not_kept_again_by_the_step_that_carries_the_mark)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    for (uint32_t slice = 0; slice < 3; slice++)
        push(&r, 0, 0, slice, 1, 0);
    cut_ok(&r, 1, 1, 1);
    cr_assert(r.n_told == 1 && !r.urgent);
    for (uint32_t place = 0; place < 3; place++) {
        sg_store_kept kept = take(&r, place);
        push(&r, 0, 1, place, 1, 1);
        cr_assert_null(r.f.store->slices[place].cut, "its slots would be copied for nobody");
        cr_assert_eq(kept.version->step, 1);
        sg_store_kept_deinit(&kept);
    }
    stop(&r);
}

Test(store_cut, a_slice_says_where_it_is_in_the_plan_and_how_many_slots_it_has)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_ADAM, 1);
    for (uint32_t place = 0; place < 4; place++) {
        uint32_t index, n_slots;
        sg_store_place(r.f.store, place, &index, &n_slots);
        cr_assert_eq(index, place);
        cr_assert_eq(n_slots, place == 3 ? 0 : 2);
    }
    stop(&r);
}

Test(store_cut, waits_for_slices_that_are_behind_and_is_told_once)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 2);
    push(&r, 0, 0, 0, 0x3, 0);
    push(&r, 1, 0, 0, 0x3, 0);
    push(&r, 0, 0, 1, 0x3, 0);
    cut_ok(&r, 1, 1, 0);
    cr_assert_eq(r.n_told, 0, "slice 1 lacks a contribution to step 0");
    push(&r, 0, 1, 0, 0x3, 1);
    push(&r, 1, 1, 0, 0x3, 1);
    push(&r, 1, 0, 1, 0x3, 0);
    cr_assert_eq(r.n_told, 1);
    cr_assert_eq(r.mark, 1);
    push(&r, 0, 1, 1, 0x3, 1);
    push(&r, 1, 1, 1, 0x3, 1);
    expect(&r, 0, 1, 7.0f, 1, 1.0f);
    expect(&r, 1, 1, 7.0f, 1, 1.0f);
    expect(&r, 2, 0, 8.0f, 1, 0.0f);
    cr_assert_eq(r.n_told, 1);
    stop(&r);
}

Test(store_cut, a_step_that_all_are_excused_from_keeps_what_it_passes_on)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 2);
    push(&r, 0, 0, 0, 0x1, 0);
    uint64_t steps[] = {1};
    fixture_excuse(&r.f, 0, FIXTURE_INCARNATION(1), steps, 1, 0x1); /* it closes without a contribution */
    push(&r, 1, 2, 0, 0x2, 3);
    cut_ok(&r, 3, 2, 0);
    cr_assert_eq(r.n_told, 0, "slice 1 has not closed step 1");
    push(&r, 1, 0, 1, 0x2, 0);
    push(&r, 1, 2, 1, 0x2, 3);
    cr_assert_eq(r.n_told, 1);
    expect(&r, 0, 2, 7.0f, 1, 1.0f);
    stop(&r);
}

/* Slice 0 as one contribution left it. */
static void expect_first_step_alone(cut_rig *r)
{
    cr_assert_eq(r->n_told, 1);
    cr_assert_eq(r->status, SG_OK, "%s", r->message);
    sg_store_kept kept = take(r, 0);
    cr_assert_eq(kept.step, 1);
    cr_assert_eq(kept.n_applied, 1);
    cr_assert_eq(kept.version->values[0], 7.0f);
    cr_assert_eq(kept.slots[0]->values[0], 1.0f);
    sg_store_kept_deinit(&kept);
}

Test(store_cut, steps_that_nobody_pushed_are_not_in_it_though_they_are_closed)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    for (uint32_t slice = 0; slice < 3; slice++)
        push(&r, 0, 0, slice, 0x1, 0);
    uint64_t steps[] = {1, 2};
    fixture_excuse(&r.f, 0, FIXTURE_INCARNATION(1), steps, 2, 0x1);
    cr_assert_eq(r.f.store->slices[0].newest->step, 3);
    cut_ok(&r, 1, 1, 1);
    expect_first_step_alone(&r);
    stop(&r);
}

/* A thread has begun to close it, and gets no farther until the order has been followed. */
Test(store_cut, a_step_that_nobody_pushed_is_not_in_it_while_it_closes_either)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    for (uint32_t slice = 0; slice < 3; slice++)
        push(&r, 0, 0, slice, 0x1, 0);
    sg_store_slice *slice = &r.f.store->slices[0];
    sg_round_terms terms = {.iteration = 1};
    sg_store_closing closing = {0};
    sg_workers_add(&terms.members, 0);
    sg_round_excuse(&slice->round, 0, 1, &terms);
    sg_round_begin_close(&slice->round);
    sg_store_begin_close(r.f.store, slice, NULL, &closing);
    cut_ok(&r, 1, 1, 1);
    sg_store_close(r.f.store, r.f.now_ms, slice, &closing);
    cr_assert_eq(slice->newest->step, 2);
    expect_first_step_alone(&r);
    stop(&r);
}

Test(store_cut, steps_that_nobody_pushed_are_not_in_it_though_their_versions_are_gone)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 3);
    for (uint32_t slice = 0; slice < 3; slice++)
        push(&r, 0, 0, slice, 0x1, 0);
    uint64_t steps[] = {1, 2};
    fixture_excuse(&r.f, 0, FIXTURE_INCARNATION(1), steps, 2, 0x1);
    push(&r, 1, 3, 0, 0x6, 0); /* whoever pushes step 3 needs nothing before it */
    push(&r, 2, 3, 1, 0x6, 0);
    cr_assert_null(r.f.store->slices[0].older);
    cut_ok(&r, 1, 1, 1);
    expect_first_step_alone(&r);
    stop(&r);
}

Test(store_cut, async_every_slice_keeps_the_version_that_it_has_when_the_order_comes)
{
    cut_rig r;
    start(&r, SG_MODE_ASYNC, SG_RULE_ADAM, 1);
    push(&r, 0, 0, 0, 0x1, 0);
    push(&r, 0, 1, 0, 0x1, 0);
    push(&r, 0, 0, 1, 0x1, 0);
    sg_error err = {0};
    cr_assert_eq(cut(&r, 5, 0, 0, 0, &err), SG_OK, "%s", err.message);
    cr_assert_eq(r.n_told, 1);
    push(&r, 0, 2, 0, 0x1, 0);
    sg_store_kept first = take(&r, 0), second = take(&r, 1), third = take(&r, 2);
    cr_assert_eq(first.version->step, 2);
    cr_assert_eq(first.n_applied, 2);
    cr_assert_eq(second.version->step, 1);
    cr_assert_eq(second.n_applied, 1);
    cr_assert_eq(third.n_applied, 0);
    cr_assert_eq(first.n_slots, 2);
    cr_assert_neq(first.slots[0]->values[0], r.f.store->slices[0].slots[0][0], "a copy from before the third push");
    cr_assert_eq(second.slots[0]->values[0], r.f.store->slices[1].slots[0][0]);
    sg_store_kept_deinit(&first);
    sg_store_kept_deinit(&second);
    sg_store_kept_deinit(&third);
    stop(&r);
}

Test(store_cut, one_that_comes_too_late_fails_with_the_slice_and_rounds_go_on)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    push(&r, 0, 0, 0, 0x1, 0);
    push(&r, 0, 1, 0, 0x1, 0);
    cut_ok(&r, 1, 1, 0);
    cr_assert_eq(r.n_told, 1);
    cr_assert_eq(r.status, SG_LATE);
    cr_assert_not_null(strstr(r.message, "slice 0 of variable 'weight' has closed step 1"), "%s", r.message);
    sg_store_drop_cut(r.f.store, &(sg_store_cut){.generation = 1, .ticket_mark = 1});
    push(&r, 0, 2, 0, 0x1, 2);
    push(&r, 0, 0, 1, 0x1, 0);
    push(&r, 0, 1, 1, 0x1, 0);
    cut_ok(&r, 2, 2, 0);
    cr_assert_eq(r.n_told, 2);
    cr_assert_eq(r.status, SG_OK);
    expect(&r, 0, 2, 8.0f - 1.0f - 1.9f, 1, 1.9f);
    stop(&r);
}

Test(store_cut, that_is_given_up_keeps_nothing_and_the_next_is_complete)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    push(&r, 0, 0, 0, 0x1, 1);
    sg_store_drop_cut(r.f.store, &(sg_store_cut){.generation = 1, .ticket_mark = 1});
    for (uint32_t place = 0; place < 4; place++)
        cr_assert_null(r.f.store->slices[place].cut);
    push(&r, 0, 0, 1, 0x1, 1);
    cr_assert_null(r.f.store->slices[1].cut, "a step of a checkpoint that was given up");
    sg_store_kept kept;
    sg_error err;
    const sg_store_cut the_cut = {.generation = 1, .number = NUMBER};
    cr_assert_eq(sg_store_take_kept(r.f.store, &the_cut, 0, &kept, &err), SG_CANCELLED);
    push(&r, 0, 1, 0, 0x1, 2);
    cut_ok(&r, 2, 1, 0);
    cr_assert_eq(r.n_told, 1);
    expect(&r, 0, 1, 7.0f, 1, 1.0f);
    stop(&r);
}

Test(store_cut, one_that_was_never_ordered_makes_room_for_the_next_mark)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    push(&r, 0, 0, 0, 0x1, 1);
    push(&r, 0, 1, 0, 0x1, 2);
    push(&r, 0, 0, 1, 0x1, 0);
    cut_ok(&r, 2, 1, 0);
    cr_assert_eq(r.n_told, 1);
    expect(&r, 0, 1, 7.0f, 1, 1.0f);
    stop(&r);
}

/* Both of iteration 1; the first step that is in neither carries the second mark. */
Test(store_cut, that_failed_can_be_made_again_at_the_same_iteration_while_steps_are_pushed)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    for (uint32_t slice = 0; slice < 3; slice++)
        push(&r, 0, 0, slice, 0x1, 0);
    cut_ok(&r, 1, 1, 1);
    sg_store_drop_cut(r.f.store, &(sg_store_cut){.generation = 1, .ticket_mark = 1});
    push(&r, 0, 1, 0, 0x1, 2);
    uint64_t steps[2] = {1, 1};
    Shardgrad__V1__Cut again = SHARDGRAD__V1__CUT__INIT;
    again.mark = 1;
    again.ticket_mark = 2;
    again.number = NUMBER;
    again.steps = steps;
    again.n_steps = 2;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT;
    order.cut = &again;
    sg_error err = {0};
    cr_assert_eq(fixture_order(&r.f, &order, &err), SG_OK, "%s", err.message);
    cr_assert_eq(r.n_told, 2);
    cr_assert_eq(r.status, SG_OK, "%s", r.message);
    cr_assert_eq(r.mark, 1);
    expect(&r, 0, 1, 7.0f, 1, 1.0f);
    expect(&r, 1, 1, 7.0f, 1, 1.0f);
    stop(&r);
}

Test(store_cut, that_is_given_up_leaves_what_is_kept_for_a_later_mark)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    push(&r, 0, 0, 0, 0x1, 0);
    push(&r, 0, 1, 0, 0x1, 2);
    sg_store_drop_cut(r.f.store, &(sg_store_cut){.generation = 1, .ticket_mark = 1});
    push(&r, 0, 2, 0, 0x1, 2);
    push(&r, 0, 0, 1, 0x1, 0);
    cut_ok(&r, 2, 1, 0);
    cr_assert_eq(r.n_told, 1);
    cr_assert_eq(r.status, SG_OK, "%s", r.message);
    expect(&r, 0, 1, 7.0f, 1, 1.0f);
    stop(&r);
}

/* --- what is meant is of another order, or of a generation that has passed --- */

static void take_none(cut_rig *r, uint64_t generation, uint64_t number)
{
    sg_store_kept kept;
    sg_error err;
    const sg_store_cut the_cut = {.generation = generation, .number = number, .ticket_mark = r->ticket_mark};
    cr_assert_eq(sg_store_take_kept(r->f.store, &the_cut, 0, &kept, &err), SG_CANCELLED);
    cr_assert_str_eq(err.message, "the checkpoint was given up");
}

/* Numbers begin at 1 again with a coordinator that was started anew. */
Test(store_cut, what_is_kept_is_taken_for_its_own_order_and_generation_alone)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    cut_ok(&r, 1, 0, 0);
    take_none(&r, 1, NUMBER + 1);
    take_none(&r, 1, NUMBER - 1);
    take_none(&r, 2, NUMBER);
    expect(&r, 0, 0, 8.0f, 1, 0.0f);
    stop(&r);
}

Test(store_cut, that_is_given_up_late_marks_nothing_in_the_next_generation)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    sg_error err = {0};
    cr_assert_eq(fixture_begin(&r.f, 2, &err), SG_OK, "%s", err.message);
    sg_store_drop_cut(r.f.store, &(sg_store_cut){.generation = 1, .ticket_mark = 1000});
    for (uint32_t place = 0; place < 4; place++)
        cr_assert_eq(r.f.store->slices[place].mark, 0);
    stop(&r);
}

typedef struct dropper {
    sg_store *store;
    _Atomic pid_t thread;
} dropper;

static void *drops(void *user)
{
    dropper *d = user;
    d->thread = gettid();
    sg_store_drop_cut(d->store, &(sg_store_cut){.generation = 1, .ticket_mark = 1000});
    return NULL;
}

/* Until the thread waits for something: here, for the slice that this one holds. */
static void await_asleep(dropper *d)
{
    char path[64], state = 'R';
    while (d->thread == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)d->thread);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        cr_assert(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        sched_yield();
    }
}

/* The thread is at the first slice when the generation begins: either that waits, or nothing of the drop comes after.
 */
Test(store_cut, no_generation_begins_while_a_slice_is_marked_for_the_one_before)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_MOMENTUM, 1);
    sg_store *store = r.f.store;
    dropper d = {.store = store};
    pthread_t thread;
    pthread_mutex_lock(&store->slices[0].mutex);
    cr_assert_eq(pthread_create(&thread, NULL, drops, &d), 0);
    await_asleep(&d);
    const bool begins = pthread_rwlock_trywrlock(&store->lock) == 0;
    if (begins) {
        store->generation = 2;
        pthread_rwlock_unlock(&store->lock);
    }
    pthread_mutex_unlock(&store->slices[0].mutex);
    pthread_join(thread, NULL);
    for (uint32_t place = 0; place < 4; place++)
        cr_assert_eq(store->slices[place].mark, begins ? 0 : 1000);
    stop(&r);
}

Test(store_cut, an_order_that_makes_no_sense_is_refused)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_SGD, 1);
    sg_error err = {0};
    cr_assert_eq(cut(&r, 1, 0, 0, 1, &err), SG_INVALID);
    cr_assert_str_eq(err.message, "cut 1 names 1 groups, want 2");
    cut_ok(&r, 4, 0, 0);
    cr_assert_eq(cut_marked(&r, 5, 4, (const uint64_t[]){0, 0}, 2, &err), SG_INVALID);
    cr_assert_str_eq(err.message, "cut 5 has ticket mark 4, one before it has 4");
    cr_assert_eq(r.n_told, 1);
    stop(&r);
}

/* One beyond it failed, and those who were to begin the steps between have left. */
Test(store_cut, the_iteration_of_a_cut_may_lie_below_that_of_one_before)
{
    cut_rig r;
    start(&r, SG_MODE_SYNC, SG_RULE_SGD, 1);
    sg_error err = {0};
    cut_ok(&r, 4, 0, 0);
    sg_store_drop_cut(r.f.store, &(sg_store_cut){.generation = 1, .number = NUMBER, .ticket_mark = 4});
    cr_assert_eq(cut_marked(&r, 3, 5, (const uint64_t[]){0, 0}, 2, &err), SG_OK, "%s", err.message);
    cr_assert_eq(r.n_told, 2);
    stop(&r);
}

/* --- under many threads --- */

#define STEPS   400u
#define EVERY   10u
#define THREADS 3u

typedef struct hammer {
    cut_rig *r;
    uint32_t worker;
    pthread_barrier_t *steps;
} hammer;

/* Every worker pushes every slice of group 0, and goes on when all have; marks come every EVERY steps. */
static void *pushes(void *user)
{
    hammer *h = user;
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t mark = step / EVERY * EVERY;
        for (uint32_t i = 0; i < 2; i++)
            push(h->r, h->worker, step, (i + h->worker) % 2, (1u << THREADS) - 1, mark);
        pthread_barrier_wait(h->steps);
    }
    return NULL;
}

typedef struct counting {
    pthread_mutex_t mutex;
    pthread_cond_t told;
    uint64_t n;
} counting;

static counting complete = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void on_cut_counted(void *user, const sg_store_cut *made, sg_status status, const char *message)
{
    (void)user;
    (void)made;
    cr_assert_eq(status, SG_OK, "%s", message ? message : "");
    pthread_mutex_lock(&complete.mutex);
    complete.n++;
    pthread_cond_signal(&complete.told);
    pthread_mutex_unlock(&complete.mutex);
}

/* With sgd and gradients of 1 version s is 8 - s, and momentum's slot of step s the sum of 0.9^i. */
static void take_and_check(cut_rig *r, uint64_t mark, const float *slots)
{
    for (uint32_t place = 0; place < 2; place++) {
        sg_store_kept kept = take(r, place);
        cr_assert_eq(kept.version->step, mark);
        for (uint64_t i = 0; i < kept.version->n_elems; i++)
            cr_assert_eq(kept.slots[0]->values[i], slots[mark], "step %lu", mark);
        sg_store_kept_deinit(&kept);
    }
    sg_store_drop_cut(r->f.store, &(sg_store_cut){.generation = 1, .ticket_mark = mark});
}

Test(store_cut, cuts_are_exact_while_threads_push)
{
    cut_rig r = {.n_told = 0};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_MOMENTUM);
    options.on_cut = on_cut_counted;
    fixture_init(&r.f, &options);
    fixture_start(&r.f, variables, SG_ARRAY_LEN(variables), THREADS, 8.0f);
    float slots[STEPS + 1] = {0};
    for (uint32_t i = 0; i < STEPS; i++)
        slots[i + 1] = 0.9f * slots[i] + 1.0f;
    pthread_barrier_t steps;
    pthread_barrier_init(&steps, NULL, THREADS + 1);
    hammer hammers[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        hammers[i] = (hammer){.r = &r, .worker = i, .steps = &steps};
        pthread_create(&threads[i], NULL, pushes, &hammers[i]);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        if (step > 0 && step % EVERY == 0)
            cut_ok(&r, step, step, 0); /* while that step is being pushed */
        pthread_barrier_wait(&steps);
        if (step == 0 || step % EVERY != 0)
            continue;
        pthread_mutex_lock(&complete.mutex);
        while (complete.n < step / EVERY)
            pthread_cond_wait(&complete.told, &complete.mutex);
        pthread_mutex_unlock(&complete.mutex);
        take_and_check(&r, step, slots);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&steps);
    stop(&r);
}
