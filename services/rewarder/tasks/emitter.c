/*
 * The intent emitter: settles sealed runs one at a time, in sealing order. What it knows lies in the registry and on the
 * disk, so a new emitter goes on where a failed one stopped: settle.log says what is placed, the ledger says the rest.
 *
 * A run that cannot go on is held (its cause is visible) and steps aside for the next; the emitter probes from time to
 * time whether the cause is gone. Nothing is sent before the artifact writer has fired the run's seal.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/rng.h"
#include "base/siphash.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/trace.h"

enum {
    RUNS_MAX = 64,
    IDLE_MS = 500,
    SEAL_WAIT_MS = 30000,
    FUNDS_PROBE_MS = 5000,
    LANE_PROBE_MS = 1000,
    PROBE_MIN_MS = 1000,
    PROBE_MAX_MS = 5000
};

struct emitter {
    struct rewarder *r;
    struct rt_task *self;
    struct rng rng;
    int64_t ledger_probe_ns; /* when a ledger that held a run is asked again */
    bool ledger_away;
    uint64_t held_after; /* n of the last held run that was looked at; 0: all were */
};

/* One run being settled. */
struct emission {
    struct emitter *e;
    struct rewarder_run *run;
    struct rewarder_view *view;
    struct rewarder_chunk_place *places;
    uint64_t chunks, done;
    wide_u128 paid; /* with the chunks that are done */
    struct store_file *log;
    struct obs_span span;
};

/* ---- settle.log ---- */

static void set_done(struct rewarder_run_info *i, void *arg)
{
    const struct emission *m = arg;
    i->chunks_done = m->done;
    i->placed = m->paid;
}

/* A chunk is the ledger's; the registry learns it too. */
static void count_chunk(struct emission *m, uint32_t chunk)
{
    m->done++;
    m->paid += rewarder_chunk_amount(&m->view->table, chunk);
    rewarder_run_edit(&m->e->r->registry, m->run, set_done, m);
}

static void read_log(struct emission *m, bool recheck) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct rewarder *r = m->e->r;
    uint8_t rec[REWARDER_SETTLE_RECORD];
    uint64_t at = 0;
    size_t n;
    rewarder_path_run(&r->files, false, m->run->tenant, m->run->epoch, "settle.log", path);
    if (store_file_open(r->files.disk, path, STORE_WRITE | STORE_CREATE | (recheck ? STORE_TRUNC : 0),
                        &m->log) != ERR_OK)
        return; /* only a cache: without it every chunk is looked up */
    while (store_file_pread(m->log, rec, sizeof rec, at, &n) == ERR_OK && n == sizeof rec) {
        struct rewarder_settle_record s;
        if (rewarder_settle_decode(rec, &s) && s.chunk < m->chunks &&
            s.entries == rewarder_chunk_leaves(m->view->table.leaves, s.chunk))
            m->places[s.chunk] = (struct rewarder_chunk_place){s.entries, s.seq_start};
        at += n;
    }
    for (uint64_t c = 0; c < m->chunks; c++)
        if (m->places[c].seq_start != 0)
            count_chunk(m, (uint32_t)c);
    (void)!store_file_truncate(m->log, at);
}

static void placed(void *ctx, uint32_t chunk, uint64_t seq_start, uint64_t nonce) RT_BLOCKS
{
    struct emission *m = ctx;
    struct rewarder *r = m->e->r;
    uint8_t rec[REWARDER_SETTLE_RECORD];
    char text[64];
    rewarder_settle_encode(
        &(struct rewarder_settle_record){chunk, m->places[chunk].leaves, seq_start, nonce}, rec);
    if (m->log)
        (void)!store_file_append(m->log, rec, sizeof rec);
    count_chunk(m, chunk);
    snprintf(text, sizeof text, "chunk %" PRIu32 " from seq %" PRIu64, chunk, seq_start);
    rewarder_log_run(r, OBS_DEBUG, "emit.unit", m->run, text);
}

static bool must_stop(void *ctx)
{
    struct emission *m = ctx;
    return rt_task_stopping(m->e->self) || atomic_load_explicit(&m->run->halt, memory_order_relaxed) ||
           rewarder_config(m->e->r)->settlement_hold;
}

static void asked(void *ctx, unsigned units, int64_t took_ns, enum err err)
{
    struct emission *m = ctx;
    rewarder_trace_part(m->e->r, &m->span,
                        &(struct rewarder_trace_part){.name = "rewarder.request",
                                                      .key = "units",
                                                      .text = units == 2 ? STR("2") : STR("1"),
                                                      .took_ns = took_ns,
                                                      .err = err});
}

