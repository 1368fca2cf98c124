/* worker/cli/status_json.h - what the coordinator says of a job, as JSON for programs. */
#ifndef SG_WORKER_CLI_STATUS_JSON_H
#define SG_WORKER_CLI_STATUS_JSON_H

#include <stdbool.h>
#include <stdio.h>

#include "shardgrad/v1/coordinator.pb-c.h"

/* Writes one object and a newline. Its keys are the fields of StatusResponse, with the meanings of coordinator.proto,
 * and all of them are there: an unset message is null, an enum the lower-case end of its name ("running"), a bitmap of
 * workers the list of their indices. */
void sg_status_json_write(FILE *out, const Shardgrad__V1__StatusResponse *response);

#endif
