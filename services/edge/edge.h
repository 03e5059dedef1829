/*
 * svc-edge: map tiles and whole archives from packs, files from directories, and assets fetched once from allow-listed
 * origins. This header is the state that tasks and handlers share; README.md tells how they work together.
 *
 * Threads     Members are set by open() and then constant, except atomics and what a lock's comment names.
 */
#ifndef RON_EDGE_EDGE_H
#define RON_EDGE_EDGE_H

#include <stdatomic.h>

#include "obs/metrics_def.h"
#include "rt/lock.h"
#include "services/edge/core/address.h"
#include "services/edge/core/name.h"
#include "services/edge/core/rendezvous.h"
#include "services/edge/file.h"
#include "services/edge/turns.h"
#include "svc/svc.h"

struct edge_config {
#define CONF CONF_AS_MEMBER
#include "services/edge/config.def"
#undef CONF
};
SVC_CONFIG_IS_PREFIX(struct edge_config);

enum edge_metric {
#define OBS_DEF(id) EDGE_M_##id,
#include "obs/metrics_ids.h"
#include "services/edge/metrics.def"
#include "obs/metrics_end.h"
    EDGE_M_COUNT
};

enum { EDGE_OFFLINE, EDGE_LIVE }; /* mode */
enum { EDGE_LOOPS_MAX = 16, EDGE_READERS_MAX = 32, EDGE_LABEL = 300 };

/* Order of the label values in metrics.def. */
enum edge_reason {
    EDGE_R_AMNESIA,
    EDGE_R_NOT_ALLOWED,
    EDGE_R_DECOMPRESS_CAP,
    EDGE_R_BODY_CAP,
    EDGE_R_TIMEOUT,
    EDGE_R_RATE_LIMIT,
    EDGE_R_INVALID_RANGE,
    EDGE_R_ETAG_INVALID,
    EDGE_R_CLIENT_LIMIT,
    EDGE_R_INFLIGHT,
    EDGE_R_CONNS,
    EDGE_R_BUSY,
    EDGE_R_DRAINING,
    EDGE_R_UPSTREAM,
    EDGE_R_FILL_CAP,
    EDGE_R_DIGEST_MISMATCH,
    EDGE_R_PACK,
    EDGE_R_CAS,
    EDGE_R_BAD_REQUEST,
    EDGE_R_NONE, /* refusals that are not counted by reason */
};

/* Routes as labels: order of busy_rejections_total, and what net_route.tag holds. */
enum edge_endpoint {
    EDGE_AT_ASSETS,
    EDGE_AT_TILES,
    EDGE_AT_TILEJSON,
    EDGE_AT_PACKS,
    EDGE_AT_CAS,
    EDGE_AT_ADMIN
};

struct edge;
struct edge_generation;
struct edge_settings;
struct edge_store;
struct edge_fills;
struct edge_tag_cache;
struct edge_dirs;
struct svc_feed;
struct edge_pack_op;
struct edge_verify;
struct edge_variants;
struct edge_retired;

struct edge {
    struct svc *svc;
    const struct clock *clock;
    struct obs_family *m[EDGE_M_COUNT];
    unsigned loops;

    _Atomic(struct edge_settings *) settings; /* replaced by reload; old ones live until close */
    struct edge_settings *settings_list;

    struct rt_lock state_meta;          /* guards generation */
    struct edge_generation *generation; /* a reference */
    struct os_a64 moved;          /* generations published and configurations taken so far; edge_as_of() */
    struct edge_retired *retired; /* pack_verifier's: packs that were replaced; retired.h */
    _Atomic uint64_t pack_serial;
    struct edge_turns turns; /* pack_verifier's */

    struct rt_lock
        routing_table; /* guards the documents of each generation's TileJSON, and the routes' manifests */

