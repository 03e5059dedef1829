/*
 * A mounted pack: an archive of tiles (PMTiles, MBTiles) or a directory of files. Immutable once published, except for
 * what sealing learns; a generation is a set of them.
 *
 * Ownership   Packs and generations are reference-counted. A request pins the generation while its handler runs, and the
 *             pack's file until its last byte left, so a body never mixes two packs.
 * Threads     Mounting, reloading and sealing by pack_verifier alone; everything else from any thread.
 */
#ifndef RON_EDGE_PACK_H
#define RON_EDGE_PACK_H

#include "base/map.h"
#include "services/edge/core/about.h"
#include "services/edge/core/pack_id.h"
#include "services/edge/core/pmtiles.h"
#include "services/edge/core/record.h"
#include "services/edge/core/tile.h"
#include "services/edge/edge.h"
#include "services/edge/tags.h"

enum {
    EDGE_PACKS_MAX = 256,
    EDGE_BASES_MAX = 16,
    EDGE_DIR_FILES_MAX = 1000000,
    EDGE_DIR_DEPTH_MAX = 32,
    EDGE_OPEN_FILES_MAX = 1024,
    EDGE_TAG_NAME_MAX = EDGE_PACK_NAME_MAX + 32
};

struct edge_mbdb;

/* What the configuration said when a pack was opened: with other words it is opened again. */
struct edge_pack_terms {
    uint64_t tile_bytes_max, dir_cache, tags_max;
};

/* A file of a directory pack. */
struct edge_member {
    struct str path; /* relative */
    struct edge_file_id id;
    struct sha256 digest;
    const char *mime;
    _Atomic(struct edge_file *) open; /* kept once opened, while there are not too many */
};

/* TileJSON for one base URL. */
struct edge_document {
    char *base;
    uint8_t *json;
    size_t n;
    struct sha256 digest;
};

struct edge_pack {
    struct edge *edge;
    _Atomic uint32_t refs;
    uint64_t serial; /* one per mounted pack, never used again */
    enum edge_pack_kind kind;
    char name[EDGE_PACK_NAME_MAX + 1];
    char *path, *mount;
    struct sha256 id;
    uint64_t since_s;
    int64_t mounted_ms;
    struct edge_pack_terms terms;
    struct edge_file *file; /* archives */

    struct edge_pmtiles_header header; /* MBTiles: type, coding, zooms, bounds are filled in */
    struct edge_dir dir; /* all tiles, or (large) the root, whose leaves are read when they are needed */
    bool large;
    uint64_t tiles, contents;
    struct edge_about about;

    struct edge_mbdb *db[EDGE_READERS_MAX]; /* one per reader, opened by it */
    _Atomic(struct edge_mbdb *)
        loop_db[EDGE_LOOPS_MAX]; /* one per loop, which never waits; opened by a reader */

    int dirfd;
    struct map members;
    struct edge_member *list;
    size_t list_n;
    uint64_t list_bytes;
    _Atomic bool
        outdated; /* a file in it is another than at the mount; set by who noticed, read by the verifier */

    struct edge_tags tags;
    _Atomic bool sealed; /* archive is valid. Pairs with the store after it was written */
    struct sha256 archive;
    _Atomic uint64_t sealed_bytes;
    _Atomic bool damaged; /* other bytes than were sealed were found in it, or none that make an archive */

    struct edge_document documents[EDGE_BASES_MAX]; /* guarded by edge.routing_table */
    size_t documents_n, documents_bytes;
};

struct edge_pack *edge_pack_ref(struct edge_pack *p);
void edge_pack_unref(struct edge_pack *p) RT_UNCHECKED; /* NULL is fine */
bool edge_pack_ok(struct edge_pack *p);                 /* not changed in place */
bool edge_pack_terms_hold(const struct edge *e, const struct edge_pack *p);
/* The file below tags/ that keeps its digests (.tag), or those of a directory's files (.dix). */
void edge_pack_tag_name(const struct edge_pack *p, char out[EDGE_TAG_NAME_MAX]);

