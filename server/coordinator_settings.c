/* server/coordinator_settings.c - the settings that all processes of a job must agree on, as the coordinator has them.
 */
#include <stdlib.h>

#include "server/coordinator_internal.h"

#define MAX_SETTINGS 1024u

static void add_setting(void *user, const char *key, const char *value)
{
    sg_coordinator *c = user;
    c->settings = sg_xrealloc(c->settings, c->n_settings + 1, sizeof *c->settings);
    c->settings[c->n_settings++] = (sg_coordinator_setting){.key = sg_xstrdup(key), .value = sg_xstrdup(value)};
}

void sg_coordinator_settings_init(sg_coordinator *c)
{
    sg_config_each_shared(c->config, add_setting, c);
}

void sg_coordinator_settings_deinit(sg_coordinator *c)
{
    for (size_t i = 0; i < c->n_settings; i++) {
        free(c->settings[i].key);
        free(c->settings[i].value);
    }
    free(c->settings);
}

/* Both sides list them in the order of keys: it is looked for where it should be, then everywhere. */
static const char *find_setting(Shardgrad__V1__Setting *const *settings, size_t n, size_t at, const char *key)
{
    if (at < n && strcmp(sg_coordinator_text(settings[at]->key), key) == 0)
        return sg_coordinator_text(settings[at]->value);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(sg_coordinator_text(settings[i]->key), key) == 0)
            return sg_coordinator_text(settings[i]->value);
    }
    return NULL;
}

sg_status sg_coordinator_settings_compare(const sg_coordinator *c, Shardgrad__V1__Setting *const *settings, size_t n,
                                          const char *whose, sg_error *err)
{
    if (n > MAX_SETTINGS)
        return sg_error_set(err, SG_INVALID, "%s sent %zu settings, wanted at most %u", whose, n, MAX_SETTINGS);
    for (size_t i = 0; i < c->n_settings; i++) {
        const sg_coordinator_setting *own = &c->settings[i];
        const char *theirs = find_setting(settings, n, i, own->key);
        if (theirs == NULL)
            return sg_error_set(err, SG_CONFIG,
                                "%s: %s says nothing, the coordinator says '%.100s': run the same version everywhere",
                                own->key, whose, own->value);
        if (strcmp(theirs, own->value) != 0)
            return sg_error_set(err, SG_CONFIG,
                                "%s: %s has '%.100s', the coordinator has '%.100s': use one cluster file everywhere",
                                own->key, whose, theirs, own->value);
    }
    for (size_t i = 0; i < n; i++) {
        const char *key = sg_coordinator_text(settings[i]->key);
        bool known = i < c->n_settings && strcmp(c->settings[i].key, key) == 0;
        for (size_t k = 0; k < c->n_settings && !known; k++)
            known = strcmp(c->settings[k].key, key) == 0;
        if (!known)
            return sg_error_set(err, SG_CONFIG,
                                "%.100s: %s has '%.100s', the coordinator does not know it: run the same version "
                                "everywhere",
                                key, whose, sg_coordinator_text(settings[i]->value));
    }
    return SG_OK;
}
