/* common/config_options.h - the one table of options, private to config_*.c.
 *
 * A row is all that there is to know of a key. To add one: a field in sg_config, a row here, and, where it must agree
 * with another key, a line in config_check.c. */
#ifndef SG_COMMON_CONFIG_OPTIONS_H
#define SG_COMMON_CONFIG_OPTIONS_H

#include "common/config.h"
#include "common/plan.h"

typedef enum sg_config_type {
    SG_CONFIG_NAME,      /* char *: letters, digits, '.', '_', '-'; fit to be a file's name; min..max bytes */
    SG_CONFIG_TEXT,      /* char *: any line; min..max bytes */
    SG_CONFIG_COUNT,     /* uint64_t, min..max */
    SG_CONFIG_BYTES,     /* uint64_t, min..max; 65536, 64KiB, 1MiB, 1GiB */
    SG_CONFIG_MS,        /* uint64_t, min..max; milliseconds */
    SG_CONFIG_REAL,      /* double, low..high */
    SG_CONFIG_BOOL,      /* bool */
    SG_CONFIG_CHOICE,    /* an enum of `int` size, one of `choices` */
    SG_CONFIG_ADDRESSES, /* sg_config_strings of host:port, min..max of them */
    SG_CONFIG_COUNTS,    /* sg_config_numbers, at most SG_CONFIG_MAX_COUNTS of them, each min..max */
    SG_CONFIG_LINES      /* sg_config_strings, at most SG_CONFIG_MAX_LINES of them, each any line of min..max bytes */
} sg_config_type;

#define SG_CONFIG_MAX_COUNTS 64u
#define SG_CONFIG_MAX_LINES  256u
#define SG_CONFIG_MAX_PS     SG_PLAN_MAX_PS

typedef struct sg_config_choice {
    const char *name; /* NULL ends the list */
    int value;
} sg_config_choice;

typedef struct sg_config_option {
    const char *key; /* "update.mode" */
    sg_config_type type;
    bool number_too;            /* of TEXT: plain digits are text, too */
    bool shared;                /* all processes of a job must agree on it */
    bool changes;               /* it may be changed while the job runs, */
    bool renews;                /* or so, by a new generation */
    bool above_low, below_high; /* REAL: the bound itself is not allowed */
    bool idle;                  /* where `chosen` does not name what was chosen it has no effect, and is not refused */
    size_t offset;              /* of the field in sg_config */
    const char *preset;         /* the default, as it would stand in the file */
    uint64_t min, max;
    double low, high;
    const sg_config_choice *choices;
    /* It is used only where the option `chooser` ("model.name", "update.rule") has one of these values, between blanks;
     * NULL: always. */
    const char *chooser, *chosen;
    const char *flag, *hint; /* "--mode", "MODE"; NULL: only --set */
    const char *help;
} sg_config_option;

/* The table, in the order of the file, sections together. */
size_t sg_config_option_count(void);
const sg_config_option *sg_config_option_at(size_t index);
/* NULL if no option has this key. */
const sg_config_option *sg_config_option_find(const char *key);
size_t sg_config_option_index(const sg_config_option *option);
/* True for "update": a map of options. */
bool sg_config_option_is_section(const char *key);
/* What its chooser has been set to; NULL: it has none. */
const char *sg_config_option_choice(const sg_config_option *option, const sg_config *config);
/* Whether it may be given there. A model that is not built in may use all, and read what data it likes. */
bool sg_config_option_is_used(const sg_config_option *option, const sg_config *config);
/* Whether it may be given there and has no effect. */
bool sg_config_option_is_idle(const sg_config_option *option, const sg_config *config);
/* The key or section that was perhaps meant; NULL if none is near. */
const char *sg_config_option_nearest(const char *key);
/* The choice that was perhaps meant; NULL if none is near. */
const char *sg_config_choice_nearest(const sg_config_choice *choices, const char *name);

#endif
