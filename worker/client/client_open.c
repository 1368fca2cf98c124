/* worker/client/client_open.c - a client comes and goes: its configuration, threads and session, and the hello that
 * lets it in. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/client/transport.h"

#define WITHDRAW_MS  500
#define INTERRUPT_MS 100

/* Splits "KEY=VALUE" entries. */
static sg_status overrides_make(const char *const *set, sg_config_override **overrides, size_t *n, sg_error *err)
{
    size_t n_set = 0;
    while (set != NULL && set[n_set] != NULL)
        n_set++;
    *overrides = sg_xcalloc(n_set + 1, sizeof **overrides);
    for (*n = 0; *n < n_set; (*n)++) {
        const char *equals = strchr(set[*n], '=');
        if (equals == NULL)
            return sg_error_set(err, SG_CONFIG, "set: found '%.80s', wanted KEY=VALUE", set[*n]);
        char *source = sg_xprintf("set %.*s", (int)(equals - set[*n]), set[*n]);
        (*overrides)[*n] = (sg_config_override){.key = source + strlen("set "), .value = equals + 1, .source = source};
    }
    return SG_OK;
}

static sg_status config_load(const sg_client_options *options, sg_config **config, sg_error *err)
{
    sg_config_override *overrides;
    size_t n;
    sg_status status = overrides_make(options->set, &overrides, &n, err);
    if (status == SG_OK)
        status = sg_config_load(options->config, overrides, n, config, err);
    for (size_t i = 0; i < n; i++)
        free((char *)overrides[i].source);
    free(overrides);
    return status;
}

static void session_open(sg_client *client, const sg_client_options *options)
{
    char host[256], address[300];
    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "unknown");
    host[sizeof host - 1] = '\0';
    snprintf(address, sizeof address, "%s:%ld", host, (long)getpid());
    client->session = sg_session_create(&(sg_session_options){
        .job = options->job == NULL ? client->config->job : options->job,
        .worker = options->worker,
        .life = sg_clock_random_id(),
        .random_seed = sg_clock_random_id(),
        .address = address,
        .data_examples = options->data_examples,
        .settings = options->config == NULL ? NULL : client->config,
        .start_timeout_ms = client->start_timeout_ms,
        .warn_after_ms = client->config->warn_after_ms,
        .park_ms = client->config->park_ms,
        .connections = client->config->connections,
    });
}

void sg_client_destroy(sg_client *client)
{
    sg_client_lock(client);
    client->closing = true;
    sg_client_performing_await(client);
    pthread_mutex_unlock(&client->mutex);
    sg_transport_close(client);
    sg_client_loop_stop(client);
    sg_session_destroy(client->session);
    sg_ops_free(client);
    sg_client_variables_forget(client);
    for (uint32_t i = 0; i < client->n_groups; i++)
        free(client->groups[i].slices);
    free(client->groups);
    free(client->coordinator);
    sg_config_destroy(client->config);
    sg_security_destroy(client->security);
    sg_pool_destroy(client->pool);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}

/* The log of who gave none: nothing waits in silence. */
static void say_warning(void *user, sg_log_level level, const char *event, const char *fields)
{
    const sg_client *client = user;
    if (level == SG_LOG_WARN)
        fprintf(stderr, "shardgrad: worker-%" PRIu32 " %s %s\n", client->worker, event, fields);
}

static sg_status client_create(const sg_client_options *options, sg_config *take_config, sg_client **out, sg_error *err)
{
    sg_client *client = sg_xcalloc(1, sizeof *client);
    client->log = options->log != NULL
                      ? (sg_log){.fn = options->log, .user = options->log_user, .min_level = SG_LOG_DEBUG}
                      : (sg_log){.fn = say_warning, .user = client, .min_level = SG_LOG_WARN};
    client->config = take_config;
    client->coordinator = options->coordinator == NULL ? NULL : sg_xstrdup(options->coordinator);
    client->worker = options->worker;
    client->check_finite = take_config->update.non_finite == SG_NON_FINITE_SKIP;
    client->start_timeout_ms =
        options->start_timeout_ms == 0 ? take_config->start_timeout_ms : options->start_timeout_ms;
    client->timer_ms = UINT64_MAX;
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->changed, NULL);
    client->pool = sg_pool_create();
    sg_status status = sg_security_create(take_config, SG_ROLE_WORKER, &client->security, err);
    if (status == SG_OK)
        status = sg_client_loop_start(client, err);
    if (status != SG_OK) {
        sg_security_destroy(client->security);
        sg_pool_destroy(client->pool);
        sg_config_destroy(client->config);
        pthread_cond_destroy(&client->changed);
        pthread_mutex_destroy(&client->mutex);
        free(client->coordinator);
        free(client);
        return status;
    }
    char quoted[SG_LOG_QUOTED_BYTES];
    if (client->security->warning != NULL)
        sg_log_warn(&client->log, "insecure", "reason=%s",
                    sg_log_quote(client->security->warning, quoted, sizeof quoted));
    session_open(client, options);
    status = sg_transport_open(client, err);
    if (status != SG_OK)
        sg_client_destroy(client);
    else
        *out = client;
    return status;
}

/* The hello may be parked, and is not answered: nobody is to wait for the lease of one who has gone. */
static void withdraw(sg_client *client)
{
    sg_client_lock(client);
    const uint64_t now_ms = sg_clock_ms();
    sg_op *op = sg_op_create(client, sg_session_leave(client->session, now_ms, now_ms + WITHDRAW_MS));
    sg_client_unlock(client);
    (void)!sg_op_finish(op, NULL, NULL);
}

static sg_status join(sg_client *client, const sg_client_options *options, sg_error *err)
{
    sg_client_lock(client);
    const uint64_t now_ms = sg_clock_ms();
    sg_op *op = sg_op_create(client, sg_session_join(client->session, now_ms, now_ms + client->start_timeout_ms));
    sg_client_unlock(client);
    if (options->interrupted != NULL)
        while (sg_op_wait(op, INTERRUPT_MS, NULL) == SG_TIMEOUT && !sg_op_is_complete(op))
            if (options->interrupted(options->interrupted_user))
                sg_op_cancel(op);
    const sg_status status = sg_op_finish(op, NULL, err);
    if (status == SG_CANCELLED || status == SG_TIMEOUT)
        withdraw(client);
    if (status != SG_OK)
        return status;
    return sg_transport_connect(client, err);
}

sg_status sg_client_open(const sg_client_options *options, sg_client **out, sg_error *err)
{
    if (options == NULL || out == NULL)
        return sg_error_set(err, SG_INVALID, "sg_client_open needs options and a place for the client");
    if (options->config == NULL && options->coordinator == NULL)
        return sg_error_set(err, SG_INVALID, "give a cluster file (config) or the address of ps 0 (coordinator)");
    sg_config *config;
    sg_status status = config_load(options, &config, err);
    if (status != SG_OK)
        return status;
    sg_client *client;
    if ((status = client_create(options, config, &client, err)) != SG_OK)
        return status;
    if ((status = join(client, options, err)) != SG_OK) {
        sg_client_destroy(client);
        return status;
    }
    *out = client;
    return SG_OK;
}
