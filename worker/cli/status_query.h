/* worker/cli/status_query.h - asks the coordinator how the job stands.
 *
 * A query blocks its thread and may be made from any one thread at a time; it can be made again and again. */
#ifndef SG_WORKER_CLI_STATUS_QUERY_H
#define SG_WORKER_CLI_STATUS_QUERY_H

#include "common/config.h"
#include "common/security.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "worker/cli/arguments.h"

typedef struct sg_status_query sg_status_query;

/* `coordinator`: host:port, or NULL for ps 0 of the config (which must outlive the query). Never fails: nothing is
 * connected yet. `role`: with which it asks. Destroyed by sg_status_query_destroy. */
sg_status_query *sg_status_query_create(const sg_config *config, const char *coordinator, sg_role role);
/* What every command begins with that asks the coordinator: takes its command line, loads the cluster file and makes a
 * query for `role`, which says on standard error where others can read its secrets; *query is NULL where help was asked
 * for, and printed. *coordinator is what an option of the command has set, or NULL. Errors: USAGE, and those of
 * sg_config_load; the arguments are to be freed in any case. */
SG_MUST_USE sg_status sg_status_query_open(const sg_arguments_command *command, int argc, char **argv,
                                           const char *const *coordinator, sg_role role, sg_arguments *arguments,
                                           sg_status_query **query, sg_error *err);
void sg_status_query_destroy(sg_status_query *query); /* NULL is fine */

/* Asks once. On success *response is freed by shardgrad__v1__status_response__free_unpacked(response, NULL). Errors:
 * NOT_READY (the coordinator's address is not known yet), UNAVAILABLE, TIMEOUT, DENIED, and those of
 * sg_security_create. */
SG_MUST_USE sg_status sg_status_query_ask(sg_status_query *query, uint64_t timeout_ms,
                                          Shardgrad__V1__StatusResponse **response, sg_error *err);

/* Calls another method of the coordinator, once. On success *reply, of this type, is freed by
 * protobuf_c_message_free_unpacked(reply, NULL). Errors: as above, and those of the method. */
SG_MUST_USE sg_status sg_status_query_call(sg_status_query *query, const char *method, const ProtobufCMessage *request,
                                           const ProtobufCMessageDescriptor *type, uint64_t timeout_ms,
                                           ProtobufCMessage **reply, sg_error *err);

/* Whether a request of this query may have reached the coordinator, so that what it asked for may have come about
 * though no answer did. */
bool sg_status_query_may_have_arrived(const sg_status_query *query);

/* Whether the newest call was answered WAITING: the coordinator knows of the request. */
bool sg_status_query_is_waiting(const sg_status_query *query);

/* The same until it is answered, for a request that says who it is, so that a repeat counts once: again at once where
 * the coordinator says for whom it waits (`waiting`, which may be NULL, is called with its words whenever they change,
 * and again at growing intervals from warn_after_ms on), after a moment where the answer was lost or nobody is there.
 * Gives up where nobody has answered for some seconds (UNAVAILABLE), and once limit_ms have passed (TIMEOUT, with the
 * last words). */
SG_MUST_USE sg_status sg_status_query_call_until(sg_status_query *query, const char *method,
                                                 const ProtobufCMessage *request,
                                                 const ProtobufCMessageDescriptor *type, uint64_t limit_ms,
                                                 void (*waiting)(const char *text), ProtobufCMessage **reply,
                                                 sg_error *err);

#endif
