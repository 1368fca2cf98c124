/* server/declared.h - a declared variable as the wire has it: its bounds, and what is meant where it says nothing. */
#ifndef SG_SERVER_DECLARED_H
#define SG_SERVER_DECLARED_H

#include "shardgrad/v1/coordinator.pb-c.h"

#define SG_DECLARED_NAME_BYTES 255u
#define SG_DECLARED_MAX_RANK   8u

/* Factors on the learning rate and on the weight decay. */
static inline float sg_declared_lr_multiplier(const Shardgrad__V1__Variable *variable)
{
    return variable->lr_multiplier_presence_case == SHARDGRAD__V1__VARIABLE__LR_MULTIPLIER_PRESENCE_LR_MULTIPLIER
               ? variable->lr_multiplier
               : 1.0f;
}

static inline float sg_declared_decay_multiplier(const Shardgrad__V1__Variable *variable)
{
    return variable->decay_multiplier_presence_case ==
                   SHARDGRAD__V1__VARIABLE__DECAY_MULTIPLIER_PRESENCE_DECAY_MULTIPLIER
               ? variable->decay_multiplier
               : 1.0f;
}

#endif
