/*
 * Merkle-sum tree, scheme merkle-sum-sha256/1: every node carries a hash and the sum of the amounts below it, so that a
 * recipient who checks a path also checks the total.
 *
 *   leaf   SHA-256( 0x00 | lp(leaf_salt) | lp(account) | u128 amount )                          sum = amount
 *   node   SHA-256( 0x01 | left.hash | u128 left.sum | right.hash | u128 right.sum )            sum = left + right
 *   empty  SHA-256(""), sum 0
 *
 * The shape is that of RFC 9162 (on level arrays an odd last node moves up unchanged). Only levels 8 and up are kept
 * (one node per 256 leaves); a proof hashes one block of 256 leaves again.
 *
 * Ownership   The tree owns its nodes. Leaves are the caller's.
 * Threads     Different blocks may be filled from different threads; closing and proving are for one thread.
 */
#ifndef RON_REWARDER_CORE_TREE_H
#define RON_REWARDER_CORE_TREE_H

#include "services/rewarder/core/ident.h"
#include "services/rewarder/core/wide.h"

enum {
    REWARDER_TREE_BLOCK = 256,     /* leaves below one stored node */
    REWARDER_TREE_BASE_LEVEL = 8,  /* log2 of that */
    REWARDER_TREE_LEVELS_MAX = 40, /* levels above the base for 2^48 leaves */
    REWARDER_LEAF_SALT_BYTES = 16,
    REWARDER_PROOF_MAX = 48,
};

#define REWARDER_SCHEME "merkle-sum-sha256/1"

struct rewarder_node {
    struct sha256 hash;
    wide_u128 sum;
};

/* HMAC keyed once with the snapshot's salt; without a salt leaves are not salted. */
struct rewarder_salter {
    bool on;
    struct sha256_ctx inner, outer;
};
void rewarder_salter_init(struct rewarder_salter *s, struct bytes salt);
/* Writes 16 bytes when on and returns how many it wrote. */
size_t rewarder_leaf_salt(const struct rewarder_salter *s, struct str account,
                          uint8_t out[REWARDER_LEAF_SALT_BYTES]);

struct rewarder_node rewarder_leaf(struct bytes leaf_salt, struct str account, wide_u128 amount);

/* Many leaves, hashed together: rewarder_leaves_add() each, then rewarder_leaves_end(); only then are the nodes whole. */
enum {
    REWARDER_LEAVES_AT_ONCE = 16,
    REWARDER_LEAF_PREIMAGE_MAX = 3 + REWARDER_LEAF_SALT_BYTES + REWARDER_ACCOUNT_MAX + 16,
};
struct rewarder_leaves {
    const struct rewarder_salter *salter;
    size_t n; /* that wait to be hashed */
    struct sha256_job job[REWARDER_LEAVES_AT_ONCE];
    uint8_t preimage[REWARDER_LEAVES_AT_ONCE][REWARDER_LEAF_PREIMAGE_MAX];
};
void rewarder_leaves_begin(struct rewarder_leaves *l, const struct rewarder_salter *salter);
void rewarder_leaves_add(struct rewarder_leaves *l, struct str account, wide_u128 amount,
                         struct rewarder_node *out);
void rewarder_leaves_end(struct rewarder_leaves *l);

/* ERR_OVERFLOW when the sums do. */
NODISCARD enum err rewarder_node_join(const struct rewarder_node *left, const struct rewarder_node *right,
                                      struct rewarder_node *out);
/* Reduces n nodes to their root in place (n >= 1); levels are halved, odd last nodes move up. ERR_OVERFLOW. */
NODISCARD enum err rewarder_nodes_reduce(struct rewarder_node *nodes, size_t n,
                                         struct rewarder_node *out_root);

struct rewarder_tree {
    uint64_t leaves;
    unsigned level_count;                       /* stored levels; the last one has one node */
    uint64_t level_n[REWARDER_TREE_LEVELS_MAX]; /* nodes on stored level j */
    struct rewarder_node *level[REWARDER_TREE_LEVELS_MAX];
    struct rewarder_node *nodes; /* all levels, lowest first */
    struct rewarder_node root;
};

NODISCARD enum err rewarder_tree_init(struct rewarder_tree *t, uint64_t leaves); /* ERR_NO_MEMORY */
void rewarder_tree_fini(struct rewarder_tree *t);
/* Stores the node of block b, computed with rewarder_nodes_reduce() over its leaves. */
static inline void rewarder_tree_set_block(struct rewarder_tree *t, uint64_t b,
                                           const struct rewarder_node *node)
{
    CHECK(b < t->level_n[0]);
    t->level[0][b] = *node;
}
/* Builds everything above the blocks. ERR_OVERFLOW. */
NODISCARD enum err rewarder_tree_close(struct rewarder_tree *t);

/* tree.bin: "RONTREE1" | u64 leaves | nodes (hash, u128 sum) of the stored levels | SHA-256 of all before. */
size_t rewarder_tree_bytes(const struct rewarder_tree *t);
void rewarder_tree_encode(const struct rewarder_tree *t, uint8_t *out);
NODISCARD enum err rewarder_tree_decode(struct bytes file,
                                        struct rewarder_tree *out); /* ERR_CORRUPT, ERR_NO_MEMORY */

struct rewarder_proof_step {
    bool left; /* the sibling is on the left */
    struct rewarder_node node;
};
struct rewarder_proof {
    uint64_t index, count;
    unsigned steps;
    struct rewarder_proof_step step[REWARDER_PROOF_MAX];
};
/* `block` holds the leaf nodes of the leaf's block (as many as there are); it is overwritten. */
void rewarder_tree_prove(const struct rewarder_tree *t, uint64_t index, struct rewarder_node *block,
                         struct rewarder_proof *out);
/* ERR_CORRUPT when the path does not lead from the leaf to the root and its sum; ERR_OVERFLOW. */
NODISCARD enum err rewarder_proof_check(const struct rewarder_proof *p, const struct rewarder_node *leaf,
                                        const struct rewarder_node *root);

#endif
