/*
 * The wallet's rules against naive models: units and receipts are inverses, chains keep their order, keys are claimed
 * once, a cached balance is never older than it says, allowances neither leak nor overflow. Every run prints its seed;
 * WALLET_SEED takes it back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "services/wallet/core/cache.h"
#include "services/wallet/core/chain.h"
#include "services/wallet/core/daily.h"
#include "services/wallet/core/idem.h"
#include "services/wallet/core/policy.h"
#include "services/wallet/core/roots.h"
#include "services/wallet/core/tombs.h"
#include "services/wallet/core/unit.h"
#include "services/wallet/core/verdict.h"

static struct rng rng;

static int seed_it(void **state)
{
    const char *given = getenv("WALLET_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : rng_secure_u64();
    (void)state;
    print_message("WALLET_SEED=%llu\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    return 0;
}

/* ---- units and receipts ---- */

static struct str some_text(char *room, size_t min, size_t max, const char *alphabet)
{
    size_t n = (size_t)rng_between(&rng, (int64_t)min, (int64_t)max);
    for (size_t i = 0; i < n; i++)
        room[i] = alphabet[rng_below(&rng, strlen(alphabet))];
    return str_of(room, n);
}

#define ACCOUNT "abcXYZ019:/._-"
#define KEY     "abcXYZ019._:/+=-"
#define MEMO    "ab \"\\/{}:,'<>"

struct sample {
    struct wallet_op op;
    struct wallet_hold hold;
    struct wallet_frame frame;
    char txid[WALLET_TXID_CHARS];
    char text[10][200];
};

static struct money some_money(uint64_t max)
{
    struct money m = money_from_u64(1 + rng_below(&rng, max));
    return m;
}

static void make_sample(struct sample *s)
{
    enum wallet_kind kind = (enum wallet_kind)rng_below(&rng, WALLET_KIND_COUNT);
    memset(s, 0, sizeof *s);
    s->op.kind = kind;
    bool settles = kind == WALLET_CAPTURE || kind == WALLET_RELEASE;
    struct str a = some_text(s->text[0], 1, 128, ACCOUNT), b = some_text(s->text[1], 1, 128, ACCOUNT);
    struct str asset = some_text(s->text[2], 1, 31, "abcXYZ019");
    if (settles) {
        snprintf(s->text[3], sizeof s->text[3], "tx_%032llx", (unsigned long long)rng_u64(&rng));
        s->op.hold = str_of(s->text[3], 35);
        s->hold = (struct wallet_hold){a, b, asset, some_money(1000)};
        if (kind == WALLET_CAPTURE && rng_below(&rng, 2)) {
            s->op.has_amount = true;
            s->op.amount = money_from_u64(1 + rng_below(&rng, (uint64_t)s->hold.amount.units));
        }
    } else {
        s->op.asset = asset;
        s->op.has_amount = true;
        s->op.amount = rng_below(&rng, 4) ? some_money(1000000) : MONEY_MAX;
        if (kind != WALLET_ISSUE)
            s->op.from = a;
        if (kind != WALLET_BURN)
            s->op.to = b;
    }
    if (wallet_kind_has_nonce(kind)) {
        s->op.nonce = 1 + rng_below(&rng, WALLET_NONCE_MAX);
        s->op.lane = rng_below(&rng, 2) ? (uint32_t)rng_below(&rng, 65536) : 0;
    }
    if (kind == WALLET_HOLD && rng_below(&rng, 2)) {
        s->op.has_expires_in = true;
        s->op.expires_in_s = 1 + rng_below(&rng, 100000);
    }
    if (rng_below(&rng, 2))
        s->op.memo = some_text(s->text[4], 1, 160, MEMO);
    s->frame =
        (struct wallet_frame){some_text(s->text[5], 1, 64, "abcXYZ019"), some_text(s->text[6], 1, 128, KEY),
                              rng_between(&rng, 1, INT64_C(4102444800000)), 604800, NULL};
    char room[WALLET_REQUEST_MAX];
    struct buf canonical;
    buf_init_fixed(&canonical, room, sizeof room);
    wallet_request_canonical(&s->op, &canonical);
    assert_int_equal(canonical.err, ERR_OK);
    wallet_txid(s->frame.tenant, s->frame.key, buf_str(&canonical), s->txid);
}

