/*
 * The state against a naive reference: a million random units, half of them wrong, judged by both. The reference keeps
 * everything in plain arrays, copies itself before a unit and forgets the copy when the unit fails; it shares no code with
 * the state. Balances, lanes, holds, reversals and supply must agree, and Σ balances = supply after every unit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "services/ledger/core/gen.h"
#include "services/ledger/core/state.h"

typedef unsigned __int128 u128;

enum { ACCOUNTS = 24, ASSETS = 3, LANES = 4, HOLDS = 4096, TRANSFERS = 4096, UNIT = 4 };

struct ref_hold {
    bool used, open;
    uint64_t seq, until;
    int account, asset;
    u128 amount, remaining, captured, released, expired;
};

struct ref_transfer {
    uint64_t seq;
    int from, to, asset;
    u128 amount, reversed;
};

/* The naive model. */
struct ref {
    u128 available[ACCOUNTS][ASSETS], held[ACCOUNTS][ASSETS], minted[ASSETS], burned[ASSETS];
    uint64_t last[ACCOUNTS][LANES];
    bool known[ACCOUNTS];
};

/* Kept apart because they are large: rolled back by hand. */
static struct ref_hold holds[HOLDS];
static struct ref_transfer transfers[TRANSFERS];
static unsigned n_holds, n_transfers;

static const struct ledger_limits limits = {1000, 1000000, 1000000, 100, 256, 10000, false};

struct world {
    struct ref ref;
    struct ledger_state *state;
    struct rng rng;
    uint64_t seq, now, committed, refused, id;
};

static char names[ACCOUNTS][160];
static const char *asset_names[ASSETS] = {"ron", "gold", "x.1"};

static u128 amount_of(struct rng *r)
{
    switch (rng_below(r, 20)) {
    case 0:
        return ~(u128)0 - rng_below(r, 3); /* near the end of the world */
    case 1:
        return (u128)1 << (64 + rng_below(r, 63));
    default:
        return 1 + rng_below(r, 1000);
    }
}

struct move {
    enum core_kind kind;
    int account, to, asset, lane, ref;
    u128 amount;
    uint64_t counter, until;
    char id[32], ref_id[32];
};

/* What should happen: ERR_OK or the reason; changes `r`, holds and transfers. */
static enum err ref_apply(struct world *w, struct ref *r, const struct move *m, uint64_t seq)
{
    bool nonce = m->kind == CORE_BURN || m->kind == CORE_TRANSFER || m->kind == CORE_HOLD;
    if (nonce) {
        uint64_t last = r->last[m->account][m->lane];
        if (m->counter <= last)
            return ERR_NONCE_CONFLICT;
        if (m->counter > last + 1)
            return ERR_NONCE_GAP;
    }
    u128 *from = &r->available[m->account][m->asset];
    switch (m->kind) {
    case CORE_MINT:
        if (r->minted[m->asset] + m->amount < m->amount)
            return ERR_OVERFLOW;
        r->minted[m->asset] += m->amount;
        *from += m->amount;
        r->known[m->account] = true;
        return ERR_OK;
    case CORE_BURN:
        if (*from < m->amount)
            return ERR_INSUFFICIENT_FUNDS;
        *from -= m->amount;
        r->burned[m->asset] += m->amount;
        break;
    case CORE_TRANSFER:
        if (*from < m->amount)
            return ERR_INSUFFICIENT_FUNDS;
        *from -= m->amount;
        r->available[m->to][m->asset] += m->amount;
        r->known[m->to] = true;
        transfers[n_transfers++ % TRANSFERS] =
            (struct ref_transfer){seq, m->account, m->to, m->asset, m->amount, 0};
        break;
    case CORE_HOLD:
        if (m->until != 0 && (m->until <= w->now || m->until - w->now > limits.max_hold_ms))
            return ERR_BAD_HOLD_UNTIL;
        if (*from < m->amount)
            return ERR_INSUFFICIENT_FUNDS;
        *from -= m->amount;
        r->held[m->account][m->asset] += m->amount;
        holds[n_holds++ % HOLDS] = (struct ref_hold){
            true, true, seq, m->until, m->account, m->asset, m->amount, m->amount, 0, 0, 0};
        break;
    case CORE_CAPTURE:
    case CORE_RELEASE: {
        struct ref_hold *h = m->ref < 0 ? NULL : &holds[m->ref % HOLDS];
        if (h == NULL || !h->used)
            return ERR_REF_NOT_FOUND;
        if (h->account != m->account || h->asset != m->asset)
            return ERR_REF_MISMATCH;
        if (!h->open || (h->until != 0 && h->until <= w->now))
            return ERR_HOLD_CLOSED;
        if (h->remaining < m->amount)
            return ERR_AMOUNT_EXCEEDS;
        h->remaining -= m->amount;
        h->open = h->remaining != 0;
        *(m->kind == CORE_CAPTURE ? &h->captured : &h->released) += m->amount;
        r->held[m->account][m->asset] -= m->amount;
        int payee = m->kind == CORE_CAPTURE ? m->to : m->account;
        r->available[payee][m->asset] += m->amount;
        r->known[payee] = true;
        return ERR_OK;
    }
    case CORE_REVERSE: {
        struct ref_transfer *t = m->ref < 0 ? NULL : &transfers[m->ref % TRANSFERS];
        if (t == NULL || t->amount == 0)
            return ERR_REF_NOT_FOUND;
        if (t->from != m->account || t->to != m->to || t->asset != m->asset)
            return ERR_REF_MISMATCH;
        if (m->amount > t->amount - t->reversed)
            return ERR_AMOUNT_EXCEEDS;
        if (r->available[m->to][m->asset] < m->amount)
            return ERR_INSUFFICIENT_FUNDS;
        t->reversed += m->amount;
        r->available[m->to][m->asset] -= m->amount;
        *from += m->amount;
        return ERR_OK;
    }
    case CORE_EXPIRE:
    case CORE_KIND_NONE:
    case CORE_KIND_COUNT:
        UNREACHABLE();
    }
    r->last[m->account][m->lane] = m->counter;
    return ERR_OK;
}

