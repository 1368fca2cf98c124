/* tests/common/test_security.c - the section `security` of a cluster file: token files, and which rules keys obey. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/security.h"
#include "config_fixture.h"

TestSuite(security, .timeout = 20);

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/sg-security-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static sg_status load(const char *tokens, sg_role role, sg_security **security, sg_error *err)
{
    char *path = sg_xprintf("%s/tokens", folder);
    char *text = sg_xprintf("security: {token_file: %s}\n", path);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(tokens, file);
    fclose(file);
    sg_config *config = config_parsed(text);
    *err = (sg_error){0};
    sg_status status = sg_security_create(config, role, security, err);
    sg_config_destroy(config);
    free(text);
    free(path);
    return status;
}

#define A "admin-secret-of-20-b"
#define W "worker-secret-of-21-b"
#define O "observer-secret-of-23-b"

static sg_role role_of(const sg_security *security, const char *secret)
{
    return sg_security_role_of(security, secret, strlen(secret));
}

Test(security, a_secret_gives_its_role_and_nothing_like_it_does, .init = make_folder, .fini = remove_folder)
{
    sg_security *security;
    sg_error err;
    cr_assert_eq(
        load("# of the job\n\n  admin :  " A "  \nworker: " W "\r\nobserver: " O, SG_ROLE_ADMIN, &security, &err),
        SG_OK, "%s", err.message);
    cr_assert_eq(role_of(security, A), SG_ROLE_ADMIN);
    cr_assert_eq(role_of(security, W), SG_ROLE_WORKER);
    cr_assert_eq(role_of(security, O), SG_ROLE_OBSERVER);
    static const char *const wrong[] = {"", "worker-secret-of-21-bx", "Worker-secret-of-21-b", "worker-secret-of-21-",
                                        "x-worker-secret-of-21-b"};
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++)
        cr_assert_eq(role_of(security, wrong[i]), SG_ROLE_ANYBODY, "%s", wrong[i]);
    char zeroes[SG_SECRET_MAX_BYTES + 2] = "";
    memcpy(zeroes, W, strlen(W));
    cr_assert_eq(sg_security_role_of(security, zeroes, sizeof zeroes), SG_ROLE_ANYBODY, "too long");
    cr_assert_eq(sg_security_role_of(security, zeroes + 100, 20), SG_ROLE_ANYBODY, "nothing is no secret");
    sg_security_destroy(security);
}

Test(security, an_absent_role_is_nobody_s, .init = make_folder, .fini = remove_folder)
{
    sg_security *security;
    sg_error err;
    char zeroes[SG_SECRET_MAX_BYTES] = "";
    cr_assert_eq(load("worker: " W "\n", SG_ROLE_WORKER, &security, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_security_role_of(security, zeroes, sizeof zeroes), SG_ROLE_ANYBODY);
    cr_assert_eq(sg_security_role_of(security, zeroes, 1), SG_ROLE_ANYBODY);
    sg_security_destroy(security);
}

Test(security, a_process_calls_as_the_weakest_role_that_suffices, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        const char *tokens;
        sg_role role;
        const char *own;
    } rows[] = {
        {"admin: " A "\nworker: " W "\nobserver: " O, SG_ROLE_ADMIN, A},
        {"admin: " A "\nworker: " W "\nobserver: " O, SG_ROLE_WORKER, W},
        {"admin: " A "\nworker: " W "\nobserver: " O, SG_ROLE_OBSERVER, O},
        {"admin: " A "\nobserver: " O, SG_ROLE_WORKER, A},
        {"admin: " A "\nworker: " W, SG_ROLE_OBSERVER, W},
        {"observer: " O, SG_ROLE_WORKER, O}, /* which the peer will refuse, saying why */
        {"observer: " O "\nworker: " W, SG_ROLE_ADMIN, W},
        {"worker: " W, SG_ROLE_ANYBODY, W},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        sg_security *security;
        sg_error err;
        cr_assert_eq(load(rows[i].tokens, rows[i].role, &security, &err), SG_OK, "%s", err.message);
        cr_assert_str_eq(security->own, rows[i].own, "row %zu", i);
        sg_security_destroy(security);
    }
}

