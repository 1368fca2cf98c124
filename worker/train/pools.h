/* worker/train/pools.h - the threads of the libraries that compute. */
#ifndef SG_WORKER_TRAIN_POOLS_H
#define SG_WORKER_TRAIN_POOLS_H

#include <stdint.h>

/* The threads of OpenMP, on which oneDNN computes, turn idle for a while after each call unless OMP_WAIT_POLICY says
 * otherwise, and take the processors from OpenBLAS's threads and from everybody else. OpenMP reads it when the program
 * is loaded: with more than one thread, and where the environment says nothing, this starts the program anew in the
 * same process with OMP_WAIT_POLICY=passive. So it is to be called before anything is opened or begun. Returns where
 * there is nothing to do, or where it cannot be done: then training is slower. */
void sg_pools_let_rest(uint32_t n_threads);

#endif
