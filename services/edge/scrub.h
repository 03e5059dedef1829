/* Reading objects again: the scrub task's laps, and checks on demand. */
#ifndef RON_EDGE_SCRUB_H
#define RON_EDGE_SCRUB_H

#include "services/edge/edge.h"

enum { EDGE_SCRUB_LISTED = 100 };

struct edge_scrub_report {
    uint64_t checked, bytes;
    size_t corrupt_n;
    struct sha256 corrupt[EDGE_SCRUB_LISTED];
};

/* self NULL and rate 0: without pauses. ERR_CORRUPT: it went into quarantine. */
NODISCARD enum err edge_scrub_object(struct edge *e, struct rt_task *self, const struct sha256 *digest,
                                     uint64_t rate) RT_BLOCKS;
NODISCARD enum err edge_scrub_pass(struct edge *e, struct rt_task *self, uint64_t rate,
                                   struct edge_scrub_report *out) RT_BLOCKS;

#endif
