/*
 * Who gets the units that the floor leaves over.
 *
 * largest_remainder: rows with a score by (remainder descending, account ascending). Rows are already ascending by
 * account, so a stable sort on the remainder is all. Every step but the first is cut into parts:
 *
 *   1. SPLIT counted per partition how many of its rows fall into each of 64 ranges of remainders; prefix sums over
 *      (range, partition) say where each partition writes: order inside a range is row order.
 *   2. SCATTER: each partition writes its rows there.
 *   3. RANK: each range is radix-sorted on the other 26 bits of the key; runs of equal keys that are not exactly
 *      ordered are merge-sorted on the full 128 bits. The position is the rank.
 *
 * webster: the rounding of each row alone may give D units too few or too many. Too few: D times one unit to the row
 * with the largest s/(2a+1). Too many: one unit from the row with the smallest s/(2a-1). A binary heap of row numbers,
 * fractions compared by 256-bit cross products.
 */
#include <stdlib.h>
#include <string.h>

#include "services/rewarder/core/calc_internal.h"

enum { KEY_BITS = 32 - CALC_RANGE_BITS, RADIX_BITS = 9, RADIX = 1 << RADIX_BITS, RADIX_PASSES = 3 };
_Static_assert(RADIX_BITS *RADIX_PASSES >= KEY_BITS, "the passes cover the key");

/* By the low KEY_BITS, stable; the result is in the returned one of the two. */
static struct rank_item *radix_sort(struct rank_item *from, struct rank_item *to, size_t n)
{
    uint32_t count[RADIX_PASSES][RADIX];
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < n; i++)
        for (unsigned pass = 0; pass < RADIX_PASSES; pass++)
            count[pass][(from[i].key >> (pass * RADIX_BITS)) & (RADIX - 1)]++;
    for (unsigned pass = 0; pass < RADIX_PASSES; pass++) {
        uint32_t sum = 0;
        if (count[pass][(from[0].key >> (pass * RADIX_BITS)) & (RADIX - 1)] == n)
            continue; /* all the same */
        for (unsigned i = 0; i < RADIX; i++) {
            uint32_t n_i = count[pass][i];
            count[pass][i] = sum;
            sum += n_i;
        }
        for (size_t i = 0; i < n; i++)
            to[count[pass][(from[i].key >> (pass * RADIX_BITS)) & (RADIX - 1)]++] = from[i];
        struct rank_item *t = from;
        from = to;
        to = t;
    }
    return from;
}

/* Stable, by remainder descending. */
static void merge_sort(struct rank_item *a, struct rank_item *tmp, size_t n, const wide_u128 *r)
{
    if (n <= 12) {
        for (size_t i = 1; i < n; i++) {
            struct rank_item x = a[i];
            size_t j = i;
            for (; j && r[a[j - 1].row] < r[x.row]; j--)
                a[j] = a[j - 1];
            a[j] = x;
        }
        return;
    }
    size_t half = n / 2;
    merge_sort(a, tmp, half, r);
    merge_sort(a + half, tmp, n - half, r);
    if (r[a[half - 1].row] >= r[a[half].row])
        return;
    memcpy(tmp, a, half * sizeof *a);
    size_t i = 0, j = half, k = 0;
    while (i < half && j < n)
        a[k++] = r[tmp[i].row] >= r[a[j].row] ? tmp[i++] : a[j++];
    while (i < half)
        a[k++] = tmp[i++];
}

static void settle_equal_keys(struct rank_item *a, struct rank_item *tmp, size_t n, const wide_u128 *r)
{
    for (size_t i = 0; i < n;) {
        size_t j = i + 1;
        while (j < n && a[j].key == a[i].key)
            j++;
        if (j - i > 1)
            merge_sort(a + i, tmp, j - i, r);
        i = j;
    }
}

enum err calc_rank_prepare(struct rewarder_calc *c, wide_u128 left_over)
{
    uint32_t at = 0;
    for (unsigned range = 0; range < CALC_RANGES; range++) {
        c->range_first[range] = at;
        for (uint64_t p = 0; p < c->part_count; p++) {
            c->parts[p].range_at[range] = at;
            at += c->parts[p].range_n[range];
        }
    }
    c->range_first[CALC_RANGES] = at;
    /* Fewer units than rows are left over: each row with a score lost less than one. */
    CHECK(left_over <= at);
    c->left_over = left_over;
    c->result.cut = (uint64_t)left_over;
    c->items = malloc((at ? at : 1) * sizeof *c->items);
    return c->items ? ERR_OK : ERR_NO_MEMORY;
}