Test(security, a_token_file_that_is_wrong_is_refused_by_its_line_and_no_secret_is_shown, .init = make_folder,
     .fini = remove_folder)
{
    static const struct {
        const char *tokens, *message;
    } rows[] = {
        {"", "holds no line 'ROLE: SECRET'"},
        {"# worker: " W "\n", "holds no line 'ROLE: SECRET'"},
        {"\n" W "\n", ":2: found no 'ROLE: SECRET'"},
        {"boss: " W "\n", ":1: found a role that is not one of admin, worker, observer"},
        {"worker: " W "\nworker: " A "\n", ":2: worker is here a second time"},
        {"worker: " W "\nadmin: " W "\n", ":2: worker and admin have the same secret"},
        {"worker: 123456789012345\n", ":1: the secret of worker has 15 characters, wanted 16 to 255"},
        {"worker:\n", ":1: the secret of worker has 0 characters"},
        {"worker: 1234567890 123456789\n", ":1: the secret of worker holds a space"},
        {"worker: 1234567890\xc3\xa9"
         "123456789\n",
         ":1: the secret of worker holds a space or a character that is not"},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        sg_security *security;
        sg_error err;
        cr_assert_eq(load(rows[i].tokens, SG_ROLE_WORKER, &security, &err), SG_CONFIG, "row %zu", i);
        cr_assert_not_null(strstr(err.message, rows[i].message), "row %zu: %s", i, err.message);
        cr_assert_null(strstr(err.message, "secret-of"), "%s", err.message);
    }
    char *line = sg_xcalloc(1 << 20, 1), *text;
    memset(line, 'x', (1 << 20) - 1);
    text = sg_xprintf("worker: %s\n", line);
    sg_security *security;
    sg_error err;
    cr_assert_eq(load(text, SG_ROLE_WORKER, &security, &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, ":1: is longer than 510 characters"), "%s", err.message);
    free(text);
    free(line);
}

Test(security, files_that_are_missing_or_no_certificates_are_named, .init = make_folder, .fini = remove_folder)
{
    sg_security *security;
    sg_error err;
    sg_config *config = config_parsed("security: {token_file: /no/such/file}\n");
    cr_assert_eq(sg_security_create(config, SG_ROLE_WORKER, &security, &err), SG_NOT_FOUND);
    cr_assert_str_eq(err.message, "security.token_file: cannot open /no/such/file: No such file or directory");
    sg_config_destroy(config);
    config = config_parsed("security: {ca: /no/ca.pem, certificate: b.pem, key: c.key}\n");
    cr_assert_eq(sg_security_create(config, SG_ROLE_WORKER, &security, &err), SG_NOT_FOUND);
    cr_assert_str_eq(err.message, "security.ca: cannot open /no/ca.pem: No such file or directory");
    sg_config_destroy(config);
    config = config_parsed("security: {ca: README.md, certificate: b.pem, key: c.key}\n");
    cr_assert_eq(sg_security_create(config, SG_ROLE_WORKER, &security, &err), SG_CONFIG);
    cr_assert_str_eq(err.message, "security.ca: README.md holds no certificate in PEM");
    sg_config_destroy(config);
}

/* Each of the four, with the others as they should be up to it. */
Test(security, a_file_whose_open_would_wait_is_refused_at_once, .init = make_folder, .fini = remove_folder,
     .timeout = 20)
{
    static const struct {
        const char *key, *ca, *certificate, *private;
    } rows[] = {{"security.ca", "fifo", "ps-0.pem", "ps-0.key"},
                {"security.certificate", "ca.pem", "fifo", "ps-0.key"},
                {"security.key", "ca.pem", "ps-0.pem", "fifo"},
                {"security.token_file", NULL, NULL, NULL}};
    char *command = sg_xprintf("scripts/make-certs %s/c ps-0 >/dev/null 2>&1 && mkfifo %s/c/fifo", folder, folder);
    cr_assert_eq(system(command), 0);
    free(command);
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        char *text = rows[i].ca == NULL
                         ? sg_xprintf("security: {token_file: %s/c/fifo}\n", folder)
                         : sg_xprintf("security: {ca: %s/c/%s, certificate: %s/c/%s, key: %s/c/%s}\n", folder,
                                      rows[i].ca, folder, rows[i].certificate, folder, rows[i].private);
        char *wanted = sg_xprintf("%s: %s/c/fifo is not a plain file: name one", rows[i].key, folder);
        sg_config *config = config_parsed(text);
        sg_security *security;
        sg_error err;
        cr_assert_eq(sg_security_create(config, SG_ROLE_WORKER, &security, &err), SG_NOT_FOUND);
        cr_assert_str_eq(err.message, wanted);
        sg_config_destroy(config);
        free(wanted);
        free(text);
    }
}

static sg_status check_certificates(const char *certificate, const char *key, sg_error *err)
{
    char *text = sg_xprintf("security: {ca: %s/c/ca.pem, certificate: %s/c/%s, key: %s/c/%s}\n", folder, folder,
                            certificate, folder, key);
    sg_config *config = config_parsed(text);
    sg_security *security;
    sg_status status = sg_security_create(config, SG_ROLE_WORKER, &security, err);
    if (status == SG_OK)
        sg_security_destroy(security);
    sg_config_destroy(config);
    free(text);
    return status;
}

