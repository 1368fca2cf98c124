#include "worker/cli/progress.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(progress, .timeout = 20);

/* A progress that writes to memory. */
typedef struct screen {
    sg_progress progress;
    FILE *file;
    char *text;
    size_t n_text;
} screen;

static void open_screen(screen *s, bool terminal)
{
    s->file = open_memstream(&s->text, &s->n_text);
    sg_progress_init(&s->progress, s->file, terminal, 1000, 300);
}

static void close_screen(screen *s)
{
    fclose(s->file);
    free(s->text);
}

static void update(screen *s, uint64_t now_ms, uint64_t steps)
{
    sg_progress_state state = {
        .steps = steps, .examples = steps * 100, .loss = 0.5f, .waiting = "waiting for worker 1"};
    sg_progress_update(&s->progress, now_ms, &state);
}

Test(progress, the_line_tells_epoch_step_loss_speed_and_time_left)
{
    screen s;
    open_screen(&s, true);
    update(&s, 1000, 100);
    update(&s, 2000, 350);
    const char *last = strrchr(s.text, 'K') + 1;
    cr_assert_str_eq(last, "epoch 2/4  step 350/1000  loss 0.5000  25000 examples/s  0:03 left");
    close_screen(&s);
}

Test(progress, the_loss_of_a_training_that_diverges_is_short)
{
    screen s;
    open_screen(&s, true);
    sg_progress_state state = {.steps = 100, .examples = 100, .loss = 3.25e38f};
    sg_progress_update(&s.progress, 1000, &state);
    cr_assert_str_eq(strrchr(s.text, 'K') + 1, "epoch 1/4  step 100/1000  loss 3.25e+38");
    close_screen(&s);
}

Test(progress, the_last_step_belongs_to_the_last_epoch_and_leaves_no_time)
{
    screen s;
    open_screen(&s, true);
    update(&s, 1000, 900);
    update(&s, 2000, 1000);
    cr_assert_str_eq(strrchr(s.text, 'K') + 1, "epoch 4/4  step 1000/1000  loss 0.5000  10000 examples/s");
    close_screen(&s);
}

Test(progress, what_was_restored_does_not_shorten_the_time_left)
{
    screen s;
    open_screen(&s, true);
    for (uint64_t second = 0; second < 3; second++) { /* 10 steps a second since step 500, of 100 examples each */
        sg_progress_state state = {.steps = 500 + second * 10, .examples = 100 + second * 1000, .loss = 0.5f};
        sg_progress_update(&s.progress, 1000 + second * 1000, &state);
    }
    cr_assert_str_eq(strrchr(s.text, 'K') + 1, "epoch 2/4  step 520/1000  loss 0.5000  1000 examples/s  0:48 left");
    close_screen(&s);
}

Test(progress, after_going_back_to_a_checkpoint_the_speed_is_that_since)
{
    screen s;
    open_screen(&s, true);
    for (uint64_t i = 0; i < 10; i++)
        update(&s, 1000 + i * 1000, 300 + i);
    update(&s, 11000, 200);
    cr_assert_str_eq(strrchr(s.text, 'K') + 1, "epoch 1/4  step 200/1000  loss 0.5000");
    update(&s, 12000, 210);
    cr_assert_str_eq(strrchr(s.text, 'K') + 1, "epoch 1/4  step 210/1000  loss 0.5000  1000 examples/s  1:19 left");
    close_screen(&s);
}

Test(progress, the_speed_is_that_of_the_newest_samples)
{
    screen s;
    open_screen(&s, true);
    for (uint64_t i = 1; i <= 20; i++)
        update(&s, i * 1000, i);
    for (uint64_t i = 1; i <= SG_PROGRESS_SAMPLES; i++)
        update(&s, 20000 + i * 1000, 20 + i * 10);
    cr_assert(strstr(strrchr(s.text, 'K'), "  1000 examples/s") != NULL, "%s", strrchr(s.text, 'K'));
    close_screen(&s);
}

