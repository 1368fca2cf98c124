/* common/schedule.c - see schedule.h. */
#include "common/schedule.h"

#include <math.h>

float sg_schedule_rate(const sg_config *config, uint64_t iteration)
{
    double rate = config->update.learning_rate;
    if (config->update.base_batch > 0)
        rate *= (double)config->train.batch / (double)config->update.base_batch;
    uint64_t warmup = config->update.warmup_steps, decay = config->update.decay_steps;
    if (iteration < warmup)
        return (float)(rate * (double)(iteration + 1) / (double)warmup);
    uint64_t t = iteration - warmup;
    if (decay == 0 || config->update.schedule == SG_SCHEDULE_CONSTANT)
        return (float)rate;
    if (config->update.schedule == SG_SCHEDULE_STEP) {
        uint64_t n_decays = t / decay;
        return (float)(rate * pow(config->update.decay_factor, (double)n_decays));
    }
    double part = t < decay ? (double)t / (double)decay : 1;
    return (float)(rate * (1 + cos(M_PI * part)) / 2);
}

uint64_t sg_schedule_end(const sg_config *config)
{
    bool ends = config->update.schedule == SG_SCHEDULE_COSINE && config->update.decay_steps > 0;
    return ends ? config->update.warmup_steps + config->update.decay_steps : UINT64_MAX;
}