static void check_equal(struct world *w)
{
    struct ledger_account_read read = {0};
    for (int asset = 0; asset < ASSETS; asset++) {
        u128 sum = 0;
        for (int a = 0; a < ACCOUNTS; a++)
            sum += w->ref.available[a][asset] + w->ref.held[a][asset];
        assert_true(sum == w->ref.minted[asset] - w->ref.burned[asset]);
    }
    for (int a = 0; a < ACCOUNTS; a++) {
        assert_int_equal(ledger_state_read_account(w->state, str_from_c(names[a]), w->seq, &read), ERR_OK);
        u128 available[ASSETS] = {0}, held[ASSETS] = {0};
        for (size_t i = 0; i < read.n_balances; i++)
            for (int s = 0; s < ASSETS; s++)
                if (str_eq_c(read.balances[i].asset, asset_names[s])) {
                    available[s] = read.balances[i].available.units;
                    held[s] = read.balances[i].held.units;
                }
        assert_memory_equal(available, w->ref.available[a], sizeof available);
        assert_memory_equal(held, w->ref.held[a], sizeof held);
        uint64_t last[LANES] = {0};
        for (size_t i = 0; i < read.n_lanes; i++)
            last[read.lanes[i].lane] = read.lanes[i].counter;
        assert_memory_equal(last, w->ref.last[a], sizeof last);
    }
    ledger_account_read_fini(&read);
    struct ledger_supply_row supply[ASSETS];
    size_t n = ledger_state_supply(w->state, supply, ASSETS);
    for (size_t i = 0; i < n; i++)
        for (int s = 0; s < ASSETS; s++)
            if (str_eq_c(supply[i].asset, asset_names[s])) {
                u128 held = 0;
                for (int a = 0; a < ACCOUNTS; a++)
                    held += w->ref.held[a][s];
                assert_true(supply[i].minted.units == w->ref.minted[s] &&
                            supply[i].burned.units == w->ref.burned[s] && supply[i].held.units == held);
            }
}

