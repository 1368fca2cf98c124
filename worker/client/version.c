/* worker/client/version.c - which library this is. */
#include "shardgrad/client.h"

const char *sg_version(void)
{
    return SG_VERSION;
}
