/*
 * How a run is settled.
 *
 *  1. Look-up: chunks that may have been sent before are asked for by idempotency id. A unit that is there must carry
 *     the same ids, recipients, asset and amounts (a digest over them is compared); anything else is quarantined.
 *  2. Funds: nothing leaves before the funding account covers the whole rest. The same answer gives the lane heads.
 *  3. Sending: each free lane takes up to two open chunks, numbered from the lane's head. Answers come back through one
 *     channel and are judged unit by unit; trouble with nonces or ids leads back to 1 and 2 ("resync").
 *
 * What can go wrong: a reply is lost (the same bytes go out again: duplicate), the process dies (next start begins at
 * 1), somebody else writes our lanes (three resyncs, then hold), funds run out (hold), a unit is refused for good
 * (others go on; quarantine at the end).
 */
#include "services/rewarder/settlement.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rng.h"
#include "rt/chan.h"

enum {
    CALLS_MAX = REWARDER_LANES_MAX,
    UNITS_PER_CALL = 2,
    ENTRIES_MAX = UNITS_PER_CALL * REWARDER_CHUNK,
    ATTEMPTS_MAX = 3,
    NONCE_TROUBLE_MAX = 3,
    META_MAX = 512,
    RETRY_AFTER_MAX_MS = 5000,
    CALL_GRACE_MS = 60000, /* clients always answer; this only bounds a bug */
};

struct unit_answer {
    enum ledger_status status;
    uint64_t seq_start, seq_end, tree_size;
    struct sha256 root;
    bool retryable;
    char reason[REWARDER_REASON_CHARS];
};

/* One outstanding call. Filled by the ledger's callback, then sent to `answers`. */
struct call {
    struct rewarder_settler *settler;
    bool busy;       /* emitter's side only */
    int64_t sent_ns; /* likewise: when the last ingest left */
    enum ledger_outcome outcome;
    enum err err;
    int status;
    uint32_t retry_after_s;
    char code[REWARDER_REASON_CHARS];
    /* ingest */
    unsigned lane, units, attempts;
    uint32_t chunk[UNITS_PER_CALL];
    uint64_t nonce[UNITS_PER_CALL]; /* first of each unit */
    struct unit_answer unit[UNITS_PER_CALL];
    /* unit */
    bool found;
    struct sha256 content;
    /* account */
    struct str asset;
    struct rewarder_funds funds;
    /* head */
    bool ready;
};

struct rewarder_settler {
    struct rewarder_settler_spec spec;
    struct rt_chan *answers;
    struct call calls[CALLS_MAX];
    struct rng rng;
    uint64_t head[REWARDER_LANES_MAX]; /* last nonce used, as far as we know */
    struct ledger_entry entries[ENTRIES_MAX];
    char ids[ENTRIES_MAX][REWARDER_ENTRY_ID_LEN + 1];
    uint8_t meta[UNITS_PER_CALL][META_MAX];
};

enum chunk_state { OPEN, SENT, PLACED, ASK, GONE };

/* One rewarder_settle() call. */
struct pass {
    struct rewarder_settler *s;
    struct rewarder_settle_job *job;
    struct rt_task *self;
    struct rewarder_settle_result *out;
    uint64_t chunks, next_open;
    uint8_t *state; /* enum chunk_state per chunk */
    unsigned outstanding, nonce_trouble;
    bool resync, ended;
};

/* ---- life ---- */

struct rewarder_settler *rewarder_settler_create(const struct rewarder_settler_spec *spec)
{
    CHECK(spec->lanes >= 1 && spec->lanes <= REWARDER_LANES_MAX);
    struct rewarder_settler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->spec = *spec;
    if (s->spec.read_timeout_ms == 0)
        s->spec.read_timeout_ms = 1000;
    if (s->spec.ingest_timeout_ms == 0)
        s->spec.ingest_timeout_ms = 5000;
    if (s->spec.retry_max_ms == 0) {
        s->spec.retry_min_ms = 100;
        s->spec.retry_max_ms = 250;
    }
    rng_seed(&s->rng, spec->seed);
    s->answers = rt_chan_create(
        &(struct rt_chan_spec){.name = "ledger_answers", .capacity = CALLS_MAX, .policy = RT_REJECT});
    if (!s->answers) {
        free(s);
        return NULL;
    }
    for (unsigned i = 0; i < CALLS_MAX; i++)
        s->calls[i].settler = s;
    return s;
}