static size_t receipt_text(const struct wallet_receipt *r, char room[WALLET_RECEIPT_MAX])
{
    struct buf b;
    buf_init_fixed(&b, room, WALLET_RECEIPT_MAX);
    wallet_receipt_write(r, &b);
    assert_int_equal(b.err, ERR_OK);
    return b.n;
}

static void i2_every_receipt_is_rebuilt_from_its_unit_byte_for_byte(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct sample s;
        struct wallet_unit u;
        struct wallet_rebuilt back;
        char first[WALLET_RECEIPT_MAX], second[WALLET_RECEIPT_MAX];
        struct sha256 root;
        make_sample(&s);
        bool settles = s.op.hold.p != NULL;
        assert_int_equal(wallet_unit_build(&s.op, &s.frame, settles ? &s.hold : NULL, s.txid, &u), ERR_OK);
        sha256_of(&i, sizeof i, &root);
        u.receipt.seq = rng_u64(&rng) >> 1;
        u.receipt.root = root;
        u.receipt.tree_size = u.receipt.seq + 5;
        assert_int_equal(wallet_unit_rebuild(str_from_c(u.idem_id), u.entries, u.n_entries,
                                             bytes_of(u.meta, u.meta_n), u.receipt.seq, &root,
                                             u.receipt.tree_size, &back),
                         ERR_OK);
        size_t n = receipt_text(&u.receipt, first), m = receipt_text(&back.receipt, second);
        assert_int_equal(n, m);
        assert_memory_equal(first, second, n);
        assert_true(n <= 1536); /* what a job reserves for it */
        struct wallet_sides sides;
        wallet_sides_of(&u.receipt, str_of(first, n), &sides);
        assert_true(str_eq(wallet_side(str_of(first, n), sides.from, sides.from_n),
                           str_of(u.receipt.from.p, u.receipt.from.n)));
        assert_true(str_eq(wallet_side(str_of(first, n), sides.to, sides.to_n),
                           str_of(u.receipt.to.p, u.receipt.to.n)));
    }
}

static void a_unit_that_was_tampered_with_is_foreign(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct sample s;
        struct wallet_unit u;
        struct wallet_rebuilt back;
        struct sha256 root = {{0}};
        make_sample(&s);
        assert_int_equal(wallet_unit_build(&s.op, &s.frame, s.op.hold.p ? &s.hold : NULL, s.txid, &u),
                         ERR_OK);
        struct wallet_entry *e = &u.entries[0];
        char other_idem[WALLET_IDEM_ID_CHARS];
        memcpy(other_idem, u.idem_id, sizeof other_idem);
        switch (rng_below(&rng, 5)) {
        case 0:
            e->amount.units ^=
                1; /* a release without an amount in its request is bound by the ledger, not by us */
            if (s.op.kind == WALLET_RELEASE || (s.op.kind == WALLET_CAPTURE && !s.op.has_amount))
                continue;
            break;
        case 1:
            u.meta[rng_below(&rng, u.meta_n)] ^= (uint8_t)(1 + rng_below(&rng, 255));
            break;
        case 2:
            u.meta_n--;
            break;
        case 3:
            other_idem[2 + rng_below(&rng, 64)] ^= 1;
            break;
        default:
            e->kind = (enum wallet_entry_kind)(1 + e->kind % 6);
        }
        assert_int_equal(wallet_unit_rebuild(str_from_c(other_idem), u.entries, u.n_entries,
                                             bytes_of(u.meta, u.meta_n), 1, &root, 1, &back),
                         ERR_CORRUPT);
    }
}

