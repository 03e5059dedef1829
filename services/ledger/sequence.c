/*
 * One round: sort what came together, expire what is due, judge unit by unit on the ahead state, give out seqs.
 *
 * A job gets a commit slot, journal room and room in the generation before any of its units is judged, so that what has a seq
 * always reaches the committer. A refusal never burns a seq: seqs are given after the verdict.
 *
 * Round order: (ts, id bytewise) of each job's first entry; units keep the request's order, entries the unit's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/ledger.h"

uint64_t ledger_now_ms(struct ledger *l)
{
    const struct clock *c = l->deps.clock;
    int64_t wall = c->wall_ms(c->ctx);
    uint64_t now = ledger_time_now(&l->time, c->mono_ns(c->ctx), wall < 0 ? 0 : (uint64_t)wall);
    atomic_store_explicit(&l->ledger_ms, now, memory_order_release);
    return now;
}

static int job_order(const void *a, const void *b)
{
    const struct ledger_job *x = *(struct ledger_job *const *)a, *y = *(struct ledger_job *const *)b;
    const struct core_entry *e = &x->units[0].u.entries[0], *f = &y->units[0].u.entries[0];
    if (e->ts != f->ts)
        return e->ts < f->ts ? -1 : 1;
    return str_cmp(e->id, f->id);
}

static void refuse(struct ledger_round *r, struct ledger_job *job, enum err err, const char *key,
                   const char *why)
{
    ledger_job_refuse(job, err, key, why);
    r->refused[r->n_refused++] = job;
}

static struct ledger_gen *open_gen(struct ledger *l)
{
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct ledger_gen *g = ledger_view_open_gen(v);
    ledger_view_unpin(v); /* the index itself keeps the open one */
    return g;
}

/* Freezes `g` (NULL: there is none yet) and opens the next; NULL when as many wait for the checkpointer as memory may hold. */
static struct ledger_gen *next_gen(struct ledger *l, const struct ledger_gen *g)
{
    if (!l->set.amnesia && g != NULL &&
        atomic_load_explicit(&l->frozen_gens, memory_order_acquire) >= LEDGER_GENS_FROZEN_MAX)
        return NULL;
    uint32_t capacity = l->set.checkpoint_entries + CORE_UNIT_ENTRIES_MAX;
    if (l->set.amnesia && capacity < l->set.amnesia_max_entries / 32)
        capacity = (uint32_t)(l->set.amnesia_max_entries / 32);
    if (ledger_index_open_generation(&l->index, ++l->gen_number, l->next_seq, capacity) != ERR_OK)
        return NULL;
    if (g != NULL)
        atomic_fetch_add_explicit(&l->frozen_gens, 1, memory_order_acq_rel);
    return open_gen(l);
}

/* The open generation, with room for n more entries; NULL when there can be none now. */
static struct ledger_gen *gen_for(struct ledger *l, uint32_t n)
{
    struct ledger_gen *g = open_gen(l);
    return g != NULL && ledger_gen_room(g) >= n ? g : next_gen(l, g);
}

static uint64_t job_bytes(const struct ledger_job *job)
{
    uint64_t n = GROUP_PADDING; /* it may become a group of its own, padded */
    for (uint32_t i = 0; i < job->n_units; i++)
        n += job->units[i].p.len;
    return n;
}

static bool journal_has_room(struct ledger *l, uint64_t bytes)
{
    struct store_room room = store_sink_room(l->sink);
    uint64_t inflight = atomic_load_explicit(&l->inflight_bytes, memory_order_acquire);
    uint64_t frame_max = l->set.commit_max_bytes + GROUP_PADDING;
    return inflight + bytes + frame_max <= room.active + room.spare;
}

bool ledger_has_room(struct ledger *l)
{
    return journal_has_room(l, (uint64_t)l->set.commit_max_bytes);
}

struct judging {
    struct ledger *l;
    struct ledger_gen *gen;
    struct ledger_view *now; /* pinned for the round */
    uint64_t now_ms;
};

static bool is_known(const struct judging *j, const struct ledger_job *job, struct core_key key, bool unit,
                     struct ledger_found *out)
{
    return ledger_view_grown(job->view, j->now, key, unit, out);
}