static void random_move(struct world *w, struct move *m)
{
    static const enum core_kind kinds[] = {CORE_MINT,     CORE_BURN,   CORE_TRANSFER, CORE_TRANSFER,
                                           CORE_TRANSFER, CORE_HOLD,   CORE_HOLD,     CORE_CAPTURE,
                                           CORE_RELEASE,  CORE_REVERSE};
    struct rng *r = &w->rng;
    memset(m, 0, sizeof *m);
    m->kind = kinds[rng_below(r, sizeof kinds / sizeof kinds[0])];
    m->account = (int)rng_below(r, ACCOUNTS);
    m->to = (m->account + 1 + (int)rng_below(r, ACCOUNTS - 1)) % ACCOUNTS;
    m->asset = (int)rng_below(r, ASSETS);
    m->lane = (int)rng_below(r, LANES);
    m->amount = amount_of(r);
    m->ref = -1;
    snprintf(m->id, sizeof m->id, "e%llu", (unsigned long long)w->id++);
    if (rng_below(r, 3) == 0)
        m->until = w->now + rng_below(r, 12000);
    if ((m->kind == CORE_CAPTURE || m->kind == CORE_RELEASE) && n_holds > 0 && rng_below(r, 10) != 0) {
        unsigned back = n_holds < 64 ? n_holds : 64;
        m->ref = (int)((n_holds - 1 - (unsigned)rng_below(r, back)) % HOLDS);
        if (rng_below(r, 10) != 0) {
            m->account = holds[m->ref].account;
            m->asset = holds[m->ref].asset;
            m->to = (m->account + 1 + (int)rng_below(r, ACCOUNTS - 1)) % ACCOUNTS;
            if (rng_below(r, 2) == 0 && holds[m->ref].remaining != 0)
                m->amount = holds[m->ref].remaining;
        }
    }
    if (m->kind == CORE_REVERSE && n_transfers > 0) {
        unsigned back = n_transfers < 64 ? n_transfers : 64;
        m->ref = (int)((n_transfers - 1 - (unsigned)rng_below(r, back)) % TRANSFERS);
        if (rng_below(r, 10) != 0) {
            m->account = transfers[m->ref].from;
            m->to = transfers[m->ref].to;
            m->asset = transfers[m->ref].asset;
            if (rng_below(r, 2) == 0 && transfers[m->ref].amount != transfers[m->ref].reversed)
                m->amount = 1 + (transfers[m->ref].amount - transfers[m->ref].reversed) / 2;
        }
    }
}

/* Ids of holds and transfers are their seq: the test needs no index. */
static void unit_build(struct world *w, struct move *m, struct core_entry *e, uint32_t n,
                       const struct ledger_fact **facts, struct ledger_fact *fact_store,
                       const unsigned holds_before, const unsigned transfers_before)
{
    for (uint32_t i = 0; i < n; i++) {
        e[i] = (struct core_entry){.ts = w->now,
                                   .kind = m[i].kind,
                                   .account = str_from_c(names[m[i].account]),
                                   .asset = str_from_c(asset_names[m[i].asset]),
                                   .amount = {m[i].amount}};
        if (m[i].kind == CORE_HOLD)
            snprintf(m[i].id, sizeof m[i].id, "h%llu", (unsigned long long)(w->seq + 1 + i));
        e[i].id = str_from_c(m[i].id);
        facts[i] = NULL;
        switch (m[i].kind) {
        case CORE_BURN:
        case CORE_TRANSFER:
        case CORE_HOLD:
            e[i].nonce = (uint64_t)m[i].lane << CORE_LANE_SHIFT | m[i].counter;
            if (m[i].kind == CORE_TRANSFER)
                e[i].to = str_from_c(names[m[i].to]);
            if (m[i].kind == CORE_HOLD)
                e[i].hold_until = m[i].until;
            break;
        case CORE_CAPTURE:
        case CORE_RELEASE:
            snprintf(m[i].ref_id, sizeof m[i].ref_id, "h%llu",
                     m[i].ref < 0 ? 0ull : (unsigned long long)holds[m[i].ref].seq);
            e[i].ref_id = str_from_c(m[i].ref_id);
            if (m[i].kind == CORE_CAPTURE)
                e[i].to = str_from_c(names[m[i].to]);
            if (m[i].ref >= 0 &&
                (unsigned)m[i].ref < holds_before) { /* what the journal says of a durable hold */
                const struct ref_hold *h = &holds[m[i].ref];
                fact_store[i] = (struct ledger_fact){true,
                                                     h->expired != 0,
                                                     CORE_HOLD,
                                                     h->seq,
                                                     str_from_c(names[h->account]),
                                                     {NULL, 0},
                                                     str_from_c(asset_names[h->asset]),
                                                     {h->amount}};
                facts[i] = &fact_store[i];
            }
            break;
        case CORE_REVERSE:
            e[i].ref_id = STR("t");
            e[i].to = str_from_c(names[m[i].to]);
            if (m[i].ref >= 0 && (unsigned)m[i].ref < transfers_before) {
                const struct ref_transfer *t = &transfers[m[i].ref];
                fact_store[i] = (struct ledger_fact){true,
                                                     false,
                                                     CORE_TRANSFER,
                                                     t->seq,
                                                     str_from_c(names[t->from]),
                                                     str_from_c(names[t->to]),
                                                     str_from_c(asset_names[t->asset]),
                                                     {t->amount}};
                facts[i] = &fact_store[i];
            }
            break;
        case CORE_MINT:
        case CORE_EXPIRE:
        case CORE_KIND_NONE:
        case CORE_KIND_COUNT:
            break;
        }
    }
}

