/* server/coordinator_internal.h - what the coordinator_*.c files call of each other, and nobody else. The state that
 * they share: coordinator_state.h. What is asked of checkpoints stands in coordinator_save.h, of settings that change
 * in coordinator_change.h.
 *
 *   coordinator.c            the public calls: check the caller, hand on to a file below, settle
 *   coordinator_settings.c   what all processes must agree on
 *   coordinator_actions.c    what goes out; calls that are parked
 *   coordinator_orders.c     the numbered sequence of orders of each ps
 *   coordinator_ps.c         registration and leases of ps
 *   coordinator_late.c       how late it hears what it is told
 *   coordinator_generation.c generations: what begins one, and how far it has come
 *   coordinator_members.c    workers: hello, incarnations, fencing
 *   coordinator_leases.c     workers: heartbeat, leases, leave
 *   coordinator_losses.c     workers whose lease ran out: excused, held back, or the end of the job
 *   coordinator_variables.c  is a declared list valid, does it fit, is it the same as the one that is known?
 *   coordinator_init.c       declare, attempts, seal, commit
 *   coordinator_steps.c      iterations that are frozen, steps that were handed out, excuses from them
 *   coordinator_tickets.c    which ticket a request gets
 *   coordinator_clocks.c     ssp: how far workers may run ahead of each other
 *   coordinator_norms.c      norms of which every ps has a part
 *   coordinator_save.c       checkpoints: marks, cuts, what becomes of them
 *   coordinator_reports.c    what the ps report of their parts
 *   coordinator_save_ask.c   who asks for one, and what people are told
 *   coordinator_news.c       async: was anything pushed since the newest?
 *   coordinator_drain.c      the last one, before the end
 *   coordinator_lag.c        groups that have yet to come to an iteration that was begun
 *   coordinator_manifest.c   what is written beside the values
 *   coordinator_hyper.c      sets of hyper-parameters
 *   coordinator_change.c     a change of mode or rule
 *   coordinator_end.c        the end, failure, and telling everybody
 *   coordinator_waits.c      for whom the job waits
 *   coordinator_status.c     the status message
 *
 * Every request is handled in two strokes: it changes the state or parks, and then settle in coordinator.c looks at
 * every parked call again until nothing moves. So no event has to know who waits for it. */
#ifndef SG_SERVER_COORDINATOR_INTERNAL_H
#define SG_SERVER_COORDINATOR_INTERNAL_H

#include "server/coordinator_state.h"

/* --- coordinator_actions.c -------------------------------------------------------------------------------------- */

void sg_coordinator_reply(sg_coordinator *c, void *call, const ProtobufCMessage *body); /* body is copied */
void sg_coordinator_fail(sg_coordinator *c, void *call, sg_status status, const char *format, ...) SG_PRINTF(4, 5);
void sg_coordinator_fail_error(sg_coordinator *c, void *call, const sg_error *error);
void sg_coordinator_log(sg_coordinator *c, sg_log_level level, const char *event, const char *format, ...)
    SG_PRINTF(4, 5);
void sg_coordinator_send(sg_coordinator *c, uint32_t ps, ProtobufCMessage *take_body);
void sg_coordinator_save_set(sg_coordinator *c, const sg_checkpoint_manifest *manifest); /* copied */
void sg_coordinator_record(sg_coordinator *c, uint64_t above);
void sg_coordinator_exit(sg_coordinator *c, sg_status status, const char *text);

/* Copies `call` and sets its time; fails it WAITING at once where too many are parked already. */
void sg_coordinator_park(sg_coordinator *c, const sg_coordinator_parked *call);
void sg_coordinator_unpark(sg_coordinator *c, sg_coordinator_parked *call); /* removes and frees, answers nothing */

/* --- coordinator.c ---------------------------------------------------------------------------------------------- */

/* A moment that the coordinator's own lateness puts off, though not beyond now. */
uint64_t sg_coordinator_put_off(const sg_coordinator *c, uint64_t ms, uint64_t late_ms);

/* --- coordinator_who.c ------------------------------------------------------------------------------------------ */

/* False: the job is over or begins another generation, and the call was failed. worker: whose it is; n_workers:
 * unknown. */
