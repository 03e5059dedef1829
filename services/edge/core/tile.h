/*
 * Tile addresses: z/x/y as in XYZ, the PMTiles id (Hilbert order, all zooms in one sequence), the MBTiles key and row.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_TILE_H
#define RON_EDGE_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

enum { EDGE_ZOOM_MAX = 30, EDGE_MBTILES_ZOOM_MAX = 29 };

struct edge_tile {
    uint32_t z, x, y;
};

/* z at most EDGE_ZOOM_MAX, x and y below 2^z: the caller has checked (edge_tile_ok). */
bool edge_tile_ok(const struct edge_tile *t);
uint64_t edge_tile_id(const struct edge_tile *t);
/* ERR_RANGE when no tile of zoom 0 to 30 has this id. */
NODISCARD enum err edge_tile_of_id(uint64_t id, struct edge_tile *out);

uint64_t edge_tile_mbtiles_key(const struct edge_tile *t); /* z<<58 | x<<29 | y; z at most 29 */
uint32_t edge_tile_tms_row(const struct edge_tile *t);     /* rows counted from the south */

/*
 * "{z}/{x}/{y}" or "{z}/{x}/{y}.ext" as they stand in a URL: decimal, no leading zeros. *out_ext has p NULL without one.
 * ERR_SYNTAX for anything else, ERR_RANGE for z over 30 or x, y outside the zoom.
 */
NODISCARD enum err edge_tile_parse(struct str z, struct str x, struct str y_ext, struct edge_tile *out,
                                   struct str *out_ext);

#endif
