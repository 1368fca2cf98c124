/* common/config.h - the cluster file: one table of options drives parsing, defaults, bounds, flags, --set, help and
 * the reference comment in configs/.
 *
 * The file is YAML (read by libfyaml, in config_file.c alone). Keys that the table does not name are errors. A fault
 * reads "cluster.yaml:12:9: update.mode: 'asink' is not one of sync, async"; one on the command line
 * "--set update.mode: ...". A loaded config is immutable and owned by its caller. */
#ifndef SG_COMMON_CONFIG_H
#define SG_COMMON_CONFIG_H

#include <stdio.h>

#include "common/log.h"
#include "common/rule.h"
#include "common/status.h"

typedef enum sg_mode { SG_MODE_SYNC = 1, SG_MODE_ASYNC = 2, SG_MODE_SSP = 3 } sg_mode; /* of shardgrad.v1.Mode */
typedef enum sg_schedule { SG_SCHEDULE_CONSTANT, SG_SCHEDULE_STEP, SG_SCHEDULE_COSINE } sg_schedule;
/* What an expired lease of a worker does. */
typedef enum sg_worker_loss { SG_WORKER_LOSS_CONTINUE, SG_WORKER_LOSS_WAIT, SG_WORKER_LOSS_ABORT } sg_worker_loss;
typedef enum sg_data_format {
    SG_DATA_IDX,
    SG_DATA_CIFAR10,
    SG_DATA_CSV,
    SG_DATA_LIBSVM,
    SG_DATA_RAW,
    SG_DATA_SYNTHETIC
} sg_data_format;
typedef enum sg_backend { SG_BACKEND_AUTO, SG_BACKEND_CPU, SG_BACKEND_ONEDNN, SG_BACKEND_CUDA } sg_backend;
typedef enum sg_wire_type { SG_WIRE_FLOAT32, SG_WIRE_BF16 } sg_wire_type;
typedef enum sg_non_finite { SG_NON_FINITE_SKIP, SG_NON_FINITE_APPLY } sg_non_finite;

/* A list of strings or of numbers in the file. */
typedef struct sg_config_strings {
    char **items;
    size_t n;
} sg_config_strings;
typedef struct sg_config_numbers {
    uint64_t *items;
    size_t n;
} sg_config_numbers;

typedef struct sg_config {
    char *job;                   /* "shardgrad" */
    uint64_t seed;               /* 1 */
    sg_config_strings ps;        /* host:port each; ["127.0.0.1:0"] */
    sg_config_strings advertise; /* addresses that others use; empty: those of `ps` */
    uint64_t workers;            /* 2 */
    uint64_t max_workers;        /* 64, at most SG_MAX_WORKERS */
    uint64_t min_workers;        /* 1, at most max_workers: with fewer nobody goes on without a lost one */
    sg_worker_loss on_worker_loss;
    uint64_t threads;            /* 1: of compute, in each worker */
    uint64_t rpc_threads;        /* 1: in each ps */
    uint64_t connections;        /* 2: of each worker to each ps, for data */
    uint64_t slice_bytes;        /* 512 KiB, a multiple of 64 */
    uint64_t message_bytes;      /* 1 MiB, at least slice_bytes */
    uint64_t contribution_bytes; /* 4 GiB */
    uint64_t lease_ms, park_ms, warn_after_ms, start_timeout_ms, shutdown_grace_ms;
    bool linger;            /* false */
    char *run_dir;          /* "" in the file means runs/JOB; filled in when loaded */
    sg_log_level log_level; /* info */
    struct {
        sg_mode mode;            /* sync */
        uint64_t staleness;      /* 3: of ssp */
        uint64_t backup_workers; /* 0: of sync */
        sg_rule rule;            /* sgd */
        double learning_rate, momentum, beta1, beta2, epsilon, weight_decay;
        double trust;             /* 0.001: of lars */
        double clip_global_norm;  /* 0: gradients are not clipped */
        sg_schedule schedule;     /* constant */
        uint64_t base_batch;      /* 0: learning_rate is that of train.batch */
        uint64_t warmup_steps;    /* 0: linear from learning_rate / warmup_steps */
        uint64_t decay_steps;     /* step: every so many; cosine: to zero after so many */
        double decay_factor;      /* step: times this each time */
        sg_non_finite non_finite; /* skip */
        sg_wire_type wire;        /* float32 */
    } update;
    struct {
        uint64_t batch;                               /* 128: the global batch */
        uint64_t epochs;                              /* 5 */
        uint64_t steps;                               /* 0: epochs decide; otherwise the job ends after so many */
        uint64_t test_every_steps, test_every_epochs; /* 0: the test set is looked at in the end alone */
        double label_smoothing;                       /* 0: share of a label that is spread over all classes */
        sg_backend backend;                           /* auto: on what the workers compute */
    } train;
    struct {
        char *dir;      /* "": no checkpoints are made */
        uint64_t every; /* 0: none on the way */
        uint64_t keep;  /* 3 */
    } checkpoint;
    char *restore;     /* "latest", "none", or an iteration in decimal */
    uint64_t restarts; /* 0 */
    struct {
        char *name;               /* "mlp" */
        sg_config_numbers hidden; /* widths of the hidden layers; [512, 512] */
        sg_config_strings layers; /* of the model `layers`, one a line; empty */
        uint64_t width;           /* of resnet18, resnet50: channels of the first stage */
    } model;
    struct {
        sg_data_format format;                                         /* idx */
        char *train_images, *train_labels, *test_images, *test_labels; /* idx, raw; plain or .gz, as all files */
        sg_config_strings train, test;  /* cifar10, csv, libsvm: files, one after other */
        sg_config_numbers shape;        /* of an example: [features] or [channels, height, width]; empty: not told */
        uint64_t classes;               /* 10 */
        uint64_t first_label;           /* 0: csv, libsvm, raw: how the first class is called */
        uint64_t label_column;          /* 0: csv: counted from 1; 0 is the last one */
        bool header;                    /* false: csv: the first line is not data */
        uint64_t crop;                  /* 0: pixels by which training images are moved at random */
        bool flip;                      /* false: training images are mirrored at random */
        uint64_t train_rows, test_rows; /* 10000, 2000: synthetic */
    } data;
    struct {
        char *ca, *certificate, *key; /* PEM; "": no TLS; all or none */
        char *token_file;             /* "": callers are not told apart */
        bool insecure;                /* false */
    } security;
    struct sg_config_places *places; /* who gave each value, for sg_config_locate; NULL: not known */
} sg_config;