static void forget_call(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

void rewarder_settler_destroy(struct rewarder_settler *s)
{
    if (!s)
        return;
    rt_chan_destroy(s->answers, forget_call, NULL);
    free(s);
}

/* ---- answers, on whatever thread the client uses ---- */

static void copy_text(char *out, size_t cap, struct str s)
{
    size_t n = s.n < cap - 1 ? s.n : cap - 1;
    if (n)
        memcpy(out, s.p, n);
    out[n] = '\0';
}

static void answered(struct call *c, const struct ledger_answer *a)
{
    c->outcome = a->outcome;
    c->err = a->err;
    c->status = a->status;
    c->retry_after_s = a->retry_after_s;
    copy_text(c->code, sizeof c->code, a->code);
    enum err e = rt_chan_try_send(c->settler->answers, c);
    CHECK(e == ERR_OK); /* one slot per call */
}

static void on_ingest(void *ctx, const struct ledger_ingest_reply *r)
{
    struct call *c = ctx;
    struct ledger_answer a = r->a;
    if (a.outcome == LEDGER_ANSWERED && r->n_results != c->units) {
        a.outcome = LEDGER_UNKNOWN; /* an answer that does not fit the question answers nothing */
        a.err = ERR_INTERNAL;
    }
    for (unsigned i = 0; i < c->units && a.outcome == LEDGER_ANSWERED; i++) {
        const struct ledger_result *from = &r->results[i];
        struct unit_answer *to = &c->unit[i];
        *to = (struct unit_answer){.status = from->status,
                                   .seq_start = from->seq_start,
                                   .seq_end = from->seq_end,
                                   .tree_size = from->tree_size,
                                   .root = from->root,
                                   .retryable = from->retryable};
        copy_text(to->reason, sizeof to->reason, from->reason_text);
    }
    answered(c, &a);
}

/* What must agree between a unit of ours and one the ledger holds: ts and nonces may differ. */
static void content_add(struct sha256_ctx *h, struct str id, struct str to, struct str asset,
                        struct money amount)
{
    uint8_t units[MONEY_BYTES], len[3] = {(uint8_t)id.n, (uint8_t)to.n, (uint8_t)asset.n};
    money_encode(amount, units);
    sha256_update(h, len, sizeof len);
    sha256_update(h, id.p, id.n);
    sha256_update(h, to.p, to.n);
    sha256_update(h, asset.p, asset.n);
    sha256_update(h, units, sizeof units);
}

static void on_unit(void *ctx, const struct ledger_unit_reply *r)
{
    struct call *c = ctx;
    c->found = r->found;
    if (r->a.outcome == LEDGER_ANSWERED && r->found) {
        struct sha256_ctx h;
        sha256_init(&h);
        for (size_t i = 0; i < r->result.n_entries; i++)
            content_add(&h, r->result.entries[i].id, r->result.entries[i].to, r->result.entries[i].asset,
                        r->result.entries[i].amount);
        sha256_final(&h, &c->content);
        c->unit[0] = (struct unit_answer){.status = r->result.status,
                                          .seq_start = r->result.seq_start,
                                          .seq_end = r->result.seq_end,
                                          .tree_size = r->result.tree_size,
                                          .root = r->result.root};
        if (r->result.n_entries)
            c->nonce[0] = r->result.entries[0].nonce;
    }
    answered(c, &r->a);
}

static void on_account(void *ctx, const struct ledger_account_reply *r)
{
    struct call *c = ctx;
    struct rewarder_settler *s = c->settler;
    c->funds = (struct rewarder_funds){.as_of_seq = r->as_of_seq};
    if (r->a.outcome == LEDGER_ANSWERED) {
        for (size_t i = 0; i < r->n_balances; i++)
            if (str_eq(r->balances[i].asset, c->asset))
                c->funds.available = r->balances[i].available;
        for (size_t i = 0; i < r->n_lanes; i++) {
            unsigned lane = r->lanes[i].lane;
            if (lane >= s->spec.lane && lane < s->spec.lane + s->spec.lanes)
                c->funds.lane_heads[lane - s->spec.lane] = r->lanes[i].last;
        }
    }
    answered(c, &r->a);
}

static void on_head(void *ctx, const struct ledger_head_reply *r)
{
    struct call *c = ctx;
    c->ready = r->a.outcome == LEDGER_ANSWERED && r->ready;
    answered(c, &r->a);
}

/* ---- calls ---- */

static struct call *free_call(struct rewarder_settler *s)
{
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        if (!s->calls[i].busy) {
            struct call *c = &s->calls[i];
            *c = (struct call){.settler = s, .busy = true};
            return c;
        }
    }
    return NULL;
}