/* ---- chains ---- */

enum { JOBS = 400, CHAINS = 7 };

struct model_job {
    struct wallet_link link;
    int chain; /* -1: not in use */
    uint64_t nonce, arrival;
    bool out;
    int64_t due;
};

static struct model_job jobs[JOBS];

static struct model_job *of(struct wallet_link *l)
{
    return (struct model_job *)(void *)((char *)l - offsetof(struct model_job, link));
}

static void i4_chains_send_each_lane_in_order_and_one_request_at_a_time(void **state)
{
    struct wallet_chains cs;
    uint64_t arrivals = 0;
    int64_t now = 0;
    (void)state;
    assert_int_equal(wallet_chains_init(&cs, 4), ERR_OK);
    for (int i = 0; i < JOBS; i++)
        jobs[i].chain = -1;
    for (int step = 0; step < 200000; step++) {
        struct model_job *j = &jobs[rng_below(&rng, JOBS)];
        uint64_t what = rng_below(&rng, 100);
        if (what < 40 && j->chain < 0) {
            char name[16];
            j->chain = (int)rng_below(&rng, CHAINS);
            j->nonce = 1 + rng_below(&rng, 20);
            j->arrival = arrivals++;
            j->out = false;
            j->due = 0;
            int n = snprintf(name, sizeof name, "acct:a#%d", j->chain);
            assert_int_equal(wallet_chains_put(&cs, str_of(name, (size_t)n), j->nonce, &j->link), ERR_OK);
        } else if (what < 70) {
            struct wallet_link *taken[16];
            bool busy[CHAINS] = {false};
            int64_t due[CHAINS] = {0};
            for (int i = 0; i < JOBS; i++)
                if (jobs[i].chain >= 0) {
                    busy[jobs[i].chain] = busy[jobs[i].chain] || jobs[i].out;
                    if (jobs[i].due > due[jobs[i].chain])
                        due[jobs[i].chain] = jobs[i].due;
                }
            size_t n = wallet_chains_take(&cs, now, taken, 1 + rng_below(&rng, 16));
            for (size_t i = 0; i < n; i++) {
                struct model_job *t = of(taken[i]);
                assert_false(busy[t->chain]); /* nothing of it was with the ledger */
                assert_false(t->out);
                assert_true(due[t->chain] <= now);
                for (int k = 0; k < JOBS; k++) { /* and nothing before it stayed behind */
                    struct model_job *o = &jobs[k];
                    if (o->chain == t->chain && !o->out && o != t)
                        assert_true(o->nonce > t->nonce ||
                                    (o->nonce == t->nonce && o->arrival > t->arrival));
                }
                t->out = true;
                t->due = 0;
                if (i + 1 == n || of(taken[i + 1])->chain != t->chain)
                    for (int k = 0; k < JOBS; k++)
                        if (jobs[k].chain == t->chain)
                            jobs[k].due = 0;
            }
        } else if (what < 90 && j->chain >= 0) {
            wallet_chains_settled(&cs, &j->link);
            j->chain = -1;
        } else if (what < 97 && j->chain >= 0 && j->out) {
            j->out = false;
            j->due = now + rng_between(&rng, 0, 50);
            wallet_chains_again(&cs, &j->link, j->due);
        } else
            now += rng_between(&rng, 0, 20);
    }
    for (int round = 0; round < 10000; round++) { /* everything comes out: no stuck account */
        struct wallet_link *taken[64];
        now += 100;
        size_t n = wallet_chains_take(&cs, now, taken, 64);
        for (size_t i = 0; i < n; i++) {
            of(taken[i])->chain = -1;
            wallet_chains_settled(&cs, taken[i]);
        }
        for (int i = 0; i < JOBS; i++)
            if (jobs[i].chain >= 0 && jobs[i].out) {
                wallet_chains_settled(&cs, &jobs[i].link);
                jobs[i].chain = -1;
            }
        if (cs.parked + cs.out == 0)
            break;
    }
    assert_int_equal(cs.parked + cs.out, 0);
    assert_int_equal(cs.count, 0);
    wallet_chains_fini(&cs);
}

