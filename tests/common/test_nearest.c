/* Which word was meant. */
#include <criterion/criterion.h>

#include "common/nearest.h"

TestSuite(nearest, .timeout = 20);

static const char *meant(const char *word, const char *const candidates[])
{
    sg_nearest nearest = {.word = word};
    for (; *candidates != NULL; candidates++)
        sg_nearest_try(&nearest, *candidates);
    return nearest.best == NULL ? "" : nearest.best;
}

Test(nearest, letters_that_are_missing_added_wrong_or_changed_places)
{
    static const char *const candidates[] = {"status", "export", "momentum", "csv", NULL};
    cr_assert_str_eq(meant("statu", candidates), "status");
    cr_assert_str_eq(meant("sttatus", candidates), "status");
    cr_assert_str_eq(meant("ezport", candidates), "export");
    cr_assert_str_eq(meant("stauts", candidates), "status");
    cr_assert_str_eq(meant("cvs", candidates), "csv");
    cr_assert_str_eq(meant("momemtun", candidates), "momentum");
}

Test(nearest, what_has_little_in_common_was_not_meant)
{
    static const char *const candidates[] = {"status", "csv", NULL};
    cr_assert_str_eq(meant("storms", candidates), "", "three letters are wrong");
    cr_assert_str_eq(meant("c", candidates), "", "most of it is wrong");
    cr_assert_str_eq(meant("", candidates), "");
}

Test(nearest, the_beginning_of_a_word_comes_before_two_wrong_letters)
{
    static const char *const candidates[] = {"class", "clip_norm", NULL};
    cr_assert_str_eq(meant("clip", candidates), "clip_norm");
    cr_assert_str_eq(meant("clis", candidates), "class");
}
