/* tests/sim/sim_norms.c - a ps asks the coordinator for norms, as server/norms.c does. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"
#include "server/store.h"
#include "tests/sim/sim.h"

#define RETRY_MS 100u

static void ask(sim *s, uint32_t index, uint32_t group)
{
    sim_ps *ps = &s->ps[index];
    sim_norms *norms = &ps->norms[group];
    Shardgrad__V1__NormsRequest request = SHARDGRAD__V1__NORMS_REQUEST__INIT;
    request.ps = index;
    request.life = ps->told_life;
    request.generation = norms->generation;
    request.group = group;
    request.step = norms->step;
    request.squares = norms->squares;
    request.n_squares = norms->n_squares;
    sim_call call = {.sender = SIM_FROM_PS,
                     .from = index,
                     .sender_life = ps->life,
                     .number = norms->number,
                     .to_coordinator = true,
                     .body = sg_wire_head_copy(&request.base)};
    norms->under_way = true;
    sim_send(s, &call, s->config->park_ms + s->config->lease_ms);
}

void sim_norms_ask(void *user, const sg_store_norms *what)
{
    sim_ps *ps = user;
    sim *s = ps->world;
    if (what->group >= SIM_MAX_GROUPS || what->n_squares > SG_ARRAY_LEN(ps->norms[0].squares)) {
        sim_fail(s, "norms of group %" PRIu32 " are asked for", what->group);
        return;
    }
    sim_norms *norms = &ps->norms[what->group];
    *norms = (sim_norms){
        .number = what->number, .generation = what->generation, .step = what->step, .n_squares = what->n_squares};
    memcpy(norms->squares, what->squares, what->n_squares * sizeof *what->squares);
    ask(s, (uint32_t)(ps - s->ps), what->group);
}

static bool may_pass(sg_status status)
{
    return status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_WAITING || status == SG_NOT_READY ||
           status == SG_CANCELLED;
}

/* Its rounds are dropped, or the store learns of the end otherwise. */
static bool has_passed(sg_status status)
{
    return status == SG_ROLLED_BACK || status == SG_FENCED || status == SG_LATE || status == SG_STOPPED;
}

static void take(sim *s, sim_ps *ps, uint32_t group, const Shardgrad__V1__NormsResponse *response)
{
    sg_error err;
    const sg_store_norms_sums sums = {.number = ps->norms[group].number,
                                      .group = group,
                                      .squares = response->squares,
                                      .variables = response->variables,
                                      .n_variables = response->n_variables};
    ps->norms[group].number = 0;
    if (sg_store_norms_answer(ps->store, s->now_ms, &sums, &err) != SG_OK)
        sim_fail(s, "norms were refused: %s", err.message);
    sim_versions_look(s, (uint32_t)(ps - s->ps));
}

void sim_norms_answered(sim *s, const sim_call *call, sg_status status, const char *text, const ProtobufCMessage *reply)
{
    sim_ps *ps = &s->ps[call->from];
    const uint32_t group = ((const Shardgrad__V1__NormsRequest *)call->body)->group;
    sim_norms *norms = &ps->norms[group];
    if (!ps->running || ps->life != call->sender_life || norms->number != call->number)
        return;
    norms->under_way = false;
    norms->next_ms = s->now_ms + (status == SG_WAITING ? 0 : RETRY_MS);
    if (status == SG_OK) {
        take(s, ps, group, (const Shardgrad__V1__NormsResponse *)reply);
    } else if (has_passed(status)) {
        norms->number = 0;
    } else if (!may_pass(status)) {
        norms->number = 0;
        sg_store_fail_pulls(ps->store, status, text);
        if (status != SG_PEER_LOST) /* with which the job ends */
            sim_fail(s, "norms were refused: %s: %s", sg_status_name(status), text);
    } else if (status == SG_WAITING) {
        sg_store_norms_wait(ps->store, group, norms->number, text);
    }
}

void sim_norms_keep(sim *s, uint32_t index)
{
    for (uint32_t group = 0; group < SIM_MAX_GROUPS; group++) {
        const sim_norms *norms = &s->ps[index].norms[group];
        if (norms->number != 0 && !norms->under_way && s->now_ms >= norms->next_ms)
            ask(s, index, group);
    }
}