/* Next answer; NULL when the task was cancelled. */
static struct call *await(struct rewarder_settler *s, struct rt_task *self) RT_BLOCKS
{
    void *item;
    if (self)
        rt_task_beat(self);
    if (rt_chan_recv(s->answers, deadline_in_ms(CALL_GRACE_MS), &item) != ERR_OK)
        return NULL;
    struct call *c = item;
    c->busy = false;
    return c;
}

/* Answers to what an earlier, cancelled emitter asked. */
static bool quiesce(struct rewarder_settler *s, struct rt_task *self) RT_BLOCKS
{
    for (;;) {
        bool busy = false;
        for (unsigned i = 0; i < CALLS_MAX; i++)
            busy = busy || s->calls[i].busy;
        if (!busy)
            return true;
        if (!await(s, self))
            return false;
    }
}

/* Whether the answer says that the ledger cannot be had just now. */
static bool is_transient(const struct call *c)
{
    if (c->outcome == LEDGER_ANSWERED)
        return false;
    return c->outcome == LEDGER_UNKNOWN || c->status == 0 || c->status == 408 || c->status == 429 ||
           c->status >= 500;
}

static void tell_breaker(struct rewarder_settler *s, const struct call *c)
{
    if (!s->spec.breaker)
        return;
    int64_t now = os_now_ns();
    if (!is_transient(c))
        rt_breaker_success(s->spec.breaker, now);
    else if (c->status == 429)
        rt_breaker_neither(s->spec.breaker, now);
    else
        rt_breaker_failure(s->spec.breaker, now);
}

static bool breaker_allows(struct rewarder_settler *s)
{
    return !s->spec.breaker || rt_breaker_allow(s->spec.breaker, os_now_ns());
}

static bool pause_before_retry(struct rewarder_settler *s, const struct call *c,
                               struct rt_task *self) RT_BLOCKS
{
    int64_t ms = rng_between(&s->rng, s->spec.retry_min_ms, s->spec.retry_max_ms);
    if (c->retry_after_s) {
        ms = (int64_t)c->retry_after_s * 1000;
        if (ms > RETRY_AFTER_MAX_MS)
            ms = RETRY_AFTER_MAX_MS;
    }
    return !self || rt_task_sleep(self, deadline_in_ms(ms)) == ERR_OK;
}

/* Starts one read call; the kind decides which. */
enum read_kind { READ_UNIT, READ_ACCOUNT, READ_HEAD };
struct read {
    enum read_kind kind;
    struct str name, asset;
};

static void start_read(struct rewarder_settler *s, struct call *c, const struct read *r)
{
    struct deadline by = deadline_in_ms(s->spec.read_timeout_ms);
    c->asset = r->asset;
    if (r->kind == READ_UNIT)
        ledger_client_unit(s->spec.ledger, r->name, 0, by, on_unit, c);
    else if (r->kind == READ_ACCOUNT)
        ledger_client_account(s->spec.ledger, r->name, 0, by, on_account, c);
    else
        ledger_client_head(s->spec.ledger, by, on_head, c);
}

