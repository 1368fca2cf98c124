/* common/asked.h - the words by which a wanted change is told from a loss.
 *
 * The coordinator's reason for a generation that somebody asked for (`shardgrad set`) ends with them, in every answer
 * that sends workers back to hello. What they log of it is then no warning; nothing else goes by these words. */
#ifndef SG_COMMON_ASKED_H
#define SG_COMMON_ASKED_H

#include <stdbool.h>
#include <string.h>

#define SG_ASKED_WORDS " from now on, as asked"

static inline bool sg_is_asked(const char *reason)
{
    return strstr(reason, SG_ASKED_WORDS) != NULL;
}

#endif
