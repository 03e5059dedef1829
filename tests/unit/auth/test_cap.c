#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/cap.h"
#include "auth/mint.h"
#include "base/hex.h"

#define NOW  INT64_C(1780000000000) /* 2026-05-28 */
#define FAR  INT64_C(4000000000000)
#define AUD  "aud = svc-wallet"
#define EXP  "exp < 2030-01-01T00:00:00Z"
#define EXP2 "exp < 2026-06-01T00:00:00Z"

static const char *const explicit_ops[] = {"issue", NULL};

struct fix {
    struct clock_manual clock;
    struct auth_keyring *keys;
    struct auth *auth;
    char token[AUTH_TOKEN_MAX + 1];
    struct auth_cap *cap;
};

static unsigned wallet_understands(void)
{
    return AUTH_BIT(AUTH_CV_ACCOUNT) | AUTH_BIT(AUTH_CV_TO) | AUTH_BIT(AUTH_CV_ASSET) |
           AUTH_BIT(AUTH_CV_MAX_AMOUNT) | AUTH_BIT(AUTH_CV_DAILY) | AUTH_BIT(AUTH_CV_IP) |
           AUTH_BIT(AUTH_CV_RATE) | AUTH_BIT(AUTH_CV_TENANT) | AUTH_BIT(AUTH_CV_BYTES);
}

static int open_fix(void **state)
{
    struct fix *f = calloc(1, sizeof *f);
    if (f == NULL || auth_keyring_generate("k1", FAR, &f->keys) != ERR_OK)
        return -1;
    clock_manual_init(&f->clock, NOW);
    struct auth_config cfg = {.aud = "svc-wallet",
                              .understands = wallet_understands(),
                              .explicit_ops = explicit_ops,
                              .keyring = f->keys,
                              .clock = &f->clock.clock};
    *state = f;
    return auth_open(&cfg, &f->auth, NULL) == ERR_OK ? 0 : -1;
}

static int close_fix(void **state)
{
    struct fix *f = *state;
    auth_cap_release(f->cap);
    auth_close(f->auth);
    auth_keyring_unref(f->keys);
    free(f);
    return 0;
}

/* Caveats separated by '|', without any check of what they say: like a holder with his own tool. */
static void make_token(const struct auth_keyring *keys, const char *caveats, char *out)
{
    struct auth_macaroon m;
    struct buf b;
    const struct auth_key *key = auth_keyring_newest(keys);
    assert_int_equal(
        auth_macaroon_create(STR("ron"), bytes_of(key->key, key->key_n), str_from_c(key->kid), &m), ERR_OK);
    char copy[AUTH_TOKEN_MAX], *save = NULL;
    assert_true(strlen(caveats) < sizeof copy);
    strcpy(copy, caveats);
    for (char *c = strtok_r(copy, "|", &save); c != NULL; c = strtok_r(NULL, "|", &save))
        assert_int_equal(auth_macaroon_append(&m, str_from_c(c)), ERR_OK);
    buf_init_fixed(&b, out, AUTH_TOKEN_MAX);
    assert_int_equal(auth_macaroon_encode(&m, &b), ERR_OK);
    out[b.n] = 0;
}

static enum err verify(struct fix *f, const char *caveats)
{
    auth_cap_release(f->cap);
    f->cap = NULL;
    make_token(f->keys, caveats, f->token);
    return auth_verify(f->auth, str_from_c(f->token), &f->cap);
}

static const struct auth_want transfer = {
    .op = STR_INIT("transfer"),
    .account = STR_INIT("acct:alice"),
    .to = STR_INIT("acct:shop-7"),
    .asset = STR_INIT("ron"),
    .amount = &(const struct money){5000},
    .bytes = 100,
    .now_ms = NOW,
};