static void heard(void *ctx, const char *what, const char *detail)
{
    struct emission *m = ctx;
    struct rewarder *r = m->e->r;
    if (!strcmp(what, "resync")) {
        REWARDER_COUNT(r, resync, detail);
        rewarder_log_run(r, OBS_INFO, "emit.resync", m->run, detail);
    } else if (!strcmp(what, "refused")) {
        REWARDER_COUNT(r, units, "refused");
        rewarder_log_run(r, OBS_WARN, "emit.refused", m->run, detail);
    }
}

/* ---- what becomes of a run ---- */

struct words {
    const char *cause, *reason;
    int64_t now_ms;
};

static void set_cause(struct rewarder_run_info *i, void *arg)
{
    const struct words *w = arg;
    if (strcmp(i->cause, w->cause) || i->since_ms == 0)
        i->since_ms = w->now_ms;
    snprintf(i->cause, sizeof i->cause, "%s", w->cause);
    snprintf(i->reason, sizeof i->reason, "%s", w->reason);
    i->maybe_sent = true;
}

static void hold(struct emission *m, const char *cause)
{
    struct rewarder *r = m->e->r;
    struct words w = {cause, "", rewarder_now_ms(r)};
    bool known = rewarder_run_read(&r->registry, m->run).state == REWARDER_HELD;
    if (rewarder_run_move(&r->registry, m->run, REWARDER_EV_HOLD, set_cause, &w) == ERR_OK && !known)
        rewarder_log_run(r, OBS_WARN, "emit.held", m->run, cause);
    m->run->probe.at_ns = !strcmp(cause, "funds") ? deadline_in_ms(FUNDS_PROBE_MS).at_ns : 0;
    m->run->probe.heads = 0;
    if (!strcmp(cause, "ledger")) {
        m->e->ledger_away = true;
        m->e->ledger_probe_ns = deadline_in_ms(rng_between(&m->e->rng, PROBE_MIN_MS, PROBE_MAX_MS)).at_ns;
    }
}

/* Waits until the artifact writer says that the line is durable. */
static bool write_down(struct emitter *e, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder_receipt *rc = rewarder_receipt_create();
    o->receipt = rc;
    enum err err = rc ? rt_chan_send(e->r->notes, o, rewarder_send_deadline(e->r)) : ERR_NO_MEMORY;
    if (err != ERR_OK)
        rewarder_outcome_destroy(e->r, o);
    if (!rc)
        return false;
    do {
        rt_task_beat(e->self);
        err = rewarder_receipt_await(rc, deadline_in_ms(1000));
    } while (err == ERR_TIMEOUT);
    rewarder_receipt_leave(rc);
    return err == ERR_OK;
}

/* `refused`: JSON array of what the ledger refused, or NULL. */
static void quarantine(struct emission *m, const char *kind, const char *reason,
                       const char *refused) RT_BLOCKS
{
    struct rewarder *r = m->e->r;
    struct words w = {kind, reason, rewarder_now_ms(r)};
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_NOTE, m->run);
    if (rewarder_run_move(&r->registry, m->run, REWARDER_EV_QUARANTINE, set_cause, &w) != ERR_OK || !o) {
        if (o)
            rewarder_outcome_destroy(r, o);
        return;
    }
    rewarder_run_set_refused(&r->registry, m->run, str_from_c(refused ? refused : ""));
    const struct rewarder_run_info info = rewarder_run_read(&r->registry, m->run);
    rewarder_note_quarantined(m->run,
                              &(struct rewarder_quarantine){.n = info.n,
                                                            .placed = info.placed,
                                                            .kind = kind,
                                                            .reason = reason,
                                                            .refused = refused,
                                                            .now_ms = w.now_ms},
                              &o->line);
    rewarder_count_quarantine(r, m->run);
    rewarder_log_run(r, OBS_ERROR, "run.quarantined", m->run, kind);
    (void)!write_down(m->e, o);
}

struct seqs {
    uint64_t first, last;
    int64_t now_ms;
};

static void set_settled(struct rewarder_run_info *i, void *arg)
{
    const struct seqs *s = arg;
    i->seq_first = s->first;
    i->seq_last = s->last;
    i->settled_at_ms = s->now_ms;
    i->recheck = false;
    i->cause[0] = '\0';
}

