#include "services/rewarder/core/row_sort.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "services/rewarder/core/ident.h"

struct sorter {
    const uint8_t *body;
    struct rewarder_row_item *items, *spare;
    size_t n;
};

static inline struct str account_at(const struct sorter *r, uint64_t at)
{
    return (struct str){(const char *)r->body + at + 1, r->body[at]};
}

static uint64_t window(const struct sorter *r, uint64_t at, size_t depth)
{
    struct str a = account_at(r, at);
    if (a.n >= depth + 8)
        return be64_get(a.p + depth);
    uint8_t w[8] = {0};
    if (a.n > depth)
        memcpy(w, a.p + depth, a.n - depth);
    return be64_get(w);
}

/* Items [0, n) by key, stable. Bytes that are the same in every key cost one histogram and no pass. */
static void radix_sort(struct rewarder_row_item *items, struct rewarder_row_item *spare, size_t n)
{
    struct rewarder_row_item *from = items, *to = spare;
    static const unsigned bits = 11;
    for (unsigned shift = 0; shift < 64; shift += bits) {
        uint32_t count[1u << 11] = {0};
        uint64_t mask = (1u << bits) - 1;
        for (size_t i = 0; i < n; i++)
            count[(from[i].key >> shift) & mask]++;
        if (count[(from[0].key >> shift) & mask] == n)
            continue;
        uint32_t sum = 0;
        for (size_t i = 0; i <= mask; i++) {
            uint32_t c = count[i];
            count[i] = sum;
            sum += c;
        }
        for (size_t i = 0; i < n; i++)
            to[count[(from[i].key >> shift) & mask]++] = from[i];
        struct rewarder_row_item *t = from;
        from = to;
        to = t;
    }
    if (from != items)
        memcpy(items, from, n * sizeof *items);
}

static void insertion_sort(struct rewarder_row_item *items, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct rewarder_row_item x = items[i];
        size_t j = i;
        for (; j && items[j - 1].key > x.key; j--)
            items[j] = items[j - 1];
        items[j] = x;
    }
}

static int by_key(const void *a, const void *b)
{
    const struct rewarder_row_item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Sorts items [from, to) whose accounts agree before `depth`. Each level eats 8 bytes, so it ends by depth 128. */
static bool sort_range(const struct sorter *r, size_t from, size_t to, size_t depth, uint64_t out_twice[2])
{
    struct rewarder_row_item *items = r->items + from;
    size_t n = to - from;
    for (size_t i = 0; i < n; i++)
        items[i].key = window(r, items[i].at, depth);
    if (n <= 32)
        insertion_sort(items, n);
    else if (n <= 2048)
        qsort(items, n, sizeof *items, by_key);
    else
        radix_sort(items, r->spare, n);
    for (size_t i = 0; i + 1 < n;) {
        size_t j = i + 1;
        while (j < n && items[j].key == items[i].key)
            j++;
        if (j - i > 1) {
            /* A window that ends in zero ends all of its accounts: they are equal. */
            if ((items[i].key & 0xff) == 0 || depth + 8 >= REWARDER_ACCOUNT_MAX) {
                out_twice[0] = items[i].at;
                out_twice[1] = items[i + 1].at;
                return false;
            }
            if (!sort_range(r, from + i, from + j, depth + 8, out_twice))
                return false;
        }
        i = j;
    }
    return true;
}

static size_t common_prefix(const struct sorter *r)
{
    struct str first = account_at(r, r->items[0].at);
    size_t n = first.n;
    for (uint64_t i = 1; i < r->n && n; i++) {
        struct str a = account_at(r, r->items[i].at);
        size_t k = 0;
        while (k < n && k < a.n && a.p[k] == first.p[k])
            k++;
        n = k;
    }
    return n;
}

enum err rewarder_row_sort(const uint8_t *body, struct rewarder_row_item *items, size_t n,
                           uint64_t out_twice[2])
{
    struct sorter r = {.body = body, .items = items, .n = n};
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++)
        sorted = str_cmp(account_at(&r, items[i - 1].at), account_at(&r, items[i].at)) < 0;
    if (sorted)
        return ERR_OK;
    r.spare = malloc(n * sizeof *r.spare);
    if (!r.spare)
        return ERR_NO_MEMORY;
    bool distinct = sort_range(&r, 0, n, common_prefix(&r), out_twice);
    free(r.spare);
    return distinct ? ERR_OK : ERR_DUPLICATE_ACCOUNT;
}
