/* The policies of a file: taken all together, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "services/rewarder/policies.h"

#define POLICY(id, asset)                                                                                  \
    "{\"v\":1,\"id\":\"" id "\",\"asset\":\"" asset                                                        \
    "\",\"funding_account\":\"f\",\"dust_account\":\"d\",\"pool\":\"5\",\"rounding\":\"floor\","           \
    "\"weights\":[{\"dim\":\"a\",\"num\":1,\"den\":1}]}"

static enum err load(struct rewarder_policies *p, const char *text, const char **out_member)
{
    return rewarder_policies_load(p, bytes_of(text, strlen(text)), out_member);
}

static bool has(struct rewarder_policies *p, struct str id)
{
    struct rewarder_policy_ref *ref = rewarder_policies_find(p, id);
    rewarder_policy_unref(ref);
    return ref != NULL;
}

static void an_asset_that_the_file_does_not_know_is_refused_and_the_last_good_ones_stay(void **state)
{
    struct rewarder_policies p;
    const char *member = "";
    (void)state;
    rewarder_policies_init(&p);
    assert_int_equal(load(&p, "{\"reward_policies\":[" POLICY("first", "gem") "]}", &member), ERR_OK);
    assert_int_equal(load(&p,
                          "{\"assets\":{\"ron\":{\"decimals\":2}},\"reward_policies\":[" POLICY(
                              "a", "ron") "," POLICY("b", "gem") "]}",
                          &member),
                     ERR_BAD_POLICY);
    assert_string_equal(member, "asset");
    assert_int_equal(
        load(&p, "{\"assets\":[\"ron\",7],\"reward_policies\":[" POLICY("b", "gem") "]}", &member),
        ERR_BAD_POLICY);
    assert_true(has(&p, STR("first")) && !has(&p, STR("a")) && !has(&p, STR("b")));
    /* both ways of naming them are in use */
    assert_int_equal(
        load(&p, "{\"assets\":{\"ron\":{}},\"reward_policies\":[" POLICY("a", "ron") "]}", &member),
        ERR_OK);
    assert_true(has(&p, STR("a")) && !has(&p, STR("first")));
    assert_int_equal(
        load(&p, "{\"assets\":[\"ron\",\"gem\"],\"reward_policies\":[" POLICY("b", "gem") "]}", &member),
        ERR_OK);
    assert_true(has(&p, STR("b")));
    rewarder_policies_fini(&p);
}

static void the_assets_that_exist_are_those_of_the_last_good_file_and_all_when_it_names_none(void **state)
{
    struct rewarder_policies p;
    const char *member = "";
    (void)state;
    rewarder_policies_init(&p);
    assert_int_equal(rewarder_policies_load(&p, (struct bytes){NULL, 0}, &member), ERR_OK);
    assert_true(rewarder_policies_know_asset(&p, "gem"));
    assert_int_equal(
        load(&p, "{\"assets\":[\"ron\"],\"reward_policies\":[" POLICY("a", "ron") "]}", &member), ERR_OK);
    assert_true(rewarder_policies_know_asset(&p, "ron") && !rewarder_policies_know_asset(&p, "gem"));
    assert_int_equal(
        load(&p, "{\"assets\":[\"gem\"],\"reward_policies\":[" POLICY("a", "ron") "]}", &member),
        ERR_BAD_POLICY);
    assert_true(rewarder_policies_know_asset(&p, "ron") && !rewarder_policies_know_asset(&p, "gem"));
    assert_int_equal(load(&p, "{\"reward_policies\":[" POLICY("a", "ron") "]}", &member), ERR_OK);
    assert_true(rewarder_policies_know_asset(&p, "gem"));
    rewarder_policies_fini(&p);
}

static void one_bad_policy_or_an_id_twice_refuses_the_file(void **state)
{
    struct rewarder_policies p;
    const char *member = "";
    (void)state;
    rewarder_policies_init(&p);
    assert_int_equal(rewarder_policies_load(&p, (struct bytes){NULL, 0}, &member), ERR_OK);
    assert_int_equal(
        load(&p, "{\"reward_policies\":[" POLICY("a", "ron") "," POLICY("a", "ron") "]}", &member),
        ERR_BAD_POLICY);
    assert_string_equal(member, "id");
    assert_int_equal(load(&p, "{\"reward_policies\":[" POLICY("a", "ron") ",{}]}", &member),
                     ERR_BAD_POLICY);
    assert_int_equal(load(&p, "{\"reward_policies\":{}}", &member), ERR_BAD_POLICY);
    assert_int_equal(load(&p, "[]", &member), ERR_BAD_POLICY);
    assert_int_equal(load(&p, "{\"reward_policy\":[" POLICY("a", "ron") "]}", &member), ERR_BAD_POLICY);
    assert_string_equal(member, "reward_policy");
    assert_true(has(&p, STR("default")) && !has(&p, STR("a")));
    assert_int_equal(load(&p,
                          "{\"version\":1,\"kinds\":[],\"limits\":[],\"frozen\":[],\"assets\":[\"ron\"],"
                          "\"reward_policies\":[" POLICY("a", "ron") "]}",
                          &member),
                     ERR_OK);
    rewarder_policies_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_asset_that_the_file_does_not_know_is_refused_and_the_last_good_ones_stay),
        cmocka_unit_test(the_assets_that_exist_are_those_of_the_last_good_file_and_all_when_it_names_none),
        cmocka_unit_test(one_bad_policy_or_an_id_twice_refuses_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
