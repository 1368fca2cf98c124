#include "worker/cli/checkpoints.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/safetensors.h"
#include "tests/support/paper_disk.h"
#include "worker/train/workload.h"

static char dir[64], *file;
static sg_checkpoint *folder;
static sg_config *config;

static void prepare(void)
{
    static const char text[] = "job: x\nseed: 3\nslice_bytes: 64\nupdate: {rule: adam, momentum: 0.5}\n";
    sg_error err = {0};
    strcpy(dir, "/tmp/sg-checkpoints-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    file = sg_xprintf("%s/model.safetensors", dir);
    cr_assert_eq(sg_config_parse(text, strlen(text), "test.yaml", NULL, 0, &config, &err), SG_OK, "%s", err.message);
    char *path = sg_xprintf("%s/checkpoints", dir);
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, path, "x", 5, &folder, &err), SG_OK, "%s", err.message);
    free(path);
}

static void clean_up(void)
{
    char command[128];
    sg_checkpoint_close(folder);
    sg_config_destroy(config);
    free(file);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(checkpoints, .timeout = 20, .init = prepare, .fini = clean_up);

/* With values of this seed; 0: zeros. */
static sg_model *make_model(uint64_t hidden, uint64_t classes, uint64_t seed)
{
    sg_model *model;
    sg_error err = {0};
    sg_model_options options = {
        .name = "mlp", .hidden = &hidden, .n_hidden = hidden != 0, .inputs = 100, .classes = classes};
    cr_assert_eq(sg_model_create(&options, &model, &err), SG_OK, "%s", err.message);
    if (seed != 0)
        sg_model_initialize(model, seed);
    return model;
}

static sg_checkpoint_set import_model(const sg_model *model, bool replace)
{
    sg_checkpoint_set set;
    sg_error err = {0};
    sg_status status = sg_checkpoints_import(folder, config, model, replace, &set, &err);
    cr_assert_eq(status, SG_OK, "%s", err.message);
    return set;
}

static void export_set(sg_checkpoint_set set)
{
    sg_error err = {0};
    cr_assert_eq(sg_checkpoints_export(folder, set, file, &err), SG_OK, "%s", err.message);
}

Test(checkpoints, what_was_imported_is_what_is_exported)
{
    size_t n_ignored;
    sg_error err = {0};
    sg_checkpoint_set chosen;
    sg_model *wanted = make_model(30, 10, 7), *found = make_model(30, 10, 0);
    sg_checkpoint_set set = import_model(wanted, false);
    cr_assert(set.iteration == 0 && set.generation == 1);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(set, chosen), "the next run finds it");
    export_set(set);
    cr_assert_eq(sg_checkpoints_read_model(file, found, &n_ignored, &err), SG_OK, "%s", err.message);
    cr_assert_eq(n_ignored, 0);
    for (size_t i = 0; i < wanted->n_variables; i++)
        cr_assert_eq(memcmp(wanted->variables[i].value, found->variables[i].value,
                            sg_workload_n_elems(&wanted->variables[i]) * sizeof(float)),
                     0);
    sg_model_destroy(wanted);
    sg_model_destroy(found);
}

Test(checkpoints, an_imported_set_says_what_the_configuration_says)
{
    sg_checkpoint_manifest manifest;
    sg_model *model = make_model(30, 10, 7);
    sg_checkpoint_set set = import_model(model, false);
    cr_assert_eq(sg_checkpoint_read_manifest(folder, set, &manifest, NULL), SG_OK);
    cr_assert_str_eq(manifest.rule, "adam");
    cr_assert_str_eq(manifest.mode, "sync");
    cr_assert(manifest.seed == 3 && manifest.slice_bytes == 64 && manifest.hyper.momentum == 0.5);
    cr_assert(manifest.n_groups == 1 && manifest.steps[0] == 0);
    cr_assert_eq(manifest.variables[0].lr_multiplier, 1);
    cr_assert_eq(manifest.variables[0].decay_multiplier, 1);
    sg_checkpoint_manifest_deinit(&manifest);
    sg_model_destroy(model);
}

Test(checkpoints, sets_are_passed_over_for_an_import_only_where_it_says_so)
{
    sg_checkpoint_set set, chosen;
    sg_error err;
    sg_model *model = make_model(30, 10, 7);
    sg_checkpoint_set first = import_model(model, false);
    cr_assert_eq(sg_checkpoints_import(folder, config, model, false, &set, &err), SG_CONFIG);
    cr_assert(strstr(err.message, "step-000000000000-g1") != NULL && strstr(err.message, "--replace") != NULL, "%s",
              err.message);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, first), "what was refused changed nothing");
    sg_checkpoint_set second = import_model(model, true);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, second) && second.generation == 2);
    sg_model_destroy(model);
}

