/* common/config_value.c - see config_value.h. A quoted number is text, and what is refused comes with the way to write
 * it. */
#include "common/config_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/config_scalar.h"

#define FOUND_BYTES 80

static void *field_of(const sg_config *config, const sg_config_option *option)
{
    return (char *)config + option->offset;
}

/* --- faults --------------------------------------------------------------------------------------------------- */

static const char *describe(const sg_config_node *node, char out[FOUND_BYTES])
{
    if (node->kind == SG_CONFIG_MAP)
        return "a map";
    if (node->kind == SG_CONFIG_LIST) {
        snprintf(out, FOUND_BYTES, "a list of %zu", node->n_items);
        return out;
    }
    if (node->kind == SG_CONFIG_NOTHING || (node->text[0] == '\0' && !node->quoted))
        return "nothing";
    bool cut = strlen(node->text) > FOUND_BYTES - 24;
    snprintf(out, FOUND_BYTES, node->quoted ? "the text \"%.*s%s\"" : "'%.*s%s'", FOUND_BYTES - 24, node->text,
             cut ? "..." : "");
    return out;
}

/* "found X, wanted Y (hint)"; no hint if it is empty. */
static sg_status fault(const sg_config_option *option, const sg_config_node *node, const sg_config_place *place,
                       const char *hint, sg_error *err)
{
    char found[FOUND_BYTES];
    char *wanted = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&wanted, &n_bytes);
    SG_ASSERT(out != NULL);
    sg_config_value_print_wanted(option, out);
    fclose(out);
    sg_status status = sg_config_fault(place, option->key, err, "found %s, wanted %s%s%s%s", describe(node, found),
                                       wanted, hint[0] != '\0' ? " (" : "", hint, hint[0] != '\0' ? ")" : "");
    free(wanted);
    return status;
}

/* --- scalars: true if the node was taken, else with a hint or without ------------------------------------------ */

static bool take_whole(const sg_config_option *option, const sg_config_node *node, uint64_t *value, char *hint)
{
    uint64_t read;
    bool valid = option->type == SG_CONFIG_BYTES ? sg_config_scalar_read_bytes(node->text, &read)
                                                 : sg_config_scalar_read_whole(node->text, &read);
    if (!valid || node->quoted || read < option->min || read > option->max) {
        sg_config_scalar_hint(node->text, node->quoted, hint);
        return false;
    }
    *value = read;
    return true;
}

static bool take_real(const sg_config_option *option, const sg_config_node *node, double *value, char *hint)
{
    double read;
    if (!sg_config_scalar_read_real(node->text, &read) || node->quoted) {
        sg_config_scalar_hint(node->text, node->quoted, hint);
        return false;
    }
    if (read < option->low || read > option->high || (option->above_low && read <= option->low) ||
        (option->below_high && read >= option->high))
        return false;
    *value = read == 0 ? 0 : read; /* no negative zero: it would be a second way to write zero */
    return true;
}

static bool take_text(const sg_config_option *option, const sg_config_node *node, char **value, char *hint)
{
    size_t length = strlen(node->text);
    bool is_number = option->number_too && length > 0 && strspn(node->text, "0123456789") == length;
    if (!node->quoted && !is_number && sg_config_scalar_is_other(node->text)) {
        if (length <= 40 && length >= option->min)
            snprintf(hint, SG_CONFIG_HINT_BYTES, "if text is meant, write \"%s\"", node->text);
        return false;
    }
    if (length < option->min || length > option->max || !sg_config_scalar_is_line(node->text) ||
        (option->type == SG_CONFIG_NAME && !sg_config_scalar_is_name(node->text)))
        return false;
    free(*value);
    *value = sg_xstrdup(node->text);
    return true;
}

