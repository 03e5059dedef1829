#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/heap.h"
#include "base/map.h"
#include "seed.h"

enum { KEYS = 300, STEPS = 200000 };

/* A map of every kind beside an array that cannot be wrong. */
struct models {
    struct map bytes;
    struct map64 u64;
    struct map128 u128;
    char names[KEYS][12];
    void *truth[KEYS];
    size_t n;
};

static char values[KEYS + STEPS];

static struct bytes name_of(const struct models *m, size_t k)
{
    return bytes_of_str(str_from_c(m->names[k]));
}

static struct key128 wide(size_t k)
{
    return (struct key128){k / 2, k % 2}; /* pairs that share a half */
}

static void put(struct models *m, size_t k, void *value)
{
    void *old = m;
    assert_int_equal(map_put(&m->bytes, name_of(m, k), value, &old), ERR_OK);
    assert_ptr_equal(old, m->truth[k]);
    assert_int_equal(map64_put(&m->u64, k << 48, value, &old), ERR_OK);
    assert_ptr_equal(old, m->truth[k]);
    enum err e = map128_add(&m->u128, wide(k), value);
    assert_int_equal(e, m->truth[k] ? ERR_EXISTS : ERR_OK);
    if (e == ERR_EXISTS)
        assert_int_equal(map128_put(&m->u128, wide(k), value, NULL), ERR_OK);
    m->n += m->truth[k] == NULL;
    m->truth[k] = value;
}

static void take(struct models *m, size_t k)
{
    assert_ptr_equal(map_remove(&m->bytes, name_of(m, k)), m->truth[k]);
    assert_ptr_equal(map64_remove(&m->u64, k << 48), m->truth[k]);
    assert_ptr_equal(map128_remove(&m->u128, wide(k)), m->truth[k]);
    m->n -= m->truth[k] != NULL;
    m->truth[k] = NULL;
}

struct sweep {
    struct models *m;
    uint64_t third;
    size_t seen;
};

static bool third_is_gone(uint64_t key, void *value, void *arg)
{
    struct sweep *s = arg;
    size_t k = key >> 48;
    assert_ptr_equal(value, s->m->truth[k]);
    s->seen++;
    return k % 3 == s->third;
}

static bool wide_third_is_gone(struct key128 key, void *value, void *arg)
{
    struct sweep *s = arg;
    (void)value;
    return (key.lo * 2 + key.hi) % 3 == s->third;
}

static bool name_third_is_gone(struct bytes key, void *value, void *arg)
{
    (void)value;
    struct sweep *s = arg;
    return (size_t)strtoul((const char *)key.p + 1, NULL, 10) % 3 == s->third;
}

static void sweep_all(struct models *m, uint64_t third)
{
    struct sweep s = {m, third, 0};
    size_t removed = map64_sweep(&m->u64, third_is_gone, &s);
    assert_int_equal(s.seen, m->n);
    assert_int_equal(map128_sweep(&m->u128, wide_third_is_gone, &s), removed);
    assert_int_equal(map_sweep(&m->bytes, name_third_is_gone, &s), removed);
    for (size_t k = 0; k < KEYS; k++) {
        if (k % 3 == third && m->truth[k]) {
            m->truth[k] = NULL;
            m->n--;
        }
    }
}

static void compare(const struct models *m)
{
    assert_int_equal(map_count(&m->bytes), m->n);
    assert_int_equal(map64_count(&m->u64), m->n);
    assert_int_equal(map128_count(&m->u128), m->n);
    for (size_t k = 0; k < KEYS; k++) {
        assert_ptr_equal(map_get(&m->bytes, name_of(m, k)), m->truth[k]);
        assert_ptr_equal(map64_get(&m->u64, k << 48), m->truth[k]);
        assert_ptr_equal(map128_get(&m->u128, wide(k)), m->truth[k]);
    }
    size_t at = 0, n = 0;
    void *value;
    uint64_t key;
    while (map64_next(&m->u64, &at, &key, &value)) {
        assert_ptr_equal(value, m->truth[key >> 48]);
        n++;
    }
    assert_int_equal(n, m->n);
}

static void maps_behave_like_an_array(void **state)
{
    (void)state;
    struct rng r = seed_rng("map");
    static struct models m;
    assert_int_equal(map_init(&m.bytes, 0), ERR_OK);
    assert_int_equal(map64_init(&m.u64, 10), ERR_OK);
    assert_int_equal(map128_init(&m.u128, KEYS), ERR_OK);
    for (size_t k = 0; k < KEYS; k++)
        snprintf(m.names[k], sizeof m.names[k], "k%zu", k);
    unsigned bias = 50;
    for (size_t step = 0; step < STEPS; step++) {
        if (step % 1000 == 0) {
            bias = (unsigned)rng_below(&r, 101); /* phases that fill and phases that empty */
            compare(&m);
        }
        size_t k = (size_t)rng_below(&r, KEYS);
        if (rng_below(&r, 5000) == 0)
            sweep_all(&m, rng_below(&r, 3));
        else if (rng_below(&r, 100) < bias)
            put(&m, k, &values[step]);
        else
            take(&m, k);
    }
    compare(&m);
    map_fini(&m.bytes);
    map64_fini(&m.u64);
    map128_fini(&m.u128);
}

struct item {
    struct heap_node node;
    int64_t rank;
};

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, struct item, node)->rank < heap_entry(b, struct item, node)->rank;
}

/* One heap of at most `keys` elements: pushed, moved and removed at random, then emptied in order. */
static void play_heap(struct rng *r, size_t keys, size_t steps)
{
    static struct item items[KEYS];
    struct heap h;
    assert_int_equal(heap_init(&h, 0, keys, before), ERR_OK);
    for (size_t step = 0; step < steps; step++) {
        struct item *i = &items[rng_below(r, keys)];
        if (!heap_has(&i->node)) {
            i->rank = rng_between(r, -100, 100);
            assert_int_equal(heap_push(&h, &i->node), ERR_OK);
        } else if (rng_below(r, 2)) {
            i->rank = rng_between(r, -100, 100);
            heap_fix(&h, &i->node);
        } else {
            heap_remove(&h, &i->node);
        }
        size_t n = 0;
        int64_t least = INT64_MAX;
        for (size_t k = 0; k < keys; k++) {
            if (!heap_has(&items[k].node))
                continue;
            n++;
            least = items[k].rank < least ? items[k].rank : least;
        }
        assert_int_equal(n, heap_count(&h));
        if (n)
            assert_int_equal(heap_entry(heap_top(&h), struct item, node)->rank, least);
    }
    int64_t last = INT64_MIN;
    for (struct heap_node *node; (node = heap_pop(&h));) {
        assert_true(heap_entry(node, struct item, node)->rank >= last);
        last = heap_entry(node, struct item, node)->rank;
    }
    heap_fini(&h);
}

static void heap_always_has_the_least_on_top(void **state)
{
    (void)state;
    struct rng r = seed_rng("heap");
    play_heap(&r, KEYS, STEPS / 4);
    for (size_t round = 0; round < 400; round++) /* small heaps meet every shape of the last level */
        play_heap(&r, 1 + round % 20, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_behave_like_an_array),
        cmocka_unit_test(heap_always_has_the_least_on_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
