/* See restored_fixture.h. */
#include "tests/server/restored_fixture.h"

#include <criterion/criterion.h>

const char *const restored_two_ps[] = {"ps=[\"127.0.0.1:0\",\"127.0.0.1:0\"]", "checkpoint.dir=/somewhere", NULL};

static uint64_t weight_shape[] = {784, 512}, critic_shape[] = {784}, steps[] = {50, 10};
static sg_checkpoint_variable variables[] = {
    {.name = (char *)"weight", .shape = weight_shape, .rank = 2, .lr_multiplier = 1, .decay_multiplier = 1},
    {.name = (char *)"critic", .shape = critic_shape, .rank = 1, .group = 1, .lr_multiplier = 1, .decay_multiplier = 1},
};

sg_checkpoint_manifest restored_manifest(const rig *r)
{
    sg_checkpoint_manifest manifest = {.set = {.iteration = 50, .generation = 1},
                                       .steps = steps,
                                       .n_groups = 2,
                                       .next_iteration = 50,
                                       .n_ps = 2,
                                       .variables = variables,
                                       .n_variables = 2};
    snprintf(manifest.rule, sizeof manifest.rule, "%s", sg_rule_name(r->config->update.rule));
    snprintf(manifest.mode, sizeof manifest.mode, "sync");
    sg_workers_add(&manifest.members, 0);
    sg_workers_add(&manifest.members, 1);
    return manifest;
}

void restored_coordinator(rig *r, const sg_checkpoint_manifest *manifest)
{
    sg_coordinator_destroy(r->coordinator);
    r->newest = manifest;
    r->coordinator = sg_coordinator_create(r->config);
}

rig_call *restored_hello(rig *r, uint32_t worker, uint64_t life)
{
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, worker, life);
    hello.generation = 1;
    return rig_hello_with(r, &hello);
}

uint64_t restored_incarnation(const rig_call *call)
{
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return ((const Shardgrad__V1__HelloResponse *)call->body)->incarnation;
}

void restored_new_ps(rig *r, uint64_t life)
{
    rig_register_as(r, 1, life, "host:9");
    r->lives[1] = life;
}

uint64_t restored_again(rig *r, uint32_t worker)
{
    const uint64_t incarnation = restored_incarnation(restored_hello(r, worker, 1000 + worker));
    rig_declare(r, incarnation);
    return incarnation;
}
