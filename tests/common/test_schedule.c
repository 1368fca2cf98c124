#include "common/schedule.h"

#include <criterion/criterion.h>

TestSuite(schedule, .timeout = 20);

static sg_config config_of(sg_schedule schedule, uint64_t warmup, uint64_t decay)
{
    sg_config config = {0};
    config.update.learning_rate = 0.8;
    config.update.schedule = schedule;
    config.update.warmup_steps = warmup;
    config.update.decay_steps = decay;
    config.update.decay_factor = 0.5;
    return config;
}

Test(schedule, a_constant_rate_stays)
{
    sg_config config = config_of(SG_SCHEDULE_CONSTANT, 0, 10);
    cr_assert_eq(sg_schedule_rate(&config, 0), 0.8f);
    cr_assert_eq(sg_schedule_rate(&config, 1000000), 0.8f);
}

Test(schedule, warm_up_grows_linearly_to_the_full_rate)
{
    sg_config config = config_of(SG_SCHEDULE_CONSTANT, 4, 0);
    const float wanted[] = {0.2f, 0.4f, 0.6f, 0.8f, 0.8f};
    for (uint64_t i = 0; i < 5; i++)
        cr_assert_float_eq(sg_schedule_rate(&config, i), wanted[i], 1e-7, "iteration %zu", (size_t)i);
}

Test(schedule, the_rate_grows_with_the_batch_where_it_is_that_of_another)
{
    sg_config config = config_of(SG_SCHEDULE_STEP, 4, 10);
    config.train.batch = 1024;
    cr_assert_eq(sg_schedule_rate(&config, 4), 0.8f, "of whatever batch there is");
    config.update.base_batch = 256;
    cr_assert_eq(sg_schedule_rate(&config, 1), 1.6f, "warm-up goes to the greater rate");
    cr_assert_eq(sg_schedule_rate(&config, 4), 3.2f);
    cr_assert_eq(sg_schedule_rate(&config, 14), 1.6f);
    config.train.batch = 128;
    cr_assert_eq(sg_schedule_rate(&config, 4), 0.4f);
}

Test(schedule, steps_fall_after_the_warm_up)
{
    sg_config config = config_of(SG_SCHEDULE_STEP, 2, 10);
    cr_assert_eq(sg_schedule_rate(&config, 11), 0.8f);
    cr_assert_eq(sg_schedule_rate(&config, 12), 0.4f);
    cr_assert_eq(sg_schedule_rate(&config, 22), 0.2f);
    config.update.decay_steps = 0;
    cr_assert_eq(sg_schedule_rate(&config, 1000), 0.8f, "without decay_steps it stays");
}

Test(schedule, cosine_goes_down_to_zero_and_stays_there)
{
    sg_config config = config_of(SG_SCHEDULE_COSINE, 0, 100);
    cr_assert_eq(sg_schedule_rate(&config, 0), 0.8f);
    cr_assert_float_eq(sg_schedule_rate(&config, 50), 0.4f, 1e-7);
    cr_assert_float_eq(sg_schedule_rate(&config, 100), 0, 1e-7);
    cr_assert_float_eq(sg_schedule_rate(&config, 100000), 0, 1e-7);
}

Test(schedule, a_cosine_ends_after_warm_up_and_decay_and_the_others_never)
{
    sg_config config = config_of(SG_SCHEDULE_COSINE, 4, 10);
    cr_assert_eq(sg_schedule_end(&config), 14);
    cr_assert_gt(sg_schedule_rate(&config, 13), 0.0f);
    cr_assert_eq(sg_schedule_rate(&config, 14), 0.0f);
    config.update.decay_steps = 0;
    cr_assert_eq(sg_schedule_end(&config), UINT64_MAX);
    config = config_of(SG_SCHEDULE_STEP, 4, 10);
    cr_assert_eq(sg_schedule_end(&config), UINT64_MAX);
}