Test(progress, before_the_first_step_it_tells_who_is_waited_for)
{
    screen s;
    open_screen(&s, true);
    update(&s, 1000, 0);
    cr_assert_str_eq(s.text, "\r\033[Kwaiting for worker 1");
    close_screen(&s);
}

Test(progress, without_a_terminal_lines_come_once_the_speed_is_known_and_then_every_few_seconds)
{
    screen s;
    open_screen(&s, false);
    for (uint64_t i = 0; i <= 110; i++)
        update(&s, 1000 + i * 100, i);
    cr_assert_str_eq(s.text, "epoch 1/4  step 2/1000  loss 0.5000  1000 examples/s  1:40 left\n"
                             "epoch 1/4  step 52/1000  loss 0.5000  1000 examples/s  1:35 left\n"
                             "epoch 1/4  step 102/1000  loss 0.5000  1000 examples/s  1:30 left\n");
    close_screen(&s);
}

Test(progress, a_printed_line_takes_the_place_of_the_drawn_one)
{
    screen s;
    open_screen(&s, true);
    update(&s, 1000, 1);
    size_t before = s.n_text;
    sg_progress_print(&s.progress, "%s | %s", "ps-0", "hello");
    cr_assert_str_eq(s.text + before, "\r\033[Kps-0 | hello\n");
    sg_progress_print(&s.progress, "again");
    cr_assert(strstr(s.text, "hello\nagain\n") != NULL, "nothing to take away the second time");
    close_screen(&s);
}

Test(progress, a_long_line_is_cut_to_the_terminal)
{
    screen s;
    open_screen(&s, true);
    char waiting[300];
    memset(waiting, 'x', sizeof(waiting) - 1);
    waiting[sizeof(waiting) - 1] = '\0';
    sg_progress_state state = {.loss = NAN, .waiting = waiting};
    sg_progress_update(&s.progress, 1000, &state);
    cr_assert_eq(strlen(s.text), strlen("\r\033[K") + 79);
    close_screen(&s);
}

Test(progress, the_drawn_line_is_narrower_than_the_terminal)
{
    const unsigned short widths[] = {40, 200, 0 /* not known: as if it were 80 */};
    const size_t wanted[] = {39, strlen("epoch 2/4  step 350/1000  loss 0.5000  25000 examples/s  0:03 left"),
                             strlen("epoch 2/4  step 350/1000  loss 0.5000  25000 examples/s  0:03 left")};
    for (size_t i = 0; i < SG_ARRAY_LEN(widths); i++) {
        int terminal, program;
        struct winsize size = {.ws_col = widths[i], .ws_row = 20};
        cr_assert_eq(openpty(&terminal, &program, NULL, NULL, &size), 0);
        screen s = {.file = fdopen(program, "w")};
        sg_progress_init(&s.progress, s.file, true, 1000, 300);
        update(&s, 1000, 100);
        update(&s, 2000, 350);
        close_screen(&s);
        char text[1024] = "";
        size_t n_text = 0; /* what was written arrives in any number of pieces, and then an error */
        for (ssize_t n; (n = read(terminal, text + n_text, sizeof(text) - 1 - n_text)) > 0;)
            n_text += (size_t)n;
        cr_assert_eq(strlen(strrchr(text, 'K') + 1), wanted[i], "%u columns: '%s'", widths[i], strrchr(text, 'K') + 1);
        close(terminal);
    }
}

Test(progress, what_was_found_of_the_test_set_stands_behind_the_loss)
{
    sg_progress progress;
    sg_progress_init(&progress, stderr, false, 1000, 250);
    sg_progress_state state = {.steps = 500, .examples = 100, .loss = 0.5F, .test_of = 200, .test_accuracy = 0.875};
    char line[256];
    sg_progress_format(&progress, &state, line, sizeof line);
    cr_assert_str_eq(line, "epoch 3/4  step 500/1000  loss 0.5000  test 0.8750");
}
