#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/pool.h"

static void arena_hands_out_aligned_memory_that_does_not_overlap(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 256, 4096);
    uint8_t *blocks[20];
    for (size_t i = 0; i < 20; i++) {
        blocks[i] = arena_alloc(&a, i * 7);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        memset(blocks[i], (int)i, i * 7);
    }
    for (size_t i = 0; i < 20; i++)
        for (size_t k = 0; k < i * 7; k++)
            assert_int_equal(blocks[i][k], i);
    arena_fini(&a);
}

static void arena_says_null_at_its_maximum_and_works_again_after_reset(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 64, 256);
    assert_null(arena_alloc(&a, 257));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_array(&a, SIZE_MAX / 2, 4));
    size_t got = 0;
    while (arena_alloc(&a, 16))
        got += 16;
    assert_int_equal(got, 256);
    assert_true(arena_reserved_bytes(&a) <= 256);
    arena_reset(&a);
    assert_int_equal(arena_reserved_bytes(&a), 64);
    assert_non_null(arena_alloc(&a, 192));
    assert_null(arena_alloc(&a, 192));
    arena_fini(&a);
}

/* As a batch of messages is read: a large text, then a few small ones, again and again. */
static void arena_fills_its_chunk_further_after_something_large(void **state)
{
    (void)state;
    enum { TIMES = 32, LARGE = 1000, SMALL = 64 };
    struct arena a;
    uint8_t *small[TIMES];
    arena_init(&a, 512, TIMES * (LARGE + 8 + SMALL) + 512);
    for (int i = 0; i < TIMES; i++) {
        uint8_t *large = arena_alloc(&a, LARGE);
        small[i] = arena_alloc(&a, SMALL);
        assert_true(large && small[i]);
        memset(large, 0xff, LARGE);
        memset(small[i], i, SMALL);
    }
    for (int i = 0; i < TIMES; i++)
        for (int k = 0; k < SMALL; k++)
            assert_int_equal(small[i][k], i);
    arena_reset(&a);
    assert_int_equal(arena_reserved_bytes(&a), LARGE + 8);
    arena_fini(&a);
}

static void arena_copies_text_with_a_terminator(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 64, 1024);
    assert_string_equal(arena_strdup(&a, str_of("hello world", 5)), "hello");
    struct str copy;
    assert_true(arena_str(&a, STR("abc"), &copy));
    assert_true(str_eq(copy, STR("abc")));
    assert_string_equal(arena_strdup(&a, (struct str){NULL, 0}), "");
    arena_fini(&a);
}

static void buf_grows_up_to_its_maximum_and_keeps_the_error(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    for (int i = 0; i < 100; i++)
        buf_puts(&b, "0123456789");
    assert_int_equal(b.err, ERR_OK);
    assert_int_equal(b.n, 1000);
    buf_putc(&b, 'x');
    assert_int_equal(b.err, ERR_TOO_LARGE);
    assert_int_equal(b.n, 1000);
    buf_truncate(&b, 10);
    buf_puts(&b, "still refused");
    assert_int_equal(b.n, 10);
    buf_reset(&b);
    buf_puts(&b, "fine again");
    assert_string_equal(buf_cstr(&b), "fine again");
    buf_fini(&b);
}

static void buf_printf_fills_exactly_to_the_maximum(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 8);
    buf_printf(&b, "%d-%s", 12, "abcde");
    assert_int_equal(b.err, ERR_OK);
    assert_true(str_eq(buf_str(&b), STR("12-abcde")));
    assert_string_equal(buf_cstr(&b), "12-abcde");
    buf_reset(&b);
    buf_printf(&b, "%s", "123456789");
    assert_int_equal(b.err, ERR_TOO_LARGE);
    buf_fini(&b);
}

static void fixed_buf_never_allocates_and_stops_at_its_storage(void **state)
{
    (void)state;
    char storage[4];
    struct buf b;
    buf_init_fixed(&b, storage, sizeof storage);
    buf_puts(&b, "abc");
    buf_put_u64(&b, 7);
    assert_int_equal(b.err, ERR_OK);
    assert_memory_equal(storage, "abc7", 4);
    buf_putc(&b, 'x');
    assert_int_equal(b.err, ERR_TOO_LARGE);
    buf_fini(&b);
}

static void buf_consume_moves_the_rest_forward(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_puts(&b, "headtail");
    buf_consume(&b, 4);
    assert_true(str_eq(buf_str(&b), STR("tail")));
    uint8_t *room = buf_reserve(&b, 3);
    assert_non_null(room);
    memcpy(room, "xyz", 3);
    buf_commit(&b, 3);
    size_t n;
    uint8_t *owned = buf_take(&b, &n);
    assert_int_equal(n, 7);
    assert_memory_equal(owned, "tailxyz", 7);
    free(owned);
    buf_fini(&b);
}

static void pool_is_empty_after_count_gets_and_reuses_what_came_back(void **state)
{
    (void)state;
    struct pool p;
    assert_int_equal(pool_init(&p, 24, 3), ERR_OK);
    void *a = pool_get(&p), *b = pool_get(&p), *c = pool_get(&p);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_null(pool_get(&p));
    assert_int_equal(pool_index(&p, b), 1);
    assert_ptr_equal(pool_at(&p, 2), c);
    pool_put(&p, b);
    assert_int_equal(pool_free_count(&p), 1);
    assert_ptr_equal(pool_get(&p), b);
    pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_hands_out_aligned_memory_that_does_not_overlap),
        cmocka_unit_test(arena_says_null_at_its_maximum_and_works_again_after_reset),
        cmocka_unit_test(arena_fills_its_chunk_further_after_something_large),
        cmocka_unit_test(arena_copies_text_with_a_terminator),
        cmocka_unit_test(buf_grows_up_to_its_maximum_and_keeps_the_error),
        cmocka_unit_test(buf_printf_fills_exactly_to_the_maximum),
        cmocka_unit_test(fixed_buf_never_allocates_and_stops_at_its_storage),
        cmocka_unit_test(buf_consume_moves_the_rest_forward),
        cmocka_unit_test(pool_is_empty_after_count_gets_and_reuses_what_came_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
