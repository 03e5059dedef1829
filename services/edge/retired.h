/*
 * Packs that were replaced or removed. Whoever lets go of a file last unmaps and closes it, and when its name is gone the kernel
 * then frees every page it had of it: milliseconds for a gibibyte, during which a listener would answer nobody. So a reference
 * is kept here until nobody else has one, and the pack_verifier is who lets go.
 *
 * Threads     open() and close(), and between them pack_verifier alone.
 */
#ifndef RON_EDGE_RETIRED_H
#define RON_EDGE_RETIRED_H

#include "services/edge/pack.h"

/* What `old` (NULL: there was none) has and `now` has not. Before `now` is published. */
void edge_retired_add(struct edge *e, const struct edge_generation *old, const struct edge_generation *now);
void edge_retired_sweep(struct edge *e); /* lets go of what nobody uses, and says how many are used */
void edge_retired_drop(struct edge *e);  /* at the end: whatever there is */

#endif