/* Every leaf has its place: settlement.json, the line, and only then `settled`. */
static void finish(struct emission *m, const struct rewarder_settle_result *res) RT_BLOCKS
{
    struct rewarder *r = m->e->r;
    const struct rewarder_run_info info = rewarder_run_read(&r->registry, m->run);
    struct rewarder_run_info done = info;
    if (!rewarder_settlement_is_bijection(m->places, m->chunks, m->view->table.leaves)) {
        quarantine(m, "settlement", "leaves and ledger sequence numbers are not one to one", NULL);
        return;
    }
    struct seqs s = {UINT64_MAX, 0, rewarder_now_ms(r)};
    for (uint64_t c = 0; c < m->chunks; c++) {
        uint64_t last = m->places[c].seq_start + m->places[c].leaves - 1;
        s.first = m->places[c].seq_start < s.first ? m->places[c].seq_start : s.first;
        s.last = last > s.last ? last : s.last;
    }
    if (m->chunks == 0)
        s.first = 0;
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_NOTE, m->run);
    if (!o)
        return;
    set_settled(&done, &s);
    rewarder_note_settled(m->run, &done, &o->line);
    rewarder_settlement_write(&(struct rewarder_settlement){.tenant = str_from_c(m->run->tenant),
                                                            .epoch = str_from_c(m->run->epoch),
                                                            .run_key = info.run_key,
                                                            .root = info.root,
                                                            .places = m->places,
                                                            .chunks = m->chunks,
                                                            .tree_size = res->tree_size,
                                                            .ledger_root = res->ledger_root},
                              &o->settlement);
    if (!write_down(m->e, o))
        return; /* still emitting: the next pass finds everything placed and tries again */
    if (rewarder_run_move(&r->registry, m->run, REWARDER_EV_SETTLE, set_settled, &s) != ERR_OK)
        return;
    /* Only we have seen this view so far: complete it, then show it to readers. */
    free(m->view->places);
    m->view->places = m->places;
    m->places = NULL;
    rewarder_run_set_view(&r->registry, m->run, m->view);
    rewarder_view_rest(m->view);
    REWARDER_COUNT(r, runs, "settled");
    rewarder_log_run(r, OBS_INFO, "run.settled", m->run, NULL);
}

static void list_refused(const struct rewarder_settle_result *res, struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    json_arr_begin(&w);
    for (unsigned i = 0; i < res->refusals; i++) {
        json_obj_begin(&w);
        json_put_u64(&w, "chunk", res->refused[i].chunk);
        json_put_cstr(&w, "reason", res->refused[i].reason);
        json_obj_end(&w);
    }
    json_arr_end(&w);
}

static void conclude(struct emission *m, const struct rewarder_settle_result *res) RT_BLOCKS
{
    struct rewarder *r = m->e->r;
    char list[REWARDER_REFUSED_CHARS] = "";
    struct buf refused;
    struct obs_family *units = r->metrics[REWARDER_M_units], *intents = r->metrics[REWARDER_M_transfers];
    obs_counter_add(OBS_COUNTER_OF(units, "committed"), res->committed.units);
    obs_counter_add(OBS_COUNTER_OF(units, "duplicate"), res->duplicates.units);
    obs_counter_add(OBS_COUNTER_OF(units, "error"), res->errors);
    obs_counter_add(OBS_COUNTER_OF(intents, "committed"), res->committed.leaves);
    obs_counter_add(OBS_COUNTER_OF(intents, "duplicate"), res->duplicates.leaves);
    switch (res->end) {
    case REWARDER_SETTLE_DONE:
        finish(m, res);
        break;
    case REWARDER_SETTLE_HOLD:
        hold(m, res->cause);
        break;
    case REWARDER_SETTLE_QUARANTINE:
        buf_init_fixed(&refused, list, sizeof list - 1);
        list_refused(res, &refused);
        list[refused.n] = '\0';
        quarantine(m, res->cause,
                   res->refusals ? "the ledger refused part of the run"
                                 : "the ledger holds other entries under this run's ids",
                   res->refusals && refused.err == ERR_OK ? list : NULL);
        break;
    case REWARDER_SETTLE_STOPPED:
        if (rewarder_config(r)->settlement_hold)
            hold(m, "switch");
        break;
    }
}

/* ---- one run ---- */

static void set_emitting(struct rewarder_run_info *i, void *arg)
{
    struct rewarder_run_info *before = arg;
    *before = *i;
    i->maybe_sent = true; /* from now on, whatever happens to us */
}