/* One read with its retries, nothing else outstanding. NULL: cancelled. The slot stays valid until the next call. */
static struct call *read_once(struct rewarder_settler *s, const struct read *r,
                              struct rt_task *self) RT_BLOCKS
{
    for (unsigned attempt = 1;; attempt++) {
        struct call *c = free_call(s);
        CHECK(c);
        if (!breaker_allows(s)) {
            c->busy = false;
            c->outcome = LEDGER_REFUSED;
            return c;
        }
        start_read(s, c, r);
        c = await(s, self);
        if (!c)
            return NULL;
        tell_breaker(s, c);
        if (!is_transient(c) || attempt == ATTEMPTS_MAX || r->kind == READ_HEAD)
            return c;
        if (!pause_before_retry(s, c, self))
            return NULL;
    }
}

bool rewarder_settler_ready(struct rewarder_settler *s, struct rt_task *self)
{
    if (!quiesce(s, self))
        return false;
    struct call *c = read_once(s, &(struct read){.kind = READ_HEAD}, self);
    return c && c->ready;
}

enum err rewarder_settler_funds(struct rewarder_settler *s, struct str account, struct str asset,
                                struct rt_task *self, struct rewarder_funds *out)
{
    if (!quiesce(s, self))
        return ERR_CANCELED;
    struct call *c = read_once(s, &(struct read){READ_ACCOUNT, account, asset}, self);
    if (!c)
        return ERR_CANCELED;
    if (c->outcome != LEDGER_ANSWERED)
        return c->status == 401 ? ERR_UNAUTHENTICATED : ERR_LEDGER_UNAVAILABLE;
    *out = c->funds;
    return ERR_OK;
}

enum err rewarder_settler_knows(struct rewarder_settler *s, struct str tenant, struct str epoch,
                                const struct sha256 *run_key, uint64_t chunks, struct rt_task *self,
                                bool *out_known)
{
    if (!quiesce(s, self))
        return ERR_CANCELED;
    bool known = false;
    for (uint64_t i = 0; i < chunks && !known; i++) {
        char id[REWARDER_UNIT_ID_LEN + 1];
        rewarder_unit_id(tenant, epoch, run_key, (uint32_t)i, id);
        struct call *c = read_once(s, &(struct read){.kind = READ_UNIT, .name = str_from_c(id)}, self);
        if (!c)
            return ERR_CANCELED;
        if (c->outcome != LEDGER_ANSWERED && c->status != 404)
            return ERR_LEDGER_UNAVAILABLE;
        known = c->outcome == LEDGER_ANSWERED && c->found;
    }
    *out_known = known;
    return ERR_OK;
}

/* ---- one pass over a run ---- */

static void end_pass(struct pass *p, enum rewarder_settle_end end, const char *cause)
{
    if (p->ended)
        return; /* the first reason stands */
    p->ended = true;
    p->out->end = end;
    p->out->cause = cause;
}

static void say(const struct pass *p, const char *what, const char *detail)
{
    if (p->job->event)
        p->job->event(p->job->ctx, what, detail);
}

static void place(struct pass *p, uint32_t chunk, const struct unit_answer *a, uint64_t nonce)
{
    uint32_t leaves = rewarder_chunk_leaves(p->job->table->leaves, chunk);
    if (a->seq_end - a->seq_start + 1 != leaves) {
        end_pass(p, REWARDER_SETTLE_QUARANTINE, "duplicate_entry");
        return;
    }
    p->state[chunk] = PLACED;
    p->job->places[chunk] = (struct rewarder_chunk_place){.leaves = leaves, .seq_start = a->seq_start};
    if (a->tree_size > p->out->tree_size) {
        p->out->tree_size = a->tree_size;
        p->out->ledger_root = a->root;
    }
    p->job->placed(p->job->ctx, chunk, a->seq_start, nonce);
}

static struct rewarder_payout leaf_at(const struct rewarder_payouts *t, uint64_t *row)
{
    for (;; (*row)++) {
        CHECK(*row < t->rows);
        if (t->records[*row * t->stride + 45] & REWARDER_LEAF)
            return rewarder_payouts_row(t, (*row)++);
    }
}

