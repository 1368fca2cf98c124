/* common/config.c - loads a configuration, layer upon layer: defaults, the file, the command line; then checks how it
 * goes together. Everything here is a loop over the table in config_options.c. */
#include "common/config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/config_check.h"
#include "common/config_file.h"
#include "common/config_options.h"
#include "common/config_value.h"

typedef struct loader {
    sg_config *config;
    const char *name;        /* of the file, for messages */
    sg_config_place *places; /* [number of options] who gave each its value */
    sg_error *err;
} loader;

static sg_status unknown_key(const sg_config_place *place, const char *key, sg_error *err)
{
    const char *meant = sg_config_option_nearest(key);
    if (meant != NULL)
        return sg_config_fault(place, key, err, "is not a key (did you mean %s?)", meant);
    return sg_config_fault(place, key, err, "is not a key; configs/README.md lists them");
}

static sg_status dotted_key(const sg_config_place *place, const char *key, sg_error *err)
{
    int length = (int)strcspn(key, ".");
    return sg_config_fault(place, key, err, "belongs into a map: write '%.*s:' and below it, indented, '%s: ...'",
                           length, key, key + length + 1);
}

/* One entry of the file, at the top (section NULL) or in a map. */
static sg_status set_from_node(loader *in, const char *section, const sg_config_node *node)
{
    char *key = section != NULL ? sg_xprintf("%s.%s", section, node->key) : sg_xstrdup(node->key);
    const sg_config_option *option = sg_config_option_find(key);
    sg_config_place place = {.name = in->name, .line = node->key_line, .column = node->key_column};
    sg_status status;
    if (option == NULL || (section == NULL && strchr(key, '.') != NULL)) {
        status = option != NULL ? dotted_key(&place, key, in->err) : unknown_key(&place, key, in->err);
    } else if (in->places[sg_config_option_index(option)].line > 0) {
        status = sg_config_fault(&place, key, in->err, "is here a second time, first in line %" PRIu32 ": remove one",
                                 in->places[sg_config_option_index(option)].line);
    } else {
        sg_config_place *at = &in->places[sg_config_option_index(option)];
        *at = (sg_config_place){.name = in->name, .line = node->line, .column = node->column};
        status = sg_config_value_set(in->config, option, node, at, in->err);
        sg_config_places_note(in->config->places, option, at, node);
    }
    free(key);
    return status;
}

static sg_status set_from_section(loader *in, const sg_config_node *map)
{
    sg_config_place place = {.name = in->name, .line = map->line, .column = map->column};
    if (map->kind != SG_CONFIG_MAP)
        return sg_config_fault(&place, map->key, in->err,
                               "found %s, wanted a map: its keys on the next lines, indented by two spaces",
                               map->kind == SG_CONFIG_LIST ? "a list"
                               : map->text[0] != '\0'      ? "a value"
                                                           : "nothing");
    sg_status status = SG_OK;
    for (size_t i = 0; i < map->n_items && status == SG_OK; i++)
        status = set_from_node(in, map->key, &map->items[i]);
    return status;
}

static sg_status check_single(const loader *in, const sg_config_node *root, size_t index)
{
    const sg_config_node *node = &root->items[index];
    sg_config_place place = {.name = in->name, .line = node->key_line, .column = node->key_column};
    for (size_t i = 0; i < index; i++) {
        if (strcmp(root->items[i].key, node->key) == 0)
            return sg_config_fault(&place, node->key, in->err,
                                   "is here a second time, first in line %" PRIu32 ": put both together",
                                   root->items[i].key_line);
    }
    return SG_OK;
}

