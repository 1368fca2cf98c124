/* server/mailbox.c - see mailbox.h. */
#include "server/mailbox.h"

static void on_wake(uv_async_t *wake)
{
    sg_mailbox_drain(wake->data); /* wake-ups coalesce, so everything */
}

sg_status sg_mailbox_init(sg_mailbox *mailbox, uv_loop_t *loop, sg_error *err)
{
    *mailbox = (sg_mailbox){.first = NULL};
    mailbox->last = &mailbox->first;
    int failed = uv_async_init(loop, &mailbox->wake, on_wake);
    if (failed != 0)
        return sg_error_set(err, SG_EXHAUSTED, "no wake-up for the event loop: %s", uv_strerror(failed));
    pthread_mutex_init(&mailbox->mutex, NULL);
    mailbox->wake.data = mailbox;
    return SG_OK;
}

void sg_mailbox_post(sg_mailbox *mailbox, sg_mailbox_item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&mailbox->mutex);
    bool was_empty = mailbox->first == NULL;
    *mailbox->last = item;
    mailbox->last = &item->next;
    /* Under the lock, so that no wake-up comes after close; it does not block. */
    if (was_empty && !mailbox->closed)
        uv_async_send(&mailbox->wake);
    pthread_mutex_unlock(&mailbox->mutex);
}

void sg_mailbox_drain(sg_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->mutex);
    sg_mailbox_item *item = mailbox->first;
    mailbox->first = NULL;
    mailbox->last = &mailbox->first;
    pthread_mutex_unlock(&mailbox->mutex);
    while (item) {
        sg_mailbox_item *next = item->next;
        item->run(item);
        item = next;
    }
}

void sg_mailbox_close(sg_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->mutex);
    mailbox->closed = true;
    pthread_mutex_unlock(&mailbox->mutex);
    uv_close((uv_handle_t *)&mailbox->wake, NULL);
}

void sg_mailbox_deinit(sg_mailbox *mailbox)
{
    SG_ASSERT(mailbox->first == NULL);
    pthread_mutex_destroy(&mailbox->mutex);
}
