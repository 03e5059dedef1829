/*
 * An MBTiles file through SQLite, read-only, immutable, and as suspicious as SQLite allows: no writes, no functions but
 * three, no extensions, bounded values, a bounded number of steps.
 *
 * Pages are read through a VFS of our own on a descriptor that is already open, so a handle always reads the file that was
 * mounted, whatever its name means by now. A handle that may not wait reads only what the kernel has in memory; everything
 * else is ERR_BUSY, and a reader does it.
 *
 * Ownership   The handle duplicates the descriptor. Bytes of a tile are the handle's, valid until the next call on it.
 * Threads     One thread at a time per handle.
 */
#ifndef RON_EDGE_MBDB_H
#define RON_EDGE_MBDB_H

#include "rt/lock.h"
#include "services/edge/core/pmtiles.h"
#include "services/edge/core/tile.h"

struct edge_mbdb;

enum edge_mbdb_waiting { EDGE_MBDB_WAITS, EDGE_MBDB_NEVER_WAITS };

/* tile_max: larger values cannot be read. ERR_CORRUPT: SQLite cannot open it, or the tables are not there. Opening waits
 * for the disk in any case. */
NODISCARD enum err edge_mbdb_open(int fd, size_t tile_max, enum edge_mbdb_waiting waiting,
                                  struct edge_mbdb **out) RT_BLOCKS;
/* How much time of the processor a check, or the way to the next row of edge_mbdb_next, may take: a view can be made that never
 * ends. Twenty seconds unless this says otherwise. */
void edge_mbdb_set_patience(struct edge_mbdb *db, int64_t ms);
void edge_mbdb_close(struct edge_mbdb *db); /* NULL is fine */

/* Everything a mount wants to know; *out_metadata is a JSON object, the caller's to free. */
NODISCARD enum err edge_mbdb_check(struct edge_mbdb *db, struct edge_pmtiles_header *out_header,
                                   uint64_t *out_tiles, char **out_metadata,
                                   struct edge_fault *out_fault) RT_BLOCKS;

/* The tile as stored. ERR_NOT_FOUND; ERR_CORRUPT, also when it is longer than tile_max or takes too long to find; ERR_BUSY from a
 * handle that may not wait. */
NODISCARD enum err edge_mbdb_tile(struct edge_mbdb *db, const struct edge_tile *t, struct bytes *out);
/* Every tile in turn as edge_mbdb_tile gives it, in no particular order, some of them perhaps twice; ERR_EMPTY after the last.
 * ERR_TILE_CORRUPT: this one cannot be read, the next call goes on behind it. Not for a handle that may not wait. */
NODISCARD enum err edge_mbdb_next(struct edge_mbdb *db, struct edge_tile *out_tile,
                                  struct bytes *out) RT_BLOCKS;

/* Is this tile stored as gzip? MBTiles says so nowhere but in the tile itself. */
static inline bool edge_mbdb_is_gzip(struct bytes tile)
{
    return tile.n > 2 && tile.p[0] == 0x1f && tile.p[1] == 0x8b;
}

#endif