static sg_status set_from_root(loader *in, const sg_config_node *root)
{
    if (root->kind == SG_CONFIG_NOTHING || (root->kind == SG_CONFIG_SCALAR && root->text[0] == '\0'))
        return sg_error_set(in->err, SG_CONFIG,
                            "%s: is empty; wanted a cluster file, such as configs/fashion-mnist.yaml", in->name);
    if (root->kind != SG_CONFIG_MAP)
        return sg_error_set(in->err, SG_CONFIG, "%s:%" PRIu32 ":%" PRIu32 ": found %s, wanted lines of key: value",
                            in->name, root->line, root->column, root->kind == SG_CONFIG_LIST ? "a list" : "text");
    sg_status status = SG_OK;
    for (size_t i = 0; i < root->n_items && status == SG_OK; i++) {
        const sg_config_node *node = &root->items[i];
        if (!sg_config_option_is_section(node->key))
            status = set_from_node(in, NULL, node);
        else if ((status = check_single(in, root, i)) == SG_OK)
            status = set_from_section(in, node);
    }
    return status;
}

static sg_status set_from_text(loader *in, const char *text, size_t n_bytes)
{
    sg_config_node root;
    sg_status status = sg_config_file_parse(text, n_bytes, in->name, &root, in->err);
    if (status == SG_OK) {
        status = set_from_root(in, &root);
        sg_config_node_deinit(&root);
    }
    return status;
}

static bool is_in_quotes(const char *value)
{
    const size_t length = strlen(value);
    return length >= 2 && (value[0] == '"' || value[0] == '\'') && value[length - 1] == value[0];
}

/* A value of the command line is YAML, so that lists can be given, but text is taken as it stands, since a shell has
 * its own quotes, unless it is in quotes as in the file: "" is the empty text. */
static sg_status parse_override(const sg_config_option *option, const sg_config_override *override,
                                sg_config_node *node)
{
    const bool is_text = option->type == SG_CONFIG_TEXT || option->type == SG_CONFIG_NAME;
    if (!is_text || is_in_quotes(override->value))
        return sg_config_file_parse(override->value, strlen(override->value), override->source, node, NULL);
    *node = (sg_config_node){.kind = SG_CONFIG_SCALAR, .quoted = true, .text = sg_xstrdup(override->value), .line = 1};
    return SG_OK;
}

static sg_status set_from_override(loader *in, const sg_config_override *override)
{
    const sg_config_option *option = sg_config_option_find(override->key);
    sg_config_place place = {.name = in->name, .source = override->source};
    if (option == NULL && sg_config_option_is_section(override->key))
        return sg_config_fault(&place, override->key, in->err,
                               "is a map: set its keys one by one, such as --set %s.KEY=VALUE", override->key);
    if (option == NULL)
        return unknown_key(&place, override->key, in->err);
    sg_config_node node;
    sg_status status = parse_override(option, override, &node);
    if (status != SG_OK)
        return sg_config_fault(&place, override->key, in->err, "found '%.60s', which is not valid YAML",
                               override->value);
    in->places[sg_config_option_index(option)] = place;
    status = sg_config_value_set(in->config, option, &node, &place, in->err);
    if (in->config->places != NULL)
        sg_config_places_note(in->config->places, option, &place, &node);
    sg_config_node_deinit(&node);
    return status;
}

/* As one file: a parser for each of them would cost as much as all the rest. */
static void set_defaults(loader *in)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    sg_config_print_presets(out);
    fclose(out);
    sg_status status = set_from_text(in, text, n_bytes);
    SG_ASSERT(status == SG_OK);
    free(text);
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        in->places[i] = (sg_config_place){.name = in->name};
        sg_config_places_note(in->config->places, sg_config_option_at(i), &in->places[i], NULL);
    }
}

/* The command line names another model, or format of data, than the file: what the file says for that one is as good as
 * not said. */
static void forget_unused(loader *in)
{
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        sg_config_place *place = &in->places[i];
        if (place->source != NULL || place->line == 0 || sg_config_option_is_used(option, in->config) ||
            in->places[sg_config_option_index(sg_config_option_find(option->chooser))].source == NULL)
            continue;
        sg_config_node preset;
        sg_status status = sg_config_file_parse(option->preset, strlen(option->preset), in->name, &preset, NULL);
        *place = (sg_config_place){.name = in->name};
        if (status == SG_OK)
            status = sg_config_value_set(in->config, option, &preset, place, NULL);
        SG_ASSERT(status == SG_OK);
        sg_config_node_deinit(&preset);
    }
}

