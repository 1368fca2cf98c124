/* server/ps_parts.c - what a ps is made of, and how the parts hear of each other. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/rpc_address.h"
#include "server/ps_internal.h"
#include "server/roles.h"

#define DRAIN_MIN_MS 10000u

/* --- checkpoints --- */

static void on_cut(void *user, const sg_store_cut *cut, sg_status status, const char *message)
{
    sg_ps *ps = user;
    sg_ps_save_cut(ps->save, cut, status, message);
}

static void on_hurry(void *user, uint64_t generation, uint64_t number)
{
    sg_ps *ps = user;
    sg_ps_save_hurry_cut(ps->save, generation, number);
}

static void on_save_report(void *user, const Shardgrad__V1__SaveReport *report)
{
    sg_ps *ps = user;
    sg_registrar_say_saved(ps->registrar, sg_clock_ms(), report);
}

static void on_written(void *user, sg_checkpoint_set set, sg_status status, const char *message)
{
    sg_ps *ps = user;
    sg_coordinator_service_written(ps->coordinator_service, sg_clock_ms(), set, status, message);
}

static void complete_checkpoint(void *user, const sg_checkpoint_manifest *manifest, sg_checkpoint_set current)
{
    sg_ps *ps = user;
    sg_ps_save_complete(ps->save, manifest, current);
}

/* --- generations --- */

static void on_load(void *user, const sg_store_load *load)
{
    sg_ps *ps = user;
    sg_ps_restore_load(ps->restore, load);
}

static void on_begin(void *user)
{
    sg_ps *ps = user;
    sg_ps_save_give_up(ps->save);
}

static void record_generation(void *user, const sg_coordinator_action *action)
{
    sg_ps *ps = user;
    sg_ps_restore_record(ps->restore, action);
}

static void on_recorded(void *user, const sg_coordinator_recorded *recorded)
{
    sg_ps *ps = user;
    sg_coordinator_service_recorded(ps->coordinator_service, sg_clock_ms(), recorded);
}

static void on_norms(void *user, const sg_store_norms *norms)
{
    sg_ps *ps = user;
    sg_norms_ask(ps->norms, norms);
}

/* ps 0 was started anew: what the old one ordered, and may yet order, is not for this life. */
static uint64_t on_new_life(void *user)
{
    sg_ps *ps = user;
    uint64_t life = sg_clock_random_id();
    sg_store_set_life(ps->store, life);
    return life;
}
/* --- made --- */

static sg_status create_parts(sg_ps *ps, sg_error *err)
{
    const sg_config *config = ps->options.config;
    const sg_rpc_client_options calls = {.threads = 1,
                                         .message_bytes = config->message_bytes,
                                         .on_demand = true,
                                         .security = ps->security,
                                         .log = ps->options.log};
    ps->client = sg_rpc_client_create(&calls);
    ps->norms_client = sg_rpc_client_create(&calls);
    if (!ps->client || !ps->norms_client)
        return sg_error_set(err, SG_EXHAUSTED, "no thread for the calls to the coordinator");
    ps->store =
        sg_store_create(&(sg_store_options){.ps = ps->options.index,
                                            /* Ssp differs in its tickets alone. */
                                            .mode = config->update.mode == SG_MODE_SYNC ? SG_MODE_SYNC : SG_MODE_ASYNC,
                                            .rule = config->update.rule,
                                            .non_finite = config->update.non_finite,
                                            .park_ms = config->park_ms,
                                            .warn_after_ms = config->warn_after_ms,
                                            .message_bytes = config->message_bytes,
                                            .contribution_bytes = config->contribution_bytes,
                                            .held_bytes = sg_rpc_server_may_hold_bytes(config->message_bytes),
                                            .max_workers = config->max_workers,
                                            .backup_workers = config->update.backup_workers,
                                            .makes_checkpoints = config->checkpoint.dir[0] != '\0',
                                            .log = ps->options.log,
                                            .answer_pull = sg_parameter_service_answer_pull,
                                            .on_cut = on_cut,
                                            .on_hurry = on_hurry,
                                            .on_load = on_load,
                                            .on_norms = on_norms,
                                            .user = &ps->parameter_service,
                                            .cut_user = ps});
    ps->norms = sg_norms_create(&(sg_norms_options){.ps = ps->options.index,
                                                    .timeout_ms = config->park_ms + config->lease_ms,
                                                    .store = ps->store,
                                                    .registrar = &ps->registrar,
                                                    .mailbox = &ps->mailbox,
                                                    .client = ps->norms_client,
                                                    .log = ps->options.log});
    ps->parameter_service = (sg_parameter_service){.store = ps->store, .message_bytes = config->message_bytes};
    if (ps->options.index != 0)
        return SG_OK;
    ps->coordinator_service =
        sg_coordinator_service_create(&(sg_coordinator_service_options){.config = config,
                                                                        .mailbox = &ps->mailbox,
                                                                        .client = ps->client,
                                                                        .log = ps->options.log,
                                                                        .on_end = sg_ps_on_coordinator_end,
                                                                        .complete = complete_checkpoint,
                                                                        .record = record_generation,
                                                                        .user = ps});
    ps->parameter_service.ticket = sg_coordinator_service_ticket;
    ps->parameter_service.ticket_user = ps->coordinator_service;
    return SG_OK;
}

/* Longer than any client of ours waits for an answer (worker/client/session_calls.c). */
static uint64_t drain_ms(const sg_config *config)
{
    const uint64_t ms = config->park_ms + config->lease_ms;
    return ms > DRAIN_MIN_MS ? ms : DRAIN_MIN_MS;
}

