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
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/rewarder/settlement_internal.h"

enum { NONCE_TROUBLE_MAX = 3 };

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

static void place(struct pass *p, uint32_t chunk, const struct settle_answer *a, uint64_t nonce)
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
    struct rewarder_settle_count *count =
        a->status == LEDGER_DUPLICATE ? &p->out->duplicates : &p->out->committed;
    count->units++;
    count->leaves += leaves;
    p->job->placed(p->job->ctx, chunk, a->seq_start, nonce);
}

/* The answer to "do you know this chunk?". */
static void judge_lookup(struct pass *p, uint32_t chunk, struct settle_call *c)
{
    if (c->outcome != LEDGER_ANSWERED) { /* a 404 that is not the ledger's own says nothing about units */
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        return;
    }
    if (!c->found) {
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
    struct sha256 want = rewarder_settle__content(p->job, chunk);
    if (!sha256_eq(&want, &c->content)) {
        end_pass(p, REWARDER_SETTLE_QUARANTINE, "duplicate_entry");
        return;
    }
    c->unit[0].status = LEDGER_DUPLICATE; /* it was there before this pass asked */
    place(p, chunk, &c->unit[0], c->nonce[0]);
}

/* Asks for every chunk in one of the two states; nothing is outstanding meanwhile. */
static void look_up(struct pass *p, uint8_t state_a, uint8_t state_b) RT_BLOCKS
{
    for (uint64_t i = 0; i < p->chunks && !p->ended; i++) {
        char id[REWARDER_UNIT_ID_LEN + 1];
        if (p->state[i] != state_a && p->state[i] != state_b)
            continue;
        rewarder_unit_id(p->job->tenant, p->job->epoch, &p->job->run_key, (uint32_t)i, id);
        struct settle_call *c = rewarder_settle__read(
            p->s, &(struct settle_read){.kind = SETTLE_READ_UNIT, .name = str_from_c(id)}, p->self);
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
    wide_u128 sum = 0;
    for (uint64_t i = 0; i < p->chunks; i++)
        if (p->state[i] == OPEN || p->state[i] == SENT)
            sum += rewarder_chunk_amount(p->job->table, (uint32_t)i);
    return sum;
}

/* Reads balance and lane heads; holds when the rest is not covered. */
static void read_funds(struct pass *p) RT_BLOCKS
{
    struct settle_call *c = rewarder_settle__read(
        p->s, &(struct settle_read){SETTLE_READ_ACCOUNT, p->job->funding, p->job->asset}, p->self);
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

/* Sends what the call slot names; also used to send the same bytes again. */
static void send_call(struct pass *p, struct settle_call *c)
{
    struct rewarder_settler *s = p->s;
    const struct rewarder_settle_job *job = p->job;
    struct ledger_unit units[SETTLE_UNITS_PER_CALL];
    size_t at = 0;
    for (unsigned u = 0; u < c->units; u++) {
        struct buf meta;
        size_t n = rewarder_settle__entries(job, c->chunk[u], c->nonce[u], s->entries + at, s->ids + at);
        rewarder_unit_id(job->tenant, job->epoch, &job->run_key, c->chunk[u], c->asked[u]);
        buf_init_fixed(&meta, s->meta[u], SETTLE_META_MAX);
        rewarder_unit_meta_write(job->tenant, job->epoch, &job->manifest, &job->root, c->chunk[u], &meta);
        CHECK(meta.err == ERR_OK);
        units[u] = (struct ledger_unit){.idem_id = str_from_c(c->asked[u]),
                                        .meta = buf_bytes(&meta),
                                        .entries = s->entries + at,
                                        .n_entries = n};
        at += n;
    }
    p->outstanding++;
    rewarder_settle__ingest(c, &(struct ledger_ingest){.units = units,
                                                       .n_units = c->units,
                                                       .corr_id = job->corr_id,
                                                       .traceparent = job->traceparent});
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
    for (unsigned i = 0; i < SETTLE_CALLS_MAX; i++)
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
        if (!rewarder_settle__breaker_allows(p->s)) {
            p->next_open = chunk;
            end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
            return;
        }
        struct settle_call *c = rewarder_settle__free_call(p->s);
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
        } while (c->units < SETTLE_UNITS_PER_CALL && next_open(p, &chunk));
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
static bool judge_rejected(struct pass *p, const struct settle_call *c, unsigned u, bool after_refusal)
{
    const struct settle_answer *a = &c->unit[u];
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
static bool judge_units(struct pass *p, const struct settle_call *c)
{
    bool again = false, after_refusal = false;
    for (unsigned u = 0; u < c->units; u++) {
        const struct settle_answer *a = &c->unit[u];
        if (a->status == LEDGER_COMMITTED || a->status == LEDGER_DUPLICATE) {
            if (p->state[c->chunk[u]] != PLACED) {
                place(p, c->chunk[u], a, c->nonce[u]);
            }
            continue;
        }
        again = judge_rejected(p, c, u, after_refusal) || again;
        after_refusal = true;
    }
    return again;
}

/* The request as a whole got no verdict. Returns true when it must be sent again. */
static bool judge_failure(struct pass *p, struct settle_call *c)
{
    if (rewarder_settle__is_transient(c))
        return true;
    if (c->status == 401) {
        end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        return false;
    }
    for (unsigned u = 0; u < c->units; u++)
        refuse_unit(p, c->chunk[u], c->code[0] ? c->code : "refused");
    return false;
}

static void give_up_call(struct pass *p, const struct settle_call *c)
{
    for (unsigned u = 0; u < c->units; u++)
        if (p->state[c->chunk[u]] == SENT)
            p->state[c->chunk[u]] = OPEN;
}

static void handle_answer(struct pass *p, struct settle_call *c) RT_BLOCKS
{
    p->outstanding--;
    rewarder_settle__tell_breaker(p->s, c);
    if (p->job->asked)
        p->job->asked(p->job->ctx, c->units, os_now_ns() - c->sent_ns,
                      c->outcome == LEDGER_ANSWERED ? ERR_OK : c->err);
    bool again = c->outcome == LEDGER_ANSWERED ? judge_units(p, c) : judge_failure(p, c);
    if (!again)
        return;
    if (p->ended || p->resync || c->attempts >= SETTLE_ATTEMPTS_MAX) {
        if (c->attempts >= SETTLE_ATTEMPTS_MAX) {
            p->out->errors += c->units;
            say(p, "resync", "timeout");
            end_pass(p, REWARDER_SETTLE_HOLD, "ledger");
        }
        p->job->maybe_sent = true;
        give_up_call(p, c);
        p->resync = true;
        return;
    }
    if (!rewarder_settle__pause(p->s, c, p->self) || p->job->stop(p->job->ctx)) {
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
        struct settle_call *c = rewarder_settle__await(p->s, p->self);
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
    struct settle_call *c = rewarder_settle__read(
        p->s, &(struct settle_read){.kind = SETTLE_READ_UNIT, .name = str_from_c(id)}, p->self);
    if (!c) {
        end_pass(p, REWARDER_SETTLE_STOPPED, "");
    } else if (c->outcome == LEDGER_ANSWERED && c->found) {
        p->out->tree_size = c->unit[0].tree_size;
        p->out->ledger_root = c->unit[0].root;
    } else if (c->outcome == LEDGER_ANSWERED) {
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
    if (!p.state || !rewarder_settle__quiesce(s, self)) {
        end_pass(&p, REWARDER_SETTLE_STOPPED, "");
        free(p.state);
        return;
    }
    for (uint64_t i = 0; i < p.chunks; i++)
        p.state[i] = job->places[i].seq_start ? PLACED : OPEN;
    run_pass(&p);
    free(p.state);
}
