/* common/daemon.h - the command line that both daemons take: what shardgrad-ps and shardgrad-worker have in common.
 *
 *     PROGRAM --config FILE --index I [--coordinator HOST:PORT] [--parent PID] [flags of the cluster file] */
#ifndef SG_COMMON_DAEMON_H
#define SG_COMMON_DAEMON_H

#include "common/config.h"

typedef struct sg_daemon {
    const char *program; /* "shardgrad-ps" */
    sg_config_flags flags;
    const char *index;       /* as the user wrote it; NULL: missing */
    const char *parent;      /* process id that it is to end with, for sg_parent_bind; NULL: none */
    const char *coordinator; /* host:port of ps 0; NULL: where the cluster file leads to */
    bool help, version;
} sg_daemon;

/* Takes argv apart; pointers are into it. Errors: USAGE. To be freed by sg_daemon_deinit, also after failure. */
SG_MUST_USE sg_status sg_daemon_init(sg_daemon *daemon, const char *program, int argc, char **argv, sg_error *err);
void sg_daemon_deinit(sg_daemon *daemon);

/* --help: `about` is a paragraph, `index` the line of --index. */
void sg_daemon_print_help(const sg_daemon *daemon, const char *about, const char *index, FILE *out);

/* The configuration of the file that --config names. Errors: USAGE (no file), and those of sg_config_load. */
SG_MUST_USE sg_status sg_daemon_load(const sg_daemon *daemon, sg_config **config, sg_error *err);
/* The number behind --index, below n. `bound` says where n comes from, for messages: "max_workers". Errors: USAGE (no
 * number), CONFIG (out of range). */
SG_MUST_USE sg_status sg_daemon_index(const sg_daemon *daemon, uint64_t n, const char *bound, uint32_t *index,
                                      sg_error *err);

#endif