void calc_rank_scatter(struct rewarder_calc *c, struct calc_part *p)
{
    uint32_t at[CALC_RANGES]; /* a copy: a part may run twice */
    int shift = wide_clz(c->result.score_total);
    memcpy(at, p->range_at, sizeof at);
    for (uint64_t i = p->first; i < p->first + p->n; i++) {
        if (!c->score[i])
            continue;
        uint32_t key = calc_rank_key(c->remainder[i], shift);
        c->items[at[key >> KEY_BITS]++] = (struct rank_item){key, (uint32_t)i};
    }
}

enum err calc_rank_range(struct rewarder_calc *c, unsigned range)
{
    size_t first = c->range_first[range], n = c->range_first[range + 1] - first;
    if (n == 0)
        return ERR_OK;
    struct rank_item *from = c->items + first, *mine = malloc(2 * n * sizeof *mine);
    if (!mine)
        return ERR_NO_MEMORY;
    memcpy(mine, from, n * sizeof *mine); /* what was scattered stays as it is: a part may run twice */
    struct rank_item *sorted = radix_sort(mine, mine + n, n);
    settle_equal_keys(sorted, sorted == mine ? mine + n : mine, n, c->remainder);
    for (size_t i = 0; i < n; i++)
        c->rank[sorted[i].row] = (uint32_t)(first + i + 1);
    free(mine);
    return ERR_OK;
}

/* s/(2a+1) when units are given, s/(2a-1) when they are taken. */
static inline wide_u128 claim(const struct rewarder_calc *c, uint32_t row, bool give)
{
    return give ? 2 * c->amount[row] + 1 : 2 * c->amount[row] - 1;
}

/* s_x/c_x against s_y/c_y by cross products; in 128 bits when everything is short, which it nearly always is. */
static inline int compare_claims(wide_u128 sx, wide_u128 cx, wide_u128 sy, wide_u128 cy)
{
    if (((sx | cx | sy | cy) >> 64) == 0) {
        wide_u128 l = (wide_u128)(uint64_t)sx * (uint64_t)cy, r = (wide_u128)(uint64_t)sy * (uint64_t)cx;
        return l < r ? -1 : l > r;
    }
    return wide_cmp(wide_mul(sx, cy), wide_mul(sy, cx));
}

/* Whether row x is served before row y. */
static inline bool before(const struct rewarder_calc *c, uint32_t x, uint32_t y, bool give)
{
    int cmp = compare_claims(c->score[x], claim(c, x, give), c->score[y], claim(c, y, give));
    if (give)
        return cmp != 0 ? cmp > 0 : x < y;
    return cmp != 0 ? cmp < 0 : x > y;
}

static void sift_down(const struct rewarder_calc *c, uint32_t *heap, size_t n, size_t i, bool give)
{
    uint32_t x = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(c, heap[child + 1], heap[child], give))
            child++;
        if (!before(c, heap[child], x, give))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

enum err calc_webster(struct rewarder_calc *c, wide_u128 rounded_total)
{
    bool give = rounded_total <= c->result.pool;
    wide_u128 distance = give ? c->result.pool - rounded_total : rounded_total - c->result.pool;
    uint64_t rows = c->rows->count;
    CHECK(distance <= rows); /* each row is off by at most half a unit */
    c->result.cut = (uint64_t)distance;
    c->result.cut_negative = !give && distance;
    if (distance == 0)
        return ERR_OK;
    uint32_t *heap = malloc(rows * sizeof *heap);
    if (!heap)
        return ERR_NO_MEMORY;
    size_t n = 0;
    for (uint64_t i = 0; i < rows; i++)
        if (give ? c->score[i] > 0 : c->amount[i] > 0)
            heap[n++] = (uint32_t)i;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(c, heap, n, i, give);
    for (uint64_t step = 1; step <= c->result.cut; step++) {
        CHECK(n > 0);
        uint32_t row = heap[0];
        c->amount[row] += give ? 1 : (wide_u128)-1;
        c->rank[row] = (uint32_t)step;
        if (!give && c->amount[row] == 0)
            heap[0] = heap[--n];
        if (n)
            sift_down(c, heap, n, 0, give);
    }
    free(heap);
    return ERR_OK;
}
