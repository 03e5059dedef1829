/*
 * The RFC 9162 tree over all leaves: SHA-256(0x00 ‖ leaf), SHA-256(0x01 ‖ left ‖ right), SHA-256("") when empty.
 *
 * A node (level, index) is the hash of the complete subtree of 2^level leaves that starts at leaf index·2^level. Complete
 * nodes never change, so they are stored once and every root and proof of every size is read from them (§ get).
 *
 * Ownership   Callers own everything. A frontier is a plain value: copy it to look ahead.
 * Threads     Pure functions; `get` is called on the caller's thread.
 */
#ifndef RON_LEDGER_CORE_MERKLE_H
#define RON_LEDGER_CORE_MERKLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/sha256.h"

enum { MERKLE_LEVELS = 48, MERKLE_PATH_MAX = 2 * MERKLE_LEVELS };

void ledger_merkle_leaf(struct bytes leaf, struct sha256 *out);
void ledger_merkle_node(const struct sha256 *left, const struct sha256 *right, struct sha256 *out);

/* The right edge: one hash per 1-bit of n, enough to append and to know the root. */
struct ledger_frontier {
    uint64_t n;
    struct sha256 h[MERKLE_LEVELS];
};

/* Called for every node that becomes complete, leaf first, then upward. */
struct ledger_node_sink {
    void (*put)(void *ctx, unsigned level, uint64_t index, const struct sha256 *h);
    void *ctx;
};

void ledger_frontier_init(struct ledger_frontier *f);
void ledger_frontier_append(struct ledger_frontier *f, const struct sha256 *leaf,
                            const struct ledger_node_sink *sink);
/* n leaves at once, faster than one by one. Nodes of a level come in order; a level is complete before the next. */
void ledger_frontier_append_many(struct ledger_frontier *f, const struct sha256 *leaves, size_t n,
                                 const struct ledger_node_sink *sink);
void ledger_frontier_root(const struct ledger_frontier *f, struct sha256 *out_root);

/* Where complete nodes are read from. Any error ends the computation with it. */
struct ledger_node_source {
    enum err (*get)(void *ctx, unsigned level, uint64_t index, struct sha256 *out);
    void *ctx;
};

NODISCARD enum err ledger_merkle_root(const struct ledger_node_source *src, uint64_t size,
                                      struct sha256 *out_root);
NODISCARD enum err ledger_merkle_frontier(const struct ledger_node_source *src, uint64_t size,
                                          struct ledger_frontier *out_frontier);
NODISCARD enum err ledger_merkle_inclusion(const struct ledger_node_source *src, uint64_t index,
                                           uint64_t size, struct sha256 out_path[MERKLE_PATH_MAX],
                                           size_t *out_n);
NODISCARD enum err ledger_merkle_consistency(const struct ledger_node_source *src, uint64_t from,
                                             uint64_t to, struct sha256 out_path[MERKLE_PATH_MAX],
                                             size_t *out_n);

/* RFC 9162 §2.1.3.2 and §2.1.4.2, as a stranger would do it: ERR_CORRUPT unless the path proves it. */
NODISCARD enum err ledger_merkle_verify_inclusion(const struct sha256 *leaf, uint64_t index, uint64_t size,
                                                  const struct sha256 *path, size_t n,
                                                  const struct sha256 *root);
NODISCARD enum err ledger_merkle_verify_consistency(uint64_t from, uint64_t to,
                                                    const struct sha256 *from_root,
                                                    const struct sha256 *to_root, const struct sha256 *path,
                                                    size_t n);

#endif
