#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "services/rewarder/core/policy.h"

static struct bytes text(const char *s)
{
    return (struct bytes){(const uint8_t *)s, strlen(s)};
}

#define GOOD_HEAD                                                                                          \
    "\"v\":1,\"id\":\"p\",\"asset\":\"ron\",\"funding_account\":\"f\",\"dust_account\":\"d\","             \
    "\"rounding\":\"floor\""
#define GOOD_WEIGHTS "\"weights\":[{\"dim\":\"a\",\"num\":1,\"den\":1}]"

static void spelling_does_not_change_the_hash(void **state)
{
    (void)state;
    const char *member;
    struct rewarder_policy *a, *b;
    assert_int_equal(
        rewarder_policy_create(text("{" GOOD_HEAD
                                    ",\"pool\":\"5\",\"weights\":[{\"dim\":\"b\",\"num\":2,\"den\":4},"
                                    "{\"dim\":\"a\",\"num\":0,\"den\":7}],\"tenants\":[\"t2\",\"t1\"]}"),
                               &a, &member),
        ERR_OK);
    assert_int_equal(
        rewarder_policy_create(
            text("{\"tenants\":[\"t1\",\"t2\"],\"weights\":[{\"den\":1,\"dim\":\"a\",\"num\":0},"
                 "{\"den\":2,\"dim\":\"b\",\"num\":1}],\"pool\":\"5\",\"tie_break\":\"account_asc\","
                 "\"min_payout\":\"1\"," GOOD_HEAD "}"),
            &b, &member),
        ERR_OK);
    assert_string_equal(a->canonical, b->canonical);
    assert_true(sha256_eq(&a->hash, &b->hash));
    assert_true(rewarder_policy_for_tenant(a, STR("t2")));
    assert_false(rewarder_policy_for_tenant(a, STR("default")));
    /* what was normalised normalises to itself */
    struct rewarder_policy *again;
    assert_int_equal(rewarder_policy_create(text(a->canonical), &again, &member), ERR_OK);
    assert_string_equal(a->canonical, again->canonical);
    rewarder_policy_destroy(a);
    rewarder_policy_destroy(b);
    rewarder_policy_destroy(again);
}

static void every_broken_rule_is_refused_and_names_its_member(void **state)
{
    (void)state;
    static const struct {
        const char *body, *member;
    } cases[] = {
        {"[]", "policy"},
        {"{", "policy"},
        {"{\"nonsense\":1}", "policy"},
        {"{\"v\":2}", "v"},
        {"{\"id\":\"Upper\"}", "id"},
        {"{" GOOD_HEAD "," GOOD_WEIGHTS "}", "pool"},
        {"{" GOOD_HEAD ",\"pool\":\"01\"," GOOD_WEIGHTS "}", "pool"},
        {"{" GOOD_HEAD ",\"pool\":5," GOOD_WEIGHTS "}", "pool"},
        {"{" GOOD_HEAD ",\"pool\":\"340282366920938463463374607431768211456\"," GOOD_WEIGHTS "}", "pool"},
        {"{" GOOD_HEAD ",\"pool\":\"5\"}", "weights"},
        {"{" GOOD_HEAD ",\"pool\":\"5\",\"weights\":[]}", "weights"},
        {"{" GOOD_HEAD ",\"pool\":\"5\",\"weights\":[{\"dim\":\"a\",\"num\":0,\"den\":1}]}", "weights"},
        {"{" GOOD_HEAD ",\"pool\":\"5\",\"weights\":[{\"dim\":\"a\",\"num\":1,\"den\":0}]}", "weights"},
        {"{" GOOD_HEAD ",\"pool\":\"5\",\"weights\":[{\"dim\":\"a\",\"num\":1000000001,\"den\":1}]}",
         "weights"},
        {"{" GOOD_HEAD ",\"pool\":\"5\",\"weights\":[{\"dim\":\"a\",\"num\":1,\"den\":1},"
         "{\"dim\":\"a\",\"num\":2,\"den\":1}]}",
         "weights"},
        /* coprime denominators: the whole weights pass 2^64 */
        {"{" GOOD_HEAD ",\"pool\":\"5\",\"weights\":[{\"dim\":\"a\",\"num\":1,\"den\":999999937},"
         "{\"dim\":\"b\",\"num\":1,\"den\":999999929},{\"dim\":\"c\",\"num\":1,\"den\":999999893},{\"dim\":"
         "\"d\",\"num\":1,\"den\":999999883}]}",
         "weights"},
        {"{" GOOD_HEAD ",\"pool\":\"5\"," GOOD_WEIGHTS ",\"min_payout\":\"0\"}", "min_payout"},
        {"{" GOOD_HEAD ",\"pool\":\"5\"," GOOD_WEIGHTS ",\"min_payout\":\"3\",\"max_payout\":\"2\"}",
         "max_payout"},
        {"{" GOOD_HEAD ",\"pool\":\"5\"," GOOD_WEIGHTS ",\"tie_break\":\"random\"}", "tie_break"},
        {"{" GOOD_HEAD ",\"pool\":\"5\"," GOOD_WEIGHTS ",\"tenants\":[]}", "tenants"},
        {"{" GOOD_HEAD ",\"pool\":\"5\"," GOOD_WEIGHTS ",\"tenants\":[\"a\",\"a\"]}", "tenants"},
        {"{\"v\":1,\"id\":\"p\",\"asset\":\"ron\",\"funding_account\":\"f\",\"dust_account\":\"f\","
         "\"rounding\":\"floor\","
         "\"pool\":\"5\"," GOOD_WEIGHTS "}",
         "dust_account"},
        {"{\"rounding\":\"nearest\"}", "rounding"},
        {"{\"asset\":\"-x\"}", "asset"},
        {"{\"funding_account\":\"\"}", "funding_account"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rewarder_policy *p;
        const char *member = "";
        enum err e = rewarder_policy_create(text(cases[i].body), &p, &member);
        if (e != ERR_BAD_POLICY || strcmp(member, cases[i].member))
            fail_msg("case %zu: %s, member %s", i, err_name(e), member);
    }
}

static void weights_become_integers_over_the_common_denominator(void **state)
{
    (void)state;
    struct rewarder_policy *p;
    const char *member;
    assert_int_equal(
        rewarder_policy_create(
            text("{" GOOD_HEAD ",\"pool\":\"balance\",\"weights\":[{\"dim\":\"x\",\"num\":3,\"den\":10},"
                 "{\"dim\":\"y\",\"num\":5,\"den\":6},{\"dim\":\"z\",\"num\":2,\"den\":1}]}"),
            &p, &member),
        ERR_OK);
    assert_true(p->pool_is_balance);
    assert_int_equal(p->weights[0].whole, 9);
    assert_int_equal(p->weights[1].whole, 25);
    assert_int_equal(p->weights[2].whole, 60);
    rewarder_policy_destroy(p);
    p = rewarder_policy_create_default();
    assert_non_null(p);
    assert_string_equal(p->id, "default");
    rewarder_policy_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spelling_does_not_change_the_hash),
        cmocka_unit_test(every_broken_rule_is_refused_and_names_its_member),
        cmocka_unit_test(weights_become_integers_over_the_common_denominator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
