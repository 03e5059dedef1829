/*
 * The worker: owns the chains of its accounts. It takes what waits, puts it in order, sends as much as there is in one
 * request as soon as it may have one more outstanding, and settles what comes back. It never waits to fill a batch.
 *
 *     work_tx ----> chains ----> batch ----> ledger
 *     commit_done <---------------------------'        verdicts: settle, try again, hand to the resolver
 *     resolved <---- resolver                          settle
 *
 * Everything it knows lies in struct wallet_worker, so a restarted worker goes on where the last one stopped.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "services/wallet/core/verdict.h"
#include "services/wallet/tasks/ledger_words.h"
#include "services/wallet/wallet.h"

enum { BEAT_MS = 500, TAKE = 128, HEAP_STEP = 64 << 10, RECEIPT_ABOUT = 768 };

static struct wallet_job *job_of(struct wallet_link *link)
{
    return (struct wallet_job *)(void *)((char *)link - offsetof(struct wallet_job, link));
}

/* ---- taking in ---- */

static struct str chain_name(const struct wallet_job *j, char room[WALLET_CHAIN_NAME_MAX + 1])
{
    if (!wallet_kind_has_nonce(j->op.kind))
        return str_of(j->txid, WALLET_TXID_CHARS - 1);
    size_t n = j->op.from.n;
    CHECK(n + 1 + 5 <= WALLET_CHAIN_NAME_MAX && j->op.lane <= UINT16_MAX);
    memcpy(room, j->op.from.p, n);
    room[n++] = '#';
    n += str_format_u64(j->op.lane, room + n);
    return str_of(room, n);
}

static void take_in(struct wallet_worker *k, struct wallet_job *j)
{
    char room[WALLET_CHAIN_NAME_MAX + 1];
    CHECK_MAGIC(j, WALLET_JOB_MAGIC);
    rt_inflight_release(&k->w->work_slots);
    if (wallet_chains_put(&k->chains, chain_name(j, room), j->op.nonce, &j->link) != ERR_OK) {
        wallet_answer_problem(&j->answer, ERR_BUSY, "no memory for it");
        wallet_answer_details(&j->answer, "{\"reason\":\"unsettled\"}");
        struct wallet_shard *s = &k->w->shards[j->shard];
        rt_lock_take(&s->idem_lock);
        bool canceled = j->phase == WALLET_CANCELED;
        rt_lock_release(&s->idem_lock);
        if (canceled)
            wallet_job_unref(j);
        else
            wallet_job_settle(j, false);
        return;
    }
    atomic_store_explicit(&j->behind, wallet_link_waits(&j->link), memory_order_relaxed);
}

/* ---- sending ---- */

enum freeze { FREEZE_SEND, FREEZE_GONE, FREEZE_LATE };

/* From here on it may be in the ledger: the bytes of every try are those of the first. */
static enum freeze freeze(struct wallet_worker *k, struct wallet_job *j)
{
    struct wallet_shard *s = &k->w->shards[j->shard];
    int64_t left_ms = wallet_left_ms(k->w, j->by);
    uint64_t ledger_ms = wallet_ledger_now_ms(k->w);
    rt_lock_take(&s->idem_lock);
    enum freeze f = j->phase == WALLET_CANCELED                   ? FREEZE_GONE
                    : left_ms < WALLET_SEND_LEFT_MS || !ledger_ms ? FREEZE_LATE
                                                                  : FREEZE_SEND;
    if (f == FREEZE_SEND)
        j->phase = WALLET_SENT;
    rt_lock_release(&s->idem_lock);
    if (f == FREEZE_SEND && !j->frozen) {
        j->not_after_ms = ledger_ms + (uint64_t)left_ms;
        j->frozen = true;
    }
    return f;
}

static struct wallet_frame frame_of(const struct wallet_job *j)
{
    return (struct wallet_frame){j->tenant, j->key, j->accepted_ms, j->hold_ttl_s, j->idem_id};
}

static const struct wallet_hold *hold_of(const struct wallet_job *j)
{
    return j->settles_hold ? &j->hold : NULL;
}