static void reject(struct ledger_job_unit *u, enum err reason)
{
    u->verdict = VERDICT_REJECTED;
    u->reject = (struct ledger_reject){.reason = reason};
}

static void accept(const struct judging *j, struct ledger_job *job, struct ledger_job_unit *u)
{
    struct ledger *l = j->l;
    u->verdict = VERDICT_COMMITTED;
    u->seq = l->next_seq;
    u->n = u->u.n;
    u->gen = j->gen;
    u->gen_unit = ledger_gen_add_unit(j->gen, u->p.idem_key, &u->p.fp, u->seq, u->n);
    for (uint32_t i = 0; i < u->n; i++)
        ledger_gen_add_entry(j->gen, u->p.entries[i].id_key, u->seq + i, u->gen_unit, u->u.entries[i].kind);
    l->next_seq += u->n;
    job->gen = j->gen;
    job->payload_bytes += u->p.len;
    job->new_entries += u->n;
}

/* A hold that opened and closed since the prevalidator looked is in no fact; the generations know it. */
static void closed_hold_seen(const struct judging *j, const struct ledger_job *job,
                             struct ledger_job_unit *u)
{
    const struct core_entry *e = &u->u.entries[u->reject.entry];
    struct ledger_found f;
    if (u->reject.reason != ERR_REF_NOT_FOUND || (e->kind != CORE_CAPTURE && e->kind != CORE_RELEASE))
        return;
    if (is_known(j, job, u->p.entries[u->reject.entry].ref_key, false, &f) && f.kind == CORE_HOLD) {
        u->reject.reason = ERR_HOLD_CLOSED;
        u->reject.why = "spent";
    }
}

static void judge_unit(const struct judging *j, struct ledger_job *job, struct ledger_job_unit *u)
{
    struct ledger *l = j->l;
    struct ledger_found f;
    if (is_known(j, job, u->p.idem_key, true, &f)) {
        if (!f.young) { /* the same or another: only the journal can tell, and we do not read it. The next try has a newer view */
            reject(u, ERR_BUSY);
            u->reject.why = "checkpoint";
            return;
        }
        if (!sha256_eq(&f.fp, &u->p.fp)) {
            reject(u, ERR_CONFLICT);
            u->reject.number = f.seq;
            return;
        }
        u->verdict = VERDICT_DUPLICATE;
        u->seq = f.seq;
        u->n = f.n;
        u->place_known = false;
        return;
    }
    for (uint32_t i = 0; i < u->u.n; i++)
        if (is_known(j, job, u->p.entries[i].id_key, false, &f)) {
            reject(u, ERR_ID_EXISTS);
            u->reject.entry = i;
            u->reject.has_entry = true;
            return;
        }
    if (u->u.not_after != 0 && j->now_ms > u->u.not_after) {
        reject(u, ERR_EXPIRED);
        u->reject.number = j->now_ms;
        return;
    }
    enum err err = ledger_state_apply(l->state, &u->u, &u->p, u->facts, l->next_seq, j->now_ms,
                                      &l->set.limits, u->fx, &u->n_fx, &u->reject);
    if (err == ERR_OK) {
        accept(j, job, u);
        return;
    }
    u->verdict = VERDICT_REJECTED;
    closed_hold_seen(j, job, u);
}

static void judge_job(struct ledger *l, struct ledger_job *job, struct ledger_gen *gen, uint64_t now_ms)
{
    struct judging j = {l, gen, ledger_index_pin(&l->index), now_ms};
    for (uint32_t i = 0; i < job->n_units; i++) {
        if (i + 4 < job->n_units) {
            const struct ledger_job_unit *soon = &job->units[i + 4];
            ledger_gen_prefetch(gen, soon->p.idem_key, soon->p.entries[0].id_key);
            ledger_state_prefetch_accounts(l->state, &soon->u, &soon->p);
        }
        if (i + 2 < job->n_units)
            ledger_state_prefetch_rows(l->state, &job->units[i + 2].u, &job->units[i + 2].p);
        if (job->units[i].verdict == VERDICT_NONE)
            judge_unit(&j, job, &job->units[i]);
    }
    ledger_view_unpin(j.now);
    atomic_fetch_add_explicit(&l->inflight_bytes,
                              job->payload_bytes + (job->new_entries ? GROUP_PADDING : 0),
                              memory_order_release);
}

