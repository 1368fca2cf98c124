/* common/config_copy.c - a deep copy of a configuration. */
#include <stdlib.h>
#include <string.h>

#include "common/config.h"
#include "common/config_options.h"

static void own_strings(sg_config_strings *list)
{
    char **items = sg_xcalloc(list->n, sizeof *items);
    for (size_t i = 0; i < list->n; i++)
        items[i] = sg_xstrdup(list->items[i]);
    list->items = items;
}

static void own_numbers(sg_config_numbers *list)
{
    uint64_t *items = sg_xcalloc(list->n, sizeof *items);
    for (size_t i = 0; i < list->n; i++)
        items[i] = list->items[i];
    list->items = items;
}

/* The field holds what the original points to. */
static void own(sg_config_type type, void *field)
{
    switch (type) {
    case SG_CONFIG_NAME:
    case SG_CONFIG_TEXT:
        *(char **)field = sg_xstrdup(*(char **)field);
        break;
    case SG_CONFIG_ADDRESSES:
    case SG_CONFIG_LINES:
        own_strings(field);
        break;
    case SG_CONFIG_COUNTS:
        own_numbers(field);
        break;
    case SG_CONFIG_COUNT:
    case SG_CONFIG_BYTES:
    case SG_CONFIG_MS:
    case SG_CONFIG_REAL:
    case SG_CONFIG_BOOL:
    case SG_CONFIG_CHOICE:
        break;
    }
}

sg_config *sg_config_copy(const sg_config *from)
{
    sg_config *copy = sg_xcalloc(1, sizeof *copy);
    *copy = *from;
    copy->places = NULL;
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        own(option->type, (char *)copy + option->offset);
    }
    return copy;
}