static bool take_bool(const sg_config_node *node, bool *value, char *hint)
{
    static const char *const yes[] = {"true", "yes", "on", "y", "1"}, *const no[] = {"false", "no", "off", "n", "0"};
    if (!node->quoted && (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0)) {
        *value = node->text[0] == 't';
        return true;
    }
    if (sg_config_scalar_is_word(node->text, yes, SG_ARRAY_LEN(yes)))
        snprintf(hint, SG_CONFIG_HINT_BYTES, "write true");
    else if (sg_config_scalar_is_word(node->text, no, SG_ARRAY_LEN(no)))
        snprintf(hint, SG_CONFIG_HINT_BYTES, "write false");
    return false;
}

static bool take_scalar(const sg_config_option *option, const sg_config_node *node, void *field, char *hint)
{
    if (node->kind != SG_CONFIG_SCALAR)
        return false;
    switch (option->type) {
    case SG_CONFIG_NAME:
    case SG_CONFIG_TEXT:
        return take_text(option, node, field, hint);
    case SG_CONFIG_REAL:
        return take_real(option, node, field, hint);
    case SG_CONFIG_BOOL:
        return take_bool(node, field, hint);
    default:
        return take_whole(option, node, field, hint);
    }
}

static sg_status read_scalar(const sg_config_option *option, const sg_config_node *node, const sg_config_place *place,
                             void *field, sg_error *err)
{
    char hint[SG_CONFIG_HINT_BYTES] = "";
    return take_scalar(option, node, field, hint) ? SG_OK : fault(option, node, place, hint, err);
}

/* --- one of several ------------------------------------------------------------------------------------------- */

static void print_choices(const sg_config_choice *choices, FILE *out)
{
    for (const sg_config_choice *choice = choices; choice->name != NULL; choice++)
        fprintf(out, "%s%s", choice > choices ? ", " : "", choice->name);
}

static sg_status read_choice(const sg_config_option *option, const sg_config_node *node, const sg_config_place *place,
                             int *value, sg_error *err)
{
    if (node->kind != SG_CONFIG_SCALAR || node->text[0] == '\0')
        return fault(option, node, place, "", err);
    for (const sg_config_choice *choice = option->choices; choice->name != NULL; choice++) {
        if (strcmp(choice->name, node->text) == 0) {
            *value = choice->value;
            return SG_OK;
        }
    }
    char *list = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&list, &n_bytes);
    SG_ASSERT(out != NULL);
    print_choices(option->choices, out);
    fclose(out);
    const char *meant = sg_config_choice_nearest(option->choices, node->text);
    sg_status status =
        sg_config_fault(place, option->key, err, "'%.40s' is not one of %s%s%s%s", node->text, list,
                        meant != NULL ? " (did you mean " : "", meant != NULL ? meant : "", meant != NULL ? "?)" : "");
    free(list);
    return status;
}

static void print_choice(const sg_config_option *option, int value, FILE *out)
{
    const sg_config_choice *choice = option->choices;
    while (choice->name != NULL && choice->value != value)
        choice++;
    SG_ASSERT(choice->name != NULL);
    fputs(choice->name, out);
}

/* --- lists ---------------------------------------------------------------------------------------------------- */

static void free_strings(sg_config_strings *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (sg_config_strings){0};
}

static sg_config_place place_of(const sg_config_place *place, const sg_config_node *node)
{
    return (sg_config_place){.name = place->name, .source = place->source, .line = node->line, .column = node->column};
}

static sg_status read_addresses(const sg_config_option *option, const sg_config_node *node,
                                const sg_config_place *place, sg_config_strings *value, sg_error *err)
{
    if (node->kind != SG_CONFIG_LIST || node->n_items < option->min || node->n_items > option->max)
        return fault(option, node, place, "", err);
    sg_config_strings list = {.items = sg_xcalloc(node->n_items, sizeof(*list.items))};
    sg_status status = SG_OK;
    for (size_t i = 0; i < node->n_items && status == SG_OK; i++) {
        const sg_config_node *item = &node->items[i];
        sg_config_place item_place = place_of(place, item);
        char found[FOUND_BYTES], host[256];
        uint16_t port;
        if (item->kind != SG_CONFIG_SCALAR)
            status =
                sg_config_fault(&item_place, option->key, err, "found %s, wanted host:port", describe(item, found));
        else if (sg_config_split_address(item->text, host, sizeof(host), &port, err) != SG_OK)
            status = sg_config_fault(&item_place, option->key, err, "%s", err != NULL ? err->message : "");
        else
            list.items[list.n++] = sg_xstrdup(item->text);
    }
    sg_config_strings *unused = status == SG_OK ? value : &list;
    free_strings(unused);
    if (status == SG_OK)
        *value = list;
    return status;
}