/* From what never changes, so each try builds the same: kept is only what its end is judged by. */
static void build(struct wallet_job *j, struct wallet_unit *out)
{
    struct wallet_frame frame = frame_of(j);
    CHECK(wallet_unit_build(&j->op, &frame, hold_of(j), j->txid, out) == ERR_OK);
    CHECK(j->tries == 1 || sha256_eq(&out->receipt.receipt_hash, &j->receipt_hash));
    j->receipt_hash = out->receipt.receipt_hash;
    j->n_entries = out->n_entries;
}

static void on_ingest(void *ctx, const struct ledger_ingest_reply *r)
{
    struct wallet_batch *b = ctx;
    struct wallet_worker *k = b->worker;
    struct wallet *w = k->w;
    bool complete = r->a.outcome == LEDGER_ANSWERED && r->n_results == b->n;
    for (size_t i = 0; i < b->n; i++)
        wallet_words_ingest(
            &b->jobs[i]->said, &r->a,
            complete && str_eq_c(r->results[i].idem_id, b->jobs[i]->idem_id) ? &r->results[i] : NULL);
    const struct ledger_result *last = NULL; /* most of a request are of one group, and say the same */
    for (size_t i = 0; complete && i < b->n; i++) {
        const struct ledger_result *x = &r->results[i];
        if (x->status != LEDGER_COMMITTED && x->status != LEDGER_DUPLICATE)
            continue;
        if (!last || last->tree_size != x->tree_size || !sha256_eq(&last->root, &x->root))
            wallet_saw_root(w, x->tree_size, &x->root);
        last = x;
    }
    int64_t sent_ns = b->sent_ns;                  /* once handed over, the worker may fill it again */
    CHECK(rt_chan_try_send(k->done, b) == ERR_OK); /* as many slots as batches */
    wallet_call_end(w, WALLET_CALL_INGEST, &r->a, sent_ns);
}

static void send_batch(struct wallet_worker *k, struct wallet_batch *b)
{
    struct wallet *w = k->w;
    size_t n_entries = 0;
    for (size_t i = 0; i < b->n; i++) {
        struct wallet_unit *u = &k->built[i];
        struct ledger_entry *entries = &k->entries[n_entries];
        build(b->jobs[i], u);
        b->jobs[i]->trace.batch = b->n;
        for (size_t e = 0; e < u->n_entries; e++)
            wallet_words_entry(&u->entries[e], &k->entries[n_entries++]);
        k->units[i] = (struct ledger_unit){.idem_id = str_of(u->idem_id, WALLET_IDEM_ID_CHARS - 1),
                                           .meta = bytes_of(u->meta, u->meta_n),
                                           .not_after_ms = b->jobs[i]->not_after_ms,
                                           .entries = entries,
                                           .n_entries = u->n_entries};
    }
    b->sent_ns = wallet_now_ns(w);
    obs_hist_observe(obs_hist(w->m[WALLET_M_batch_units]), (double)b->n);
    k->outstanding++;
    obs_gauge_add(obs_gauge(w->m[WALLET_M_worker_inflight]), 1);
    wallet_call_begin(w);
    const struct wallet_job *speaker = wallet_trace_speaker(b->jobs, b->n);
    char traceparent[OBS_TRACEPARENT_CHARS] = "";
    if (speaker->trace.self.sampled)
        obs_traceparent_format(&speaker->trace.self, traceparent);
    struct ledger_ingest rq = {.units = k->units,
                               .n_units = b->n,
                               .corr_id = speaker->corr_id,
                               .traceparent = str_from_c(traceparent)};
    ledger_client_ingest(w->ledger, &rq, wallet_in_ms(w, wallet_config(w)->ledger_rpc_timeout), on_ingest,
                         b);
}

static void give_up(struct wallet_worker *k, struct wallet_job *j);
static void settle(struct wallet_worker *k, struct wallet_job *j, bool committed);

