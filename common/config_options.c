/* common/config_options.c - the table of options: keys, types, defaults, bounds, flags and help. */
#include "common/config_options.h"

#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/workers.h"

#define AT(field)         .offset = offsetof(sg_config, field)
#define DAY_MS            86400000u
#define MAX_BYTES         (1u << 30)
#define MAX_WAITING_BYTES ((uint64_t)1 << 40)
#define MAX_PATH          4096
#define MAX_FACTOR        1e6

static const sg_config_choice modes[] = {
    {"sync", SG_MODE_SYNC}, {"async", SG_MODE_ASYNC}, {"ssp", SG_MODE_SSP}, {NULL, 0}};
static const sg_config_choice rules[] = {{"sgd", SG_RULE_SGD},
                                         {"momentum", SG_RULE_MOMENTUM},
                                         {"nesterov", SG_RULE_NESTEROV},
                                         {"adagrad", SG_RULE_ADAGRAD},
                                         {"rmsprop", SG_RULE_RMSPROP},
                                         {"adam", SG_RULE_ADAM},
                                         {"adamw", SG_RULE_ADAMW},
                                         {"average", SG_RULE_AVERAGE},
                                         {"lars", SG_RULE_LARS},
                                         {"lamb", SG_RULE_LAMB},
                                         {NULL, 0}};
static const sg_config_choice schedules[] = {
    {"constant", SG_SCHEDULE_CONSTANT}, {"step", SG_SCHEDULE_STEP}, {"cosine", SG_SCHEDULE_COSINE}, {NULL, 0}};
static const sg_config_choice formats[] = {{"idx", SG_DATA_IDX},
                                           {"cifar10", SG_DATA_CIFAR10},
                                           {"csv", SG_DATA_CSV},
                                           {"libsvm", SG_DATA_LIBSVM},
                                           {"raw", SG_DATA_RAW},
                                           {"synthetic", SG_DATA_SYNTHETIC},
                                           {NULL, 0}};
static const sg_config_choice backends[] = {{"auto", SG_BACKEND_AUTO},
                                            {"cpu", SG_BACKEND_CPU},
                                            {"onednn", SG_BACKEND_ONEDNN},
                                            {"cuda", SG_BACKEND_CUDA},
                                            {NULL, 0}};
static const sg_config_choice wire_types[] = {{"float32", SG_WIRE_FLOAT32}, {"bf16", SG_WIRE_BF16}, {NULL, 0}};
static const sg_config_choice non_finites[] = {{"skip", SG_NON_FINITE_SKIP}, {"apply", SG_NON_FINITE_APPLY}, {NULL, 0}};
static const sg_config_choice worker_losses[] = {
    {"continue", SG_WORKER_LOSS_CONTINUE}, {"wait", SG_WORKER_LOSS_WAIT}, {"abort", SG_WORKER_LOSS_ABORT}, {NULL, 0}};
static const sg_config_choice levels[] = {
    {"debug", SG_LOG_DEBUG}, {"info", SG_LOG_INFO}, {"warn", SG_LOG_WARN}, {"error", SG_LOG_ERROR}, {NULL, 0}};

#define MODELS(names)  .chooser = "model.name", .chosen = names
#define FORMATS(names) .chooser = "data.format", .chosen = names
/* Read and checked all the same: a running job may change to what they are for. */
#define RULES(names)     .idle = true, .chooser = "update.rule", .chosen = names
#define MODES(names)     .idle = true, .chooser = "update.mode", .chosen = names
#define SCHEDULES(names) .idle = true, .chooser = "update.schedule", .chosen = names

