/* common/config_place.c - see config_place.h. */
#include "common/config_place.h"

#include <stdlib.h>
#include <string.h>

#include "common/config.h"

typedef struct item_place {
    uint32_t line, column;
} item_place;

typedef struct entry {
    sg_config_place place; /* its source is owned */
    item_place *items;     /* [n_items] of a list */
    size_t n_items;
} entry;

struct sg_config_places {
    char *name;
    entry *entries; /* [number of options] */
};

sg_status sg_config_fault(const sg_config_place *place, const char *key, sg_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sg_status status = sg_error_set_v(err, SG_CONFIG, format, args);
    va_end(args);
    if (place->source != NULL)
        return sg_error_prefix(err, status, "%s", place->source);
    if (place->line == 0)
        return sg_error_prefix(err, status, "%s: %s", place->name, key);
    return sg_error_prefix(err, status, "%s:%u:%u: %s", place->name, place->line, place->column, key);
}

bool sg_config_place_is_given(const sg_config_place *place)
{
    return place->source != NULL || place->line > 0;
}

/* --- the book ------------------------------------------------------------------------------------------------------
 */

struct sg_config_places *sg_config_places_create(const char *name)
{
    struct sg_config_places *places = sg_xcalloc(1, sizeof *places);
    places->name = sg_xstrdup(name);
    places->entries = sg_xcalloc(sg_config_option_count(), sizeof *places->entries);
    return places;
}

static void forget(entry *e)
{
    free((char *)(uintptr_t)e->place.source);
    free(e->items);
    *e = (entry){0};
}

void sg_config_places_destroy(struct sg_config_places *places)
{
    if (places == NULL)
        return;
    for (size_t i = 0; i < sg_config_option_count(); i++)
        forget(&places->entries[i]);
    free(places->entries);
    free(places->name);
    free(places);
}

const sg_config_place *sg_config_places_of(const struct sg_config_places *places, const sg_config_option *option)
{
    return &places->entries[sg_config_option_index(option)].place;
}

void sg_config_places_note(struct sg_config_places *places, const sg_config_option *option,
                           const sg_config_place *place, const sg_config_node *node)
{
    entry *e = &places->entries[sg_config_option_index(option)];
    forget(e);
    e->place = *place;
    e->place.name = places->name;
    e->place.source = place->source != NULL ? sg_xstrdup(place->source) : NULL;
    if (node == NULL || node->n_items == 0)
        return;
    e->n_items = node->n_items;
    e->items = sg_xcalloc(e->n_items, sizeof *e->items);
    for (size_t i = 0; i < e->n_items; i++)
        e->items[i] = (item_place){node->items[i].line, node->items[i].column};
}

/* --- a message about a key ------------------------------------------------------------------------------------------
 */

/* The option whose key a message begins with, and the item of its list, or SIZE_MAX; *length: of the key alone. */
static const sg_config_option *named_by(const char *message, size_t *item, size_t *length)
{
    *length = strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    *item = SIZE_MAX;
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        if (strlen(option->key) != *length || strncmp(option->key, message, *length) != 0)
            continue;
        if (message[*length] == '[')
            *item = strtoul(message + *length + 1, NULL, 10);
        return option;
    }
    return NULL;
}

sg_status sg_config_locate(const sg_config *config, sg_status status, sg_error *err)
{
    size_t item, length;
    const sg_config_option *option =
        err != NULL && config->places != NULL && (status == SG_CONFIG || status == SG_EXHAUSTED)
            ? named_by(err->message, &item, &length)
            : NULL;
    if (option == NULL)
        return status;
    const entry *e = &config->places->entries[sg_config_option_index(option)];
    if (e->place.source != NULL) {
        if (err->message[length] == ':') /* which the source has, or a flag that is known by its name */
            memmove(err->message, err->message + length + 2, strlen(err->message + length + 2) + 1);
        return sg_error_prefix(err, status, "%s", e->place.source);
    }
    if (e->place.line == 0)
        return sg_error_prefix(err, status, "%s", config->places->name);
    const item_place own = {e->place.line, e->place.column};
    const item_place at = item < e->n_items ? e->items[item] : own;
    return sg_error_prefix(err, status, "%s:%u:%u", config->places->name, at.line, at.column);
}
