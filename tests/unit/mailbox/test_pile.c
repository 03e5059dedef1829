/* A pile of items: all there, in order, whatever the number of pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/huge.h"
#include "services/mailbox/pile.h"

enum { ITEM = 80, PER_PIECE = HUGE_BYTES / ITEM };

static void fill(struct mailbox_pile *p, size_t n)
{
    static const uint8_t zero[ITEM];
    for (size_t i = 0; i < n; i++) {
        uint8_t *item = mailbox_pile_add(p);
        assert_true(item && memcmp(item, zero, ITEM) == 0);
        le64_put(item, i + 1);
    }
}

/* Reads the pieces as one file of items; how many there were. */
static size_t read_back(const struct mailbox_pile *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->pieces; i++) {
        struct bytes b = mailbox_pile_piece(p, i);
        assert_int_equal(b.n % ITEM, 0);
        for (size_t at = 0; at < b.n; at += ITEM)
            assert_int_equal(le64_get(b.p + at), ++n);
    }
    return n;
}

static void items_come_back_in_order_across_pieces(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, PER_PIECE - 1, PER_PIECE, PER_PIECE + 1, 2 * PER_PIECE + 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct mailbox_pile p;
        mailbox_pile_init(&p, ITEM);
        fill(&p, sizes[i]);
        assert_int_equal(p.pieces, (sizes[i] + PER_PIECE - 1) / PER_PIECE);
        assert_int_equal(read_back(&p), sizes[i]);
        mailbox_pile_fini(&p);
        assert_int_equal(p.n, 0);
    }
}

static void a_pile_can_be_used_again_after_it_was_given_back(void **state)
{
    (void)state;
    struct mailbox_pile p;
    mailbox_pile_init(&p, ITEM);
    fill(&p, PER_PIECE + 3);
    mailbox_pile_fini(&p);
    fill(&p, 5);
    assert_int_equal(read_back(&p), 5);
    mailbox_pile_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_back_in_order_across_pieces),
        cmocka_unit_test(a_pile_can_be_used_again_after_it_was_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
