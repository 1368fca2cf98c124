/* common/rpc_library.h - what gRPC has only once in a process: its start, its log function, and the loop over a
 * completion queue that servers and clients share. */
#ifndef SG_COMMON_RPC_LIBRARY_H
#define SG_COMMON_RPC_LIBRARY_H

#include <grpc/grpc.h>

#include "common/log.h"

/* A tag of gRPC is the address of one of these, embedded in what the event is about. */
typedef struct sg_rpc_event sg_rpc_event;
typedef void (*sg_rpc_event_fn)(sg_rpc_event *event, bool ok);
struct sg_rpc_event {
    _Atomic(sg_rpc_event_fn) on_done;
};

/* To be called last before gRPC gets the tag. on_done, on whatever thread, sees all that was written before: gRPC
 * promises that, too, but not in a way that ThreadSanitizer can follow. */
void sg_rpc_library_prepare_event(sg_rpc_event *event, sg_rpc_event_fn on_done);

/* Starts gRPC, or counts one more user of it. The last release ends it and must not come from a thread of gRPC's. */
void sg_rpc_library_retain(void);
void sg_rpc_library_release(void);

/* What gRPC has to say goes to the log attached last, since gRPC does not know whom its words concern; with no log it
 * is dropped. NULL is fine in both. detach waits for a line under way. */
void sg_rpc_library_log_attach(const sg_log *log);
void sg_rpc_library_log_detach(const sg_log *log);

/* While quiet, what gRPC says on this thread is told at debug level only: the caller tells of the failure itself. */
void sg_rpc_library_log_quiet(bool quiet);

/* Handles events until the queue is shut down and empty. */
void sg_rpc_library_poll(grpc_completion_queue *queue);
/* Takes one event, waiting for it; false: the queue was shut down. */
bool sg_rpc_library_poll_once(grpc_completion_queue *queue);
/* For a queue without a thread: shuts it down, empties and destroys it. */
void sg_rpc_library_queue_destroy(grpc_completion_queue *queue);

#endif