/* ---- keys ---- */

enum { KEYS = 60 };

static void i1_a_key_has_one_owner_and_one_receipt_whatever_is_evicted(void **state)
{
    struct {
        int txid; /* -1: absent here */
        bool open;
        char receipt[40];
    } model[KEYS];
    struct wallet_idem s;
    int64_t now = 0;
    char asked[16];
    size_t seen_again = 0;
    bool absent;
    (void)state;
    assert_int_equal(wallet_idem_init(&s, 6000), ERR_OK);
    for (int i = 0; i < KEYS; i++)
        model[i].txid = -1;
    for (int step = 0; step < 200000; step++) {
        int k = (int)rng_below(&rng, KEYS), t = (int)rng_below(&rng, 3);
        struct wallet_idem_name name = {.key = {(uint64_t)k, 1}, .txid = {(uint64_t)k, 10 + (uint64_t)t}};
        struct wallet_sides sides = {0};
        enum wallet_claim claim;
        struct wallet_idem_entry *e = NULL;
        now++;
        switch (rng_below(&rng, 5)) {
        case 0:
            assert_int_equal(wallet_idem_claim(&s, &name, &model[k], &claim, &e), ERR_OK);
            if (claim == WALLET_CLAIM_OWNER) {
                assert_true(model[k].txid < 0 || !model[k].open); /* never while somebody owns it */
                model[k].txid = t;
                model[k].open = true;
            } else if (claim == WALLET_CLAIM_OTHER)
                assert_int_not_equal(model[k].txid, t);
            else {
                assert_int_equal(model[k].txid, t);
                assert_int_equal(claim == WALLET_CLAIM_OPEN, model[k].open);
                if (claim == WALLET_CLAIM_DONE)
                    assert_memory_equal(e->receipt, model[k].receipt, e->n);
            }
            break;
        case 1:
            if (model[k].txid < 0 || !model[k].open)
                break;
            name.txid.hi = 10 + (uint64_t)model[k].txid;
            snprintf(model[k].receipt, sizeof model[k].receipt, "receipt %d of %d", step, k);
            snprintf(asked, sizeof asked, "body %d", model[k].txid);
            wallet_idem_done(&s, &name, &model[k], str_from_c(model[k].receipt), str_from_c(asked), &sides,
                             now);
            model[k].open = false;
            break;
        case 2:
            if (model[k].txid < 0 || !model[k].open || rng_below(&rng, 2))
                break;
            name.txid.hi = 10 + (uint64_t)model[k].txid;
            wallet_idem_drop(&s, &name, &model[k]);
            model[k].txid = -1;
            break;
        case 3: /* the same bytes are the same request, and no other bytes are */
            snprintf(asked, sizeof asked, "body %d", t);
            e = wallet_idem_again(&s, name.key, WALLET_ISSUE, str_from_c(asked), &absent);
            assert_false(absent && (e || (model[k].txid >= 0 && model[k].open)));
            if (e) {
                assert_false(model[k].open);
                assert_int_equal(model[k].txid, t);
                assert_memory_equal(e->receipt, model[k].receipt, e->n);
                seen_again++;
            }
            assert_null(wallet_idem_again(&s, name.key, WALLET_TRANSFER, str_from_c(asked), &absent));
            assert_int_equal(absent, wallet_idem_look(&s, &name, &e) == WALLET_CLAIM_ABSENT);
            break;
        default:
            if (rng_below(&rng, 50) == 0)
                wallet_idem_expire(&s, now - 20, 5);
        }
        assert_true(s.bytes <= s.bytes_max);
        size_t open = 0;
        for (int i = 0; i < KEYS; i++)
            open += model[i].txid >= 0 && model[i].open;
        assert_int_equal(s.open, open);
    }
    assert_true(seen_again > 100);
    wallet_idem_fini(&s);
}

