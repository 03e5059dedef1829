/*
 * Calls of the ledger: a slot for each that is outstanding. A callback fills its slot on whatever thread the client uses and
 * sends it to the one who settles; slots outlive a cancelled emitter, because an answer may still come.
 */
#include <stdlib.h>

#include "base/check.h"
#include "services/rewarder/settlement_internal.h"

enum {
    RETRY_AFTER_MAX_MS = 5000,
    CALL_GRACE_MS = 60000, /* clients always answer; this only bounds a bug */
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
    s->answers = rt_chan_create(&(struct rt_chan_spec){
        .name = "ledger_answers", .capacity = SETTLE_CALLS_MAX, .policy = RT_REJECT});
    if (!s->answers) {
        free(s);
        return NULL;
    }
    for (unsigned i = 0; i < SETTLE_CALLS_MAX; i++)
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

static void answered(struct settle_call *c, const struct ledger_answer *a)
{
    c->outcome = a->outcome;
    c->err = a->err;
    c->status = a->status;
    c->retry_after_s = a->retry_after_s;
    copy_text(c->code, sizeof c->code, a->code);
    enum err e = rt_chan_try_send(c->settler->answers, c);
    CHECK(e == ERR_OK); /* one slot per call */
}

/* An answer that does not fit the question answers nothing. */
static void unfit(struct ledger_answer *a)
{
    a->outcome = LEDGER_UNKNOWN;
    a->err = ERR_INTERNAL;
}

static void on_ingest(void *ctx, const struct ledger_ingest_reply *r)
{
    struct settle_call *c = ctx;
    struct ledger_answer a = r->a;
    bool fits = r->n_results == c->units;
    for (unsigned i = 0; i < c->units && fits; i++)
        fits = str_eq_c(r->results[i].idem_id, c->asked[i]);
    if (a.outcome == LEDGER_ANSWERED && !fits)
        unfit(&a);
    for (unsigned i = 0; i < c->units && a.outcome == LEDGER_ANSWERED; i++) {
        const struct ledger_result *from = &r->results[i];
        struct settle_answer *to = &c->unit[i];
        *to = (struct settle_answer){.status = from->status,
                                     .seq_start = from->seq_start,
                                     .seq_end = from->seq_end,
                                     .tree_size = from->tree_size,
                                     .root = from->root,
                                     .retryable = from->retryable};
        copy_text(to->reason, sizeof to->reason, from->reason_text);
    }
    answered(c, &a);
}

static void on_unit(void *ctx, const struct ledger_unit_reply *r)
{
    struct settle_call *c = ctx;
    struct ledger_answer a = r->a;
    c->found = r->found;
    if (a.outcome == LEDGER_ANSWERED && r->found && !str_eq_c(r->result.idem_id, c->asked[0]))
        unfit(&a);
    if (a.outcome == LEDGER_ANSWERED && r->found) {
        struct sha256_ctx h;
        sha256_init(&h);
        for (size_t i = 0; i < r->result.n_entries; i++)
            rewarder_settle__content_add(&h, r->result.entries[i].id, r->result.entries[i].to,
                                         r->result.entries[i].asset, r->result.entries[i].amount);
        sha256_final(&h, &c->content);
        c->unit[0] = (struct settle_answer){.status = r->result.status,
                                            .seq_start = r->result.seq_start,
                                            .seq_end = r->result.seq_end,
                                            .tree_size = r->result.tree_size,
                                            .root = r->result.root};
        if (r->result.n_entries)
            c->nonce[0] = r->result.entries[0].nonce;
    }
    answered(c, &a);
}

static void on_account(void *ctx, const struct ledger_account_reply *r)
{
    struct settle_call *c = ctx;
    struct rewarder_settler *s = c->settler;
    struct ledger_answer a = r->a;
    c->funds = (struct rewarder_funds){.as_of_seq = r->as_of_seq};
    if (a.outcome == LEDGER_ANSWERED && !str_eq_c(r->account, c->asked[0]))
        unfit(&a);
    if (a.outcome == LEDGER_ANSWERED) {
        for (size_t i = 0; i < r->n_balances; i++)
            if (str_eq(r->balances[i].asset, c->asset))
                c->funds.available = r->balances[i].available;
        for (size_t i = 0; i < r->n_lanes; i++) {
            unsigned lane = r->lanes[i].lane;
            if (lane >= s->spec.lane && lane < s->spec.lane + s->spec.lanes)
                c->funds.lane_heads[lane - s->spec.lane] = r->lanes[i].last;
        }
    }
    answered(c, &a);
}

static void on_head(void *ctx, const struct ledger_head_reply *r)
{
    struct settle_call *c = ctx;
    c->ready = r->a.outcome == LEDGER_ANSWERED && r->ready;
    answered(c, &r->a);
}

/* ---- calls ---- */

struct settle_call *rewarder_settle__free_call(struct rewarder_settler *s)
{
    for (unsigned i = 0; i < SETTLE_CALLS_MAX; i++) {
        if (!s->calls[i].busy) {
            struct settle_call *c = &s->calls[i];
            *c = (struct settle_call){.settler = s, .busy = true};
            return c;
        }
    }
    return NULL;
}

static void note(const struct rewarder_settler *s, enum rewarder_settle_note what)
{
    if (s->spec.note)
        s->spec.note(s->spec.ctx, what);
}

struct settle_call *rewarder_settle__await(struct rewarder_settler *s, struct rt_task *self)
{
    void *item;
    if (self)
        rt_task_beat(self);
    if (rt_chan_recv(s->answers, deadline_in_ms(CALL_GRACE_MS), &item) != ERR_OK)
        return NULL;
    struct settle_call *c = item;
    c->busy = false;
    if (c->outcome != LEDGER_ANSWERED && c->err == ERR_TIMEOUT)
        note(s, c->units ? REWARDER_NOTE_INGEST_TIMEOUT : REWARDER_NOTE_READ_TIMEOUT);
    return c;
}

bool rewarder_settle__quiesce(struct rewarder_settler *s, struct rt_task *self)
{
    for (;;) {
        bool busy = false;
        for (unsigned i = 0; i < SETTLE_CALLS_MAX; i++)
            busy = busy || s->calls[i].busy;
        if (!busy)
            return true;
        if (!rewarder_settle__await(s, self))
            return false;
    }
}

bool rewarder_settle__is_transient(const struct settle_call *c)
{
    if (c->outcome == LEDGER_ANSWERED)
        return false;
    return c->outcome == LEDGER_UNKNOWN || c->status == 0 || c->status == 408 || c->status == 429 ||
           c->status >= 500;
}

void rewarder_settle__tell_breaker(struct rewarder_settler *s, const struct settle_call *c)
{
    if (!s->spec.breaker)
        return;
    int64_t now = os_now_ns();
    if (!rewarder_settle__is_transient(c))
        rt_breaker_success(s->spec.breaker, now);
    else if (c->status == 429)
        rt_breaker_neither(s->spec.breaker, now);
    else
        rt_breaker_failure(s->spec.breaker, now);
}

bool rewarder_settle__breaker_allows(struct rewarder_settler *s)
{
    return !s->spec.breaker || rt_breaker_allow(s->spec.breaker, os_now_ns());
}

bool rewarder_settle__pause(struct rewarder_settler *s, const struct settle_call *c, struct rt_task *self)
{
    int64_t ms = rng_between(&s->rng, s->spec.retry_min_ms, s->spec.retry_max_ms);
    note(s, c->units ? REWARDER_NOTE_INGEST_AGAIN : REWARDER_NOTE_READ_AGAIN);
    if (c->retry_after_s) {
        ms = (int64_t)c->retry_after_s * 1000;
        if (ms > RETRY_AFTER_MAX_MS)
            ms = RETRY_AFTER_MAX_MS;
    }
    return !self || rt_task_sleep(self, deadline_in_ms(ms)) == ERR_OK;
}

void rewarder_settle__ingest(struct settle_call *c, const struct ledger_ingest *rq)
{
    const struct rewarder_settler_spec *spec = &c->settler->spec;
    c->busy = true;
    c->sent_ns = os_now_ns();
    c->attempts++;
    ledger_client_ingest(spec->ledger, rq, deadline_in_ms(spec->ingest_timeout_ms), on_ingest, c);
}

static void start_read(struct rewarder_settler *s, struct settle_call *c, const struct settle_read *r)
{
    struct deadline by = deadline_in_ms(s->spec.read_timeout_ms);
    c->asset = r->asset;
    copy_text(c->asked[0], sizeof c->asked[0], r->name);
    if (r->kind == SETTLE_READ_UNIT)
        ledger_client_unit(s->spec.ledger, r->name, 0, by, on_unit, c);
    else if (r->kind == SETTLE_READ_ACCOUNT)
        ledger_client_account(s->spec.ledger, r->name, 0, by, on_account, c);
    else
        ledger_client_head(s->spec.ledger, by, on_head, c);
}

struct settle_call *rewarder_settle__read(struct rewarder_settler *s, const struct settle_read *r,
                                          struct rt_task *self)
{
    for (unsigned attempt = 1;; attempt++) {
        struct settle_call *c = rewarder_settle__free_call(s);
        CHECK(c);
        if (!rewarder_settle__breaker_allows(s)) {
            c->busy = false;
            c->outcome = LEDGER_REFUSED;
            return c;
        }
        start_read(s, c, r);
        c = rewarder_settle__await(s, self);
        if (!c)
            return NULL;
        rewarder_settle__tell_breaker(s, c);
        if (!rewarder_settle__is_transient(c) || attempt == SETTLE_ATTEMPTS_MAX ||
            r->kind == SETTLE_READ_HEAD)
            return c;
        if (!rewarder_settle__pause(s, c, self))
            return NULL;
    }
}

bool rewarder_settler_ready(struct rewarder_settler *s, struct rt_task *self)
{
    if (!rewarder_settle__quiesce(s, self))
        return false;
    struct settle_call *c = rewarder_settle__read(s, &(struct settle_read){.kind = SETTLE_READ_HEAD}, self);
    return c && c->ready;
}

enum err rewarder_settler_funds(struct rewarder_settler *s, struct str account, struct str asset,
                                struct rt_task *self, struct rewarder_funds *out)
{
    if (!rewarder_settle__quiesce(s, self))
        return ERR_CANCELED;
    struct settle_call *c =
        rewarder_settle__read(s, &(struct settle_read){SETTLE_READ_ACCOUNT, account, asset}, self);
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
    if (!rewarder_settle__quiesce(s, self))
        return ERR_CANCELED;
    bool known = false;
    for (uint64_t i = 0; i < chunks && !known; i++) {
        char id[REWARDER_UNIT_ID_LEN + 1];
        rewarder_unit_id(tenant, epoch, run_key, (uint32_t)i, id);
        struct settle_call *c = rewarder_settle__read(
            s, &(struct settle_read){.kind = SETTLE_READ_UNIT, .name = str_from_c(id)}, self);
        if (!c)
            return ERR_CANCELED;
        if (c->outcome != LEDGER_ANSWERED)
            return ERR_LEDGER_UNAVAILABLE;
        known = c->found;
    }
    *out_known = known;
    return ERR_OK;
}
