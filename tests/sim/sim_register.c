/* tests/sim/sim_register.c - a ps makes itself known to the coordinator and keeps its lease, as server/registrar.c
 * does. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/status.h"
#include "common/wire.h"
#include "server/store.h"

#define RETRY_MS         100u
#define FIRST_TIMEOUT_MS 1000u
#define MAX_SETTINGS     64u

typedef struct settings {
    Shardgrad__V1__Setting items[MAX_SETTINGS], *list[MAX_SETTINGS];
    size_t n;
} settings;

static void add_setting(void *user, const char *key, const char *value)
{
    settings *list = user;
    SG_ASSERT(list->n < MAX_SETTINGS);
    shardgrad__v1__setting__init(&list->items[list->n]);
    list->items[list->n].key = sg_xstrdup(key);
    list->items[list->n].value = sg_xstrdup(value);
    list->list[list->n] = &list->items[list->n];
    list->n++;
}

static void send_register(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
    settings list = {.n = 0};
    sg_config_each_shared(s->config, add_setting, &list);
    Shardgrad__V1__PsReport report;
    sg_store_report(ps->store, &report);
    Shardgrad__V1__RegisterRequest request = SHARDGRAD__V1__REGISTER_REQUEST__INIT;
    request.protocol_version = 1;
    request.job = s->config->job;
    request.ps = index;
    request.life = ps->told_life;
    char address[8];
    snprintf(address, sizeof address, "ps%" PRIu32, index);
    request.address = address;
    request.settings = list.list;
    request.n_settings = list.n;
    request.report = &report;
    request.stopping = ps->stopping;
    if (ps->saved.number != 0)
        request.saved = &ps->saved;
    sim_call call = {.sender = SIM_FROM_PS,
                     .from = index,
                     .sender_life = ps->life,
                     .to_coordinator = true,
                     .body = sg_wire_head_copy(&request.base)};
    ps->registering = true;
    ps->says_stopping = ps->stopping;
    ps->sent_ms = s->now_ms;
    sg_store_report_deinit(&report);
    for (size_t i = 0; i < list.n; i++) {
        free(list.items[i].key);
        free(list.items[i].value);
    }
    sim_send(s, &call, ps->registered ? s->config->lease_ms / 2 : FIRST_TIMEOUT_MS);
}

static bool may_pass(sg_status status)
{
    return status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_WAITING || status == SG_NOT_READY;
}

void sim_register_answered(sim *s, const sim_call *call, sg_status status, const char *text)
{
    sim_ps *ps = &s->ps[call->from];
    if (!ps->running || ps->life != call->sender_life)
        return;
    ps->registering = false;
    if (status == SG_OK) {
        ps->registered = true;
        ps->accepted_ms = ps->sent_ms;
        ps->register_at_ms = ps->sent_ms + s->config->lease_ms / 3;
        ps->said_stopping |= ps->says_stopping;
    } else if (status == SG_ROLLED_BACK) {
        ps->told_life = 1 + call->from + 16 * ++s->n_lives;
        sg_store_set_life(ps->store, ps->told_life);
        ps->register_at_ms = s->now_ms;
    } else if (may_pass(status)) {
        ps->register_at_ms = s->now_ms + RETRY_MS;
    } else {
        sim_ps_end(s, ps, status, text, 0);
    }
    if (ps->stopping && !ps->said_stopping)
        ps->register_at_ms = 0;
}

void sim_register_keep(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
    char text[SG_ERROR_MESSAGE_BYTES];
    snprintf(text, sizeof text, "ps 0 was lost: it accepted no renewal for %" PRIu64 " ms", s->config->lease_ms);
    uint64_t limit_ms = s->scenario.saves ? s->config->start_timeout_ms : s->config->lease_ms;
    if (ps->registered && index != 0 && s->now_ms - ps->accepted_ms >= limit_ms)
        sim_ps_end(s, ps, SG_PEER_LOST, text, s->config->shutdown_grace_ms);
    if (!ps->registered && index != 0 && s->now_ms - ps->accepted_ms >= s->config->start_timeout_ms)
        sim_ps_end(s, ps, SG_UNAVAILABLE, "ps 0 did not come", 0);
    if (!ps->registering && !ps->ended && s->now_ms >= ps->register_at_ms)
        send_register(s, index);
}
