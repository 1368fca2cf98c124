/* tests/bench/yardstick_store.c - the values of the yardstick's server.
 *
 * They are kept per message of a pass, as versions that are never written once they are shown: a push reads the
 * received slices where they lie, and the old version, and writes a recycled one; what is lent to gRPC comes back
 * through a counter. A message is pushed by one thread at a time: its pusher waits for the answer. */
#include "tests/bench/yardstick_store.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

/* A received message, read from its front. */
typedef struct reader {
    const grpc_slice_buffer *slices;
    size_t index, offset;
} reader;

static reader reader_of(const grpc_byte_buffer *message)
{
    return (reader){.slices = &message->data.raw.slice_buffer};
}

static bool next_piece(reader *r, size_t max_bytes, const uint8_t **bytes, size_t *n_bytes)
{
    for (; r->index < r->slices->count; r->index++, r->offset = 0) {
        const grpc_slice *slice = &r->slices->slices[r->index];
        size_t left = GRPC_SLICE_LENGTH(*slice) - r->offset;
        if (left == 0)
            continue;
        *bytes = GRPC_SLICE_START_PTR(*slice) + r->offset;
        *n_bytes = left < max_bytes ? left : max_bytes;
        r->offset += *n_bytes;
        return true;
    }
    return false;
}

static void read_exactly(reader *r, void *out, size_t n_bytes)
{
    const uint8_t *bytes;
    for (size_t done = 0, n; done < n_bytes; done += n) {
        if (!next_piece(r, n_bytes - done, &bytes, &n))
            yardstick_fail(YARDSTICK_BUG, "a request ends after %zu of %zu bytes", done, n_bytes);
        memcpy((uint8_t *)out + done, bytes, n);
    }
}

struct yardstick_version {
    yardstick_store *owner;
    float *values;
    atomic_uint refs;
    _Atomic uint32_t next; /* in the free list */
};