/* One command-line override: key "update.learning_rate", value "0.05". */
typedef struct sg_config_override {
    const char *key, *value;
    const char *source; /* how the user wrote it, for messages: "--set update.learning_rate", "--mode" */
} sg_config_override;

/* Reads `path` (NULL: defaults alone), applies the overrides in order, checks single values and how they go together.
 * Errors: NOT_FOUND (no such file), CONFIG. Destroyed by sg_config_destroy. */
SG_MUST_USE sg_status sg_config_load(const char *path, const sg_config_override *overrides, size_t n_overrides,
                                     sg_config **config, sg_error *err);
/* The same from memory; `name` stands for the file in messages. For tests and fuzzing. */
SG_MUST_USE sg_status sg_config_parse(const char *text, size_t n_bytes, const char *name,
                                      const sg_config_override *overrides, size_t n_overrides, sg_config **config,
                                      sg_error *err);
void sg_config_destroy(sg_config *config);
/* For what is found wrong after loading: a message of CONFIG or EXHAUSTED that begins with a key, or with one item of
 * its list, as "model.layers[2]: ...", gets the place where that was given before it, "cluster.yaml:12:9: " or "--set
 * KEY: ". Other messages stay. Returns status. */
sg_status sg_config_locate(const sg_config *config, sg_status status, sg_error *err);
/* Calls `each` for every key that was given, in the file or on the command line, with another value than its default,
 * and that has no effect beside the rule, mode or schedule that is set: no fault, since a running job may change to
 * what it is for. note (valid during the call): "cluster.yaml:12:13: update.momentum has no effect while update.rule is
 * sgd: it is for momentum, nesterov, lars". */
void sg_config_each_idle(const sg_config *config, void (*each)(void *user, const char *note), void *user);
/* Destroyed by sg_config_destroy, and independent of `from`; who gave the values is not copied. */
sg_config *sg_config_copy(const sg_config *from);
/* A copy of `from` with these keys changed, checked as a whole: what a running job can do with its hyper-parameters,
 * mode and rule.
 * Errors: CONFIG, naming the key (also for one that cannot be changed while the job runs, and what to do). */
SG_MUST_USE sg_status sg_config_change(const sg_config *from, const sg_config_override *overrides, size_t n_overrides,
                                       sg_config **changed, sg_error *err);

/* Writes the whole configuration, defaults filled in, as a cluster file that loads to the same. What the model that is
 * named does not use is a comment. */
void sg_config_print(const sg_config *config, FILE *out);
/* The same of the defaults, as they stand in the table of options. */
void sg_config_print_presets(FILE *out);
/* The reference: every key with type, default, bounds and help, as comments. configs/README.md holds it. */
void sg_config_print_reference(FILE *out);
/* Calls `each` for every key that all processes of a job must agree on, in
 * the order of keys, with its canonical value (valid during the call). */
void sg_config_each_shared(const sg_config *config, void (*each)(void *user, const char *key, const char *value),
                           void *user);

/* --- command lines: the flags that every program understands ------------------------------------------------- */

/* Collects --config FILE, --set KEY=VALUE and the flags of common keys (--mode, --ps N, --workers N, --run-dir DIR,
 * --seed N, --log-level L) from argv, leaving what it does not know (in order) in `rest`. Pointers are into argv. */
typedef struct sg_config_flags {
    const char *path;
    sg_config_override *overrides;
    size_t n_overrides;
    char **strings; /* owned: values built from flags */
    size_t n_strings;
    char **rest; /* [n_rest] what is left of argv[1..] */
    int n_rest;
} sg_config_flags;
/* Errors: USAGE (a flag without its value, --set without '='). Freed by sg_config_flags_deinit, also after failure. */
SG_MUST_USE sg_status sg_config_flags_init(sg_config_flags *flags, int argc, char **argv, sg_error *err);
void sg_config_flags_deinit(sg_config_flags *flags);
/* The lines of --help that describe these flags. */
void sg_config_flags_help(FILE *out);
/* Of an option that there is not: "; did you mean --set train.epochs=VALUE?"; "" where nothing is near. `own`: [n] the
 * options that the program has beside these flags. */
#define SG_CONFIG_FLAGS_MEANT_BYTES 96u
void sg_config_flags_meant(const char *word, const char *const *own, size_t n, char out[SG_CONFIG_FLAGS_MEANT_BYTES]);

/* Splits "host:port" or "[v6]:port". Errors: CONFIG. */
SG_MUST_USE sg_status sg_config_split_address(const char *address, char *host, size_t host_bytes, uint16_t *port,
                                              sg_error *err);

const char *sg_mode_name(sg_mode mode);
const char *sg_rule_name(sg_rule rule);
const char *sg_data_format_name(sg_data_format format);
/* False: there is no rule of that name. */
bool sg_rule_from_name(const char *name, sg_rule *rule);

#endif
