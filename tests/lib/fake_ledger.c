#include "fake_ledger.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

static void must(enum err e)
{
    CHECK(e == ERR_OK);
}

static struct fake_ledger *fake_of(struct ledger_client *c)
{
    return (struct fake_ledger *)c;
}

bool fake_ledger_chance(struct fake_ledger *f, unsigned percent)
{
    return rng_below(&f->rng, 100) < percent;
}

static struct fake_unit *find_unit(struct fake_ledger *f, const char *idem)
{
    for (size_t i = 0; i < f->n_units; i++)
        if (!strcmp(f->units[i].idem, idem))
            return &f->units[i];
    return NULL;
}

static bool same_fingerprint(const struct fake_unit *a, const struct fake_unit *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->entries[i].to, b->entries[i].to) ||
            money_cmp(a->entries[i].amount, b->entries[i].amount) ||
            a->entries[i].nonce != b->entries[i].nonce)
            return false;
    return true;
}

static const char *judge(struct fake_ledger *f, const struct fake_unit *u)
{
    struct money sum = MONEY_ZERO;
    for (size_t i = 0; i < u->n; i++) {
        const struct fake_entry *e = &u->entries[i];
        uint64_t lane = (e->nonce >> 48) - FAKE_LANE, last = f->head[lane],
                 counter = e->nonce & ((1ull << 48) - 1);
        uint64_t expect = (last & ((1ull << 48) - 1)) + 1 + i;
        if (map_get(&f->ids, bytes_of(e->id, strlen(e->id))))
            return "id_exists";
        if (counter < expect)
            return "nonce_conflict";
        if (counter > expect)
            return "nonce_gap";
        if (f->frozen && !strcmp(e->to, f->frozen))
            return "policy_denied";
        must(money_add(sum, e->amount, &sum));
    }
    return money_cmp(sum, f->available) > 0 ? "insufficient_funds" : NULL;
}

static struct ledger_result apply(struct fake_ledger *f, struct fake_unit *u, bool keep)
{
    struct ledger_result r = {.idem_id = str_from_c(u->idem)};
    struct fake_unit *known = find_unit(f, u->idem);
    const char *why = NULL;
    if (known && same_fingerprint(known, u)) {
        r.status = LEDGER_DUPLICATE;
        r.seq_start = known->seq_start;
        r.seq_end = known->seq_start + known->n - 1;
        r.tree_size = f->seq;
        goto drop;
    }
    why = known ? "conflict" : judge(f, u);
    if (why) {
        r.status = LEDGER_REJECTED;
        r.reason_text = str_from_c(why);
        r.retryable = !strcmp(why, "nonce_gap");
        goto drop;
    }
    CHECK(f->n_units < FAKE_UNITS_MAX);
    struct fake_unit *mine = &f->units[f->n_units++];
    *mine = *u;
    mine->seq_start = f->seq + 1;
    for (size_t i = 0; i < mine->n; i++) {
        struct fake_entry *e = &mine->entries[i];
        must(map_add(&f->ids, bytes_of(e->id, strlen(e->id)), e));
        must(money_sub(f->available, e->amount, &f->available));
        f->head[(e->nonce >> 48) - FAKE_LANE] = e->nonce;
    }
    f->seq += mine->n;
    r.status = LEDGER_COMMITTED;
    r.seq_start = mine->seq_start;
    r.seq_end = f->seq;
    r.tree_size = f->seq;
    return r;
drop:
    if (!keep)
        free(u->entries);
    return r;
}

static struct fake_unit copy_unit(const struct ledger_unit *u)
{
    struct fake_unit c = {.n = u->n_entries, .entries = calloc(u->n_entries, sizeof *c.entries)};
    snprintf(c.idem, sizeof c.idem, "%.*s", STR_ARG(u->idem_id));
    for (size_t i = 0; i < u->n_entries; i++) {
        const struct ledger_entry *e = &u->entries[i];
        snprintf(c.entries[i].id, sizeof c.entries[i].id, "%.*s", STR_ARG(e->id));
        snprintf(c.entries[i].to, sizeof c.entries[i].to, "%.*s", STR_ARG(e->to));
        c.entries[i].amount = e->amount;
        c.entries[i].nonce = e->nonce;
        CHECK(str_eq_c(e->account, "pool:rewards") && e->kind == LEDGER_TRANSFER);
    }
    return c;
}

static struct ledger_answer no_answer(enum ledger_outcome o, int status)
{
    return (struct ledger_answer){
        .outcome = o, .err = o == LEDGER_UNKNOWN ? ERR_TIMEOUT : ERR_UNAVAILABLE, .status = status};
}

static void deliver(struct fake_ledger *f)
{
    for (size_t i = 0; i < f->n_late; i++)
        for (size_t u = 0; u < f->late_requests[i].n; u++)
            (void)apply(f, &f->late_requests[i].units[u], false);
    f->n_late = 0;
}