static void keys_fill(const struct core_entry *e, struct core_prepared_entry *pe, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        pe[i].id_key = ledger_canon_id_key(e[i].id);
        if (e[i].ref_id.n != 0)
            pe[i].ref_key = ledger_canon_id_key(e[i].ref_id);
    }
}

static void commit(struct world *w, const struct ledger_effect *fx, uint32_t n_fx, uint32_t n)
{
    assert_int_equal(ledger_state_conserves(w->state, fx, n_fx), ERR_OK);
    assert_int_equal(ledger_state_commit(w->state, fx, n_fx, w->seq + n), ERR_OK);
    w->seq += n;
    w->committed++;
    ledger_state_recycle(w->state, w->seq);
}

static void expire_due(struct world *w)
{
    struct ledger_due due;
    while (ledger_state_due(w->state, w->now, &due)) {
        struct ref_hold *h = NULL;
        for (unsigned i = 0; i < HOLDS; i++)
            if (holds[i].used && holds[i].open && holds[i].seq == due.seq)
                h = &holds[i];
        assert_non_null(h);
        assert_true(h->until != 0 && h->until <= w->now && h->remaining == due.remaining.units);
        char id[32], ref[32];
        snprintf(id, sizeof id, "_expire:%llu", (unsigned long long)due.seq);
        snprintf(ref, sizeof ref, "%.*s", STR_ARG(due.id));
        struct core_entry e = {.id = str_from_c(id),
                               .kind = CORE_EXPIRE,
                               .ts = w->now,
                               .account = due.account,
                               .asset = due.asset,
                               .amount = due.remaining,
                               .ref_id = str_from_c(ref)};
        struct core_unit u = {str_from_c(id), {NULL, 0}, 0, &e, 1};
        struct core_prepared_entry pe;
        struct core_prepared p = {.entries = &pe};
        keys_fill(&e, &pe, 1);
        struct ledger_effect fx[EFFECTS_PER_ENTRY];
        struct ledger_reject rej;
        uint32_t n_fx;
        assert_int_equal(
            ledger_state_apply(w->state, &u, &p, NULL, w->seq + 1, w->now, &limits, fx, &n_fx, &rej),
            ERR_OK);
        w->ref.held[h->account][h->asset] -= h->remaining;
        w->ref.available[h->account][h->asset] += h->remaining;
        h->expired = h->remaining;
        h->remaining = 0;
        h->open = false;
        commit(w, fx, n_fx, 1);
    }
}