Test(checkpoints, an_import_that_fails_at_any_moment_passes_over_nothing)
{
    paper_disk paper;
    paper_disk_init(&paper);
    sg_checkpoint *on_paper;
    sg_checkpoint_set set, first, chosen;
    sg_error err;
    sg_model *model = make_model(30, 10, 7);
    cr_assert_eq(sg_checkpoint_open(&paper.disk, "/c", "x", 5, &on_paper, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_checkpoints_import(on_paper, config, model, false, &first, &err), SG_OK, "%s", err.message);
    sg_status status = SG_EXHAUSTED;
    size_t n_failed = 0;
    for (uint64_t call = 1; status != SG_OK; call++) {
        paper.fails_from = paper.n_calls + call;
        paper.error = EIO;
        status = sg_checkpoints_import(on_paper, config, model, true, &set, &err);
        paper.fails_from = 0;
        cr_assert_eq(sg_checkpoint_find_newest(on_paper, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
        cr_assert_neq(chosen.generation, 0, "nothing is left after failure %lu: %s", call, err.message);
        n_failed += status != SG_OK;
    }
    cr_assert_gt(n_failed, 5);
    cr_assert(sg_checkpoint_set_equal(chosen, set));
    sg_checkpoint_close(on_paper);
    sg_model_destroy(model);
    paper_disk_deinit(&paper);
}

Test(checkpoints, a_file_that_does_not_fit_is_refused_naming_the_tensor_and_both_shapes)
{
    size_t n_ignored;
    sg_error err;
    sg_model *model = make_model(10, 10, 7), *smaller = make_model(0, 10, 0), *wider = make_model(20, 10, 0);
    export_set(import_model(model, false));
    cr_assert_eq(sg_checkpoints_read_model(file, smaller, &n_ignored, &err), SG_OK, "%s", err.message);
    cr_assert_eq(n_ignored, 2, "a file may have more");
    cr_assert_eq(sg_checkpoints_read_model(file, wider, &n_ignored, &err), SG_DATA);
    cr_assert(strstr(err.message, "'dense0.weight' has shape [100, 10], the model wants [100, 20]") != NULL, "%s",
              err.message);
    cr_assert_null(strstr(err.message, "PyTorch"), "%s", err.message);
    const uint64_t shape[] = {wider->variables[0].shape[0], wider->variables[0].shape[1]};
    wider->variables[0].shape[0] = 10, wider->variables[0].shape[1] = 100;
    cr_assert_eq(sg_checkpoints_read_model(file, wider, &n_ignored, &err), SG_DATA);
    cr_assert(strstr(err.message, "'dense0.weight' has shape [100, 10], the model wants [10, 100]: transpose it, "
                                  "PyTorch's Linear keeps its weight as [outputs, inputs]") != NULL,
              "%s", err.message);
    memcpy(wider->variables[0].shape, shape, sizeof shape);
    export_set(import_model(smaller, true));
    cr_assert_eq(sg_checkpoints_read_model(file, model, &n_ignored, &err), SG_DATA);
    cr_assert(strstr(err.message, "no tensor 'dense1.weight'") != NULL, "%s", err.message);
    sg_model_destroy(model);
    sg_model_destroy(smaller);
    sg_model_destroy(wider);
}

Test(checkpoints, another_dtype_is_refused)
{
    uint64_t shape[] = {100, 10}, n_bytes;
    uint32_t crc;
    size_t n_ignored;
    sg_error err = {0};
    sg_safetensors_writer *writer;
    sg_safetensors_tensor tensor = {.name = "dense0.weight", .shape = shape, .rank = 2, .dtype = "BF16"};
    sg_safetensors_content content = {&tensor, 1, NULL, 0};
    char zeros[2000] = {0};
    sg_model *model = make_model(0, 10, 0);
    cr_assert_eq(sg_safetensors_begin(&sg_disk_posix, file, &content, &writer, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_safetensors_append(writer, zeros, sizeof zeros, &err), SG_OK);
    cr_assert_eq(sg_safetensors_end(writer, true, &n_bytes, &crc, &err), SG_OK);
    cr_assert_eq(sg_checkpoints_read_model(file, model, &n_ignored, &err), SG_DATA);
    cr_assert(strstr(err.message, "BF16") != NULL, "%s", err.message);
    sg_model_destroy(model);
}

Test(checkpoints, nothing_is_exported_of_a_damaged_set)
{
    sg_error err;
    sg_model *model = make_model(30, 10, 7);
    sg_checkpoint_set set = import_model(model, false);
    char *path = sg_xprintf("%s/checkpoints/step-000000000000-g1/ps-0.safetensors", dir);
    FILE *part = fopen(path, "r+");
    cr_assert_not_null(part);
    fseek(part, -1, SEEK_END);
    fputc('x', part);
    fclose(part);
    cr_assert_eq(sg_checkpoints_export(folder, set, file, &err), SG_DATA);
    cr_assert(strstr(err.message, "ps-0.safetensors") != NULL, "%s", err.message);
    cr_assert_null(fopen(file, "r"));
    free(path);
    sg_model_destroy(model);
}