static void caveats_are_judged_one_by_one_and_all_must_hold(void **state)
{
    static const struct {
        const char *caveats;
        enum err want;
        const char *reason;
    } rows[] = {
        {AUD "|" EXP, ERR_OK, NULL},
        {"aud in ron-ledger,svc-wallet|" EXP, ERR_OK, NULL},
        {"aud in svc-*|" EXP, ERR_OK, NULL},
        {"aud = ron-ledger|" EXP, ERR_FORBIDDEN, "aud"},
        {AUD "|aud = ron-ledger|" EXP, ERR_FORBIDDEN, "aud"},
        {AUD "|" EXP "|op in transfer,read", ERR_OK, NULL},
        {AUD "|" EXP "|op in *", ERR_OK, NULL},
        {AUD "|" EXP "|op in read", ERR_FORBIDDEN, "op"},
        {AUD "|" EXP "|op in transfer|op in read", ERR_FORBIDDEN, "op"},
        {AUD "|" EXP "|account in acct:alice", ERR_OK, NULL},
        {AUD "|" EXP "|account in acct:*", ERR_OK, NULL},
        {AUD "|" EXP "|account in acct:bob", ERR_FORBIDDEN, "account"},
        {AUD "|" EXP "|account in acct:*|account in acct:bob", ERR_FORBIDDEN, "account"},
        {AUD "|" EXP "|to in acct:shop-*", ERR_OK, NULL},
        {AUD "|" EXP "|to in acct:shop-8", ERR_FORBIDDEN, "payee"},
        {AUD "|" EXP "|asset in gold", ERR_FORBIDDEN, "asset"},
        {AUD "|" EXP "|max_amount <= 5000", ERR_OK, NULL},
        {AUD "|" EXP "|max_amount <= 4999", ERR_FORBIDDEN, "amount"},
        {AUD "|" EXP "|max_amount <= 9999|max_amount <= 1", ERR_FORBIDDEN, "amount"},
        {AUD "|" EXP "|bytes <= 100", ERR_OK, NULL},
        {AUD "|" EXP "|bytes <= 99", ERR_FORBIDDEN, "bytes"},
        {AUD "|" EXP "|ip in 10.0.0.0/8", ERR_FORBIDDEN, "ip"}, /* no peer address is stated */
        {"tenant = t1|" AUD "|" EXP, ERR_OK, NULL},
        {AUD "|tenant = t1|" EXP "|tenant = t1", ERR_OK, NULL},
        {"tenant = t1|" AUD "|" EXP "|tenant = t2", ERR_FORBIDDEN, "tenant"},
        {"tenant = t1|" AUD "|" EXP "|tenant = default", ERR_FORBIDDEN, "tenant"},
        {AUD "|" EXP "|tenant = t1", ERR_FORBIDDEN, "tenant"}, /* added by who has the default's */
        {AUD "|" EXP "|tenant = default", ERR_OK, NULL},
        {AUD "|" EXP "|op in admin,transfer|tenant = t1", ERR_FORBIDDEN, "tenant"},
        {"op in transfer|" AUD "|" EXP "|tenant = t1", ERR_FORBIDDEN, "tenant"},
        {"op in admin,transfer|" AUD "|" EXP "|tenant = t1", ERR_OK, NULL},
        {"op in admin,transfer|" AUD "|" EXP "|tenant = t1|op in transfer", ERR_OK, NULL},
        {"op in admin,transfer|" AUD "|" EXP "|op in transfer|tenant = t1", ERR_FORBIDDEN, "tenant"},
        {AUD "|" EXP "|daily <= 1|daily <= 2|daily <= 3|daily <= 4", ERR_OK, NULL},
        {AUD "|" EXP "|daily <= 1|daily <= 2|daily <= 3|daily <= 4|daily <= 5", ERR_FORBIDDEN, "daily"},
        {AUD "|" EXP "|topic in orders", ERR_FORBIDDEN, "caveat"}, /* not this service's */
        {AUD "|" EXP "|colour = red", ERR_FORBIDDEN, "caveat"},
        {AUD "|" EXP "|exp < never", ERR_FORBIDDEN, "caveat"},
        {AUD "|" EXP "|op in", ERR_FORBIDDEN, "caveat"},
        {AUD "|" EXP "|nbf > 2026-01-01T00:00:00Z", ERR_OK, NULL},
    };
    struct fix *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct auth_deny why = {0};
        assert_int_equal(verify(f, rows[i].caveats), ERR_OK);
        enum err e = auth_allows(f->cap, &transfer, &why);
        if (e != rows[i].want || (e != ERR_OK && strcmp(why.reason, rows[i].reason) != 0))
            fail_msg("%s: %s %s", rows[i].caveats, err_name(e), why.reason ? why.reason : "");
    }
}

static void a_token_needs_aud_and_exp(void **state)
{
    struct fix *f = *state;
    assert_int_equal(verify(f, AUD), ERR_UNAUTHENTICATED);
    assert_int_equal(verify(f, EXP), ERR_UNAUTHENTICATED);
    assert_int_equal(verify(f, AUD "|exp < never"), ERR_UNAUTHENTICATED);
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
}