bool sg_coordinator_takes(sg_coordinator *c, void *call, uint32_t worker);
/* False: somebody means another job, and the call was failed. `job`: the one that is meant; "": whichever this is. */
bool sg_coordinator_is_meant(sg_coordinator *c, void *call, const char *job);
/* The worker with this incarnation, joined. NULL: the call was failed (FENCED, ROLLED_BACK, the job's end). */
sg_coordinator_worker *sg_coordinator_known(sg_coordinator *c, void *call, uint64_t incarnation, uint64_t generation);
/* Its index; n_workers: nobody has it now. */
uint32_t sg_coordinator_find_incarnation(const sg_coordinator *c, uint64_t incarnation);
uint32_t sg_coordinator_index(const sg_coordinator *c, const sg_coordinator_worker *worker);
/* "worker 1 (node7:4242)", "ps 0 (127.0.0.1:4000)"; return out. */
const char *sg_coordinator_worker_name(const sg_coordinator *c, uint32_t worker, char out[SG_COORDINATOR_TEXT_BYTES]);
const char *sg_coordinator_ps_name(const sg_coordinator *c, uint32_t ps, char out[SG_COORDINATOR_TEXT_BYTES]);
/* Text from the wire: NULL is "". */
const char *sg_coordinator_text(const char *text);
/* Logs who was refused ("ps" or "worker", its index, the address that it gave) and why. */
void sg_coordinator_log_refused(sg_coordinator *c, const char *who, uint32_t index, const char *address,
                                const sg_error *err);
/* A copy of at most 255 bytes in which blanks and control characters are '?': fit for logs and messages. */
char *sg_coordinator_clean(const char *text);

/* --- coordinator_settings.c ------------------------------------------------------------------------------------- */

void sg_coordinator_settings_init(sg_coordinator *c);
void sg_coordinator_settings_deinit(sg_coordinator *c);
/* Every key of the job's configuration against `settings`, both ways. `whose` names the other side. Errors: CONFIG
 * naming the key and both values, INVALID. */
SG_MUST_USE sg_status sg_coordinator_settings_compare(const sg_coordinator *c, Shardgrad__V1__Setting *const *settings,
                                                      size_t n, const char *whose, sg_error *err);

/* --- coordinator_orders.c ------------------------------------------------------------------------------------- */

void sg_coordinator_order(sg_coordinator *c, uint32_t ps, const ProtobufCMessage *body); /* copied */
void sg_coordinator_order_all(sg_coordinator *c, const ProtobufCMessage *body);
void sg_coordinator_order_admit(sg_coordinator *c, uint32_t ps, uint32_t worker);
void sg_coordinator_order_admit_all(sg_coordinator *c, uint32_t worker);
/* Forgets what is not under way. */
void sg_coordinator_orders_clear(sg_coordinator *c, uint32_t ps);
/* Forgets everything: a new life begins with sequence 1. */
void sg_coordinator_orders_reset(sg_coordinator *c, uint32_t ps);
void sg_coordinator_orders_pump(sg_coordinator *c);
/* "waiting for ps 0 to reach ps 1 (address): connection refused", of the first that it does not; NULL: it reaches all.
 */
