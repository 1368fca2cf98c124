/* common/security.c - see security.h. */
#include "common/security.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/plain_file.h"

/* Longer than any line that is right: what does not fit is an error, not memory. */
#define LINE_BYTES 512

static const char *const names[] = {"admin", "worker", "observer", "anybody"};

const char *sg_role_name(sg_role role)
{
    return (size_t)role < SG_ARRAY_LEN(names) ? names[role] : "unknown";
}

sg_role sg_security_role_of(const sg_security *security, const char *secret, size_t n_bytes)
{
    char given[SG_SECRET_MAX_BYTES + 1] = "";
    sg_role found = SG_ROLE_ANYBODY;
    if (n_bytes == 0 || n_bytes > SG_SECRET_MAX_BYTES || secret[0] == '\0')
        return found;
    memcpy(given, secret, n_bytes); /* not empty, as the place of a role that nobody has is */
    for (int role = SG_ROLES - 1; role >= 0; role--) {
        if (CRYPTO_memcmp(given, security->secrets[role], sizeof given) == 0)
            found = (sg_role)role;
    }
    OPENSSL_cleanse(given, sizeof given);
    return found;
}

static FILE *open_plain(const char *key, const char *path, sg_error *err)
{
    int fd;
    const int error = sg_plain_file_open(path, O_RDONLY, &fd);
    if (error == 0) {
        FILE *file = fdopen(fd, "r");
        SG_ASSERT(file != NULL);
        return file;
    }
    if (error == EISDIR || error == ENXIO)
        (void)!sg_error_set(err, SG_NOT_FOUND, "%s: %s is not a plain file: name one", key, path);
    else
        (void)!sg_error_set(err, SG_NOT_FOUND, "%s: cannot open %s: %s", key, path, strerror(error));
    return NULL;
}

/* --- the token file --- */

typedef struct reader {
    sg_security *into;
    const char *path;
    uint32_t line;
    sg_error *err;
} reader;

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

/* Fit for a header of HTTP/2: no space and nothing that cannot be seen. */
static sg_status check_secret(const reader *in, const char *name, const char *secret)
{
    size_t length = strlen(secret);
    if (length < SG_SECRET_MIN_BYTES || length > SG_SECRET_MAX_BYTES)
        return sg_error_set(in->err, SG_CONFIG,
                            "%s:%u: the secret of %s has %zu characters, wanted %d to %d, such as the output of "
                            "'openssl rand -hex 32'",
                            in->path, in->line, name, length, SG_SECRET_MIN_BYTES, SG_SECRET_MAX_BYTES);
    for (size_t i = 0; i < length; i++) {
        if (secret[i] <= ' ' || secret[i] > '~')
            return sg_error_set(in->err, SG_CONFIG,
                                "%s:%u: the secret of %s holds a space or a character that is not ASCII: use letters "
                                "and digits",
                                in->path, in->line, name);
    }
    return SG_OK;
}

static sg_status add_secret(const reader *in, sg_role role, const char *secret)
{
    sg_status status = check_secret(in, sg_role_name(role), secret);
    if (status != SG_OK)
        return status;
    if (in->into->secrets[role][0] != '\0')
        return sg_error_set(in->err, SG_CONFIG, "%s:%u: %s is here a second time: remove one", in->path, in->line,
                            sg_role_name(role));
    sg_role other = sg_security_role_of(in->into, secret, strlen(secret));
    if (other != SG_ROLE_ANYBODY)
        return sg_error_set(in->err, SG_CONFIG, "%s:%u: %s and %s have the same secret: give each one of its own",
                            in->path, in->line, sg_role_name(other), sg_role_name(role));
    memcpy(in->into->secrets[role], secret, strlen(secret));
    return SG_OK;
}