/* One more request, if there is anything to send. */
static bool send_some(struct wallet_worker *k)
{
    struct wallet_batch *b = k->spare;
    if (!b)
        return false;
    size_t n =
        wallet_chains_take(&k->chains, wallet_now_ns(k->w), k->taken, wallet_config(k->w)->batch_units);
    if (n == 0)
        return false;
    b->n = 0;
    for (size_t i = 0; i < n; i++) {
        struct wallet_job *j = job_of(k->taken[i]);
        switch (freeze(k, j)) {
        case FREEZE_SEND:
            j->tries++;
            wallet_trace_sent(j);
            b->jobs[b->n++] = j;
            break;
        case FREEZE_GONE:
            wallet_chains_settled(&k->chains, &j->link);
            atomic_fetch_sub_explicit(&k->canceled, 1, memory_order_relaxed);
            wallet_job_unref(j);
            break;
        case FREEZE_LATE:
            give_up(k, j);
            break;
        }
    }
    if (b->n) {
        k->spare = b->next;
        send_batch(k, b);
    }
    return true;
}

/* ---- settling ---- */

static void settle(struct wallet_worker *k, struct wallet_job *j, bool committed)
{
    wallet_chains_settled(&k->chains, &j->link);
    wallet_job_settle(j, committed);
}

/* The receipt's bytes, and everybody who reads a balance after the reply sees at least this. */
static void commit(struct wallet_worker *k, struct wallet_job *j)
{
    struct wallet_frame frame = frame_of(j);
    struct wallet_receipt r;
    struct buf b;
    CHECK(wallet_receipt_draft(&j->op, &frame, hold_of(j), j->txid, &r) == ERR_OK);
    r.receipt_hash = j->receipt_hash;
    r.seq = j->said.seq_start;
    r.root = j->said.root;
    r.tree_size = j->said.tree_size;
    buf_init_fixed(&b, j->answer.body, sizeof j->answer.body);
    wallet_receipt_write(&r, &b);
    CHECK(b.err == ERR_OK);
    j->answer.no.err = ERR_OK;
    j->answer.replayed = false;
    j->answer.body_n = b.n;
    wallet_sides_of(&r, str_of(j->answer.body, b.n), &j->sides);
    wallet_words_touched(k->w, j);
    settle(k, j, true);
}

static void to_resolver(struct wallet_worker *k, struct wallet_job *j, bool look_up)
{
    struct wallet *w = k->w;
    struct wallet_shard *s = &w->shards[j->shard];
    rt_lock_take(&s->idem_lock);
    j->phase = WALLET_IN_DOUBT;
    rt_lock_release(&s->idem_lock);
    j->look_up = look_up;
    j->doubt_since_ns = wallet_now_ns(w);
    j->doubt_since_ms = clock_wall_ms(svc_clock(w->svc));
    j->looks = 0;
    atomic_fetch_add_explicit(&w->in_doubt, 1, memory_order_relaxed);
    if (!look_up)
        obs_log(svc_log(w->svc), OBS_WARN, "op.in_doubt", OBS_STR("txid", j->txid),
                OBS_STR("op", wallet_kind_name(j->op.kind)), OBS_U64("tries", j->tries), OBS_END);
    CHECK(rt_chan_try_send(w->resolver.doubt, j) == ERR_OK); /* as many slots as jobs */
}

/* A refusal is final only when no try before it may still arrive. */
static void refuse(struct wallet_worker *k, struct wallet_job *j)
{
    if (!j->unknown) {
        settle(k, j, false);
        return;
    }
    j->kept = j->answer.no;
    j->has_kept = true;
    to_resolver(k, j, false);
}

