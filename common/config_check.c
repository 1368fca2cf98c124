/* common/config_check.c - rules between keys, and the form of an address. */
#include "common/config_check.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "common/rpc_address.h"

/* --- addresses ------------------------------------------------------------------------------------------------ */

static bool is_host(const char *host, size_t length, bool bracketed)
{
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)host[i]) && strchr(bracketed ? ":.%-_" : ".-_", host[i]) == NULL)
            return false;
    }
    return length > 0;
}

static bool parse_port(const char *text, uint16_t *port)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 5 || text[length] != '\0' || (length > 1 && text[0] == '0'))
        return false;
    uint32_t value = 0;
    for (size_t i = 0; i < length; i++)
        value = value * 10 + (uint32_t)(text[i] - '0');
    *port = (uint16_t)value;
    return value <= UINT16_MAX;
}

sg_status sg_config_split_address(const char *address, char *host, size_t host_bytes, uint16_t *port, sg_error *err)
{
    bool bracketed = address[0] == '[';
    const char *begin = bracketed ? address + 1 : address;
    const char *end = bracketed ? strchr(begin, ']') : strchr(begin, ':');
    const char *colon = end != NULL && bracketed ? end + 1 : end;
    if (!bracketed && end != NULL && strchr(end + 1, ':') != NULL)
        return sg_error_set(err, SG_CONFIG,
                            "found '%.80s', wanted host:port (an IPv6 address goes in brackets: "
                            "\"[::1]:5000\")",
                            address);
    if (end == NULL || *colon != ':' || !is_host(begin, (size_t)(end - begin), bracketed))
        return sg_error_set(err, SG_CONFIG, "found '%.80s', wanted host:port, such as 127.0.0.1:5000", address);
    uint16_t parsed;
    if (!parse_port(colon + 1, &parsed))
        return sg_error_set(err, SG_CONFIG, "found port '%.20s' in '%.80s', wanted a number from 0 to 65535", colon + 1,
                            address);
    size_t length = (size_t)(end - begin);
    if (length >= host_bytes || length > 255)
        return sg_error_set(err, SG_CONFIG, "found a host of %zu bytes in '%.80s...', wanted at most 255", length,
                            address);
    memcpy(host, begin, length);
    host[length] = '\0';
    *port = parsed;
    return SG_OK;
}

/* --- rules between keys --------------------------------------------------------------------------------------- */

typedef struct check {
    const sg_config *config;
    const sg_config_place *places;
    sg_error *err;
} check;

static const sg_config_place *place_of_key(const check *in, const char *key)
{
    const sg_config_option *option = sg_config_option_find(key);
    SG_ASSERT(option != NULL);
    return &in->places[sg_config_option_index(option)];
}

/* Of two keys that do not go together, the one that was given last: a flag, else what the file says, else either. */
static const char *later(const check *in, const char *a, const char *b)
{
    const sg_config_place *first = place_of_key(in, a), *second = place_of_key(in, b);
    int first_rank = first->source != NULL ? 2 : first->line > 0;
    int second_rank = second->source != NULL ? 2 : second->line > 0;
    return second_rank > first_rank ? b : a;
}

static sg_status fault_of(const check *in, const char *key, const char *message)
{
    return sg_config_fault(place_of_key(in, key), key, in->err, "%s", message);
}

/* `low` must be at most (or, strictly, below) `high`. */
static sg_status check_order(const check *in, const char *low, uint64_t low_value, const char *high,
                             uint64_t high_value, bool strictly)
{
    if (strictly ? low_value < high_value : low_value <= high_value)
        return SG_OK;
    const char *key = later(in, low, high);
    const bool of_low = strcmp(key, low) == 0;
    return sg_config_fault(place_of_key(in, key), key, in->err,
                           "found %" PRIu64 ", and %s is %" PRIu64 ": wanted %s %s %s; change one of them",
                           of_low ? low_value : high_value, of_low ? high : low, of_low ? high_value : low_value, low,
                           strictly ? "below" : "at most", high);
}