/* A message never shows what stands in the file beyond a word before a colon: it may be a secret. */
static sg_status take_line(const reader *in, char *text)
{
    char *line = trim(text);
    if (line[0] == '\0' || line[0] == '#')
        return SG_OK;
    char *colon = strchr(line, ':');
    if (colon == NULL)
        return sg_error_set(in->err, SG_CONFIG, "%s:%u: found no 'ROLE: SECRET', such as 'worker: 9f86d081...'",
                            in->path, in->line);
    *colon = '\0';
    const char *name = trim(line);
    for (int role = 0; role < SG_ROLES; role++) {
        if (strcmp(name, names[role]) == 0)
            return add_secret(in, (sg_role)role, trim(colon + 1));
    }
    return sg_error_set(in->err, SG_CONFIG, "%s:%u: found a role that is not one of admin, worker, observer", in->path,
                        in->line);
}

static sg_status read_lines(reader *in, FILE *file)
{
    char text[LINE_BYTES];
    sg_status status = SG_OK;
    while (status == SG_OK && fgets(text, sizeof text, file) != NULL) {
        in->line++;
        if (strchr(text, '\n') == NULL && !feof(file))
            status = sg_error_set(in->err, SG_CONFIG, "%s:%u: is longer than %d characters", in->path, in->line,
                                  LINE_BYTES - 2);
        else
            status = take_line(in, text);
    }
    if (status == SG_OK && ferror(file))
        status = sg_error_set(in->err, SG_NOT_FOUND, "security.token_file: cannot read %s", in->path);
    OPENSSL_cleanse(text, sizeof text);
    return status;
}

static sg_status read_tokens(sg_security *security, const char *path, sg_error *err)
{
    FILE *file = open_plain("security.token_file", path, err);
    if (file == NULL)
        return SG_NOT_FOUND;
    setvbuf(file, NULL, _IONBF, 0); /* no secret stays in a buffer that nobody wipes */
    reader in = {.into = security, .path = path, .err = err};
    sg_status status = read_lines(&in, file);
    fclose(file);
    for (int role = 0; role < SG_ROLES; role++)
        security->has_tokens |= security->secrets[role][0] != '\0';
    if (status == SG_OK && !security->has_tokens)
        status =
            sg_error_set(err, SG_CONFIG, "%s: holds no line 'ROLE: SECRET'; roles are admin, worker, observer", path);
    return status;
}

/* --- the files of TLS --- */

static sg_status read_certificate(const char *key, const char *path, X509 **certificate, sg_error *err)
{
    FILE *file = open_plain(key, path, err);
    if (file == NULL)
        return SG_NOT_FOUND;
    *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    return *certificate != NULL ? SG_OK : sg_error_set(err, SG_CONFIG, "%s: %s holds no certificate in PEM", key, path);
}

/* Asks for no passphrase: a daemon has nobody to ask. */
static int no_passphrase(char *buffer, int n_bytes, int writes, void *user)
{
    (void)buffer, (void)n_bytes, (void)writes, (void)user;
    return 0;
}

static sg_status read_key(const char *path, EVP_PKEY **key, sg_error *err)
{
    FILE *file = open_plain("security.key", path, err);
    if (file == NULL)
        return SG_NOT_FOUND;
    *key = PEM_read_PrivateKey(file, NULL, no_passphrase, NULL);
    fclose(file);
    if (*key == NULL)
        return sg_error_set(err, SG_CONFIG, "security.key: %s holds no private key in PEM without a passphrase", path);
    return SG_OK;
}

static sg_status check_pair(const sg_security *security, const X509 *certificate, EVP_PKEY *key, sg_error *err)
{
    if (X509_check_private_key(certificate, key) != 1)
        return sg_error_set(err, SG_CONFIG, "security.key: %s is not the key of the certificate %s", security->key,
                            security->certificate);
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        return sg_error_set(err, SG_CONFIG, "security.certificate: %s has expired: make a new one",
                            security->certificate);
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
        return sg_error_set(err, SG_CONFIG, "security.certificate: %s is not valid yet: is this machine's clock right?",
                            security->certificate);
    return SG_OK;
}

/* The CA of intermediate ones may stand behind the certificate in its file. */
static STACK_OF(X509) * read_chain(const char *path)
{
    STACK_OF(X509) *chain = sk_X509_new_null();
    FILE *file = open_plain("security.certificate", path, NULL);
    X509 *next;
    while (file != NULL && (next = PEM_read_X509(file, NULL, NULL, NULL)) != NULL)
        sk_X509_push(chain, next);
    if (file != NULL)
        fclose(file);
    return chain;
}

