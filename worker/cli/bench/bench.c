/* worker/cli/bench/bench.c - `shardgrad bench`: its options, its folder, and how it ends. */
#include "worker/cli/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/cli/arguments.h"
#include "worker/cli/bench/process.h"
#include "worker/cli/bench/report.h"
#include "worker/cli/bench/settings.h"
#include "worker/cli/commands.h"
#include "worker/cli/program.h"
#include "worker/train/interruptible.h"

#define MISSED_EXIT_CODE 1 /* with --check: everything was measured, and a floor was missed */

typedef struct bench_options {
    sg_bench_words words;
    const char *json;
    bool check;
} bench_options;

/* --- its folder ----------------------------------------------------------------------------------------------- */

/* Freed by free(); NULL, with err, where it cannot be made. */
static char *make_folder(sg_error *err)
{
    const char *where = getenv("TMPDIR");
    char *path = sg_xprintf("%s/shardgrad-bench-XXXXXX", where != NULL && where[0] != '\0' ? where : "/tmp");
    if (mkdtemp(path) != NULL)
        return path;
    (void)!sg_error_set(err, SG_NOT_FOUND, "cannot make the folder %s: set TMPDIR", path);
    free(path);
    return NULL;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

/* --- its file ------------------------------------------------------------------------------------------------- */

typedef struct json_file {
    const char *path; /* NULL: none was asked for */
    int fd;
    bool made; /* it was not there before */
} json_file;

/* Before anything is measured; what is in the file stays until there is something to put in its place. */
static sg_status json_open(json_file *f, const char *path, sg_error *err)
{
    *f = (json_file){.path = path, .fd = -1};
    if (path == NULL)
        return SG_OK;
    f->made = access(path, F_OK) != 0;
    f->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd >= 0)
        return SG_OK;
    return sg_error_set(err, SG_NOT_FOUND, "--json: cannot write %s: %s", path,
                        errno == ENOENT ? "its folder does not exist: make it first" : strerror(errno));
}

static sg_status json_write(const json_file *f, const sg_bench *b, sg_error *err)
{
    if (f->path == NULL)
        return SG_OK;
    char *text = sg_bench_report_json(b->settings, b->results);
    size_t n_bytes = strlen(text), at = 0;
    (void)!ftruncate(f->fd, 0); /* a pipe has no length */
    while (at < n_bytes) {
        ssize_t n = write(f->fd, text + at, n_bytes - at);
        if (n < 0 && errno != EINTR)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    free(text);
    return at == n_bytes ? SG_OK
                         : sg_error_set(err, SG_NOT_FOUND, "--json: cannot write %s: %s", f->path, strerror(errno));
}

static void json_close(const json_file *f, bool written)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->fd >= 0 && f->made && !written)
        unlink(f->path);
}

/* --- the run -------------------------------------------------------------------------------------------------- */

static sg_status work(void *user, sg_error *err)
{
    return sg_bench_run(user, err);
}

static void stop(void *user)
{
    sg_bench_stop(user);
}

/* Runs it all in a folder that stays only if something failed. Returns the exit code; *finished: there are results. */
static int run(sg_bench *b, bool *finished, sg_error *err)
{
    int signal_number = 0;
    char *folder = make_folder(err);
    if (folder == NULL)
        return sg_arguments_fail(err->code, err);
    b->folder = folder;
    sg_status status =
        sg_interruptible_run(&(sg_interruptible){.work = work, .stop = stop, .user = b}, &signal_number, err);
    int code = sg_interruptible_exit_code(status, signal_number);
    if (status != SG_OK && signal_number == 0) {
        fprintf(stderr, "shardgrad: %s (logs: %s)\n", err->message, folder);
        code = b->exit_code != 0 ? b->exit_code : code;
    } else
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
    *finished = status == SG_OK;
    return code;
}

static int conclude(const bench_options *options, const json_file *json, const sg_bench *b, sg_error *err)
{
    sg_bench_report_print(b->settings, b->results, stdout);
    sg_status status = json_write(json, b, err);
    if (status != SG_OK)
        return sg_arguments_fail(status, err);
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    size_t n = sg_bench_floors_list(b->settings, b->results, floors);
    if (!options->check)
        return 0;
    if (n != sg_bench_floors_expected(b->settings))
        return sg_arguments_fail(sg_error_set(err, SG_INTERNAL, "--check: %zu of %zu floors could be measured", n,
                                              sg_bench_floors_expected(b->settings)),
                                 err);
    for (size_t i = 0; i < n; i++)
        if (!sg_bench_floors_is_met(&floors[i]))
            return MISSED_EXIT_CODE;
    return 0;
}

static int run_and_conclude(const bench_options *options, sg_bench *b, sg_error *err)
{
    sg_bench_results results = {0};
    b->results = &results;
    atomic_init(&b->stopped, false);
    pthread_mutex_init(&b->mutex, NULL);
    bool finished = false;
    json_file json;
    sg_status status = json_open(&json, options->json, err);
    int code = status == SG_OK ? run(b, &finished, err) : sg_arguments_fail(status, err);
    if (finished)
        code = conclude(options, &json, b, err);
    json_close(&json, finished);
    pthread_mutex_destroy(&b->mutex);
    sg_bench_results_deinit(&results);
    return code;
}

/* --- the command line ----------------------------------------------------------------------------------------- */

