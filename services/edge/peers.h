/*
 * Objects from other edge nodes, by digest. A node that needs an object whose digest it knows asks the nodes that are its
 * home before it asks the origin; what comes is hashed like any fill, so a peer can be wrong, slow or gone, and nothing worse
 * happens than that the next one is asked.
 *
 * Threads     From a worker, with its client.
 */
#ifndef RON_EDGE_PEERS_H
#define RON_EDGE_PEERS_H

#include "services/edge/fetch.h"
#include "services/edge/fills.h"

/* A request that says this comes from a node like us: it gets what is here and never starts a fill. */
#define EDGE_PEER_HEADER "x-edge-peer"

/*
 * Fetches the object f->digest into `to`, which is cut to nothing before each try. ERR_OK: *out describes exactly that object.
 * ERR_NOT_FOUND: none of the peers asked had it, or said so in time. ERR_CANCELED, ERR_IO (our disk).
 */
NODISCARD enum err edge_peers_fetch(struct edge *e, struct edge_client *client, struct rt_task *self,
                                    struct edge_fill *f, struct store_file *to,
                                    struct edge_answer *out) RT_BLOCKS;

#endif