const char *sg_coordinator_orders_unreached(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
/* Before training has begun the job ends where ps 0 has not reached another one for start_timeout_ms. */
void sg_coordinator_orders_tick(sg_coordinator *c);
/* True if some ps has fallen so far behind that no more may be ordered. */
bool sg_coordinator_orders_full(const sg_coordinator *c);
/* True: so it is, and the call was failed. */
bool sg_coordinator_orders_refuse(sg_coordinator *c, void *call);
void sg_coordinator_orders_result(sg_coordinator *c, uint32_t ps, uint64_t life, sg_status status, const char *message,
                                  const Shardgrad__V1__OrderResponse *response);

/* --- coordinator_generation.c ----------------------------------------------------------------------------------- */

/* May the job go on when a ps is lost? */
bool sg_coordinator_generation_may_follow(const sg_coordinator *c);
/* Is the job on its way back to a checkpoint? */
bool sg_coordinator_generation_recovers(const sg_coordinator *c);
/* Begins a generation above this one and above `least`: all that this one was is dropped. `why` is a line. */
void sg_coordinator_generation_next(sg_coordinator *c, uint64_t least, const char *why);
/* The ps found the checkpoint damaged that this generation starts from: another begins, from an older one. False: that
 * is not for it to choose, the job is to fail. */
bool sg_coordinator_generation_damaged(sg_coordinator *c, uint32_t ps, const char *message);
/* Who says that it was in this generation, which the records do not know of, contradicts them: what ps 0 reads them
 * from is not the folder of the job. Fails the call, CONFIG; and the job, unless it has trained here: then it is a
 * stranger. role: "ps" or "worker". */
void sg_coordinator_generation_contradicted(sg_coordinator *c, const char *role, uint32_t index, const char *address,
                                            uint64_t generation, void *call);
/* Orders to a ps, which is up, what holds now. */
void sg_coordinator_generation_order(sg_coordinator *c, uint32_t ps);
/* Every ps may be there now. */
void sg_coordinator_generation_ready(sg_coordinator *c);
/* Of a call: generation of the incarnation that it names. */
uint64_t sg_coordinator_generation_of(uint64_t incarnation);
void sg_coordinator_generation_tick(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_generation_extend(sg_coordinator *c, uint64_t late_ms);
bool sg_coordinator_generation_advance(sg_coordinator *c);
void sg_coordinator_generation_recorded(sg_coordinator *c, const sg_coordinator_recorded *recorded);
/* The job makes checkpoints: its first generation is recorded, too. */
void sg_coordinator_generation_first(sg_coordinator *c);
/* From now on steps are handed out. */
void sg_coordinator_generation_run(sg_coordinator *c);
/* Not all of those that were there when ps 0 went have had the time to notice that it is back. */
bool sg_coordinator_generation_others_may_return(const sg_coordinator *c);
/* The first step waits for those that were at it: not where the job was started anew, perhaps with fewer workers, and
 * none of those who have come was in a generation before. */
bool sg_coordinator_generation_awaits_members(const sg_coordinator *c);
/* Have all asked for a ticket that the first step waits for? */
bool sg_coordinator_generation_all_asked(const sg_coordinator *c);

/* --- coordinator_ps.c ----------------------------------------------------------------------------------------- */

void sg_coordinator_ps_register(sg_coordinator *c, const Shardgrad__V1__RegisterRequest *request, void *call);
bool sg_coordinator_ps_complete(const sg_coordinator *c);
/* It has registered, and was not lost since. */
bool sg_coordinator_ps_is_up(const sg_coordinator_ps *ps);
/* Lets in every worker that may be let in. */
void sg_coordinator_ps_admit_all(sg_coordinator *c, uint32_t ps);
void sg_coordinator_ps_tick(sg_coordinator *c);
/* It is not there: the job waits for it, from now on if not before. */
void sg_coordinator_ps_miss(sg_coordinator *c, uint32_t ps);
/* The coordinator itself was late. */
void sg_coordinator_ps_extend(sg_coordinator *c, uint64_t late_ms);

/* --- coordinator_late.c ----------------------------------------------------------------------------------------- */

/* A registration of ps 0 has come. */
void sg_coordinator_late_heard(sg_coordinator *c);
/* Of the time since the last tick, in which the coordinator did not get to listen. Once for each tick. */
uint64_t sg_coordinator_late_ms(sg_coordinator *c);

/* --- coordinator_members.c ------------------------------------------------------------------------------------ */

void sg_coordinator_members_hello(sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, void *call);
bool sg_coordinator_members_answer_hello(sg_coordinator *c, const sg_coordinator_parked *call);
/* The incarnation of now does nothing more: it is excused from what it did not push (by group; NULL: from all that it
 * did not finish). Its index may come again. */
void sg_coordinator_members_fence(sg_coordinator *c, uint32_t worker, const uint64_t *pushed);
/* Its life goes on in the generation that begins, under another incarnation, if it says hello again. */
void sg_coordinator_members_recall(sg_coordinator *c, uint32_t worker);
/* Said hello, did not leave, lease not run out. */
bool sg_coordinator_members_live(const sg_coordinator_worker *worker);
uint32_t sg_coordinator_members_n_live(const sg_coordinator *c);
/* Takes anybody part in steps? */
bool sg_coordinator_members_any(const sg_coordinator *c);
/* Lets those in again who gave the generation up though no ps is lost. */
bool sg_coordinator_members_advance(sg_coordinator *c);

sg_coordinator_life sg_coordinator_life_of(const sg_coordinator *c, uint32_t worker);

/* --- coordinator_leases.c ------------------------------------------------------------------------------------- */

void sg_coordinator_leases_heartbeat(sg_coordinator *c, void *call);
/* What a worker says of the newest step that it finished; the caller sees that it counts once. */
void sg_coordinator_leases_report(sg_coordinator *c, sg_coordinator_worker *worker, float loss, uint64_t examples);
/* This life goes without having heard the answer to its hello: the lease that it would have is over. */
void sg_coordinator_leases_withdraw(sg_coordinator *c, uint64_t life, void *call);
/* Which of its tickets it says that it began, as it leaves or was late. */
void sg_coordinator_leases_note_begun(sg_coordinator *c, sg_coordinator_worker *worker,
                                      Shardgrad__V1__GroupProgress *const *list, size_t n);
void sg_coordinator_leases_leave(sg_coordinator *c, sg_coordinator_worker *worker,
                                 const Shardgrad__V1__LeaveRequest *request, void *call);
void sg_coordinator_leases_tick(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_leases_extend(sg_coordinator *c, uint64_t late_ms);

/* --- coordinator_losses.c --------------------------------------------------------------------------------------- */

/* The worker's lease ran out: on_worker_loss says what follows. */
void sg_coordinator_losses_lose(sg_coordinator *c, uint32_t worker);
/* The incarnation of now does nothing more, and did not leave: fences it, and excuses it or holds it back. */
void sg_coordinator_losses_take(sg_coordinator *c, uint32_t worker);
/* Its process drops what it has and goes on in the same generation under another incarnation: fences that of now, and
 * keeps its place in the steps that are frozen. */
void sg_coordinator_losses_return(sg_coordinator *c, uint32_t worker);
/* Is a loss held back? Then no step is opened and nobody becomes a member. */
bool sg_coordinator_losses_held(const sg_coordinator *c);
/* Is there a member, or one that is missed and may have pushed? */
bool sg_coordinator_losses_any_member(const sg_coordinator *c);
/* Of this worker. */
bool sg_coordinator_losses_holds(const sg_coordinator *c, uint32_t worker);
/* A ps has fenced a life, which may be one that is held back. */
void sg_coordinator_losses_fenced(sg_coordinator *c, const Shardgrad__V1__Excuse *excuse,
                                  const Shardgrad__V1__OrderResponse *response);
/* Excuses what is held back if there are enough workers now; wait: lets the next life of its index take its place. */
bool sg_coordinator_losses_advance(sg_coordinator *c);
/* A life of this index has left before it took the place of a lost one: which is excused as well. */
void sg_coordinator_losses_left(sg_coordinator *c, uint32_t worker);
void sg_coordinator_losses_tick(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_losses_extend(sg_coordinator *c, uint64_t late_ms);
/* For whom the job waits because of a loss; NULL: no loss is held back. */
const char *sg_coordinator_losses_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
void sg_coordinator_losses_clear(sg_coordinator *c);

/* --- coordinator_variables.c ---------------------------------------------------------------------------------- */

/* Is each valid, with a name of its own? Errors: INVALID, EXHAUSTED. */
SG_MUST_USE sg_status sg_coordinator_variables_check(const Shardgrad__V1__DeclareRequest *request, sg_error *err);
/* The plan of valid variables on this job's ps. Errors: as sg_plan_create. */
SG_MUST_USE sg_status sg_coordinator_variables_plan(const sg_coordinator *c,
                                                    const Shardgrad__V1__DeclareRequest *declared,
                                                    struct sg_plan **plan, sg_error *err);
/* Valid variables, of a declaration or of a checkpoint: is there a plan of them, which every ps will make, too, and do
 * the messages hold what is to be said of them? *n_groups: by the plan. Errors: INVALID, EXHAUSTED, CONFIG. */
SG_MUST_USE sg_status sg_coordinator_variables_fit(const sg_coordinator *c,
                                                   const Shardgrad__V1__DeclareRequest *declared, uint32_t *n_groups,
                                                   sg_error *err);
/* How often groups step: taken from the first declaration, compared with those after it. Errors: INVALID; MISMATCH
 * naming the group and both sides. */
SG_MUST_USE sg_status sg_coordinator_variables_take_every(sg_coordinator *c, uint32_t n_groups,
                                                          const Shardgrad__V1__DeclareRequest *request, sg_error *err);
/* MISMATCH naming the variable and both sides. */
SG_MUST_USE sg_status sg_coordinator_variables_compare(const Shardgrad__V1__DeclareRequest *known,
                                                       const Shardgrad__V1__DeclareRequest *request, sg_error *err);

/* --- coordinator_init.c ------------------------------------------------------------------------------------------- */

void sg_coordinator_init_declare(sg_coordinator *c, sg_coordinator_worker *worker,
                                 const Shardgrad__V1__DeclareRequest *request, void *call);
void sg_coordinator_init_initialized(sg_coordinator *c, sg_coordinator_worker *worker,
                                     const Shardgrad__V1__InitializedRequest *request, void *call);
bool sg_coordinator_init_answer_declare(sg_coordinator *c, const sg_coordinator_parked *call);
bool sg_coordinator_init_answer_initialized(sg_coordinator *c, const sg_coordinator_parked *call);
/* The worker is gone: if it was to initialize, another one is told. */
void sg_coordinator_init_gone(sg_coordinator *c, uint32_t worker);
void sg_coordinator_init_seal_refused(sg_coordinator *c, uint32_t ps, const char *message);
bool sg_coordinator_init_advance(sg_coordinator *c);
/* Tells a ps the variables, if they are known. */
void sg_coordinator_init_order_declare(sg_coordinator *c, uint32_t ps);

/* --- coordinator_steps.c -------------------------------------------------------------------------------------- */

/* The first iteration from this one on in which the group steps. */
uint64_t sg_coordinator_steps_iteration(const sg_coordinator *c, uint32_t group, uint64_t from);
sg_coordinator_step *sg_coordinator_steps_find(sg_coordinator *c, uint32_t group, uint64_t number);
/* The lowest step of the group, from `lowest` on, whose iteration is at least `from`; NULL if there is none yet. */
sg_coordinator_step *sg_coordinator_steps_from(sg_coordinator *c, uint32_t group, uint64_t lowest, uint64_t from);
/* Hands out the group's next step for this iteration; freezes the iteration if it is not. */
sg_coordinator_step *sg_coordinator_steps_open(sg_coordinator *c, uint32_t group, uint64_t iteration);
/* The worker has, or may have, pushed something of all steps before this one. */
void sg_coordinator_steps_begun(sg_coordinator *c, uint32_t group, uint32_t worker, uint64_t begun);
void sg_coordinator_steps_finished(sg_coordinator *c, uint32_t group, uint32_t worker, uint64_t finished);
/* Excuses this life from all frozen steps of which it is a member and which are >= pushed[group] (NULL: which it has
 * not finished), and fences it. */
void sg_coordinator_steps_excuse(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed);
/* The same for iterations below `before`. */
void sg_coordinator_steps_excuse_before(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed,
                                        uint64_t before);
/* Only fences it. */
void sg_coordinator_steps_fence(sg_coordinator *c, const sg_coordinator_life *life);
/* Forgets all steps and iterations. */
void sg_coordinator_steps_clear(sg_coordinator *c);

/* --- coordinator_tickets.c ------------------------------------------------------------------------------------ */

void sg_coordinator_tickets_ask(sg_coordinator *c, sg_coordinator_worker *worker,
                                const Shardgrad__V1__TicketRequest *request, void *call);
bool sg_coordinator_tickets_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* Lets training start when enough have asked. */
bool sg_coordinator_tickets_advance(sg_coordinator *c);
/* Distinct workers that asked for a ticket, or left before they did, of the `workers` with which training starts. */
uint32_t sg_coordinator_tickets_n_asked(const sg_coordinator *c);

/* --- coordinator_clocks.c ------------------------------------------------------------------------------------- */

/* Where the clock of one who asks for a ticket of the group for the first time starts. */
uint64_t sg_coordinator_clocks_start(const sg_coordinator *c, uint32_t group);
uint64_t sg_coordinator_clocks_of(const sg_coordinator_progress *progress);
/* May it have the next ticket of the group now? Notes how far ahead it is, if so. */
bool sg_coordinator_clocks_grant(sg_coordinator *c, uint32_t worker, uint32_t group);
/* For whom the request for a ticket waits; NULL: for no clock. */
const char *sg_coordinator_clocks_waiting(const sg_coordinator *c, const sg_coordinator_parked *call,
                                          char out[SG_ERROR_MESSAGE_BYTES]);

/* --- coordinator_norms.c -------------------------------------------------------------------------------------- */

void sg_coordinator_norms_ask(sg_coordinator *c, const Shardgrad__V1__NormsRequest *request, void *call);
bool sg_coordinator_norms_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* Where this configuration's updates take norms: do a ps's sums of these variables fit into one message, and those that
 * it is told? `plan` is that of the variables. Errors: CONFIG. */
SG_MUST_USE sg_status sg_coordinator_norms_fit(const Shardgrad__V1__DeclareRequest *declared,
                                               const struct sg_plan *plan, const sg_config *config, sg_error *err);
/* The same of the job's variables; fine where there are none yet. */
SG_MUST_USE sg_status sg_coordinator_norms_check(const sg_coordinator *c, const sg_config *config, sg_error *err);
/* For which ps the norms of a step wait, of any group or of one; NULL: for none. */
const char *sg_coordinator_norms_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
const char *sg_coordinator_norms_waiting_of(const sg_coordinator *c, uint32_t group, char out[SG_ERROR_MESSAGE_BYTES]);
/* A generation begins. */
void sg_coordinator_norms_forget(sg_coordinator *c);
void sg_coordinator_norms_deinit(sg_coordinator *c);

/* --- coordinator_lag.c -------------------------------------------------------------------------------------------- */

/* Sync: somebody is about to ask for a step of an iteration that was begun in another group. */
bool sg_coordinator_lag_any(const sg_coordinator *c);

/* --- coordinator_drain.c ------------------------------------------------------------------------------------------ */

/* It trains, or makes its last checkpoint. */
bool sg_coordinator_is_at_work(const sg_coordinator *c);
/* The job is to end: a last checkpoint is made first, and sg_coordinator_end_drained called then. False: none is. */
bool sg_coordinator_drain_begin(sg_coordinator *c, bool stop, uint32_t ps);
/* A ps was lost. True: while the last checkpoint was made, for which nobody is waited any more; that is the end. */
bool sg_coordinator_drain_give_up(sg_coordinator *c, const char *why);
/* Told to stop: the last one is not cut yet, because what was begun is about to be finished. */
bool sg_coordinator_drain_waits(const sg_coordinator *c);
/* It is cut now: no step is handed out any more. */
void sg_coordinator_drain_close(sg_coordinator *c);
/* True: it has come to its end. */
bool sg_coordinator_drain_advance(sg_coordinator *c);
/* Somebody came while the last checkpoint was being made: it was not the last. */
bool sg_coordinator_drain_call_off(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_drain_extend(sg_coordinator *c, uint64_t late_ms);

/* --- coordinator_end.c ---------------------------------------------------------------------------------------- */

/* The job has failed: every waiting and every later call is told so, and every ps. */
void sg_coordinator_end_fail(sg_coordinator *c, sg_status status, const char *format, ...) SG_PRINTF(3, 4);
/* A ps was told to stop. */
void sg_coordinator_end_stop(sg_coordinator *c, uint32_t ps);
/* The last checkpoint was made, or could not be. */
void sg_coordinator_end_drained(sg_coordinator *c, bool stop, uint32_t ps);
/* Begins the normal end if the last worker has left. */
void sg_coordinator_end_consider(sg_coordinator *c);
/* Fails a call with the job's end, and remembers that the worker (n_workers: nobody known) was told. */
void sg_coordinator_end_answer(sg_coordinator *c, void *call, uint32_t worker);
void sg_coordinator_end_advance(sg_coordinator *c);

/* --- coordinator_status.c ------------------------------------------------------------------------------------- */

void sg_coordinator_status_answer(sg_coordinator *c, void *call);

/* --- coordinator_waits.c -------------------------------------------------------------------------------------- */

/* For whom the job waits; "" for nobody. Returns out. */
const char *sg_coordinator_waits_job(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
/* For whom this call waits. */
const char *sg_coordinator_waits_parked(const sg_coordinator *c, const sg_coordinator_parked *call,
                                        char out[SG_ERROR_MESSAGE_BYTES]);
/* Does the job wait for a worker of this index to join? After a recovery for those that were at it, else as long as
 * others do not fill its place. */
bool sg_coordinator_waits_awaits(const sg_coordinator *c, uint32_t worker);
/* Says so in the log, at growing intervals. */
void sg_coordinator_waits_tick(sg_coordinator *c);

/* --- coordinator_evaluations.c --------------------------------------------------------------------------------------
 */

/* Adds what the worker reports, once for each iteration; NULL, and what cannot be, is passed over. */
void sg_coordinator_evaluations_take(sg_coordinator *c, uint32_t worker, const Shardgrad__V1__Evaluation *report);
void sg_coordinator_evaluations_forget(sg_coordinator *c);
/* Both [SG_COORDINATOR_EVALUATIONS]; returns how many there are, the oldest first. */
size_t sg_coordinator_evaluations_fill(const sg_coordinator *c, Shardgrad__V1__Evaluation *out,
                                       Shardgrad__V1__Evaluation **list);

#endif
