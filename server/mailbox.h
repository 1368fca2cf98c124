/* server/mailbox.h - how other threads hand work to the loop of a ps: a locked list and a wake-up. */
#ifndef SG_SERVER_MAILBOX_H
#define SG_SERVER_MAILBOX_H

#include <pthread.h>
#include <uv.h>

#include "common/status.h"

/* Embedded in what is to be handed over; in one mailbox at a time. */
typedef struct sg_mailbox_item {
    void (*run)(struct sg_mailbox_item *item); /* on the loop's thread; may free the item */
    struct sg_mailbox_item *next;
} sg_mailbox_item;

typedef struct sg_mailbox {
    uv_async_t wake;
    pthread_mutex_t mutex;
    sg_mailbox_item *first, **last;
    bool closed;
} sg_mailbox;

/* Errors: EXHAUSTED; then there is nothing to close. */
SG_MUST_USE sg_status sg_mailbox_init(sg_mailbox *mailbox, uv_loop_t *loop, sg_error *err);
/* Any thread. Items run in the order in which they were posted. */
void sg_mailbox_post(sg_mailbox *mailbox, sg_mailbox_item *item);
/* Runs what is there. On the loop's thread, or when the loop runs no more. */
void sg_mailbox_drain(sg_mailbox *mailbox);
/* What is posted from here on waits for sg_mailbox_drain. The loop must run once more before it is closed itself. */
void sg_mailbox_close(sg_mailbox *mailbox);
void sg_mailbox_deinit(sg_mailbox *mailbox);

#endif
