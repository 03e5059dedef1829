#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "net/problem.h"

static void written(const struct net_problem_body *p, const char *want)
{
    struct buf b;
    buf_init(&b, 4096);
    net_problem_write(p, &b);
    assert_int_equal(b.err, ERR_OK);
    assert_string_equal(buf_cstr(&b), want);
    buf_fini(&b);
}

static void a_problem_carries_type_title_status_code_and_retryable(void **state)
{
    (void)state;
    written(&(struct net_problem_body){.err = ERR_BUSY,
                                       .detail = STR("work queue is full"),
                                       .corr_id = STR("c1"),
                                       .details_json = bytes_of("{\"reason\":\"busy\"}", 17)},
            "{\"type\":\"urn:ron:error:busy\",\"title\":\"Busy\",\"status\":429,\"detail\":\"work queue is "
            "full\","
            "\"code\":\"busy\",\"retryable\":true,\"corr_id\":\"c1\",\"details\":{\"reason\":\"busy\"}}");
    written(&(struct net_problem_body){.err = ERR_NOT_FOUND},
            "{\"type\":\"urn:ron:error:not_found\",\"title\":\"Not "
            "found\",\"status\":404,\"code\":\"not_found\","
            "\"retryable\":false}");
    written(
        &(struct net_problem_body){.err = ERR_DRAINING, .status = 429},
        "{\"type\":\"urn:ron:error:draining\",\"title\":\"Draining\",\"status\":429,\"code\":\"draining\","
        "\"retryable\":true}");
}

static void text_is_escaped(void **state)
{
    (void)state;
    written(&(struct net_problem_body){.err = ERR_BAD_REQUEST, .detail = STR("a \"b\" \\ \n\x01 \xc3\xa4")},
            "{\"type\":\"urn:ron:error:bad_request\",\"title\":\"Bad request\",\"status\":400,"
            "\"detail\":\"a \\\"b\\\" \\\\ \\u000a\\u0001 "
            "\xc3\xa4\",\"code\":\"bad_request\",\"retryable\":false}");
}

static void a_sentence_that_was_cut_inside_a_character_is_still_json(void **state)
{
    (void)state;
    written(&(struct net_problem_body){.err = ERR_BAD_REQUEST, .detail = STR("\xff \"k\xc3\xa4se\xc3")},
            "{\"type\":\"urn:ron:error:bad_request\",\"title\":\"Bad request\",\"status\":400,"
            "\"detail\":\"\xef\xbf\xbd "
            "\\\"k\xc3\xa4se\xef\xbf\xbd\",\"code\":\"bad_request\",\"retryable\":false}");
}

static void errors_of_the_inside_are_told_as_their_public_kin(void **state)
{
    (void)state;
    for (int e = 0; e < ERR_COUNT; e++) {
        enum err pub = net_problem_public((enum err)e);
        assert_int_equal(net_problem_public(pub), pub);
        static const char *const inside[] = {
            "closed", "canceled", "lagged",    "empty",      "exists",  "syntax",       "torn",
            "io",     "corrupt",  "no_memory", "permission", "refused", "disconnected", "version"};
        for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
            assert_string_not_equal(err_code(pub), inside[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_problem_carries_type_title_status_code_and_retryable),
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(a_sentence_that_was_cut_inside_a_character_is_still_json),
        cmocka_unit_test(errors_of_the_inside_are_told_as_their_public_kin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
