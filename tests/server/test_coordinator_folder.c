/* A checkpoint folder that is not the job's: emptied, or another. What ps and workers know of generations says so. */
#include <criterion/criterion.h>

#include "tests/server/coordinator_fixture.h"

#define BEGIN SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN

static const char *const two_ps[] = {"ps=[\"127.0.0.1:0\",\"127.0.0.1:0\"]", "checkpoint.dir=/somewhere", NULL};

static rig_call *report_of(rig *r, uint32_t ps, uint64_t generation)
{
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.generation = generation;
    return rig_report(r, ps, &report, false);
}

/* All ps were started anew, without what they had: its values are no initial ones. */
Test(coordinator_folder, a_worker_that_has_trained_is_refused_by_a_job_that_begins_from_nothing)
{
    static const char *const *const settings[] = {two_ps, rig_two_ps};
    for (size_t i = 0; i < SG_ARRAY_LEN(settings); i++) {
        rig r;
        rig_init(&r, settings[i]);
        rig_register_all(&r);
        Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 0, 7);
        hello.has_trained = true;
        rig_failed(rig_hello_with(&r, &hello), SG_CONFIG,
                   i == 0 ? "worker 0 has trained, and the job begins from nothing (restore: none, or checkpoint.dir"
                          : "worker 0 has trained, and the job begins from nothing, since checkpoint.dir is not set");
        cr_assert(rig_logged(&r, "refused worker=0"));
        const uint64_t workers[2] = {rig_join(&r, 0, 8), rig_join(&r, 1, 9)};
        rig_declare(&r, workers[0]);
        rig_declare(&r, workers[1]);
        rig_initialized(&r, workers[0], 1);
        if (i == 0)
            rig_complete(&r, 0);
        rig_ticket(&r, workers[0], 0, 0, 0);
        rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
        hello = rig_hello_request(&r, 1, 10);
        hello.has_trained = true;
        cr_assert_eq(rig_hello_with(&r, &hello)->status, SG_OK, "a job that trains takes it");
        rig_deinit(&r);
    }
}

/* Nor does anybody go back because of it. */
Test(coordinator_folder, a_worker_that_is_refused_because_it_has_trained_disturbs_nobody)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    const uint64_t worker = rig_join(&r, 0, 8);
    rig_declare(&r, worker);
    Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 1, 7);
    hello.generation = 3;
    hello.has_trained = true;
    rig_failed(rig_hello_with(&r, &hello), SG_CONFIG, "worker 1 has trained");
    cr_assert_eq(rig_heartbeat(&r, worker)->status, SG_OK);
    rig_deinit(&r);
}

/* Its folder was emptied, or is another. In its own generation, too: that one it began without knowing of theirs. */
Test(coordinator_folder, a_ps_that_was_in_a_generation_that_is_not_recorded_ends_the_job_naming_the_folder)
{
    static const uint64_t generations[] = {5, 1};
    for (size_t i = 0; i < SG_ARRAY_LEN(generations); i++) {
        rig r;
        char words[64];
        rig_init(&r, two_ps);
        rig_register(&r, 0);
        rig_call *call = report_of(&r, 1, generations[i]);
        snprintf(words, sizeof words, "ps 1 was in generation %u", (unsigned)generations[i]);
        rig_failed(call, SG_CONFIG, words);
        rig_failed(call, SG_CONFIG, "began generation 1 by the records in its checkpoint.dir, /somewhere:");
        rig_failed(rig_hello(&r, 0, 7), SG_CONFIG, "Mount the right one");
        cr_assert_eq(rig_ordered(&r, 1, BEGIN, NULL), 0);
        rig_pass(&r, 2 * r.config->shutdown_grace_ms);
        cr_assert_eq(r.end_status, SG_CONFIG);
        rig_deinit(&r);
    }
}

Test(coordinator_folder, a_worker_that_was_in_a_generation_that_is_not_recorded_ends_the_job_naming_the_folder)
{
    static const uint64_t generations[] = {5, 1};
    for (size_t i = 0; i < SG_ARRAY_LEN(generations); i++) {
        for (int is_new_life = 0; is_new_life < 2; is_new_life++) {
            if (is_new_life && generations[i] == 1)
                continue; /* it may have been let in here: nobody can know */
            rig r;
            char words[64];
            rig_init(&r, two_ps);
            rig_register_all(&r);
            Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 0, 7);
            const uint64_t was = generations[i] << 32 | 4711;
            *(is_new_life ? &hello.after : &hello.generation) = is_new_life ? was : generations[i];
            rig_call *call = rig_hello_with(&r, &hello);
            snprintf(words, sizeof words, "worker 0 was in generation %u", (unsigned)generations[i]);
            rig_failed(call, SG_CONFIG, words);
            rig_failed(rig_hello(&r, 1, 8), SG_CONFIG, "stop all its processes first");
            rig_deinit(&r);
        }
    }
}

/* Whoever comes to a job that trains may be of another one, and others notice nothing. */
Test(coordinator_folder, one_that_knows_of_a_later_generation_is_refused_by_a_job_that_trains)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, two_ps);
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 1, 77);
    hello.generation = 5;
    rig_failed(rig_hello_with(&r, &hello), SG_CONFIG, "worker 1 was in generation 5");
    r.lives[1] = 555;
    rig_failed(report_of(&r, 1, 5), SG_CONFIG, "ps 1 was in generation 5");
    cr_assert(rig_logged(&r, "refused ps=1 address=host:1 status=CONFIG"), "%s", r.log);
    cr_assert_eq(rig_heartbeat(&r, workers[1])->status, SG_OK);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_deinit(&r);
}

Test(coordinator_folder, a_generation_of_a_ps_that_cannot_be_is_refused)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register(&r, 0);
    rig_failed(report_of(&r, 1, UINT64_MAX), SG_INVALID, "ps 1 was in generation 18446744073709551615");
    cr_assert_eq(rig_register(&r, 1)->status, SG_OK);
    rig_deinit(&r);
}
