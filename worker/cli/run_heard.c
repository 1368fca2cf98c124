/* worker/cli/run_heard.c - see run_heard.h. */
#include "worker/cli/run_heard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/asked.h"

void sg_run_heard_init(sg_run_heard *h, sg_progress *progress, const sg_config *config)
{
    *h = (sg_run_heard){.progress = progress, .config = config};
}

void sg_run_heard_deinit(sg_run_heard *h)
{
    sg_evaluations_deinit(&h->evaluations);
    free(h->set_again);
}

/* What an earlier `shardgrad set` left, of the line `set_again hyper=2 key=KEY value=VALUE`: one of several. */
static void note_set_again(sg_run_heard *h, const char *text)
{
    static const char key[] = " key=", value[] = " value=";
    const char *at = strstr(text, key), *of = strstr(text, value);
    if (at == NULL || of == NULL || of < at)
        return;
    at += strlen(key);
    char *longer = sg_xprintf("%s%s%.*s=%s", h->set_again == NULL ? "" : h->set_again, h->set_again == NULL ? "" : ", ",
                              (int)(of - at), at, of + strlen(value));
    free(h->set_again);
    h->set_again = longer;
}

/* It goes before the cluster file and the command line. */
static void tell_set_again(sg_run_heard *h)
{
    if (h->set_again != NULL)
        sg_progress_print(h->progress,
                          "shardgrad: as it was set before: %s (`shardgrad set` changes it; --restore none begins "
                          "without it)",
                          h->set_again);
    free(h->set_again);
    h->set_again = NULL;
}

/* A change of mode or rule that somebody asked for goes on from a checkpoint, too, but nothing is lost by it. */
static void tell_restored(sg_run_heard *h, const char *text)
{
    static const char reason_is[] = " reason=\"";
    const char *reason = strstr(text, reason_is), *words = strstr(text, SG_ASKED_WORDS);
    if (reason != NULL && words != NULL) {
        reason += strlen(reason_is);
        sg_progress_print(h->progress, "shardgrad: %.*s from iteration %" PRIu64 " on", (int)(words - reason), reason,
                          h->restored);
    } else {
        sg_progress_print(h->progress, "shardgrad: restored iteration %" PRIu64 " from %s", h->restored,
                          h->config->checkpoint.dir);
    }
}

/* ps 0 says for all of them from where the job goes on, and with what. */
static void hear_coordinator(sg_run_heard *h, const char *text)
{
    static const char restored[] = "restored iteration=", set_again[] = "set_again ";
    if (strncmp(text, set_again, strlen(set_again)) == 0)
        note_set_again(h, text);
    if (strncmp(text, restored, strlen(restored)) != 0)
        return;
    h->restored = strtoull(text + strlen(restored), NULL, 10);
    tell_restored(h, text);
    tell_set_again(h);
}

/* By somebody else than `shardgrad run`: it would not be missed before the job is slow, or has no result. */
static void hear_worker(const sg_run_heard *h, const char *who, const char *text)
{
    static const char stopped[] = "ended status=OK signal=";
    if (strncmp(text, stopped, strlen(stopped)) == 0)
        sg_progress_print(h->progress, "shardgrad: %s was told to stop (signal %s), and has left the job", who,
                          text + strlen(stopped));
}

/* Whether the line is one; what only begins as one does is told as any other. */
static bool take_summary(sg_run_heard *h, const char *text)
{
    sg_summary summary;
    if (strncmp(text, SG_SUMMARY_UNWRITTEN, strlen(SG_SUMMARY_UNWRITTEN)) != 0 ||
        sg_summary_from_line(text + strlen(SG_SUMMARY_UNWRITTEN), &summary, NULL) != SG_OK)
        return false;
    h->unwritten = summary;
    return true;
}

bool sg_run_heard_line(sg_run_heard *h, const char *who, const char *text, bool stopping)
{
    if (strcmp(who, "ps-0") == 0)
        hear_coordinator(h, text);
    else if (!stopping)
        hear_worker(h, who, text);
    sg_evaluations_take_line(&h->evaluations, who, text);
    return take_summary(h, text);
}

void sg_run_heard_restart(sg_run_heard *h, const char *who)
{
    if (strcmp(who, "ps-0") != 0)
        return;
    free(h->set_again); /* the next one says it all again */
    h->set_again = NULL;
}

/* One that failed, because its model is another, has said what there is to do. A job that went back to its last
 * checkpoint at the very end has made its steps. */
void sg_run_heard_tell_whether_all_was_done(const sg_run_heard *h)
{
    sg_summary summary;
    if (h->restored != 0 && h->restored >= h->progress->total_steps &&
        sg_summary_read(h->config->run_dir, &summary, NULL) == SG_OK && sg_summary_is_of_no_step(&summary))
        fprintf(stderr,
                "shardgrad: nothing is left to do: iteration %" PRIu64 " of %" PRIu64
                " was reached; raise train.epochs or train.steps to go on, or begin anew with --restore none\n",
                h->restored, h->progress->total_steps);
}
