/* common/schedule.h - the learning rate of an iteration: a pure function of the configuration.
 *
 * The coordinator evaluates it for every ticket, training in one process for itself; so both see the same rates. */
#ifndef SG_COMMON_SCHEDULE_H
#define SG_COMMON_SCHEDULE_H

#include "common/config.h"

/* Of iteration i, counted from 0, with W = update.warmup_steps, D = update.decay_steps, t = i - W:
 *     i < W       learning_rate * (i + 1) / W
 *     constant    learning_rate
 *     step        learning_rate * decay_factor ^ floor(t / D); constant if D is 0
 *     cosine      learning_rate * (1 + cos(pi * min(t, D) / D)) / 2; constant if D is 0
 * where learning_rate is first multiplied by train.batch / update.base_batch, unless that is 0; computed in double,
 * rounded to float once. */
float sg_schedule_rate(const sg_config *config, uint64_t iteration);

/* The first iteration from which on the rate is 0; UINT64_MAX where it never is. */
uint64_t sg_schedule_end(const sg_config *config);

#endif