/* clang-format off */
static const sg_config_option options[] = {
    {"job", SG_CONFIG_NAME, AT(job), "shardgrad", 1, 64, .shared = true,
     .help = "name of the job; daemons of another job are refused"},
    {"seed", SG_CONFIG_COUNT, AT(seed), "1", 0, UINT64_MAX, .shared = true, .flag = "--seed", .hint = "N",
     .help = "initial values and the order of the data follow from it"},
    {"ps", SG_CONFIG_ADDRESSES, AT(ps), "[127.0.0.1:0]", 1, SG_CONFIG_MAX_PS, .shared = true, .flag = "--ps", .hint = "N",
     .help = "where each ps listens; port 0: any free one"},
    {"advertise", SG_CONFIG_ADDRESSES, AT(advertise), "[]", 0, SG_CONFIG_MAX_PS,
     .help = "where others reach each ps, and with TLS ps 0 itself; empty: as in ps"},
    {"workers", SG_CONFIG_COUNT, AT(workers), "2", 1, SG_MAX_WORKERS, .shared = true, .flag = "--workers", .hint = "N",
     .help = "training starts when so many have come"},
    {"max_workers", SG_CONFIG_COUNT, AT(max_workers), "64", 1, SG_MAX_WORKERS, .shared = true,
     .help = "worker indices are below it"},
    {"on_worker_loss", SG_CONFIG_CHOICE, AT(on_worker_loss), "continue", .choices = worker_losses,
     .help = "a worker fell silent: continue: the others go on; wait (sync): until it comes again; abort: the job ends"},
    {"min_workers", SG_CONFIG_COUNT, AT(min_workers), "1", 1, SG_MAX_WORKERS,
     .help = "with fewer nobody goes on without the lost; after start_timeout_ms the job ends"},
    {"threads", SG_CONFIG_COUNT, AT(threads), "1", 1, 1024,
     .help = "threads of compute in each worker"},
    {"rpc_threads", SG_CONFIG_COUNT, AT(rpc_threads), "1", 1, 64, .shared = true,
     .help = "threads in each ps that receive, add, update and answer"},
    {"connections", SG_CONFIG_COUNT, AT(connections), "2", 1, 16, .shared = true,
     .help = "of each worker to each ps, for gradients and values"},
    {"slice_bytes", SG_CONFIG_BYTES, AT(slice_bytes), "512KiB", 64, MAX_BYTES, .shared = true,
     .help = "largest slice of a variable; a multiple of 64"},
    {"message_bytes", SG_CONFIG_BYTES, AT(message_bytes), "1MiB", 64, MAX_BYTES, .shared = true,
     .help = "most data in one message; at least slice_bytes"},
    {"contribution_bytes", SG_CONFIG_BYTES, AT(contribution_bytes), "4GiB", 64, MAX_WAITING_BYTES,
     .help = "most gradients that wait in a ps for those of other workers; at least two slices"},
    {"lease_ms", SG_CONFIG_MS, AT(lease_ms), "5000", 10, DAY_MS,
     .help = "who is not heard for so long is taken for dead"},
    {"park_ms", SG_CONFIG_MS, AT(park_ms), "2000", 1, DAY_MS,
     .help = "a call that has to wait is answered and asked again after it"},
    {"warn_after_ms", SG_CONFIG_MS, AT(warn_after_ms), "10000", 1, DAY_MS,
     .help = "who waits longer says so in the log"},
    {"start_timeout_ms", SG_CONFIG_MS, AT(start_timeout_ms), "60000", 1, DAY_MS,
     .help = "how long a worker or a command waits for the others at the start, and a ps for ps 0; ps 0 waits as long as it lives"},
    {"shutdown_grace_ms", SG_CONFIG_MS, AT(shutdown_grace_ms), "2000", 1, DAY_MS,
     .help = "how long a process may take to end when told to"},
    {"linger", SG_CONFIG_BOOL, AT(linger), "false",
     .help = "true: a ps serves on when the last worker has left"},
    {"run_dir", SG_CONFIG_TEXT, AT(run_dir), "\"\"", 0, MAX_PATH, .flag = "--run-dir", .hint = "DIR",
     .help = "logs, summary and addresses go there; empty: runs/JOB"},
    {"log_level", SG_CONFIG_CHOICE, AT(log_level), "info", .choices = levels, .flag = "--log-level", .hint = "LEVEL",
     .help = "least grave event that is logged"},

    {"update.mode", SG_CONFIG_CHOICE, AT(update.mode), "sync", .choices = modes, .shared = true, .renews = true,
     .flag = "--mode", .hint = "MODE", .help = "sync: one update from all workers; async: one from each; ssp: async, not too far apart"},
    {"update.staleness", SG_CONFIG_COUNT, AT(update.staleness), "3", 0, UINT32_MAX, .shared = true, .renews = true,
     MODES(" ssp "),
     .help = "ssp: a worker begins no step more than so many ahead of the slowest"},
    {"update.backup_workers", SG_CONFIG_COUNT, AT(update.backup_workers), "0", 0, SG_MAX_WORKERS - 1, .shared = true, .renews = true,
     MODES(" sync "),
     .help = "sync: a step waits for all workers but so many, at least for one that is not late"},
    {"update.rule", SG_CONFIG_CHOICE, AT(update.rule), "sgd", .choices = rules, .shared = true, .renews = true,
     .help = "how values follow from gradients; average: from values that trainers of one's own push, not for the built-in one"},
    {"update.learning_rate", SG_CONFIG_REAL, AT(update.learning_rate), "0.01", .low = 0, .high = MAX_FACTOR, .shared = true, .changes = true,
     .help = "before the schedule"},
    {"update.base_batch", SG_CONFIG_COUNT, AT(update.base_batch), "0", 0, 1u << 24, .shared = true,
     .help = "learning_rate is that of a batch of so many, and grows with train.batch in proportion; 0: it does not"},
    {"update.momentum", SG_CONFIG_REAL, AT(update.momentum), "0.9", .low = 0, .high = 1, .below_high = true, .shared = true, .changes = true,
     RULES(" momentum nesterov lars "),
     .help = "of momentum, nesterov and lars"},
    {"update.beta1", SG_CONFIG_REAL, AT(update.beta1), "0.9", .low = 0, .high = 1, .below_high = true, .shared = true, .changes = true,
     RULES(" adam adamw lamb "),
     .help = "of adam, adamw, lamb: decay of the mean of gradients"},
    {"update.beta2", SG_CONFIG_REAL, AT(update.beta2), "0.999", .low = 0, .high = 1, .below_high = true, .shared = true, .changes = true,
     RULES(" adam adamw lamb rmsprop "),
     .help = "of adam, adamw, lamb, rmsprop (its alpha): decay of the mean of their squares"},
    {"update.epsilon", SG_CONFIG_REAL, AT(update.epsilon), "1e-08", .low = 0, .high = 1, .above_low = true, .shared = true, .changes = true,
     RULES(" adam adamw lamb rmsprop adagrad "),
     .help = "of adam, adamw, lamb, rmsprop, adagrad: added to the root"},
    {"update.weight_decay", SG_CONFIG_REAL, AT(update.weight_decay), "0", .low = 0, .high = MAX_FACTOR, .shared = true, .changes = true,
     .help = "times the value is added to the gradient; adamw: times the learning rate of the value is taken from it"},
    {"update.trust", SG_CONFIG_REAL, AT(update.trust), "0.001", .low = 0, .high = 1, .above_low = true, .shared = true, .changes = true,
     RULES(" lars "),
     .help = "of lars: how large a step is beside the norm of its variable"},
    {"update.clip_global_norm", SG_CONFIG_REAL, AT(update.clip_global_norm), "0", .low = 0, .high = MAX_FACTOR, .shared = true, .changes = true,
     .help = "sync: gradients of a group whose norm is above it are scaled down to it; 0: they are not"},
    {"update.schedule", SG_CONFIG_CHOICE, AT(update.schedule), "constant", .choices = schedules, .shared = true, .changes = true,
     .help = "how the learning rate goes on from step to step"},
    {"update.warmup_steps", SG_CONFIG_COUNT, AT(update.warmup_steps), "0", 0, UINT32_MAX, .shared = true, .changes = true,
     .help = "steps over which the learning rate grows to its full value"},
    {"update.decay_steps", SG_CONFIG_COUNT, AT(update.decay_steps), "0", 0, UINT32_MAX, .shared = true, .changes = true,
     SCHEDULES(" step cosine "),
     .help = "counted from the end of the warm-up; step: it falls every so many; cosine: it is zero after so many"},
    {"update.decay_factor", SG_CONFIG_REAL, AT(update.decay_factor), "0.1", .low = 0, .high = 1, .above_low = true, .shared = true, .changes = true,
     SCHEDULES(" step "),
     .help = "step: it is multiplied by this each time"},
    {"update.non_finite", SG_CONFIG_CHOICE, AT(update.non_finite), "skip", .choices = non_finites, .shared = true,
     .help = "skip: gradients with NaN or infinity count with weight 0"},
    {"update.wire", SG_CONFIG_CHOICE, AT(update.wire), "float32", .choices = wire_types, .shared = true,
     .help = "bf16: gradients travel as bfloat16, half as many bytes; values are float32 all the same"},

    {"train.batch", SG_CONFIG_COUNT, AT(train.batch), "128", 1, 1u << 24, .shared = true,
     .help = "examples of a step, over all workers"},
    {"train.epochs", SG_CONFIG_COUNT, AT(train.epochs), "5", 1, 1000000, .shared = true,
     .help = "passes over the data"},
    {"train.steps", SG_CONFIG_COUNT, AT(train.steps), "0", 0, UINT32_MAX, .shared = true,
     .help = "not 0: end after so many steps, whatever the epochs"},
    {"train.test_every_steps", SG_CONFIG_COUNT, AT(train.test_every_steps), "0", 0, UINT32_MAX, .shared = true,
     .help = "after so many steps, each time, the workers share the test set and evaluate; 0: only in the end"},
    {"train.test_every_epochs", SG_CONFIG_COUNT, AT(train.test_every_epochs), "0", 0, 1000000, .shared = true,
     .help = "the same after so many epochs"},
    {"train.label_smoothing", SG_CONFIG_REAL, AT(train.label_smoothing), "0", .low = 0, .high = 1, .below_high = true, .shared = true,
     .help = "of each label this share is spread evenly over all classes, in training and not in tests; 0: none"},
    {"train.backend", SG_CONFIG_CHOICE, AT(train.backend), "auto", .choices = backends,
     .help = "on what the workers compute; auto: onednn, for convolutions, where the build found it, otherwise cpu; cuda: on a GPU, where it found nvcc"},

    {"checkpoint.dir", SG_CONFIG_TEXT, AT(checkpoint.dir), "\"\"", 0, MAX_PATH,
     .help = "folder that all ps share, for checkpoints; empty: none are made"},
    {"checkpoint.every", SG_CONFIG_COUNT, AT(checkpoint.every), "0", 0, UINT32_MAX,
     .help = "iterations from one to the next; 0: at the start, at the end and when asked for"},
    {"checkpoint.keep", SG_CONFIG_COUNT, AT(checkpoint.keep), "3", 1, 1000000,
     .help = "complete ones that are kept, the newest"},
    {"restore", SG_CONFIG_TEXT, AT(restore), "latest", 1, 32, .number_too = true, .flag = "--restore", .hint = "WHAT",
     .help = "what a job that is started goes on from: latest, none, or the iteration of a checkpoint"},
    {"restarts", SG_CONFIG_COUNT, AT(restarts), "0", 0, 1000000,
     .help = "how often shardgrad run starts a process anew that died; needs checkpoint.dir for a ps"},

    {"model.name", SG_CONFIG_NAME, AT(model.name), "mlp", 1, 64, .shared = true,
     .help = "model that shardgrad-worker trains: mlp, lenet, resnet18, resnet50, or layers, those of model.layers"},
    {"model.hidden", SG_CONFIG_COUNTS, AT(model.hidden), "[512, 512]", 1, 1u << 20, .shared = true, MODELS(" mlp "),
     .help = "mlp: widths of the hidden layers"},
    {"model.layers", SG_CONFIG_LINES, AT(model.layers), "[]", 1, 200, .shared = true, MODELS(" layers "),
     .help = "of the model layers, from the input on; configs/README.md tells how"},
    {"model.width", SG_CONFIG_COUNT, AT(model.width), "64", 1, 4096, .shared = true, MODELS(" resnet18 resnet50 "),
     .help = "of resnet18 and resnet50: channels of the first stage"},

    {"data.format", SG_CONFIG_CHOICE, AT(data.format), "idx", .choices = formats, .shared = true,
     .help = "how the files are written, for which configs/README.md has a table; synthetic: there are none"},
    {"data.train_images", SG_CONFIG_TEXT, AT(data.train_images), "\"\"", 0, MAX_PATH, FORMATS(" idx raw "),
     .help = "idx: IDX file; raw: float32 of every example; plain or .gz, as all data files"},
    {"data.train_labels", SG_CONFIG_TEXT, AT(data.train_labels), "\"\"", 0, MAX_PATH, FORMATS(" idx raw "),
     .help = "idx: IDX file; raw: int32 of every example"},
    {"data.test_images", SG_CONFIG_TEXT, AT(data.test_images), "\"\"", 0, MAX_PATH, FORMATS(" idx raw "),
     .help = "as train_images"},
    {"data.test_labels", SG_CONFIG_TEXT, AT(data.test_labels), "\"\"", 0, MAX_PATH, FORMATS(" idx raw "),
     .help = "as train_labels"},
    {"data.train", SG_CONFIG_LINES, AT(data.train), "[]", 1, MAX_PATH, FORMATS(" cifar10 csv libsvm "),
     .help = "cifar10, csv, libsvm: files, of which one continues the other"},
    {"data.test", SG_CONFIG_LINES, AT(data.test), "[]", 1, MAX_PATH, FORMATS(" cifar10 csv libsvm "),
     .help = "as train"},
    {"data.shape", SG_CONFIG_COUNTS, AT(data.shape), "[]", 1, 1u << 24, .shared = true, FORMATS(" csv libsvm raw synthetic "),
     .help = "of an example: [features], or [channels, height, width] of an image; libsvm, raw and synthetic need it"},
    {"data.classes", SG_CONFIG_COUNT, AT(data.classes), "10", 2, 65536, .shared = true,
     .help = "number of different labels"},
    {"data.first_label", SG_CONFIG_COUNT, AT(data.first_label), "0", 0, UINT32_MAX, .shared = true, FORMATS(" csv libsvm raw "),
     .help = "csv, libsvm, raw: the smallest label, from which on they are counted"},
    {"data.label_column", SG_CONFIG_COUNT, AT(data.label_column), "0", 0, 1u << 24, .shared = true, FORMATS(" csv "),
     .help = "csv: where the label stands, the first column being 1; 0: in the last"},
    {"data.header", SG_CONFIG_BOOL, AT(data.header), "false", .shared = true, FORMATS(" csv "),
     .help = "csv: true: the first line of each file names the columns"},
    {"data.crop", SG_CONFIG_COUNT, AT(data.crop), "0", 0, 1024, .shared = true,
     .help = "training images are moved at random by up to so many pixels each way; what comes in is black"},
    {"data.flip", SG_CONFIG_BOOL, AT(data.flip), "false", .shared = true,
     .help = "true: left and right of training images change places at random"},
    {"data.train_rows", SG_CONFIG_COUNT, AT(data.train_rows), "10000", 1, UINT32_MAX, .shared = true, FORMATS(" synthetic "),
     .help = "synthetic: number of training examples"},
    {"data.test_rows", SG_CONFIG_COUNT, AT(data.test_rows), "2000", 1, UINT32_MAX, .shared = true, FORMATS(" synthetic "),
     .help = "synthetic: number of test examples"},

    {"security.ca", SG_CONFIG_TEXT, AT(security.ca), "\"\"", 0, MAX_PATH,
     .help = "PEM file of the CA that signed every certificate of the cluster; empty: no TLS"},
    {"security.certificate", SG_CONFIG_TEXT, AT(security.certificate), "\"\"", 0, MAX_PATH,
     .help = "PEM file: of this process, for both ends of a connection"},
    {"security.key", SG_CONFIG_TEXT, AT(security.key), "\"\"", 0, MAX_PATH,
     .help = "PEM file: of the certificate"},
    {"security.token_file", SG_CONFIG_TEXT, AT(security.token_file), "\"\"", 0, MAX_PATH,
     .help = "lines 'ROLE: SECRET' of admin, worker, observer; empty: whoever connects is an admin"},
    {"security.insecure", SG_CONFIG_BOOL, AT(security.insecure), "false",
     .help = "true: listen beyond this machine without TLS, and send tokens there in the clear"},
};
/* clang-format on */

