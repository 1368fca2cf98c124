/* tests/sim/sim.c - the world: events in the order of time, and what becomes of it all. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"

#define IDLE_MS 10000u /* leases have run out, orders were given up */

uint64_t sim_below(sim *s, uint64_t limit)
{
    return sg_seed_below(&s->seed, limit);
}

bool sim_chance(sim *s, uint32_t per_mille)
{
    return sim_below(s, 1000) < per_mille;
}

void sim_fail(sim *s, const char *format, ...)
{
    if (s->failed)
        return;
    s->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(s->failure, sizeof s->failure, format, args);
    va_end(args);
    sim_trace(s, "FAILED %s", s->failure);
}

void sim_trace(sim *s, const char *format, ...)
{
    if (s->trace == NULL)
        return;
    fprintf(s->trace, "%7" PRIu64 " ", s->now_ms);
    va_list args;
    va_start(args, format);
    vfprintf(s->trace, format, args);
    va_end(args);
    fputc('\n', s->trace);
}

/* --- events ----------------------------------------------------------------------------------------------------- */

static bool comes_before(const sim_event *a, const sim_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

/* Events of the same moment come in any order. */
void sim_at(sim *s, uint64_t at_ms, sim_run run, void *subject, uint64_t number)
{
    if (s->n_events == s->events_capacity) {
        s->events_capacity = s->events_capacity == 0 ? 256 : 2 * s->events_capacity;
        s->events = sg_xrealloc(s->events, s->events_capacity, sizeof *s->events);
    }
    sim_event event = {.at_ms = at_ms < s->now_ms ? s->now_ms : at_ms,
                       .order = sim_below(s, UINT32_MAX),
                       .run = run,
                       .subject = subject,
                       .number = number};
    size_t at = s->n_events++;
    while (at > 0 && comes_before(&event, &s->events[(at - 1) / 2])) {
        s->events[at] = s->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->events[at] = event;
}

static sim_event take_first(sim *s)
{
    sim_event first = s->events[0], last = s->events[--s->n_events];
    size_t at = 0;
    for (size_t child = 1; child < s->n_events; child = 2 * at + 1) {
        if (child + 1 < s->n_events && comes_before(&s->events[child + 1], &s->events[child]))
            child++;
        if (!comes_before(&s->events[child], &last))
            break;
        s->events[at] = s->events[child];
        at = child;
    }
    s->events[at] = last;
    return first;
}

/* --- life ------------------------------------------------------------------------------------------------------- */

sim *sim_create(uint64_t seed)
{
    sim *s = sg_xcalloc(1, sizeof *s);
    s->seed_number = seed;
    s->generation = 1;
    s->seed = (sg_seed){.first = seed, .state = seed};
    sim_workers_init(s);
    sim_scenario_choose(s);
    sim_versions_init(s);
    sim_register_init(s);
    return s;
}

static bool everybody_ended(const sim *s)
{
    if (sim_workers_run(s) || s->n_to_recover > 0)
        return false;
    for (uint32_t i = 0; i < s->scenario.n_ps; i++) {
        if (s->ps[i].running || (!s->ps[i].ended && !s->ps[i].killed))
            return false;
    }
    return true;
}

/* Nobody is left who could move the job: it waits for others to come, and says so. */
static bool nobody_comes(const sim *s)
{
    return !sim_workers_run(s) && s->n_workers >= s->n_to_start && s->now_ms > s->idle_since_ms + IDLE_MS;
}

bool sim_play(sim *s)
{
    while (!s->failed && s->n_events > 0 && !everybody_ended(s) && !nobody_comes(s)) {
        sim_event event = take_first(s);
        s->now_ms = event.at_ms;
        s->n_run++;
        event.run(s, &event);
        if (s->now_ms > SIM_END_MS)
            sim_fail(s, "after %u ms the job has neither finished nor failed", SIM_END_MS);
    }
    if (!s->failed)
        sim_judge(s);
    return !s->failed;
}

static void free_calls(sim *s)
{
    while (s->arrivals != NULL) {
        sim_arrival *arrival = s->arrivals;
        s->arrivals = arrival->next;
        if (arrival->reply != NULL)
            protobuf_c_message_free_unpacked(arrival->reply, NULL);
        free(arrival->data);
        free(arrival);
    }
    while (s->calls != NULL) {
        sim_call *call = s->calls;
        s->calls = call->next;
        if (call->body->descriptor == &shardgrad__v1__register_request__descriptor)
            sim_register_free(call->body);
        else
            protobuf_c_message_free_unpacked(call->body, NULL);
        free(call->data);
        free(call);
    }
}

void sim_destroy(sim *s)
{
    sim_save_deinit(s);
    s->failed = true; /* what still comes out is not judged */
    sim_workers_deinit(s);
    for (uint32_t i = 0; i < s->scenario.n_ps; i++)
        sim_ps_kill(s, i);
    free_calls(s);
    sim_register_deinit(s);
    sim_versions_deinit(s);
    free(s->events);
    free(s->waiting);
    sg_plan_destroy(s->plan);
    sg_config_destroy(s->config);
    free(s);
}
