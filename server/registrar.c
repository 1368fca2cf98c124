/* server/registrar.c - see registrar.h. */
#include "server/registrar.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/address.h"
#include "common/clock.h"
#include "shardgrad/v1/coordinator.pb-c.h"

#define PROTOCOL_VERSION   1u
#define RETRY_MIN_MS       100u
#define RETRY_MAX_MS       1000u
#define FIRST_TIMEOUT_MS   2000u
#define STOPPING_MS        500u
#define FIRST_WAIT_LINE_MS 2000u
#define LATE_TICK_MS       500u

struct sg_registrar {
    sg_registrar_options options;
    char *address, *coordinator;
    uint64_t life;
    uint64_t began_ms, accepted_ms; /* first tick; when the newest accepted call was sent */
    uint64_t next_ms, retry_ms;     /* of the next call; how long after a failure */
    uint64_t lease_ms;
    const Shardgrad__V1__SaveReport *saved; /* NULL: none yet */
    bool said_saved;                        /* in a call that was accepted */
    bool begun, registered, stopping, said_stopping, closed;
    bool over; /* on_failed was called */
    uint64_t ticked_ms;
    uint64_t next_line_ms, line_interval_ms;
    sg_error newest_error;
    /* The one call under way. */
    bool under_way;
    uint64_t sent_ms;
    char target[SG_ADDRESS_BYTES];
    sg_rpc_channel *channel; /* to target */
    sg_mailbox_item done;
    bool said_in_call; /* it says that this ps is stopping */
    bool says_saved;   /* and how this cut went: */
    uint64_t saved_number;
    sg_status status;
    sg_error error;
    uint64_t granted_lease_ms;
};

/* --- the request --- */

typedef struct settings {
    Shardgrad__V1__Setting **items;
    size_t n;
} settings;

static void add_setting(void *user, const char *key, const char *value)
{
    settings *s = user;
    s->items = sg_xrealloc(s->items, s->n + 1, sizeof(Shardgrad__V1__Setting *));
    Shardgrad__V1__Setting *setting = sg_xcalloc(1, sizeof *setting);
    shardgrad__v1__setting__init(setting);
    setting->key = sg_xstrdup(key);
    setting->value = sg_xstrdup(value);
    s->items[s->n++] = setting;
}

static void settings_deinit(settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i]->key);
        free(s->items[i]->value);
        free(s->items[i]);
    }
    free(s->items);
}

static sg_status pack(sg_registrar *r, sg_wire_message **message, sg_error *err)
{
    settings s = {0};
    sg_config_each_shared(r->options.config, add_setting, &s);
    Shardgrad__V1__PsReport report;
    sg_store_report(r->options.store, &report);
    Shardgrad__V1__RegisterRequest request = SHARDGRAD__V1__REGISTER_REQUEST__INIT;
    request.protocol_version = PROTOCOL_VERSION;
    request.job = r->options.config->job;
    request.ps = r->options.ps;
    request.life = r->life;
    request.address = r->address;
    request.n_settings = s.n;
    request.settings = s.items;
    request.report = &report;
    request.stopping = r->stopping;
    request.saved = (Shardgrad__V1__SaveReport *)r->saved; /* packed, not written */
    sg_status status = sg_wire_pack(sg_rpc_client_pool(r->options.client), &request.base, NULL, 0, message, err);
    sg_store_report_deinit(&report);
    settings_deinit(&s);
    return status;
}

static void call(sg_registrar *r, uint64_t now_ms);

/* --- its end --- */

static void give_up(sg_registrar *r, sg_status status, const char *text)
{
    if (r->over || r->stopping)
        return;
    r->over = true;
    r->options.on_failed(r->options.user, status, text);
}

static void said_stopping(sg_registrar *r, bool told)
{
    if (r->said_stopping)
        return;
    r->said_stopping = true;
    r->options.on_said_stopping(r->options.user, told);
}

/* A coordinator that has ended, or another server at an address of an earlier run: the right one may yet come. */
static bool may_pass(const sg_registrar *r, sg_status status)
{
    switch (status) {
    case SG_UNAVAILABLE:
    case SG_TIMEOUT:
    case SG_WAITING:
    case SG_NOT_READY:
    case SG_CANCELLED:
        return true;
    case SG_STOPPED:
    case SG_UNIMPLEMENTED:
        return !r->registered;
    default:
        return false;
    }
}

