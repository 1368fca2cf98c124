/* server/registrar.h - a ps makes itself known to the coordinator and keeps its lease.
 *
 * Where the job makes checkpoints a coordinator that is lost is waited for, up to start_timeout_ms: it may be started
 * anew. It asks until the coordinator is there, saying for whom it waits, and then renews every third of the lease. All
 * of it happens on the loop's thread; replies come through the mailbox. */
#ifndef SG_SERVER_REGISTRAR_H
#define SG_SERVER_REGISTRAR_H

#include "common/config.h"
#include "common/rpc_client.h"
#include "server/mailbox.h"
#include "server/store.h"

typedef struct sg_registrar sg_registrar;

typedef struct sg_registrar_options {
    const sg_config *config;
    uint32_t ps;
    uint64_t life;
    const char *address;     /* under which others reach this ps; copied */
    const char *coordinator; /* host:port; NULL: by the cluster file, looked up anew at each attempt; copied */
    sg_store *store;         /* for reports */
    sg_mailbox *mailbox;
    sg_rpc_client *client;
    const sg_log *log;
    /* Once, on the loop's thread: it was refused, nobody came within start_timeout_ms, or the coordinator was lost. */
    void (*on_failed)(void *user, sg_status status, const char *text);
    /* Once, on the loop's thread, after sg_registrar_say_stopping: the coordinator knows (told), or cannot be told. */
    void (*on_said_stopping)(void *user, bool told);
    /* On the loop's thread: the coordinator was started anew and wants another life of this ps; returns it. */
    uint64_t (*on_new_life)(void *user);
    void *user;
} sg_registrar_options;

sg_registrar *sg_registrar_create(const sg_registrar_options *options);
/* After the client and the mailbox have nothing of it any more. NULL is fine. */
void sg_registrar_destroy(sg_registrar *registrar);

/* Registers, renews, and notices that time has passed. Call it every 100 ms or so; the first call begins. */
void sg_registrar_tick(sg_registrar *registrar, uint64_t now_ms);
/* Tells the coordinator, once and shortly, that this ps was told to stop. on_failed is not called any more. */
void sg_registrar_say_stopping(sg_registrar *registrar, uint64_t now_ms);
/* Tells the coordinator at once, and again with every renewal, what became of this ps's part of a checkpoint; also when
 * it was told to stop. The report must live until the next, or until the registrar is closed. */
void sg_registrar_say_saved(sg_registrar *registrar, uint64_t now_ms, const Shardgrad__V1__SaveReport *report);
/* To the coordinator, as of the newest call; the registrar's. *life: under which this ps is registered. On the loop's
 * thread, once a call was made. */
sg_rpc_channel *sg_registrar_channel(const sg_registrar *registrar, uint64_t *life);
/* Nothing is sent and nobody is called any more. */
void sg_registrar_close(sg_registrar *registrar);

#endif
