/* tests/rpc/credentials.h - certificates as scripts/make-certs makes them, and a log that is searched. */
#ifndef SG_TESTS_RPC_CREDENTIALS_H
#define SG_TESTS_RPC_CREDENTIALS_H

#include "fixture.h"

/* A folder with the subfolders `ours` and `other`, each with ca.pem, localhost.pem and localhost.key; in `ours`,
 * `expired` and `elsewhere` (for another host), too. */
extern char credentials_folder[64];
void credentials_make(void);
void credentials_remove(void);
/* Runs a command in the root of the repository, of which $D is the folder. */
void credentials_do(const char *command);

/* From files of the folder, "ours/ca.pem" and so on, and a token (NULL: none). Destroyed by sg_security_destroy. */
sg_security *credentials_of(const char *ca, const char *certificate, const char *key, const char *token);
/* The tokens that a server knows, without TLS. */
#define ADMIN_TOKEN    "admin-0123456789abcdef"
#define WORKER_TOKEN   "worker-0123456789abcdef"
#define OBSERVER_TOKEN "observer-0123456789abcdef"
void credentials_add_tokens(sg_security *security);

/* The end of an echo that a client with these credentials sends. */
sg_status credentials_echo(const sg_security *security, const char *address, sg_error *err);

typedef struct heard_log {
    sg_log log;
    pthread_mutex_t mutex;
    char text[1 << 16];
} heard_log;
void heard_log_init(heard_log *heard);
/* How many events "refused" hold this. */
size_t heard_log_count(heard_log *heard, const char *what);

#endif