/* Where others reach each ps: no two alike, and no "all interfaces", which is a place to listen at only. */
static sg_status check_reachable(const check *in, const char *key, const sg_config_strings *list)
{
    for (size_t i = 0; i < list->n; i++) {
        char host[256] = "";
        uint16_t port = 0;
        sg_status status = sg_config_split_address(list->items[i], host, sizeof(host), &port, in->err);
        if (status != SG_OK)
            return status;
        if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
            return sg_config_fault(place_of_key(in, key), key, in->err,
                                   "%s is where a ps may listen but not where it is found: list under advertise how "
                                   "others reach each ps",
                                   list->items[i]);
        for (size_t j = 0; j < i && port != 0; j++) {
            if (strcasecmp(list->items[i], list->items[j]) == 0)
                return sg_config_fault(place_of_key(in, key), key, in->err,
                                       "entries %zu and %zu are both %s: each ps needs an address of its own", j, i,
                                       list->items[i]);
        }
    }
    return SG_OK;
}

/* With advertise, several hosts may listen at the same 0.0.0.0:5000. */
static sg_status check_addresses(const check *in)
{
    const sg_config *config = in->config;
    if (config->advertise.n == 0)
        return check_reachable(in, "ps", &config->ps);
    if (config->advertise.n == config->ps.n)
        return check_reachable(in, "advertise", &config->advertise);
    const char *key = later(in, "advertise", "ps");
    return sg_config_fault(place_of_key(in, key), key, in->err,
                           "found %zu ps and %zu advertised addresses, wanted one for each ps, or none at all",
                           config->ps.n, config->advertise.n);
}

/* Beyond contribution_bytes the slice that all wait for is let in and every other push refused and sent again: with
 * room for less than two slices that would be every push, and training would crawl. */
static sg_status check_room(const check *in)
{
    const sg_config *config = in->config;
    if (config->contribution_bytes / 2 >= config->slice_bytes)
        return SG_OK;
    const char *key = later(in, "contribution_bytes", "slice_bytes");
    const bool is_room = strcmp(key, "contribution_bytes") == 0;
    return sg_config_fault(place_of_key(in, key), key, in->err,
                           "found %" PRIu64 ", and %s is %" PRIu64
                           ": wanted room for two slices, or nearly every push would be refused and sent again; set "
                           "contribution_bytes to at least %" PRIu64 ", or slice_bytes lower",
                           is_room ? config->contribution_bytes : config->slice_bytes,
                           is_room ? "slice_bytes" : "contribution_bytes",
                           is_room ? config->slice_bytes : config->contribution_bytes, 2 * config->slice_bytes);
}

static sg_status check_sizes(const check *in)
{
    const sg_config *config = in->config;
    if (config->slice_bytes % 64 != 0)
        return sg_config_fault(place_of_key(in, "slice_bytes"), "slice_bytes", in->err,
                               "found %" PRIu64 ", wanted a multiple of 64, such as %" PRIu64, config->slice_bytes,
                               config->slice_bytes / 64 * 64);
    sg_status status =
        check_order(in, "slice_bytes", config->slice_bytes, "message_bytes", config->message_bytes, false);
    if (status == SG_OK)
        status = check_room(in);
    if (status == SG_OK)
        status = check_order(in, "workers", config->workers, "max_workers", config->max_workers, false);
    if (status == SG_OK)
        status = check_order(in, "min_workers", config->min_workers, "max_workers", config->max_workers, false);
    if (status == SG_OK)
        status = check_order(in, "park_ms", config->park_ms, "lease_ms", config->lease_ms, true);
    return status;
}

