/*
 * Reading what is stored again and comparing it with its name: in the background at a gentle rate, or at once because
 * somebody asked.
 *
 * Threads     Passes run on the scrub task; asking and looking from any thread.
 */
#ifndef RON_EDGE_SCRUB_H
#define RON_EDGE_SCRUB_H

#include "services/edge/calls.h"
#include "services/edge/edge.h"

enum { EDGE_SCRUB_LISTED = 100 };

struct edge_scrub_report {
    uint64_t checked;
    size_t corrupt_n;
    struct sha256 corrupt[EDGE_SCRUB_LISTED];
};

/* turns of nobody: at full speed on a reader. ERR_OK, ERR_CORRUPT (and it is on its way into quarantine), ERR_CANCELED, or what the
 * disk said. */
NODISCARD enum err edge_scrub_object(struct edge *e, struct edge_turns *turns, const struct sha256 *digest,
                                     uint64_t rate) RT_BLOCKS;
/* Every object; rate 0: as fast as it goes. `after`, unless NULL, is told of each object and may end the pass (false:
 * ERR_EMPTY). */
NODISCARD enum err
edge_scrub_pass(struct edge *e, struct edge_turns *turns, uint64_t rate, struct edge_scrub_report *out,
                bool (*after)(struct edge *e, const struct edge_scrub_report *so_far)) RT_BLOCKS;

/* Every archive that is sealed, once; one whose bytes are others now is not served any more. ERR_EMPTY: somebody asked for a pass
 * over the objects, which goes first. */
NODISCARD enum err edge_scrub_packs(struct edge *e, struct edge_turns *turns, uint64_t rate) RT_BLOCKS;

/* ---- passes on demand ---- */

NODISCARD enum err edge_verify_create(struct edge_verify **out);
void edge_verify_destroy(struct edge_verify *v); /* NULL is fine */
/* Joins the pass under way or asks for one; the call (NULL: nobody waits) is answered when it ends or its time is up.
 * ERR_CLOSED: it is still the caller's. */
NODISCARD enum err edge_verify_ask(struct edge *e, struct edge_call *call);
bool edge_verify_wanted(struct edge *e);
void edge_verify_run(struct edge *e, struct edge_turns *turns) RT_BLOCKS; /* by the scrub task */
void edge_verify_tick(struct edge *e); /* 202 to those whose time ran out */
void edge_verify_reply(struct edge *e, struct net_req *rq, int status, const char *state,
                       const struct edge_scrub_report *r);

#endif
