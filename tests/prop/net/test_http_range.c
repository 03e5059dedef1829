/* Random range headers against a model that keeps one flag per byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "net/http_range.h"

enum { LENGTH_MAX = 60, ROUNDS = 200000 };

static uint64_t seed(void)
{
    const char *s = getenv("RON_SEED");
    uint64_t v = s ? strtoull(s, NULL, 10) : rng_secure_u64();
    print_message("RON_SEED=%llu\n", (unsigned long long)v);
    return v;
}

static enum net_range_verdict ask(const char *range, uint64_t length, struct net_range *r, size_t *n)
{
    struct net_conditions c = {.range = str_from_c(range), .is_get = true};
    struct net_validator v = {.modified_s = INT64_MIN};
    return net_range_read(&c, &v, 0, length, NULL, r, n);
}

/* One random spec; sets its bytes in `want`. Returns whether any. */
static bool spec(struct rng *g, uint64_t length, char *text, bool *want, int64_t *out_first)
{
    uint64_t a = rng_below(g, length + 5), b = a + rng_below(g, 8), from = a, to = b;
    switch (rng_below(g, 4)) {
    case 0:
        sprintf(text, "%llu-", (unsigned long long)a);
        to = length - 1;
        break;
    case 1:
        sprintf(text, "-%llu", (unsigned long long)a);
        from = a >= length ? 0 : length - a;
        to = length - 1;
        if (a == 0)
            return false;
        break;
    default:
        sprintf(text, "%llu-%llu", (unsigned long long)a, (unsigned long long)b);
        break;
    }
    if (from >= length)
        return false;
    if (to >= length)
        to = length - 1;
    for (uint64_t i = from; i <= to; i++)
        want[i] = true;
    *out_first = (int64_t)from;
    return true;
}

static void joined_ranges_cover_exactly_what_was_asked_in_order_of_first_mention(void **state)
{
    (void)state;
    struct rng g;
    rng_seed(&g, seed());
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t length = 1 + rng_below(&g, LENGTH_MAX);
        char text[1024] = "bytes=";
        bool want[LENGTH_MAX] = {false}, any = false;
        int64_t firsts[12];
        size_t specs = 1 + rng_below(&g, 12), mentioned = 0;
        for (size_t i = 0; i < specs; i++) {
            char one[64];
            if (spec(&g, length, one, want, &firsts[mentioned])) {
                any = true;
                mentioned++;
            }
            strcat(text, i ? (rng_below(&g, 3) ? "," : " ,\t,") : "");
            strcat(text, one);
        }
        struct net_range r[16], again[16];
        size_t n = 0, m = 0, covered = 0, flags = 0;
        enum net_range_verdict v = ask(text, length, r, &n);
        if (!any) {
            assert_int_equal(v, NET_RANGE_UNSATISFIABLE);
            continue;
        }
        assert_int_equal(v, NET_RANGE_PARTS);
        for (size_t i = 0; i < n; i++) {
            assert_true(r[i].first <= r[i].last && r[i].last < length);
            for (uint64_t k = r[i].first; k <= r[i].last; k++)
                assert_true(want[k]);
            covered += r[i].last - r[i].first + 1;
            for (size_t k = 0; k < i; k++) /* neither overlapping nor adjacent */
                assert_true(r[k].last + 1 < r[i].first || r[i].last + 1 < r[k].first);
        }
        for (size_t i = 0; i < length; i++)
            flags += want[i];
        assert_int_equal(covered, flags);
        /* groups come in the order in which their first spec was mentioned */
        size_t group = 0;
        bool seen[16] = {false};
        for (size_t i = 0; i < mentioned; i++) {
            size_t k = 0;
            while (!((uint64_t)firsts[i] >= r[k].first && (uint64_t)firsts[i] <= r[k].last))
                k++;
            if (!seen[k]) {
                assert_int_equal(k, group++);
                seen[k] = true;
            }
        }
        /* what came out, asked for again, comes out again */
        char back[1024] = "bytes=";
        for (size_t i = 0; i < n; i++)
            sprintf(back + strlen(back), "%s%llu-%llu", i ? "," : "", (unsigned long long)r[i].first,
                    (unsigned long long)r[i].last);
        assert_int_equal(ask(back, length, again, &m), NET_RANGE_PARTS);
        assert_int_equal(m, n);
        assert_memory_equal(again, r, n * sizeof *r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_ranges_cover_exactly_what_was_asked_in_order_of_first_mention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