static void what_the_request_does_not_state_is_refused_unless_it_lacks_it(void **state)
{
    struct fix *f = *state;
    static const struct {
        const char *caveats;
        enum auth_cv kind;
    } rows[] = {
        {AUD "|" EXP "|account in *", AUTH_CV_ACCOUNT},
        {AUD "|" EXP "|to in *", AUTH_CV_TO},
        {AUD "|" EXP "|asset in *", AUTH_CV_ASSET},
        {AUD "|" EXP "|max_amount <= 5", AUTH_CV_MAX_AMOUNT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct auth_want w = {.op = STR("read"), .now_ms = NOW};
        assert_int_equal(verify(f, rows[i].caveats), ERR_OK);
        assert_int_equal(auth_allows(f->cap, &w, NULL), ERR_FORBIDDEN);
        w.lacks = AUTH_BIT(rows[i].kind);
        assert_int_equal(auth_allows(f->cap, &w, NULL), ERR_OK);
        w.lacks = ~AUTH_BIT(rows[i].kind);
        assert_int_equal(auth_allows(f->cap, &w, NULL), ERR_FORBIDDEN);
    }
    /* A burn states that it has a payee and that it is nobody. */
    struct auth_want burn = {
        .op = STR("burn"), .to = STR(""), .now_ms = NOW, .lacks = AUTH_BIT(AUTH_CV_TO)};
    assert_int_equal(verify(f, AUD "|" EXP "|to in *"), ERR_OK);
    assert_int_equal(auth_allows(f->cap, &burn, NULL), ERR_FORBIDDEN);
}

static void admin_and_explicit_ops_are_never_implied(void **state)
{
    static const struct {
        const char *caveats, *op;
        enum err want;
    } rows[] = {
        {AUD "|" EXP, "transfer", ERR_OK},
        {AUD "|" EXP, "admin", ERR_FORBIDDEN},
        {AUD "|" EXP, "issue", ERR_FORBIDDEN},
        {AUD "|" EXP "|op in *", "transfer", ERR_OK},
        {"op in *|" AUD "|" EXP, "admin", ERR_FORBIDDEN},
        {"op in adm*,iss*|" AUD "|" EXP, "admin", ERR_FORBIDDEN},
        {"op in adm*,iss*|" AUD "|" EXP, "issue", ERR_FORBIDDEN},
        {"op in admin|" AUD "|" EXP, "admin", ERR_OK},
        {AUD "|op in admin|" EXP, "admin", ERR_OK},
        {EXP "|op in admin|" AUD, "admin", ERR_OK},
        {"op in admin|" AUD "|" EXP, "transfer", ERR_FORBIDDEN},
        {"op in issue,*|" AUD "|" EXP, "issue", ERR_OK},
        {"op in issue|" AUD "|" EXP "|op in *", "issue", ERR_FORBIDDEN},
        {"op in admin|" AUD "|" EXP "|op in read,admin", "admin", ERR_OK},
        /* Whoever holds a good token could have added these: adding never allows more. */
        {AUD "|" EXP "|op in admin", "admin", ERR_FORBIDDEN},
        {AUD "|" EXP "|op in issue,*", "issue", ERR_FORBIDDEN},
        {AUD "|" EXP "|op in issue|" AUD "|" EXP, "issue", ERR_FORBIDDEN},
        {"op in *|" AUD "|" EXP "|op in admin", "admin", ERR_FORBIDDEN},
        {"op in read|" AUD "|" EXP "|op in admin", "admin", ERR_FORBIDDEN},
        {AUD "|" EXP "|op in admin", "transfer", ERR_FORBIDDEN},
    };
    struct fix *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct auth_want w = {.op = str_from_c(rows[i].op), .now_ms = NOW};
        assert_int_equal(verify(f, rows[i].caveats), ERR_OK);
        if (auth_allows(f->cap, &w, NULL) != rows[i].want)
            fail_msg("%s: %s", rows[i].caveats, rows[i].op);
    }
}

static void a_cached_token_expires_to_the_millisecond(void **state)
{
    struct fix *f = *state;
    const int64_t end = INT64_C(1780272000000); /* EXP2 */
    assert_int_equal(verify(f, AUD "|" EXP "|" EXP2), ERR_OK);
    assert_int_equal(auth_cap_expires_ms(f->cap), end);
    struct auth_want w = transfer;
    struct auth_deny why;
    w.now_ms = end - 1;
    assert_int_equal(auth_allows(f->cap, &w, &why), ERR_OK);
    w.now_ms = end;
    assert_int_equal(auth_allows(f->cap, &w, &why), ERR_UNAUTHENTICATED);
    assert_string_equal(why.reason, "expired");
    clock_manual_set_wall_ms(&f->clock, end);
    struct auth_cap *cap = NULL;
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_UNAUTHENTICATED);
    assert_null(cap);
}

