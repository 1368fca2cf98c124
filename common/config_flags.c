/* common/config_flags.c - command lines become overrides of keys, so that there is one parser of values. */
#include <stdlib.h>
#include <string.h>

#include "common/config.h"
#include "common/config_options.h"
#include "common/nearest.h"

static char *own(sg_config_flags *flags, char *text)
{
    flags->strings = sg_xrealloc(flags->strings, flags->n_strings + 1, sizeof(*flags->strings));
    flags->strings[flags->n_strings++] = text;
    return text;
}

static void add_override(sg_config_flags *flags, const char *key, const char *value, const char *source)
{
    flags->overrides = sg_xrealloc(flags->overrides, flags->n_overrides + 1, sizeof(*flags->overrides));
    flags->overrides[flags->n_overrides++] = (sg_config_override){.key = key, .value = value, .source = source};
}

static sg_status add_set(sg_config_flags *flags, const char *value, sg_error *err)
{
    const char *equals = strchr(value, '=');
    if (equals == NULL || equals == value)
        return sg_error_set(err, SG_USAGE, "--set: found '%.80s', wanted KEY=VALUE, such as update.learning_rate=0.05",
                            value);
    char *key = own(flags, sg_xprintf("%.*s", (int)(equals - value), value));
    add_override(flags, key, equals + 1, own(flags, sg_xprintf("--set %s", key)));
    return SG_OK;
}

/* --ps N stands for N entries of loopback, whatever the file says of addresses. */
static sg_status add_ps(sg_config_flags *flags, const char *value, sg_error *err)
{
    char *end = NULL;
    unsigned long n = strtoul(value, &end, 10);
    if (strspn(value, "0123456789") != strlen(value) || *end != '\0' || n < 1 || n > SG_CONFIG_MAX_PS)
        return sg_error_set(err, SG_USAGE, "--ps: found '%.40s', wanted a number from 1 to %u", value,
                            SG_CONFIG_MAX_PS);
    char *list = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&list, &n_bytes);
    SG_ASSERT(out != NULL);
    for (unsigned long i = 0; i < n; i++)
        fputs(i == 0 ? "[127.0.0.1:0" : ", 127.0.0.1:0", out);
    fputc(']', out);
    fclose(out);
    own(flags, list);
    add_override(flags, "ps", list, "--ps");
    add_override(flags, "advertise", "[]", "--ps");
    return SG_OK;
}

static const sg_config_option *option_of_flag(const char *flag)
{
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        if (option->flag != NULL && strcmp(option->flag, flag) == 0)
            return option;
    }
    return NULL;
}

static bool is_known(const char *flag)
{
    return strcmp(flag, "--config") == 0 || strcmp(flag, "--set") == 0 || option_of_flag(flag) != NULL;
}

static sg_status add_flag(sg_config_flags *flags, const char *flag, const char *value, sg_error *err)
{
    if (strcmp(flag, "--config") == 0) {
        flags->path = value;
        return SG_OK;
    }
    if (strcmp(flag, "--set") == 0)
        return add_set(flags, value, err);
    if (strcmp(flag, "--ps") == 0)
        return add_ps(flags, value, err);
    const sg_config_option *option = option_of_flag(flag);
    add_override(flags, option->key, value, option->flag);
    return SG_OK;
}

sg_status sg_config_flags_init(sg_config_flags *flags, int argc, char **argv, sg_error *err)
{
    *flags = (sg_config_flags){.rest = sg_xcalloc((size_t)(argc > 0 ? argc : 1), sizeof(*flags->rest))};
    bool only_rest = false; /* after "--" nothing is a flag */
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t length = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        only_rest = only_rest || strcmp(argv[i], "--") == 0;
        char *flag = sg_xprintf("%.*s", (int)length, argv[i]);
        sg_status status = SG_OK;
        if (only_rest || !is_known(flag))
            flags->rest[flags->n_rest++] = argv[i];
        else if (equals == NULL && (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0))
            status = sg_error_set(err, SG_USAGE, "%s: wanted a value after it", flag);
        else
            status = add_flag(flags, flag, equals != NULL ? equals + 1 : argv[++i], err);
        free(flag);
        if (status != SG_OK)
            return status;
    }
    return SG_OK;
}

/* --step for --stepp: of the options that the command has. */
static const char *nearest_flag(const char *word, const char *const *own, size_t n)
{
    sg_nearest nearest = {.word = word};
    for (size_t i = 0; i < n; i++)
        sg_nearest_try(&nearest, own[i] + 2);
    sg_nearest_try(&nearest, "set");
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        if (option->flag != NULL)
            sg_nearest_try(&nearest, option->flag + 2);
    }
    return nearest.best;
}

/* train.epochs for --epochs, but not data.crop for --from: of a key's last word more than a letter must be right. */
static const sg_config_option *nearest_key(const char *word)
{
    char *key = sg_xstrdup(word);
    for (char *at = strchr(key, '-'); at != NULL; at = strchr(at, '-'))
        *at = '_';
    const char *near = sg_config_option_nearest(key);
    const char *dot = near != NULL ? strrchr(near, '.') : NULL, *leaf = dot != NULL ? dot + 1 : near;
    const bool is_near = near != NULL && (sg_nearest_edits(key, near) != SG_NEAREST_NONE ||
                                          sg_nearest_edits(key, leaf) <= 1 || sg_nearest_begins(key, leaf));
    free(key);
    return is_near ? sg_config_option_find(near) : NULL;
}

void sg_config_flags_meant(const char *word, const char *const *own, size_t n, char out[SG_CONFIG_FLAGS_MEANT_BYTES])
{
    out[0] = '\0';
    if (word[0] != '-')
        return;
    char *name = sg_xstrdup(word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
    const char *flag = nearest_flag(name, own, n);
    const sg_config_option *key = flag == NULL ? nearest_key(name) : NULL;
    if (flag != NULL) {
        char dashed[SG_CONFIG_FLAGS_MEANT_BYTES / 2];
        snprintf(dashed, sizeof dashed, "--%s", flag);
        const sg_config_option *option = option_of_flag(dashed);
        snprintf(out, SG_CONFIG_FLAGS_MEANT_BYTES, "; did you mean %s%s%s?", dashed, option != NULL ? " " : "",
                 option != NULL ? option->hint : "");
    } else if (key != NULL) {
        snprintf(out, SG_CONFIG_FLAGS_MEANT_BYTES, "; did you mean --set %s=VALUE?", key->key);
    }
    free(name);
}

void sg_config_flags_deinit(sg_config_flags *flags)
{
    for (size_t i = 0; i < flags->n_strings; i++)
        free(flags->strings[i]);
    free(flags->strings);
    free(flags->overrides);
    free(flags->rest);
    *flags = (sg_config_flags){0};
}

void sg_config_flags_help(FILE *out)
{
    fprintf(out, "  %-24s %s\n", "--config FILE", "the cluster file");
    fprintf(out, "  %-24s %s\n", "--set KEY=VALUE", "set any key of it, such as update.learning_rate=0.05");
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        if (option->flag == NULL)
            continue;
        char left[64];
        snprintf(left, sizeof(left), "%s %s", option->flag, option->hint);
        fprintf(out, "  %-24s %s\n", left,
                strcmp(option->flag, "--ps") == 0 ? "so many ps on this machine, each at a free port" : option->help);
    }
}