static sg_status apply(loader *in, const sg_config_override *overrides, size_t n_overrides)
{
    sg_status status = SG_OK;
    for (size_t i = 0; i < n_overrides && status == SG_OK; i++)
        status = set_from_override(in, &overrides[i]);
    forget_unused(in);
    return status == SG_OK ? sg_config_check(in->config, in->places, in->err) : status;
}

static sg_status load_layers(loader *in, const char *text, size_t n_bytes, const sg_config_override *overrides,
                             size_t n_overrides)
{
    sg_status status = SG_OK;
    set_defaults(in);
    if (text != NULL)
        status = set_from_text(in, text, n_bytes);
    if (status == SG_OK)
        status = apply(in, overrides, n_overrides);
    if (status == SG_OK && in->config->run_dir[0] == '\0') {
        free(in->config->run_dir);
        in->config->run_dir = sg_xprintf("runs/%s", in->config->job);
    }
    return status;
}

/* text NULL: defaults and overrides alone. */
static sg_status load(const char *text, size_t n_bytes, const char *name, const sg_config_override *overrides,
                      size_t n_overrides, sg_config **config, sg_error *err)
{
    sg_error unheard;
    loader in = {
        .config = sg_xcalloc(1, sizeof(*in.config)),
        .name = name,
        .places = sg_xcalloc(sg_config_option_count(), sizeof(*in.places)),
        .err = err != NULL ? err : &unheard,
    };
    in.config->places = sg_config_places_create(name);
    sg_status status = load_layers(&in, text, n_bytes, overrides, n_overrides);
    free(in.places);
    if (status != SG_OK) {
        sg_config_destroy(in.config);
        return status;
    }
    *config = in.config;
    return SG_OK;
}

sg_status sg_config_load(const char *path, const sg_config_override *overrides, size_t n_overrides, sg_config **config,
                         sg_error *err)
{
    if (path == NULL)
        return load(NULL, 0, "defaults", overrides, n_overrides, config, err);
    char *text;
    size_t n_bytes;
    sg_status status = sg_config_file_read(path, &text, &n_bytes, err);
    if (status != SG_OK)
        return status;
    status = load(text, n_bytes, path, overrides, n_overrides, config, err);
    free(text);
    return status;
}

sg_status sg_config_parse(const char *text, size_t n_bytes, const char *name, const sg_config_override *overrides,
                          size_t n_overrides, sg_config **config, sg_error *err)
{
    return load(text, n_bytes, name, overrides, n_overrides, config, err);
}

static sg_status check_changes(const sg_config_override *overrides, size_t n_overrides, sg_error *err)
{
    for (size_t i = 0; i < n_overrides; i++) {
        const sg_config_option *option = sg_config_option_find(overrides[i].key);
        if (option != NULL && !option->changes && !option->renews)
            return sg_error_set(err, SG_CONFIG,
                                "%s cannot be changed while the job runs: end the job, change it in the cluster file, "
                                "and start the job again",
                                option->key);
    }
    return SG_OK;
}

sg_status sg_config_change(const sg_config *from, const sg_config_override *overrides, size_t n_overrides,
                           sg_config **changed, sg_error *err)
{
    sg_status status = check_changes(overrides, n_overrides, err);
    if (status != SG_OK)
        return status;
    sg_error unheard;
    loader in = {
        .config = sg_config_copy(from),
        .name = "the job",
        .places = sg_xcalloc(sg_config_option_count(), sizeof(*in.places)),
        .err = err != NULL ? err : &unheard,
    };
    for (size_t i = 0; i < sg_config_option_count(); i++)
        in.places[i] = (sg_config_place){.name = in.name};
    status = apply(&in, overrides, n_overrides);
    free(in.places);
    if (status == SG_OK)
        *changed = in.config;
    else
        sg_config_destroy(in.config);
    return status;
}

void sg_config_destroy(sg_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < sg_config_option_count(); i++)
        sg_config_value_free(config, sg_config_option_at(i));
    sg_config_places_destroy(config->places);
    free(config);
}
