/* worker/client/version.c - which library this is. */
#include "shardgrad/client.h"

const char *sg_library_version(void)
{
    return SG_VERSION;
}