struct edge_pack_spec {
    struct str name, mount;
    const char *path; /* NULL: the built-in pack */
    enum edge_pack_kind kind;
};

/* Opens and checks everything but the tiles' bytes. On failure *out_fault says why. */
NODISCARD enum err edge_pack_open(struct edge *e, const struct edge_pack_spec *spec, struct edge_pack **out,
                                  struct edge_fault *out_fault) RT_BLOCKS;
/* Where the tile with this id lies. ERR_NOT_FOUND; ERR_BUSY: a leaf must be read first and may_block is false. */
NODISCARD enum err edge_pack_find(struct edge *e, struct edge_pack *p, uint64_t id, bool may_block,
                                  struct edge_entry *out) RT_UNCHECKED;
struct edge_pmtiles_limits edge_pack_limits(const struct edge *e);
NODISCARD enum err edge_pack_read(void *edge_file, uint64_t offset, size_t n,
                                  uint8_t *out) RT_UNCHECKED; /* an edge_pmtiles_read */
/* The id it would have now, cheaply: ERR_OK and equal means that nothing changed. Not for directories. */
NODISCARD enum err edge_pack_peek(const char *path, enum edge_pack_kind kind,
                                  struct sha256 *out_id) RT_BLOCKS;
NODISCARD enum err edge_mbtiles_open(struct edge *e, struct edge_pack *p,
                                     struct edge_fault *out_fault) RT_BLOCKS;
/* The handle of reader `reader`, on its thread. */
NODISCARD enum err edge_mbtiles_reader(struct edge *e, struct edge_pack *p, unsigned reader,
                                       struct edge_mbdb **out) RT_BLOCKS;
/* Opens the handle that loop `loop` will use from now on; on a reader. */
void edge_mbtiles_prepare(struct edge *e, struct edge_pack *p, unsigned loop) RT_BLOCKS;
void edge_mbtiles_close(struct edge_pack *p);
NODISCARD enum err edge_dir_open(struct edge *e, struct edge_pack *p,
                                 struct edge_fault *out_fault) RT_BLOCKS;
/* A reference to the opened file of a member; ERR_CONFLICT: it is not what it was at the mount. */
NODISCARD enum err edge_member_open(struct edge *e, struct edge_pack *p, struct edge_member *m,
                                    struct edge_file **out) RT_BLOCKS;
/* Same paths, files and times: what is known of one's files is true of the other's. */
bool edge_dir_same(const struct edge_pack *a, const struct edge_pack *b);

/* The built-in pack, made once. */
NODISCARD enum err edge_demo_file(struct edge_file **out);

/* ---- generations ---- */

enum edge_slot_state { EDGE_MOUNTED, EDGE_REJECTED, EDGE_CHANGED };
const char *edge_slot_state_name(enum edge_slot_state s);

struct edge_slot {
    char name[EDGE_PACK_NAME_MAX + 1];
    struct edge_pack *pack; /* a reference; NULL: refused at its first mount */
    _Atomic int state;      /* enum edge_slot_state; the verifier may turn MOUNTED into CHANGED */
    enum edge_pack_kind kind;
    char error[160];
    char path[512];
    char mount[EDGE_NAME_MAX + 1]; /* of a directory */
};

struct edge_generation {
    /* relaxed up, under state_meta; acq_rel down: who frees it sees what the others did */
    struct os_a32 refs;
    uint64_t number;
    int64_t published_ms;
    size_t n;
    struct map by_name; /* -> struct edge_slot */
    struct edge_slot slots[];
};

struct edge_generation *edge_pin(struct edge *e);
void edge_unpin(struct edge_generation *g) RT_UNCHECKED;
/* Takes over the caller's reference; the one before lives until it is unpinned by all. */
void edge_generation_publish(struct edge *e, struct edge_generation *g);
struct edge_slot *edge_slot_find(const struct edge_generation *g, struct str name);

#endif
