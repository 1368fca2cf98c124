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

static void add_setting(void *user, const char *key, const char *value)
{
    sim_settings *settings = user;
    SG_ASSERT(settings->n < SIM_MAX_SETTINGS);
    Shardgrad__V1__Setting *item = &settings->items[settings->n];
    shardgrad__v1__setting__init(item);
    item->key = sg_xstrdup(key);
    item->value = sg_xstrdup(value);
    settings->list[settings->n++] = item;
}

void sim_register_init(sim *s)
{
    sg_config_each_shared(s->config, add_setting, &s->settings);
}

void sim_register_deinit(sim *s)
{
    for (size_t i = 0; i < s->settings.n; i++) {
        free(s->settings.items[i].key);
        free(s->settings.items[i].value);
    }
}

/* Half of all bytes of a history would be these settings: requests borrow them. */
static void lend_settings(sim *s, ProtobufCMessage *body)
{
    Shardgrad__V1__RegisterRequest *request = (Shardgrad__V1__RegisterRequest *)body;
    request->settings = s->settings.list;
    request->n_settings = s->settings.n;
}

void sim_register_free(ProtobufCMessage *body)
{
    Shardgrad__V1__RegisterRequest *request = (Shardgrad__V1__RegisterRequest *)body;
    request->settings = NULL;
    request->n_settings = 0;
    protobuf_c_message_free_unpacked(body, NULL);
}

static void send_register(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
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
    request.report = &report;
    request.stopping = ps->stopping;
    if (ps->saved.number != 0)
        request.saved = &ps->saved;
    sim_call call = {.sender = SIM_FROM_PS,
                     .from = index,
                     .sender_life = ps->life,
                     .to_coordinator = true,
                     .body = sg_wire_head_copy(&request.base)};
    lend_settings(s, call.body);
    ps->registering = true;
    ps->says_stopping = ps->stopping;
    ps->sent_ms = s->now_ms;
    sg_store_report_deinit(&report);
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