static void settle_view(struct emission *m) RT_BLOCKS
{
    struct rewarder *r = m->e->r;
    const struct rewarder_policy *p = m->view->policy->policy;
    struct rewarder_run_info before;
    struct rewarder_settle_result res;
    enum err e = rewarder_run_move(&r->registry, m->run, REWARDER_EV_EMIT, set_emitting, &before);
    if (e != ERR_OK)
        return; /* quarantined or settled meanwhile */
    char parent[OBS_TRACEPARENT_CHARS];
    read_log(m, before.recheck);
    rewarder_trace_begin(r, m->run, "rewarder.emit", &m->span);
    obs_traceparent_format(&m->span.self, parent);
    rewarder_log_run(r, OBS_INFO, before.maybe_sent ? "emit.resumed" : "emit.start", m->run, NULL);
    struct rewarder_settle_job job = {.tenant = str_from_c(m->run->tenant),
                                      .epoch = str_from_c(m->run->epoch),
                                      .funding = str_from_c(p->funding),
                                      .asset = str_from_c(p->asset),
                                      .run_key = before.run_key,
                                      .manifest = m->view->manifest_digest,
                                      .root = m->view->tree.root.hash,
                                      .sealed_at_ms = before.sealed_at_ms,
                                      .table = &m->view->table,
                                      .places = m->places,
                                      .maybe_sent = before.maybe_sent || before.recheck,
                                      .corr_id = str_from_c(m->run->corr_id),
                                      .traceparent = str_from_c(m->span.self.sampled ? parent : ""),
                                      .ctx = m,
                                      .stop = must_stop,
                                      .placed = placed,
                                      .asked = asked,
                                      .event = heard};
    int64_t began = os_now_ns();
    rewarder_settle(r->settler, &job, m->e->self, &res);
    obs_span_u64(&m->span, "committed", res.committed.units);
    obs_span_u64(&m->span, "duplicate", res.duplicates.units);
    if (res.end != REWARDER_SETTLE_DONE && res.cause)
        obs_span_text(&m->span, "cause", str_from_c(res.cause));
    rewarder_trace_end(r, &m->span, res.end == REWARDER_SETTLE_DONE ? ERR_OK : ERR_UNAVAILABLE);
    obs_hist_observe(obs_hist(r->metrics[REWARDER_M_settle_seconds]), (double)(os_now_ns() - began) / 1e9);
    conclude(m, &res);
    store_file_close(m->log);
}

static void settle_run(struct emitter *e, struct rewarder_run *run) RT_BLOCKS
{
    struct rewarder *r = e->r;
    struct emission m = {.e = e, .run = run};
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    if (rewarder_config(r)->settlement_hold) {
        hold(&m, "switch");
        return;
    }
    /* Hash everything again before the first unit leaves. */
    const char *bad;
    enum err err = rewarder_view_open(
        &r->files, &(struct rewarder_view_spec){run->tenant, run->epoch, .rebuild_tree = true}, &m.view,
        &bad);
    if (err == ERR_OK && (!sha256_eq(&m.view->manifest_digest, &info.manifest_digest) ||
                          !sha256_eq(&m.view->tree.root.hash, &info.root)))
        err = ERR_ARTIFACT_CORRUPT;
    if (err == ERR_NO_MEMORY) {
        rewarder_view_unref(m.view);
        return;
    }
    if (err != ERR_OK) {
        bad = bad ? bad : "run.json"; /* whole in itself, but not what was sealed */
        REWARDER_COUNT(r, corrupt, bad);
        rewarder_log_run(r, OBS_ERROR, "artifact.corrupt", run, bad);
        quarantine(&m, "artifact", rewarder_view_words(err), NULL);
        rewarder_view_unref(m.view);
        return;
    }
    m.chunks = rewarder_chunk_count(m.view->table.leaves);
    m.places = calloc(m.chunks ? m.chunks : 1, sizeof *m.places);
    if (m.places)
        settle_view(&m);
    free(m.places);
    rewarder_view_unref(m.view);
}

/* ---- which run is next ---- */

/* Somebody else wrote our lanes. Going on while they do would only collide again: the heads must have been still for a while. */
static bool lanes_are_still(struct emitter *e, struct rewarder_run *run,
                            const struct rewarder_run_info *info) RT_BLOCKS
{
    struct rewarder_funds now;
    if (rewarder_settler_funds(e->r->settler, str_from_c(info->funding), str_from_c(info->asset), e->self,
                               &now) != ERR_OK)
        return false;
    uint64_t heads = siphash13(siphash_process_key(), now.lane_heads, sizeof now.lane_heads) | 1;
    if (heads != run->probe.heads) {
        run->probe.heads = heads;
        run->probe.still_ns = os_now_ns();
    }
    int64_t still_ms = (os_now_ns() - run->probe.still_ns) / 1000000;
    return still_ms >= atomic_load_explicit(&e->r->lane_still_ms, memory_order_relaxed);
}

