/* common/security.h - who may call what, and with which secrets and certificates: the section `security` of the cluster
 * file, read and checked.
 *
 * The token file holds one line for each role, "admin: SECRET", "worker: SECRET" or "observer: SECRET"; blank lines and
 * lines that begin with '#' are skipped. A ps needs all roles that are to get in, its own (admin) included; any other
 * process needs the line of the role in which it calls alone. A ps without a token file does not tell callers apart:
 * whoever the transport lets in (a certificate of the CA; without TLS, anybody on this machine) is an admin. */
#ifndef SG_COMMON_SECURITY_H
#define SG_COMMON_SECURITY_H

#include "common/config.h"

/* Each may do what those after it may. 0 is the strictest that a method can ask for, so that one that was forgotten is
 * not open. */
typedef enum sg_role { SG_ROLE_ADMIN, SG_ROLE_WORKER, SG_ROLE_OBSERVER, SG_ROLE_ANYBODY } sg_role;
#define SG_ROLES 3 /* with a token of their own: those before ANYBODY */

#define SG_SECRET_MIN_BYTES 16
#define SG_SECRET_MAX_BYTES 255

/* Immutable; must outlive the servers and clients that were given it. */
typedef struct sg_security {
    char *ca, *certificate, *key; /* files in PEM; all NULL: plaintext */
    bool has_tokens;
    /* Zeroes behind each, so that a comparison takes as long whatever it finds; empty: nobody has this role. */
    char secrets[SG_ROLES][SG_SECRET_MAX_BYTES + 1];
    char own[SG_SECRET_MAX_BYTES + 1]; /* with which this process calls; empty: none */
    char *warning;                     /* what is not as it should be, to be logged; NULL: nothing */
    bool insecure;                     /* secrets may go over a network as they are */
} sg_security;

/* For a process that calls as `role`. Its token is that of the weakest role that suffices, or else the strongest that
 * the file has: then the peer says what was wanted. The files of TLS are looked at, too:
 * gRPC would only fail every connection. Errors: NOT_FOUND (no such file), CONFIG (what a file holds). */
SG_MUST_USE sg_status sg_security_create(const sg_config *config, sg_role role, sg_security **security, sg_error *err);
void sg_security_destroy(sg_security *security); /* wipes the secrets; NULL is fine */

/* The role that this secret gives; ANYBODY: none. Takes as long for every secret of at most SG_SECRET_MAX_BYTES. */
sg_role sg_security_role_of(const sg_security *security, const char *secret, size_t n_bytes);

const char *sg_role_name(sg_role role);

#endif