static void load_one(void *ctx, const struct ledger_state_record *r)
{
    assert_int_equal(ledger_state_load(ctx, r), ERR_OK);
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void model_equal_conserve_nonce_holds_and_reverse(void **state)
{
    (void)state;
    uint64_t seed = env_number("SEED", 20251013), rounds = env_number("ROUNDS", 1000000);
    printf("SEED=%llu ROUNDS=%llu\n", (unsigned long long)seed, (unsigned long long)rounds);
    static struct world w;
    memset(&w, 0, sizeof w);
    rng_seed(&w.rng, seed);
    for (int a = 0; a < ACCOUNTS; a++) /* some names are too long to be kept inline */
        snprintf(names[a], sizeof names[a], "acct:%d%s", a,
                 a % 5 == 0 ? "/a-long-tail-of-a-name-that-does-not-fit" : "");
    w.state = ledger_state_create(1, 2);
    w.now = 1000000;
    struct ref_hold saved_holds[UNIT];
    struct ref_transfer saved_transfers[UNIT];
    for (uint64_t round = 0; round < rounds; round++) {
        w.now += rng_below(&w.rng, 40);
        expire_due(&w);
        struct move m[UNIT];
        struct core_entry e[UNIT];
        struct core_prepared_entry pe[UNIT];
        struct core_prepared p = {.entries = pe};
        struct ledger_fact fact_store[UNIT];
        const struct ledger_fact *facts[UNIT];
        uint32_t n = rng_below(&w.rng, 4) == 0 ? 1 + (uint32_t)rng_below(&w.rng, UNIT) : 1;
        struct ref copy = w.ref;
        unsigned holds_before = n_holds, transfers_before = n_transfers;
        for (uint32_t i = 0; i < n; i++) {
            saved_holds[i] = holds[(n_holds + i) % HOLDS];
            saved_transfers[i] = transfers[(n_transfers + i) % TRANSFERS];
            random_move(&w, &m[i]);
            m[i].counter = copy.last[m[i].account][m[i].lane] + 1;
            if (rng_below(&w.rng, 16) == 0)
                m[i].counter = 1 + rng_below(&w.rng, copy.last[m[i].account][m[i].lane] + 3);
        }
        unit_build(&w, m, e, n, facts, fact_store, holds_before < HOLDS ? holds_before : HOLDS,
                   transfers_before < TRANSFERS ? transfers_before : TRANSFERS);
        keys_fill(e, pe, n);
        struct ref_hold touched_holds[UNIT];
        struct ref_transfer touched_transfers[UNIT];
        enum err expect = ERR_OK;
        uint32_t judged = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (m[i].ref >= 0 && m[i].kind == CORE_REVERSE)
                touched_transfers[i] = transfers[m[i].ref];
            else if (m[i].ref >= 0)
                touched_holds[i] = holds[m[i].ref];
        }
        for (; judged < n && expect == ERR_OK; judged++)
            expect = ref_apply(&w, &copy, &m[judged], w.seq + 1 + judged);
        struct core_unit u = {STR("u"), {NULL, 0}, 0, e, n};
        struct ledger_effect fx[EFFECTS_PER_ENTRY * UNIT];
        struct ledger_reject rej;
        uint32_t n_fx = 0;
        enum err got =
            ledger_state_apply(w.state, &u, &p, facts, w.seq + 1, w.now, &limits, fx, &n_fx, &rej);
        if (got != expect)
            fail_msg("round %llu: expected %s, got %s", (unsigned long long)round, err_name(expect),
                     err_name(got));
        if (got == ERR_OK) {
            w.ref = copy;
            commit(&w, fx, n_fx, n);
        } else {
            assert_int_equal(rej.entry, judged - 1);
            w.refused++;
            for (uint32_t i = n; i-- > 0;) { /* the reference forgets */
                if (m[i].ref >= 0 && m[i].kind == CORE_REVERSE)
                    transfers[m[i].ref] = touched_transfers[i];
                else if (m[i].ref >= 0)
                    holds[m[i].ref] = touched_holds[i];
            }
            n_holds = holds_before;
            n_transfers = transfers_before;
            for (uint32_t i = 0; i < n; i++) {
                holds[(n_holds + i) % HOLDS] = saved_holds[i];
                transfers[(n_transfers + i) % TRANSFERS] = saved_transfers[i];
            }
        }
        if (round % 64 == 0)
            check_equal(&w);
    }
    check_equal(&w);
    for (unsigned i = 0; i < HOLDS; i++)
        assert_true(holds[i].captured + holds[i].released + holds[i].expired + holds[i].remaining ==
                    holds[i].amount);
    for (unsigned i = 0; i < TRANSFERS; i++)
        assert_true(transfers[i].reversed <= transfers[i].amount);
    printf("%llu committed, %llu refused, %llu entries\n", (unsigned long long)w.committed,
           (unsigned long long)w.refused, (unsigned long long)w.seq);
    assert_true(w.committed > rounds / 5 && w.refused > rounds / 10);

    /* Written down and loaded again it is the same state. */
    struct sha256 before, after;
    ledger_state_digest(w.state, &before);
    struct ledger_state *loaded = ledger_state_create(3, 4);
    ledger_state_each(w.state, load_one, loaded);
    assert_int_equal(ledger_state_load_done(loaded), ERR_OK);
    ledger_state_digest(loaded, &after);
    assert_true(sha256_eq(&before, &after));
    /* And resetting ahead to committed, with nothing in flight, changes nothing. */
    ledger_state_reset_ahead(w.state);
    ledger_state_digest(w.state, &after);
    assert_true(sha256_eq(&before, &after));
    check_equal(&w);
    ledger_state_destroy(loaded);
    ledger_state_destroy(w.state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_equal_conserve_nonce_holds_and_reverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
