/* server/coordinator_save.h - what the coordinator_*.c files ask of checkpoints: where one is cut, what is in it, what
 * became of it. */
#ifndef SG_SERVER_COORDINATOR_SAVE_H
#define SG_SERVER_COORDINATOR_SAVE_H

#include "server/coordinator_state.h"

/* --- coordinator_save.c and coordinator_manifest.c -------------------------------------------------------------- */

/* Does this job make checkpoints? */
bool sg_coordinator_save_due(const sg_coordinator *c);
/* The initial values are safe, or need not be. */
bool sg_coordinator_save_may_start(const sg_coordinator *c);
/* The mark that a step carries which is handed out first now. */
uint64_t sg_coordinator_save_mark(sg_coordinator *c, uint32_t group, uint64_t step, uint64_t iteration);
void sg_coordinator_save_written(sg_coordinator *c, uint64_t mark, sg_status status, const char *message);
void sg_coordinator_save_ask_for(sg_coordinator *c, const Shardgrad__V1__SaveRequest *request, void *call);
bool sg_coordinator_save_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* The iteration at which a checkpoint of all that was trained is cut. */
uint64_t sg_coordinator_save_end_iteration(const sg_coordinator *c);
/* Somebody waits for the one that is marked and of which nothing is there yet: it is made now, as fast as can be. */
void sg_coordinator_save_hurry(sg_coordinator *c);
/* Those who asked during a recovery get theirs. True: somebody did. */
bool sg_coordinator_save_number_later(sg_coordinator *c);
bool sg_coordinator_save_advance(sg_coordinator *c);
/* Nothing was trained or set since the newest complete one. */
bool sg_coordinator_save_is_up_to_date(const sg_coordinator *c);
/* Something was. Async: of what a worker is at it is not known whether anything of it was pushed since, and that is not
 * called up to date; nor does it lack. */
bool sg_coordinator_save_lacks(const sg_coordinator *c);
/* The newest complete one; generation 0: there is none. */
sg_checkpoint_set sg_coordinator_save_newest(const sg_coordinator *c);
/* For whom the one under way waits. Returns out. */
const char *sg_coordinator_save_waits_for(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
void sg_coordinator_save_status(const sg_coordinator *c, Shardgrad__V1__CheckpointStatus *out);
void sg_coordinator_write_manifest(sg_coordinator *c);
/* That of the newest complete one of this generation, with the hyper-parameters of save.hyper. */
void sg_coordinator_write_manifest_again(sg_coordinator *c);
/* The declaration that a manifest stands for; its free_unpacked frees it. */
Shardgrad__V1__DeclareRequest *sg_coordinator_read_manifest(const sg_checkpoint_manifest *manifest);
/* A generation begins, from this checkpoint; NULL: from nothing. */
void sg_coordinator_save_restart(sg_coordinator *c, const sg_checkpoint_manifest *manifest);
void sg_coordinator_save_deinit(sg_coordinator *c);

/* --- coordinator_reports.c -------------------------------------------------------------------------------------- */

void sg_coordinator_reports_take(sg_coordinator *c, uint32_t ps, const Shardgrad__V1__SaveReport *report);
/* A ps has refused the order to cut. */
void sg_coordinator_reports_refused(sg_coordinator *c, uint32_t ps, sg_status status, const char *message);
bool sg_coordinator_reports_all(const sg_coordinator *c);
/* Of all of them. Errors: what a ps reported, MISMATCH. */
SG_MUST_USE sg_status sg_coordinator_reports_check(const sg_coordinator *c, sg_error *err);

/* --- coordinator_news.c: async ---------------------------------------------------------------------------------- */

/* Was anything pushed since the newest complete one was cut? surely: what is known only, not what is possible. */
bool sg_coordinator_news_any(const sg_coordinator *c, bool surely);
/* From which iteration, and step of a group, training goes on that starts from what is cut now: what was handed out to
 * those who are there is theirs. */
uint64_t sg_coordinator_news_next_iteration(const sg_coordinator *c);
uint64_t sg_coordinator_news_next_step(const sg_coordinator *c, uint32_t group);
/* All have left, and the newest, of this generation, has tickets as trained that they gave back. */
bool sg_coordinator_news_gave_back(const sg_coordinator *c);
/* The iteration by which the next one is named. */
uint64_t sg_coordinator_news_free_name(const sg_coordinator *c);
/* This incarnation's index gets another one: what it did is not forgotten with its tickets. */
void sg_coordinator_news_note_past(sg_coordinator *c, uint32_t worker);
/* One is cut; it is complete. */
void sg_coordinator_news_note_cut(sg_coordinator *c);
void sg_coordinator_news_note_complete(sg_coordinator *c);
/* A generation begins. */
void sg_coordinator_news_restart(sg_coordinator *c);

#endif