static void version_release(void *released)
{
    yardstick_version *v = released;
    if (atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
        return;
    yardstick_store *s = v->owner;
    uint64_t head = atomic_load_explicit(&s->free_list, memory_order_relaxed), changed;
    do {
        atomic_store_explicit(&v->next, (uint32_t)head, memory_order_relaxed);
        changed = ((head >> 32) + 1) << 32 | (uint64_t)(v - s->versions + 1);
    } while (!atomic_compare_exchange_weak_explicit(&s->free_list, &head, changed, memory_order_acq_rel,
                                                    memory_order_relaxed));
    atomic_fetch_add_explicit(&s->n_free, 1, memory_order_release);
}

static yardstick_version *version_take(yardstick_store *s)
{
    uint64_t head = atomic_load_explicit(&s->free_list, memory_order_acquire), changed;
    yardstick_version *v;
    do {
        if ((uint32_t)head == 0)
            yardstick_fail(YARDSTICK_BUG, "all %zu versions are in use", s->n_versions);
        v = &s->versions[(uint32_t)head - 1];
        changed = ((head >> 32) + 1) << 32 | atomic_load_explicit(&v->next, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&s->free_list, &head, changed, memory_order_acq_rel,
                                                    memory_order_acquire));
    atomic_fetch_sub_explicit(&s->n_free, 1, memory_order_relaxed);
    atomic_store_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

static size_t message_bytes_of(const yardstick_store *s, size_t message)
{
    size_t begin = message * s->message_bytes;
    return s->n_bytes - begin < s->message_bytes ? s->n_bytes - begin : s->message_bytes;
}

/* gRPC may still hold what it has sent: the client had the answer before the sender's thread came to say so. */
static void store_await_returns(const yardstick_store *s)
{
    for (unsigned tries = 0; atomic_load_explicit(&s->n_free, memory_order_acquire) < s->n_versions - s->n_messages;
         tries++) {
        if (tries > 1000000)
            yardstick_fail(YARDSTICK_BUG, "gRPC does not give back what it has sent");
        sched_yield();
    }
}

void yardstick_store_clear(yardstick_store *s)
{
    if (s->versions != NULL)
        store_await_returns(s);
    free(s->values);
    free(s->versions);
    free(s->current);
    s->versions = NULL;
}

/* Twice the calls in flight can hold a version beside the current ones: answered ones whose version is not back yet,
 * and those that follow. */
static void cut(yardstick_store *s, const yardstick_start *start)
{
    s->message_bytes = start->message_bytes;
    s->n_messages = (s->n_bytes + s->message_bytes - 1) / s->message_bytes;
    s->n_versions = s->n_messages + 2 * (start->in_flight < s->n_messages ? start->in_flight : s->n_messages);
    s->version_bytes = (message_bytes_of(s, 0) + 63) / 64 * 64;
    s->values = yardstick_alloc(s->n_versions * s->version_bytes);
    s->versions = yardstick_alloc(s->n_versions * sizeof(*s->versions));
    s->current = yardstick_alloc(s->n_messages * sizeof(*s->current));
    atomic_init(&s->free_list, 0);
    atomic_init(&s->n_free, 0);
    for (size_t i = s->n_versions; i-- > 0;) {
        s->versions[i].owner = s;
        s->versions[i].values = (float *)(void *)(s->values + i * s->version_bytes);
        atomic_init(&s->versions[i].refs, 1);
        version_release(&s->versions[i]);
    }
    for (size_t i = 0; i < s->n_messages; i++) {
        yardstick_version *v = version_take(s);
        yardstick_kernel_fill_values(v->values, i * s->message_bytes / sizeof(float),
                                     message_bytes_of(s, i) / sizeof(float));
        atomic_init(&s->current[i], v);
    }
}

void yardstick_store_start(yardstick_store *s, const grpc_byte_buffer *request)
{
    yardstick_start start;
    reader r = reader_of(request);
    read_exactly(&r, &start, sizeof(start));
    yardstick_store_clear(s);
    cut(s, &start);
}

/* Applies the gradients that are left in the message, straight from its slices; an element that lies in two of them is
 * put together first. */
static void apply(reader *r, const float *old_values, float *new_values, size_t n_elems)
{
    const uint8_t *bytes;
    size_t n_bytes;
    for (size_t done = 0; done < n_elems;) {
        if (!next_piece(r, (n_elems - done) * sizeof(float), &bytes, &n_bytes))
            yardstick_fail(YARDSTICK_BUG, "a push ends after %zu of %zu gradients", done, n_elems);
        size_t whole = n_bytes / sizeof(float);
        yardstick_kernel_sgd(bytes, old_values + done, new_values + done, whole);
        done += whole;
        size_t torn_bytes = n_bytes % sizeof(float);
        if (torn_bytes > 0) {
            uint8_t torn[sizeof(float)];
            memcpy(torn, bytes + whole * sizeof(float), torn_bytes);
            read_exactly(r, torn + torn_bytes, sizeof(torn) - torn_bytes);
            yardstick_kernel_sgd(torn, old_values + done, new_values + done, 1);
            done++;
        }
    }
}

static size_t message_read(const yardstick_store *s, reader *r)
{
    yardstick_header header;
    read_exactly(r, &header, sizeof(header));
    if (header.message >= s->n_messages)
        yardstick_fail(YARDSTICK_BUG, "message %llu of %zu", (unsigned long long)header.message, s->n_messages);
    return header.message;
}

void yardstick_store_push(yardstick_store *s, const grpc_byte_buffer *request)
{
    reader r = reader_of(request);
    size_t message = message_read(s, &r);
    yardstick_version *new = version_take(s);
    yardstick_version *old = atomic_load_explicit(&s->current[message], memory_order_acquire);
    apply(&r, old->values, new->values, message_bytes_of(s, message) / sizeof(float));
    atomic_store_explicit(&s->current[message], new, memory_order_release);
    version_release(old);
}

grpc_byte_buffer *yardstick_store_lend(yardstick_store *s, const grpc_byte_buffer *request)
{
    reader r = reader_of(request);
    size_t message = message_read(s, &r);
    yardstick_version *v = atomic_load_explicit(&s->current[message], memory_order_acquire);
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    grpc_slice values = grpc_slice_new_with_user_data(v->values, message_bytes_of(s, message), version_release, v);
    grpc_byte_buffer *answer = grpc_raw_byte_buffer_create(&values, 1);
    grpc_slice_unref(values);
    return answer;
}