static void fake_ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                        ledger_ingest_fn *fn, void *ctx)
{
    struct fake_ledger *f = fake_of(c);
    pthread_mutex_lock(&f->mutex);
    struct ledger_result results[2];
    struct ledger_ingest_reply reply = {.results = results, .n_results = rq->n_units};
    (void)by;
    f->calls++;
    CHECK(rq->n_units >= 1 && rq->n_units <= 2);
    if (f->n_late && fake_ledger_chance(f, 30))
        deliver(f);
    if (f->down || fake_ledger_chance(f, f->busy)) {
        reply.a = no_answer(LEDGER_REFUSED, fake_ledger_chance(f, 50) ? 429 : 503);
    } else if (fake_ledger_chance(f, f->lose_before)) {
        reply.a = no_answer(LEDGER_UNKNOWN, 0);
    } else if (f->n_late < FAKE_LATE_MAX && fake_ledger_chance(f, f->late)) {
        struct fake_request *late = &f->late_requests[f->n_late++];
        late->n = rq->n_units;
        for (size_t i = 0; i < rq->n_units; i++)
            late->units[i] = copy_unit(&rq->units[i]);
        reply.a = no_answer(LEDGER_UNKNOWN, 0);
    } else {
        for (size_t i = 0; i < rq->n_units; i++) {
            struct fake_unit u = copy_unit(&rq->units[i]);
            results[i] = apply(f, &u, false);
            results[i].idem_id = rq->units[i].idem_id;
        }
        if (fake_ledger_chance(f, f->lose_after))
            reply.a = no_answer(LEDGER_UNKNOWN, 0);
        else if (rq->n_units == 2 && fake_ledger_chance(f, f->others)) {
            struct ledger_result first = results[0];
            results[0] = results[1];
            results[1] = first;
        }
    }
    pthread_mutex_unlock(&f->mutex);
    fn(ctx, &reply);
}

static void fake_unit_read(struct ledger_client *c, struct str idem_id, uint32_t wait_ms,
                           struct deadline by, ledger_unit_fn *fn, void *ctx)
{
    struct fake_ledger *f = fake_of(c);
    pthread_mutex_lock(&f->mutex);
    struct ledger_unit_reply reply = {.found = false};
    struct ledger_entry entries[1024];
    char idem[64];
    (void)wait_ms;
    (void)by;
    snprintf(idem, sizeof idem, "%.*s", STR_ARG(idem_id));
    struct fake_unit *u = find_unit(f, idem);
    if (f->n_units && fake_ledger_chance(f, f->others))
        u = &f->units[rng_below(&f->rng, f->n_units)];
    if (f->strange) {
        reply.a = no_answer(LEDGER_REFUSED, 404);
    } else if (f->down || fake_ledger_chance(f, f->busy / 2)) {
        reply.a = no_answer(LEDGER_REFUSED, 503);
    } else if (u) {
        for (size_t i = 0; i < u->n; i++)
            entries[i] = (struct ledger_entry){.id = str_from_c(u->entries[i].id),
                                               .to = str_from_c(u->entries[i].to),
                                               .asset = STR("ron"),
                                               .amount = u->entries[i].amount,
                                               .nonce = u->entries[i].nonce};
        reply.found = true;
        reply.result = (struct ledger_result){.idem_id = str_from_c(u->idem),
                                              .status = LEDGER_COMMITTED,
                                              .seq_start = u->seq_start,
                                              .seq_end = u->seq_start + u->n - 1,
                                              .tree_size = f->seq,
                                              .entries = entries,
                                              .n_entries = u->n};
    }
    pthread_mutex_unlock(&f->mutex);
    fn(ctx, &reply);
}

static void fake_account(struct ledger_client *c, struct str account, uint64_t min_seq, struct deadline by,
                         ledger_account_fn *fn, void *ctx)
{
    struct fake_ledger *f = fake_of(c);
    pthread_mutex_lock(&f->mutex);
    struct ledger_balance balance = {.asset = STR("ron"), .available = f->available};
    struct ledger_lane lanes[FAKE_LANES];
    struct ledger_account_reply reply = {
        .account = account, .balances = &balance, .n_balances = 1, .lanes = lanes, .as_of_seq = f->seq};
    (void)min_seq;
    (void)by;
    for (unsigned i = 0; i < FAKE_LANES; i++)
        if (f->head[i])
            lanes[reply.n_lanes++] = (struct ledger_lane){(uint16_t)(FAKE_LANE + i), f->head[i]};
    f->looks++;
    if (fake_ledger_chance(f, f->others)) {
        reply.account = STR("pool:another");
        reply.n_balances = reply.n_lanes = 0;
    }
    if (f->meddled)
        f->head[0] = (f->head[0] ? f->head[0] : (uint64_t)FAKE_LANE << 48) + 1;
    if (f->down || fake_ledger_chance(f, f->busy / 2))
        reply.a = no_answer(LEDGER_REFUSED, 503);
    pthread_mutex_unlock(&f->mutex);
    fn(ctx, &reply);
}

static void fake_head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    struct fake_ledger *f = fake_of(c);
    pthread_mutex_lock(&f->mutex);
    struct ledger_head_reply reply = {.ready = !f->down, .head_seq = f->seq};
    (void)by;
    pthread_mutex_unlock(&f->mutex);
    fn(ctx, &reply);
}

static const struct ledger_client_ops fake_ops = {
    .ingest = fake_ingest, .unit = fake_unit_read, .account = fake_account, .head = fake_head};

void fake_ledger_init(struct fake_ledger *f, uint64_t seed)
{
    memset(f, 0, sizeof *f);
    f->client = (struct ledger_client){.ops = &fake_ops, .transport = "fake"};
    f->available = money_from_u64(1000000);
    pthread_mutex_init(&f->mutex, NULL);
    rng_seed(&f->rng, seed);
    must(map_init(&f->ids, 4096));
}

void fake_ledger_fini(struct fake_ledger *f)
{
    deliver(f);
    for (size_t i = 0; i < f->n_units; i++)
        free(f->units[i].entries);
    map_fini(&f->ids);
    pthread_mutex_destroy(&f->mutex);
}

void fake_ledger_set_down(struct fake_ledger *f, bool down)
{
    pthread_mutex_lock(&f->mutex);
    f->down = down;
    pthread_mutex_unlock(&f->mutex);
}

void fake_ledger_deliver_late(struct fake_ledger *f)
{
    pthread_mutex_lock(&f->mutex);
    deliver(f);
    pthread_mutex_unlock(&f->mutex);
}
