#include "services/ledger/core/merkle.h"

#include <string.h>

#include "base/check.h"

void ledger_merkle_leaf(struct bytes leaf, struct sha256 *out)
{
    struct sha256_ctx c;
    sha256_init(&c);
    sha256_update(&c, "\0", 1);
    sha256_update(&c, leaf.p, leaf.n);
    sha256_final(&c, out);
}

void ledger_merkle_node(const struct sha256 *left, const struct sha256 *right, struct sha256 *out)
{
    sha256_of_pair(1, left, right, out);
}

void ledger_frontier_init(struct ledger_frontier *f)
{
    memset(f, 0, sizeof *f);
}

void ledger_frontier_append(struct ledger_frontier *f, const struct sha256 *leaf,
                            const struct ledger_node_sink *sink)
{
    struct sha256 h = *leaf;
    uint64_t index = f->n;
    unsigned level = 0;
    if (sink != NULL)
        sink->put(sink->ctx, 0, index, &h);
    for (; index & 1; index >>= 1) {
        ledger_merkle_node(&f->h[level], &h, &h);
        level++;
        CHECK(level < MERKLE_LEVELS);
        if (sink != NULL)
            sink->put(sink->ctx, level, index >> 1, &h);
    }
    f->h[level] = h;
    f->n++;
}

enum { STRETCH = 64 }; /* leaves taken level by level; what lies between stays in the nearest cache */

/*
 * `v` holds k nodes of a level, the first of them at `index`; v[-1] is free. A node that waits for its right sibling since before
 * stands left of them; one that still waits at the end is kept in the frontier. What is left is hashed in pairs, in place.
 */
static void append_stretch(struct ledger_frontier *f, struct sha256 *v, size_t k,
                           const struct ledger_node_sink *sink)
{
    uint64_t index = f->n;
    f->n += k;
    for (unsigned level = 0; k > 0; level++) {
        CHECK(level < MERKLE_LEVELS);
        for (size_t i = 0; sink != NULL && i < k; i++)
            sink->put(sink->ctx, level, index + i, &v[i]);
        if (index & 1) {
            *--v = f->h[level];
            index--;
            k++;
        }
        if (k & 1)
            f->h[level] = v[k - 1];
        k /= 2;
        sha256_of_pairs(1, v, k, v + 1); /* one place further, so that the next level has its v[-1] too */
        v++;
        index /= 2;
    }
}

void ledger_frontier_append_many(struct ledger_frontier *f, const struct sha256 *leaves, size_t n,
                                 const struct ledger_node_sink *sink)
{
    struct sha256 room[1 + STRETCH];
    for (size_t done = 0; done < n;) {
        size_t some = n - done < STRETCH ? n - done : STRETCH;
        memcpy(room + 1, leaves + done, some * sizeof *room);
        append_stretch(f, room + 1, some, sink);
        done += some;
    }
}

void ledger_frontier_root(const struct ledger_frontier *f, struct sha256 *out_root)
{
    if (f->n == 0) {
        sha256_of("", 0, out_root);
        return;
    }
    bool have = false;
    struct sha256 h;
    for (unsigned level = 0; level < MERKLE_LEVELS; level++) {
        if (!(f->n >> level & 1))
            continue;
        if (have)
            ledger_merkle_node(&f->h[level], &h, &h);
        else
            h = f->h[level];
        have = true;
    }
    *out_root = h;
}

/* The largest power of two below n, as an exponent (n > 1). */
static unsigned split_level(uint64_t n)
{
    return 63u - (unsigned)__builtin_clzll(n - 1);
}

