/*
 * Sealing: a pack is read once, so that nobody has to hash its bytes again. Each content's digest goes into the tag file, the
 * digest of the archive says which bytes those were, and only when both are durable does the tag file say that it is complete.
 *
 * Ownership   A seal under way holds a reference to its pack.
 * Threads     One seal at a time per pack: pack_verifier, and open() before the tasks run.
 */
#ifndef RON_EDGE_SEAL_H
#define RON_EDGE_SEAL_H

#include "services/edge/pack.h"

struct edge_seal {
    struct edge *e;
    struct edge_pack *pack;  /* NULL: nothing under way */
    struct edge_entry *list; /* contents still to be hashed, by offset */
    size_t n, next;
    size_t root_next;     /* large archives: the entry of the root whose leaf comes next */
    struct edge_mbdb *db; /* MBTiles: where the tiles come from; NULL when all are done */
    uint64_t whole_at;    /* how much of the archive is in `whole` */
    uint64_t contents;    /* bytes of contents hashed so far */
    uint64_t hashed;      /* all bytes, since the last turn */
    struct sha256_ctx whole;
    uint8_t *scratch;
};

/* May this pack be sealed: an archive in a file that nobody changed, not sealed yet. */
bool edge_seal_wanted(struct edge_pack *p);
/* When it fails nothing is under way. */
NODISCARD enum err edge_seal_begin(struct edge_seal *s, struct edge *e, struct edge_pack *p) RT_BLOCKS;
/* One turn of it; *out_bytes is what it cost. ERR_EMPTY: the pack is sealed; anything else but ERR_OK: it cannot be read. */
NODISCARD enum err edge_seal_step(struct edge_seal *s, uint64_t *out_bytes) RT_BLOCKS;
void edge_seal_end(struct edge_seal *s); /* what was written down stays; idle is fine */
/* All of it at once. ERR_CANCELED when the calling task is told to stop. */
NODISCARD enum err edge_seal_whole(struct edge *e, struct edge_pack *p) RT_BLOCKS;

#endif
