/* common/rule.h - names of the update rules, shared by the configuration and the kernels. */
#ifndef SG_COMMON_RULE_H
#define SG_COMMON_RULE_H

typedef enum sg_rule {
    SG_RULE_SGD,
    SG_RULE_MOMENTUM,
    SG_RULE_NESTEROV,
    SG_RULE_ADAGRAD,
    SG_RULE_RMSPROP,
    SG_RULE_ADAM,
    SG_RULE_ADAMW,
    SG_RULE_AVERAGE,
    SG_RULE_LARS,
    SG_RULE_LAMB
} sg_rule;

#define SG_N_RULES (SG_RULE_LAMB + 1)

#endif