/* The maps that the keys with a dot lie in. */
static const char *const sections[] = {"update", "train", "checkpoint", "model", "data", "security"};

size_t sg_config_option_count(void)
{
    return SG_ARRAY_LEN(options);
}

const sg_config_option *sg_config_option_at(size_t index)
{
    return &options[index];
}

size_t sg_config_option_index(const sg_config_option *option)
{
    return (size_t)(option - options);
}

const sg_config_option *sg_config_option_find(const char *key)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(options); i++) {
        if (strcmp(options[i].key, key) == 0)
            return &options[i];
    }
    return NULL;
}

bool sg_config_option_is_section(const char *key)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(sections); i++) {
        if (strcmp(sections[i], key) == 0)
            return true;
    }
    return false;
}

static bool is_built_in(const char *model)
{
    static const char *const names[] = {"mlp", "lenet", "resnet18", "resnet50", "layers"};
    for (size_t i = 0; i < SG_ARRAY_LEN(names); i++) {
        if (strcmp(names[i], model) == 0)
            return true;
    }
    return false;
}

static const char *choice_name(const sg_config_choice *choices, int value)
{
    for (; choices->name != NULL; choices++) {
        if (choices->value == value)
            return choices->name;
    }
    return "unknown";
}

/* The one place where each option that chooses is read. */
const char *sg_config_option_choice(const sg_config_option *option, const sg_config *config)
{
    const char *chooser = option->chooser;
    if (chooser == NULL)
        return NULL;
    if (strcmp(chooser, "model.name") == 0)
        return config->model.name;
    if (strcmp(chooser, "update.rule") == 0)
        return sg_rule_name(config->update.rule);
    if (strcmp(chooser, "update.mode") == 0)
        return sg_mode_name(config->update.mode);
    if (strcmp(chooser, "update.schedule") == 0)
        return choice_name(schedules, (int)config->update.schedule);
    SG_ASSERT(strcmp(chooser, "data.format") == 0);
    return sg_data_format_name(config->data.format);
}