/* ---- balances ---- */

static void i9_a_cached_balance_is_never_older_than_it_says(void **state)
{
    (void)state;
    for (int run = 0; run < 2000; run++) {
        /* The truth: at each tick the account may change; the feed tells some time later, or is lost. */
        uint64_t seq = 10, changed_at_seq = 10, touched = 0, floor = 0;
        int64_t changed_ns = 0;
        struct wallet_feed feed = {.feed_seq = 10};
        struct wallet_account *a = wallet_account_new(STR("a"), 0, 0);
        a->as_of_seq = 10;
        int64_t told_ns = 0;
        for (int64_t now = 1; now < 200; now++) {
            if (rng_below(&rng, 3) == 0) {
                seq++;
                if (rng_below(&rng, 4) == 0) {
                    changed_at_seq = seq;
                    changed_ns = now;
                }
            }
            if (rng_below(&rng, 3) == 0) { /* the feed catches up */
                if (changed_at_seq > feed.feed_seq)
                    touched = changed_at_seq;
                feed.feed_seq = seq;
                feed.feed_ns = told_ns = now;
            } else if (rng_below(&rng, 40) == 0) { /* it is lost and starts again from the head */
                floor = seq;
                feed.floor_seq = floor;
                feed.feed_seq = seq;
            }
            if (rng_below(&rng, 10) == 0) {
                a->as_of_seq = seq;
                a->fetched_ns = now;
            }
            struct wallet_freshness f;
            wallet_freshness(a, touched, &feed, now, &f);
            /* True until `now - age`: no change of the account lies between what it shows and then. */
            bool stale = changed_at_seq > a->as_of_seq;
            if (stale)
                assert_true(changed_ns > now - f.age_ns || now - f.age_ns <= a->fetched_ns);
            if (f.clean && stale)
                assert_true(f.seq < changed_at_seq); /* min_seq = that change is not served from it */
            (void)told_ns;
        }
        free(a);
    }
}

/* ---- allowances ---- */

static void allowances_neither_leak_nor_overflow(void **state)
{
    struct wallet_daily d;
    struct {
        struct money used, reserved;
    } model[5] = {0};
    struct {
        int name;
        struct money amount;
    } held[50];
    size_t n = 0;
    struct key128 names[5];
    (void)state;
    assert_int_equal(wallet_daily_init(&d, 8), ERR_OK);
    for (int i = 0; i < 5; i++) {
        char name = (char)('a' + i);
        names[i] = wallet_daily_name(bytes_of(&name, 1), STR("acct"), STR("ron"));
    }
    for (int step = 0; step < 100000; step++) {
        int i = (int)rng_below(&rng, 5);
        if (rng_below(&rng, 2) && n < 50) {
            struct money amount = rng_below(&rng, 50) ? some_money(100) : MONEY_MAX;
            struct money sum = {model[i].used.units + model[i].reserved.units};
            bool fits = amount.units <= 5000 - sum.units;
            enum err e = wallet_daily_reserve(&d, names[i], 1, money_from_u64(5000), MONEY_ZERO, amount);
            assert_int_equal(e == ERR_OK, fits);
            if (fits) {
                model[i].reserved.units += amount.units;
                held[n].name = i;
                held[n++].amount = amount;
            }
        } else if (n) {
            size_t k = rng_below(&rng, n);
            int at = held[k].name;
            bool used = rng_below(&rng, 20) == 0;
            model[at].reserved.units -= held[k].amount.units;
            if (used)
                model[at].used.units += held[k].amount.units;
            (used ? wallet_daily_use : wallet_daily_give_back)(&d, names[at], 1, held[k].amount);
            held[k] = held[--n];
        }
        assert_true(wallet_daily_used(&d, names[i], 1).units ==
                    model[i].used.units + model[i].reserved.units);
    }
    while (n) {
        n--;
        wallet_daily_give_back(&d, names[held[n].name], 1, held[n].amount);
    }
    assert_int_equal(wallet_daily_sweep(&d, 2), 5); /* the next day nothing is left */
    wallet_daily_fini(&d);
}

