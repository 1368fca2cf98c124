/* common/daemon.c - see daemon.h. */
#include "common/daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static sg_status refuse_option(const sg_daemon *d, const char *word, sg_error *err)
{
    static const char *const own[] = {"--config", "--index", "--coordinator", "--version"};
    char meant[SG_CONFIG_FLAGS_MEANT_BYTES];
    if (word[0] != '-')
        return sg_error_set(err, SG_USAGE, "found '%.200s', wanted --config before a cluster file; see %s --help", word,
                            d->program);
    sg_config_flags_meant(word, own, SG_ARRAY_LEN(own), meant);
    return sg_error_set(err, SG_USAGE, "unknown option '%s'%s; see %s --help", word, meant, d->program);
}

static sg_status take_word(sg_daemon *d, int *at, sg_error *err)
{
    const char *word = d->flags.rest[*at];
    const char **value = strcmp(word, "--index") == 0         ? &d->index
                         : strcmp(word, "--parent") == 0      ? &d->parent
                         : strcmp(word, "--coordinator") == 0 ? &d->coordinator
                                                              : NULL;
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        d->help = true;
    else if (strcmp(word, "--version") == 0)
        d->version = true;
    else if (value == NULL)
        return refuse_option(d, word, err);
    else if (++*at == d->flags.n_rest)
        return sg_error_set(err, SG_USAGE, "%s: wanted a value after it", word);
    else
        *value = d->flags.rest[*at];
    return SG_OK;
}

static sg_status check_coordinator(const sg_daemon *d, sg_error *err)
{
    char host[256];
    uint16_t port = 0;
    if (d->coordinator == NULL || sg_config_split_address(d->coordinator, host, sizeof host, &port, err) == SG_OK)
        return SG_OK;
    return sg_error_prefix(err, SG_USAGE, "--coordinator");
}

sg_status sg_daemon_init(sg_daemon *d, const char *program, int argc, char **argv, sg_error *err)
{
    *d = (sg_daemon){.program = program};
    sg_status status = sg_config_flags_init(&d->flags, argc, argv, err);
    for (int i = 0; status == SG_OK && i < d->flags.n_rest; i++)
        status = take_word(d, &i, err);
    return status == SG_OK ? check_coordinator(d, err) : status;
}

void sg_daemon_deinit(sg_daemon *d)
{
    sg_config_flags_deinit(&d->flags);
}

void sg_daemon_print_help(const sg_daemon *d, const char *about, const char *index, FILE *out)
{
    fprintf(out,
            "usage: %s --config FILE --index I [options]\n\n%s\n\n"
            "options\n"
            "  --index I                %s\n"
            "  --coordinator HOST:PORT  address of ps 0, instead of the one that the file leads to\n"
            "  --parent PID             end when the process PID, which started this one, ends\n"
            "  --version                its version\n"
            "  --help                   this text\n",
            d->program, about, index);
    sg_config_flags_help(out);
}

sg_status sg_daemon_load(const sg_daemon *d, sg_config **config, sg_error *err)
{
    if (d->flags.path == NULL)
        return sg_error_set(err, SG_USAGE, "wanted --config FILE; see %s --help", d->program);
    return sg_config_load(d->flags.path, d->flags.overrides, d->flags.n_overrides, config, err);
}

sg_status sg_daemon_index(const sg_daemon *d, uint64_t n, const char *bound, uint32_t *index, sg_error *err)
{
    if (d->index == NULL)
        return sg_error_set(err, SG_USAGE, "wanted --index I; see %s --help", d->program);
    char *end;
    errno = 0;
    unsigned long long number = strtoull(d->index, &end, 10);
    if (errno != 0 || d->index[0] < '0' || d->index[0] > '9' || *end != '\0')
        return sg_error_set(err, SG_USAGE, "--index: '%s' is not a number", d->index);
    if (number >= n)
        return sg_error_set(err, SG_CONFIG, "--index %s: %s is %llu, so the highest index is %llu", d->index, bound,
                            (unsigned long long)n, (unsigned long long)n - 1);
    *index = (uint32_t)number;
    return SG_OK;
}