static sg_status open_checkpoints(sg_ps *ps, sg_error *err)
{
    ps->jobs = sg_disk_jobs_create(&ps->loop);
    sg_status status = sg_ps_save_create(&(sg_ps_save_options){.config = ps->options.config,
                                                               .ps = ps->options.index,
                                                               .life = sg_clock_random_id(),
                                                               .store = ps->store,
                                                               .jobs = ps->jobs,
                                                               .mailbox = &ps->mailbox,
                                                               .log = ps->options.log,
                                                               .on_report = on_save_report,
                                                               .on_written = on_written,
                                                               .user = ps},
                                         &ps->save, err);
    if (status == SG_OK)
        ps->restore = sg_ps_restore_create(&(sg_ps_restore_options){.config = ps->options.config,
                                                                    .folder = sg_ps_save_folder(ps->save),
                                                                    .life = sg_clock_random_id(),
                                                                    .store = ps->store,
                                                                    .jobs = ps->jobs,
                                                                    .mailbox = &ps->mailbox,
                                                                    .log = ps->options.log,
                                                                    .on_begin = on_begin,
                                                                    .on_recorded = on_recorded,
                                                                    .user = ps});
    return status;
}

sg_status sg_ps_parts_create(sg_ps *ps, sg_error *err)
{
    sg_status status = create_parts(ps, err);
    return status == SG_OK ? open_checkpoints(ps, err) : status;
}

sg_status sg_ps_parts_serve(sg_ps *ps, sg_error *err)
{
    const sg_config *config = ps->options.config;
    sg_rpc_method methods[SG_PARAMETER_SERVICE_METHODS + SG_COORDINATOR_SERVICE_METHODS];
    size_t n_methods = SG_PARAMETER_SERVICE_METHODS;
    sg_parameter_service_methods(&ps->parameter_service, methods);
    if (ps->coordinator_service) {
        sg_coordinator_service_methods(ps->coordinator_service, methods + n_methods);
        n_methods += SG_COORDINATOR_SERVICE_METHODS;
    }
    return sg_rpc_server_create(&(sg_rpc_server_options){.address = config->ps.items[ps->options.index],
                                                         .threads = (uint32_t)config->rpc_threads,
                                                         .message_bytes = config->message_bytes,
                                                         .drain_ms = drain_ms(config),
                                                         .methods = methods,
                                                         .n_methods = n_methods,
                                                         .security = ps->security,
                                                         .role_needed = sg_role_needed,
                                                         .faults = ps->options.faults,
                                                         .log = ps->options.log},
                                &ps->server, err);
}

/* host:port of an entry of the cluster file, with the port that was bound where it says 0. */
static sg_status with_bound_port(const sg_ps *ps, const char *entry, char out[SG_ADDRESS_BYTES], sg_error *err)
{
    char host[SG_ADDRESS_BYTES];
    uint16_t port;
    sg_status status = sg_config_split_address(entry, host, sizeof host, &port, err);
    if (status != SG_OK)
        return status;
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(out, SG_ADDRESS_BYTES, "%s%.255s%s:%u", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
             port != 0 ? port : sg_rpc_server_port(ps->server));
    return SG_OK;
}

static void say_how_open(const sg_ps *ps)
{
    char quoted[SG_LOG_QUOTED_BYTES];
    if (ps->security->warning != NULL)
        sg_log_warn(ps->options.log, "insecure", "reason=%s",
                    sg_log_quote(ps->security->warning, quoted, sizeof quoted));
    if (ps->security->ca == NULL && !sg_rpc_address_is_loopback(ps->bound))
        sg_log_warn(ps->options.log, "insecure", "address=%s tokens=%s reason=%s", ps->bound,
                    ps->security->has_tokens ? "\"read in the clear by whoever sees the traffic\"" : "none",
                    "\"security.insecure: true\"");
}

/* Where ps 0 reaches its own coordinator: where it listens, for the address of others may lead through a network that
 * does not lead back. With TLS by that of others all the same: no certificate names 0.0.0.0. */
static const char *coordinator_address(const sg_ps *ps)
{
    if (ps->options.index != 0)
        return ps->options.coordinator;
    return ps->security->ca == NULL ? ps->bound : ps->address;
}

/* Learns its addresses and writes the file that others find it by, if they need one. */
sg_status sg_ps_parts_announce(sg_ps *ps, sg_error *err)
{
    const sg_config *config = ps->options.config;
    uint32_t index = ps->options.index;
    const char *entry = config->advertise.n > index ? config->advertise.items[index] : config->ps.items[index];
    sg_status status = with_bound_port(ps, config->ps.items[index], ps->bound, err);
    if (status == SG_OK)
        status = with_bound_port(ps, entry, ps->address, err);
    if (status == SG_OK)
        status = sg_address_publish(config, index, ps->address, err);
    if (status != SG_OK)
        return status;
    ps->published = true;
    if (ps->coordinator_service)
        sg_coordinator_service_set_own(ps->coordinator_service, coordinator_address(ps));
    uint64_t life = sg_clock_random_id();
    sg_store_set_life(ps->store, life);
    ps->registrar = sg_registrar_create(&(sg_registrar_options){
        .config = config,
        .ps = index,
        .life = life,
        .address = ps->address,
        .coordinator = coordinator_address(ps),
        .store = ps->store,
        .mailbox = &ps->mailbox,
        .client = ps->client,
        .log = ps->options.log,
        .on_failed = sg_ps_on_registration_failed,
        .on_said_stopping = sg_ps_on_said_stopping,
        .on_new_life = on_new_life,
        .user = ps,
    });
    sg_rpc_server_set_serving(ps->server, true);
    sg_log_info(ps->options.log, "started", "address=%s index=%" PRIu32 " job=%s pid=%ld", ps->address, index,
                config->job, (long)getpid());
    say_how_open(ps);
    return SG_OK;
}