static bool is_power(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

/* Hash of leaves [start, start+n); start is a multiple of the power of two that n would split at. */
static enum err subtree(const struct ledger_node_source *src, uint64_t start, uint64_t n,
                        struct sha256 *out)
{
    struct sha256 parts[MERKLE_LEVELS];
    size_t k = 0;
    while (n > 0) { /* complete subtrees from the left, largest first */
        unsigned level = 63u - (unsigned)__builtin_clzll(n);
        enum err err = src->get(src->ctx, level, start >> level, &parts[k]);
        if (err != ERR_OK)
            return err;
        k++;
        start += UINT64_C(1) << level;
        n -= UINT64_C(1) << level;
    }
    CHECK(k > 0);
    struct sha256 h = parts[--k];
    while (k > 0)
        ledger_merkle_node(&parts[--k], &h, &h);
    *out = h;
    return ERR_OK;
}

enum err ledger_merkle_root(const struct ledger_node_source *src, uint64_t size, struct sha256 *out_root)
{
    if (size == 0) {
        sha256_of("", 0, out_root);
        return ERR_OK;
    }
    return subtree(src, 0, size, out_root);
}

enum err ledger_merkle_frontier(const struct ledger_node_source *src, uint64_t size,
                                struct ledger_frontier *out_frontier)
{
    struct ledger_frontier f;
    ledger_frontier_init(&f);
    f.n = size;
    uint64_t start = 0;
    for (unsigned level = MERKLE_LEVELS; level-- > 0;) {
        if (!(size >> level & 1))
            continue;
        enum err err = src->get(src->ctx, level, start >> level, &f.h[level]);
        if (err != ERR_OK)
            return err;
        start += UINT64_C(1) << level;
    }
    *out_frontier = f;
    return ERR_OK;
}

enum err ledger_merkle_inclusion(const struct ledger_node_source *src, uint64_t index, uint64_t size,
                                 struct sha256 out_path[MERKLE_PATH_MAX], size_t *out_n)
{
    if (index >= size)
        return ERR_RANGE;
    struct sha256 path[MERKLE_PATH_MAX];
    uint64_t start = 0, n = size;
    size_t k = 0;
    while (n > 1) { /* from the root down: the sibling of where we go */
        uint64_t half = UINT64_C(1) << split_level(n);
        bool right = index - start >= half;
        enum err err =
            right ? subtree(src, start, half, &path[k]) : subtree(src, start + half, n - half, &path[k]);
        if (err != ERR_OK)
            return err;
        k++;
        if (right) {
            start += half;
            n -= half;
        } else {
            n = half;
        }
    }
    for (size_t i = 0; i < k; i++)
        out_path[i] = path[k - 1 - i];
    *out_n = k;
    return ERR_OK;
}

enum err ledger_merkle_consistency(const struct ledger_node_source *src, uint64_t from, uint64_t to,
                                   struct sha256 out_path[MERKLE_PATH_MAX], size_t *out_n)
{
    if (from == 0 || from > to)
        return ERR_RANGE;
    struct sha256 path[MERKLE_PATH_MAX];
    uint64_t start = 0, n = to, m = from;
    size_t k = 0;
    bool whole = true; /* is [start, start+m) the old tree itself, whose root the verifier has? */
    while (m != n) {
        uint64_t half = UINT64_C(1) << split_level(n);
        enum err err;
        if (m <= half) {
            err = subtree(src, start + half, n - half, &path[k]);
            n = half;
        } else {
            err = subtree(src, start, half, &path[k]);
            start += half;
            n -= half;
            m -= half;
            whole = false;
        }
        if (err != ERR_OK)
            return err;
        k++;
    }
    if (!whole) {
        enum err err = subtree(src, start, n, &path[k]);
        if (err != ERR_OK)
            return err;
        k++;
    }
    for (size_t i = 0; i < k; i++)
        out_path[i] = path[k - 1 - i];
    *out_n = k;
    return ERR_OK;
}

enum err ledger_merkle_verify_inclusion(const struct sha256 *leaf, uint64_t index, uint64_t size,
                                        const struct sha256 *path, size_t n, const struct sha256 *root)
{
    if (index >= size)
        return ERR_CORRUPT;
    uint64_t fn = index, sn = size - 1;
    struct sha256 r = *leaf;
    for (size_t i = 0; i < n; i++) {
        if (sn == 0)
            return ERR_CORRUPT;
        if ((fn & 1) || fn == sn) {
            ledger_merkle_node(&path[i], &r, &r);
            while (!(fn & 1) && fn != 0) {
                fn >>= 1;
                sn >>= 1;
            }
        } else {
            ledger_merkle_node(&r, &path[i], &r);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && memcmp(r.b, root->b, 32) == 0 ? ERR_OK : ERR_CORRUPT;
}

enum err ledger_merkle_verify_consistency(uint64_t from, uint64_t to, const struct sha256 *from_root,
                                          const struct sha256 *to_root, const struct sha256 *path, size_t n)
{
    if (from == 0 || from > to)
        return ERR_CORRUPT;
    if (from == to)
        return n == 0 && memcmp(from_root->b, to_root->b, 32) == 0 ? ERR_OK : ERR_CORRUPT;
    size_t at = 0;
    struct sha256 fr, sr;
    if (is_power(from)) {
        fr = *from_root;
    } else {
        if (n == 0)
            return ERR_CORRUPT;
        fr = path[at++];
    }
    sr = fr;
    uint64_t fn = from - 1, sn = to - 1;
    while (fn & 1) {
        fn >>= 1;
        sn >>= 1;
    }
    for (; at < n; at++) {
        if (sn == 0)
            return ERR_CORRUPT;
        if ((fn & 1) || fn == sn) {
            ledger_merkle_node(&path[at], &fr, &fr);
            ledger_merkle_node(&path[at], &sr, &sr);
            while (!(fn & 1) && fn != 0) {
                fn >>= 1;
                sn >>= 1;
            }
        } else {
            ledger_merkle_node(&sr, &path[at], &sr);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && memcmp(fr.b, from_root->b, 32) == 0 && memcmp(sr.b, to_root->b, 32) == 0
               ? ERR_OK
               : ERR_CORRUPT;
}