static struct sha256 expected_content(const struct pass *p, uint32_t chunk)
{
    const struct rewarder_settle_job *job = p->job;
    struct sha256_ctx h;
    struct sha256 out;
    uint32_t n = rewarder_chunk_leaves(job->table->leaves, chunk);
    uint64_t row = rewarder_payouts_row_of_leaf(job->table, (uint64_t)chunk * REWARDER_CHUNK);
    sha256_init(&h);
    for (uint32_t i = 0; i < n; i++) {
        char id[REWARDER_ENTRY_ID_LEN + 1];
        struct rewarder_payout pay = leaf_at(job->table, &row);
        rewarder_entry_id(job->tenant, job->epoch, pay.account, id);
        content_add(&h, str_from_c(id), pay.account, job->asset, (struct money){pay.amount});
    }
    sha256_final(&h, &out);
    return out;
}

/* The answer to "do you know this chunk?". */
static void judge_lookup(struct pass *p, uint32_t chunk, const struct call *c)
{
    if (c->outcome != LEDGER_ANSWERED && c->status != 404) {
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        return;
    }
    if (c->outcome != LEDGER_ANSWERED || !c->found) {
        /* The ids are taken but not by this unit: another run of the epoch was paid. */
        if (p->state[chunk] == ASK)
            end_pass(p, REWARDER_SETTLE_QUARANTINE, "duplicate_entry");
        p->state[chunk] = OPEN;
        return;
    }
    if (c->unit[0].status == LEDGER_PENDING) {
        p->state[chunk] = OPEN; /* sending it again waits for the same outcome */
        return;
    }
    struct sha256 want = expected_content(p, chunk);
    if (!sha256_eq(&want, &c->content)) {
        end_pass(p, REWARDER_SETTLE_QUARANTINE, "duplicate_entry");
        return;
    }
    place(p, chunk, &c->unit[0], c->nonce[0]);
    p->out->duplicates++;
}

/* Asks for every chunk in one of the two states; nothing is outstanding meanwhile. */
static void look_up(struct pass *p, uint8_t state_a, uint8_t state_b) RT_BLOCKS
{
    for (uint64_t i = 0; i < p->chunks && !p->ended; i++) {
        char id[REWARDER_UNIT_ID_LEN + 1];
        if (p->state[i] != state_a && p->state[i] != state_b)
            continue;
        rewarder_unit_id(p->job->tenant, p->job->epoch, &p->job->run_key, (uint32_t)i, id);
        struct call *c =
            read_once(p->s, &(struct read){.kind = READ_UNIT, .name = str_from_c(id)}, p->self);
        if (!c)
            end_pass(p, REWARDER_SETTLE_STOPPED, "");
        else
            judge_lookup(p, (uint32_t)i, c);
        if (p->job->stop(p->job->ctx))
            end_pass(p, REWARDER_SETTLE_STOPPED, "");
    }
}

static wide_u128 open_amount(const struct pass *p)
{
    const struct rewarder_payouts *t = p->job->table;
    wide_u128 sum = 0;
    for (uint64_t i = 0; i < p->chunks; i++) {
        if (p->state[i] != OPEN && p->state[i] != SENT)
            continue;
        uint32_t n = rewarder_chunk_leaves(t->leaves, (uint32_t)i);
        uint64_t row = rewarder_payouts_row_of_leaf(t, i * REWARDER_CHUNK);
        for (uint32_t k = 0; k < n; k++)
            sum += leaf_at(t, &row).amount; /* below the pool: the table was conserved */
    }
    return sum;
}

/* Reads balance and lane heads; holds when the rest is not covered. */
static void read_funds(struct pass *p) RT_BLOCKS
{
    struct call *c = read_once(p->s, &(struct read){READ_ACCOUNT, p->job->funding, p->job->asset}, p->self);
    if (!c) {
        end_pass(p, REWARDER_SETTLE_STOPPED, "");
        return;
    }
    if (c->outcome != LEDGER_ANSWERED) {
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        return;
    }
    memcpy(p->s->head, c->funds.lane_heads, sizeof p->s->head);
    if (c->funds.available.units < open_amount(p))
        end_pass(p, REWARDER_SETTLE_HOLD, "funds");
}

