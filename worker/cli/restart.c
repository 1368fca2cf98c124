/* worker/cli/restart.c - see restart.h. */
#include "worker/cli/restart.h"

#include <stdlib.h>
#include <string.h>

#include "common/checkpoint.h"

/* False: it cannot be told. */
static bool find_generation(const char *dir, uint64_t *generation)
{
    sg_checkpoint *folder;
    *generation = 0;
    const sg_status opened = sg_checkpoint_open_existing(&sg_disk_posix, dir, &folder, NULL);
    if (opened != SG_OK)
        return opened == SG_NOT_FOUND;
    const sg_status status = sg_checkpoint_recorded(folder, generation, NULL);
    sg_checkpoint_close(folder);
    return status == SG_OK;
}

void sg_restart_init(sg_restart *restart, const sg_config *config)
{
    *restart = (sg_restart){.config = config};
    if (config->checkpoint.dir[0] != '\0')
        (void)find_generation(config->checkpoint.dir, &restart->generation); /* the ps will say why not */
}

const char *const *sg_restart_words(const sg_restart *restart)
{
    static const char *const words[] = {"--set", "restore=latest", NULL};
    const sg_config *config = restart->config;
    uint64_t generation;
    if (config->checkpoint.dir[0] == '\0' || strcmp(config->restore, "latest") == 0)
        return NULL;
    const bool is_known = find_generation(config->checkpoint.dir, &generation);
    return is_known && generation <= restart->generation ? NULL : words;
}

size_t sg_restart_n_given_up(const sg_config *config)
{
    sg_checkpoint *folder;
    sg_checkpoint_found *found = NULL;
    size_t n = 0, n_given_up = 0;
    if (config->checkpoint.dir[0] == '\0' || strcmp(config->restore, "latest") == 0 ||
        sg_checkpoint_open_existing(&sg_disk_posix, config->checkpoint.dir, &folder, NULL) != SG_OK)
        return 0;
    const bool is_all = strcmp(config->restore, "none") == 0;
    const uint64_t from = is_all ? 0 : strtoull(config->restore, NULL, 10);
    if (sg_checkpoint_list(folder, &found, &n, NULL) != SG_OK)
        n = 0;
    bool is_there = is_all;
    for (size_t i = 0; i < n; i++) {
        const bool is_usable = found[i].state == SG_CHECKPOINT_USABLE;
        is_there = is_there || (is_usable && found[i].set.iteration == from);
        n_given_up += is_usable && (is_all || found[i].set.iteration > from);
    }
    free(found);
    sg_checkpoint_close(folder);
    return is_there ? n_given_up : 0;
}

bool sg_restart_has_checkpoint(const sg_config *config)
{
    sg_checkpoint *folder;
    if (sg_checkpoint_open_existing(&sg_disk_posix, config->checkpoint.dir, &folder, NULL) != SG_OK)
        return false;
    sg_checkpoint_set newest = {0};
    const sg_status status = sg_checkpoint_find_newest(folder, &newest, NULL, NULL, NULL);
    sg_checkpoint_close(folder);
    return status == SG_OK && newest.generation != 0;
}
