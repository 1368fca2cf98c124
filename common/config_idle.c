/* common/config_idle.c - keys that were given and have no effect. */
#include <stdlib.h>
#include <string.h>

#include "common/config.h"
#include "common/config_place.h"
#include "common/config_value.h"

static bool is_preset(const sg_config *config, const sg_config_option *option)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    sg_config_value_print(config, option, out);
    fclose(out);
    const bool same = strcmp(text, option->preset) == 0;
    free(text);
    return same;
}

/* "cluster.yaml:12:3: update.momentum", "--set update.momentum". */
static void print_place(const sg_config_place *place, const sg_config_option *option, FILE *out)
{
    if (place->source != NULL)
        fputs(place->source, out);
    else
        fprintf(out, "%s:%u:%u: %s", place->name, place->line, place->column, option->key);
}

/* " step cosine " as "step, cosine". */
static void print_chosen(const char *chosen, FILE *out)
{
    for (const char *c = chosen + 1; *c != '\0'; c++) {
        if (*c != ' ')
            fputc(*c, out);
        else if (c[1] != '\0')
            fputs(", ", out);
    }
}

static char *describe(const sg_config *config, const sg_config_place *place, const sg_config_option *option)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    print_place(place, option, out);
    fprintf(out, " has no effect while %s is %s: it is for ", option->chooser, sg_config_option_choice(option, config));
    print_chosen(option->chosen, out);
    fclose(out);
    return text;
}

void sg_config_each_idle(const sg_config *config, void (*each)(void *user, const char *note), void *user)
{
    for (size_t i = 0; config->places != NULL && i < sg_config_option_count(); i++) {
        const sg_config_option *option = sg_config_option_at(i);
        const sg_config_place *place = sg_config_places_of(config->places, option);
        if (!sg_config_place_is_given(place) || !sg_config_option_is_idle(option, config) || is_preset(config, option))
            continue;
        char *note = describe(config, place, option);
        each(user, note);
        free(note);
    }
}