static size_t fill_unit(struct pass *p, struct call *c, unsigned u, size_t at)
{
    const struct rewarder_settle_job *job = p->job;
    struct rewarder_settler *s = p->s;
    uint32_t n = rewarder_chunk_leaves(job->table->leaves, c->chunk[u]);
    uint64_t row = rewarder_payouts_row_of_leaf(job->table, (uint64_t)c->chunk[u] * REWARDER_CHUNK);
    for (uint32_t i = 0; i < n; i++) {
        struct rewarder_payout pay = leaf_at(job->table, &row);
        rewarder_entry_id(job->tenant, job->epoch, pay.account, s->ids[at + i]);
        s->entries[at + i] = (struct ledger_entry){
            .id = {s->ids[at + i], REWARDER_ENTRY_ID_LEN},
            .ts_ms = (uint64_t)job->sealed_at_ms,
            .kind = LEDGER_TRANSFER,
            .account = job->funding,
            .to = pay.account,
            .asset = job->asset,
            .amount = {pay.amount},
            .nonce = c->nonce[u] + i,
        };
    }
    return n;
}

/* Sends what the call slot names; also used to send the same bytes again. */
static void send_call(struct pass *p, struct call *c)
{
    struct ledger_unit units[UNITS_PER_CALL];
    char ids[UNITS_PER_CALL][REWARDER_UNIT_ID_LEN + 1];
    size_t at = 0;
    for (unsigned u = 0; u < c->units; u++) {
        struct buf meta;
        size_t n = fill_unit(p, c, u, at);
        rewarder_unit_id(p->job->tenant, p->job->epoch, &p->job->run_key, c->chunk[u], ids[u]);
        buf_init_fixed(&meta, p->s->meta[u], META_MAX);
        rewarder_unit_meta_write(p->job->tenant, p->job->epoch, &p->job->manifest, &p->job->root,
                                 c->chunk[u], &meta);
        CHECK(meta.err == ERR_OK);
        units[u] = (struct ledger_unit){.idem_id = str_from_c(ids[u]),
                                        .meta = buf_bytes(&meta),
                                        .entries = p->s->entries + at,
                                        .n_entries = n};
        at += n;
    }
    c->busy = true;
    c->sent_ns = os_now_ns();
    c->attempts++;
    p->outstanding++;
    struct ledger_ingest rq = {.units = units, .n_units = c->units, .corr_id = p->job->corr_id};
    ledger_client_ingest(p->s->spec.ledger, &rq, deadline_in_ms(p->s->spec.ingest_timeout_ms), on_ingest,
                         c);
}

static bool next_open(struct pass *p, uint32_t *out)
{
    for (; p->next_open < p->chunks; p->next_open++) {
        if (p->state[p->next_open] == OPEN) {
            *out = (uint32_t)p->next_open++;
            return true;
        }
    }
    return false;
}

static bool lane_is_free(const struct rewarder_settler *s, unsigned lane)
{
    for (unsigned i = 0; i < CALLS_MAX; i++)
        if (s->calls[i].busy && s->calls[i].units && s->calls[i].lane == lane)
            return false;
    return true;
}

/* Fills every free lane. */
static void send_more(struct pass *p)
{
    for (unsigned lane = 0; lane < p->s->spec.lanes && !p->ended && !p->resync; lane++) {
        uint32_t chunk;
        if (!lane_is_free(p->s, lane))
            continue;
        if (p->job->stop(p->job->ctx)) {
            end_pass(p, REWARDER_SETTLE_STOPPED, "");
            return;
        }
        if (!next_open(p, &chunk))
            return;
        if (!breaker_allows(p->s)) {
            p->next_open = chunk;
            end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
            return;
        }
        struct call *c = free_call(p->s);
        CHECK(c);
        uint64_t head = p->s->head[lane];
        uint64_t nonce = head ? head + 1 : rewarder_lane_nonce(p->s->spec.lane + lane, 1);
        c->lane = lane;
        do {
            p->state[chunk] = SENT;
            c->chunk[c->units] = chunk;
            c->nonce[c->units] = nonce;
            nonce += rewarder_chunk_leaves(p->job->table->leaves, chunk);
            c->units++;
        } while (c->units < UNITS_PER_CALL && next_open(p, &chunk));
        p->s->head[lane] = nonce - 1;
        send_call(p, c);
    }
}

