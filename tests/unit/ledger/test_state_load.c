/* Loading a state from its records: every account is found afterwards, in whatever order they came and however many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/ledger/core/state.h"

static void row_record(unsigned account, const char *asset, uint64_t available,
                       struct ledger_state_record *r)
{
    memset(r, 0, sizeof *r);
    r->type = 'A';
    int n = snprintf((char *)r->key, sizeof r->key, "acct:%07u", account);
    size_t asset_n = strlen(asset);
    memcpy(r->key + n + 1, asset, asset_n);
    r->key_len = (uint16_t)((size_t)n + 1 + asset_n);
    r->value_len = 40;
    le64_put(r->value, available);
    le64_put(r->value + 32, 1 + account);
}

static void supply_record(const char *asset, uint64_t minted, struct ledger_state_record *r)
{
    memset(r, 0, sizeof *r);
    r->type = 'S';
    r->key_len = (uint16_t)strlen(asset);
    memcpy(r->key, asset, r->key_len);
    r->value_len = 32;
    le64_put(r->value, minted);
}

static void load(struct ledger_state *s, unsigned account, const char *asset, uint64_t available)
{
    struct ledger_state_record r;
    row_record(account, asset, available, &r);
    assert_int_equal(ledger_state_load(s, &r), ERR_OK);
}

static void has(const struct ledger_state *s, unsigned account, size_t assets, uint64_t available)
{
    char name[32];
    struct ledger_account_read read = {0};
    snprintf(name, sizeof name, "acct:%07u", account);
    assert_int_equal(ledger_state_read_account(s, str_from_c(name), UINT64_MAX >> 1, &read), ERR_OK);
    assert_int_equal(read.n_balances, assets);
    for (size_t i = 0; i < read.n_balances; i++)
        assert_true(read.balances[i].available.units == available);
    ledger_account_read_fini(&read);
}

/* `expected` is what loading is told beforehand; what comes may be more or less. */
static void load_and_look(unsigned accounts, uint64_t expected, bool ascending)
{
    struct ledger_state *s = ledger_state_create(3, 4);
    struct ledger_state_record r;
    uint64_t sum = 0;
    ledger_state_load_begin(s, expected);
    for (unsigned i = 0; i < accounts; i++) {
        unsigned account = ascending ? i : (i * 7919u) % accounts; /* 7919 is prime: each comes once */
        load(s, account, "ron", account);
        if (account % 3 == 0)
            load(s, account, "xau", account);
        sum += account;
    }
    uint64_t xau = 0;
    for (unsigned i = 0; i < accounts; i += 3)
        xau += i;
    supply_record("ron", sum, &r);
    assert_int_equal(ledger_state_load(s, &r), ERR_OK);
    supply_record("xau", xau, &r);
    assert_int_equal(ledger_state_load(s, &r), ERR_OK);
    assert_int_equal(ledger_state_load_done(s), ERR_OK);
    assert_int_equal(ledger_state_counts(s).accounts, accounts);
    for (unsigned i = 0; i < accounts; i++)
        has(s, i, i % 3 == 0 ? 2 : 1, i);
    has(s, accounts, 0, 0);
    ledger_state_destroy(s);
}

static void every_loaded_account_is_found_whatever_was_expected(void **state)
{
    (void)state;
    static const unsigned sizes[] = {1, 31, 32, 33, 4096, 4097, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        load_and_look(sizes[i], 0, true);
        load_and_look(sizes[i], sizes[i], true);
        load_and_look(sizes[i], sizes[i] / 2 + 1, true);
        load_and_look(sizes[i], 3 * (uint64_t)sizes[i], true);
    }
}

static void records_out_of_order_name_the_accounts_that_are_there(void **state)
{
    (void)state;
    load_and_look(20000, 20000, false);
    load_and_look(20000, 10, false);
}

static void an_account_that_was_just_loaded_is_found_again(void **state)
{
    (void)state;
    struct ledger_state *s = ledger_state_create(3, 4);
    struct ledger_state_record r;
    for (unsigned i = 0; i < 16; i++)
        load(s, i, "ron", 1);
    for (unsigned i = 0; i < 16; i++) /* far enough behind the last that it has to be looked for */
        load(s, (i + 8) % 16, "xau", 1);
    supply_record("ron", 16, &r);
    assert_int_equal(ledger_state_load(s, &r), ERR_OK);
    supply_record("xau", 16, &r);
    assert_int_equal(ledger_state_load(s, &r), ERR_OK);
    assert_int_equal(ledger_state_load_done(s), ERR_OK);
    assert_int_equal(ledger_state_counts(s).accounts, 16);
    for (unsigned i = 0; i < 16; i++)
        has(s, i, 2, 1);
    ledger_state_destroy(s);
}

static void a_sum_that_is_not_the_supply_is_corrupt(void **state)
{
    (void)state;
    struct ledger_state *s = ledger_state_create(3, 4);
    struct ledger_state_record r;
    ledger_state_load_begin(s, 2);
    load(s, 1, "ron", 5);
    supply_record("ron", 6, &r);
    assert_int_equal(ledger_state_load(s, &r), ERR_OK);
    assert_int_equal(ledger_state_load_done(s), ERR_CORRUPT);
    ledger_state_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loaded_account_is_found_whatever_was_expected),
        cmocka_unit_test(records_out_of_order_name_the_accounts_that_are_there),
        cmocka_unit_test(an_account_that_was_just_loaded_is_found_again),
        cmocka_unit_test(a_sum_that_is_not_the_supply_is_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