static sg_status check_signed(const sg_security *security, X509 *certificate, sg_error *err)
{
    STACK_OF(X509) *chain = read_chain(security->certificate);
    X509_STORE *cas = X509_STORE_new();
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    const bool is_signed = X509_STORE_load_file(cas, security->ca) == 1 &&
                           X509_STORE_CTX_init(check, cas, certificate, chain) == 1 && X509_verify_cert(check) == 1;
    const char *reason = X509_verify_cert_error_string(X509_STORE_CTX_get_error(check));
    const sg_status status =
        is_signed ? SG_OK
                  : sg_error_set(err, SG_CONFIG, "security.certificate: %s is not one of the CA in %s (%s)",
                                 security->certificate, security->ca, reason);
    X509_STORE_CTX_free(check);
    X509_STORE_free(cas);
    sk_X509_pop_free(chain, X509_free);
    return status;
}

/* gRPC would say nothing of a file that it cannot use, and every connection would fail. */
static sg_status check_files(const sg_security *security, sg_error *err)
{
    X509 *ca = NULL, *certificate = NULL;
    EVP_PKEY *key = NULL;
    sg_status status = read_certificate("security.ca", security->ca, &ca, err);
    if (status == SG_OK)
        status = read_certificate("security.certificate", security->certificate, &certificate, err);
    if (status == SG_OK)
        status = read_key(security->key, &key, err);
    if (status == SG_OK)
        status = check_pair(security, certificate, key, err);
    if (status == SG_OK)
        status = check_signed(security, certificate, err);
    X509_free(ca);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return status;
}

/* --- all of it --- */

/* The first of the files with secrets that everybody on this machine can read. */
static void look_for_open_files(sg_security *security, const sg_config *config)
{
    const char *const files[][2] = {{"security.token_file", config->security.token_file},
                                    {"security.key", config->security.key}};
    struct stat found;
    for (size_t i = 0; i < SG_ARRAY_LEN(files) && security->warning == NULL; i++) {
        if (files[i][1][0] != '\0' && stat(files[i][1], &found) == 0 && (found.st_mode & S_IRWXO) != 0)
            security->warning = sg_xprintf("%s: %s is open to everybody on this machine (mode %04o): chmod 600 %s",
                                           files[i][0], files[i][1], (unsigned)(found.st_mode & 07777), files[i][1]);
    }
}

static void choose_own(sg_security *security, sg_role role)
{
    int chosen = (int)role < SG_ROLES ? (int)role : SG_ROLES - 1;
    while (chosen >= 0 && security->secrets[chosen][0] == '\0')
        chosen--;
    for (int i = (int)role + 1; chosen < 0 && i < SG_ROLES; i++)
        chosen = security->secrets[i][0] != '\0' ? i : -1;
    if (chosen >= 0)
        memcpy(security->own, security->secrets[chosen], sizeof security->own);
}

static char *file_name(const char *text)
{
    return text[0] != '\0' ? sg_xstrdup(text) : NULL;
}

sg_status sg_security_create(const sg_config *config, sg_role role, sg_security **security, sg_error *err)
{
    sg_security *made = sg_xcalloc(1, sizeof *made);
    made->insecure = config->security.insecure;
    made->ca = file_name(config->security.ca);
    made->certificate = file_name(config->security.certificate);
    made->key = file_name(config->security.key);
    sg_status status = made->ca != NULL ? check_files(made, err) : SG_OK;
    if (status == SG_OK && config->security.token_file[0] != '\0')
        status = read_tokens(made, config->security.token_file, err);
    choose_own(made, role);
    look_for_open_files(made, config);
    if (status == SG_OK)
        *security = made;
    else
        sg_security_destroy(made);
    return status;
}

void sg_security_destroy(sg_security *security)
{
    if (security == NULL)
        return;
    free(security->ca);
    free(security->certificate);
    free(security->key);
    free(security->warning);
    OPENSSL_cleanse(security, sizeof *security);
    free(security);
}