static sg_status read_counts(const sg_config_option *option, const sg_config_node *node, const sg_config_place *place,
                             sg_config_numbers *value, sg_error *err)
{
    if (node->kind != SG_CONFIG_LIST || node->n_items > SG_CONFIG_MAX_COUNTS)
        return fault(option, node, place, "", err);
    sg_config_numbers list = {.items = sg_xcalloc(node->n_items, sizeof(*list.items)), .n = node->n_items};
    sg_config_option item_option = *option;
    item_option.type = SG_CONFIG_COUNT;
    for (size_t i = 0; i < list.n; i++) {
        sg_config_place item_place = place_of(place, &node->items[i]);
        sg_status status = read_scalar(&item_option, &node->items[i], &item_place, &list.items[i], err);
        if (status != SG_OK) {
            free(list.items);
            return status;
        }
    }
    free(value->items);
    *value = list;
    return SG_OK;
}

/* A text by itself is a list of one. */
static sg_status read_lines(const sg_config_option *option, const sg_config_node *node, const sg_config_place *place,
                            sg_config_strings *value, sg_error *err)
{
    const bool is_one = node->kind == SG_CONFIG_SCALAR && node->text[0] != '\0';
    const sg_config_node *items = is_one ? node : node->items;
    const size_t n = is_one ? 1 : node->n_items;
    if ((!is_one && node->kind != SG_CONFIG_LIST) || n > SG_CONFIG_MAX_LINES)
        return fault(option, node, place, "", err);
    sg_config_strings list = {.items = sg_xcalloc(n, sizeof(*list.items)), .n = n};
    sg_config_option item_option = *option;
    item_option.type = SG_CONFIG_TEXT;
    for (size_t i = 0; i < list.n; i++) {
        sg_config_place item_place = place_of(place, &items[i]);
        sg_status status = read_scalar(&item_option, &items[i], &item_place, &list.items[i], err);
        if (status != SG_OK) {
            free_strings(&list);
            return status;
        }
    }
    free_strings(value);
    *value = list;
    return SG_OK;
}

/* --- any value ------------------------------------------------------------------------------------------------ */

sg_status sg_config_value_set(sg_config *config, const sg_config_option *option, const sg_config_node *node,
                              const sg_config_place *place, sg_error *err)
{
    sg_config_place at = place_of(place, node);
    void *field = field_of(config, option);
    switch (option->type) {
    case SG_CONFIG_CHOICE:
        return read_choice(option, node, &at, field, err);
    case SG_CONFIG_ADDRESSES:
        return read_addresses(option, node, &at, field, err);
    case SG_CONFIG_COUNTS:
        return read_counts(option, node, &at, field, err);
    case SG_CONFIG_LINES:
        return read_lines(option, node, &at, field, err);
    default:
        return read_scalar(option, node, &at, field, err);
    }
}

void sg_config_value_free(sg_config *config, const sg_config_option *option)
{
    void *field = field_of(config, option);
    if (option->type == SG_CONFIG_NAME || option->type == SG_CONFIG_TEXT)
        free(*(char **)field);
    else if (option->type == SG_CONFIG_ADDRESSES || option->type == SG_CONFIG_LINES)
        free_strings(field);
    else if (option->type == SG_CONFIG_COUNTS)
        free(((sg_config_numbers *)field)->items);
}

