/*
 * C2SP tlog-tiles paths: "<L>/<N>[.p/<W>]" and "entries/<N>[.p/<W>]", N in groups of three digits, all but the last with an x:
 * 1234067 is x001/x234/067. One number has one spelling.
 */
#ifndef RON_LEDGER_CORE_TILE_PATH_H
#define RON_LEDGER_CORE_TILE_PATH_H

#include "base/bytes.h"
#include "base/err.h"

enum { TILE_WIDTH = 256 };

struct ledger_tile {
    bool entries;
    unsigned level; /* of tiles: the hashes are those of tree level 8·level */
    uint64_t n;
    unsigned width; /* 1..256 */
};

NODISCARD enum err ledger_tile_parse(struct str path, struct ledger_tile *out); /* ERR_SYNTAX */

#endif