    struct edge_tag_cache
        *tag_cache[EDGE_LOOPS_MAX]; /* one per loop, touched by that loop's thread alone */
    struct edge_dirs *dirs;         /* leaf directories of large archives */
    struct edge_variants *variants; /* digests of inflated tiles */
    struct svc_feed *events;
    struct edge_store *store;
    struct edge_fills *fills;
    _Atomic uint64_t
        fetching; /* amnesia: bytes that workers hold and the store does not have yet; a sum, relaxed */

    struct rt_bell store_bell; /* commit or store_ops has something for the cas_writer */
    struct rt_chan *work, *read, *commit, *store_ops, *pack_ops, *tags, *scrub_ops, *scrape;
    struct rt_lock reload_lock; /* guards the two below and the calls that wait for them */
    struct edge_pack_op *reload_next, *reload_now;
    struct edge_verify *verify;   /* full passes over the store; scrub.h */
    _Atomic bool packs_ok;        /* every pack is mounted from its newest file */
    bool packs_unread;            /* the start did not wait for all; the verifier's once it runs */
    _Atomic int64_t shed_ns;      /* when a queue last refused */
    _Atomic unsigned workers_run; /* worker threads alive */
    _Atomic unsigned open_files;  /* directory files kept open */

    size_t cause_packs, cause_cas, cause_workers, cause_shed;
};

static inline const struct edge_config *edge_config(const struct edge *e)
{
    return svc_config(e->svc);
}

static inline int64_t edge_now_ns(const struct edge *e)
{
    return clock_mono_ns(e->clock);
}

static inline int64_t edge_now_ms(const struct edge *e)
{
    return clock_wall_ms(e->clock);
}

/* What an answer may depend on besides its request: another number means that packs, their files or the configuration may be others.
 * Never 0. It is read before any of them is looked at. Acquire: pairs with whoever made the change and then counted it. */
static inline uint64_t edge_as_of(struct edge *e)
{
    return 1 + os_a64_load(&e->moved, memory_order_acquire) + edge_file_changes();
}

static inline void edge_count_move(struct edge *e)
{
    os_a64_add(&e->moved, 1, memory_order_release);
}

/* A queue had no room for something. */
static inline void edge_count_dropped(struct edge *e, const char *queue)
{
    obs_counter_inc(OBS_COUNTER_OF(e->m[EDGE_M_queue_dropped], queue));
}

extern const struct net_route edge_routes[];

/* ---- settings.c: what the configuration's lists mean ---- */

struct edge_digest_row {
    struct str name;
    struct sha256 digest;
};

/* What a route's file of digests lists, by name. A reload frees the one it replaces, however large it is. */
struct edge_manifest {
    struct arena arena;
    struct edge_digest_row *rows;
    size_t n;
};

struct edge_breaker; /* fills.h */

struct edge_route {
    struct str prefix, url; /* url: the origin as configured */
    struct edge_origin origin;
    char label[EDGE_LABEL]; /* host:port */
    int64_t timeout_ms, max_age_ms;
    uint64_t max_bytes;
    bool keep_query, any_etag;
    bool manifest;                /* only what digests lists, with exactly that digest */
    struct edge_manifest *listed; /* guarded by edge.routing_table once published; NULL: replaced */
    const char *authorization;    /* whole header line, or NULL */
};

struct edge_peer {
    struct str url; /* ends with / */
    struct edge_origin origin;
    char label[EDGE_LABEL]; /* host:port */
    bool self;
};

struct edge_mount {
    struct str name, mount;
    const char *path;
    int kind; /* enum edge_pack_kind */
    bool pinned;
    struct sha256 sha256;
};

struct edge_settings {
    struct edge_settings *next;
    struct arena arena;
    const struct edge_config *of;
    struct edge_route *routes;
    struct str *prefixes; /* of routes, same order */
    size_t routes_n;
    struct edge_mount *mounts;
    size_t mounts_n;
    struct edge_peer *peers;
    struct str *peer_urls; /* of peers, same order */
    size_t peers_n;
    struct edge_route by_digest; /* what a fill of an object without a name goes by */
    struct edge_cidr *allow_private;
    size_t allow_private_n;
    struct net_cidr *proxies, *scrapers; /* trusted to name the client; given /metrics */
    size_t proxies_n, scrapers_n;
    struct str *cors;
    size_t cors_n;
    bool cors_any;
    const char *packs_dir;
};