/* No more tries. */
static void give_up(struct wallet_worker *k, struct wallet_job *j)
{
    if (j->unknown) {
        to_resolver(k, j, false);
        return;
    }
    if (j->tries == 0) {
        wallet_answer_problem(&j->answer, ERR_TIMEOUT, "it was never sent: its time ran out in the queue");
        wallet_answer_details(&j->answer, "{\"reason\":\"queue\"}");
    } else {
        wallet_answer_problem(&j->answer, ERR_UNAVAILABLE, "the ledger did not take it");
        wallet_answer_details(&j->answer, "{\"svc\":\"ledger\",\"reason\":\"%s\"}",
                              j->retry_reason == ERR_SAFE_MODE ? "safe_mode"
                              : j->retry_reason == ERR_BUSY || j->retry_reason == ERR_RATE_LIMITED
                                  ? "busy"
                                  : "down");
    }
    /* Its own timer may have been faster. */
    struct wallet_shard *s = &k->w->shards[j->shard];
    rt_lock_take(&s->idem_lock);
    bool canceled = j->phase == WALLET_CANCELED;
    if (!canceled)
        j->phase = WALLET_SENT; /* from now on the timer leaves it alone */
    rt_lock_release(&s->idem_lock);
    if (canceled) {
        wallet_chains_settled(&k->chains, &j->link);
        atomic_fetch_sub_explicit(&k->canceled, 1, memory_order_relaxed);
        wallet_job_unref(j);
    } else
        settle(k, j, false);
}

static void try_again(struct wallet_worker *k, struct wallet_job *j)
{
    const struct wallet_config *cfg = wallet_config(k->w);
    int64_t ms = wallet_retry_pause_ms(cfg, j->tries, j->said.retry_after_s);
    ms += cfg->retry_jitter ? rng_between(&k->rng, 0, cfg->retry_jitter) : 0;
    j->retry_reason = j->said.reason;
    if (j->tries >= cfg->retry_max_tries || wallet_left_ms(k->w, j->by) < ms + WALLET_SEND_LEFT_MS) {
        give_up(k, j);
        return;
    }
    obs_counter_inc(obs_counter_nth(k->w->m[WALLET_M_backoff_retries], WALLET_CALL_INGEST));
    wallet_chains_again(&k->chains, &j->link, wallet_now_ns(k->w) + ms * 1000000);
}

/* What the client is told about a definite refusal. */
static void word_refusal(struct wallet *w, struct wallet_job *j, const struct wallet_verdict *v)
{
    struct wallet_answer *a = &j->answer;
    wallet_answer_problem(a, v->err, "the ledger refused it");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum" /* only those with details of their own */
    switch (v->err) {
    case ERR_NONCE_CONFLICT: {
        uint64_t expected = (j->said.has_last ? j->said.last & WALLET_NONCE_MAX : 0) + 1;
        a->no.detail = "the nonce is not the next one of its lane";
        a->no.retryable_says = true;
        a->no.retryable = j->op.nonce > expected;
        wallet_answer_details(a, "{\"account\":\"%.*s\",\"lane\":%u,\"expected\":%llu}",
                              STR_ARG(j->op.from), j->op.lane, (unsigned long long)expected);
        obs_counter_inc(obs_counter(w->m[WALLET_M_nonce_conflicts]));
        break;
    }
    case ERR_INSUFFICIENT_FUNDS:
        a->no.detail = "the account does not have that much available";
        wallet_answer_details(a, "{\"account\":\"%.*s\",\"asset\":\"%.*s\"}", STR_ARG(j->op.from),
                              STR_ARG(j->op.asset));
        break;
    case ERR_HOLD_UNKNOWN:
    case ERR_HOLD_SETTLED:
    case ERR_HOLD_EXPIRED:
        wallet_answer_details(a, "{\"hold\":\"%.*s\"}", STR_ARG(j->op.hold));
        break;
    case ERR_UNPROCESSABLE:
        wallet_answer_details(a, "{\"member\":\"%s\",\"reason\":\"%s\"}",
                              strcmp(v->reason, "hold_until") == 0 ? "expires_in" : "amount", v->reason);
        break;
    default:
        if (v->reason)
            wallet_answer_details(a, "{\"reason\":\"%s\"}", v->reason);
    }
#pragma GCC diagnostic pop
}