static void a_token_is_not_valid_before_its_time(void **state)
{
    struct fix *f = *state;
    assert_int_equal(verify(f, AUD "|" EXP "|nbf > 2027-01-01T00:00:00Z"), ERR_UNAUTHENTICATED);
    clock_manual_set_wall_ms(&f->clock, INT64_C(1798761600001));
    assert_int_equal(verify(f, AUD "|" EXP "|nbf > 2027-01-01T00:00:00Z"), ERR_OK);
    struct auth_deny why;
    assert_int_equal(auth_allows(f->cap, &transfer, &why), ERR_UNAUTHENTICATED); /* the want says NOW */
    assert_string_equal(why.reason, "not_yet");
}

static void a_key_that_ended_ends_its_tokens(void **state)
{
    struct fix *f = *state;
    assert_int_equal(verify(f, AUD "|exp < 9999-01-01T00:00:00Z"), ERR_OK);
    assert_int_equal(auth_cap_expires_ms(f->cap), FAR);
}

static void forged_foreign_and_broken_tokens_are_unauthenticated(void **state)
{
    struct fix *f = *state;
    struct auth_keyring *foreign;
    struct auth_cap *cap = NULL;
    char token[AUTH_TOKEN_MAX + 1];
    assert_int_equal(auth_keyring_generate("k1", FAR, &foreign), ERR_OK);
    make_token(foreign, AUD "|" EXP, token);
    auth_keyring_unref(foreign);
    assert_int_equal(auth_verify(f->auth, str_from_c(token), &cap), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_keyring_generate("k2", FAR, &foreign), ERR_OK);
    make_token(foreign, AUD "|" EXP, token);
    auth_keyring_unref(foreign);
    assert_int_equal(auth_verify(f->auth, str_from_c(token), &cap), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_verify(f->auth, STR(""), &cap), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_verify(f->auth, STR("not a token"), &cap), ERR_UNAUTHENTICATED);
    static char big[AUTH_TOKEN_MAX + 1];
    memset(big, 'A', sizeof big);
    assert_int_equal(auth_verify(f->auth, (struct str){big, sizeof big}, &cap), ERR_UNAUTHENTICATED);
    assert_null(cap);
    struct auth_stats st;
    auth_stats(f->auth, &st);
    assert_int_equal(st.failures, 5);
    assert_int_equal(st.entries, 0);
}

static void the_second_look_at_a_token_is_a_hit_until_its_time_is_over(void **state)
{
    struct fix *f = *state;
    struct auth_cap *again;
    struct auth_stats st;
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &again), ERR_OK);
    assert_ptr_equal(again, f->cap);
    auth_cap_release(again);
    clock_manual_advance_ms(&f->clock, 29999);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &again), ERR_OK);
    assert_ptr_equal(again, f->cap);
    auth_cap_release(again);
    clock_manual_advance_ms(&f->clock, 1);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &again), ERR_OK);
    assert_ptr_not_equal(again, f->cap);
    auth_cap_release(again);
    auth_stats(f->auth, &st);
    assert_int_equal(st.hits, 2);
    assert_int_equal(st.misses, 2);
    assert_int_equal(st.entries, 1);
}

/* The end of the text, where the signature stands, only finds the place in the cache. */
static void a_known_signature_under_other_words_is_no_hit(void **state)
{
    struct fix *f = *state;
    struct auth_cap *cap;
    assert_int_equal(verify(f, AUD "|" EXP "|account in acct:alice"), ERR_OK);
    for (size_t at = 0; at < strlen(f->token) - 43; at++) {
        char was = f->token[at];
        f->token[at] = was == 'A' ? 'B' : 'A';
        if (auth_verify(f->auth, str_from_c(f->token), &cap) == ERR_OK) {
            /* the location is a hint and not signed */
            assert_ptr_not_equal(cap, f->cap);
            assert_true(auth_covers(cap, AUTH_CV_ACCOUNT, STR("acct:alice")));
            assert_false(auth_covers(cap, AUTH_CV_ACCOUNT, STR("acct:bob")));
            auth_cap_release(cap);
        }
        f->token[at] = was;
    }
    struct auth_stats stats;
    auth_stats(f->auth, &stats);
    assert_int_equal(stats.hits, 0);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_OK);
    assert_ptr_equal(cap, f->cap);
    auth_cap_release(cap);
}

