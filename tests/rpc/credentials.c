/* tests/rpc/credentials.c - see credentials.h. */
#include "credentials.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

char credentials_folder[64];

void credentials_do(const char *command)
{
    char *line = sg_xprintf("D=%s; set -e; %s", credentials_folder, command);
    cr_assert_eq(system(line), 0, "%s", line);
    free(line);
}

void credentials_make(void)
{
    strcpy(credentials_folder, "/tmp/sg-certs-XXXXXX");
    cr_assert_not_null(mkdtemp(credentials_folder));
    credentials_do("scripts/make-certs $D/first localhost && ln -s first $D/ours");
    credentials_do("scripts/make-certs $D/other localhost");
    credentials_do("DAYS=-1 scripts/make-certs $D/ours expired");
}

void credentials_remove(void)
{
    credentials_do("rm -r $D");
}

static char *in_folder(const char *name)
{
    return name != NULL ? sg_xprintf("%s/%s", credentials_folder, name) : NULL;
}

sg_security *credentials_of(const char *ca, const char *certificate, const char *key, const char *token)
{
    sg_security *security = sg_xcalloc(1, sizeof *security);
    security->ca = in_folder(ca);
    security->certificate = in_folder(certificate);
    security->key = in_folder(key);
    if (token != NULL)
        strcpy(security->own, token);
    return security;
}

void credentials_add_tokens(sg_security *security)
{
    security->has_tokens = true;
    strcpy(security->secrets[SG_ROLE_ADMIN], ADMIN_TOKEN);
    strcpy(security->secrets[SG_ROLE_WORKER], WORKER_TOKEN);
    strcpy(security->secrets[SG_ROLE_OBSERVER], OBSERVER_TOKEN);
}

sg_status credentials_echo(const sg_security *security, const char *address, sg_error *err)
{
    outcome o = OUTCOME_INIT;
    sg_rpc_client *client = sg_rpc_client_create(
        &(sg_rpc_client_options){.threads = 1, .message_bytes = MESSAGE_BYTES, .security = security});
    sg_status status =
        call_and_wait(sg_rpc_client_channel(client, address), ECHO, push_message(1, NULL, 100, NULL), 20000, &o);
    sg_rpc_client_destroy(client);
    *err = o.error;
    outcome_deinit(&o);
    return status;
}

static void hear(void *user, sg_log_level level, const char *event, const char *fields)
{
    heard_log *heard = user;
    (void)level;
    if (strcmp(event, "refused") != 0)
        return;
    pthread_mutex_lock(&heard->mutex);
    size_t used = strlen(heard->text);
    snprintf(heard->text + used, sizeof heard->text - used, "%s\n", fields);
    pthread_mutex_unlock(&heard->mutex);
}

void heard_log_init(heard_log *heard)
{
    *heard = (heard_log){.log = {.fn = hear, .user = heard, .min_level = SG_LOG_DEBUG}};
    pthread_mutex_init(&heard->mutex, NULL);
}

size_t heard_log_count(heard_log *heard, const char *what)
{
    size_t n = 0;
    pthread_mutex_lock(&heard->mutex);
    for (const char *at = heard->text; (at = strstr(at, what)) != NULL; at++)
        n++;
    pthread_mutex_unlock(&heard->mutex);
    return n;
}
