/*
 * The content-addressed store: objects named by their SHA-256, names that point to them, and refs.log that survives both.
 *
 *     cas/00 … ff/<hex>   objects        cas/tmp/        fills under way, emptied at start
 *     refs.log            names          cas/quarantine/ objects that were not what their name says
 *
 * Threads     cas_writer alone changes anything on disk or in the catalogue; everybody reads under the lock `refs`.
 *             Opened objects are shared under the lock `objects`.
 * Order       An object is durable before a name that points to it is; a name is durable before it is seen.
 */
#ifndef RON_EDGE_STORE_H
#define RON_EDGE_STORE_H

#include "rt/oneshot.h"
#include "services/edge/core/catalog.h"
#include "services/edge/edge.h"

enum { EDGE_OBJECTS_OPEN = 1024, EDGE_QUARANTINE_FILES = 64, EDGE_QUARANTINE_DAYS = 7 };

struct edge_store {
    struct edge *e;
    struct store_disk *disk;
    char dir[STORE_PATH_MAX];
    struct rt_lock refs; /* guards catalog */
    struct edge_catalog catalog;
    struct rt_lock objects; /* guards opened, its list and forgotten */
    struct map opened;
    struct edge_opened *newest, *oldest;
    uint64_t forgotten;     /* how often an object was: who was opening one meanwhile does not keep it */
    struct store_file *log; /* cas_writer */
    uint64_t log_bytes;
    _Atomic bool readonly;      /* until restart: refs.log could not be written */
    _Atomic bool full;          /* no room on the device just now */
    _Atomic bool wants_room;    /* somebody found none */
    _Atomic bool failed;        /* what was written last could not be */
    _Atomic int64_t at_work_ns; /* since when cas_writer is at what it took last; 0: it waits */
    _Atomic uint64_t tmp_serial;
};

NODISCARD enum err edge_store_create(struct edge *e, struct edge_store **out) RT_BLOCKS;
void edge_store_destroy(struct edge_store *s) RT_BLOCKS;

/* What a name points to, copied. */
struct edge_hit {
    struct sha256 digest;
    uint64_t size, since_s;
    int64_t fetched_ms, valid_until_ms; /* 0: for ever */
    char mime[EDGE_MIME_MAX + 1], etag[EDGE_ETAG_MAX + 1];
    bool nameless; /* asked for by its digest */
};
bool edge_store_find(struct edge_store *s, struct str name, struct edge_hit *out);
bool edge_store_has(struct edge_store *s, const struct sha256 *digest, uint64_t *out_size);

/* A reference to the opened, verified object. now: ERR_NOT_FOUND unless somebody opened it before. The other opens it and hashes
 * it wholly before its first byte may be served (unless trusted: just written); ERR_CORRUPT, which it is too when it cannot be read,
 * puts it into quarantine, ERR_NOT_FOUND has its names forgotten. */
NODISCARD enum err edge_store_open_now(struct edge_store *s, const struct sha256 *digest,
                                       struct edge_file **out);
NODISCARD enum err edge_store_open(struct edge_store *s, const struct sha256 *digest, bool trusted,
                                   struct edge_file **out) RT_BLOCKS;
void edge_store_forget(struct edge_store *s,
                       const struct sha256 *digest); /* closes it; who sends it keeps it */
void edge_store_object_path(const struct edge_store *s, const struct sha256 *digest,
                            char out[STORE_PATH_MAX]);

/* Since when the pack of this name has been what it is. */
uint64_t edge_store_pack_since(struct edge *e, const char *name, const struct sha256 *id,
                               uint64_t previous_s);

/* ---- to cas_writer ---- */

/* Something could not be written for want of room: some is made, and the store is not reachable meanwhile. */
void edge_store_want_room(struct edge_store *s);

/* Something could not be written, for whatever reason: it is tried every second until it can. */
void edge_store_doubt(struct edge_store *s);
/* Nothing failed last, and the writer is not stuck in the disk. */
bool edge_store_reachable(struct edge_store *s);

/* A fill that is complete; shared by the worker that waits and the writer. */
struct edge_commit {
    _Atomic unsigned refs;
    struct rt_oneshot done;
    char tmp[STORE_PATH_MAX];  /* "": the object is there already, or only the ref is renewed */
    bool nameless;             /* no record: the object alone */
    struct edge_record record; /* PUT_REF, RENEW or DEL_REF; texts point into name, mime, etag */
    char name[EDGE_NAME_QUERY_MAX + 1], mime[EDGE_MIME_MAX + 1], etag[EDGE_ETAG_MAX + 1];
    enum err result;
};
void edge_commit_unref(struct edge_commit *c);

enum edge_store_op_kind {
    EDGE_OP_PURGE,
    EDGE_OP_QUARANTINE,
    EDGE_OP_LOST,
    EDGE_OP_PACK_SINCE,
    EDGE_OP_ADOPT
};

struct edge_store_op {
    enum edge_store_op_kind kind;
    struct net_req *rq; /* purge: answered when it is durable */
    struct sha256 digest;
    uint64_t number; /* since_s, or size */
    char name[EDGE_PACK_NAME_MAX + 1];
};
/* Takes a copy. ERR_BUSY, ERR_CLOSED. */
NODISCARD enum err edge_store_send(struct edge *e, const struct edge_store_op *op);

/* cas_writer's hands; its thread only. */
void edge_store_commit(struct edge_store *s, struct edge_commit **list, size_t n) RT_BLOCKS;
void edge_store_do(struct edge_store *s, struct edge_store_op *op) RT_BLOCKS;
/* While it is full: makes the room that was asked for, and looks whether there is enough again. */
void edge_store_look_for_room(struct edge_store *s) RT_BLOCKS;
/* After something could not be written: can it be by now? */
void edge_store_probe(struct edge_store *s) RT_BLOCKS;
/* Old quarantine goes, TOUCH, compaction, eviction. last: all touches, not only the first. */
void edge_store_upkeep(struct edge_store *s, bool last) RT_BLOCKS;

#endif
