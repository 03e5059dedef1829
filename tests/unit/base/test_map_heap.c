#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/heap.h"
#include "base/map.h"
#include "base/siphash.h"

static void siphash_agrees_with_openssl_and_its_fixed_size_entries_agree_with_it(void **state)
{
    (void)state;
    struct siphash_key k = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    uint8_t in[16];
    for (unsigned i = 0; i < 16; i++)
        in[i] = (uint8_t)i;
    /* SipHash-1-3 of the empty string and of 00..0e under the reference key (values from the Rust core test
     * set). */
    assert_int_equal(siphash13(&k, in, 0), le64_get("\xdc\xc4\x0f\x05\x58\x01\xac\xab"));
    assert_int_equal(siphash13(&k, in, 1), le64_get("\x93\xca\x57\x7d\xf3\x9b\xf4\xc9"));
    assert_int_equal(siphash13_u64(&k, le64_get(in)), siphash13(&k, in, 8));
    assert_int_equal(siphash13_u128(&k, le64_get(in), le64_get(in + 8)), siphash13(&k, in, 16));
}

static void map_finds_what_was_added_and_refuses_a_second(void **state)
{
    (void)state;
    struct map m;
    int one = 1, two = 2;
    assert_int_equal(map_init(&m, 0), ERR_OK);
    assert_null(map_get(&m, bytes_of("a", 1)));
    assert_int_equal(map_add(&m, bytes_of("a", 1), &one), ERR_OK);
    assert_int_equal(map_add(&m, bytes_of("a", 1), &two), ERR_EXISTS);
    assert_ptr_equal(map_get(&m, bytes_of("a", 1)), &one);
    void *old = NULL;
    assert_int_equal(map_put(&m, bytes_of("a", 1), &two, &old), ERR_OK);
    assert_ptr_equal(old, &one);
    assert_int_equal(map_count(&m), 1);
    assert_int_equal(map_put(&m, bytes_of("", 0), &one, &old), ERR_OK);
    assert_null(old);
    assert_ptr_equal(map_remove(&m, bytes_of("a", 1)), &two);
    assert_null(map_remove(&m, bytes_of("a", 1)));
    assert_ptr_equal(map_get(&m, bytes_of("", 0)), &one);
    map_fini(&m);
}

static bool odd_is_gone(uint64_t key, void *value, void *arg)
{
    (void)value;
    (*(size_t *)arg)++;
    return key % 2 == 1;
}

static void reserved_room_keeps_what_is_there_and_is_not_left_for_a_larger_one(void **state)
{
    static char keys[1000][4];
    struct map m;
    (void)state;
    assert_int_equal(map_init(&m, 0), ERR_OK);
    for (size_t i = 0; i < 1000; i++) {
        snprintf(keys[i], sizeof keys[i], "%03zu", i);
        if (i == 100)
            assert_int_equal(map_reserve(&m, 1000), ERR_OK);
        const struct map_slot *before = m.slots;
        map_prefetch_place(&m, bytes_of(keys[i], 3));
        map_prefetch(&m, bytes_of(keys[i], 3));
        assert_int_equal(map_add(&m, bytes_of(keys[i], 3), keys[i]), ERR_OK);
        assert_true(i < 100 || m.slots == before);
    }
    size_t mask = m.mask;
    assert_int_equal(map_reserve(&m, 10), ERR_OK);
    assert_int_equal(m.mask, mask);
    for (size_t i = 0; i < 1000; i++)
        assert_ptr_equal(map_get(&m, bytes_of(keys[i], 3)), keys[i]);
    map_fini(&m);
}

static void sweep_sees_every_entry_once_and_removes_the_chosen(void **state)
{
    (void)state;
    struct map64 m;
    assert_int_equal(map64_init(&m, 100), ERR_OK);
    int v;
    for (uint64_t k = 0; k < 5000; k++)
        assert_int_equal(map64_add(&m, k, &v), ERR_OK);
    size_t seen = 0;
    assert_int_equal(map64_sweep(&m, odd_is_gone, &seen), 2500);
    assert_int_equal(seen, 5000);
    assert_int_equal(map64_count(&m), 2500);
    for (uint64_t k = 0; k < 5000; k++)
        assert_true((map64_get(&m, k) != NULL) == (k % 2 == 0));
    map64_fini(&m);
}

static void iteration_visits_each_128_bit_key(void **state)
{
    (void)state;
    struct map128 m;
    assert_int_equal(map128_init(&m, 0), ERR_OK);
    int v;
    for (uint64_t k = 0; k < 100; k++)
        assert_int_equal(map128_put(&m, (struct key128){k, k * 3}, &v, NULL), ERR_OK);
    size_t at = 0, n = 0;
    uint64_t sum = 0;
    struct key128 key;
    while (map128_next(&m, &at, &key, NULL)) {
        assert_int_equal(key.hi, key.lo * 3);
        sum += key.lo;
        n++;
    }
    assert_int_equal(n, 100);
    assert_int_equal(sum, 4950);
    assert_non_null(map128_remove(&m, (struct key128){5, 15}));
    assert_null(map128_get(&m, (struct key128){5, 15}));
    assert_null(map128_get(&m, (struct key128){6, 15}));
    map128_clear(&m);
    assert_null(map128_get(&m, (struct key128){7, 21}));
    map128_fini(&m);
}

struct timer {
    int at;
    struct heap_node node;
};

static bool earlier(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, const struct timer, node)->at < heap_entry(b, const struct timer, node)->at;
}

static void heap_gives_the_least_first_after_removals_and_moves(void **state)
{
    (void)state;
    struct heap h;
    struct timer t[50] = {0};
    assert_int_equal(heap_init(&h, 10, 50, earlier), ERR_OK);
    for (int i = 0; i < 50; i++) {
        t[i].at = i * 37 % 50;
        assert_int_equal(heap_push(&h, &t[i].node), ERR_OK);
    }
    struct timer extra = {0};
    assert_int_equal(heap_push(&h, &extra.node), ERR_BUSY);
    heap_remove(&h, &t[7].node);
    assert_false(heap_has(&t[7].node));
    t[3].at = -1;
    heap_fix(&h, &t[3].node);
    assert_ptr_equal(heap_top(&h), &t[3].node);
    int last = -2, n = 0;
    for (struct heap_node *node; (node = heap_pop(&h)); n++) {
        assert_true(heap_entry(node, struct timer, node)->at >= last);
        last = heap_entry(node, struct timer, node)->at;
    }
    assert_int_equal(n, 49);
    assert_null(heap_top(&h));
    heap_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_agrees_with_openssl_and_its_fixed_size_entries_agree_with_it),
        cmocka_unit_test(map_finds_what_was_added_and_refuses_a_second),
        cmocka_unit_test(reserved_room_keeps_what_is_there_and_is_not_left_for_a_larger_one),
        cmocka_unit_test(sweep_sees_every_entry_once_and_removes_the_chosen),
        cmocka_unit_test(iteration_visits_each_128_bit_key),
        cmocka_unit_test(heap_gives_the_least_first_after_removals_and_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
