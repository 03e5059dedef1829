#include "services/rewarder/core/tree.h"

#include <stdlib.h>

static const char tree_magic[8] = "RONTREE1";
enum { NODE_BYTES = 48, TREE_HEAD = 16 };

void rewarder_salter_init(struct rewarder_salter *s, struct bytes salt)
{
    s->on = salt.n > 0;
    if (!s->on)
        return;
    uint8_t pad[64];
    CHECK(salt.n <= sizeof pad);
    memset(pad, 0x36, sizeof pad);
    for (size_t i = 0; i < salt.n; i++)
        pad[i] ^= salt.p[i];
    sha256_init(&s->inner);
    sha256_update(&s->inner, pad, sizeof pad);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha256_init(&s->outer);
    sha256_update(&s->outer, pad, sizeof pad);
}

size_t rewarder_leaf_salt(const struct rewarder_salter *s, struct str account,
                          uint8_t out[REWARDER_LEAF_SALT_BYTES])
{
    if (!s->on)
        return 0;
    struct sha256 mac;
    struct sha256_ctx c = s->inner;
    sha256_update(&c, account.p, account.n);
    sha256_final(&c, &mac);
    c = s->outer;
    sha256_update(&c, mac.b, sizeof mac.b);
    sha256_final(&c, &mac);
    memcpy(out, mac.b, REWARDER_LEAF_SALT_BYTES);
    return REWARDER_LEAF_SALT_BYTES;
}

static size_t leaf_preimage(struct bytes leaf_salt, struct str account, wide_u128 amount,
                            uint8_t out[REWARDER_LEAF_PREIMAGE_MAX])
{
    CHECK(leaf_salt.n <= REWARDER_LEAF_SALT_BYTES && account.n <= REWARDER_ACCOUNT_MAX);
    size_t n = 0;
    out[n++] = 0;
    out[n++] = (uint8_t)leaf_salt.n;
    if (leaf_salt.n)
        memcpy(out + n, leaf_salt.p, leaf_salt.n);
    n += leaf_salt.n;
    out[n++] = (uint8_t)account.n;
    memcpy(out + n, account.p, account.n);
    n += account.n;
    be128_put(out + n, amount);
    return n + 16;
}

struct rewarder_node rewarder_leaf(struct bytes leaf_salt, struct str account, wide_u128 amount)
{
    uint8_t pre[REWARDER_LEAF_PREIMAGE_MAX];
    struct rewarder_node node = {.sum = amount};
    sha256_of(pre, leaf_preimage(leaf_salt, account, amount, pre), &node.hash);
    return node;
}

void rewarder_leaves_begin(struct rewarder_leaves *l, const struct rewarder_salter *salter)
{
    l->salter = salter;
    l->n = 0;
}

void rewarder_leaves_end(struct rewarder_leaves *l)
{
    sha256_of_many(l->job, l->n);
    l->n = 0;
}

void rewarder_leaves_add(struct rewarder_leaves *l, struct str account, wide_u128 amount,
                         struct rewarder_node *out)
{
    uint8_t salt[REWARDER_LEAF_SALT_BYTES];
    size_t salt_n = rewarder_leaf_salt(l->salter, account, salt);
    uint8_t *pre = l->preimage[l->n];
    size_t n = leaf_preimage((struct bytes){salt, salt_n}, account, amount, pre);
    l->job[l->n++] = (struct sha256_job){{pre, n}, &out->hash};
    out->sum = amount;
    if (l->n == REWARDER_LEAVES_AT_ONCE)
        rewarder_leaves_end(l);
}

static void put_node(uint8_t *out, const struct rewarder_node *node)
{
    memcpy(out, node->hash.b, 32);
    be128_put(out + 32, node->sum);
}

static struct rewarder_node get_node(const uint8_t *p)
{
    struct rewarder_node node = {.sum = be128_get(p + 32)};
    memcpy(node.hash.b, p, 32);
    return node;
}

enum { JOIN_BYTES = 1 + 2 * NODE_BYTES, JOINS_AT_ONCE = 16 };

static enum err join_preimage(const struct rewarder_node *left, const struct rewarder_node *right,
                              uint8_t out[JOIN_BYTES], wide_u128 *out_sum)
{
    if (wide_add_overflows(left->sum, right->sum, out_sum))
        return ERR_OVERFLOW;
    out[0] = 1;
    put_node(out + 1, left);
    put_node(out + 1 + NODE_BYTES, right);
    return ERR_OK;
}

