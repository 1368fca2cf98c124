#include "tests/train/fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/folder.h"
#include "worker/train/backend.h"

#define SIDE 6

static void write_file(const job *j, const char *name, const void *data, size_t n_bytes)
{
    char *path = sg_xprintf("%s/%s", j->folder, name);
    cr_assert_eq(sg_folder_write(path, data, n_bytes, NULL), SG_OK);
    free(path);
}

/* A pixel is bright where the class says so, so that a model can learn it. */
static void write_examples(const job *j, const char *kind, uint8_t n_examples)
{
    uint8_t labels[8 + 255] = {0, 0, 8, 1, 0, 0, 0, n_examples};
    uint8_t *images = sg_xcalloc(16 + (size_t)n_examples * SIDE * SIDE, 1);
    memcpy(images, (uint8_t[]){0, 0, 8, 3, 0, 0, 0, n_examples, 0, 0, 0, SIDE, 0, 0, 0, SIDE}, 16);
    uint32_t random = n_examples;
    for (size_t i = 0; i < n_examples; i++) {
        random = random * 1664525u + 1013904223u;
        uint8_t label = labels[8 + i] = (uint8_t)((random >> 16) % 10);
        for (size_t p = 0; p < SIDE * SIDE; p++) {
            random = random * 1664525u + 1013904223u;
            images[16 + i * SIDE * SIDE + p] = (uint8_t)((random >> 24) / 2 + (p % 10 == label ? 128 : 0));
        }
    }
    char name[32];
    snprintf(name, sizeof(name), "%s-images", kind);
    write_file(j, name, images, 16 + (size_t)n_examples * SIDE * SIDE);
    snprintf(name, sizeof(name), "%s-labels", kind);
    write_file(j, name, labels, 8 + (size_t)n_examples);
    free(images);
}

void job_init(job *j, const char *extra, const char *const *sets)
{
    strcpy(j->folder, "/tmp/sg-train-XXXXXX");
    cr_assert_not_null(mkdtemp(j->folder));
    snprintf(j->path, sizeof(j->path), "%s/cluster.yaml", j->folder);
    write_examples(j, "train", 100);
    write_examples(j, "test", 50);
    char *text = sg_xprintf("run_dir: %s/run\nworkers: 1\ntrain: {batch: 32, epochs: 5}\nmodel: {hidden: [8]}\n"
                            "data: {train_images: %s/train-images, train_labels: %s/train-labels, "
                            "test_images: %s/test-images, test_labels: %s/test-labels}\n%s",
                            j->folder, j->folder, j->folder, j->folder, j->folder, extra);
    cr_assert_eq(sg_folder_write(j->path, text, strlen(text), NULL), SG_OK);
    free(text);

    sg_config_override overrides[16];
    char keys[16][64];
    size_t n = 0;
    for (; sets != NULL && sets[n] != NULL; n++) {
        size_t n_key = strcspn(sets[n], "=");
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)n_key, sets[n]);
        overrides[n] = (sg_config_override){.key = keys[n], .value = sets[n] + n_key + 1, .source = sets[n]};
    }
    sg_error err = {0};
    cr_assert_eq(sg_config_load(j->path, overrides, n, &j->config, &err), SG_OK, "%s", err.message);
}

void job_deinit(job *j)
{
    sg_config_destroy(j->config);
    char command[96];
    snprintf(command, sizeof(command), "rm -r %s", j->folder);
    cr_assert_eq(system(command), 0);
}

sg_workload *job_workload(const job *j)
{
    sg_workload *w;
    sg_error err = {0};
    cr_assert_eq(sg_workload_create(j->config, true, &w, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_backend_choose(w, 0, &err), SG_OK, "%s", err.message);
    return w;
}