static void judge(struct wallet_worker *k, struct wallet_job *j)
{
    struct wallet *w = k->w;
    wallet_trace_answered(j);
    struct wallet_verdict v = wallet_words_verdict(&j->said, j->n_entries);
    switch (v.kind) {
    case WALLET_V_COMMIT:
        commit(k, j);
        return;
    case WALLET_V_LOOK_UP:
        to_resolver(k, j, true);
        return;
    case WALLET_V_REFUSE:
        word_refusal(w, j, &v);
        refuse(k, j);
        return;
    case WALLET_V_EXPIRED:
        wallet_answer_problem(&j->answer, ERR_TIMEOUT,
                              "it reached the ledger too late and was not carried out");
        wallet_answer_details(&j->answer, "{\"reason\":\"queue\"}");
        refuse(k, j);
        return;
    case WALLET_V_FAULT:
        obs_counter_inc(obs_counter(w->m[WALLET_M_breaches]));
        obs_log(svc_log(w->svc), OBS_ERROR, "ledger.contract", OBS_STR("txid", j->txid),
                OBS_ERR(j->said.reason), OBS_END);
        wallet_answer_problem(&j->answer, ERR_UNAVAILABLE,
                              "the ledger refused it for a reason that is not yours");
        wallet_answer_details(&j->answer, "{\"svc\":\"ledger\",\"reason\":\"down\"}");
        refuse(k, j);
        return;
    case WALLET_V_UNKNOWN:
        j->unknown = true;
        try_again(k, j);
        return;
    case WALLET_V_RETRY:
        try_again(k, j);
        return;
    }
}

/*
 * Room for the receipts of n operations. The C library widens a thread's heap by a page at a time, a call to the system for
 * every five receipts; what was asked for in one large piece and given back stays with the heap.
 */
static void widen_heap(struct wallet_worker *k, size_t n)
{
    size_t need = n * RECEIPT_ABOUT;
    if (k->heap_room < need) {
        void *volatile piece = malloc(HEAP_STEP); /* volatile: the pair is not to be left out */
        free(piece);
        k->heap_room = HEAP_STEP;
    }
    k->heap_room -= need < k->heap_room ? need : k->heap_room;
}

static void batch_back(struct wallet_worker *k, struct wallet_batch *b)
{
    widen_heap(k, b->n);
    k->outstanding--;
    obs_gauge_add(obs_gauge(k->w->m[WALLET_M_worker_inflight]), -1);
    for (size_t i = 0; i < b->n; i++)
        judge(k, b->jobs[i]);
    b->next = k->spare;
    k->spare = b;
}

/* The resolver found out. */
static void resolved(struct wallet_worker *k, struct wallet_job *j)
{
    struct wallet *w = k->w;
    atomic_fetch_sub_explicit(&w->in_doubt, 1, memory_order_relaxed);
    if (!j->look_up) {
        obs_hist_observe(obs_hist(w->m[WALLET_M_doubt_seconds]),
                         (double)(wallet_now_ns(w) - j->doubt_since_ns) / 1e9);
        obs_log(svc_log(w->svc), OBS_INFO, "op.settled", OBS_STR("txid", j->txid),
                OBS_BOOL("committed", j->said.ours), OBS_END);
    }
    if (j->said.ours) {
        wallet_words_touched(w, j);
        settle(k, j, true);
    } else if (j->said.other) {
        wallet_answer_problem(&j->answer, ERR_IDEMPOTENCY_MISMATCH,
                              "this key was used for another request");
        settle(k, j, false);
    } else {
        if (j->has_kept)
            j->answer.no = j->kept;
        else {
            wallet_answer_problem(&j->answer, ERR_UNAVAILABLE, "it was not carried out, and will not be");
            wallet_answer_details(&j->answer, "{\"svc\":\"ledger\",\"reason\":\"down\"}");
        }
        settle(k, j, false);
    }
}

/* ---- ending ---- */

struct sweep {
    struct wallet_worker *k;
    size_t n;
    struct wallet_job *found[TAKE];
    bool only_canceled;
};

static void sweep_one(struct wallet_link *link, void *arg)
{
    struct sweep *s = arg;
    struct wallet_job *j = job_of(link);
    struct wallet_shard *shard = &s->k->w->shards[j->shard];
    rt_lock_take(&shard->idem_lock);
    bool canceled = j->phase == WALLET_CANCELED;
    rt_lock_release(&shard->idem_lock);
    if (s->n < TAKE && (!s->only_canceled || (canceled && !link->out)))
        s->found[s->n++] = j;
}