enum err rewarder_node_join(const struct rewarder_node *left, const struct rewarder_node *right,
                            struct rewarder_node *out)
{
    uint8_t pre[JOIN_BYTES];
    wide_u128 sum;
    enum err e = join_preimage(left, right, pre, &sum);
    if (e != ERR_OK)
        return e;
    sha256_of(pre, sizeof pre, &out->hash);
    out->sum = sum;
    return ERR_OK;
}

/* 2n nodes into n, n at most JOINS_AT_ONCE. `to` may be `from`: everything is read before anything is written. */
static enum err join_pairs(const struct rewarder_node *from, size_t n, struct rewarder_node *to)
{
    uint8_t pre[JOINS_AT_ONCE][JOIN_BYTES];
    struct sha256_job job[JOINS_AT_ONCE];
    wide_u128 sum[JOINS_AT_ONCE];
    CHECK(n >= 1 && n <= JOINS_AT_ONCE);
    for (size_t i = 0; i < n; i++) {
        enum err e = join_preimage(&from[2 * i], &from[2 * i + 1], pre[i], &sum[i]);
        if (e != ERR_OK)
            return e;
        job[i] = (struct sha256_job){{pre[i], JOIN_BYTES}, &to[i].hash};
    }
    sha256_of_many(job, n);
    for (size_t i = 0; i < n; i++)
        to[i].sum = sum[i];
    return ERR_OK;
}

/* One level up; `to` may be `from`. */
static enum err reduce_level(const struct rewarder_node *from, size_t n, struct rewarder_node *to)
{
    size_t pairs = n / 2;
    for (size_t i = 0; i < pairs; i += JOINS_AT_ONCE) {
        enum err e =
            join_pairs(from + 2 * i, pairs - i < JOINS_AT_ONCE ? pairs - i : JOINS_AT_ONCE, to + i);
        if (e != ERR_OK)
            return e;
    }
    if (n % 2)
        to[pairs] = from[n - 1];
    return ERR_OK;
}

enum err rewarder_nodes_reduce(struct rewarder_node *nodes, size_t n, struct rewarder_node *out_root)
{
    CHECK(n >= 1);
    for (; n > 1; n = (n + 1) / 2) {
        enum err e = reduce_level(nodes, n, nodes);
        if (e != ERR_OK)
            return e;
    }
    *out_root = nodes[0];
    return ERR_OK;
}

static void shape(struct rewarder_tree *t)
{
    uint64_t n = (t->leaves + REWARDER_TREE_BLOCK - 1) / REWARDER_TREE_BLOCK;
    t->level_count = 0;
    while (n) {
        t->level_n[t->level_count++] = n;
        if (n == 1)
            break;
        n = (n + 1) / 2;
    }
}

enum err rewarder_tree_init(struct rewarder_tree *t, uint64_t leaves)
{
    *t = (struct rewarder_tree){.leaves = leaves};
    shape(t);
    uint64_t total = 0;
    for (unsigned j = 0; j < t->level_count; j++)
        total += t->level_n[j];
    if (total) {
        t->nodes = malloc(total * sizeof *t->nodes);
        if (!t->nodes)
            return ERR_NO_MEMORY;
    }
    uint64_t at = 0;
    for (unsigned j = 0; j < t->level_count; j++) {
        t->level[j] = t->nodes + at;
        at += t->level_n[j];
    }
    return ERR_OK;
}

void rewarder_tree_fini(struct rewarder_tree *t)
{
    free(t->nodes);
    *t = (struct rewarder_tree){.leaves = 0};
}

enum err rewarder_tree_close(struct rewarder_tree *t)
{
    if (t->level_count == 0) {
        sha256_of("", 0, &t->root.hash);
        t->root.sum = 0;
        return ERR_OK;
    }
    for (unsigned j = 0; j + 1 < t->level_count; j++) {
        enum err e = reduce_level(t->level[j], t->level_n[j], t->level[j + 1]);
        if (e != ERR_OK)
            return e;
    }
    t->root = t->level[t->level_count - 1][0];
    return ERR_OK;
}

static uint64_t node_total(const struct rewarder_tree *t)
{
    uint64_t n = 0;
    for (unsigned j = 0; j < t->level_count; j++)
        n += t->level_n[j];
    return n;
}

