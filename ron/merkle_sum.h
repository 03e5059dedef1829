/*
 * The Merkle-sum tree of a reward run as its verifiers know it: leaves, joins and levels. Own code: nothing of services/rewarder.
 *
 * Memory      Nothing is allocated.
 */
#ifndef RON_MERKLE_SUM_H
#define RON_MERKLE_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/str.h"

struct merkle_sum {
    uint8_t b[48]; /* hash, then the sum */
};

enum { MERKLE_SUM_AT_ONCE = 16, MERKLE_SUM_LEAF_MAX = 2 + 16 + 1 + 255 + 16 };

/* What the hash of a leaf is over; returns how long it is. The salt has at most 16 bytes. */
size_t merkle_sum_leaf_text(struct bytes salt, struct str account, unsigned __int128 amount,
                            uint8_t out[MERKLE_SUM_LEAF_MAX]);
struct merkle_sum merkle_sum_leaf(struct bytes salt, struct str account, unsigned __int128 amount);
/* False: the sums overflow. `out` may be one of the two. */
bool merkle_sum_join(const struct merkle_sum *l, const struct merkle_sum *r, struct merkle_sum *out);
/* n nodes become one, in place: nodes[0]. */
bool merkle_sum_reduce(struct merkle_sum *nodes, uint64_t n);

#endif
