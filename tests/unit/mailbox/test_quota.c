/* Quotas per tenant: what a line says, what is refused, what a reload keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "services/mailbox/quota.h"

static const int64_t SECOND = 1000000000;

static void a_tenant_sends_what_its_line_allows_and_others_what_they_like(void **state)
{
    (void)state;
    static struct mailbox_quotas q;
    const char *lines[] = {"acme send_rate=100 bytes_rate=1MiB", "slow bytes_rate=2MiB"};
    char why[200];
    mailbox_quotas_init(&q);
    assert_int_equal(mailbox_quotas_take(&q, STR("acme"), 1000000, 1 << 30, SECOND), ERR_OK);
    assert_int_equal(mailbox_quotas_set(&q, lines, 2, why), ERR_OK);
    int sent = 0;
    for (int i = 0; i < 1000; i++)
        sent += mailbox_quotas_take(&q, STR("acme"), 1, 10, SECOND) == ERR_OK;
    assert_int_equal(sent, 100); /* a second's worth at once */
    assert_int_equal(mailbox_quotas_take(&q, STR("acme"), 50, 10, SECOND + SECOND / 2 + 1000), ERR_OK);
    assert_int_equal(mailbox_quotas_take(&q, STR("acme"), 50, 10, SECOND + SECOND / 2 + 1000),
                     ERR_RATE_LIMITED);
    assert_int_equal(mailbox_quotas_take(&q, STR("other"), 1000, 1 << 30, SECOND), ERR_OK);
    assert_int_equal(mailbox_quotas_take(&q, STR("slow"), 100000, 2 << 20, SECOND), ERR_OK);
    assert_int_equal(mailbox_quotas_take(&q, STR("slow"), 1, 1, SECOND), ERR_RATE_LIMITED);
    mailbox_quotas_fini(&q);
}

static void a_refusal_takes_nothing(void **state)
{
    (void)state;
    static struct mailbox_quotas q;
    const char *lines[] = {"t send_rate=64 bytes_rate=1MiB"};
    char why[200];
    mailbox_quotas_init(&q);
    assert_int_equal(mailbox_quotas_set(&q, lines, 1, why), ERR_OK);
    for (int i = 0; i < 100; i++) /* too many bytes: the messages are not counted either */
        assert_int_equal(mailbox_quotas_take(&q, STR("t"), 1, 2 << 20, SECOND), ERR_RATE_LIMITED);
    assert_int_equal(mailbox_quotas_take(&q, STR("t"), 64, 1 << 20, SECOND), ERR_OK);
    mailbox_quotas_fini(&q);
}

static void a_reload_keeps_the_levels_and_lifts_what_is_gone(void **state)
{
    (void)state;
    static struct mailbox_quotas q;
    const char *before[] = {"a send_rate=64", "b send_rate=64"}, *after[] = {"a send_rate=64"};
    char why[200];
    mailbox_quotas_init(&q);
    assert_int_equal(mailbox_quotas_set(&q, before, 2, why), ERR_OK);
    assert_int_equal(mailbox_quotas_take(&q, STR("a"), 64, 0, SECOND), ERR_OK);
    assert_int_equal(mailbox_quotas_take(&q, STR("b"), 64, 0, SECOND), ERR_OK);
    assert_int_equal(mailbox_quotas_set(&q, after, 1, why), ERR_OK);
    assert_int_equal(mailbox_quotas_take(&q, STR("a"), 1, 0, SECOND), ERR_RATE_LIMITED);
    assert_int_equal(mailbox_quotas_take(&q, STR("b"), 1000, 0, SECOND), ERR_OK);
    mailbox_quotas_fini(&q);
}

static void as_many_messages_as_a_line_says_have_a_place(void **state)
{
    (void)state;
    static struct mailbox_quotas q;
    const char *before[] = {"a max_messages=3", "b send_rate=64"}, *after[] = {"b send_rate=64"};
    char why[200];
    mailbox_quotas_init(&q);
    assert_false(mailbox_quotas_count_messages(&q));
    assert_int_equal(mailbox_quotas_set(&q, before, 2, why), ERR_OK);
    assert_true(mailbox_quotas_count_messages(&q));
    struct mailbox_quota *a = mailbox_quotas_find(&q, STR("a")), *b = mailbox_quotas_find(&q, STR("b"));
    assert_null(mailbox_quotas_find(&q, STR("c")));
    for (int i = 0; i < 3; i++)
        assert_true(mailbox_quota_take_place(a));
    assert_false(mailbox_quota_take_place(a));
    assert_false(mailbox_quota_take_place(a)); /* a refusal takes none */
    mailbox_quota_give_places(a, 1);
    assert_true(mailbox_quota_take_place(a));
    mailbox_quota_give_places(a, -5); /* a shard came with five */
    mailbox_quota_give_places(a, 5);
    assert_false(mailbox_quota_take_place(a));
    for (int i = 0; i < 1000; i++)
        assert_true(mailbox_quota_take_place(b));
    assert_int_equal(mailbox_quotas_set(&q, after, 1, why), ERR_OK); /* the limit goes, the count stays */
    assert_false(mailbox_quotas_count_messages(&q));
    assert_true(mailbox_quota_take_place(a));
    assert_int_equal(mailbox_quotas_set(&q, before, 2, why), ERR_OK);
    assert_ptr_equal(mailbox_quotas_find(&q, STR("a")), a);
    assert_false(mailbox_quota_take_place(a));
    mailbox_quotas_fini(&q);
}

static void a_bad_line_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        " send_rate=1",    "t send_rate=", "t send_rate=x",
                                      "t max=3", "t send_rate=5GiB"};
    char why[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(why, 0, sizeof why);
        assert_int_equal(mailbox_quotas_set(NULL, &bad[i], 1, why), ERR_BAD_REQUEST);
        assert_non_null(strstr(why, "quotas: "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_sends_what_its_line_allows_and_others_what_they_like),
        cmocka_unit_test(a_refusal_takes_nothing),
        cmocka_unit_test(a_reload_keeps_the_levels_and_lifts_what_is_gone),
        cmocka_unit_test(as_many_messages_as_a_line_says_have_a_place),
        cmocka_unit_test(a_bad_line_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