/* ---- jobs of the ledger's own ---- */

static void own_answer(struct ledger_job *job)
{
    ledger_job_free(job); /* nobody waits */
}

static const struct ledger_job_ops own_ops = {NULL, own_answer};

static struct ledger_job *own_job(struct ledger *l)
{
    struct ledger_job *job = ledger_job_take(&l->jobs, l);
    if (job != NULL) {
        job->ops = &own_ops;
        job->own = true;
    }
    return job;
}

/*
 * A checkpoint was asked for: the open generation ends here, with however little is in it. The job that says so has no unit; it comes
 * to the committer behind the generation's last entry, and there the generation is handed over. NULL: nothing was asked or is to
 * be written, or it has to wait; then it stays asked for.
 */
static struct ledger_job *end_generation(struct ledger *l)
{
    if (!atomic_load_explicit(&l->want_gen, memory_order_acquire))
        return NULL;
    struct ledger_gen *g = open_gen(l);
    if (g == NULL || l->set.amnesia) {
        atomic_store_explicit(&l->want_gen, false, memory_order_release);
        return NULL;
    }
    struct ledger_job *job = own_job(l);
    if (job == NULL)
        return NULL;
    job->gen = ledger_gen_last_seq(g) >= g->first_seq ? next_gen(l, g) : g;
    if (job->gen == NULL) {
        ledger_job_free(job);
        return NULL;
    }
    atomic_store_explicit(&l->want_gen, false, memory_order_release);
    return job;
}

/* ---- expiry ---- */

enum { EXPIRE_BYTES = 1024 }; /* no expire record is longer */

static bool expire_unit(struct ledger_job *job, struct ledger_job_unit *u, const struct ledger_due *due,
                        uint64_t now_ms)
{
    char text[40];
    int n = snprintf(text, sizeof text, "_expire:%llu", (unsigned long long)due->seq);
    struct core_entry *e = arena_zalloc(&job->arena, sizeof *e);
    struct str id;
    if (e == NULL || !arena_str(&job->arena, str_of(text, (size_t)n), &id) ||
        !arena_str(&job->arena, due->id, &e->ref_id) ||
        !arena_str(&job->arena, due->account, &e->account) ||
        !arena_str(&job->arena, due->asset, &e->asset))
        return false;
    e->id = id;
    e->kind = CORE_EXPIRE;
    e->ts = now_ms;
    e->amount = due->remaining;
    u->u = (struct core_unit){id, {NULL, 0}, 0, e, 1};
    u->p.entries = arena_alloc(&job->arena, sizeof *u->p.entries);
    u->p.record = arena_alloc(&job->arena, ledger_record_bound(&u->u, &job->who));
    u->fx = arena_alloc(&job->arena, EFFECTS_PER_ENTRY * sizeof *u->fx);
    if (u->p.entries == NULL || u->p.record == NULL || u->fx == NULL)
        return false;
    ledger_record_build(&u->u, &job->who, true, &u->p);
    return true;
}

