/* Blocks of a backlog: the right bytes whatever is asked for, few reads where reads are near one another, nothing kept that may change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "services/mailbox/blocks.h"

enum { SEGMENT = 1 << 20, MESSAGE = 448 };

/* Two segments whose bytes tell where they are, and how often they were read. */
struct journal {
    uint8_t bytes[2][SEGMENT];
    unsigned reads;
    uint64_t bad_from; /* reads that reach it fail; 0 = none */
};

static struct journal the;

static enum err read_it(void *ctx, uint32_t segment, uint64_t offset, uint8_t *into, size_t n)
{
    struct journal *j = ctx;
    assert_true(offset + n <= SEGMENT);
    j->reads++;
    if (j->bad_from && offset + n > j->bad_from) {
        memset(into, 0xee, n); /* as much as a failed read may leave behind */
        return ERR_IO;
    }
    memcpy(into, j->bytes[segment] + offset, n);
    return ERR_OK;
}

static const struct mailbox_blocks_source from = {read_it, &the};

static int fresh(void **state)
{
    static struct mailbox_blocks b;
    struct rng r;
    rng_seed(&r, 7);
    memset(&the, 0, sizeof the);
    rng_bytes(&r, the.bytes[0], SEGMENT);
    rng_bytes(&r, the.bytes[1], SEGMENT);
    *state = &b;
    return 0;
}

static int done(void **state)
{
    mailbox_blocks_fini(*state);
    return 0;
}

static void expect(struct mailbox_blocks *b, uint32_t segment, uint64_t offset, size_t n) RT_BLOCKS
{
    static uint8_t got[4 * MAILBOX_BLOCK_BYTES];
    memset(got, 0, n);
    assert_int_equal(mailbox_blocks_read(b, &from, segment, offset, SEGMENT, got, n), ERR_OK);
    assert_memory_equal(got, the.bytes[segment] + offset, n);
}

static void any_bytes_are_those_of_the_journal(void **state) RT_BLOCKS
{
    struct rng r;
    rng_seed(&r, 42);
    for (int i = 0; i < 20000; i++) {
        size_t n = 1 + (size_t)(rng_u64(&r) % (i % 16 ? 3000 : 3 * MAILBOX_BLOCK_BYTES));
        expect(*state, (uint32_t)(rng_u64(&r) % 2), rng_u64(&r) % (SEGMENT - n + 1), n);
    }
}

static void a_backlog_is_read_block_by_block_however_its_topics_take_turns(void **state) RT_BLOCKS
{
    enum { HEADS = 30, APART = 20 };
    unsigned messages = 0;
    for (unsigned round = 0; (round + 1) * APART * MESSAGE + HEADS * MESSAGE < SEGMENT / 4; round++)
        for (unsigned i = 0; i < APART; i++) /* backwards, so that no read follows the one before */
            for (unsigned h = HEADS; h-- > 0; messages++)
                expect(*state, 0, (uint64_t)(round * APART + i + h) * MESSAGE, MESSAGE);
    assert_true(the.reads * 10 < messages);
    assert_true(the.reads <= SEGMENT / 4 / MAILBOX_BLOCK_BYTES + 1);
}

static void a_large_body_pushes_nothing_out(void **state) RT_BLOCKS
{
    expect(*state, 0, 100, MESSAGE);
    expect(*state, 0, 0, 2 * MAILBOX_BLOCK_BYTES);
    unsigned before = the.reads;
    expect(*state, 0, 100, MESSAGE);
    assert_int_equal(the.reads, before);
}

static void bytes_that_may_still_change_are_read_anew(void **state) RT_BLOCKS
{
    struct mailbox_blocks *b = *state;
    uint8_t got[64];
    uint64_t settled = 5000;
    assert_int_equal(mailbox_blocks_read(b, &from, 0, 4000, settled, got, 64), ERR_OK);
    assert_int_equal(mailbox_blocks_read(b, &from, 0, 4990, settled, got, 64), ERR_OK);
    memset(the.bytes[0] + 5000, 0xaa, 200);
    assert_int_equal(mailbox_blocks_read(b, &from, 0, 4990, settled, got, 64), ERR_OK);
    assert_memory_equal(got, the.bytes[0] + 4990, 64);
    settled = 5100; /* more of the same block is there for good now */
    assert_int_equal(mailbox_blocks_read(b, &from, 0, 5010, settled, got, 64), ERR_OK);
    assert_memory_equal(got, the.bytes[0] + 5010, 64);
}

static void a_failed_read_is_told_and_not_kept_and_does_not_spoil_its_neighbours(void **state) RT_BLOCKS
{
    struct mailbox_blocks *b = *state;
    uint8_t got[64];
    expect(b, 1, 100, 64); /* its place in the table is that of what fails next */
    the.bad_from = 3000;
    assert_int_equal(mailbox_blocks_read(b, &from, 0, 3000, SEGMENT, got, 64), ERR_IO);
    expect(b, 1, 100, 64);
    expect(b, 0, 1000, 64); /* the same block, and these bytes can be read */
    the.bad_from = 0;
    expect(b, 0, 3000, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_bytes_are_those_of_the_journal, fresh, done),
        cmocka_unit_test_setup_teardown(a_backlog_is_read_block_by_block_however_its_topics_take_turns,
                                        fresh, done),
        cmocka_unit_test_setup_teardown(a_large_body_pushes_nothing_out, fresh, done),
        cmocka_unit_test_setup_teardown(bytes_that_may_still_change_are_read_anew, fresh, done),
        cmocka_unit_test_setup_teardown(
            a_failed_read_is_told_and_not_kept_and_does_not_spoil_its_neighbours, fresh, done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