/* Which key is wrong, and what about it. */
struct edge_why {
    const char *key;
    char text[200];
};
/* ERR_BAD_REQUEST with a sentence in why. Reads digest manifests and auth files. */
NODISCARD enum err edge_settings_make(const struct edge_config *cfg, const char *data_dir,
                                      struct edge_settings **out, struct edge_why *why);
void edge_settings_free(struct edge_settings *s);
static inline struct edge_settings *edge_settings(const struct edge *e)
{
    /* Pairs with the store in reloaded(): a pointer seen means its contents are seen. */
    return atomic_load_explicit(&((struct edge *)(uintptr_t)e)->settings, memory_order_acquire);
}
/* From now on these are meant. Takes them over; those before live until close, but for their manifests. */
void edge_settings_publish(struct edge *e, struct edge_settings *fresh);
/* What the route's manifest lists under the name; ERR_NOT_FOUND. */
NODISCARD enum err edge_digest_find(struct edge *e, const struct edge_route *r, struct str name,
                                    struct sha256 *out);

/* ---- jobs.c: work that may wait for a disk, done by a reader ---- */

typedef void edge_job_fn(struct edge *e, struct net_req *rq, void *arg, unsigned reader);

struct edge_job {
    struct net_req *rq; /* NULL: it is answered already, and being sent */
    edge_job_fn *run;
    void (*drop)(void *arg); /* when it is refused; may be NULL */
    void *arg;
};

/* Hands the request to a reader, or answers 429 or 503. */
void edge_defer(struct edge *e, struct net_req *rq, edge_job_fn *run, void (*drop)(void *arg), void *arg);

/* ---- refuse.c ---- */

/* Sent with everything under /edge/. */
#define EDGE_SAFE_HEADERS                                                                                  \
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"                                  \
    "Content-Security-Policy: default-src 'none'; sandbox\r\n"

/* Problem with X-Reason and details.reason, counted once; detail is one sentence. retry_s 0: the server's estimate. */
void edge_refuse(struct edge *e, struct net_req *rq, enum err err, enum edge_reason reason,
                 const char *detail);
/* In edge_rejects_total, and a line of the log (which takes ten a second of each kind: obs/log.h). */
void edge_count_reject(struct edge *e, const struct net_req *rq, enum err err, enum edge_reason reason);
void edge_refuse_after(struct edge *e, struct net_req *rq, enum err err, enum edge_reason reason,
                       const char *detail, unsigned retry_s);
/* Adds the reason to what the server itself is about to refuse. */
void edge_refusing(struct svc *s, void *edge, struct net_req *rq, enum net_reject why,
                   struct net_problem *p);
const char *edge_reason_name(enum edge_reason r);
enum edge_endpoint edge_endpoint(const struct net_req *rq);
void edge_shed(struct edge *e); /* something was refused for lack of room */
/* "Access-Control-…" lines for this request, or nothing; true: its origin is listed. Where origins are listed each answer depends on who
 * asks, also one that nobody named an origin for: a cache must not give it to a script. */
bool edge_cors(struct edge *e, struct net_req *rq, struct buf *out);

/* ---- tasks ---- */

NODISCARD enum err edge_worker_run(struct rt_task *self, void *edge) RT_BLOCKS;
NODISCARD enum err edge_reader_run(struct rt_task *self, void *edge) RT_BLOCKS;
NODISCARD enum err edge_cas_writer_run(struct rt_task *self, void *edge) RT_BLOCKS;
NODISCARD enum err edge_pack_verifier_run(struct rt_task *self, void *edge) RT_BLOCKS;
NODISCARD enum err edge_scrub_run(struct rt_task *self, void *edge) RT_BLOCKS;
NODISCARD enum err edge_metrics_run(struct rt_task *self, void *edge) RT_BLOCKS;

#endif
