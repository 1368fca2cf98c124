/* worker/cli/progress.c - see progress.h. */
#include "worker/cli/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "worker/train/summary.h"

#define PLAIN_LINE_EVERY_MS 5000u
#define TERMINAL_COLUMNS    80 /* where the terminal does not tell */

void sg_progress_init(sg_progress *progress, FILE *out, bool terminal, uint64_t total_steps, uint64_t steps_per_epoch)
{
    *progress =
        (sg_progress){.out = out, .terminal = terminal, .total_steps = total_steps, .steps_per_epoch = steps_per_epoch};
}

static const sg_progress_sample *newest(const sg_progress *p)
{
    return &p->samples[(p->n_samples - 1) % SG_PROGRESS_SAMPLES];
}

static void add_sample(sg_progress *p, uint64_t now_ms, const sg_progress_state *state)
{
    if (p->n_samples > 0 && (state->steps < newest(p)->steps || state->examples < newest(p)->examples))
        p->n_samples = 0; /* the job went back to a checkpoint */
    p->samples[p->n_samples++ % SG_PROGRESS_SAMPLES] =
        (sg_progress_sample){.at_ms = now_ms, .examples = state->examples, .steps = state->steps};
}

/* Examples or, if not `examples`, steps per second over the samples that are kept; 0: not known. */
static double speed(const sg_progress *p, bool examples)
{
    if (p->n_samples < 2)
        return 0;
    const sg_progress_sample *last = newest(p);
    const sg_progress_sample *first =
        &p->samples[p->n_samples > SG_PROGRESS_SAMPLES ? p->n_samples % SG_PROGRESS_SAMPLES : 0];
    const uint64_t done = examples ? last->examples - first->examples : last->steps - first->steps;
    const uint64_t ms = last->at_ms - first->at_ms;
    return ms == 0 ? 0 : 1000.0 * (double)done / (double)ms;
}

/* "  0:41 left"; nothing where the speed is not known. Steps that were restored took no time in this run. */
static void format_time_left(const sg_progress *p, const sg_progress_state *state, char *out, size_t out_bytes)
{
    const double steps_per_second = speed(p, false);
    out[0] = '\0';
    if (steps_per_second == 0 || state->steps >= p->total_steps)
        return;
    const double seconds = (double)(p->total_steps - state->steps) / steps_per_second;
    if (seconds < 3600 * 1000.0) {
        unsigned long s = (unsigned long)(seconds + 0.5);
        if (s < 3600)
            snprintf(out, out_bytes, "  %lu:%02lu left", s / 60, s % 60);
        else
            snprintf(out, out_bytes, "  %lu:%02lu:%02lu left", s / 3600, s / 60 % 60, s % 60);
    }
}

void sg_progress_format(const sg_progress *p, const sg_progress_state *state, char *out, size_t out_bytes)
{
    if (state->steps == 0 && state->waiting != NULL && state->waiting[0] != '\0') {
        snprintf(out, out_bytes, "%s", state->waiting);
        return;
    }
    char number[SG_LOSS_TEXT_BYTES], loss[SG_LOSS_TEXT_BYTES + 8] = "", test[32] = "", rate[48] = "", left[48];
    uint64_t epochs = (p->total_steps + p->steps_per_epoch - 1) / p->steps_per_epoch;
    uint64_t begun = state->steps < p->total_steps ? state->steps : p->total_steps - 1;
    sg_loss_print((double)state->loss, number);
    if (!isnan(state->loss))
        snprintf(loss, sizeof(loss), "  loss %s", number);
    if (state->test_of > 0)
        snprintf(test, sizeof(test), "  test %.4f", state->test_accuracy);
    if (speed(p, true) > 0)
        snprintf(rate, sizeof(rate), "  %.0f examples/s", speed(p, true));
    format_time_left(p, state, left, sizeof(left));
    snprintf(out, out_bytes, "epoch %" PRIu64 "/%" PRIu64 "  step %" PRIu64 "/%" PRIu64 "%s%s%s%s",
             begun / p->steps_per_epoch + 1, epochs, state->steps, p->total_steps, loss, test, rate, left);
}

/* Whether a plain line is due: the first as soon as the speed is known, then every few seconds. */
static bool plain_line_due(sg_progress *p, uint64_t now_ms, const sg_progress_state *state)
{
    bool waiting = state->steps == 0 && state->waiting != NULL && state->waiting[0] != '\0';
    bool first = !p->spoke && speed(p, true) > 0;
    if (!first && (now_ms - p->printed_ms < PLAIN_LINE_EVERY_MS || (state->steps == 0 && !waiting)))
        return false;
    p->spoke = p->spoke || first;
    p->printed_ms = now_ms;
    return true;
}

/* Asked anew for each line, since a terminal changes its size. A longer line would wrap and could not be drawn over. */
static int columns(const sg_progress *p)
{
    struct winsize size;
    return ioctl(fileno(p->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : TERMINAL_COLUMNS;
}

void sg_progress_update(sg_progress *p, uint64_t now_ms, const sg_progress_state *state)
{
    if (p->printed_ms == 0)
        p->printed_ms = now_ms;
    /* The speed counts from the first step on: before it, processes start and wait for each other. */
    if (state->steps > 0)
        add_sample(p, now_ms, state);
    char line[512];
    sg_progress_format(p, state, line, sizeof(line));
    if (p->terminal) {
        fprintf(p->out, "\r\033[K%.*s", columns(p) - 1, line);
        p->drawn = true;
    } else if (plain_line_due(p, now_ms, state))
        fprintf(p->out, "%s\n", line);
    fflush(p->out);
}

void sg_progress_clear(sg_progress *p)
{
    if (p->drawn)
        fprintf(p->out, "\r\033[K");
    p->drawn = false;
    fflush(p->out);
}

void sg_progress_print(sg_progress *p, const char *format, ...)
{
    sg_progress_clear(p);
    va_list args;
    va_start(args, format);
    vfprintf(p->out, format, args);
    va_end(args);
    fputc('\n', p->out);
    fflush(p->out);
}