bool sg_config_value_is_none(const sg_config *config, const sg_config_option *option)
{
    const void *field = field_of(config, option);
    return (option->type == SG_CONFIG_TEXT && **(char *const *)field == '\0') ||
           (option->type == SG_CONFIG_COUNTS && ((const sg_config_numbers *)field)->n == 0) ||
           (option->type == SG_CONFIG_LINES && ((const sg_config_strings *)field)->n == 0);
}

static void print_strings(const sg_config_strings *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < list->n; i++) {
        fputs(i > 0 ? ", " : "", out);
        sg_config_scalar_print_text(list->items[i], out);
    }
    fputc(']', out);
}

static void print_counts(const sg_config_numbers *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < list->n; i++)
        fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", list->items[i]);
    fputc(']', out);
}

void sg_config_value_print(const sg_config *config, const sg_config_option *option, FILE *out)
{
    const void *field = field_of(config, option);
    switch (option->type) {
    case SG_CONFIG_NAME:
    case SG_CONFIG_TEXT:
        sg_config_scalar_print_text(*(char *const *)field, out);
        break;
    case SG_CONFIG_COUNT:
    case SG_CONFIG_MS:
        fprintf(out, "%" PRIu64, *(const uint64_t *)field);
        break;
    case SG_CONFIG_BYTES:
        sg_config_scalar_print_bytes(*(const uint64_t *)field, out);
        break;
    case SG_CONFIG_REAL:
        sg_config_scalar_print_real(*(const double *)field, out);
        break;
    case SG_CONFIG_BOOL:
        fputs(*(const bool *)field ? "true" : "false", out);
        break;
    case SG_CONFIG_CHOICE:
        print_choice(option, *(const int *)field, out);
        break;
    case SG_CONFIG_ADDRESSES:
    case SG_CONFIG_LINES:
        print_strings(field, out);
        break;
    case SG_CONFIG_COUNTS:
        print_counts(field, out);
        break;
    }
}

static void print_real_wanted(const sg_config_option *option, FILE *out)
{
    fputs(option->above_low ? "a number above " : "a number from ", out);
    sg_config_scalar_print_real(option->low, out);
    fputs(option->below_high ? " to below " : " to ", out);
    sg_config_scalar_print_real(option->high, out);
}

void sg_config_value_print_wanted(const sg_config_option *option, FILE *out)
{
    switch (option->type) {
    case SG_CONFIG_NAME:
        fprintf(out, "a name of at most %" PRIu64 " letters, digits, '.', '_' and '-'", option->max);
        break;
    case SG_CONFIG_TEXT:
        fprintf(out, "a line of at most %" PRIu64 " bytes", option->max);
        break;
    case SG_CONFIG_COUNT:
        fprintf(out, "a whole number from %" PRIu64 " to %" PRIu64, option->min, option->max);
        break;
    case SG_CONFIG_MS:
        fprintf(out, "whole milliseconds from %" PRIu64 " to %" PRIu64, option->min, option->max);
        break;
    case SG_CONFIG_BYTES:
        fputs("bytes such as 65536, 64KiB or 1MiB, from ", out);
        sg_config_scalar_print_bytes(option->min, out);
        fputs(" to ", out);
        sg_config_scalar_print_bytes(option->max, out);
        break;
    case SG_CONFIG_REAL:
        print_real_wanted(option, out);
        break;
    case SG_CONFIG_BOOL:
        fputs("true or false", out);
        break;
    case SG_CONFIG_CHOICE:
        fputs("one of ", out);
        print_choices(option->choices, out);
        break;
    case SG_CONFIG_ADDRESSES:
        fprintf(out, "a list of %" PRIu64 " to %" PRIu64 " host:port", option->min, option->max);
        break;
    case SG_CONFIG_COUNTS:
        fprintf(out, "a list of at most %u whole numbers from %" PRIu64 " to %" PRIu64, SG_CONFIG_MAX_COUNTS,
                option->min, option->max);
        break;
    case SG_CONFIG_LINES:
        fprintf(out, "a list such as [this, that], of at most %u texts of %" PRIu64 " to %" PRIu64 " bytes",
                SG_CONFIG_MAX_LINES, option->min, option->max);
        break;
    }
}