size_t rewarder_tree_bytes(const struct rewarder_tree *t)
{
    return TREE_HEAD + node_total(t) * NODE_BYTES + 32;
}

void rewarder_tree_encode(const struct rewarder_tree *t, uint8_t *out)
{
    uint64_t n = node_total(t);
    memcpy(out, tree_magic, 8);
    be64_put(out + 8, t->leaves);
    for (uint64_t i = 0; i < n; i++)
        put_node(out + TREE_HEAD + i * NODE_BYTES, &t->nodes[i]);
    struct sha256 sum;
    size_t all = TREE_HEAD + n * NODE_BYTES;
    sha256_of(out, all, &sum);
    memcpy(out + all, sum.b, 32);
}

enum err rewarder_tree_decode(struct bytes file, struct rewarder_tree *out)
{
    struct rewarder_tree t = {.leaves = 0};
    if (file.n < TREE_HEAD + 32 || memcmp(file.p, tree_magic, 8) != 0)
        return ERR_CORRUPT;
    t.leaves = be64_get(file.p + 8);
    if (t.leaves > file.n / NODE_BYTES * REWARDER_TREE_BLOCK)
        return ERR_CORRUPT;
    shape(&t);
    if (file.n != rewarder_tree_bytes(&t))
        return ERR_CORRUPT;
    struct sha256 sum;
    sha256_of(file.p, file.n - 32, &sum);
    if (memcmp(sum.b, file.p + file.n - 32, 32) != 0)
        return ERR_CORRUPT;
    enum err e = rewarder_tree_init(&t, t.leaves);
    if (e != ERR_OK)
        return e;
    uint64_t n = node_total(&t);
    for (uint64_t i = 0; i < n; i++)
        t.nodes[i] = get_node(file.p + TREE_HEAD + i * NODE_BYTES);
    if (n)
        t.root = t.nodes[n - 1];
    else
        sha256_of("", 0, &t.root.hash);
    *out = t;
    return ERR_OK;
}

static void add_step(struct rewarder_proof *p, const struct rewarder_node *nodes, uint64_t n, uint64_t at)
{
    uint64_t sibling = at ^ 1;
    if (sibling >= n)
        return; /* an odd last node moves up without a partner */
    CHECK(p->steps < REWARDER_PROOF_MAX);
    p->step[p->steps++] = (struct rewarder_proof_step){.left = sibling < at, .node = nodes[sibling]};
}

void rewarder_tree_prove(const struct rewarder_tree *t, uint64_t index, struct rewarder_node *block,
                         struct rewarder_proof *out)
{
    CHECK(index < t->leaves);
    *out = (struct rewarder_proof){.index = index, .count = t->leaves};
    uint64_t first = index / REWARDER_TREE_BLOCK * REWARDER_TREE_BLOCK;
    uint64_t n = t->leaves - first < REWARDER_TREE_BLOCK ? t->leaves - first : REWARDER_TREE_BLOCK;
    uint64_t at = index - first;
    for (; n > 1; n = (n + 1) / 2, at /= 2) {
        add_step(out, block, n, at);
        enum err e = reduce_level(block, n, block);
        CHECK(e == ERR_OK); /* these sums were added up when the tree was built */
    }
    at = index / REWARDER_TREE_BLOCK;
    for (unsigned j = 0; j + 1 < t->level_count; j++, at /= 2)
        add_step(out, t->level[j], t->level_n[j], at);
}

enum err rewarder_proof_check(const struct rewarder_proof *p, const struct rewarder_node *leaf,
                              const struct rewarder_node *root)
{
    struct rewarder_node node = *leaf;
    uint64_t n = p->count, at = p->index;
    unsigned used = 0;
    if (at >= n)
        return ERR_CORRUPT;
    /* The shape follows from index and count, so a path cannot be longer, shorter or on another side. */
    for (; n > 1; n = (n + 1) / 2, at /= 2) {
        if ((at ^ 1) >= n)
            continue;
        if (used == p->steps || p->step[used].left != (at % 2 == 1))
            return ERR_CORRUPT;
        const struct rewarder_proof_step *s = &p->step[used++];
        enum err e = s->left ? rewarder_node_join(&s->node, &node, &node)
                             : rewarder_node_join(&node, &s->node, &node);
        if (e != ERR_OK)
            return e;
    }
    if (used != p->steps || !sha256_eq(&node.hash, &root->hash) || node.sum != root->sum)
        return ERR_CORRUPT;
    return ERR_OK;
}