/* Husks of operations whose time ran out while they were parked. */
static void sweep_canceled(struct wallet_worker *k)
{
    struct sweep s = {.k = k, .only_canceled = true};
    wallet_chains_each(&k->chains, sweep_one, &s);
    for (size_t i = 0; i < s.n; i++) {
        wallet_chains_settled(&k->chains, &s.found[i]->link);
        atomic_fetch_sub_explicit(&k->canceled, 1, memory_order_relaxed);
        wallet_job_unref(s.found[i]);
    }
}

static void tell_one(struct wallet_link *link, void *arg)
{
    struct wallet_worker *k = arg;
    struct wallet_job *j = job_of(link);
    if (j->tries) {
        obs_log(svc_log(k->w->svc), OBS_WARN, "drain.unsettled", OBS_STR("txid", j->txid), OBS_END);
        wallet_job_tell_pending(j);
    }
}

/* The drain's time is over: nobody is left without an answer. */
static void abandon(struct wallet_worker *k)
{
    void *late[TAKE];
    size_t came;
    while (rt_chan_try_recv_batch(k->work, late, TAKE, &came) == ERR_OK)
        for (size_t i = 0; i < came; i++)
            take_in(k, late[i]);
    wallet_chains_each(&k->chains, tell_one, k);
    for (;;) {
        size_t n = wallet_chains_take(&k->chains, INT64_MAX, k->taken, TAKE);
        if (n == 0)
            return;
        for (size_t i = 0; i < n; i++) {
            struct wallet_job *j = job_of(k->taken[i]);
            if (j->tries == 0)
                give_up(k, j);
        }
    }
}

bool wallet_worker_ended(const struct wallet_worker *k)
{
    return rt_chan_is_closed(k->work) && rt_chan_depth(k->work) == 0 && k->chains.parked == 0 &&
           k->chains.out == 0;
}

/* With every request out and the next one full, what comes waits in work_tx, where a full queue is told at once. */
static bool wants_more(const struct wallet_worker *k)
{
    return k->spare || k->chains.parked < wallet_config(k->w)->batch_units;
}

/* One request's worth at a time, so that what cannot be sent yet stays where it is counted and refused. */
static bool take_work(struct wallet_worker *k)
{
    void *items[TAKE];
    size_t room = wallet_config(k->w)->batch_units, n = 0;
    bool some = false;
    while (room && wants_more(k) &&
           rt_chan_try_recv_batch(k->work, items, room < TAKE ? room : TAKE, &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            take_in(k, items[i]);
        room -= n;
        some = true;
    }
    return some;
}

bool wallet_worker_step(struct wallet_worker *k)
{
    void *items[TAKE];
    size_t n;
    bool busy = false;
    net_loop_cork(); /* one wake-up per listener for everything that is settled now */
    while (rt_chan_try_recv_batch(k->done, items, TAKE, &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            batch_back(k, items[i]);
        busy = true;
    }
    while (rt_chan_try_recv_batch(k->resolved, items, TAKE, &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            resolved(k, items[i]);
        busy = true;
    }
    busy |= take_work(k);
    while (send_some(k))
        busy = true;
    net_loop_uncork();
    if (atomic_load_explicit(&k->canceled, memory_order_acquire))
        sweep_canceled(k);
    os_count_set(&k->parked, k->chains.parked);
    return busy;
}

enum err wallet_worker_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    struct wallet_worker *k = &w->workers[rt_task_index(self)];
    for (;;) {
        uint64_t noted = rt_bell_note(&k->bell);
        rt_task_beat(self);
        if (wallet_worker_step(k))
            continue;
        if (wallet_worker_ended(k))
            return ERR_OK;
        int64_t next = k->spare ? wallet_chains_next_ns(&k->chains, wallet_now_ns(w)) : OS_NEVER;
        struct deadline by = wallet_wake_at(w, next, BEAT_MS);
        if (rt_bell_wait(&k->bell, noted, by) == ERR_CANCELED) {
            if (svc_draining(w->svc))
                abandon(k);
            return ERR_CANCELED;
        }
    }
}
