/*
 * `ron rewarder verify`: the tree over the payouts, leaf by leaf and level by level. Every part of the table hashes its leaves; blocks
 * of leaves, cut where a complete subtree ends, become one node each; what is left is the top.
 */
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "ron/cmd_rewarder_verify.h"
#include "ron/crew.h"
#include "ron/merkle_sum.h"
#include "rt/os.h"

enum { AT_ONCE = MERKLE_SUM_AT_ONCE, BLOCK = 65536 };

static void hash_leaves(struct verify_run *r, struct verify_part *p)
{
    uint8_t text[AT_ONCE][MERKLE_SUM_LEAF_MAX];
    struct sha256 h[AT_ONCE] = {{{0}}};
    struct sha256_job job[AT_ONCE];
    struct merkle_sum *node = r->nodes + p->first_leaf;
    size_t k = 0;
    for (uint64_t i = p->from; i < p->to; i++) {
        const struct verify_row *w = &r->row[i];
        struct sha256 mac;
        if (w->amount) {
            if (r->salt_n)
                sha256_hmac(bytes_of(r->salt, r->salt_n), bytes_of_str(w->account), &mac);
            size_t n =
                merkle_sum_leaf_text(bytes_of(mac.b, r->salt_n ? 16 : 0), w->account, w->amount, text[k]);
            job[k] = (struct sha256_job){{text[k], n}, &h[k]};
            be128_put(node[k++].b + 32, w->amount);
        }
        if (k == AT_ONCE || i + 1 == p->to) {
            sha256_of_many(job, k);
            for (size_t j = 0; j < k; j++)
                memcpy(node[j].b, h[j].b, 32);
            node += k;
            k = 0;
        }
    }
}

struct blocks {
    struct verify_run *run;
    struct os_a32 overflow;
};

static uint64_t block_leaves(const struct verify_run *r, uint64_t block)
{
    uint64_t left = r->leaves - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

static void reduce_block(void *arg, uint64_t block)
{
    struct blocks *b = arg;
    if (!merkle_sum_reduce(b->run->nodes + block * BLOCK, block_leaves(b->run, block)))
        os_a32_store(&b->overflow, 1, memory_order_relaxed); /* read after the join */
}

/* The root of r->nodes in nodes[0]. */
static bool reduce(struct verify_run *r)
{
    struct blocks b = {.run = r};
    uint64_t n = (r->leaves + BLOCK - 1) / BLOCK;
    os_a32_store(&b.overflow, 0, memory_order_relaxed);
    crew_run(os_cpus(), n, reduce_block, &b);
    for (uint64_t i = 1; i < n; i++)
        r->nodes[i] = r->nodes[i * BLOCK];
    return !os_a32_load(&b.overflow, memory_order_relaxed) && merkle_sum_reduce(r->nodes, n);
}

int verify_tree(struct cmd_ctx *ctx, struct verify_run *r, void (*beside)(struct verify_run *r))
{
    const json_t *c = json_object_get(r->root, "commitment");
    struct sha256 root;
    char text[SHA256_TEXT_CHARS];
    u128 sum = 0;
    uint64_t n = 0;
    for (uint64_t i = 0; i < r->parts; n += r->part[i++].leaves)
        r->part[i].first_leaf = n;
    r->nodes = n == r->leaves ? malloc((n + 1) * sizeof *r->nodes) : NULL;
    if (n == r->leaves && !r->nodes)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "out of memory");
    bool ok = r->nodes && n == (uint64_t)json_integer_value(json_object_get(c, "count"));
    if (ok)
        (void)!verify_each(r, hash_leaves, beside); /* nothing to find there */
    ok = ok && reduce(r);
    sha256_of("", 0, &root);
    if (ok && n) {
        memcpy(root.b, r->nodes[0].b, 32);
        sum = be128_get(r->nodes[0].b + 32);
    }
    free(r->nodes);
    r->nodes = NULL;
    sha256_format(&root, text);
    if (!ok || strcmp(text, verify_text(c, "root")) != 0 || sum != verify_amount(c, "sum") ||
        sum != r->pool)
        return verify_mismatch(ctx, "the tree over the payouts does not have the committed root and sum");
    return CMD_OK;
}