/* A job of the ledger's own that closes what is due; NULL when nothing is, or there is no room for it now. */
static struct ledger_job *expire_due(struct ledger *l, uint64_t now_ms)
{
    struct ledger_due due;
    if (!ledger_state_due(l->state, now_ms, &due) || !journal_has_room(l, EXPIRE_BYTES + GROUP_PADDING))
        return NULL;
    struct ledger_gen *gen = gen_for(l, ROUND_EXPIRE_MAX);
    struct ledger_job *job = gen == NULL ? NULL : own_job(l);
    if (job == NULL)
        return NULL;
    job->view = ledger_index_pin(&l->index);
    job->units = arena_array(&job->arena, ROUND_EXPIRE_MAX, sizeof *job->units);
    while (job->units != NULL && job->n_units < ROUND_EXPIRE_MAX &&
           ledger_state_due(l->state, now_ms, &due)) {
        struct ledger_job_unit *u = &job->units[job->n_units];
        if (!journal_has_room(l, job->payload_bytes + EXPIRE_BYTES + GROUP_PADDING) ||
            !expire_unit(job, u, &due, now_ms))
            break;
        struct judging j = {l, gen, job->view, now_ms};
        enum err err = ledger_state_apply(l->state, &u->u, &u->p, NULL, l->next_seq, now_ms, &l->set.limits,
                                          u->fx, &u->n_fx, &u->reject);
        CHECK(err == ERR_OK); /* the state itself said it was due */
        job->n_units++;
        job->n_entries++;
        accept(&j, job, u);
    }
    if (job->n_units == 0) {
        ledger_job_free(job);
        return NULL;
    }
    atomic_fetch_add_explicit(&l->inflight_bytes, job->payload_bytes + GROUP_PADDING, memory_order_release);
    if (l->m[LEDGER_M_holds_expired] != NULL)
        obs_counter_add(obs_counter(l->m[LEDGER_M_holds_expired]), job->n_units);
    obs_log(l->deps.log, OBS_INFO, "holds_expired", OBS_U64("n", job->n_units),
            OBS_U64("ledger_ms", now_ms), OBS_END);
    return job;
}

/* ---- the round ---- */

static bool room_in_memory(struct ledger *l, uint32_t n)
{
    if (!l->set.amnesia)
        return true;
    return l->next_seq - 1 + n <= l->set.amnesia_max_entries;
}

static void sequence_job(struct ledger *l, struct ledger_round *r, struct ledger_job *job, uint64_t now_ms,
                         uint32_t *slots)
{
    if (*slots == 0) {
        if (l->m[LEDGER_M_busy_rejections] != NULL)
            obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "commit"));
        refuse(r, job, ERR_BUSY, "queue", "commit");
    } else if (deadline_passed(job->by)) {
        refuse(r, job, ERR_TIMEOUT, "op", "sequence");
    } else if (ledger_safe_cause(l) != CAUSE_NONE) {
        refuse(r, job, ERR_SAFE_MODE, NULL, NULL);
    } else if (!journal_has_room(l, job_bytes(job)) || !room_in_memory(l, job->n_entries)) {
        refuse(r, job, ERR_UNAVAILABLE, "disk", "full");
    } else {
        struct ledger_gen *gen = gen_for(l, job->n_entries);
        if (gen == NULL) {
            if (l->m[LEDGER_M_busy_rejections] != NULL)
                obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "checkpoint"));
            refuse(r, job, ERR_BUSY, "queue", "checkpoint");
            return;
        }
        judge_job(l, job, gen, now_ms);
        r->out[r->n_out++] = job;
        (*slots)--;
    }
}

static void put_own(struct ledger_round *r, struct ledger_job *job, uint32_t *slots)
{
    if (job == NULL)
        return;
    r->out[r->n_out++] = job;
    (*slots)--;
}

void ledger_sequence(struct ledger *l, struct ledger_round *r, uint32_t commit_slots)
{
    uint64_t now_ms = ledger_now_ms(l), first = l->next_seq;
    r->n_out = r->n_refused = 0;
    ledger_state_recycle(l->state, ledger_head_seq(l));
    if (ledger_safe_cause(l) == CAUSE_NONE &&
        atomic_load_explicit(&l->phase, memory_order_relaxed) == PHASE_RUNNING) {
        put_own(r, commit_slots > 0 ? end_generation(l) : NULL, &commit_slots);
        put_own(r, commit_slots > 0 ? expire_due(l, now_ms) : NULL, &commit_slots);
    }
    if (r->n > 1)
        qsort(r->jobs, r->n, sizeof r->jobs[0], job_order);
    for (uint32_t i = 0; i < r->n; i++)
        sequence_job(l, r, r->jobs[i], now_ms, &commit_slots);
    if (l->next_seq != first && l->m[LEDGER_M_sequencer_batch] != NULL)
        obs_hist_observe(obs_hist(l->m[LEDGER_M_sequencer_batch]), (double)(l->next_seq - first));
}
