/* common/config_print.c - a configuration as text: the whole file, the reference of keys, the settings to compare. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/config.h"
#include "common/config_options.h"
#include "common/config_value.h"

/* The key as it stands on its line, after opening its map if it is the first of it. */
static const char *print_section(const char *key, const char *before, const char *margin, FILE *out)
{
    const char *dot = strchr(key, '.');
    if (dot == NULL)
        return key;
    size_t length = (size_t)(dot - key) + 1;
    if (before == NULL || strncmp(before, key, length) != 0)
        fprintf(out, "%s%.*s:\n", margin, (int)length - 1, key);
    return dot + 1;
}

void sg_config_print(const sg_config *config, FILE *out)
{
    const char *before = NULL;
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        const char *leaf = print_section(option->key, before, "", out);
        const bool is_used = sg_config_option_is_used(option, config);
        fprintf(out, "%s%s%s: ", leaf != option->key ? "  " : "", is_used ? "" : "# ", leaf);
        sg_config_value_print(config, option, out);
        fputc('\n', out);
        before = option->key;
    }
}

void sg_config_print_presets(FILE *out)
{
    const char *before = NULL;
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        const char *leaf = print_section(option->key, before, "", out);
        fprintf(out, "%s%s: %s\n", leaf != option->key ? "  " : "", leaf, option->preset);
        before = option->key;
    }
}

void sg_config_print_reference(FILE *out)
{
    const char *before = NULL;
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        const char *leaf = print_section(option->key, before, "# ", out);
        fprintf(out, "# %s%s: %s\n", leaf != option->key ? "  " : "", leaf, option->preset);
        fprintf(out, "#       %s\n#       ", option->help);
        sg_config_value_print_wanted(option, out);
        if (option->shared)
            fputs("; shared", out);
        if (option->flag != NULL)
            fprintf(out, "; %s %s", option->flag, option->hint);
        fputc('\n', out);
        before = option->key;
    }
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(sg_config_option_at(*(const size_t *)a)->key, sg_config_option_at(*(const size_t *)b)->key);
}

/* Addresses may differ from host to host; how many ps there are may not. */
static void print_shared(const sg_config *config, const sg_config_option *option, FILE *out)
{
    if (option->type == SG_CONFIG_ADDRESSES)
        fprintf(out, "%zu", config->ps.n);
    else
        sg_config_value_print(config, option, out);
}

void sg_config_each_shared(const sg_config *config, void (*each)(void *user, const char *key, const char *value),
                           void *user)
{
    size_t n = 0;
    size_t *shared = sg_xcalloc(sg_config_option_count(), sizeof(*shared));
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        if (sg_config_option_at(i)->shared)
            shared[n++] = i;
    }
    qsort(shared, n, sizeof(*shared), compare_keys);
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    for (size_t i = 0; i < n; i++) {
        print_shared(config, sg_config_option_at(shared[i]), out);
        fputc('\0', out);
    }
    fclose(out);
    const char *value = text;
    for (size_t i = 0; i < n; i++, value += strlen(value) + 1)
        each(user, sg_config_option_at(shared[i])->key, value);
    free(text);
    free(shared);
}