/* What needs the norm of a whole gradient. In async a gradient is applied slice by slice, as it comes. */
static sg_status check_norms(const check *in)
{
    const sg_config *config = in->config;
    const sg_rule rule = config->update.rule;
    const bool clips = config->update.clip_global_norm > 0;
    if (config->update.mode != SG_MODE_SYNC && (rule == SG_RULE_LARS || rule == SG_RULE_LAMB))
        return fault_of(in, later(in, "update.rule", "update.mode"),
                        "rule lars or lamb needs norms of whole variables, which only sync has: set update.mode to "
                        "sync, or another rule");
    if (config->update.mode != SG_MODE_SYNC && clips)
        return fault_of(in, later(in, "update.clip_global_norm", "update.mode"),
                        "clip_global_norm needs the norm of a whole gradient, which only sync has: set update.mode to "
                        "sync, or clip_global_norm to 0");
    if (clips && (rule == SG_RULE_LAMB || rule == SG_RULE_AVERAGE))
        return fault_of(in, later(in, "update.clip_global_norm", "update.rule"),
                        "clip_global_norm is not for rule lamb, which scales each step itself, nor for average, which "
                        "has no gradients: set it to 0");
    return SG_OK;
}

/* What only steps in which workers wait for one another can do. */
static sg_status check_waits(const check *in)
{
    const sg_config *config = in->config;
    const sg_mode mode = config->update.mode;
    if (mode == SG_MODE_SYNC)
        return check_order(in, "update.backup_workers", config->update.backup_workers, "workers", config->workers,
                           true);
    if (config->on_worker_loss != SG_WORKER_LOSS_WAIT)
        return SG_OK;
    const char *key = later(in, "on_worker_loss", "update.mode");
    return sg_config_fault(
        place_of_key(in, key), key, in->err,
        "no step of %s waits for a lost worker, as on_worker_loss: wait wants: set on_worker_loss to "
        "continue or abort, or update.mode to sync",
        sg_mode_name(mode));
}

static sg_status check_update(const check *in)
{
    const sg_config *config = in->config;
    if (config->update.rule == SG_RULE_NESTEROV && config->update.momentum <= 0)
        return fault_of(in, later(in, "update.momentum", "update.rule"),
                        "rule is nesterov and momentum is 0, wanted a momentum above 0, such as 0.9");
    if (config->update.wire == SG_WIRE_BF16 && config->update.rule == SG_RULE_AVERAGE)
        return fault_of(in, later(in, "update.wire", "update.rule"),
                        "wire is bf16 and rule is average, which pushes values and no gradients: wanted wire float32");
    sg_status status = check_norms(in);
    if (status == SG_OK)
        status = check_waits(in);
    if (status != SG_OK)
        return status;
    if (config->update.schedule != SG_SCHEDULE_CONSTANT && config->update.decay_steps == 0)
        return fault_of(in, later(in, "update.decay_steps", "update.schedule"),
                        "schedule is not constant and decay_steps is 0, wanted at least 1: set update.decay_steps");
    if (config->update.schedule == SG_SCHEDULE_COSINE)
        return check_order(in, "update.warmup_steps", config->update.warmup_steps, "update.decay_steps",
                           config->update.decay_steps, true);
    return SG_OK;
}

/* TLS is both ends and both ways: all three files, or none. */
static sg_status check_security(const check *in)
{
    static const char *const keys[] = {"security.ca", "security.certificate", "security.key"};
    const char *files[] = {in->config->security.ca, in->config->security.certificate, in->config->security.key};
    const char *given = NULL, *missing = NULL;
    for (size_t i = 0; i < SG_ARRAY_LEN(keys); i++)
        *(files[i][0] != '\0' ? &given : &missing) = keys[i];
    if (given != NULL && missing != NULL)
        return sg_config_fault(place_of_key(in, given), given, in->err,
                               "is given and %s is not: TLS needs ca, certificate and key", missing);
    if (given != NULL || in->config->security.insecure)
        return SG_OK;
    for (size_t i = 0; i < in->config->ps.n; i++) {
        if (!sg_rpc_address_is_loopback(in->config->ps.items[i]))
            return sg_config_fault(place_of_key(in, "ps"), "ps", in->err,
                                   "%s is beyond this machine and there is no TLS: set security.ca, certificate and "
                                   "key (scripts/make-certs makes them), or security.insecure: true",
                                   in->config->ps.items[i]);
    }
    return SG_OK;
}

