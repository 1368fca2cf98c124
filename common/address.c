/* common/address.c - see address.h. */
#include "common/address.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/folder.h"

static char *address_file(const sg_config *config, uint32_t ps)
{
    return sg_xprintf("%s/address/ps-%u", config->run_dir, ps);
}

/* Reads the one line of the file; false if there is none, or it is empty. */
static bool read_line(const char *path, char out[SG_ADDRESS_BYTES])
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool read = fgets(out, SG_ADDRESS_BYTES, file) != NULL;
    fclose(file);
    if (!read)
        return false;
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

sg_status sg_address_find(const sg_config *config, uint32_t ps, char out[SG_ADDRESS_BYTES], sg_error *err)
{
    const sg_config_strings *list = config->advertise.n > 0 ? &config->advertise : &config->ps;
    if (ps >= list->n)
        return sg_error_set(err, SG_CONFIG, "ps %u: the cluster has %zu ps, the highest index is %zu", ps, list->n,
                            list->n - 1);
    char host[SG_ADDRESS_BYTES];
    uint16_t port;
    sg_status status = sg_config_split_address(list->items[ps], host, sizeof(host), &port, err);
    if (status != SG_OK)
        return status;
    if (port != 0) {
        snprintf(out, SG_ADDRESS_BYTES, "%s", list->items[ps]);
        return SG_OK;
    }
    char *path = address_file(config, ps);
    if (!read_line(path, out))
        status = sg_error_set(err, SG_NOT_READY, "ps %u has not written its address to %s", ps, path);
    free(path);
    return status;
}

sg_status sg_address_publish(const sg_config *config, uint32_t ps, const char *address, sg_error *err)
{
    char *path = address_file(config, ps);
    char *line = sg_xprintf("%s\n", address);
    sg_status status = sg_folder_write(path, line, strlen(line), err);
    free(line);
    free(path);
    return status;
}

void sg_address_withdraw(const sg_config *config, uint32_t ps, const char *address)
{
    char *path = address_file(config, ps);
    char found[SG_ADDRESS_BYTES];
    if (read_line(path, found) && strcmp(found, address) == 0)
        unlink(path);
    free(path);
}
