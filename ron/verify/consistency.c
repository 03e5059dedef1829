/* The proof that one tree is the beginning of another, made while the leaves go by. */
#include "base/check.h"
#include "ron/verify/check.h"

static void range(struct verify_consistency *p, uint64_t first, uint64_t n)
{
    CHECK(p->n < VERIFY_RANGES_MAX);
    p->v[p->n++] = (struct verify_range){.first = first, .n = n};
}

/* SUBPROOF(m, D[first : first + n], whole). The deepest range comes first, as in the RFC. */
static void subproof(struct verify_consistency *p, uint64_t m, uint64_t first, uint64_t n, bool whole)
{
    if (m == n) {
        if (!whole) /* else it is the old root, which the other side has */
            range(p, first, n);
        return;
    }
    uint64_t k = 1;
    while (k < n - k)
        k *= 2;
    if (m <= k) {
        subproof(p, m, first, k, whole);
        range(p, first + k, n - k);
    } else {
        subproof(p, m - k, first + k, n - k, false);
        range(p, first, k);
    }
}

void verify_consistency_begin(struct verify_consistency *p, uint64_t from, uint64_t to)
{
    CHECK(from <= to);
    *p = (struct verify_consistency){.from = from, .to = to};
    sha256_of("", 0, &p->from_root);
    p->to_root = p->from_root;
    if (from != 0) /* nothing is the beginning of everything */
        subproof(p, from, 0, to, true);
}

void verify_consistency_add(struct verify_consistency *p, const struct sha256 *leaf)
{
    uint64_t at = p->all.n;
    if (at >= p->to)
        return;
    verify_tree_add(&p->all, *leaf);
    if (p->all.n == p->from)
        verify_tree_root(&p->all, &p->from_root);
    if (p->all.n == p->to)
        verify_tree_root(&p->all, &p->to_root);
    for (size_t i = 0; i < p->n; i++)
        if (at >= p->v[i].first && at - p->v[i].first < p->v[i].n)
            verify_tree_add(&p->v[i].tree, *leaf);
}