/* Whether a held run may be tried again now. */
static bool cause_gone(struct emitter *e, struct rewarder_run *run,
                       const struct rewarder_run_info *info) RT_BLOCKS
{
    if (!strcmp(info->cause, "switch"))
        return !rewarder_config(e->r)->settlement_hold;
    if (!strcmp(info->cause, "ledger"))
        return !e->ledger_away;
    if (os_now_ns() < run->probe.at_ns)
        return false;
    if (!strcmp(info->cause, "funds"))
        return true; /* settling begins by asking for the balance */
    run->probe.at_ns = deadline_in_ms(LANE_PROBE_MS).at_ns;
    return lanes_are_still(e, run, info);
}

static void probe_ledger(struct emitter *e) RT_BLOCKS
{
    if (!e->ledger_away || os_now_ns() < e->ledger_probe_ns)
        return;
    if (rewarder_settler_ready(e->r->settler, e->self))
        e->ledger_away = false;
    else
        e->ledger_probe_ns = deadline_in_ms(rng_between(&e->rng, PROBE_MIN_MS, PROBE_MAX_MS)).at_ns;
    obs_health_set(svc_health(e->r->svc), e->r->cause_ledger, !e->ledger_away);
}

static void settle_if_it_can_be(struct emitter *e, struct rewarder_run *run,
                                const struct rewarder_run_info *info) RT_BLOCKS
{
    bool go = !rt_task_stopping(e->self) && !atomic_load(&run->halt) &&
              (info->state != REWARDER_HELD || cause_gone(e, run, info)) &&
              !(e->ledger_away && info->state != REWARDER_HELD);
    if (go)
        settle_run(e, run);
    else if (e->ledger_away && info->state == REWARDER_SEALED && !rt_task_stopping(e->self))
        hold(&(struct emission){.e = e, .run = run}, "ledger");
    rt_task_beat(e->self);
}

/* All of them, however many: a run that is held stands in nobody's way. While held ones are looked at, one that comes goes first. */
static void settle_all(struct emitter *e, bool held) RT_BLOCKS
{
    struct rewarder_run *runs[RUNS_MAX];
    uint64_t after = held ? e->held_after : 0;
    size_t n;
    do {
        n = rewarder_registry_unsettled(&e->r->registry, held, after, runs, RUNS_MAX);
        for (size_t i = 0; i < n; i++) {
            struct rewarder_run_info info = rewarder_run_read(&e->r->registry, runs[i]);
            if (!held || rt_chan_depth(e->r->intents) == 0) {
                settle_if_it_can_be(e, runs[i], &info);
                after = info.n;
            }
            rewarder_run_unref(runs[i]);
        }
    } while (n > 0 && !(held && rt_chan_depth(e->r->intents) > 0));
    if (held)
        e->held_after = n > 0 ? after : 0;
}

/* A handle says that a run is on its way; it is emitted once its seal has fired. */
static void await_seal(struct emitter *e, struct rewarder_run *run) RT_BLOCKS
{
    void *value;
    struct deadline by = deadline_in_ms(SEAL_WAIT_MS);
    enum rewarder_state s = rewarder_run_read(&e->r->registry, run).state;
    while (s == REWARDER_COMPUTING && !deadline_passed(by) && !rt_task_canceled(e->self)) {
        if (rt_oneshot_recv(&run->sealed, deadline_min(by, deadline_in_ms(1000)), &value) == ERR_OK)
            break;
        rt_task_beat(e->self);
        s = rewarder_run_read(&e->r->registry, run).state;
    }
    rewarder_run_unref(run);
}

enum err rewarder_emitter_run(struct rt_task *self, void *arg)
{
    struct emitter e = {.r = arg, .self = self};
    rng_seed(&e.rng, (uint64_t)os_now_ns());
    for (;;) {
        void *item;
        rt_task_beat(self);
        enum err err = rt_chan_recv(e.r->intents, deadline_in_ms(IDLE_MS), &item);
        if (err == ERR_OK)
            await_seal(&e, item);
        else if (err != ERR_TIMEOUT)
            return err == ERR_CLOSED ? ERR_OK : err;
        if (rt_task_stopping(self))
            continue;
        if (!e.r->ledger)
            e.ledger_away = true;
        else
            probe_ledger(&e);
        settle_all(&e, false);
        settle_all(&e, true);
    }
}
