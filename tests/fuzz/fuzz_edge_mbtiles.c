/* MBTiles files from anywhere, through SQLite: refused with a reason, or every tile readable within its bounds, soon. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "services/edge/mbdb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TILE_MAX = 1 << 16, ROWS = 64 };

RT_BLOCKS
static void read_all(struct edge_mbdb *db)
{
    struct edge_pmtiles_header h = {0};
    struct edge_fault f = {""};
    struct edge_tile t;
    struct bytes tile;
    uint64_t tiles = 0;
    char *metadata = NULL;
    edge_mbdb_set_patience(db, 100);
    enum err e = edge_mbdb_check(db, &h, &tiles, &metadata, &f);
    if (e != ERR_OK)
        CHECK(f.text[0] != 0 || e == ERR_NO_MEMORY);
    else
        CHECK(metadata && metadata[0] == '{' && h.zoom_min <= h.zoom_max &&
              h.zoom_max <= EDGE_MBTILES_ZOOM_MAX);
    free(metadata);
    for (int i = 0; i < ROWS && edge_mbdb_next(db, &t, &tile) == ERR_OK; i++) {
        CHECK(edge_tile_ok(&t) && tile.n <= TILE_MAX);
        volatile uint8_t last = tile.n ? tile.p[tile.n - 1] : 0;
        (void)last;
    }
    static const struct edge_tile wanted[] = {{0, 0, 0}, {1, 1, 0}, {29, 5, 7}};
    for (size_t i = 0; i < 3; i++) {
        e = edge_mbdb_tile(db, &wanted[i], &tile);
        CHECK(e != ERR_OK || tile.n <= TILE_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) RT_UNCHECKED
{
    struct edge_mbdb *db;
    int fd = memfd_create("mbtiles", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    if (edge_mbdb_open(fd, TILE_MAX, EDGE_MBDB_WAITS, &db) == ERR_OK) {
        read_all(db);
        edge_mbdb_close(db);
    }
    close(fd);
    return 0;
}
