/*
 * PMTiles version 3: the header and the directories, read as hostile input and written for packs we make ourselves.
 *
 * Layout of an archive: 127 bytes of header, then root directory, metadata, leaf directories and tile data as sections
 * whose places the header names. A directory is, after decompression: varint n, n differences of tile ids, n run lengths,
 * n lengths, n offsets (0: right behind the one before; else value - 1). A run length of 0 is a leaf directory.
 *
 * Threads     Pure.
 * Memory      A decoded entry takes 24 bytes.
 */
#ifndef RON_EDGE_PMTILES_H
#define RON_EDGE_PMTILES_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "services/edge/core/inflate.h"
#include "services/edge/core/record.h"

enum {
    EDGE_PMTILES_HEADER = 127,
    EDGE_PMTILES_ROOT_END = 16384,        /* header and root directory lie within */
    EDGE_PMTILES_DIR_STORED = 4 << 20,    /* most bytes of a directory as stored */
    EDGE_PMTILES_DIR_INFLATED = 16 << 20, /* and decoded */
    EDGE_PMTILES_DIR_ENTRIES = 1 << 20,
    EDGE_PMTILES_METADATA = 10 << 20,
    EDGE_PMTILES_DEPTH = 4, /* directories from root to tile */
    EDGE_PMTILES_LEAVES = 1 << 20,
    EDGE_PMTILES_ENTRIES = 1 << 28,
};

enum edge_tile_type {
    EDGE_TYPE_UNKNOWN,
    EDGE_TYPE_MVT,
    EDGE_TYPE_PNG,
    EDGE_TYPE_JPEG,
    EDGE_TYPE_WEBP,
    EDGE_TYPE_AVIF,
    EDGE_TYPE_MLT,
};

const char *edge_tile_mime(enum edge_tile_type t);
const char *edge_tile_ext(enum edge_tile_type t); /* what TileJSON says; "" for unknown */
bool edge_tile_ext_fits(enum edge_tile_type t, struct str ext);

struct edge_section {
    uint64_t offset, length;
};

struct edge_pmtiles_header {
    struct edge_section root, metadata, leaves, data;
    uint64_t addressed, entries, contents;
    bool clustered;
    enum edge_coding internal, tiles;
    enum edge_tile_type type;
    uint8_t zoom_min, zoom_max, zoom_center;
    int32_t west_e7, south_e7, east_e7, north_e7, center_lon_e7, center_lat_e7;
    char mime[EDGE_MIME_MAX + 1]; /* of an MBTiles file whose type has no number; else "" */
};

/* A sentence that says what is wrong with a pack; "" when nothing is. */
struct edge_fault {
    char text[160];
};

/* file_bytes: how large the archive is; head holds its first bytes. ERR_CORRUPT with *out_fault filled. */
NODISCARD enum err edge_pmtiles_header_decode(struct bytes head, uint64_t file_bytes,
                                              struct edge_pmtiles_header *out,
                                              struct edge_fault *out_fault);
void edge_pmtiles_header_encode(const struct edge_pmtiles_header *h, uint8_t out[EDGE_PMTILES_HEADER]);

struct edge_entry {
    uint64_t id;
    uint64_t offset; /* in the tile section, or in the leaf section when run is 0 */
    uint32_t length, run;
};

struct edge_dir {
    struct edge_entry *list;
    size_t n;
};

/*
 * A directory as stored. low and high bound its ids (low <= id, id + run <= high). The caller frees list. ERR_CORRUPT,
 * ERR_TOO_LARGE, ERR_NO_MEMORY.
 */
NODISCARD enum err edge_pmtiles_dir_decode(enum edge_coding coding, struct bytes stored, uint64_t low,
                                           uint64_t high, struct edge_dir *out,
                                           struct edge_fault *out_fault);
/* The plain (not yet compressed) form; entries in rising order. */
void edge_pmtiles_dir_encode(const struct edge_entry *list, size_t n, struct buf *out);

/* The entry that covers id: the last with entry.id <= id, if it is a leaf or its run reaches. NULL: no tile there. */
const struct edge_entry *edge_dir_find(const struct edge_entry *list, size_t n, uint64_t id);

/*
 * Walks everything below the root and gives one flat list of tiles in rising order of ids, all bounds checked. `read`
 * brings bytes of the archive (exactly n, or an error). ERR_TOO_LARGE when there are more than entries_max.
 */
/* By the place of their contents. Those of a clustered archive mostly are already. */
void edge_dir_sort_by_offset(struct edge_entry *list, size_t n);

typedef enum err edge_pmtiles_read(void *ctx, uint64_t offset, size_t n, uint8_t *out);
struct edge_pmtiles_limits {
    size_t entries_max;
    uint32_t tile_bytes_max;
};
NODISCARD enum err edge_pmtiles_walk(const struct edge_pmtiles_header *h,
                                     const struct edge_pmtiles_limits *limits, edge_pmtiles_read *read,
                                     void *ctx, struct edge_dir *out, struct edge_fault *out_fault);

struct edge_pmtiles_count {
    uint64_t entries, tiles;
};
/* The same checks without keeping anything: for archives whose directories are larger than memory should be. */
NODISCARD enum err edge_pmtiles_count(const struct edge_pmtiles_header *h,
                                      const struct edge_pmtiles_limits *limits, edge_pmtiles_read *read,
                                      void *ctx, struct edge_pmtiles_count *out,
                                      struct edge_fault *out_fault);
/* One directory: the root (leaf NULL), or the leaf an entry with run 0 names; high: id of the entry after it. */
NODISCARD enum err edge_pmtiles_dir_read(const struct edge_pmtiles_header *h, const struct edge_entry *leaf,
                                         uint64_t high, edge_pmtiles_read *read, void *ctx,
                                         struct edge_dir *out, struct edge_fault *out_fault);
/* Every tile below one leaf, as edge_pmtiles_walk does from the root. */
NODISCARD enum err edge_pmtiles_walk_leaf(const struct edge_pmtiles_header *h,
                                          const struct edge_pmtiles_limits *limits,
                                          const struct edge_entry *leaf, uint64_t high,
                                          edge_pmtiles_read *read, void *ctx, struct edge_dir *out,
                                          struct edge_fault *out_fault);

/* ---- writing ---- */

struct edge_pmtiles_tile {
    uint64_t id;
    struct bytes data; /* as it is to be stored */
};

struct edge_pmtiles_spec {
    enum edge_coding internal, tiles;
    enum edge_tile_type type;
    uint8_t zoom_min, zoom_max;
    struct str metadata; /* JSON */
    int32_t west_e7, south_e7, east_e7, north_e7;
    size_t leaf_entries; /* 0: everything in the root when that fits; else so many per leaf */
};

/* Tiles in rising order of ids; equal neighbours become runs, equal contents are stored once. */
NODISCARD enum err edge_pmtiles_write(const struct edge_pmtiles_spec *spec,
                                      const struct edge_pmtiles_tile *tiles, size_t n, struct buf *out);

#endif
