/* Every reason for which a unit can be refused: its name, its status on both wires, and whether sending it again can help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/problem.h"

static const struct {
    enum err reason;
    const char *code;
    int status;
    bool retryable;
} map[] = {
    {ERR_CONFLICT, "conflict", 409, false},
    {ERR_ID_EXISTS, "id_exists", 409, false},
    {ERR_NONCE_CONFLICT, "nonce_conflict", 409, false},
    {ERR_NONCE_GAP, "nonce_gap", 409, true},
    {ERR_INSUFFICIENT_FUNDS, "insufficient_funds", 409, false},
    {ERR_HOLD_CLOSED, "hold_closed", 409, false},
    {ERR_EXPIRED, "expired", 409, false},
    {ERR_AMOUNT_EXCEEDS, "amount_exceeds", 422, false},
    {ERR_BAD_HOLD_UNTIL, "bad_hold_until", 422, false},
    {ERR_REF_NOT_FOUND, "ref_not_found", 422, false},
    {ERR_REF_MISMATCH, "ref_mismatch", 422, false},
    {ERR_OVERFLOW, "overflow", 422, false},
    {ERR_LIMIT_REACHED, "limit_reached", 422, false},
    {ERR_FORBIDDEN, "forbidden", 403, false},
    {ERR_POLICY_DENIED, "policy_denied", 403, false},
    {ERR_BUSY, "busy", 429, true},
    {ERR_TIMEOUT, "timeout", 503, true},
    {ERR_UNAVAILABLE, "unavailable", 503, true},
    {ERR_SAFE_MODE, "safe_mode", 503, true},
    {ERR_DRAINING, "draining", 503, true},
    {ERR_OUTCOME_UNKNOWN, "outcome_unknown", 503, true},
};

static void each_reason_has_its_name_status_and_retry_class(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++) {
        assert_string_equal(err_code(map[i].reason), map[i].code);
        assert_int_equal(err_http_status(map[i].reason), map[i].status);
        assert_int_equal(err_retryable(map[i].reason), map[i].retryable);
        assert_int_equal(net_problem_public(map[i].reason),
                         map[i].reason); /* told as it is, over OAP too */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reason_has_its_name_status_and_retry_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