static sg_status check_checkpoints(const check *in)
{
    if (in->config->checkpoint.every == 0 || in->config->checkpoint.dir[0] != '\0')
        return SG_OK;
    return sg_config_fault(place_of_key(in, "checkpoint.every"), "checkpoint.every", in->err,
                           "found %" PRIu64 ", and checkpoint.dir, the folder where they are to lie, is not set: none "
                           "would be made",
                           (uint64_t)in->config->checkpoint.every);
}

static sg_status check_restore(const check *in)
{
    const char *what = in->config->restore;
    bool is_number = what[0] != '\0' && strspn(what, "0123456789") == strlen(what) && strlen(what) < 20;
    if (is_number && in->config->checkpoint.dir[0] == '\0')
        return sg_config_fault(
            place_of_key(in, "restore"), "restore", in->err,
            "%s is the iteration of a checkpoint, and checkpoint.dir, where it would lie, is not set", what);
    if (is_number || strcmp(what, "latest") == 0 || strcmp(what, "none") == 0)
        return SG_OK;
    return sg_config_fault(place_of_key(in, "restore"), "restore", in->err,
                           "'%.40s' is not one of latest, none, or the iteration of a checkpoint", what);
}

#define MAX_FEATURES ((uint64_t)1 << 28)

static sg_status check_data(const check *in)
{
    const sg_config_numbers *shape = &in->config->data.shape;
    const sg_data_format format = in->config->data.format;
    uint64_t n_features = 1;
    for (size_t i = 0; i < shape->n; i++)
        n_features = n_features <= MAX_FEATURES ? n_features * shape->items[i] : n_features;
    if (shape->n != 0 && shape->n != 1 && shape->n != 3)
        return sg_config_fault(place_of_key(in, "data.shape"), "data.shape", in->err,
                               "found %zu numbers, wanted [features], or [channels, height, width]", shape->n);
    if (n_features > MAX_FEATURES)
        return sg_config_fault(place_of_key(in, "data.shape"), "data.shape", in->err,
                               "makes more than %" PRIu64 " features, wanted fewer", MAX_FEATURES);
    if (shape->n == 0 && (format == SG_DATA_LIBSVM || format == SG_DATA_RAW || format == SG_DATA_SYNTHETIC))
        return fault_of(in, "data.format",
                        "libsvm, raw and synthetic want data.shape, such as [123], or [3, 32, 32] for images");
    if (format == SG_DATA_CIFAR10 && in->config->data.classes != 10)
        return fault_of(in, later(in, "data.classes", "data.format"), "cifar10 has 10 classes: set data.classes to 10");
    const bool in_lists = format == SG_DATA_CIFAR10 || format == SG_DATA_CSV || format == SG_DATA_LIBSVM;
    if (in_lists && (in->config->data.train.n == 0 || in->config->data.test.n == 0))
        return sg_config_fault(place_of_key(in, "data.format"), "data.format", in->err,
                               "%s wants the files to be listed in data.train and data.test",
                               sg_data_format_name(format));
    return SG_OK;
}

/* What another model, or another format of data, would use would be left out in silence. */
static sg_status check_used(const check *in)
{
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        if (!sg_config_place_is_given(&in->places[i]) || sg_config_option_is_used(option, in->config) ||
            sg_config_value_is_none(in->config, option))
            continue;
        return sg_config_fault(&in->places[i], option->key, in->err,
                               "is given, but %s is %s, which has no such key: remove it, or set %s to %.*s",
                               option->chooser, sg_config_option_choice(option, in->config), option->chooser,
                               (int)strcspn(option->chosen + 1, " "), option->chosen + 1);
    }
    return SG_OK;
}

sg_status sg_config_check(const sg_config *config, const sg_config_place *places, sg_error *err)
{
    check in = {.config = config, .places = places, .err = err};
    sg_status status = check_sizes(&in);
    if (status == SG_OK)
        status = check_addresses(&in);
    if (status == SG_OK)
        status = check_update(&in);
    if (status == SG_OK)
        status = check_used(&in);
    if (status == SG_OK)
        status = check_data(&in);
    if (status == SG_OK)
        status = check_security(&in);
    if (status == SG_OK)
        status = check_checkpoints(&in);
    if (status == SG_OK)
        status = check_restore(&in);
    return status;
}
