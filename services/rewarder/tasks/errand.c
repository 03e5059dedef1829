/* Short jobs that need the disk or the ledger: opening a run for a reader, emitting again, quarantine and release. */
#include <stdio.h>

#include "base/json_write.h"
#include "services/rewarder/tasks/worker.h"

static void problem(struct rewarder_item *it, enum err e, const char *detail)
{
    if (it->rq)
        net_reply_problem(it->rq, e, "%s", detail);
    it->rq = NULL;
}

/* ---- opening ---- */

static void tell_corrupt(struct rewarder_item *it, enum err e, const char *file)
{
    char details[64];
    int n = snprintf(details, sizeof details, "{\"file\":\"%s\"}", file);
    if (e == ERR_NO_MEMORY)
        problem(it, ERR_UNAVAILABLE, "out of memory");
    else if (it->rq)
        net_reply_problem_details(it->rq, ERR_ARTIFACT_CORRUPT, rewarder_view_words(e),
                                  bytes_of(details, (size_t)n));
    it->rq = NULL;
}

static void open_for_reader(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS
{
    struct rewarder_run *run = it->run;
    struct rewarder_view *v = rewarder_run_view(&r->registry, run);
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    const char *bad = NULL;
    enum err e = v ? ERR_OK
                   : rewarder_view_open(
                         &r->files, &(struct rewarder_view_spec){run->tenant, run->epoch, run->dry, false},
                         &v, &bad);
    if (e == ERR_OK && !run->dry && !sha256_eq(&v->manifest_digest, &info.manifest_digest)) {
        rewarder_view_unref(v);
        e = ERR_ARTIFACT_CORRUPT; /* whole in itself, but not what was sealed */
        bad = "run.json";
    }
    if (bad) {
        REWARDER_COUNT(r, corrupt, bad);
        rewarder_log_run(r, OBS_ERROR, "artifact.corrupt", run, bad);
    }
    if (e != ERR_OK) {
        tell_corrupt(it, e, bad ? bad : "seal.json");
        return;
    }
    rewarder_run_set_view(&r->registry, run, v);
    rewarder_view_unref(v);
    struct net_req *rq = it->rq;
    it->rq = NULL;
    it->again(rq, r);
}

/* ---- emit ---- */

static void set_recheck(struct rewarder_run_info *i, void *arg)
{
    i->recheck = i->maybe_sent = true;
    i->chunks_done = 0;
    i->placed = 0;
    (void)arg;
}

static void emit(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS
{
    struct rewarder_run *run = it->run;
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    if (info.state == REWARDER_SETTLED && !it->recheck) {
        rewarder_reply_run(r, it->rq, 200, run);
        it->rq = NULL;
        return;
    }
    if (!rewarder_state_has_files(info.state)) {
        problem(it, ERR_NOT_EMITTABLE, "the run cannot be emitted in its state");
        return;
    }
    if (info.state == REWARDER_SETTLED)
        (void)!rewarder_run_move(&r->registry, run, REWARDER_EV_RECHECK, set_recheck, NULL);
    else if (it->recheck)
        rewarder_run_edit(&r->registry, run, set_recheck, NULL);
    if (rt_chan_send(r->intents, rewarder_run_ref(run), deadline_in_ms(1000)) != ERR_OK) {
        rewarder_run_unref(run);
        problem(it, ERR_UNAVAILABLE, "the emitter is not taking work");
        return;
    }
    rewarder_reply_run(r, it->rq, 202, run);
    it->rq = NULL;
}

/* ---- quarantine and release ---- */

struct words {
    const char *kind, *reason;
    int64_t now_ms;
};

static void set_quarantine(struct rewarder_run_info *i, void *arg)
{
    const struct words *w = arg;
    snprintf(i->cause, sizeof i->cause, "%s", w->kind);
    snprintf(i->reason, sizeof i->reason, "%s", w->reason);
    i->since_ms = w->now_ms;
    i->details[0] = '\0';
}

static void set_resumed(struct rewarder_run_info *i, void *arg)
{
    (void)arg;
    i->maybe_sent = true;
    i->details[0] = '\0';
}

/* One line of registry.log; the request is answered by the artifact writer once it is durable. */
static void note(struct rewarder *r, struct rewarder_item *it, struct rewarder_outcome *o,
                 int status) RT_BLOCKS
{
    o->status = status;
    o->rq = it->rq;
    it->rq = NULL;
    if (rt_chan_send(r->results, o, rewarder_send_deadline(r)) == ERR_OK)
        return;
    if (o->rq)
        net_reply_problem(o->rq, ERR_UNAVAILABLE, "it could not be written in time");
    o->rq = NULL;
    rewarder_outcome_destroy(r, o);
}

static void refuse_quarantine(struct rewarder *r, struct rewarder_item *it, enum err e,
                              enum rewarder_state state)
{
    if (e == ERR_NO_MEMORY)
        problem(it, ERR_UNAVAILABLE, "out of memory");
    else if (state == REWARDER_SETTLED)
        problem(it, ERR_CONFLICT, "the run is settled: what was paid stays paid");
    else if (it->rq && state == REWARDER_QUARANTINED)
        rewarder_reply_conflict(r, it->rq, it->run);
    else if (it->rq)
        rewarder_reply_not_sealed(it->rq, state);
    it->rq = NULL;
}

static void quarantine(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS
{
    struct words w = {"operator", it->reason, rewarder_now_ms(r)};
    struct rewarder_run_info info = rewarder_run_read(&r->registry, it->run);
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_NOTE, it->run);
    enum err e = o ? rewarder_run_move(&r->registry, it->run, REWARDER_EV_QUARANTINE, set_quarantine, &w)
                   : ERR_NO_MEMORY;
    if (e != ERR_OK) {
        atomic_store(&it->run->halt, false);
        refuse_quarantine(r, it, e, info.state);
        if (o)
            rewarder_outcome_destroy(r, o);
        return;
    }
    obs_log(r->log, OBS_WARN, "run.quarantined", OBS_STR("tenant", (const char *)it->run->tenant),
            OBS_STR("epoch", (const char *)it->run->epoch), OBS_STR("kind", "operator"),
            OBS_STR("actor", (const char *)it->actor), OBS_STR("reason", (const char *)it->reason),
            OBS_END);
    rewarder_tell_run(r, "run.quarantined", it->run, "operator");
    rewarder_count_quarantine(r, it->run);
    rewarder_note_quarantined(it->run,
                              &(struct rewarder_quarantine){.n = info.n,
                                                            .placed = info.placed,
                                                            .kind = "operator",
                                                            .reason = it->reason,
                                                            .now_ms = w.now_ms},
                              &o->line);
    note(r, it, o, 200);
}

static void resume(struct rewarder *r, struct rewarder_item *it) RT_BLOCKS
{
    struct rewarder_run_info info = rewarder_run_read(&r->registry, it->run);
    bool breached = !strcmp(info.cause, "conservation") || !strcmp(info.cause, "overflow");
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_NOTE, it->run);
    enum err e = !o                                               ? ERR_NO_MEMORY
                 : info.state != REWARDER_QUARANTINED || breached ? ERR_CONFLICT
                                                                  : ERR_OK;
    if (e == ERR_OK)
        e = rewarder_run_move(&r->registry, it->run, REWARDER_EV_RESUME, set_resumed, NULL);
    if (e != ERR_OK) {
        problem(it, ERR_CONFLICT,
                breached ? "a run that broke an invariant can only be discarded"
                         : "the run is not quarantined");
        if (o)
            rewarder_outcome_destroy(r, o);
        return;
    }
    atomic_store(&it->run->halt, false);
    obs_log(r->log, OBS_WARN, "run.released", OBS_STR("tenant", (const char *)it->run->tenant),
            OBS_STR("epoch", (const char *)it->run->epoch), OBS_STR("actor", (const char *)it->actor),
            OBS_STR("reason", (const char *)it->reason), OBS_END);
    rewarder_tell_run(r, "run.released", it->run, "operator");
    rewarder_run_set_refused(&r->registry, it->run, STR(""));
    rewarder_note_simple(it->run, info.n, "released", it->reason, &o->line);
    note(r, it, o, 202);
    if (rt_chan_send(r->intents, rewarder_run_ref(it->run), deadline_in_ms(1000)) != ERR_OK)
        rewarder_run_unref(it->run); /* the emitter finds it in the registry */
}

static void discard(struct rewarder *r, struct rt_task *self, struct rewarder_item *it) RT_BLOCKS
{
    struct rewarder_run_info info = rewarder_run_read(&r->registry, it->run);
    bool known = false;
    if (info.state != REWARDER_QUARANTINED) {
        problem(it, ERR_CONFLICT, "the run is not quarantined");
        return;
    }
    if (info.leaves) {
        struct rewarder_settler *reader = r->ledger ? rewarder_worker_reader(r, self) : NULL;
        enum err e =
            reader ? rewarder_settler_knows(reader, str_from_c(it->run->tenant), str_from_c(it->run->epoch),
                                            &info.run_key, rewarder_chunk_count(info.leaves), self, &known)
                   : ERR_LEDGER_UNAVAILABLE;
        if (e != ERR_OK || known) {
            problem(it, known ? ERR_PARTIALLY_SETTLED : ERR_LEDGER_UNAVAILABLE,
                    known ? "the ledger holds units of this run"
                          : "the ledger must say that it knows none of the run's units");
            return;
        }
    }
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_NOTE, it->run);
    if (!o || rewarder_run_move(&r->registry, it->run, REWARDER_EV_DISCARD, NULL, NULL) != ERR_OK) {
        problem(it, ERR_CONFLICT, "the run is not quarantined any more");
        if (o)
            rewarder_outcome_destroy(r, o);
        return;
    }
    obs_log(r->log, OBS_WARN, "run.discarded", OBS_STR("tenant", (const char *)it->run->tenant),
            OBS_STR("epoch", (const char *)it->run->epoch), OBS_STR("actor", (const char *)it->actor),
            OBS_STR("reason", (const char *)it->reason), OBS_END);
    rewarder_tell_run(r, "run.discarded", it->run, "operator");
    rewarder_note_simple(it->run, info.n, "discarded", it->reason, &o->line);
    o->discard = true;
    note(r, it, o, 200);
}

void rewarder_worker_errand(struct rewarder *r, struct rt_task *self, struct rewarder_item *it)
{
    if (it->kind == REWARDER_READ)
        open_for_reader(r, it);
    else if (it->kind == REWARDER_EMIT)
        emit(r, it);
    else if (!it->release)
        quarantine(r, it);
    else if (it->discard)
        discard(r, self, it);
    else
        resume(r, it);
}
