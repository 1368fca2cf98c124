/* common/parent.h - a process that ends with the one that started it.
 *
 * `shardgrad run` passes its process id to every daemon (--parent PID). Should it die without a word (SIGKILL), the
 * kernel sends each of them SIGTERM, and they end as if a person had asked for it. Linux only (PR_SET_PDEATHSIG). */
#ifndef SG_COMMON_PARENT_H
#define SG_COMMON_PARENT_H

#include "common/status.h"

/* From now on this process gets SIGTERM when the thread that started it ends. pid_text is the id that its parent has;
 * NULL does nothing. Call it once the signal is handled. Errors: USAGE (not a process id), STOPPED (that process is
 * gone already, or is not the parent). */
SG_MUST_USE sg_status sg_parent_bind(const char *pid_text, sg_error *err);

#endif