static void accepted(sg_registrar *r)
{
    if (!r->registered)
        sg_log_info(r->options.log, "registered", "coordinator=%s lease_ms=%" PRIu64, r->target, r->granted_lease_ms);
    r->registered = true;
    r->accepted_ms = r->sent_ms;
    r->lease_ms = r->granted_lease_ms;
    r->retry_ms = RETRY_MIN_MS;
    r->next_ms = r->sent_ms + r->lease_ms / 3;
}

static void on_done(sg_mailbox_item *item)
{
    sg_registrar *r = SG_CONTAINER_OF(item, sg_registrar, done);
    r->under_way = false;
    if (r->closed)
        return;
    if (r->status == SG_OK) {
        accepted(r);
        r->said_saved |= r->says_saved && r->saved->number == r->saved_number;
    } else if (r->status == SG_ROLLED_BACK && r->options.on_new_life) {
        r->life = r->options.on_new_life(r->options.user);
        sg_log_warn(r->options.log, "new_life", "life=%" PRIx64 " reason=\"ps 0 was started anew\"", r->life);
        r->next_ms = 0;
    } else if (may_pass(r, r->status)) {
        r->newest_error = r->error;
        r->next_ms = sg_clock_ms() + r->retry_ms;
        r->retry_ms = 2 * r->retry_ms < RETRY_MAX_MS ? 2 * r->retry_ms : RETRY_MAX_MS;
    } else {
        give_up(r, r->status, r->error.message);
    }
    if (r->stopping && (r->said_in_call || r->status != SG_OK))
        said_stopping(r, r->status == SG_OK);
    else if (r->stopping)
        r->next_ms = 0; /* the call under way did not say it yet */
    if (r->saved && !r->said_saved && r->status == SG_OK)
        call(r, sg_clock_ms());
}

/* On the client's thread. */
static void on_reply(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    sg_registrar *r = user;
    r->status = status;
    if (status == SG_OK) {
        sg_wire_parts parts;
        r->status =
            sg_rpc_channel_unpack(r->channel, reply, &shardgrad__v1__register_response__descriptor, &parts, &r->error);
        if (r->status == SG_OK) {
            r->granted_lease_ms = ((const Shardgrad__V1__RegisterResponse *)parts.head)->lease_ms;
            sg_wire_parts_deinit(&parts);
        }
    } else {
        r->error = *error;
    }
    sg_mailbox_post(r->options.mailbox, &r->done);
}

/* --- calls --- */

/* Where the coordinator is now: an address that was read from a file may be of an earlier run. */
static sg_status find_coordinator(sg_registrar *r, sg_error *err)
{
    char target[SG_ADDRESS_BYTES];
    if (r->coordinator) {
        snprintf(target, sizeof target, "%s", r->coordinator);
    } else {
        sg_status status = sg_address_find(r->options.config, 0, target, err);
        if (status == SG_NOT_READY && r->channel) /* somebody has removed the file, perhaps with the folder */
            return SG_OK;
        if (status != SG_OK)
            return status;
    }
    if (!r->channel || strcmp(target, r->target) != 0) {
        memcpy(r->target, target, sizeof target);
        sg_rpc_channel_release(r->channel);
        r->channel = sg_rpc_client_channel(r->options.client, target);
    }
    return SG_OK;
}

static void call(sg_registrar *r, uint64_t now_ms)
{
    sg_wire_message *message = NULL;
    r->under_way = true;
    r->sent_ms = now_ms;
    r->said_in_call = r->stopping;
    r->says_saved = r->saved != NULL;
    r->saved_number = r->says_saved ? r->saved->number : 0;
    sg_status status = find_coordinator(r, &r->error);
    if (status == SG_OK)
        status = pack(r, &message, &r->error);
    if (status != SG_OK) {
        r->status = status;
        on_done(&r->done);
        return;
    }
    uint64_t timeout_ms = r->stopping ? STOPPING_MS : r->registered ? r->lease_ms / 2 : FIRST_TIMEOUT_MS;
    sg_rpc_pending_release(
        sg_rpc_channel_call(r->channel, "/shardgrad.v1.CoordinatorService/Register", message, timeout_ms, on_reply, r));
}

/* --- time --- */

static void begin(sg_registrar *r, uint64_t now_ms)
{
    r->begun = true;
    r->began_ms = r->ticked_ms = now_ms;
    r->next_line_ms = now_ms + FIRST_WAIT_LINE_MS;
    r->line_interval_ms = r->options.config->warn_after_ms;
}

