/* kernels/update_rules.h - what an update rule does to one element: the only place where the formulas stand.
 *
 * Each is PyTorch's (torch.optim.SGD, Adagrad, RMSprop, Adam, AdamW), L2 weight decay added to the gradient but for
 * AdamW; LARS and LAMB are the papers'. Every a * b + c is one fmaf, so that the bits are the same in every loop, on
 * every machine, for every backend that includes this file. */
#ifndef SG_KERNELS_UPDATE_RULES_H
#define SG_KERNELS_UPDATE_RULES_H

#include <math.h>

#include "kernels/isa.h"
#include "kernels/update.h"

/* An sg_update, worked out for the pass; in double as PyTorch does, then rounded. */
typedef struct sg_update_constants {
    float minus_learning_rate, weight_decay, momentum;
    float one_minus_beta1, beta2, one_minus_beta2, epsilon;
    float minus_step;            /* -learning_rate / (1 - beta1^t) */
    float kept;                  /* 1 - learning_rate * weight_decay */
    float unbias1;               /* 1 / (1 - beta1^t) */
    float root_bias_correction2; /* sqrt(1 - beta2^t) */
    float share;                 /* 1 / members */
} sg_update_constants;

static inline sg_update_constants sg_update_constants_of(const sg_update *update)
{
    double beta1 = update->beta1;
    double beta2 = update->beta2;
    double count = (double)update->count;
    sg_update_constants constants = {
        .minus_learning_rate = -update->learning_rate,
        .weight_decay = update->weight_decay,
        .momentum = update->momentum,
        .one_minus_beta1 = (float)(1.0 - beta1),
        .beta2 = update->beta2,
        .one_minus_beta2 = (float)(1.0 - beta2),
        .epsilon = update->epsilon,
        .share = update->members > 1 ? (float)(1.0 / (double)update->members) : 1,
    };
    constants.kept = (float)(1.0 - (double)update->learning_rate * (double)update->weight_decay);
    if (update->rule == SG_RULE_ADAM || update->rule == SG_RULE_ADAMW ||
        update->rule == SG_RULE_LAMB) { /* powers take as long as a small slice */
        constants.minus_step = (float)(-(double)update->learning_rate / (1.0 - pow(beta1, count)));
        constants.unbias1 = (float)(1.0 / (1.0 - pow(beta1, count)));
        constants.root_bias_correction2 = (float)sqrt(1.0 - pow(beta2, count));
    }
    return constants;
}

/* sg_update_slots, for the compiler to see through. */
SG_ISA_INLINE size_t sg_update_slots_of(sg_rule rule)
{
    if (rule == SG_RULE_SGD || rule == SG_RULE_AVERAGE)
        return 0;
    return rule == SG_RULE_ADAM || rule == SG_RULE_ADAMW || rule == SG_RULE_LAMB ? 2 : 1;
}

SG_ISA_INLINE float sg_update_decayed(const sg_update_constants *c, float w, float g)
{
    return c->weight_decay != 0 ? fmaf(c->weight_decay, w, g) : g;
}

/* Each returns the new value; g is the weighted mean of the contributions. */
SG_ISA_INLINE float sg_update_sgd(const sg_update_constants *c, float w, float g)
{
    return fmaf(c->minus_learning_rate, sg_update_decayed(c, w, g), w);
}

/* The velocity begins as zero, so the first step has velocity = g, as in PyTorch. */
SG_ISA_INLINE float sg_update_momentum(const sg_update_constants *c, float w, float g, float *velocity)
{
    *velocity = fmaf(c->momentum, *velocity, sg_update_decayed(c, w, g));
    return fmaf(c->minus_learning_rate, *velocity, w);
}

SG_ISA_INLINE float sg_update_nesterov(const sg_update_constants *c, float w, float g, float *velocity)
{
    g = sg_update_decayed(c, w, g);
    *velocity = fmaf(c->momentum, *velocity, g);
    return fmaf(c->minus_learning_rate, fmaf(c->momentum, *velocity, g), w);
}

/* squares: sum of those of all gradients. Duchi 2011. */
SG_ISA_INLINE float sg_update_adagrad(const sg_update_constants *c, float w, float g, float *squares)
{
    g = sg_update_decayed(c, w, g);
    *squares = fmaf(g, g, *squares);
    return fmaf(c->minus_learning_rate, g / (sqrtf(*squares) + c->epsilon), w);
}

/* square: mean of those of the gradients, with beta2 as PyTorch's alpha; neither centred nor with a momentum. Tieleman
 * and Hinton 2012. */
SG_ISA_INLINE float sg_update_rmsprop(const sg_update_constants *c, float w, float g, float *square)
{
    g = sg_update_decayed(c, w, g);
    *square = fmaf(c->one_minus_beta2 * g, g, c->beta2 * *square);
    return fmaf(c->minus_learning_rate, g / (sqrtf(*square) + c->epsilon), w);
}

/* first: mean of gradients (moved by lerp, as PyTorch does); second: mean of their squares. */
SG_ISA_INLINE float sg_update_adam_step(const sg_update_constants *c, float w, float g, float *first, float *second)
{
    *first = fmaf(c->one_minus_beta1, g - *first, *first);
    *second = fmaf(c->one_minus_beta2 * g, g, c->beta2 * *second);
    float root = sqrtf(*second) / c->root_bias_correction2 + c->epsilon;
    return fmaf(c->minus_step, *first / root, w);
}

/* Kingma and Ba 2015. */
SG_ISA_INLINE float sg_update_adam(const sg_update_constants *c, float w, float g, float *first, float *second)
{
    return sg_update_adam_step(c, w, sg_update_decayed(c, w, g), first, second);
}

/* The decay is of the value and no part of the gradient. Loshchilov and Hutter 2019. */
SG_ISA_INLINE float sg_update_adamw(const sg_update_constants *c, float w, float g, float *first, float *second)
{
    return sg_update_adam_step(c, c->kept * w, g, first, second);
}

/* The rate stays in the velocity, as in the paper. You et al. 2017. */
SG_ISA_INLINE float sg_update_lars(const sg_update_constants *c, float w, float g, float *velocity)
{
    *velocity = fmaf(-c->minus_learning_rate, sg_update_decayed(c, w, g), c->momentum * *velocity);
    return w - *velocity;
}

/* The direction, before its norm is known. You et al. 2020. */
SG_ISA_INLINE float sg_update_lamb(const sg_update_constants *c, float w, float g, float *first, float *second)
{
    *first = fmaf(c->one_minus_beta1, g - *first, *first);
    *second = fmaf(c->one_minus_beta2 * g, g, c->beta2 * *second);
    float root = sqrtf(*second) / c->root_bias_correction2 + c->epsilon;
    return sg_update_decayed(c, w, c->unbias1 * *first / root);
}

/* g is a value, and where it is the mean of all members' the new one to the bit. */
SG_ISA_INLINE float sg_update_average(const sg_update_constants *c, float w, float g)
{
    return c->share < 1 ? fmaf(c->share, g - w, w) : g;
}

#endif
