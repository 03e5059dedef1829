/* The capability a client presents, and its successors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "ledger_client/bearer.h"

static void what_was_set_last_is_presented_and_what_was_read_before_stays(void **state)
{
    (void)state;
    struct ledger_bearer b = {NULL};
    assert_int_equal(ledger_bearer_set(&b, STR("one")), ERR_OK);
    const char *line = ledger_bearer_line(&b);
    assert_int_equal(ledger_bearer_set(&b, STR("two")), ERR_OK);
    assert_string_equal(line, "Authorization: Bearer one");
    assert_string_equal(ledger_bearer_line(&b), "Authorization: Bearer two");
    assert_string_equal(ledger_bearer_token(&b), "two");
    ledger_bearer_fini(&b);
}

static void the_same_again_costs_nothing(void **state)
{
    (void)state;
    struct ledger_bearer b = {NULL};
    assert_int_equal(ledger_bearer_set(&b, STR("one")), ERR_OK);
    const char *line = ledger_bearer_line(&b);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(ledger_bearer_set(&b, STR("one")), ERR_OK);
    assert_ptr_equal(ledger_bearer_line(&b), line);
    ledger_bearer_fini(&b);
}

static void one_that_is_too_long_leaves_the_one_before(void **state)
{
    static char text[20000];
    (void)state;
    struct ledger_bearer b = {NULL};
    memset(text, 'x', sizeof text);
    assert_int_equal(ledger_bearer_set(&b, STR("")), ERR_OK);
    assert_int_equal(ledger_bearer_set(&b, str_of(text, sizeof text)), ERR_TOO_LARGE);
    assert_string_equal(ledger_bearer_token(&b), "");
    ledger_bearer_fini(&b);
}

static void *present(void *arg)
{
    for (int i = 0; i < 10000; i++) {
        const char *token = ledger_bearer_token(arg);
        if (strcmp(token, "odd") != 0 && strcmp(token, "even") != 0)
            return arg;
    }
    return NULL;
}

static void others_present_it_while_it_changes(void **state)
{
    (void)state;
    struct ledger_bearer b = {NULL};
    pthread_t other;
    void *torn;
    assert_int_equal(ledger_bearer_set(&b, STR("even")), ERR_OK);
    assert_int_equal(pthread_create(&other, NULL, present, &b), 0);
    for (int i = 1; i < 1000; i++)
        assert_int_equal(ledger_bearer_set(&b, i % 2 ? STR("odd") : STR("even")), ERR_OK);
    assert_int_equal(pthread_join(other, &torn), 0);
    assert_null(torn);
    ledger_bearer_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_set_last_is_presented_and_what_was_read_before_stays),
        cmocka_unit_test(the_same_again_costs_nothing),
        cmocka_unit_test(one_that_is_too_long_leaves_the_one_before),
        cmocka_unit_test(others_present_it_while_it_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