static void say_for_whom_it_waits(sg_registrar *r, uint64_t now_ms)
{
    if (r->registered || now_ms < r->next_line_ms || !r->newest_error.message[0])
        return;
    r->next_line_ms = now_ms + r->line_interval_ms;
    r->line_interval_ms *= 2;
    char quoted[SG_ERROR_MESSAGE_BYTES + 32];
    const uint64_t waited_ms = now_ms - r->began_ms;
    sg_log_event(r->options.log, waited_ms < r->options.config->warn_after_ms ? SG_LOG_INFO : SG_LOG_WARN, "waiting",
                 "for=\"ps 0 to accept this one\" waited_ms=%" PRIu64 " error=%s", waited_ms,
                 sg_log_quote(r->newest_error.message, quoted, sizeof quoted));
}

/* What is lost with ps 0 can be restored. */
static bool recovers(const sg_registrar *r)
{
    return r->options.config->checkpoint.dir[0] != '\0';
}

static void notice_time(sg_registrar *r, uint64_t now_ms)
{
    sg_error why;
    uint64_t start_timeout_ms = r->options.config->start_timeout_ms;
    if (!r->registered && now_ms - r->began_ms >= start_timeout_ms) {
        (void)!sg_error_set(&why, SG_UNAVAILABLE, "ps 0 did not come within %" PRIu64 " ms: %s", start_timeout_ms,
                            r->newest_error.message[0] ? r->newest_error.message : "no answer");
        give_up(r, SG_UNAVAILABLE, why.message);
    }
    /* Where this process itself was held up, replies may lie unread: the lease is extended by that. Not beyond now: the
     * newest call may have been sent since the last tick. */
    if (now_ms - r->ticked_ms > LATE_TICK_MS)
        r->accepted_ms += now_ms - (r->accepted_ms > r->ticked_ms ? r->accepted_ms : r->ticked_ms);
    r->ticked_ms = now_ms;
    /* ps 0 cannot lose itself: its loop serves both ends. */
    uint64_t limit_ms = recovers(r) && start_timeout_ms > r->lease_ms ? start_timeout_ms : r->lease_ms;
    if (r->registered && r->options.ps != 0 && now_ms - r->accepted_ms >= limit_ms) {
        (void)!sg_error_set(&why, SG_PEER_LOST, "ps 0 (%s) was lost: it accepted no renewal for %" PRIu64 " ms",
                            r->target, limit_ms);
        give_up(r, SG_PEER_LOST, why.message);
    }
}

void sg_registrar_tick(sg_registrar *r, uint64_t now_ms)
{
    if (r->closed || r->over)
        return;
    if (!r->begun)
        begin(r, now_ms);
    if (!r->stopping) {
        say_for_whom_it_waits(r, now_ms);
        notice_time(r, now_ms);
    }
    /* One that stops goes on to be heard of while a last checkpoint is made. */
    bool silent = r->said_stopping && r->options.config->checkpoint.dir[0] == '\0';
    if (!r->under_way && !r->over && !silent && now_ms >= r->next_ms)
        call(r, now_ms);
}

void sg_registrar_say_saved(sg_registrar *r, uint64_t now_ms, const Shardgrad__V1__SaveReport *report)
{
    r->saved = report;
    r->said_saved = false;
    if (!r->closed && !r->over && !r->under_way)
        call(r, now_ms);
}

void sg_registrar_say_stopping(sg_registrar *r, uint64_t now_ms)
{
    r->stopping = true;
    if (!r->registered || r->over)
        said_stopping(r, false);
    else if (!r->under_way)
        call(r, now_ms);
}

sg_rpc_channel *sg_registrar_channel(const sg_registrar *registrar, uint64_t *life)
{
    SG_ASSERT(registrar->channel); /* whoever gives orders to this ps was told of it */
    *life = registrar->life;
    return registrar->channel;
}

void sg_registrar_close(sg_registrar *registrar)
{
    registrar->closed = true;
}

sg_registrar *sg_registrar_create(const sg_registrar_options *options)
{
    sg_registrar *r = sg_xcalloc(1, sizeof *r);
    r->options = *options;
    r->life = options->life;
    r->address = sg_xstrdup(options->address);
    r->coordinator = options->coordinator ? sg_xstrdup(options->coordinator) : NULL;
    r->done.run = on_done;
    r->retry_ms = RETRY_MIN_MS;
    return r;
}

void sg_registrar_destroy(sg_registrar *registrar)
{
    if (!registrar)
        return;
    free(registrar->address);
    free(registrar->coordinator);
    free(registrar);
}
