/* server/coordinator_change.h - what the coordinator_*.c files ask of hyper-parameters that are set while the job runs,
 * and of changes of mode or rule, which take a new generation. */
#ifndef SG_SERVER_COORDINATOR_CHANGE_H
#define SG_SERVER_COORDINATOR_CHANGE_H

#include "server/coordinator_state.h"

/* --- coordinator_hyper.c -------------------------------------------------------------------------------------- */

void sg_coordinator_hyper_init(sg_coordinator *c);
void sg_coordinator_hyper_deinit(sg_coordinator *c);
/* That in force. */
const sg_config *sg_coordinator_hyper_config(const sg_coordinator *c);
/* A job that is started goes on with what was changed while it ran before. Errors: CONFIG. */
SG_MUST_USE sg_status sg_coordinator_hyper_restore(sg_coordinator *c, const sg_checkpoint_manifest *manifest,
                                                   sg_error *err);
/* Has the manifest all that was set, of what is in force? */
bool sg_coordinator_hyper_is_in(const sg_coordinator *c, const sg_checkpoint_manifest *manifest);
/* Orders that in force, and those that are on their way, to a ps that has none. */
void sg_coordinator_hyper_order(sg_coordinator *c, uint32_t ps);
void sg_coordinator_hyper_set(sg_coordinator *c, const Shardgrad__V1__SetRequest *request, void *call);
bool sg_coordinator_hyper_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* Puts in force what every ps has acknowledged. */
bool sg_coordinator_hyper_advance(sg_coordinator *c);
/* What it points to; one that was not appended. */
void sg_coordinator_hyper_free(sg_coordinator_hyper *hyper);
/* It is in force, with all before it; its contents are the coordinator's. */
void sg_coordinator_hyper_append(sg_coordinator *c, const sg_coordinator_hyper *take);
/* Of every set that is in force, the steps that have it, where none were noted. */
void sg_coordinator_hyper_note(sg_coordinator *c);
/* A generation begins: what is in force is in force from its first steps on, which may come before those that had it
 * first. */
void sg_coordinator_hyper_go_back(sg_coordinator *c);

/* --- coordinator_change.c ------------------------------------------------------------------------------------- */

/* Does it take a new generation to get there? */
bool sg_coordinator_change_needed(const sg_config *from, const sg_config *to);
/* May it begin now? Errors: CONFIG; WAITING (it recovers), NOT_READY (it has not begun). */
SG_MUST_USE sg_status sg_coordinator_change_check(const sg_coordinator *c, const sg_config *to, sg_error *err);
/* Begins it, to this set, whose contents are the coordinator's then. Returns the number that it is to have. */
uint64_t sg_coordinator_change_begin(sg_coordinator *c, const sg_coordinator_hyper *take);
/* The number that the set of this request is to have, which is not in force yet; 0: there is none. */
uint64_t sg_coordinator_change_find(const sg_coordinator *c, uint64_t request);
bool sg_coordinator_change_under_way(const sg_coordinator *c);
/* No iteration is begun because of it. */
bool sg_coordinator_change_halts(const sg_coordinator *c);
/* The set of hyper-parameters that the generation to come has. */
const sg_coordinator_hyper *sg_coordinator_change_target(const sg_coordinator *c);
/* The generation that is about to begin was asked for. */
bool sg_coordinator_change_begins(const sg_coordinator *c);
/* And what is to be in its checkpoint is there, or on its way: it is to be cut. */
bool sg_coordinator_change_saves(const sg_coordinator *c);
/* Sync: may a step of this iteration be handed out? (One of an iteration that was begun always may: steps of it that
 * were handed out may come after it.) */
bool sg_coordinator_change_opens(const sg_coordinator *c, uint64_t iteration);
/* Async: may this worker have another ticket of this group? */
bool sg_coordinator_change_grants(const sg_coordinator *c, uint32_t worker, uint32_t group);
/* This call is to be asked again soon, because it brings news. */
bool sg_coordinator_change_hurries(const sg_coordinator *c, const sg_coordinator_parked *call);
/* The request has failed for good: a late repeat of it must not begin what was refused. */
void sg_coordinator_change_remember(sg_coordinator *c, uint64_t request, sg_status status, const char *why);
/* The request has failed before: the same answer again. False: it has not. */
bool sg_coordinator_change_answer_repeat(sg_coordinator *c, uint64_t request, void *call);
/* Something came between: if nothing has happened yet, nothing will. `why` is a line. */
void sg_coordinator_change_interrupt(sg_coordinator *c, sg_status status, const char *why);
/* A checkpoint has come to its end. */
void sg_coordinator_change_saved(sg_coordinator *c, sg_status status, const char *message);
/* A generation is entered: before anything else is done, and when the manifest was taken. */
void sg_coordinator_change_enter(sg_coordinator *c);
void sg_coordinator_change_entered(sg_coordinator *c, const sg_checkpoint_manifest *manifest);
/* Can the next generation start from a checkpoint of this rule? */
bool sg_coordinator_change_fits(const sg_coordinator *c, const char *rule);
bool sg_coordinator_change_advance(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_change_extend(sg_coordinator *c, uint64_t late_ms);
/* Gives up what has waited too long for somebody. */
void sg_coordinator_change_tick(sg_coordinator *c);
/* For whom it waits; NULL: there is none. */
const char *sg_coordinator_change_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
void sg_coordinator_change_deinit(sg_coordinator *c);

#endif
