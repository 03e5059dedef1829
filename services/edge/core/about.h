/*
 * What TileJSON says of a pack beside its header: five members of the archive's metadata, as they were written there.
 *
 * The metadata is a stranger's and may be 10 MiB: it is read in one pass without a tree, for a tree of three million empty objects
 * takes eighty times that, and it is read once, at the mount.
 *
 * Ownership   The texts are the struct's; edge_about_fini() ends them.
 * Threads     Pure.
 */
#ifndef RON_EDGE_ABOUT_H
#define RON_EDGE_ABOUT_H

#include "base/json_write.h"
#include "services/edge/core/pmtiles.h"

struct edge_about {
    struct str name, description, attribution, version; /* JSON strings, with their quotes; n 0: absent */
    struct str layers;                                  /* a JSON array; n 0: absent */
    char *text;                                         /* where they are */
};

/* json: one object. ERR_CORRUPT with *out_fault filled, ERR_NO_MEMORY. */
NODISCARD enum err edge_about_read(struct bytes json, struct edge_about *out, struct edge_fault *out_fault);
/* Of an archive: `read` brings its bytes. One without metadata says nothing of itself. */
NODISCARD enum err edge_about_load(const struct edge_pmtiles_header *h, edge_pmtiles_read *read, void *ctx,
                                   struct edge_about *out, struct edge_fault *out_fault);
void edge_about_fini(struct edge_about *a);
size_t edge_about_bytes(const struct edge_about *a);

#endif
