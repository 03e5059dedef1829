/* Index runs and state runs: what is written is found, what is damaged is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "services/ledger/core/index_run.h"
#include "services/ledger/core/state_run.h"

enum { KEYS = 50000 };

static struct core_key random_key(struct rng *r)
{
    return (struct core_key){{rng_u64(r), rng_u64(r)}};
}

static uint8_t *build(struct ledger_index_item *items, uint64_t n, size_t *out_bytes)
{
    struct ledger_index_item *sorted = malloc((n + 1) * sizeof *sorted);
    assert_int_equal(ledger_index_sort(items, n, sorted), ERR_OK);
    qsort(items, n, sizeof *items, ledger_index_item_order);
    assert_memory_equal(items, sorted, n * sizeof *items);
    free(sorted);
    *out_bytes = ledger_index_run_bytes(n);
    uint8_t *p = malloc(*out_bytes);
    ledger_index_run_build(items, n, 2, 1, n, p);
    return p;
}

static void every_key_is_found_and_the_filter_is_rarely_wrong(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 7);
    struct ledger_index_item *items = calloc(KEYS, sizeof *items);
    for (uint64_t i = 0; i < KEYS; i++)
        items[i] = (struct ledger_index_item){random_key(&r), i + 1, {(uint32_t)i, (uint32_t)(2 * i)}};
    for (uint64_t i = 100; i < 400; i++) /* keys that share their first half, over a page and more */
        items[i].key.w[0] = items[100].key.w[0];
    size_t bytes;
    uint8_t *p = build(items, KEYS, &bytes);
    struct ledger_index_run run;
    struct ledger_index_item found;
    assert_int_equal(ledger_index_run_open(p, bytes, true, &run), ERR_OK);
    for (uint64_t i = 0; i < KEYS; i++) {
        assert_true(ledger_index_run_find(&run, items[i].key, &found));
        assert_true(found.seq == items[i].seq && found.place.segment == items[i].place.segment &&
                    found.place.offset == items[i].place.offset);
    }
    unsigned wrong = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        struct core_key k = random_key(&r);
        wrong += ledger_index_run_maybe(&run, k);
        assert_false(ledger_index_run_find(&run, k, &found));
    }
    assert_true(wrong < KEYS / 500); /* 0.2 % */
    free(p);
    free(items);
}

static void every_flipped_bit_of_an_index_run_is_noticed(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 8);
    struct ledger_index_item items[40];
    for (uint64_t i = 0; i < 40; i++)
        items[i] = (struct ledger_index_item){random_key(&r), i + 1, {1, 2}};
    size_t bytes;
    uint8_t *p = build(items, 40, &bytes);
    struct ledger_index_run run;
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(ledger_index_run_open(p, bytes, true, &run), ERR_OK);
        p[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t n = 0; n < bytes; n++)
        assert_int_not_equal(ledger_index_run_open(p, n, true, &run), ERR_OK);
    free(p);
}

static void put(struct buf *b, char type, const char *key, const char *value)
{
    struct ledger_state_item it = {(uint8_t)type, bytes_of_str(str_from_c(key)),
                                   bytes_of_str(str_from_c(value))};
    ledger_state_run_put(b, &it);
}

static void merging_takes_the_newest_value_of_each_key(void **state)
{
    (void)state;
    struct buf old, new;
    struct ledger_state_run runs[2];
    buf_init(&old, 65536);
    buf_init(&new, 65536);
    ledger_state_run_begin(&old);
    put(&old, 'A', "a", "1");
    put(&old, 'A', "b", "1");
    put(&old, 'H', "h", "1");
    ledger_state_run_end(&old, 0, 3, 10);
    ledger_state_run_begin(&new);
    put(&new, 'A', "b", "2");
    put(&new, 'A', "c", "2");
    put(&new, 'H', "h", "");
    ledger_state_run_end(&new, 0, 3, 20);
    assert_int_equal(ledger_state_run_open(old.p, old.n, &runs[0]), ERR_OK);
    assert_int_equal(ledger_state_run_open(new.p, new.n, &runs[1]), ERR_OK);
    struct ledger_state_merge m;
    struct ledger_state_item it;
    const char *expect[] = {"a1", "b2", "c2", "h"};
    ledger_state_merge_init(&m, runs, 2);
    for (size_t i = 0; i < 4; i++) {
        char text[16];
        assert_true(ledger_state_merge_next(&m, &it));
        snprintf(text, sizeof text, "%.*s%.*s", (int)it.key.n, (const char *)it.key.p, (int)it.value.n,
                 (const char *)it.value.p);
        assert_string_equal(text, expect[i]);
    }
    assert_false(ledger_state_merge_next(&m, &it));
    for (size_t bit = 0; bit < old.n * 8; bit++) {
        old.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(ledger_state_run_open(old.p, old.n, &runs[0]), ERR_OK);
        old.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    buf_fini(&old);
    buf_fini(&new);
}

/* One long run under many short ones, some of them empty, against the plain way: the last run that has a key has its value. */
static void many_runs_are_walked_as_one(void **state)
{
    (void)state;
    enum { RUNS = STATE_RUNS_MAX, MANY = 600 };
    struct buf b[RUNS];
    struct ledger_state_run runs[RUNS];
    unsigned newest[MANY];
    struct rng r;
    rng_seed(&r, 11);
    for (unsigned i = 0; i < RUNS; i++) {
        uint64_t n = 0;
        buf_init(&b[i], 1 << 20);
        ledger_state_run_begin(&b[i]);
        for (unsigned k = 0; k < MANY; k++) {
            char key[16], value[16];
            if (i > 0 && (i % 7 == 3 || rng_below(&r, 20) != 0))
                continue;
            snprintf(key, sizeof key, "%04u", k);
            snprintf(value, sizeof value, "%u", i);
            put(&b[i], k < MANY / 2 ? 'A' : 'N', key, value);
            newest[k] = i;
            n++;
        }
        ledger_state_run_end(&b[i], 0, n, i);
        assert_int_equal(ledger_state_run_open(b[i].p, b[i].n, &runs[i]), ERR_OK);
    }
    struct ledger_state_merge m;
    struct ledger_state_item it;
    ledger_state_merge_init(&m, runs, RUNS);
    for (unsigned k = 0; k < MANY; k++) {
        char text[32], expect[32];
        assert_true(ledger_state_merge_next(&m, &it));
        snprintf(text, sizeof text, "%c%.*s=%.*s", it.type, (int)it.key.n, (const char *)it.key.p,
                 (int)it.value.n, (const char *)it.value.p);
        snprintf(expect, sizeof expect, "%c%04u=%u", k < MANY / 2 ? 'A' : 'N', k, newest[k]);
        assert_string_equal(text, expect);
    }
    assert_false(ledger_state_merge_next(&m, &it));
    for (unsigned i = 0; i < RUNS; i++)
        buf_fini(&b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_found_and_the_filter_is_rarely_wrong),
        cmocka_unit_test(every_flipped_bit_of_an_index_run_is_noticed),
        cmocka_unit_test(merging_takes_the_newest_value_of_each_key),
        cmocka_unit_test(many_runs_are_walked_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
