/* See saving_fixture.h. */
#include "tests/server/saving_fixture.h"

#include <criterion/criterion.h>

const char *const saving_two_ps[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", NULL};
const char *const saving_every_4[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "checkpoint.every=4", NULL};

void saving_begin(rig *r, const char *const settings[], uint64_t workers[2])
{
    rig_init(r, settings);
    rig_start(r, 2, workers);
    rig_complete(r, 0);
}

uint64_t saving_step(rig *r, const uint64_t workers[2], uint64_t number)
{
    rig_call *first = rig_ticket(r, workers[0], 0, number, number),
             *second = rig_ticket(r, workers[1], 0, number, number);
    cr_assert_eq(rig_granted(first)->step->step, number);
    cr_assert_eq(rig_granted(second)->step->checkpoint_mark, rig_granted(first)->step->checkpoint_mark);
    return rig_granted(first)->step->checkpoint_mark;
}

uint64_t saving_critic(rig *r, const uint64_t workers[2], uint64_t number, uint64_t iteration)
{
    rig_call *first = rig_ticket_for(r, workers[0], 1, number, number, iteration);
    rig_granted(rig_ticket_for(r, workers[1], 1, number, number, iteration));
    return rig_granted(first)->step->checkpoint_mark;
}

void saving_report_full(rig *r)
{
    for (uint32_t ps = 0; ps < 2; ps++) {
        shardgrad__v1__save_report__init(&r->saved[ps]);
        r->saved[ps].generation = 1;
        r->saved[ps].number = rig_cut(r)->number;
        r->saved[ps].status = SG_EXHAUSTED;
        r->saved[ps].message = (char *)"no space left on device";
    }
    rig_register_all(r);
}
