/* common/workers.h - a set of worker indices: who is a member, who contributed, who is excused.
 *
 * On the wire it is a bitmap without trailing zero bytes (Step.members in coordinator.proto). A value type; zeroed is
 * empty. */
#ifndef SG_COMMON_WORKERS_H
#define SG_COMMON_WORKERS_H

#include "common/status.h"

#define SG_MAX_WORKERS 1024u

typedef struct sg_workers {
    uint64_t bits[SG_MAX_WORKERS / 64];
} sg_workers;

void sg_workers_add(sg_workers *set, uint32_t worker);
void sg_workers_remove(sg_workers *set, uint32_t worker);
bool sg_workers_has(const sg_workers *set, uint32_t worker); /* false for an index out of range */
uint32_t sg_workers_count(const sg_workers *set);
bool sg_workers_is_empty(const sg_workers *set);
bool sg_workers_equal(const sg_workers *a, const sg_workers *b);
/* Number of members below `worker`: its rank if it is a member. */
uint32_t sg_workers_rank(const sg_workers *set, uint32_t worker);
/* Lowest member that is at least `from`; false if there is none. */
bool sg_workers_next(const sg_workers *set, uint32_t from, uint32_t *worker);
/* a without b. */
sg_workers sg_workers_minus(const sg_workers *a, const sg_workers *b);

#define SG_WORKERS_WIRE_BYTES (SG_MAX_WORKERS / 8)
/* Writes the wire form, returns its length in bytes. */
size_t sg_workers_encode(const sg_workers *set, uint8_t out[SG_WORKERS_WIRE_BYTES]);
/* INVALID if it is longer than SG_WORKERS_WIRE_BYTES. */
SG_MUST_USE sg_status sg_workers_decode(const uint8_t *data, size_t n_bytes, sg_workers *set, sg_error *err);
/* "0,3,7" for people, cut to fit with "..."; returns out. */
const char *sg_workers_text(const sg_workers *set, char *out, size_t out_bytes);

#endif
