/*
 * What the content-addressed store holds: names, the objects they point to, and since when each pack is what it is.
 * The state that refs.log replays to: applying the log's records in order gives the catalogue, dumping the catalogue
 * gives a log that replays to it.
 *
 * Ownership   The catalogue owns refs and objects; pointers handed out are valid until the next change.
 * Threads     Pure; the caller locks.
 * Memory      One allocation per ref and per object.
 */
#ifndef RON_EDGE_CATALOG_H
#define RON_EDGE_CATALOG_H

#include "base/buf.h"
#include "base/map.h"
#include "base/sha256.h"
#include "services/edge/core/record.h"

struct edge_object;

struct edge_ref {
    struct edge_object *object;
    struct edge_ref *next, *prev; /* of the same object */
    uint64_t fetched_ms, valid_until_ms, since_ms;
    struct str name, mime, etag; /* stored behind the struct */
};

struct edge_object {
    struct sha256 digest;
    bool found; /* the start's: its file is there */
    uint32_t last_use_s;
    uint32_t touched_s; /* last use as the log knows it */
    uint64_t size;
    uint64_t use_no; /* which use the last one was, since the start; 0: none since then */
    struct edge_ref *refs;
};

struct edge_pack_since {
    uint64_t since_s;
    struct sha256 pack_id;
    struct str name;
};

struct edge_catalog {
    struct map refs, objects, packs;
    uint64_t bytes;     /* of all objects */
    uint64_t uses;      /* so far; numbers from 1 */
    uint64_t ref_bytes; /* of the records that a dump would write for refs and packs */
};

NODISCARD enum err edge_catalog_init(struct edge_catalog *c);
/* Makes room for what a log of so many bytes can name at most; takes at most twice its size. */
NODISCARD enum err edge_catalog_expect(struct edge_catalog *c, uint64_t log_bytes);
void edge_catalog_fini(struct edge_catalog *c);

/* Applies one record. ERR_NO_MEMORY leaves it as it was. A record about something unknown changes nothing. */
NODISCARD enum err edge_catalog_apply(struct edge_catalog *c, const struct edge_record *r);
/* Asks for what applying it will touch: a start applies many, and waits for memory most of all. */
void edge_catalog_prefetch(const struct edge_catalog *c, const struct edge_record *r);
/* Writes the shortest log (records, no header) that replays to this state. */
void edge_catalog_dump(const struct edge_catalog *c, struct buf *out);

struct edge_ref *edge_catalog_ref(const struct edge_catalog *c, struct str name); /* NULL: none */
struct edge_object *edge_catalog_object(const struct edge_catalog *c,
                                        const struct sha256 *); /* NULL: none */
const struct edge_pack_since *edge_catalog_pack(const struct edge_catalog *c, struct str name);
/* Adds an object nobody refers to (found by the orphan walk); it ages out like others. */
NODISCARD enum err edge_catalog_adopt(struct edge_catalog *c, const struct sha256 *digest, uint64_t size,
                                      uint32_t last_use_s);

/* Their files are there. */
void edge_catalog_found(struct edge_catalog *c, const struct sha256 *digests, size_t n);

/* Somebody asked for it, or it was just stored. Seconds alone do not say which of two uses came later. */
void edge_catalog_use(struct edge_catalog *c, struct edge_object *o, int64_t now_ms);

/*
 * The objects to remove so that at most 95 % of both limits are used, if either is exceeded (or force): ascending last
 * use (the second, then which of its uses), then digest. *out is freed by the caller.
 */
struct edge_limits {
    uint64_t bytes, objects;
    bool force; /* no space left on the device: 5 % must go anyhow */
    uint64_t
        spare_from; /* what was used from this use on stays this time, whatever the limits say; 0: nothing */
};
NODISCARD enum err edge_catalog_victims(const struct edge_catalog *c, const struct edge_limits *limits,
                                        struct sha256 **out, size_t *out_n);

/* A Last-Modified that cannot lie: later than now and than whatever the name had before, in seconds. */
uint64_t edge_since_next(int64_t now_ms, uint64_t previous_s);

#endif
