#include "services/ledger/core/index_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"

static uint64_t samples_of(uint64_t n)
{
    return (n + INDEX_RUN_SAMPLE - 1) / INDEX_RUN_SAMPLE;
}

static uint64_t blocks_of(uint64_t n)
{
    return (n + 31) / 32;
}

size_t ledger_index_run_bytes(uint64_t n)
{
    return INDEX_RUN_HEADER + n * INDEX_RUN_RECORD + samples_of(n) * 8 + blocks_of(n) * 64 +
           INDEX_RUN_FOOTER;
}

int ledger_index_item_order(const void *a, const void *b)
{
    const struct ledger_index_item *x = a, *y = b;
    int c = core_key_cmp(x->key, y->key);
    return c != 0 ? c : (x->seq > y->seq) - (x->seq < y->seq);
}

static unsigned sort_bits(uint64_t n)
{
    unsigned bits = 1;
    while (bits < 20 && n >> bits > 4)
        bits++;
    return bits;
}

static void sort_few(struct ledger_index_item *v, uint64_t n)
{
    if (n > 32) { /* somebody searched for ids that hash alike: slower, but not quadratic */
        qsort(v, n, sizeof *v, ledger_index_item_order);
        return;
    }
    for (uint64_t i = 1; i < n; i++) {
        struct ledger_index_item x = v[i];
        uint64_t k = i;
        for (; k > 0 && ledger_index_item_order(&v[k - 1], &x) > 0; k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

/* Keys are hashes: their first bits alone put every item within a few places of where it belongs. */
enum err ledger_index_sort(const struct ledger_index_item *items, uint64_t n, struct ledger_index_item *out)
{
    unsigned shift = 64 - sort_bits(n);
    uint64_t buckets = UINT64_C(1) << (64 - shift);
    uint32_t *at = calloc(buckets + 1, sizeof *at);
    if (at == NULL)
        return ERR_NO_MEMORY;
    CHECK(n <= UINT32_MAX);
    for (uint64_t i = 0; i < n; i++)
        at[(__builtin_bswap64(items[i].key.w[0]) >> shift) + 1]++;
    for (uint64_t b = 0; b < buckets; b++)
        at[b + 1] += at[b];
    for (uint64_t i = 0; i < n; i++)
        out[at[__builtin_bswap64(items[i].key.w[0]) >> shift]++] = items[i];
    for (uint64_t b = 0, from = 0; b < buckets;
         from = at[b++]) /* each count has moved to its bucket's end */
        sort_few(out + from, at[b] - from);
    free(at);
    return ERR_OK;
}

static uint64_t block_of(struct core_key key, uint64_t blocks)
{
    return (uint64_t)(((unsigned __int128)key.w[0] * blocks) >> 64);
}

static void filter_add(uint8_t *filter, uint64_t blocks, struct core_key key)
{
    uint8_t *block = filter + block_of(key, blocks) * 64;
    for (unsigned i = 0; i < 7; i++) {
        unsigned bit = (unsigned)(key.w[1] >> 9 * i) & 511;
        block[bit / 8] |= (uint8_t)(1u << bit % 8);
    }
}

void ledger_index_run_prefetch(const struct ledger_index_run *r, struct core_key key)
{
    /* Blocks lie where the file has them, not on lines; two in three keys that are not there fail at their first bit. */
    __builtin_prefetch(r->filter + block_of(key, r->filter_blocks) * 64 + (key.w[1] & 511) / 8);
}

bool ledger_index_run_maybe(const struct ledger_index_run *r, struct core_key key)
{
    if (r->n == 0)
        return false;
    const uint8_t *block = r->filter + block_of(key, r->filter_blocks) * 64;
    for (unsigned i = 0; i < 7; i++) {
        unsigned bit = (unsigned)(key.w[1] >> 9 * i) & 511;
        if (!(block[bit / 8] & 1u << bit % 8))
            return false;
    }
    return true;
}

size_t ledger_index_tail_bytes(uint64_t n)
{
    return samples_of(n) * 8 + blocks_of(n) * 64;
}

void ledger_index_build_begin(struct ledger_index_build *b, uint64_t n, uint8_t *tail)
{
    *b = (struct ledger_index_build){.n = n,
                                     .samples = tail,
                                     .filter = tail + samples_of(n) * 8,
                                     .samples_bytes = samples_of(n) * 8,
                                     .filter_bytes = blocks_of(n) * 64};
}

void ledger_index_build_header(const struct ledger_index_build *b, uint32_t tier, uint64_t first_seq,
                               uint64_t last_seq, uint8_t out[INDEX_RUN_HEADER])
{
    memset(out, 0, INDEX_RUN_HEADER);
    memcpy(out, "RONLIDX1", 8);
    le32_put(out + 8, 1);
    le32_put(out + 12, tier);
    le64_put(out + 16, b->n);
    le64_put(out + 24, first_seq);
    le64_put(out + 32, last_seq);
    le64_put(out + 40, blocks_of(b->n));
    le32_put(out + 60, crc32c(0, out, 60));
}

void ledger_index_build_put(struct ledger_index_build *b, const struct ledger_index_item *it,
                            uint8_t out[INDEX_RUN_RECORD])
{
    CHECK(b->at < b->n);
    memcpy(out, &it->key, 16);
    le64_put(out + 16, it->seq);
    le32_put(out + 24, it->place.segment);
    le32_put(out + 28, it->place.offset);
    if (b->at % INDEX_RUN_SAMPLE == 0)
        memcpy(b->samples + b->at / INDEX_RUN_SAMPLE * 8, out, 8);
    filter_add(b->filter, blocks_of(b->n), it->key);
    b->records_crc = crc32c(b->records_crc, out, INDEX_RUN_RECORD);
    b->at++;
}

void ledger_index_build_prefetch(const struct ledger_index_build *b, struct core_key key)
{
    __builtin_prefetch(b->filter + block_of(key, blocks_of(b->n)) * 64, 1);
}

void ledger_index_build_footer(const struct ledger_index_build *b, uint8_t out[INDEX_RUN_FOOTER])
{
    le32_put(out, b->records_crc);
    le32_put(out + 4, crc32c(0, b->samples, b->samples_bytes));
    le32_put(out + 8, crc32c(0, b->filter, b->filter_bytes));
    memcpy(out + 12, "RIDX", 4);
}

void ledger_index_run_build(const struct ledger_index_item *items, uint64_t n, uint32_t tier,
                            uint64_t first_seq, uint64_t last_seq, uint8_t *out)
{
    uint8_t *records = out + INDEX_RUN_HEADER, *tail = records + n * INDEX_RUN_RECORD;
    struct ledger_index_build b;
    memset(tail, 0, ledger_index_tail_bytes(n));
    ledger_index_build_begin(&b, n, tail);
    ledger_index_build_header(&b, tier, first_seq, last_seq, out);
    for (uint64_t i = 0; i < n; i++)
        ledger_index_build_put(&b, &items[i], records + i * INDEX_RUN_RECORD);
    ledger_index_build_footer(&b, b.filter + b.filter_bytes);
}

enum err ledger_index_layout(const uint8_t header[INDEX_RUN_HEADER], const uint8_t footer[INDEX_RUN_FOOTER],
                             uint64_t bytes, struct ledger_index_layout *out)
{
    if (memcmp(header, "RONLIDX1", 8) != 0 || le32_get(header + 60) != crc32c(0, header, 60))
        return ERR_CORRUPT;
    if (le32_get(header + 8) != 1)
        return ERR_VERSION;
    uint64_t n = le64_get(header + 16);
    if (n > bytes / INDEX_RUN_RECORD || le64_get(header + 40) != blocks_of(n) ||
        ledger_index_run_bytes(n) != bytes || memcmp(footer + 12, "RIDX", 4) != 0)
        return ERR_CORRUPT;
    const uint64_t sizes[INDEX_RUN_PARTS] = {n * INDEX_RUN_RECORD, samples_of(n) * 8, blocks_of(n) * 64};
    uint64_t at = INDEX_RUN_HEADER;
    for (unsigned i = 0; i < INDEX_RUN_PARTS; i++) {
        out->part[i].at = at;
        out->part[i].bytes = sizes[i];
        out->part[i].crc = le32_get(footer + 4 * (size_t)i);
        at += sizes[i];
    }
    return ERR_OK;
}

static enum err check_parts(const struct ledger_index_run *r, const struct ledger_index_layout *of)
{
    for (unsigned i = 0; i < INDEX_RUN_PARTS; i++)
        if (of->part[i].crc != crc32c(0, r->p + of->part[i].at, of->part[i].bytes))
            return ERR_CORRUPT;
    struct ledger_index_item last, at;
    for (uint64_t i = 0; i < r->n; i++) {
        ledger_index_run_item(r, i, &at);
        if (i > 0 && ledger_index_item_order(&last, &at) >= 0)
            return ERR_CORRUPT;
        last = at;
    }
    return ERR_OK;
}

enum err ledger_index_run_open(const uint8_t *p, size_t bytes, bool deep, struct ledger_index_run *out_run)
{
    struct ledger_index_layout of;
    if (bytes < INDEX_RUN_HEADER + INDEX_RUN_FOOTER)
        return ERR_CORRUPT;
    enum err err = ledger_index_layout(p, p + bytes - INDEX_RUN_FOOTER, bytes, &of);
    if (err != ERR_OK)
        return err;
    struct ledger_index_run r = {.p = p,
                                 .bytes = bytes,
                                 .tier = le32_get(p + 12),
                                 .n = le64_get(p + 16),
                                 .first_seq = le64_get(p + 24),
                                 .last_seq = le64_get(p + 32),
                                 .filter_blocks = le64_get(p + 40),
                                 .records = p + of.part[0].at,
                                 .samples = p + of.part[1].at,
                                 .filter = p + of.part[2].at};
    err = deep ? check_parts(&r, &of) : ERR_OK;
    if (err == ERR_OK)
        *out_run = r;
    return err;
}

void ledger_index_run_item(const struct ledger_index_run *r, uint64_t i, struct ledger_index_item *out)
{
    const uint8_t *p = r->records + i * INDEX_RUN_RECORD;
    memcpy(&out->key, p, 16);
    out->seq = le64_get(p + 16);
    out->place = (struct core_place){le32_get(p + 24), le32_get(p + 28)};
}

bool ledger_index_run_find(const struct ledger_index_run *r, struct core_key key,
                           struct ledger_index_item *out)
{
    if (!ledger_index_run_maybe(r, key))
        return false;
    /* The last sample that is not above the key starts its page; equal samples mean it may begin a page earlier. */
    uint64_t want = __builtin_bswap64(key.w[0]), lo = 0, hi = samples_of(r->n);
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (be64_get(r->samples + mid * 8) < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    uint64_t i = lo == 0 ? 0 : (lo - 1) * INDEX_RUN_SAMPLE,
             end = lo * INDEX_RUN_SAMPLE + 1 < r->n ? lo * INDEX_RUN_SAMPLE + 1 : r->n;
    while (end < r->n && be64_get(r->records + (end - 1) * INDEX_RUN_RECORD) == want)
        end++;        /* several keys may share their first 8 bytes */
    while (i < end) { /* the first record that is not below the key */
        uint64_t mid = i + (end - i) / 2;
        struct core_key at;
        memcpy(&at, r->records + mid * INDEX_RUN_RECORD, 16);
        if (core_key_cmp(at, key) < 0)
            i = mid + 1;
        else
            end = mid;
    }
    if (i == r->n)
        return false;
    ledger_index_run_item(r, i, out);
    return core_key_eq(out->key, key);
}