static void the_cache_is_bounded(void **state)
{
    struct fix *f = *state;
    struct auth_stats st;
    char caveats[128];
    struct auth_config cfg = {
        .aud = "svc-wallet", .keyring = f->keys, .clock = &f->clock.clock, .cache_entries = 128};
    auth_close(f->auth);
    assert_int_equal(auth_open(&cfg, &f->auth, NULL), ERR_OK);
    for (int i = 0; i < 1000; i++) {
        snprintf(caveats, sizeof caveats, AUD "|" EXP "|op in op%d", i);
        assert_int_equal(verify(f, caveats), ERR_OK);
    }
    auth_cap_release(f->cap);
    f->cap = NULL;
    auth_stats(f->auth, &st);
    assert_true(st.entries <= 128);
    assert_int_equal(st.entries + st.evicted, 1000);
}

static void trimming_drops_what_is_too_old(void **state)
{
    struct fix *f = *state;
    struct auth_stats st;
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
    auth_refresh(f->auth);
    auth_stats(f->auth, &st);
    assert_int_equal(st.entries, 1);
    clock_manual_advance_ms(&f->clock, 30000);
    auth_refresh(f->auth);
    auth_stats(f->auth, &st);
    assert_int_equal(st.entries, 0);
    assert_int_equal(st.expired, 1);
}

static void fail_tokens(struct fix *f, int times)
{
    struct auth_cap *cap;
    for (int i = 0; i < times; i++)
        assert_int_equal(auth_verify(f->auth, STR("bad"), &cap), ERR_UNAUTHENTICATED);
}

static void a_spike_of_failures_empties_the_cache_once(void **state)
{
    struct fix *f = *state;
    struct auth_stats st;
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
    for (int s = 0; s < 40; s++) { /* five a second is no spike, however long it lasts */
        auth_refresh(f->auth);
        fail_tokens(f, 5);
        clock_manual_advance_ms(&f->clock, 1000);
    }
    auth_stats(f->auth, &st);
    assert_int_equal(st.emptied, 0);
    fail_tokens(f, 6);
    auth_refresh(f->auth);
    auth_stats(f->auth, &st);
    assert_int_equal(st.emptied, 1);
    assert_int_equal(st.entries, 0);
    auth_refresh(f->auth);
    auth_stats(f->auth, &st);
    assert_int_equal(st.emptied, 1);
}

static void daily_counters_are_named_by_what_comes_before_them(void **state)
{
    struct fix *f = *state;
    struct auth_daily first, second, narrowed, other;
    assert_int_equal(verify(f, AUD "|" EXP "|daily <= 100|daily <= 50"), ERR_OK);
    assert_true(auth_cap_daily(f->cap, 0, &first));
    assert_true(auth_cap_daily(f->cap, 1, &second));
    assert_false(auth_cap_daily(f->cap, 2, &narrowed));
    assert_true(money_cmp(first.limit, money_from_u64(100)) == 0);
    assert_true(money_cmp(second.limit, money_from_u64(50)) == 0);
    assert_false(sha256_eq(&first.counter, &second.counter));
    assert_int_equal(verify(f, AUD "|" EXP "|daily <= 100|op in transfer|account in acct:bob"), ERR_OK);
    assert_true(auth_cap_daily(f->cap, 0, &narrowed));
    assert_true(sha256_eq(&first.counter, &narrowed.counter)); /* narrowing cannot escape it */
    assert_int_equal(verify(f, AUD "|" EXP "|op in transfer|daily <= 100"), ERR_OK);
    assert_true(auth_cap_daily(f->cap, 0, &other));
    assert_false(sha256_eq(&first.counter, &other.counter));
}

static void a_rate_is_shared_by_everything_narrowed_from_it(void **state)
{
    struct fix *f = *state;
    int64_t wait_ms = 0;
    assert_int_equal(verify(f, AUD "|" EXP "|rate <= 10/s"), ERR_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_OK);
    assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_RATE_LIMITED);
    assert_int_equal(wait_ms, 100);
    assert_int_equal(verify(f, AUD "|" EXP "|rate <= 10/s|op in read"), ERR_OK);
    assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_RATE_LIMITED);
    clock_manual_advance_ms(&f->clock, 100);
    assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_OK);
    assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_RATE_LIMITED);
    assert_int_equal(verify(f, AUD "|" EXP2 "|rate <= 10/s"), ERR_OK);
    assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_OK); /* another token, another bucket */
}