static void refuse_unit(struct pass *p, uint32_t chunk, const char *reason)
{
    p->state[chunk] = GONE;
    if (p->out->refusals < REWARDER_REFUSALS_MAX) {
        struct rewarder_refusal *r = &p->out->refused[p->out->refusals++];
        r->chunk = chunk;
        snprintf(r->reason, sizeof r->reason, "%s", reason);
    }
    say(p, "refused", reason);
    p->resync = true; /* its nonces were not used */
    if (p->out->refusals == REWARDER_REFUSALS_MAX)
        end_pass(p, REWARDER_SETTLE_QUARANTINE, "settlement");
}

/* Open again; it will be numbered anew after the resync. */
static void reopen(struct pass *p, uint32_t chunk)
{
    p->state[chunk] = OPEN;
    p->resync = true;
}

/* One rejected unit. Returns true when the whole call should be sent again as it is. */
static bool judge_rejected(struct pass *p, const struct call *c, unsigned u, bool after_refusal)
{
    const struct unit_answer *a = &c->unit[u];
    const char *why = a->reason;
    uint32_t chunk = c->chunk[u];
    if (!strcmp(why, "insufficient_funds")) {
        p->state[chunk] = OPEN;
        end_pass(p, REWARDER_SETTLE_HOLD, "funds");
    } else if (!strcmp(why, "nonce_conflict") || !strcmp(why, "nonce_gap")) {
        reopen(p, chunk);
        if (!after_refusal && ++p->nonce_trouble >= NONCE_TROUBLE_MAX)
            end_pass(p, REWARDER_SETTLE_HOLD, "lane");
        say(p, "resync", "nonce");
    } else if (!strcmp(why, "conflict") || !strcmp(why, "id_exists")) {
        p->state[chunk] = ASK;
        p->resync = true;
        say(p, "resync", "idem");
    } else if (a->retryable) {
        return true;
    } else {
        refuse_unit(p, chunk, why);
    }
    return false;
}

/* Returns true when the call must be sent again. */
static bool judge_units(struct pass *p, const struct call *c)
{
    bool again = false, after_refusal = false;
    for (unsigned u = 0; u < c->units; u++) {
        const struct unit_answer *a = &c->unit[u];
        if (a->status == LEDGER_COMMITTED || a->status == LEDGER_DUPLICATE) {
            if (p->state[c->chunk[u]] != PLACED) {
                place(p, c->chunk[u], a, c->nonce[u]);
                p->out->committed += a->status == LEDGER_COMMITTED;
                p->out->duplicates += a->status == LEDGER_DUPLICATE;
            }
            continue;
        }
        again = judge_rejected(p, c, u, after_refusal) || again;
        after_refusal = true;
    }
    return again;
}

/* The request as a whole got no verdict. Returns true when it must be sent again. */
static bool judge_failure(struct pass *p, struct call *c)
{
    if (is_transient(c))
        return true;
    if (c->status == 401) {
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        return false;
    }
    for (unsigned u = 0; u < c->units; u++)
        refuse_unit(p, c->chunk[u], c->code[0] ? c->code : "refused");
    return false;
}

static void give_up_call(struct pass *p, const struct call *c)
{
    for (unsigned u = 0; u < c->units; u++)
        if (p->state[c->chunk[u]] == SENT)
            p->state[c->chunk[u]] = OPEN;
}

static void handle_answer(struct pass *p, struct call *c) RT_BLOCKS
{
    p->outstanding--;
    tell_breaker(p->s, c);
    if (p->job->asked)
        p->job->asked(p->job->ctx, c->units, os_now_ns() - c->sent_ns,
                      c->outcome == LEDGER_ANSWERED ? ERR_OK : c->err);
    bool again = c->outcome == LEDGER_ANSWERED ? judge_units(p, c) : judge_failure(p, c);
    if (!again)
        return;
    if (p->ended || p->resync || c->attempts >= ATTEMPTS_MAX) {
        if (c->attempts >= ATTEMPTS_MAX) {
            say(p, "resync", "timeout");
            end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        }
        p->job->maybe_sent = true;
        give_up_call(p, c);
        p->resync = true;
        return;
    }
    if (!pause_before_retry(p->s, c, p->self) || p->job->stop(p->job->ctx)) {
        p->job->maybe_sent = true;
        give_up_call(p, c);
        end_pass(p, REWARDER_SETTLE_STOPPED, "");
        return;
    }
    send_call(p, c); /* the same slot, chunks and nonces: the same bytes */
}

