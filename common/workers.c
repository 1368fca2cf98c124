/* common/workers.c - see workers.h. */
#include "common/workers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define N_WORDS SG_ARRAY_LEN(((sg_workers *)0)->bits)

void sg_workers_add(sg_workers *set, uint32_t worker)
{
    SG_ASSERT(worker < SG_MAX_WORKERS);
    set->bits[worker / 64] |= UINT64_C(1) << worker % 64;
}

void sg_workers_remove(sg_workers *set, uint32_t worker)
{
    if (worker < SG_MAX_WORKERS)
        set->bits[worker / 64] &= ~(UINT64_C(1) << worker % 64);
}

bool sg_workers_has(const sg_workers *set, uint32_t worker)
{
    return worker < SG_MAX_WORKERS && (set->bits[worker / 64] >> worker % 64 & 1) != 0;
}

uint32_t sg_workers_count(const sg_workers *set)
{
    return sg_workers_rank(set, SG_MAX_WORKERS);
}

bool sg_workers_is_empty(const sg_workers *set)
{
    uint64_t any = 0;
    for (size_t i = 0; i < N_WORDS; i++)
        any |= set->bits[i];
    return any == 0;
}

bool sg_workers_equal(const sg_workers *a, const sg_workers *b)
{
    return memcmp(a->bits, b->bits, sizeof a->bits) == 0;
}

uint32_t sg_workers_rank(const sg_workers *set, uint32_t worker)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < N_WORDS && i * 64 < worker; i++) {
        uint64_t below = worker - i * 64 < 64 ? (UINT64_C(1) << (worker - i * 64)) - 1 : UINT64_MAX;
        if (set->bits[i] != 0)
            count += (uint32_t)__builtin_popcountll(set->bits[i] & below);
    }
    return count;
}

bool sg_workers_next(const sg_workers *set, uint32_t from, uint32_t *worker)
{
    for (uint32_t i = from / 64; i < N_WORDS; i++) {
        uint64_t word = set->bits[i];
        if (i == from / 64)
            word &= UINT64_MAX << from % 64;
        if (word != 0) {
            *worker = i * 64 + (uint32_t)__builtin_ctzll(word);
            return true;
        }
    }
    return false;
}

sg_workers sg_workers_minus(const sg_workers *a, const sg_workers *b)
{
    sg_workers result;
    for (size_t i = 0; i < N_WORDS; i++)
        result.bits[i] = a->bits[i] & ~b->bits[i];
    return result;
}

size_t sg_workers_encode(const sg_workers *set, uint8_t out[SG_WORKERS_WIRE_BYTES])
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < SG_WORKERS_WIRE_BYTES; i++) {
        out[i] = (uint8_t)(set->bits[i / 8] >> i % 8 * 8);
        if (out[i] != 0)
            n_bytes = i + 1;
    }
    return n_bytes;
}

sg_status sg_workers_decode(const uint8_t *data, size_t n_bytes, sg_workers *set, sg_error *err)
{
    if (n_bytes > SG_WORKERS_WIRE_BYTES)
        return sg_error_set(err, SG_INVALID, "a set of workers has %zu bytes, wanted at most %u", n_bytes,
                            SG_WORKERS_WIRE_BYTES);
    *set = (sg_workers){{0}};
    for (size_t i = 0; i < n_bytes; i++)
        set->bits[i / 8] |= (uint64_t)data[i] << i % 8 * 8;
    return SG_OK;
}

const char *sg_workers_text(const sg_workers *set, char *out, size_t out_bytes)
{
    size_t length = 0;
    uint32_t worker;
    if (out_bytes == 0)
        return out;
    out[0] = '\0';
    for (uint32_t from = 0; sg_workers_next(set, from, &worker); from = worker + 1) {
        char item[16];
        uint32_t after;
        size_t n_bytes = (size_t)snprintf(item, sizeof item, "%s%" PRIu32, from > 0 ? "," : "", worker);
        /* Unless it is the last, room must be left to say that there are more. */
        size_t reserve = sg_workers_next(set, worker + 1, &after) ? sizeof ",..." : sizeof "";
        if (length + n_bytes + reserve > out_bytes) {
            snprintf(out + length, out_bytes - length, "%s...", from > 0 ? "," : "");
            break;
        }
        memcpy(out + length, item, n_bytes + 1);
        length += n_bytes;
    }
    return out;
}