Test(security, a_key_of_another_certificate_and_one_that_has_expired_are_found_at_the_start, .init = make_folder,
     .fini = remove_folder)
{
    sg_error err = {0};
    char *command =
        sg_xprintf("scripts/make-certs %s/c good 10.0.0.7 && DAYS=-1 scripts/make-certs %s/c old", folder, folder);
    cr_assert_eq(system(command), 0);
    free(command);
    cr_assert_eq(check_certificates("good.pem", "good.key", &err), SG_OK, "%s", err.message);
    cr_assert_eq(check_certificates("10.0.0.7.pem", "10.0.0.7.key", &err), SG_OK, "%s", err.message);
    cr_assert_eq(check_certificates("good.pem", "old.key", &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "old.key is not the key of the certificate"), "%s", err.message);
    cr_assert_eq(check_certificates("good.pem", "good.pem", &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "good.pem holds no private key in PEM"), "%s", err.message);
    cr_assert_eq(check_certificates("old.pem", "old.key", &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "old.pem has expired: make a new one"), "%s", err.message);
}

static void run_in_folder(const char *command)
{
    char *line = sg_xprintf("D=%s; set -e; %s", folder, command);
    cr_assert_eq(system(line), 0, "%s", line);
    free(line);
}

Test(security, a_certificate_of_another_ca_and_one_that_is_not_valid_yet_are_found_at_the_start, .init = make_folder,
     .fini = remove_folder)
{
    sg_error err = {0};
    run_in_folder("scripts/make-certs $D/c good && scripts/make-certs $D/other good && "
                  "cp $D/other/good.pem $D/c/stranger.pem && cp $D/other/good.key $D/c/stranger.key");
    cr_assert_eq(check_certificates("stranger.pem", "stranger.key", &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "stranger.pem is not one of the CA in"), "%s", err.message);
    run_in_folder("cat $D/c/ca.pem $D/other/ca.pem > $D/both && cp $D/both $D/c/ca.pem");
    cr_assert_eq(check_certificates("stranger.pem", "stranger.key", &err), SG_OK, "while CAs are replaced: %s",
                 err.message);
    cr_assert_eq(check_certificates("good.pem", "good.key", &err), SG_OK, "%s", err.message);
    run_in_folder(
        "cd $D/c && openssl req -new -key good.key -subj /CN=soon -out soon.csr 2>/dev/null && "
        "mkdir -p ca && touch ca/index && openssl ca -batch -notext -create_serial -startdate 20770101000000Z "
        "-enddate 20780101000000Z -in soon.csr -out soon.pem -config /dev/stdin 2>/dev/null <<'END'\n"
        "[ca]\ndefault_ca = d\n[d]\ndatabase = ca/index\nserial = ca/serial\nnew_certs_dir = ca\n"
        "certificate = ../other/ca.pem\nprivate_key = ../other/ca.key\ndefault_md = sha256\npolicy = p\n"
        "[p]\ncommonName = supplied\nEND\n");
    cr_assert_eq(check_certificates("soon.pem", "good.key", &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "soon.pem is not valid yet: is this machine's clock right?"), "%s",
                       err.message);
}

Test(security, a_file_with_secrets_that_everybody_can_read_is_warned_of, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        unsigned mode;
        bool is_open;
    } rows[] = {{0600, false}, {0400, false}, {0640, false}, {0644, true}, {0604, true}};
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        char *text = sg_xprintf("security: {token_file: %s/tokens}\n", folder);
        char *command =
            sg_xprintf("echo worker: " W " > %s/tokens && chmod %o %s/tokens", folder, rows[i].mode, folder);
        cr_assert_eq(system(command), 0);
        sg_config *config = config_parsed(text);
        sg_security *security;
        sg_error err;
        cr_assert_eq(sg_security_create(config, SG_ROLE_WORKER, &security, &err), SG_OK, "%s", err.message);
        cr_assert_eq(security->warning != NULL, rows[i].is_open, "mode %o", rows[i].mode);
        if (rows[i].is_open) {
            char *want = sg_xprintf("security.token_file: %s/tokens is open to everybody on this machine (mode %04o): "
                                    "chmod 600 %s/tokens",
                                    folder, rows[i].mode, folder);
            cr_assert_str_eq(security->warning, want);
            free(want);
        }
        sg_security_destroy(security);
        sg_config_destroy(config);
        free(command);
        free(text);
        run_in_folder("rm -f $D/tokens");
    }
}