static void a_request_refused_by_one_rate_is_not_charged_to_another(void **state)
{
    struct fix *f = *state;
    int64_t wait_ms;
    struct auth_cap *wide;
    assert_int_equal(verify(f, AUD "|" EXP "|rate <= 4/s"), ERR_OK);
    wide = auth_cap_hold(f->cap);
    assert_int_equal(verify(f, AUD "|" EXP "|rate <= 4/s|rate <= 1/s"), ERR_OK);
    assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(auth_rate_take(f->cap, &wait_ms), ERR_RATE_LIMITED);
    for (int i = 0; i < 3; i++)
        assert_int_equal(auth_rate_take(wide, &wait_ms), ERR_OK);
    assert_int_equal(auth_rate_take(wide, &wait_ms), ERR_RATE_LIMITED);
    auth_cap_release(wide);
}

static void tenants_are_named_by_the_caveat_and_else_default(void **state)
{
    struct fix *f = *state;
    uint8_t id[AUTH_TENANT_ID_BYTES] = {0};
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
    assert_true(str_eq(auth_cap_tenant(f->cap), STR("default")));
    assert_true(auth_cap_fits_tenant_id(f->cap, id));
    auth_tenant_id(STR("default"), id);
    assert_true(auth_cap_fits_tenant_id(f->cap, id));
    auth_tenant_id(STR("t1"), id);
    assert_false(auth_cap_fits_tenant_id(f->cap, id));
    assert_int_equal(verify(f, "tenant = t1|" AUD "|" EXP), ERR_OK);
    assert_true(str_eq(auth_cap_tenant(f->cap), STR("t1")));
    assert_true(auth_cap_fits_tenant_id(f->cap, id));
    struct auth_want w = transfer;
    w.tenant = STR("t2");
    assert_int_equal(auth_allows(f->cap, &w, NULL), ERR_FORBIDDEN);
    w.tenant = STR("t1");
    assert_int_equal(auth_allows(f->cap, &w, NULL), ERR_OK);
}

static void filters_follow_every_list_of_their_kind(void **state)
{
    struct fix *f = *state;
    assert_int_equal(verify(f, AUD "|" EXP "|account in acct:*|account in acct:a*,acct:b"), ERR_OK);
    assert_true(auth_covers(f->cap, AUTH_CV_ACCOUNT, STR("acct:alice")));
    assert_true(auth_covers(f->cap, AUTH_CV_ACCOUNT, STR("acct:b")));
    assert_false(auth_covers(f->cap, AUTH_CV_ACCOUNT, STR("acct:c")));
    assert_true(auth_covers(f->cap, AUTH_CV_ASSET, STR("ron")));
}

/* Every word of up to four letters, in order: what lies between a word and the one named next is covered by nothing. */
static void the_next_that_is_covered_leaves_out_only_what_is_not(void **state)
{
    static const char *const tokens[] = {
        AUD "|" EXP,
        AUD "|" EXP "|topic in *",
        AUD "|" EXP "|topic in b*",
        AUD "|" EXP "|topic in ab,ba*,a",
        AUD "|" EXP "|topic in ab*,b|topic in abb*,b*,c",
        AUD "|" EXP "|topic in a*|topic in b*",
        AUD "|" EXP "|topic in ba,ab,cc,aab*|topic in *|topic in a*,ba",
    };
    struct fix *f = *state;
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
        assert_int_equal(verify(f, tokens[t]), ERR_OK);
        char words[120][5];
        size_t n = 0;
        for (int i = 0; i < 256;
             i++) { /* base 4, 0 ends a word; those with something behind the end are left out */
            char w[5] = {(char)("\0abc"[i / 64]), (char)("\0abc"[i / 16 % 4]), (char)("\0abc"[i / 4 % 4]),
                         (char)("\0abc"[i % 4]), 0};
            size_t len = strlen(w);
            if (len > 0 && (len == 4 || memcmp(w + len, "\0\0\0\0", 4 - len) == 0))
                memcpy(words[n++], w, 5);
        }
        assert_int_equal(n, 120);
        for (size_t i = 0; i < n; i++) {
            struct str from = str_from_c(words[i]), next = STR("");
            size_t k = i;
            while (k < n && !auth_covers(f->cap, AUTH_CV_TOPIC, str_from_c(words[k])))
                k++;
            bool any = auth_covers_next(f->cap, AUTH_CV_TOPIC, from, &next);
            if (any != (k < n) || (any && !str_eq(next, str_from_c(words[k]))))
                fail_msg("%s: behind %s comes %.*s, not %s", tokens[t], words[i], (int)next.n, next.p,
                         k < n ? words[k] : "nothing");
        }
    }
}

