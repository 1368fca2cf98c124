/* worker/cli/set.c - `shardgrad set`: changes hyper-parameters of a running job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "worker/cli/arguments.h"
#include "worker/cli/commands.h"
#include "worker/cli/status_query.h"

/* In start_timeout_ms: within one of them steps that were begun close, or ps 0 gives up; and a checkpoint is made. */
#define WAIT_START_TIMEOUTS 2u

/* `settings` as KEY=VALUE; the keys are freed by the caller. */
static void fill(const sg_arguments *a, char *keys[], Shardgrad__V1__Setting settings[], Shardgrad__V1__Setting *list[])
{
    for (size_t i = 0; i < a->n_settings; i++) {
        const char *equals = strchr(a->settings[i], '=');
        keys[i] = sg_xprintf("%.*s", (int)(equals - a->settings[i]), a->settings[i]);
        settings[i] = (Shardgrad__V1__Setting)SHARDGRAD__V1__SETTING__INIT;
        settings[i].key = keys[i];
        settings[i].value = (char *)equals + 1;
        list[i] = &settings[i];
    }
}

/* Where it is kept, unless its generation has it. */
static const char *keeping(const Shardgrad__V1__SetResponse *response)
{
    if (response->unsaved)
        return "; nothing stores it: the job makes no checkpoints, since its checkpoint.dir is not set";
    return response->generation == 0 ? "; a checkpoint stores it, until then ps 0 alone has it" : "";
}

static void print(const Shardgrad__V1__SetResponse *response)
{
    if (response->generation != 0)
        printf("generation %" PRIu64 " has begun at iteration %" PRIu64 "%s; ", response->generation,
               response->iteration, response->fresh_slots ? ", with the slots of the rule at zero" : "");
    printf("hyper-parameter set %" PRIu64 " is in force", response->number);
    for (size_t group = 0; group < response->n_steps; group++) {
        if (response->n_steps > 1)
            printf("%s group %zu from step %" PRIu64, group == 0 ? ":" : ",", group, response->steps[group]);
        else
            printf(" from step %" PRIu64, response->steps[group]);
    }
    printf(" (set 1 is what the job began with%s)\n", keeping(response));
}

static void tell(const char *text)
{
    fprintf(stderr, "shardgrad set: %s\n", text);
}

/* It may have been in time, though its answer was not. */
static sg_status explain(const sg_status_query *query, sg_status status, sg_error *err)
{
    const sg_error why = *err;
    if (status == SG_TIMEOUT && sg_status_query_is_waiting(query))
        return sg_error_set(
            err, status,
            "the change may still come into force, since ps 0 was asked for it: shardgrad status shows mode, "
            "rule and the number of the set; the limit is %u times start_timeout_ms; %s",
            WAIT_START_TIMEOUTS, why.message);
    if (status != SG_UNAVAILABLE && status != SG_TIMEOUT && status != SG_NOT_READY)
        return status;
    return sg_error_set(err, status,
                        "whether it holds now is not known: shardgrad status shows mode, rule and the number of the "
                        "set, once the job runs again; %s",
                        why.message);
}

/* The same request until it is answered: it changes things once. */
static sg_status set(const sg_arguments *a, sg_status_query *query, sg_error *err)
{
    char *keys[SG_ARGUMENTS_MAX_SETTINGS];
    Shardgrad__V1__Setting settings[SG_ARGUMENTS_MAX_SETTINGS], *list[SG_ARGUMENTS_MAX_SETTINGS];
    Shardgrad__V1__SetRequest request = SHARDGRAD__V1__SET_REQUEST__INIT;
    fill(a, keys, settings, list);
    request.request = sg_clock_random_id();
    request.job = sg_arguments_job(a);
    request.settings = list;
    request.n_settings = a->n_settings;
    ProtobufCMessage *reply;
    const sg_status status = sg_status_query_call_until(
        query, "/shardgrad.v1.CoordinatorService/Set", &request.base, &shardgrad__v1__set_response__descriptor,
        WAIT_START_TIMEOUTS * a->config->start_timeout_ms, tell, &reply, err);
    for (size_t i = 0; i < a->n_settings; i++)
        free(keys[i]);
    if (status != SG_OK)
        return sg_status_query_may_have_arrived(query) ? explain(query, status, err) : status;
    print((const Shardgrad__V1__SetResponse *)reply);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SG_OK;
}

int sg_set_main(int argc, char **argv)
{
    const char *coordinator = NULL;
    const sg_arguments_option options[] = {
        {"--coordinator", "HOST:PORT", "address of ps 0, instead of the one that FILE leads to", NULL, &coordinator},
    };
    sg_arguments_command command = {
        .usage = "shardgrad set KEY=VALUE... {FILE [--run-dir DIR] | --coordinator HOST:PORT} [options]",
        .summary =
            "Changes hyper-parameters of a running job, such as update.learning_rate=0.01, all at once, and says\n"
            "which step is the first that has them. The cluster file stays as it is. These can be changed:\n"
            "  update.learning_rate  update.momentum  update.beta1  update.beta2  update.epsilon\n"
            "  update.weight_decay  update.schedule  update.warmup_steps  update.decay_steps  update.decay_factor\n"
            "  update.clip_global_norm  update.trust\n"
            "and, where the job makes checkpoints, its mode and rule:\n"
            "  update.mode  update.staleness  update.backup_workers  update.rule\n"
            "Steps that were begun close then, a checkpoint is cut, and all go on from it in a new generation; slots\n"
            "that mean nothing to the new rule begin at zero. Mode and rule hold from then on, also for a job that is\n"
            "started again. What else was set is stored in the next checkpoint, and holds when the job goes on from\n"
            "there; until then ps 0 alone remembers it. A job without checkpoint.dir stores nothing.\n"
            "It waits for at most two start_timeout_ms, and says for whom. What ps 0 has by then may still come into\n"
            "force (exit code 69).",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
        .flags_help = SG_ARGUMENTS_FLAGS_OF_A_JOB,
        .takes_settings = true,
    };
    sg_error err;
    sg_arguments a;
    sg_status_query *query;
    sg_status status = sg_status_query_open(&command, argc, argv, &coordinator, SG_ROLE_ADMIN, &a, &query, &err);
    if (query != NULL && a.n_settings == 0)
        status = sg_error_set(&err, SG_USAGE, "wanted KEY=VALUE; usage: %s", command.usage);
    else if (query != NULL)
        status = set(&a, query, &err);
    sg_status_query_destroy(query);
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    sg_arguments_deinit(&a);
    return code;
}