/* Two threads around midnight: one has looked at the clock before, the other after. */
static void what_comes_late_from_yesterday_is_not_held_against_today(void **state)
{
    struct wallet_daily d;
    struct key128 name = wallet_daily_name(bytes_of("n", 1), STR("acct"), STR("ron")),
                  other = wallet_daily_name(bytes_of("o", 1), STR("acct"), STR("ron"));
    const struct money all = money_from_u64(100), one = money_from_u64(1);
    (void)state;
    assert_int_equal(wallet_daily_init(&d, 1), ERR_OK);
    assert_int_equal(wallet_daily_reserve(&d, name, 1, all, MONEY_ZERO, all), ERR_OK);
    wallet_daily_use(&d, name, 1, all);
    assert_int_equal(wallet_daily_reserve(&d, name, 1, all, MONEY_ZERO, one), ERR_LIMIT_EXCEEDED);
    assert_int_equal(wallet_daily_reserve(&d, name, 2, all, MONEY_ZERO, all), ERR_OK);
    wallet_daily_use(&d, name, 2, all);
    assert_int_equal(wallet_daily_reserve(&d, name, 1, MONEY_MAX, MONEY_ZERO, one), ERR_BEHIND);
    /* Nor does it make room among what is of today. */
    assert_int_equal(wallet_daily_reserve(&d, other, 1, all, MONEY_ZERO, one), ERR_BUSY);
    assert_int_equal(wallet_daily_reserve(&d, name, 2, all, MONEY_ZERO, one), ERR_LIMIT_EXCEEDED);
    wallet_daily_fini(&d);
}

/* ---- small tables ---- */

static void every_reason_of_the_ledger_has_one_meaning(void **state)
{
    (void)state;
    assert_int_equal(wallet_verdict_of(ERR_CONFLICT, false).kind, WALLET_V_LOOK_UP);
    assert_int_equal(wallet_verdict_of(ERR_HOLD_CLOSED, true).err, ERR_HOLD_EXPIRED);
    assert_int_equal(wallet_verdict_of(ERR_HOLD_CLOSED, false).err, ERR_HOLD_SETTLED);
    assert_int_equal(wallet_verdict_of(ERR_REF_NOT_FOUND, false).err, ERR_HOLD_UNKNOWN);
    assert_int_equal(wallet_verdict_of(ERR_SAFE_MODE, false).kind, WALLET_V_RETRY);
    assert_int_equal(wallet_verdict_of(ERR_EXPIRED, false).kind, WALLET_V_EXPIRED);
    assert_int_equal(wallet_verdict_of(ERR_OUTCOME_UNKNOWN, false).kind, WALLET_V_UNKNOWN);
    assert_int_equal(wallet_verdict_of(ERR_ID_EXISTS, false).kind, WALLET_V_FAULT);
    for (int e = 1; e < ERR_COUNT;
         e++) { /* a client is never told of a refusal without an error of its own */
        struct wallet_verdict v = wallet_verdict_of((enum err)e, false);
        assert_true(v.kind != WALLET_V_COMMIT);
        assert_int_equal(v.kind == WALLET_V_REFUSE, v.err != ERR_OK);
    }
}