static void the_bearer_scheme_is_read_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *header, *token;
    } rows[] = {
        {"Bearer abc", "abc"},
        {"bearer abc", "abc"},
        {"BEARER  abc", "abc"},
        {"Bearer ", NULL},
        {"Bearer", NULL},
        {"Basic abc", NULL},
        {"", NULL},
        {"Bearerabc", NULL},
        {"Bearer a b", NULL},
        {"Bearer    ", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str token = {NULL, 0};
        enum err e = auth_bearer(str_from_c(rows[i].header), &token);
        assert_int_equal(e, rows[i].token != NULL ? ERR_OK : ERR_UNAUTHENTICATED);
        assert_true(rows[i].token == NULL || str_eq_c(token, rows[i].token));
    }
}

/* ---- with files ---- */

struct files {
    char dir[64], keys[128], revoked[128];
};

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

#define KEY_A  "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B  "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define LINE_A "ka " KEY_A " 2090-01-01T00:00:00Z\n"
#define LINE_B "kb " KEY_B " 2090-01-01T00:00:00Z\n"

static void open_files(struct fix *f, struct files *fs, const char *keys)
{
    strcpy(fs->dir, "/tmp/ron-cap-XXXXXX");
    assert_non_null(mkdtemp(fs->dir));
    snprintf(fs->keys, sizeof fs->keys, "%s/keys", fs->dir);
    snprintf(fs->revoked, sizeof fs->revoked, "%s/revoked", fs->dir);
    put(fs->keys, keys);
    auth_close(f->auth);
    struct auth_config cfg = {.aud = "svc-wallet",
                              .key_file = fs->keys,
                              .revocation_file = fs->revoked,
                              .clock = &f->clock.clock};
    assert_int_equal(auth_open(&cfg, &f->auth, NULL), ERR_OK);
    auth_keyring_unref(f->keys);
    assert_int_equal(auth_keyring_load(fs->keys, &f->keys, NULL), ERR_OK);
}

static void remove_files(struct files *fs)
{
    unlink(fs->keys);
    unlink(fs->revoked);
    rmdir(fs->dir);
}

static void dropping_a_key_revokes_its_tokens_on_reload(void **state)
{
    struct fix *f = *state;
    struct files fs;
    struct auth_cap *cap;
    open_files(f, &fs, LINE_A);
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
    put(fs.keys, LINE_A LINE_B);
    assert_int_equal(auth_reload(f->auth, NULL), ERR_OK);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_OK);
    auth_cap_release(cap);
    put(fs.keys, LINE_B);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_OK); /* not read yet */
    auth_cap_release(cap);
    assert_int_equal(auth_reload(f->auth, NULL), ERR_OK);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_UNAUTHENTICATED);
    remove_files(&fs);
}

static void a_reload_that_fails_changes_nothing(void **state)
{
    struct fix *f = *state;
    struct files fs;
    struct auth_cap *cap;
    struct auth_file_error where;
    open_files(f, &fs, LINE_A);
    assert_int_equal(verify(f, AUD "|" EXP), ERR_OK);
    put(fs.keys, LINE_B "rubbish\n");
    assert_int_equal(auth_reload(f->auth, &where), ERR_SYNTAX);
    assert_int_equal(where.line, 2);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_OK);
    auth_cap_release(cap);
    put(fs.keys, LINE_B);
    put(fs.revoked, "rubbish\n");
    assert_int_equal(auth_reload(f->auth, NULL), ERR_SYNTAX);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_OK);
    auth_cap_release(cap);
    remove_files(&fs);
}

static void revoking_a_token_revokes_what_was_narrowed_from_it_in_any_form(void **state)
{
    struct fix *f = *state;
    struct files fs;
    struct auth_cap *cap;
    char hex[SHA256_HEX_CHARS], narrow[AUTH_TOKEN_MAX + 1], padded[AUTH_TOKEN_MAX + 1];
    open_files(f, &fs, LINE_A);
    make_token(f->keys, AUD "|" EXP "|account in acct:a*|op in read", narrow);
    assert_int_equal(verify(f, AUD "|" EXP "|account in acct:a*"), ERR_OK);
    hex_encode(auth_cap_id(f->cap)->b, 32, hex);
    strcpy(padded, f->token);
    while (strlen(padded) % 4 != 0)
        strcat(padded, "=");
    put(fs.revoked, hex);
    assert_int_equal(auth_reload(f->auth, NULL), ERR_OK);
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_verify(f->auth, str_from_c(padded), &cap), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_verify(f->auth, str_from_c(narrow), &cap), ERR_UNAUTHENTICATED);
    assert_int_equal(verify(f, AUD "|" EXP "|account in acct:b*"), ERR_OK); /* a sister lives on */
    /* a list that is gone makes nobody good again; an empty one does */
    struct auth_file_error where = {0};
    unlink(fs.revoked);
    assert_int_equal(auth_reload(f->auth, &where), ERR_NOT_FOUND);
    assert_non_null(strstr(where.reason, "revoked"));
    assert_int_equal(auth_verify(f->auth, str_from_c(narrow), &cap), ERR_UNAUTHENTICATED);
    put(fs.revoked, "");
    assert_int_equal(auth_reload(f->auth, NULL), ERR_OK);
    assert_int_equal(auth_verify(f->auth, str_from_c(narrow), &cap), ERR_OK);
    auth_cap_release(cap);
    remove_files(&fs);
}

