/* The world around the edge's fills and generations in a model: requests that count their answers, a store of one object. */
#ifndef RON_TESTS_MODEL_EDGE_WORLD_H
#define RON_TESTS_MODEL_EDGE_WORLD_H

#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "svc/feed.h"
#include "services/edge/fills.h"
#include "services/edge/pack.h"
#include "services/edge/serve.h"
#include "services/edge/trace.h"

enum answer { UNANSWERED, SERVED, REFUSED, PROMISED };

/* Stands in for a request: its address travels as a struct net_req. */
struct request {
    struct os_a32 answers;
    enum answer how;
    enum err why;
    struct arena arena;
    const char *prefer;
    bool gone;
};

static struct {
    struct os_a32 stored; /* release by the worker once the object is durable; acquire by who looks it up */
    struct os_a32 draining;
    bool (*find)(struct str name,
                 struct edge_hit *out); /* a store of more than that one object; NULL: none */
    int64_t skipped_ns;                 /* what a test added to the clock */
    struct edge_config config;
} world;

static void answer(struct net_req *rq, enum answer how, enum err why)
{
    struct request *r = (struct request *)(void *)rq;
    r->how = how;
    r->why = why;
    CHECK(os_a32_add(&r->answers, 1, memory_order_acq_rel) == 0); /* exactly one answer */
}

static int64_t world_mono_ns(void *ctx)
{
    (void)ctx;
    return os_now_ns() + world.skipped_ns;
}

static int64_t world_wall_ms(void *ctx)
{
    return world_mono_ns(ctx) / 1000000;
}

static const struct clock world_clock = {.mono_ns = world_mono_ns, .wall_ms = world_wall_ms};

/* ---- the server's side ---- */

struct arena *net_req_arena(struct net_req *rq)
{
    return &((struct request *)(void *)rq)->arena;
}

struct str net_req_header_str(const struct net_req *rq, struct str name)
{
    const struct request *r = (const struct request *)(const void *)rq;
    return r->prefer && str_eq_c(name, "prefer") ? str_from_c(r->prefer) : (struct str){NULL, 0};
}

struct str net_req_header_list(struct net_req *rq, const char *name)
{
    return net_req_header_str(rq, str_from_c(name));
}

struct str net_req_corr_id(const struct net_req *rq)
{
    (void)rq;
    return STR("model");
}

struct str net_req_target(const struct net_req *rq)
{
    (void)rq;
    return STR("/edge/assets/x");
}

bool net_req_gone(const struct net_req *rq)
{
    return ((const struct request *)(const void *)rq)->gone;
}

void net_reply(struct net_req *rq, int status, const struct net_headers *h, struct bytes body)
{
    (void)h;
    (void)body;
    CHECK(status == 202);
    answer(rq, PROMISED, ERR_OK);
}

/* ---- the edge's side ---- */

bool edge_store_find(struct edge_store *s, struct str name, struct edge_hit *out)
{
    (void)s;
    if (world.find)
        return world.find(name, out);
    if (!os_a32_load(&world.stored, memory_order_acquire))
        return false;
    *out = (struct edge_hit){.size = 1};
    return true;
}

bool edge_store_has(struct edge_store *s, const struct sha256 *digest, uint64_t *out_size)
{
    (void)s;
    (void)digest;
    (void)out_size;
    return false;
}

enum err edge_store_open_now(struct edge_store *s, const struct sha256 *digest, struct edge_file **out)
{
    static struct edge_file file = {.size = 1, .memory = true};
    (void)s;
    (void)digest;
    *out = &file;
    return ERR_OK;
}

enum err edge_store_open(struct edge_store *s, const struct sha256 *digest, bool trusted,
                         struct edge_file **out)
{
    (void)trusted;
    return edge_store_open_now(s, digest, out);
}

void edge_serve(struct edge *e, struct net_req *rq, const struct edge_repr *r, bool may_block)
{
    (void)e;
    (void)r;
    (void)may_block;
    answer(rq, SERVED, ERR_OK);
}

void edge_serve_object(struct edge *e, struct net_req *rq, const struct sha256 *digest,
                       struct edge_file *file, enum edge_from from, bool may_block)
{
    (void)digest;
    (void)file;
    (void)from;
    edge_serve(e, rq, NULL, may_block);
}

void edge_defer(struct edge *e, struct net_req *rq, edge_job_fn *run, void (*drop)(void *arg), void *arg)
{
    (void)drop;
    run(e, rq, arg, 0);
}

void edge_refuse_after(struct edge *e, struct net_req *rq, enum err err, enum edge_reason reason,
                       const char *detail, unsigned retry_s)
{
    (void)e;
    (void)reason;
    (void)detail;
    (void)retry_s;
    answer(rq, REFUSED, err);
}

void edge_refuse(struct edge *e, struct net_req *rq, enum err err, enum edge_reason reason,
                 const char *detail)
{
    edge_refuse_after(e, rq, err, reason, detail, 0);
}

const char *edge_reason_name(enum edge_reason r)
{
    (void)r;
    return "";
}

bool edge_cors(struct edge *e, struct net_req *rq, struct buf *lines)
{
    (void)e;
    (void)rq;
    (void)lines;
    return false;
}

void edge_shed(struct edge *e)
{
    (void)e;
}

void svc_feed_tell(struct svc_feed *f, const char *name, const char *json_fmt, ...)
{
    (void)f;
    (void)name;
    (void)json_fmt;
}

void edge_trace_fill(struct edge *e, struct net_req *rq, struct edge_fill *f)
{
    (void)e;
    (void)rq;
    (void)f;
}

void edge_trace_filled(struct edge *e, struct edge_fill *f, enum err err)
{
    (void)e;
    (void)f;
    (void)err;
}

enum err edge_digest_find(struct edge *e, const struct edge_route *r, struct str name, struct sha256 *out)
{
    (void)e;
    (void)r;
    (void)name;
    (void)out;
    return ERR_NOT_FOUND;
}

/* ---- nobody counts or logs a model ---- */

const void *svc_config(const struct svc *s)
{
    (void)s;
    return &world.config;
}

bool svc_draining(const struct svc *s)
{
    (void)s;
    return os_a32_load(&world.draining, memory_order_acquire) != 0;
}

struct obs_log *svc_log(const struct svc *s)
{
    (void)s;
    return NULL;
}

#endif
