/* tests/e2e/stepper.c - a worker whose arithmetic a script can repeat by hand, and that misbehaves when told.
 *
 *     stepper CONFIG INDEX [KEY=VALUE...]
 *
 * Trains `variables` (4) variables of `elems` (16) elements, all 0 at first. The gradient of every element at step s is
 * 1 + 2 * INDEX + s % 3, with weight 1. Prints "training", then "step=S rank=R size=N values=V0,V1,..." after each
 * step, where Vi is the value that all elements of variable i have, or "late step=S" where others closed it, "fenced",
 * or "rolled back", where it came to that. It ends after `steps` (20) steps of its own, or before the step `until`.
 * Otherwise:
 *     first=N        the first variable has so many elements
 *     from=K         pushes the variables one by one, from the K-th on and round, and waits for them at the end
 *     every=N        variables 1, 3, ... are of a second group, which makes a step in every N-th iteration, after that
 *                    of the first; its lines begin with "group=1 "
 *     pause_ms=N     sleeps so long in each step, before it pushes
 *     leave=0        ends without a word
 *     nap=N          says "napping" in its N-th step (from 0) and waits for a line on standard input before it pushes
 *     stay=1         waits for a line on standard input before it leaves
 *     partial=S:K    pushes the first K variables of step S alone, prints "partial", and waits for its end
 *
 * Exit codes are those of the daemons. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/status.h"
#include "shardgrad/shardgrad.h"

#define MAX_VARIABLES 256u

typedef struct stepper {
    const char *config;
    uint32_t index, n_variables;
    uint64_t n_elems, first, from, steps, until, every, pause_ms, nap, partial_step, partial_n;
    bool leave, stay;
    sg_client *client;
    char names[MAX_VARIABLES][16];
    sg_variable variables[MAX_VARIABLES];
} stepper;

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == '\0' || (*end != '\0' && *end != ':')) {
        fprintf(stderr, "stepper: '%s' is no number\n", text);
        exit(64);
    }
    return value;
}

static void take_option(stepper *s, const char *option)
{
    const struct {
        const char *key;
        uint64_t *value;
    } numbers[] = {{"elems=", &s->n_elems}, {"first=", &s->first},       {"from=", &s->from}, {"steps=", &s->steps},
                   {"until=", &s->until},   {"pause_ms=", &s->pause_ms}, {"nap=", &s->nap},   {"every=", &s->every}};
    for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++) {
        if (strncmp(option, numbers[i].key, strlen(numbers[i].key)) == 0) {
            *numbers[i].value = number(option + strlen(numbers[i].key));
            return;
        }
    }
    if (strncmp(option, "variables=", 10) == 0 && number(option + 10) <= MAX_VARIABLES) {
        s->n_variables = (uint32_t)number(option + 10);
    } else if (strncmp(option, "partial=", 8) == 0 && strchr(option, ':') != NULL) {
        s->partial_step = number(option + 8);
        s->partial_n = number(strchr(option, ':') + 1);
    } else if (strcmp(option, "leave=0") == 0) {
        s->leave = false;
    } else if (strcmp(option, "stay=1") == 0) {
        s->stay = true;
    } else {
        fprintf(stderr, "stepper: '%s' is no option\n", option);
        exit(64);
    }
}

static void make_variables(stepper *s)
{
    for (uint32_t i = 0; i < s->n_variables; i++) {
        snprintf(s->names[i], sizeof s->names[i], "v%" PRIu32, i);
        const uint64_t n = i == 0 && s->first != UINT64_MAX ? s->first : s->n_elems;
        s->variables[i] = (sg_variable){.name = s->names[i],
                                        .rank = 1,
                                        .shape = {n},
                                        .group = s->every > 0 ? i % 2 : 0,
                                        .value = sg_xcalloc(n, sizeof(float)),
                                        .gradient = sg_xcalloc(n, sizeof(float))};
    }
}

static void fill_gradients(stepper *s, const sg_step *step)
{
    for (uint32_t i = 0; i < s->n_variables; i++) {
        for (uint64_t k = 0; k < s->variables[i].shape[0] && s->variables[i].group == step->group; k++)
            s->variables[i].gradient[k] = (float)(1 + 2 * s->index + step->number % 3);
    }
}

static void print_step(const stepper *s, const sg_step *step)
{
    printf("%sstep=%" PRIu64 " rank=%" PRIu32 " size=%" PRIu32 " values=", step->group > 0 ? "group=1 " : "",
           step->number, step->rank, step->size);
    for (uint32_t i = 0; i < s->n_variables; i++) {
        const float *value = s->variables[i].value;
        for (uint64_t k = 1; k < s->variables[i].shape[0]; k++) {
            if (value[k] != value[0])
                printf("uneven:");
        }
        printf("%s%.9g", i > 0 ? "," : "", (double)value[0]);
    }
    printf("\n");
    fflush(stdout);
}

static void say(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
}

static sg_status push_partially(stepper *s, const sg_step *step, sg_error *err)
{
    sg_op *op;
    uint32_t all[MAX_VARIABLES];
    for (uint32_t i = 0; i < s->n_variables; i++)
        all[i] = i;
    sg_status status = sg_client_push(s->client, step, all, s->partial_n, &op, err);
    if (status != SG_OK)
        return status;
    status = sg_op_wait(op, UINT64_MAX, err);
    say("partial");
    for (;;)
        pause();
}

static sg_status push_one_by_one(stepper *s, const sg_step *step, sg_error *err)
{
    sg_op *ops[MAX_VARIABLES];
    uint32_t n = 0;
    sg_status status = SG_OK;
    for (; n < s->n_variables && status == SG_OK; n += status == SG_OK) {
        const uint32_t variable = (uint32_t)((s->from + n) % s->n_variables);
        status = sg_client_push_pull(s->client, step, &variable, 1, &ops[n], err);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (status == SG_OK)
            status = sg_op_wait(ops[i], UINT64_MAX, err);
        sg_op_destroy(ops[i]);
    }
    return status;
}

static sg_status one_step(stepper *s, sg_step *step, sg_error *err)
{
    fill_gradients(s, step);
    usleep((useconds_t)(s->pause_ms * 1000));
    step->examples = 1;
    step->loss = 1;
    if (step->number == s->partial_step)
        return push_partially(s, step, err);
    sg_status status = s->from != UINT64_MAX ? push_one_by_one(s, step, err) : sg_client_end_step(s->client, step, err);
    if (status == SG_LATE) {
        printf("late step=%" PRIu64 "\n", step->number);
        fflush(stdout);
        return SG_OK;
    }
    if (status == SG_OK)
        print_step(s, step);
    return status;
}

static sg_status second_step(stepper *s, sg_error *err)
{
    sg_step step = {.group = 1};
    const sg_status status = sg_client_begin_step(s->client, &step, err);
    return status == SG_OK ? one_step(s, &step, err) : status;
}

static void log_line(void *user, sg_log_level level, const char *event, const char *fields)
{
    (void)user;
    if (level >= SG_LOG_INFO)
        fprintf(stderr, "%s %s\n", event, fields);
}

static sg_status train(stepper *s, sg_error *err)
{
    const sg_client_options options = {.config = s->config, .worker = s->index, .log = log_line};
    sg_status status = sg_client_open(&options, &s->client, err);
    if (status == SG_OK && s->every > 0)
        status = sg_client_step_every(s->client, 1, (uint32_t)s->every, err);
    if (status == SG_OK)
        status = sg_client_declare(s->client, s->variables, s->n_variables, err);
    if (status != SG_OK)
        return status;
    say("training");
    sg_step step = {0};
    for (uint64_t n = 0; n < s->steps && status == SG_OK; n++) {
        status = sg_client_begin_step(s->client, &step, err);
        if (status != SG_OK || step.number >= s->until)
            break;
        if (n == s->nap) {
            say("napping");
            (void)getchar();
        }
        status = one_step(s, &step, err);
        if (status == SG_OK && s->every > 0 && step.iteration % s->every == 0)
            status = second_step(s, err);
        if (status == SG_FENCED || status == SG_ROLLED_BACK) {
            say(status == SG_FENCED ? "fenced" : "rolled back");
            status = SG_OK;
        }
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: stepper CONFIG INDEX [KEY=VALUE...]\n");
        return 64;
    }
    stepper s = {.config = argv[1],
                 .index = (uint32_t)number(argv[2]),
                 .n_variables = 4,
                 .n_elems = 16,
                 .first = UINT64_MAX,
                 .from = UINT64_MAX,
                 .steps = 20,
                 .until = UINT64_MAX,
                 .nap = UINT64_MAX,
                 .partial_step = UINT64_MAX,
                 .leave = true};
    for (int i = 3; i < argc; i++)
        take_option(&s, argv[i]);
    make_variables(&s);
    sg_error err;
    sg_status status = train(&s, &err);
    if (status != SG_OK)
        fprintf(stderr, "stepper: %s: %s\n", sg_status_name(status), err.message);
    if (!s.leave)
        _exit(sg_status_exit_code(status));
    if (s.stay)
        (void)getchar();
    sg_client_close(s.client);
    for (uint32_t i = 0; i < s.n_variables; i++) {
        free(s.variables[i].value);
        free(s.variables[i].gradient);
    }
    return sg_status_exit_code(status);
}
