/* server/roles.c - see roles.h. */
#include "server/roles.h"

#include <string.h>

/* Everything else, what ps say to each other included, takes an admin. */
static const struct {
    const char *path;
    sg_role needs;
} table[] = {
    {"/shardgrad.v1.CoordinatorService/Status", SG_ROLE_OBSERVER},
    {"/shardgrad.v1.CoordinatorService/Hello", SG_ROLE_WORKER},
    {"/shardgrad.v1.CoordinatorService/Declare", SG_ROLE_WORKER},
    {"/shardgrad.v1.CoordinatorService/Initialized", SG_ROLE_WORKER},
    {"/shardgrad.v1.CoordinatorService/Ticket", SG_ROLE_WORKER},
    {"/shardgrad.v1.CoordinatorService/Heartbeat", SG_ROLE_WORKER},
    {"/shardgrad.v1.CoordinatorService/Leave", SG_ROLE_WORKER},
    {"/shardgrad.v1.ParameterService/Initialize", SG_ROLE_WORKER},
    {"/shardgrad.v1.ParameterService/Push", SG_ROLE_WORKER},
    {"/shardgrad.v1.ParameterService/Pull", SG_ROLE_WORKER},
    {"/shardgrad.v1.ParameterService/PushPull", SG_ROLE_WORKER},
};

sg_role sg_role_needed(const char *path)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(table); i++) {
        if (strcmp(path, table[i].path) == 0)
            return table[i].needs;
    }
    return SG_ROLE_ADMIN;
}