static void the_first_limit_that_matches_counts(void **state)
{
    static const char text[] =
        "{\"version\":7,\"assets\":{\"ron\":{\"decimals\":2},\"gold\":{}},\"frozen\":[\"acct:bad-*\"],"
        "\"limits\":[{\"account\":\"acct:shop-*\",\"ops\":[\"transfer\"],\"max_amount\":\"5\"},"
        "{\"account\":\"*\",\"asset\":\"ron\",\"daily\":\"100\"}],\"kinds\":[\"mint\"]}";
    struct wallet_policy *p = NULL;
    struct json_error why;
    struct wallet_rule rule;
    struct wallet_denial no;
    (void)state;
    assert_int_equal(wallet_policy_read(bytes_of(text, sizeof text - 1), &p, &why), ERR_OK);
    assert_int_equal(wallet_policy_version(p), 7);
    struct wallet_ask ask = {WALLET_TRANSFER, STR("acct:shop-1"), STR("acct:shop-1"),
                             STR("acct:b"),   STR("ron"),         money_from_u64(6)};
    assert_int_equal(wallet_policy_judge(p, &ask, &rule, &no), ERR_LIMIT_EXCEEDED);
    assert_string_equal(no.reason, "policy_max_amount");
    ask.amount = money_from_u64(5);
    assert_int_equal(wallet_policy_judge(p, &ask, &rule, &no), ERR_OK);
    assert_false(rule.has_daily); /* the second row is not looked at */
    ask.kind = WALLET_BURN;
    assert_int_equal(wallet_policy_judge(p, &ask, &rule, &no), ERR_OK);
    assert_true(rule.has_daily);
    ask.to = STR("acct:bad-7");
    assert_int_equal(wallet_policy_judge(p, &ask, &rule, &no), ERR_FORBIDDEN);
    assert_string_equal(no.reason, "frozen");
    ask.to = STR("acct:b");
    ask.asset = STR("silver");
    assert_int_equal(wallet_policy_judge(p, &ask, &rule, &no), ERR_UNKNOWN_ASSET);
    wallet_policy_free(p);
    assert_int_equal(wallet_policy_read(bytes_of("{\"limits\":[{\"account\":\"a b\"}]}", 30), &p, &why),
                     ERR_BAD_REQUEST);
    assert_string_equal(why.path, "limits[0].account");
}

static void a_misspelt_limit_is_refused_and_other_services_members_are_not(void **state)
{
    static const struct {
        const char *text, *path;
    } wrong[] = {
        {"{\"limits\":[{\"account\":\"*\",\"max_amout\":\"5\"}]}", "limits[0].max_amout"},
        {"{\"limits\":[{\"account\":\"*\",\"Daily\":\"5\"}]}", "limits[0].Daily"},
        {"{\"limit\":[{\"account\":\"*\",\"daily\":\"5\"}]}", "limit"},
        {"{\"version\":1,\"frozn\":[\"acct:thief\"]}", "frozn"},
        {"{\"assets\":{\"ron\":{\"decimal\":2}}}", "assets.ron.decimal"},
        {"{\"kinds\":[],\"kinds\":[]}", "kinds"},
    };
    static const char shared[] = "{\"kinds\":[\"mint\"],\"reward_policies\":[{\"v\":1,\"id\":\"weekly\"}]}";
    struct wallet_policy *p = NULL;
    struct json_error why;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(wallet_policy_read(bytes_of(wrong[i].text, strlen(wrong[i].text)), &p, &why),
                         ERR_BAD_REQUEST);
        assert_string_equal(why.path, wrong[i].path);
    }
    assert_int_equal(wallet_policy_read(bytes_of(shared, sizeof shared - 1), &p, &why), ERR_OK);
    wallet_policy_free(p);
}

static void two_roots_for_one_size_are_noticed(void **state)
{
    struct wallet_roots r;
    struct sha256 a = {{1}}, b = {{2}};
    (void)state;
    assert_int_equal(wallet_roots_init(&r), ERR_OK);
    for (uint64_t size = 1; size < 10000; size++)
        assert_int_equal(wallet_roots_see(&r, size, &a), ERR_OK);
    assert_int_equal(wallet_roots_see(&r, 9999, &b), ERR_CORRUPT);
    assert_int_equal(wallet_roots_see(&r, 10000 - WALLET_ROOTS, &b), ERR_CORRUPT);
    assert_int_equal(wallet_roots_see(&r, 5, &b), ERR_OK); /* too long ago */
    wallet_roots_fini(&r);
}

