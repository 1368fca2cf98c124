/* N workers with batch b equal one worker with batch N * b, up to rounding. On Fashion-MNIST where it is installed (a
 * plain build), for 20 and for 500 steps; the 469th is the short batch at the end of the first epoch.
 *
 * Rounding alone keeps the difference near 1e-6. But where an input of a relu comes within rounding of 0, its gradient
 * is passed on one side and not on the other; from then on the two trainings part, as they do in one process when an
 * initial value is moved by 1e-7. The more units and steps, the sooner: the perceptron of configs/fashion-mnist.yaml
 * (512, 512) does it after some 85 steps, so that it is compared for 20 only, and 500 steps with a narrow one. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/folder.h"
#include "tests/train/cluster.h"

#define N_STEPS      500u
#define EARLY_STEPS  20u
#define MAX_CLUSTERS 4u
#define FOLDER       "/usr/share/datasets/fashion-mnist"

TestSuite(equivalence, .timeout = 900);

typedef struct setting {
    char folder[64], path[96], run_dir[96];
    const char *hidden, *update;
    double early_bound; /* of the difference after EARLY_STEPS */
} setting;

/* Without a hidden layer nothing amplifies rounding, at a high rate and on every processor. With one, an input of some
 * relu comes within rounding of 0 and flips, with so many units now and then within 20 steps; at a high rate trainings
 * then part, as they do in one process when an initial value is moved by its last bit. At a low rate a flip stays
 * small: about 1e-3 of the short way of 20 steps, and no more after 500. */
static const setting linear = {.hidden = "[]", .update = "rule: momentum, learning_rate: 0.02", .early_bound = 1e-5};
static const setting quickstart = {
    .hidden = "[512, 512]", .update = "rule: sgd, learning_rate: 0.002", .early_bound = 1e-2};

static bool is_slow_build(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static void setting_init(setting *s)
{
    strcpy(s->folder, "/tmp/sg-equivalence-XXXXXX");
    cr_assert_not_null(mkdtemp(s->folder));
    snprintf(s->path, sizeof(s->path), "%s/cluster.yaml", s->folder);
    snprintf(s->run_dir, sizeof(s->run_dir), "%s/run", s->folder);
    char *text = sg_xprintf("update: {%s}\ntrain: {steps: %u}\nmodel: {hidden: %s}\n"
                            "data: {train_images: " FOLDER "/train-images-idx3-ubyte.gz, "
                            "train_labels: " FOLDER "/train-labels-idx1-ubyte.gz, "
                            "test_images: " FOLDER "/t10k-images-idx3-ubyte.gz, "
                            "test_labels: " FOLDER "/t10k-labels-idx1-ubyte.gz}\n",
                            s->update, N_STEPS, s->hidden);
    cr_assert_eq(sg_folder_write(s->path, text, strlen(text), NULL), SG_OK);
    free(text);
}

static void setting_deinit(setting *s)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -r %s", s->folder);
    cr_assert_eq(system(command), 0);
}

static void train(const setting *s, uint32_t n_workers, const char *batch, const char *slice_bytes, cluster_result *out)
{
    char set_batch[64], set_slice[64];
    snprintf(set_batch, sizeof(set_batch), "train.batch=%s", batch);
    snprintf(set_slice, sizeof(set_slice), "slice_bytes=%s", slice_bytes);
    cluster_spec spec = {.config_path = s->path,
                         .set = (const char *const[]){set_batch, set_slice, NULL},
                         .run_dir = s->run_dir,
                         .n_ps = n_workers == 1 ? 1 : 2,
                         .n_workers = n_workers,
                         .early_steps = EARLY_STEPS};
    cluster_train(&spec, out);
}

/* norm(a - b) / norm(b - start) */
static double distance(const float *a, const float *b, const float *start, size_t n)
{
    double difference = 0, way = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        way += ((double)b[i] - start[i]) * ((double)b[i] - start[i]);
    }
    return sqrt(difference) / sqrt(way);
}