static sg_status check_arguments(const sg_arguments *a, sg_error *err)
{
    if (a->flags.path != NULL)
        return sg_error_set(err, SG_USAGE, "found '%s': bench takes no cluster file, it makes its own; see --help",
                            a->flags.path);
    for (size_t i = 0; i < a->flags.n_overrides; i++)
        if (strcmp(a->flags.overrides[i].key, "run_dir") == 0)
            return sg_error_set(err, SG_USAGE, "%s: bench has folders of its own, under TMPDIR",
                                a->flags.overrides[i].source);
    return sg_bench_settings_check_config(a->config, err);
}

/* Everything that can be known to be wrong before anything is started. */
static sg_status prepare(const sg_arguments *a, const bench_options *options, bool has_yardstick,
                         sg_bench_settings *settings, sg_error *err)
{
    sg_status status = check_arguments(a, err);
    if (status == SG_OK)
        status = sg_bench_settings_init(settings, &options->words, err);
    bool left_out = false;
    if (status == SG_OK)
        status = sg_bench_settings_fit_stages(settings, a->config, &left_out, err);
    if (status == SG_OK)
        status =
            sg_bench_settings_check_memory(settings, a->config, has_yardstick, sg_bench_process_available_bytes(), err);
    if (status == SG_OK && options->check)
        status = sg_bench_floors_check(settings, a->config->ps.n, a->config->workers, has_yardstick, err);
    if (status == SG_OK && left_out)
        sg_bench_say("the stage scale is left out: it compares more ps and workers with 1 and 1");
    return status;
}

static int run_arguments(const sg_arguments *a, const bench_options *options, sg_error *err)
{
    sg_bench_settings settings;
    char *yardstick = sg_program_beside("shardgrad-yardstick");
    sg_status status = prepare(a, options, yardstick != NULL, &settings, err);
    sg_bench b = {
        .settings = &settings,
        .flags = &a->flags,
        .config = a->config,
        .yardstick_program = yardstick,
    };
    int code = status == SG_OK ? run_and_conclude(options, &b, err) : sg_arguments_fail(status, err);
    free(yardstick);
    return code;
}

/* One worker unless the user says otherwise: what he says comes later and so counts. */
static char **with_defaults(int argc, char **argv, int *n)
{
    static const char *const defaults[] = {"--set", "workers=1", "--set", "job=bench"};
    char **all = sg_xcalloc((size_t)argc + SG_ARRAY_LEN(defaults) + 1, sizeof(*all));
    *n = 0;
    all[(*n)++] = argv[0];
    for (size_t i = 0; i < SG_ARRAY_LEN(defaults); i++)
        all[(*n)++] = (char *)(uintptr_t)defaults[i];
    for (int i = 1; i < argc; i++)
        all[(*n)++] = argv[i];
    return all;
}

int sg_bench_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], SG_BENCH_AS_WORKER) == 0)
        return sg_bench_worker_main(argc, argv);
    bench_options o = {0};
    const sg_arguments_option options[] = {
        {"--bytes", "N", "size of the model, such as 128MiB (the default), in variables of 16 MiB", NULL,
         &o.words.bytes},
        {"--variables", "N", "instead of --bytes: so many variables ...", NULL, &o.words.variables},
        {"--variable-bytes", "N", "... of so many bytes each", NULL, &o.words.variable_bytes},
        {"--repetitions", "N", "of push, pull and push_pull; 20", NULL, &o.words.repetitions},
        {"--only", "LIST", "some of machine,ops,small,many,memory,scale; default: all", NULL, &o.words.only},
        {"--json", "FILE", "write all figures there, too", NULL, &o.json},
        {"--check", "", "end with 1 if a floor is missed; with an error if one cannot be measured", &o.check, NULL},
        {"--quick", "", "less than a second: shows that it works, not how fast; see above", &o.words.quick, NULL},
    };
    sg_arguments_command command = {
        .usage = "shardgrad bench [--ps P] [--workers W] [--bytes N] [options]",
        .summary = "Measures push, pull and push_pull on a local cluster (1 ps and 1 worker by default), and in the\n"
                   "same run what the machine and gRPC alone can do; checks every value that is pulled. Prints a\n"
                   "table: tests/bench/README.md explains it. Ends with 0; 70 if a value is wrong; with --check, 1\n"
                   "if a floor is missed. Takes about a minute; keep the machine quiet.\n"
                   "--quick is for trying it out: a model of 2 MiB, few repetitions, 200 small variables instead of\n"
                   "10,000, arrays that caches hold instead of memory, and the yardstick with one setting instead of\n"
                   "its best. No verdicts, and no ratios that would mean nothing of so little.",
        .flags_help = "  --ps N                   so many ps on this machine, each at a free port; 1\n"
                      "  --workers N              so many workers; 1\n"
                      "  --log-level LEVEL        of the log files, which are kept if something fails\n"
                      "  --set KEY=VALUE          set a key of the cluster, such as rpc_threads=2 or connections=1\n",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
    };
    sg_error err;
    sg_arguments a;
    int n;
    char **all = with_defaults(argc, argv, &n);
    sg_status status = sg_arguments_init(&a, &command, n, all, &err);
    int code;
    if (status != SG_OK)
        code = sg_arguments_fail(status, &err);
    else
        code = a.help ? 0 : run_arguments(&a, &o, &err);
    sg_arguments_deinit(&a);
    free(all);
    return code;
}