static void bury(struct wallet_tombs *t, uint64_t id, struct str text)
{
    struct wallet_sides sides = {.from_n = (uint16_t)text.n};
    wallet_tombs_add(t, (struct key128){id, id}, ERR_INSUFFICIENT_FUNDS, text, &sides, 100);
}

static const struct wallet_tomb *dug(const struct wallet_tombs *t, uint64_t id, int64_t now_ns)
{
    return wallet_tombs_find(t, (struct key128){id, id}, now_ns, 50);
}

static void tombstones_are_few_and_fade(void **state)
{
    struct wallet_tombs t;
    (void)state;
    assert_int_equal(wallet_tombs_init(&t, 4, 4096), ERR_OK);
    for (uint64_t i = 0; i < 6; i++)
        bury(&t, i, STR("acct:a"));
    assert_null(dug(&t, 1, 100)); /* made room */
    assert_int_equal(dug(&t, 5, 150)->why, ERR_INSUFFICIENT_FUNDS);
    assert_true(str_eq(wallet_side(str_of(dug(&t, 5, 150)->text, 6), 0, dug(&t, 5, 150)->sides.from_n),
                       STR("acct:a")));
    assert_null(dug(&t, 5, 151));
    wallet_tombs_remove(&t, (struct key128){4, 4});
    assert_null(dug(&t, 4, 100));
    bury(&t, 7, STR("acct:b")); /* where one was removed the ring goes on */
    assert_non_null(dug(&t, 7, 100));
    assert_non_null(dug(&t, 5, 100));
    wallet_tombs_fini(&t);
}

static void tombstones_keep_no_more_text_than_they_may(void **state)
{
    struct wallet_tombs t;
    (void)state;
    assert_int_equal(wallet_tombs_init(&t, 64, 25), ERR_OK);
    for (uint64_t i = 0; i < 9; i++) {
        bury(&t, i, STR("0123456789"));
        assert_true(t.text_bytes <= 25);
        assert_non_null(dug(&t, i, 100));
    }
    assert_non_null(dug(&t, 7, 100));
    assert_null(dug(&t, 6, 100));
    bury(&t, 7, STR("abcdefghij")); /* again: the old one's text is given back */
    assert_int_equal(t.text_bytes, 20);
    bury(&t, 10, STR("longer than all that there is room for"));
    assert_null(dug(&t, 10, 100));
    assert_non_null(dug(&t, 7, 100));
    wallet_tombs_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i2_every_receipt_is_rebuilt_from_its_unit_byte_for_byte),
        cmocka_unit_test(a_unit_that_was_tampered_with_is_foreign),
        cmocka_unit_test(i4_chains_send_each_lane_in_order_and_one_request_at_a_time),
        cmocka_unit_test(i1_a_key_has_one_owner_and_one_receipt_whatever_is_evicted),
        cmocka_unit_test(i9_a_cached_balance_is_never_older_than_it_says),
        cmocka_unit_test(allowances_neither_leak_nor_overflow),
        cmocka_unit_test(what_comes_late_from_yesterday_is_not_held_against_today),
        cmocka_unit_test(every_reason_of_the_ledger_has_one_meaning),
        cmocka_unit_test(the_first_limit_that_matches_counts),
        cmocka_unit_test(a_misspelt_limit_is_refused_and_other_services_members_are_not),
        cmocka_unit_test(two_roots_for_one_size_are_noticed),
        cmocka_unit_test(tombstones_are_few_and_fade),
        cmocka_unit_test(tombstones_keep_no_more_text_than_they_may),
    };
    return cmocka_run_group_tests(tests, seed_it, NULL);
}