static void compare(double early_bound, const cluster_result *many, const cluster_result *one, const char *what)
{
    double worst_early = 0, worst_end = 0;
    for (size_t i = 0; i < one->start->n_variables; i++) {
        const sg_variable *v = &one->start->variables[i];
        size_t n = sg_workload_n_elems(v);
        double early = distance(many->early[i], one->early[i], v->value, n);
        double end = distance(many->model->variables[i].value, one->model->variables[i].value, v->value, n);
        worst_early = fmax(worst_early, early);
        worst_end = fmax(worst_end, end);
        cr_assert(early <= early_bound, "%s: %s differs by %g after %u steps", what, v->name, early, EARLY_STEPS);
        cr_assert(end <= 1e-2, "%s: %s differs by %g after %u steps", what, v->name, end, N_STEPS);
    }
    for (size_t step = 0; step < N_STEPS; step++)
        cr_assert_eq(many->examples[step], one->examples[step], "%s: examples of step %zu", what, step);
    fprintf(stderr, "%s: %.1e after %u steps, %.1e after %u\n", what, worst_early, EARLY_STEPS, worst_end, N_STEPS);
}

/* Compares clusters of so many workers (0-terminated) with one worker, all with this global batch; many: [MAX_CLUSTERS]
 * what they came to. */
static void check_slices(const setting *s, const char *batch, const uint32_t *n_workers, const char *slice_bytes,
                         cluster_result *many)
{
    cluster_result one;
    train(s, 1, batch, slice_bytes, &one);
    for (size_t i = 0; n_workers[i] != 0; i++) {
        char what[96];
        snprintf(what, sizeof(what), "hidden %s, %u workers, batch %s, slices of %s", s->hidden, n_workers[i], batch,
                 slice_bytes);
        train(s, n_workers[i], batch, slice_bytes, &many[i]);
        compare(s->early_bound, &many[i], &one, what);
    }
    cluster_result_deinit(&one);
}

static void check_same_bits(const cluster_result *a, const cluster_result *b, uint32_t n_workers)
{
    for (size_t i = 0; i < a->start->n_variables; i++) {
        const sg_variable *v = &a->model->variables[i];
        cr_assert_eq(memcmp(v->value, b->model->variables[i].value, sg_workload_n_elems(v) * sizeof(float)), 0,
                     "%s of %u workers depends on slice_bytes", v->name, n_workers);
    }
}

/* slices: NULL-terminated values of slice_bytes, which change no bit. */
static void check_batch(const setting *how, const char *batch, const uint32_t *n_workers, const char *const *slices)
{
    if (is_slow_build() || access(FOLDER, R_OK) != 0)
        cr_skip_test("needs Fashion-MNIST and a build without a sanitizer");
    cluster_result first[MAX_CLUSTERS], others[MAX_CLUSTERS];
    setting s = *how;
    setting_init(&s);
    check_slices(&s, batch, n_workers, slices[0], first);
    for (size_t k = 1; slices[k] != NULL; k++) {
        check_slices(&s, batch, n_workers, slices[k], others);
        for (size_t i = 0; n_workers[i] != 0; i++) {
            check_same_bits(&first[i], &others[i], n_workers[i]);
            cluster_result_deinit(&others[i]);
        }
    }
    for (size_t i = 0; n_workers[i] != 0; i++)
        cluster_result_deinit(&first[i]);
    setting_deinit(&s);
}

static const char *const small_and_large[] = {"4096", "1MiB", NULL}, *const large[] = {"1MiB", NULL},
                         *const small[] = {"4096", NULL};

Test(equivalence, two_times_64_and_four_times_32_equal_128)
{
    check_batch(&linear, "128", (const uint32_t[]){2, 4, 0}, small_and_large);
}

Test(equivalence, three_times_43_equals_129)
{
    check_batch(&linear, "129", (const uint32_t[]){3, 0}, small_and_large);
}

Test(equivalence, the_model_of_the_quick_start_is_equal_too)
{
    check_batch(&quickstart, "128", (const uint32_t[]){2, 4, 0}, large);
    check_batch(&quickstart, "129", (const uint32_t[]){3, 0}, small);
}