static bool is_chosen(const sg_config_option *option, const char *choice)
{
    const size_t length = strlen(choice);
    const char *found = strstr(option->chosen, choice);
    while (found != NULL && (found[-1] != ' ' || found[length] != ' '))
        found = strstr(found + 1, choice);
    return found != NULL;
}

bool sg_config_option_is_used(const sg_config_option *option, const sg_config *config)
{
    const char *choice = sg_config_option_choice(option, config);
    return choice == NULL || option->idle || !is_built_in(config->model.name) || is_chosen(option, choice);
}

bool sg_config_option_is_idle(const sg_config_option *option, const sg_config *config)
{
    return option->idle && !is_chosen(option, sg_config_option_choice(option, config));
}

/* --- what was meant? ----------------------------------------------------------------------------------------- */

static const char *leaf_of(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

static bool in_same_section(const char *a, const char *b)
{
    const size_t length = (size_t)(leaf_of(a) - a);
    return length == (size_t)(leaf_of(b) - b) && strncmp(a, b, length) == 0;
}

/* How far `key` is from what it may have meant; SG_NEAREST_NONE: too far. One that is near as a whole comes first, then
 * one of the same section that begins so, then those of other sections, where the key was then put into a wrong one. */
static size_t rank_candidate(const char *key, const char *candidate)
{
    const size_t whole = sg_nearest_edits(key, candidate);
    if (whole != SG_NEAREST_NONE)
        return whole;
    const bool begins = sg_nearest_begins(leaf_of(key), leaf_of(candidate));
    if (begins && in_same_section(key, candidate))
        return SG_NEAREST_MAX_EDITS + 1;
    const size_t leaf = sg_nearest_edits(leaf_of(key), leaf_of(candidate));
    if (leaf != SG_NEAREST_NONE)
        return SG_NEAREST_MAX_EDITS + 2 + leaf;
    return begins ? 2 * SG_NEAREST_MAX_EDITS + 3 : SG_NEAREST_NONE;
}

const char *sg_config_option_nearest(const char *key)
{
    const char *best = NULL;
    size_t best_rank = SG_NEAREST_NONE;
    for (size_t i = 0; i < SG_ARRAY_LEN(options) + SG_ARRAY_LEN(sections); i++) {
        const char *candidate = i < SG_ARRAY_LEN(options) ? options[i].key : sections[i - SG_ARRAY_LEN(options)];
        size_t rank = rank_candidate(key, candidate);
        if (rank < best_rank) {
            best = candidate;
            best_rank = rank;
        }
    }
    return best;
}

const char *sg_config_choice_nearest(const sg_config_choice *choices, const char *name)
{
    sg_nearest nearest = {.word = name};
    for (; choices->name != NULL; choices++)
        sg_nearest_try(&nearest, choices->name);
    return nearest.best;
}

const char *sg_mode_name(sg_mode mode)
{
    return choice_name(modes, (int)mode);
}

const char *sg_data_format_name(sg_data_format format)
{
    return choice_name(formats, (int)format);
}

const char *sg_rule_name(sg_rule rule)
{
    return choice_name(rules, (int)rule);
}

bool sg_rule_from_name(const char *name, sg_rule *rule)
{
    for (const sg_config_choice *choice = rules; choice->name != NULL; choice++) {
        if (strcmp(choice->name, name) != 0)
            continue;
        *rule = (sg_rule)choice->value;
        return true;
    }
    return false;
}