static void settings_out_of_range_are_refused(void **state)
{
    struct fix *f = *state;
    struct auth *a = NULL;
    struct auth_config cfg = {.aud = "x", .keyring = f->keys, .cache_ttl_ms = 4999};
    assert_int_equal(auth_open(&cfg, &a, NULL), ERR_RANGE);
    cfg.cache_ttl_ms = 120001;
    assert_int_equal(auth_open(&cfg, &a, NULL), ERR_RANGE);
    assert_null(a);
    assert_int_equal(auth_set_cache_ttl(f->auth, 4999), ERR_RANGE);
    assert_int_equal(auth_set_cache_ttl(f->auth, 5000), ERR_OK);
}

/* ---- threads ---- */

struct worker {
    struct auth *auth;
    const char *token;
    int good, bad;
};

static void *verify_many(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < 2000; i++) {
        struct auth_cap *cap;
        struct auth_want want = {.op = STR("read"), .now_ms = NOW};
        if (auth_verify(w->auth, str_from_c(w->token), &cap) == ERR_OK) {
            w->good += auth_allows(cap, &want, NULL) == ERR_OK;
            auth_cap_release(cap);
        } else {
            w->bad++;
        }
    }
    return NULL;
}

static void verifying_goes_on_in_other_threads_while_keys_are_reloaded(void **state)
{
    struct fix *f = *state;
    struct files fs;
    pthread_t threads[3];
    struct worker w[3];
    open_files(f, &fs, LINE_A);
    make_token(f->keys, AUD "|" EXP, f->token);
    for (int i = 0; i < 3; i++) {
        w[i] = (struct worker){.auth = f->auth, .token = f->token};
        assert_int_equal(pthread_create(&threads[i], NULL, verify_many, &w[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        put(fs.keys, i % 2 == 0 ? LINE_A LINE_B : LINE_A);
        assert_int_equal(auth_reload(f->auth, NULL), ERR_OK);
        auth_refresh(f->auth);
    }
    put(fs.keys, LINE_B);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w[i].good, 2000);
        assert_int_equal(w[i].bad, 0);
    }
    assert_int_equal(auth_reload(f->auth, NULL), ERR_OK);
    struct auth_cap *cap;
    assert_int_equal(auth_verify(f->auth, str_from_c(f->token), &cap), ERR_UNAUTHENTICATED);
    remove_files(&fs);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fix, close_fix)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(caveats_are_judged_one_by_one_and_all_must_hold),
        TEST(a_token_needs_aud_and_exp),
        TEST(what_the_request_does_not_state_is_refused_unless_it_lacks_it),
        TEST(admin_and_explicit_ops_are_never_implied),
        TEST(a_cached_token_expires_to_the_millisecond),
        TEST(a_token_is_not_valid_before_its_time),
        TEST(a_key_that_ended_ends_its_tokens),
        TEST(forged_foreign_and_broken_tokens_are_unauthenticated),
        TEST(the_second_look_at_a_token_is_a_hit_until_its_time_is_over),
        TEST(a_known_signature_under_other_words_is_no_hit),
        TEST(the_cache_is_bounded),
        TEST(trimming_drops_what_is_too_old),
        TEST(a_spike_of_failures_empties_the_cache_once),
        TEST(daily_counters_are_named_by_what_comes_before_them),
        TEST(a_rate_is_shared_by_everything_narrowed_from_it),
        TEST(a_request_refused_by_one_rate_is_not_charged_to_another),
        TEST(tenants_are_named_by_the_caveat_and_else_default),
        TEST(filters_follow_every_list_of_their_kind),
        TEST(the_next_that_is_covered_leaves_out_only_what_is_not),
        TEST(the_bearer_scheme_is_read_and_nothing_else),
        TEST(dropping_a_key_revokes_its_tokens_on_reload),
        TEST(a_reload_that_fails_changes_nothing),
        TEST(revoking_a_token_revokes_what_was_narrowed_from_it_in_any_form),
        TEST(settings_out_of_range_are_refused),
        TEST(verifying_goes_on_in_other_threads_while_keys_are_reloaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
