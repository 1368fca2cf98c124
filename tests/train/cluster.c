#include "tests/train/cluster.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SET 24

typedef struct run run;
typedef struct trainer_thread {
    run *of;
    sg_trainer *trainer;
    uint32_t worker;
    pthread_t thread;
    sg_status status;
    sg_error error;
} trainer_thread;

struct run {
    const cluster_spec *spec;
    cluster_result *result;
    char *strings[3];
    const char *set[MAX_SET + 1];
    sg_config *config;
    cluster_ps *ps;
    trainer_thread *trainers;
    pthread_mutex_t mutex; /* guards result->examples */
};

/* The overrides of all processes, and the config that they lead to. */
static void load(run *r)
{
    char *list = sg_xcalloc(r->spec->n_ps * sizeof("127.0.0.1:0, ") + 8, 1);
    strcpy(list, "ps=[");
    for (uint32_t i = 0; i < r->spec->n_ps; i++)
        strcat(list, i == 0 ? "127.0.0.1:0" : ", 127.0.0.1:0");
    strcat(list, "]");
    r->strings[0] = list;
    r->strings[1] = sg_xprintf("workers=%u", r->spec->n_workers);
    r->strings[2] = sg_xprintf("run_dir=%s", r->spec->run_dir);
    size_t n = 0;
    for (; r->spec->set != NULL && r->spec->set[n] != NULL; n++)
        r->set[n] = r->spec->set[n];
    cr_assert(n + 3 <= MAX_SET);
    for (size_t i = 0; i < 3; i++)
        r->set[n++] = r->strings[i];

    sg_config_override overrides[MAX_SET];
    char keys[MAX_SET][64];
    for (size_t i = 0; i < n; i++) {
        size_t n_key = strcspn(r->set[i], "=");
        snprintf(keys[i], sizeof(keys[i]), "%.*s", (int)n_key, r->set[i]);
        overrides[i] = (sg_config_override){.key = keys[i], .value = r->set[i] + n_key + 1, .source = r->set[i]};
    }
    sg_error err = {0};
    cr_assert_eq(sg_config_load(r->spec->config_path, overrides, n, &r->config, &err), SG_OK, "%s", err.message);
}

static void *run_ps(void *user)
{
    cluster_ps *p = user;
    p->status = sg_ps_run(p->ps, &p->error);
    return NULL;
}

void cluster_ps_start(cluster_ps *p, const sg_config *config, uint32_t index, const char *coordinator)
{
    sg_error err = {0};
    *p = (cluster_ps){0};
    sg_ps_options options = {.config = config, .index = index, .coordinator = coordinator};
    cr_assert_eq(sg_ps_create(&options, &p->ps, &err), SG_OK, "%s", err.message);
    pthread_create(&p->thread, NULL, run_ps, p);
}

void cluster_ps_join(cluster_ps *p)
{
    pthread_join(p->thread, NULL);
    cr_assert_eq(p->status, SG_OK, "%s", p->error.message);
    sg_ps_destroy(p->ps);
}

static void *run_trainer(void *user)
{
    trainer_thread *t = user;
    t->status = sg_trainer_run(t->trainer, &t->error);
    return NULL;
}

static float **copy_values(const sg_model *model)
{
    float **values = sg_xcalloc(model->n_variables, sizeof(*values));
    for (size_t i = 0; i < model->n_variables; i++) {
        size_t n = sg_workload_n_elems(&model->variables[i]);
        values[i] = sg_xcalloc(n, sizeof(float));
        memcpy(values[i], model->variables[i].value, n * sizeof(float));
    }
    return values;
}

static void on_step(void *user, const sg_step *step)
{
    trainer_thread *t = user;
    run *r = t->of;
    pthread_mutex_lock(&r->mutex);
    if (step->number < CLUSTER_MAX_STEPS)
        r->result->examples[step->number] += step->examples;
    pthread_mutex_unlock(&r->mutex);
    if (t->worker == 0 && step->number + 1 == r->spec->early_steps)
        r->result->early = copy_values(sg_trainer_workload(t->trainer)->model);
}

static void start(run *r)
{
    r->ps = sg_xcalloc(r->spec->n_ps, sizeof(*r->ps));
    r->trainers = sg_xcalloc(r->spec->n_workers, sizeof(*r->trainers));
    for (uint32_t i = 0; i < r->spec->n_ps; i++)
        cluster_ps_start(&r->ps[i], r->config, i, i > 0 ? sg_ps_address(r->ps[0].ps) : NULL);
    for (uint32_t i = 0; i < r->spec->n_workers; i++) {
        trainer_thread *t = &r->trainers[i];
        *t = (trainer_thread){.of = r, .worker = i};
        t->trainer = sg_trainer_create(&(sg_trainer_options){.config = r->config,
                                                             .config_path = r->spec->config_path,
                                                             .set = r->set,
                                                             .coordinator = sg_ps_address(r->ps[0].ps),
                                                             .worker = i,
                                                             .on_step = on_step,
                                                             .user = t});
        pthread_create(&t->thread, NULL, run_trainer, t);
    }
}

static void join(run *r)
{
    for (uint32_t i = 0; i < r->spec->n_workers; i++) {
        pthread_join(r->trainers[i].thread, NULL);
        cr_assert_eq(r->trainers[i].status, SG_OK, "worker %u: %s", i, r->trainers[i].error.message);
    }
    for (uint32_t i = 0; i < r->spec->n_ps; i++)
        cluster_ps_join(&r->ps[i]);
}

static void take_result(run *r)
{
    sg_error err = {0};
    const sg_model *trained = sg_trainer_workload(r->trainers[0].trainer)->model;
    sg_model_options options = {.name = r->config->model.name,
                                .hidden = r->config->model.hidden.items,
                                .n_hidden = r->config->model.hidden.n,
                                .layers = r->config->model.layers.items,
                                .n_layers = r->config->model.layers.n,
                                .inputs = trained->inputs,
                                .channels = trained->channels,
                                .height = trained->height,
                                .width = trained->width,
                                .classes = trained->classes};
    cr_assert_eq(sg_model_create(&options, &r->result->model, NULL), SG_OK);
    cr_assert_eq(sg_model_create(&options, &r->result->start, NULL), SG_OK);
    sg_model_initialize(r->result->start, r->config->seed);
    for (size_t i = 0; i < trained->n_variables; i++)
        memcpy(r->result->model->variables[i].value, trained->variables[i].value,
               sg_workload_n_elems(&trained->variables[i]) * sizeof(float));
    cr_assert_eq(sg_summary_read(r->spec->run_dir, &r->result->summary, &err), SG_OK, "%s", err.message);
}

void cluster_train(const cluster_spec *spec, cluster_result *result)
{
    run r = {.spec = spec, .result = result};
    *result = (cluster_result){0};
    pthread_mutex_init(&r.mutex, NULL);
    load(&r);
    start(&r);
    join(&r);
    take_result(&r);
    for (uint32_t i = 0; i < spec->n_workers; i++)
        sg_trainer_destroy(r.trainers[i].trainer);
    free(r.trainers);
    free(r.ps);
    sg_config_destroy(r.config);
    for (size_t i = 0; i < SG_ARRAY_LEN(r.strings); i++)
        free(r.strings[i]);
    pthread_mutex_destroy(&r.mutex);
}

void cluster_result_deinit(cluster_result *result)
{
    for (size_t i = 0; result->early != NULL && i < result->model->n_variables; i++)
        free(result->early[i]);
    free(result->early);
    sg_model_destroy(result->model);
    sg_model_destroy(result->start);
}
