/* The newest bytes of a journal in memory: what is there is found, and another size begins empty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "services/mailbox/tail.h"

enum { PART = 100 };

static void put(struct mailbox_tail *t, uint32_t segment, uint64_t offset)
{
    uint8_t p[PART];
    memset(p, (int)(segment + offset / PART), sizeof p);
    mailbox_tail_put(t, segment, offset, p, sizeof p);
}

static bool has(const struct mailbox_tail *t, uint32_t segment, uint64_t offset)
{
    uint8_t p[PART];
    if (!mailbox_tail_get(t, segment, offset, p, sizeof p))
        return false;
    assert_int_equal(p[0], (uint8_t)(segment + offset / PART));
    assert_int_equal(p[PART - 1], (uint8_t)(segment + offset / PART));
    return true;
}

static void the_newest_bytes_are_found_and_older_ones_give_way(void **state)
{
    (void)state;
    struct mailbox_tail t;
    assert_int_equal(mailbox_tail_init(&t, 4 * PART), ERR_OK);
    for (uint64_t k = 0; k < 10; k++)
        put(&t, 1, k * PART);
    for (uint64_t k = 0; k < 10; k++)
        assert_int_equal(has(&t, 1, k * PART), k >= 6);
    assert_false(has(&t, 2, 9 * PART));
    mailbox_tail_fini(&t);
}

static void another_size_begins_empty_and_none_keeps_nothing(void **state)
{
    (void)state;
    struct mailbox_tail t;
    assert_int_equal(mailbox_tail_init(&t, 4 * PART), ERR_OK);
    put(&t, 1, 0);
    assert_int_equal(mailbox_tail_resize(&t, 4 * PART), ERR_OK);
    assert_true(has(&t, 1, 0)); /* the same size changes nothing */
    assert_int_equal(mailbox_tail_resize(&t, 0), ERR_OK);
    assert_false(has(&t, 1, 0));
    put(&t, 1, PART);
    mailbox_tail_put(&t, 1, 2 * PART, NULL, 0);
    assert_false(has(&t, 1, PART));
    assert_int_equal(mailbox_tail_resize(&t, 8 * PART), ERR_OK);
    assert_false(has(&t, 1, PART));
    for (uint64_t k = 2; k < 12; k++)
        put(&t, 1, k * PART);
    for (uint64_t k = 2; k < 12; k++)
        assert_int_equal(has(&t, 1, k * PART), k >= 4);
    mailbox_tail_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_bytes_are_found_and_older_ones_give_way),
        cmocka_unit_test(another_size_begins_empty_and_none_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
