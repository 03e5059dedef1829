#include "services/edge/core/rendezvous.h"

#include <string.h>

#include "base/check.h"

void edge_rendezvous(const struct str *nodes, size_t n, const struct sha256 *digest,
                     size_t out_order[EDGE_PEERS_MAX])
{
    struct sha256 score[EDGE_PEERS_MAX];
    CHECK(n <= EDGE_PEERS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct sha256_ctx c;
        sha256_init(&c);
        sha256_update(&c, nodes[i].p, nodes[i].n);
        sha256_update(&c, "", 1);
        sha256_update(&c, digest->b, sizeof digest->b);
        sha256_final(&c, &score[i]);
        size_t at = i; /* insertion: a list of peers is short */
        for (; at > 0 && memcmp(score[out_order[at - 1]].b, score[i].b, sizeof score[i].b) < 0; at--)
            out_order[at] = out_order[at - 1];
        out_order[at] = i;
    }
}
