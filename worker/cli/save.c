/* worker/cli/save.c - `shardgrad save`: a checkpoint now. */
#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "worker/cli/arguments.h"
#include "worker/cli/commands.h"
#include "worker/cli/status_query.h"

static void say(const char *text)
{
    fprintf(stderr, "shardgrad save: %s\n", text);
}

/* Asks until it is complete, saying for whom it waits when that changes. */
static sg_status save(const sg_arguments *a, sg_status_query *query, uint64_t *iteration, sg_error *err)
{
    Shardgrad__V1__SaveRequest request = SHARDGRAD__V1__SAVE_REQUEST__INIT;
    request.id = sg_clock_random_id();
    request.job = sg_arguments_job(a);
    ProtobufCMessage *reply;
    const sg_status status =
        sg_status_query_call_until(query, "/shardgrad.v1.CoordinatorService/Save", &request.base,
                                   &shardgrad__v1__save_response__descriptor, UINT64_MAX, say, &reply, err);
    if (status != SG_OK)
        return status;
    *iteration = ((const Shardgrad__V1__SaveResponse *)reply)->iteration;
    protobuf_c_message_free_unpacked(reply, NULL);
    return SG_OK;
}

int sg_save_main(int argc, char **argv)
{
    const char *coordinator = NULL;
    const sg_arguments_option options[] = {
        {"--coordinator", "HOST:PORT", "address of ps 0, instead of the one that FILE leads to", NULL, &coordinator},
    };
    sg_arguments_command command = {
        .usage = "shardgrad save {FILE [--run-dir DIR] | --coordinator HOST:PORT} [options]",
        .summary =
            "Makes a checkpoint of a running job, in its checkpoint.dir, before the next iteration that a worker asks\n"
            "for, and waits until it is complete. Training goes on meanwhile. Exit code 69: nobody answers.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
        .flags_help = SG_ARGUMENTS_FLAGS_OF_A_JOB,
    };
    sg_error err;
    sg_arguments a;
    sg_status_query *query;
    sg_status status = sg_status_query_open(&command, argc, argv, &coordinator, SG_ROLE_ADMIN, &a, &query, &err);
    if (query != NULL) {
        uint64_t iteration = 0;
        status = save(&a, query, &iteration, &err);
        sg_status_query_destroy(query);
        if (status == SG_OK)
            printf("checkpoint of iteration %" PRIu64 " is complete\n", iteration);
    }
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    sg_arguments_deinit(&a);
    return code;
}
