/* common/rpc_faults.h - what a test does to the answers of a server: a network at its worst, drawn from a seed.
 *
 * No program sets it: there is no key, no flag and no variable for it, only a pointer in the options of a server and of
 * a ps, for tests that run them in their own process. */
#ifndef SG_COMMON_RPC_FAULTS_H
#define SG_COMMON_RPC_FAULTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum sg_rpc_fault {
    SG_RPC_FAULT_NONE,
    SG_RPC_FAULT_DROP,   /* the answer is lost: its stream is reset instead */
    SG_RPC_FAULT_CUT,    /* the connection is cut before the answer: lost with all that is under way on it */
    SG_RPC_FAULT_BREAK,  /* the connection is cut once so many bytes of the answer are on their way, few or many */
    SG_RPC_FAULT_DELAY,  /* the answer, and what else its thread has to do, comes later */
    SG_RPC_FAULT_REPEAT, /* the request is handled twice; the first answer is lost */
    SG_RPC_FAULTS
} sg_rpc_fault;

/* Guarded by mutex but for what is set before the server starts. */
typedef struct sg_rpc_faults {
    pthread_mutex_t mutex;
    uint64_t seed, n_drawn;
    uint32_t per_million[SG_RPC_FAULTS]; /* how often each; together at most a million */
    uint64_t delay_us;                   /* longest */
    uint64_t count[SG_RPC_FAULTS];       /* how often it happened */
} sg_rpc_faults;

void sg_rpc_faults_init(sg_rpc_faults *faults, uint64_t seed);
/* What is to befall an answer, counted as having happened. */
sg_rpc_fault sg_rpc_faults_draw(sg_rpc_faults *faults);
uint64_t sg_rpc_faults_count(sg_rpc_faults *faults, sg_rpc_fault fault);
void sg_rpc_faults_delay(sg_rpc_faults *faults);
/* Cuts the connection of this process's port to `peer`, both ways, at once. */
void sg_rpc_faults_cut(uint16_t port, const char *peer);

#endif
