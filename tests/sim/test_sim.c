/* SG_SIM_SEEDS clusters (10,000 if it is not set), each from a seed, from SG_SIM_FIRST on. One failing seed is one bug
 * report that anyone can replay:
 *     SG_SIM_SEED=NUMBER SG_SIM_TRACE=1 build/tests/sim/run */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

#define N_SEEDS    10000u
#define N_SHARES   20u
#define FULL_SHARE 500u /* seeds: in fewer not everything need happen */

TestSuite(sim, .timeout = 7200); /* a history that never ends is found by the time that it simulates */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* What the seeds of a share came to, so that nobody is content with clusters to which nothing happened. */
typedef struct tally {
    uint32_t ended_well, failed, n_sets;
    uint32_t faults[SIM_N_FAULTS];     /* that happened, by kind */
    uint64_t refused;                  /* pushes for which there was no room */
    uint64_t n_changed;                /* generations that began with another mode or rule, */
    uint64_t n_to_norms, n_from_norms; /* to, or from, one that takes norms */
    uint64_t n_normed, n_narrow;       /* versions that took norms; seeds whose gradients travel as bfloat16 */
    uint64_t n_promised, n_saved;      /* sets of a learning rate, and checkpoints, that were answered */
} tally;

static void count(const sim *s, tally *t)
{
    t->ended_well += s->job_ended && s->job_status == SG_OK;
    t->n_sets += s->n_sets;
    t->n_changed += s->n_changed;
    t->n_to_norms += s->n_to_norms;
    t->n_from_norms += s->n_from_norms;
    t->n_normed += s->n_normed;
    t->n_narrow += s->scenario.narrow;
    t->n_promised += s->n_promised;
    t->n_saved += s->n_saved;
    t->failed += s->job_ended && s->job_status != SG_OK;
    t->refused += s->n_refused;
    for (uint32_t i = 0; i < s->scenario.n_faults; i++)
        t->faults[s->scenario.faults[i].kind] += s->scenario.faults[i].happened;
}

static void play(uint64_t seed, FILE *trace, tally *t)
{
    sim *s = sim_create(seed);
    s->trace = trace;
    char failure[sizeof s->failure] = "";
    if (!sim_play(s))
        snprintf(failure, sizeof failure, "%s", s->failure);
    count(s, t);
    sim_destroy(s);
    cr_assert(failure[0] == '\0', "SG_SIM_SEED=%" PRIu64 ": %s", seed, failure);
}

ParameterizedTestParameters(sim, whatever_is_lost_repeated_late_or_killed)
{
    static uint32_t shares[N_SHARES];
    for (uint32_t i = 0; i < N_SHARES; i++)
        shares[i] = i;
    return cr_make_param_array(uint32_t, shares, N_SHARES);
}

ParameterizedTest(const uint32_t *share, sim, whatever_is_lost_repeated_late_or_killed)
{
    tally t = {0};
    if (getenv("SG_SIM_SEED") != NULL) {
        if (*share == 0)
            play(number_from("SG_SIM_SEED", 0), getenv("SG_SIM_TRACE") == NULL ? NULL : stderr, &t);
        return;
    }
    const uint64_t n_all = number_from("SG_SIM_SEEDS", N_SEEDS), first = number_from("SG_SIM_FIRST", 0);
    const uint64_t begin = n_all * *share / N_SHARES, end = n_all * (*share + 1) / N_SHARES, n_seeds = end - begin;
    cr_assert_gt(n_all, 0, "SG_SIM_SEEDS: wanted how many");
    for (uint64_t seed = begin; seed < end; seed++)
        play(first + seed, NULL, &t);
    if (n_seeds < FULL_SHARE)
        return;
    cr_assert_gt(t.ended_well, n_seeds / 2);
    cr_assert_gt(t.failed, 0);
    cr_assert_gt(t.refused, n_seeds / 10, "pushes found room too often");
    cr_assert_gt(t.n_sets, n_seeds, "checkpoints that were complete");
    cr_assert_gt(t.n_changed, n_seeds / 100, "generations of another mode or rule");
    cr_assert_gt(t.n_to_norms, n_seeds / 1000, "generations that began to take norms");
    cr_assert_gt(t.n_from_norms, n_seeds / 1000, "generations that took norms no longer");
    cr_assert_gt(t.n_normed, n_seeds, "versions whose update took norms");
    cr_assert_gt(t.n_narrow, n_seeds / 10, "seeds whose gradients travel as bfloat16");
    cr_assert_gt(t.n_promised, n_seeds / 10, "learning rates that were set");
    cr_assert_gt(t.n_saved, n_seeds / 20, "checkpoints that were asked for");
    for (uint32_t kind = 0; kind < SIM_N_FAULTS; kind++)
        cr_assert_gt(t.faults[kind], 0, "fault %" PRIu32 " never happened", kind);
}