/* Sends until everything is placed, something is wrong, or a resync is due. */
static void send_rounds(struct pass *p) RT_BLOCKS
{
    p->next_open = 0;
    p->resync = false;
    for (;;) {
        send_more(p);
        if (p->outstanding == 0)
            return;
        struct call *c = await(p->s, p->self);
        if (!c) {
            end_pass(p, REWARDER_SETTLE_STOPPED, "");
            return;
        }
        handle_answer(p, c);
    }
}

static bool all_in(const struct pass *p, uint8_t state)
{
    for (uint64_t i = 0; i < p->chunks; i++)
        if (p->state[i] != state)
            return false;
    return true;
}

static bool any_in(const struct pass *p, uint8_t state)
{
    for (uint64_t i = 0; i < p->chunks; i++)
        if (p->state[i] == state)
            return true;
    return false;
}

/* When every place came from settle.log the ledger's head after the last unit is still to be learned. */
static void learn_head(struct pass *p) RT_BLOCKS
{
    uint64_t last = 0;
    for (uint64_t i = 1; i < p->chunks; i++)
        if (p->job->places[i].seq_start > p->job->places[last].seq_start)
            last = i;
    char id[REWARDER_UNIT_ID_LEN + 1];
    rewarder_unit_id(p->job->tenant, p->job->epoch, &p->job->run_key, (uint32_t)last, id);
    struct call *c = read_once(p->s, &(struct read){.kind = READ_UNIT, .name = str_from_c(id)}, p->self);
    if (!c) {
        end_pass(p, REWARDER_SETTLE_STOPPED, "");
    } else if (c->outcome == LEDGER_ANSWERED && c->found) {
        p->out->tree_size = c->unit[0].tree_size;
        p->out->ledger_root = c->unit[0].root;
    } else if (c->outcome == LEDGER_ANSWERED || c->status == 404) {
        /* settle.log says it was placed, the ledger does not know it: the log is only a cache */
        memset(p->job->places, 0, p->chunks * sizeof *p->job->places);
        p->job->maybe_sent = true;
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
    } else {
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
    }
}

static void run_pass(struct pass *p) RT_BLOCKS
{
    if (p->job->maybe_sent && any_in(p, OPEN)) {
        say(p, "resync", "restart");
        look_up(p, OPEN, OPEN);
    }
    while (!p->ended && (any_in(p, OPEN) || any_in(p, ASK))) {
        if (any_in(p, ASK))
            look_up(p, ASK, ASK);
        else if (p->resync)
            look_up(p, OPEN, OPEN); /* a lost answer may have been a yes */
        if (!p->ended && any_in(p, OPEN))
            read_funds(p);
        if (!p->ended)
            send_rounds(p);
    }
    if (p->ended)
        return;
    if (!all_in(p, PLACED)) {
        end_pass(p, REWARDER_SETTLE_QUARANTINE, "settlement");
        return;
    }
    if (p->chunks && p->out->tree_size == 0)
        learn_head(p);
    end_pass(p, REWARDER_SETTLE_DONE, "");
}

void rewarder_settle(struct rewarder_settler *s, struct rewarder_settle_job *job, struct rt_task *self,
                     struct rewarder_settle_result *out)
{
    struct pass p = {
        .s = s, .job = job, .self = self, .out = out, .chunks = rewarder_chunk_count(job->table->leaves)};
    *out = (struct rewarder_settle_result){.cause = ""};
    p.state = calloc(p.chunks ? p.chunks : 1, 1);
    if (!p.state || !quiesce(s, self)) {
        end_pass(&p, REWARDER_SETTLE_STOPPED, "");
        free(p.state);
        return;
    }
    for (uint64_t i = 0; i < p.chunks; i++)
        p.state[i] = job->places[i].seq_start ? PLACED : OPEN;
    run_pass(&p);
    free(p.state);
}
