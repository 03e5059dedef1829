/*
 * Single flight. Under one lock a newcomer either finds the fill and joins it, or finds none and inserts one; the fill leaves
 * the table only after its result can be found in the store, so a newcomer finds one or the other, never neither.
 */
#include "services/edge/fills.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/json_write.h"
#include "services/edge/core/accept.h"
#include "services/edge/trace.h"
#include "svc/feed.h"

struct edge_negative {
    int64_t until_ns;
    struct edge_outcome outcome;
    char name[];
};

enum err edge_fills_create(struct edge *e, struct edge_fills **out)
{
    struct edge_fills *f = calloc(1, sizeof *f);
    if (!f)
        return ERR_NO_MEMORY;
    *out = f;
    f->e = e;
    rt_lock_init(&f->lock, "fills", 22);
    f->origins = calloc(EDGE_ORIGINS_MAX, sizeof *f->origins);
    enum err err = f->origins ? map_init(&f->by_name, 512) : ERR_NO_MEMORY;
    return err == ERR_OK ? map_init(&f->negatives, 64) : err;
}

static void fill_free(struct edge_fill *f)
{
    free(f->name);
    free(f);
}

void edge_fills_destroy(struct edge_fills *f)
{
    size_t at = 0;
    void *value;
    if (!f)
        return;
    while (map_next(&f->negatives, &at, NULL, &value))
        free(value);
    map_fini(&f->negatives);
    map_fini(&f->by_name);
    for (size_t i = 0; i < f->origins_n; i++)
        rt_breaker_fini(&f->origins[i].breaker);
    free(f->origins);
    rt_lock_fini(&f->lock);
    free(f);
}

/* ---- origins ---- */

static struct rt_breaker_spec breaker_spec(const struct edge_config *cfg)
{
    return (struct rt_breaker_spec){.in_a_row = (unsigned)cfg->breaker_failures,
                                    .open_ms = cfg->breaker_open};
}

static struct edge_origin_state *origin_of(struct edge *e, const char *label)
{
    struct edge_fills *f = e->fills;
    struct edge_origin_state *o = NULL;
    rt_lock_take(&f->lock);
    for (size_t i = 0; i < f->origins_n && !o; i++)
        if (strcmp(f->origins[i].label, label) == 0)
            o = &f->origins[i];
    if (!o) { /* more origins than fit in all reloads of one process share the last one's numbers */
        o = &f->origins[f->origins_n < EDGE_ORIGINS_MAX ? f->origins_n : EDGE_ORIGINS_MAX - 1];
        if (f->origins_n < EDGE_ORIGINS_MAX) {
            struct rt_breaker_spec spec = breaker_spec(edge_config(e));
            snprintf(o->label, sizeof o->label, "%s", label);
            rt_breaker_init(&o->breaker, &spec);
            o->attempts = OBS_COUNTER_OF(e->m[EDGE_M_fill_attempts], o->label);
            o->success = OBS_COUNTER_OF(e->m[EDGE_M_fill_success], o->label);
            o->joined = OBS_COUNTER_OF(e->m[EDGE_M_fill_joined], o->label);
            o->bytes = OBS_COUNTER_OF(e->m[EDGE_M_bytes_in], o->label);
            o->open = OBS_GAUGE_OF(e->m[EDGE_M_breaker], o->label);
            o->latency = OBS_HIST_OF(e->m[EDGE_M_fill_latency], o->label);
            f->origins_n++;
        }
    }
    rt_lock_release(&f->lock);
    return o;
}

void edge_fills_configure(struct edge *e)
{
    struct edge_fills *f = e->fills;
    struct rt_breaker_spec spec = breaker_spec(edge_config(e));
    rt_lock_take(&f->lock);
    size_t n = f->origins_n;
    rt_lock_release(&f->lock);
    for (size_t i = 0; i < n; i++)
        rt_breaker_configure(&f->origins[i].breaker, &spec);
}

struct edge_origin_state *edge_fill_origin(struct edge *e, const struct edge_fill *f)
{
    return origin_of(e, f->route->label);
}

struct rt_breaker *edge_fill_breaker(struct edge *e, const char *label)
{
    return &origin_of(e, label)->breaker;
}

/* What a finished fill left: under its name, or the object alone. */
static bool result_of(struct edge *e, const struct edge_fill *f, struct edge_hit *out)
{
    if (!f->nameless)
        return edge_store_find(e->store, str_from_c(f->name), out);
    *out = (struct edge_hit){.digest = f->digest, .nameless = true};
    return edge_store_has(e->store, &f->digest, &out->size);
}

/* ---- answering ---- */

static bool may_serve_stale(struct edge *e, const struct edge_hit *stale)
{
    return stale && edge_now_ms(e) < stale->valid_until_ms + edge_config(e)->fill_stale;
}

static void refuse(struct edge *e, struct net_req *rq, const struct edge_outcome *o,
                   const struct edge_hit *stale)
{
    if (o->err != ERR_NOT_FOUND && o->err != ERR_DRAINING && may_serve_stale(e, stale))
        edge_serve_hit(e, rq, stale, EDGE_FROM_STALE, false);
    else
        edge_refuse_after(e, rq, o->err, o->reason, o->detail, o->retry_s);
}

static void reply_202(struct edge *e, const struct edge_waiter *w)
{
    char raw[10 << 10]; /* a target has at most 8 KiB */
    struct buf lines, body;
    struct json_w json;
    buf_init_fixed(&lines, raw, sizeof raw);
    buf_puts(&lines, "Location: ");
    buf_put_str(&lines, net_req_target(w->rq)); /* with the query: it may be part of the name */
    buf_puts(&lines, "\r\n");
    buf_puts(&lines, "Preference-Applied: respond-async\r\nRetry-After: 1\r\n");
    edge_cors(e, w->rq, &lines);
    buf_init(&body, 1 << 16); /* every byte of a name may take six */
    json_w_init(&json, &body);
    json_obj_begin(&json);
    json_put_cstr(&json, "status", "queued");
    if (w->name)
        json_put_cstr(&json, "name", w->name);
    json_key(&json, "corr_id");
    json_str(&json, net_req_corr_id(w->rq));
    json_obj_end(&json);
    net_reply(w->rq, 202, &(struct net_headers){.raw = buf_str(&lines)}, buf_bytes(&body));
    buf_fini(&body);
}

struct serve_arg {
    struct edge_hit hit;
    enum edge_from from;
};

static void serve_hit_later(struct edge *e, struct net_req *rq, void *arg, unsigned reader)
{
    struct serve_arg a = *(struct serve_arg *)arg;
    (void)reader;
    edge_serve_hit(e, rq, &a.hit, a.from, true);
}

void edge_serve_hit(struct edge *e, struct net_req *rq, const struct edge_hit *hit, enum edge_from from,
                    bool may_block)
{
    struct edge_file *file;
    enum err err = may_block ? edge_store_open(e->store, &hit->digest, from == EDGE_FROM_FILL, &file)
                             : edge_store_open_now(e->store, &hit->digest, &file);
    if (err == ERR_NOT_FOUND && !may_block) {
        struct serve_arg *a = arena_alloc(net_req_arena(rq), sizeof *a);
        if (a) {
            *a = (struct serve_arg){*hit, from};
            edge_defer(e, rq, serve_hit_later, NULL, a);
            return;
        }
    }
    if (err != ERR_OK) {
        obs_counter_inc(obs_counter_nth(e->m[EDGE_M_misses], 2));
        edge_refuse_after(e, rq, ERR_UNAVAILABLE, EDGE_R_CAS,
                          err == ERR_CORRUPT ? "the stored object was damaged and is put aside"
                                             : "the object cannot be read",
                          1);
        return;
    }
    if (hit->nameless) {
        edge_serve_object(e, rq, &hit->digest, file, from, may_block);
        return;
    }
    int64_t age_ms = edge_now_ms(e) - hit->fetched_ms;
    const char *type = arena_strdup(net_req_arena(rq), str_from_c(hit->mime));
    struct edge_repr r = {.digest = hit->digest,
                          .size = file->size,
                          .type = type ? type : "application/octet-stream",
                          .from = from,
                          .since_s = hit->since_s,
                          .max_age_s = edge_config(e)->cache_assets / 1000,
                          .age_s = age_ms > 0 ? age_ms / 1000 : 0,
                          .file = file};
    edge_serve(e, rq, &r, may_block);
}

/* ---- asking ---- */

static bool negative_find(struct edge *e, struct str name, struct edge_outcome *out)
{
    struct edge_fills *f = e->fills;
    int64_t now = edge_now_ns(e);
    rt_lock_take(&f->lock);
    struct edge_negative *n = map_get(&f->negatives, bytes_of_str(name)), *old = NULL;
    bool live = n && n->until_ns > now;
    if (live) {
        *out = n->outcome;
        if (out->err != ERR_NOT_FOUND)
            out->retry_s = 1 + (unsigned)((n->until_ns - now) / 1000000000);
    } else if (n)
        old = map_remove(&f->negatives, bytes_of_str(name));
    rt_lock_release(&f->lock);
    free(old);
    return live;
}

static bool expired(struct bytes key, void *value, void *arg)
{
    struct edge_negative *n = value;
    (void)key;
    if (n->until_ns > *(int64_t *)arg)
        return false;
    free(n);
    return true;
}

static void negative_add(struct edge *e, const char *name, const struct edge_outcome *o)
{
    struct edge_fills *f = e->fills;
    int64_t now = edge_now_ns(e), ms = o->err == ERR_NOT_FOUND ? edge_config(e)->fill_negative_ttl : 1000;
    size_t len = strlen(name);
    struct edge_negative *n = malloc(sizeof *n + len + 1), *old = NULL;
    if (!n || ms == 0) {
        free(n);
        return;
    }
    n->until_ns = now + ms * 1000000;
    n->outcome = *o;
    memcpy(n->name, name, len + 1);
    rt_lock_take(&f->lock);
    if (map_count(&f->negatives) >= EDGE_NEGATIVE_MAX)
        map_sweep(&f->negatives, expired, &now);
    if (map_count(&f->negatives) >= EDGE_NEGATIVE_MAX ||
        map_put(&f->negatives, bytes_of(n->name, len), n, (void **)&old) != ERR_OK)
        old = n;
    rt_lock_release(&f->lock);
    free(old);
}

static struct edge_fill *fill_make(struct net_req *rq, struct str name, struct str path, struct str query,
                                   const struct edge_route *route, const struct edge_hit *stale)
{
    struct edge_fill *f = calloc(1, sizeof *f);
    char *copy = malloc(name.n + 1 + path.n + query.n);
    struct str corr = net_req_corr_id(rq);
    if (!f || !copy) {
        free(f);
        free(copy);
        return NULL;
    }
    memcpy(copy, name.p, name.n);
    copy[name.n] = 0;
    memcpy(copy + name.n + 1, path.p, path.n);
    f->name = copy;
    f->path = str_of(copy + name.n + 1, path.n);
    if (query.p) {
        memcpy(copy + name.n + 1 + path.n, query.p, query.n);
        f->query = str_of(copy + name.n + 1 + path.n, query.n);
    }
    f->route = route;
    f->has_stale = stale != NULL;
    if (stale)
        f->stale = *stale;
    snprintf(f->corr_id, sizeof f->corr_id, "%.*s", STR_ARG(corr));
    return f;
}

enum asked { ASKED_JOINED, ASKED_STARTED, ASKED_FAILED };

/* Joins the fill of that name, or makes `fresh` the one. */
static enum asked join_or_insert(struct edge *e, struct edge_fill *fresh, struct edge_waiter *w)
{
    struct edge_fills *t = e->fills;
    struct str name = str_from_c(fresh->name);
    enum asked what = ASKED_STARTED;
    rt_lock_take(&t->lock);
    struct edge_fill *f = map_get(&t->by_name, bytes_of_str(name));
    if (f)
        what = ASKED_JOINED;
    else if (map_add(&t->by_name, bytes_of_str(name), fresh) != ERR_OK)
        what = ASKED_FAILED;
    else
        f = fresh;
    if (f) {
        w->next = f->waiters;
        f->waiters = w;
        f->waiting++;
    }
    rt_lock_release(&t->lock);
    return what;
}

static void take_out(struct edge_fills *t, struct edge_fill *f)
{
    CHECK(map_remove(&t->by_name, bytes_of_str(str_from_c(f->name))) == f);
}

/* Takes the fill out of the table and gives its waiters to the caller. */
static struct edge_waiter *detach(struct edge *e, struct edge_fill *f)
{
    struct edge_fills *t = e->fills;
    rt_lock_take(&t->lock);
    if (!f->given_up)
        take_out(t, f);
    struct edge_waiter *w = f->waiters;
    f->waiters = NULL;
    f->waiting = 0;
    rt_lock_release(&t->lock);
    return w;
}

static void refuse_all(struct edge *e, struct edge_waiter *w, const struct edge_outcome *o,
                       const struct edge_hit *stale)
{
    while (w) {
        struct edge_waiter *next = w->next; /* w goes with its request */
        refuse(e, w->rq, o, stale);
        w = next;
    }
}

static void not_queued(struct edge *e, struct edge_fill *f, enum err why)
{
    struct edge_outcome o = {
        .err = ERR_DRAINING, .reason = EDGE_R_DRAINING, .detail = "the service is shutting down"};
    if (why == ERR_BUSY) {
        o = (struct edge_outcome){.err = ERR_BUSY,
                                  .reason = EDGE_R_BUSY,
                                  .detail = "work queue is full",
                                  .retry_s = edge_fills_retry_s(e)};
        obs_counter_inc(obs_counter_nth(e->m[EDGE_M_busy], EDGE_AT_ASSETS));
        edge_count_dropped(e, "work");
        edge_shed(e);
    }
    rt_breaker_neither(f->breaker, edge_now_ns(e));
    refuse_all(e, detach(e, f), &o, f->has_stale ? &f->stale : NULL);
    fill_free(f);
}

static void start(struct edge *e, struct edge_fill *f)
{
    struct edge_origin_state *o = edge_fill_origin(e, f);
    f->queued_ns = edge_now_ns(e);
    f->breaker = &o->breaker;
    edge_fill_to(e, f, EDGE_FILL_QUEUED);
    enum err err = rt_chan_try_send(e->work, f);
    if (err != ERR_OK)
        not_queued(e, f, err);
}

/* A fill may have ended between our look into the store and our entry in the table: then its result is there now, and no
 * second GET goes out. */
static bool filled_meanwhile(struct edge *e, struct edge_fill *f)
{
    struct edge_hit hit;
    if (!result_of(e, f, &hit) || (hit.valid_until_ms && hit.valid_until_ms <= edge_now_ms(e)) ||
        (f->has_digest && !sha256_eq(&hit.digest, &f->digest)))
        return false;
    struct edge_waiter *w = detach(e, f);
    fill_free(f);
    while (w) {
        struct edge_waiter *next = w->next;
        edge_serve_hit(e, w->rq, &hit, EDGE_FROM_CAS, false);
        w = next;
    }
    return true;
}

/* What to ask for; texts are copied. */
struct wish {
    struct str name, path, query;
    const struct edge_route *route;
    const struct edge_hit *stale;
    const struct sha256 *digest; /* NULL: not known */
    bool nameless;
};

static void ask(struct edge *e, struct net_req *rq, const struct wish *wish)
{
    struct edge_outcome o;
    struct edge_prefer prefer = edge_prefer_parse(net_req_header_list(rq, "prefer"));
    struct edge_origin_state *origin = origin_of(e, wish->route->label);
    int64_t now = edge_now_ns(e);
    obs_counter_inc(obs_counter_nth(e->m[EDGE_M_misses], wish->stale ? 1 : 0));
    if (negative_find(e, wish->name, &o)) {
        refuse(e, rq, &o, wish->stale);
        return;
    }
    struct edge_fill *fresh = fill_make(rq, wish->name, wish->path, wish->query, wish->route, wish->stale);
    struct edge_waiter *w = arena_zalloc(net_req_arena(rq), sizeof *w);
    if (!fresh || !w) {
        edge_refuse(e, rq, ERR_UNAVAILABLE, EDGE_R_NONE, "no memory for this request");
        if (fresh)
            fill_free(fresh);
        return;
    }
    edge_trace_fill(e, rq, fresh);
    fresh->nameless = wish->nameless;
    fresh->has_digest = wish->digest != NULL;
    if (wish->digest)
        fresh->digest = *wish->digest;
    w->rq = rq;
    if (prefer
            .async) { /* told by the next tick, which knows that it was queued and did not end meanwhile */
        w->async_at_ns = now + (int64_t)prefer.wait_s * 1000000000;
        w->name = wish->nameless ? NULL : arena_strdup(net_req_arena(rq), wish->name);
    }
    enum asked what = join_or_insert(e, fresh, w);
    if (what == ASKED_JOINED) {
        obs_counter_inc(origin->joined);
        fill_free(fresh);
    } else if (what == ASKED_FAILED) {
        fill_free(fresh);
        edge_refuse(e, rq, ERR_UNAVAILABLE, EDGE_R_NONE, "no memory for this request");
        return;
    }
    if (what != ASKED_STARTED)
        return;
    fresh->breaker = &origin->breaker;
    if (filled_meanwhile(e, fresh))
        return;
    if (!rt_breaker_allow(&origin->breaker, now)) {
        o = (struct edge_outcome){.err = ERR_UPSTREAM_UNAVAILABLE,
                                  .reason = EDGE_R_UPSTREAM,
                                  .detail = "the origin keeps failing",
                                  .retry_s =
                                      1 + (unsigned)(rt_breaker_retry_ms(&origin->breaker, now) / 1000)};
        refuse_all(e, detach(e, fresh), &o, wish->stale);
        fill_free(fresh);
    } else
        start(e, fresh);
}

void edge_fill_ask(struct edge *e, struct net_req *rq, struct str name, struct str path, struct str query,
                   const struct edge_route *route, const struct edge_hit *stale)
{
    struct sha256 listed;
    bool known = route->manifest && edge_digest_find(e, route, path, &listed) == ERR_OK;
    ask(e, rq,
        &(struct wish){.name = name,
                       .path = path,
                       .query = query,
                       .route = route,
                       .stale = stale,
                       .digest = known ? &listed : NULL});
}

void edge_fill_ask_object(struct edge *e, struct net_req *rq, const struct sha256 *digest)
{
    char key[1 + SHA256_HEX_CHARS];
    key[0] = 1; /* no asset has such a name */
    hex_encode(digest->b, sizeof digest->b, key + 1);
    struct str name = str_of(key, SHA256_HEX_CHARS);
    ask(e, rq,
        &(struct wish){.name = name,
                       .path = str_of(key + 1, SHA256_HEX_CHARS - 1),
                       .route = &edge_settings(e)->by_digest,
                       .digest = digest,
                       .nameless = true});
}

/* ---- the worker's side ---- */

void edge_fill_to(struct edge *e, struct edge_fill *f, enum edge_fill_state state)
{
    rt_lock_take(&e->fills->lock);
    edge_fill_move(&f->state, state);
    rt_lock_release(&e->fills->lock);
}

static bool is_wanted(const struct edge_fill *f)
{
    bool wanted = f->promised;
    for (const struct edge_waiter *w = f->waiters; w && !wanted; w = w->next)
        wanted = !net_req_gone(w->rq);
    return wanted;
}

bool edge_fill_wanted(struct edge *e, struct edge_fill *f)
{
    rt_lock_take(&e->fills->lock);
    bool wanted = is_wanted(f);
    rt_lock_release(&e->fills->lock);
    return wanted;
}

bool edge_fill_give_up(struct edge *e, struct edge_fill *f)
{
    rt_lock_take(&e->fills->lock);
    f->given_up = !is_wanted(f);
    if (f->given_up)
        take_out(e->fills, f);
    rt_lock_release(&e->fills->lock);
    return f->given_up;
}

static void tell_breaker(struct edge_fill *f, const struct edge_outcome *o, int64_t now)
{
    if (o->unasked)
        rt_breaker_neither(f->breaker, now);
    else if (o->err == ERR_OK || o->err == ERR_NOT_FOUND)
        rt_breaker_success(f->breaker, now);
    else if (o->down)
        rt_breaker_failure(f->breaker, now);
    else
        rt_breaker_neither(f->breaker, now);
}

static void remember_end(struct edge *e, struct edge_fill *f, const struct edge_outcome *o, int64_t now)
{
    struct edge_fills *t = e->fills;
    int64_t now_ms = edge_now_ms(e);
    rt_lock_take(&t->lock);
    struct edge_recent *r = &t->recent[t->recent_n++ % EDGE_RECENT];
    snprintf(r->name, sizeof r->name, "%.*s", STR_ARG(f->path));
    snprintf(r->origin, sizeof r->origin, "%s", f->route->label);
    r->result = o->err == ERR_OK ? "ok" : err_code(o->err);
    r->reason = edge_reason_name(o->err == ERR_OK ? EDGE_R_NONE : o->reason);
    r->bytes = atomic_load(&f->bytes);
    r->tries = f->tries;
    r->ms = (now - f->queued_ns) / 1000000;
    r->at_ms = now_ms;
    double gap = (double)(now - t->ended_ns) / 1e9, share = gap > 10 ? 1 : gap / 10;
    t->per_s = t->per_s * (1 - share) + (gap > 0 ? share / gap : 0);
    t->ended_ns = now;
    rt_lock_release(&t->lock);
}

void edge_fill_end(struct edge *e, struct edge_fill *f, const struct edge_outcome *o)
{
    int64_t now = edge_now_ns(e);
    struct edge_hit hit;
    struct edge_origin_state *origin = edge_fill_origin(e, f);
    tell_breaker(f, o, now);
    remember_end(e, f, o, now);
    bool ok = o->err == ERR_OK && result_of(e, f, &hit);
    if (o->err != ERR_OK && o->err != ERR_DRAINING && o->err != ERR_CANCELED)
        negative_add(e, f->name, o);
    if (ok) {
        obs_counter_inc(origin->success);
        obs_hist_observe(origin->latency, (double)(now - f->queued_ns) / 1e9);
    }
    edge_fill_to(e, f,
                 ok                       ? EDGE_FILL_DONE
                 : o->err == ERR_CANCELED ? EDGE_FILL_CANCELED
                                          : EDGE_FILL_FAILED);
    obs_log(svc_log(e->svc), OBS_INFO, "fill", OBS_STR("name", f->path),
            OBS_STR("origin", (const char *)f->route->label),
            OBS_STR("result", o->err == ERR_OK ? "ok" : err_code(o->err)),
            OBS_U64("bytes", atomic_load(&f->bytes)), OBS_U64("tries", f->tries),
            OBS_CORR((const char *)f->corr_id), OBS_END);
    svc_feed_tell(e->events, "fill", "{\"origin\":\"%s\",\"result\":\"%s\",\"bytes\":%llu,\"tries\":%u}",
                  f->route->label, o->err == ERR_OK ? "ok" : err_code(o->err),
                  (unsigned long long)atomic_load(&f->bytes), f->tries);
    edge_trace_filled(e, f, o->err);
    struct edge_waiter *w = detach(e, f);
    if (ok) {
        enum edge_from from = f->has_stale && sha256_eq(&f->stale.digest, &hit.digest)
                                  ? EDGE_FROM_REVALIDATED
                              : f->written ? EDGE_FROM_FILL
                                           : EDGE_FROM_CAS;
        while (w) {
            struct edge_waiter *next = w->next;
            edge_serve_hit(e, w->rq, &hit, from, true);
            w = next;
        }
    } else {
        struct edge_outcome gone = {.err = ERR_UNAVAILABLE,
                                    .reason = EDGE_R_CAS,
                                    .detail = "the object left the store at once",
                                    .retry_s = 1};
        refuse_all(e, w, o->err == ERR_OK ? &gone : o, f->has_stale ? &f->stale : NULL);
    }
    fill_free(f);
}

void edge_fill_hand_back(struct edge *e, struct edge_fill *f)
{
    bool again = !f->handed_back;
    f->handed_back = true;
    if (again) {
        edge_fill_to(e, f, EDGE_FILL_QUEUED);
        if (rt_chan_try_send(e->work, f) == ERR_OK)
            return;
    }
    bool draining = svc_draining(e->svc);
    edge_fill_end(e, f,
                  &(struct edge_outcome){.err = draining ? ERR_DRAINING : ERR_UNAVAILABLE,
                                         .reason = draining ? EDGE_R_DRAINING : EDGE_R_UPSTREAM,
                                         .detail = "the fill was interrupted",
                                         .retry_s = 1});
}

static void watch_breaker(struct edge *e, struct edge_origin_state *o, int64_t now)
{
    static const char *const names[] = {"closed", "half_open", "open"}; /* as rt_breaker_state() counts */
    enum rt_breaker_state state = rt_breaker_state(&o->breaker, now);
    obs_gauge_set(o->open, state == RT_BREAKER_OPEN);
    if (state == o->told)
        return;
    o->told = state;
    obs_log(svc_log(e->svc), state == RT_BREAKER_OPEN ? OBS_WARN : OBS_INFO, "breaker",
            OBS_STR("origin", (const char *)o->label), OBS_STR("state", names[state]), OBS_END);
}

void edge_fills_tick(struct edge *e)
{
    struct edge_fills *t = e->fills;
    struct edge_waiter *due = NULL;
    int64_t now = edge_now_ns(e);
    size_t at = 0;
    void *value;
    rt_lock_take(&t->lock);
    size_t origins = t->origins_n;
    while (map_next(&t->by_name, &at, NULL, &value)) {
        struct edge_fill *f = value;
        for (struct edge_waiter **p = &f->waiters; *p;) {
            struct edge_waiter *w = *p;
            if (!w->async_at_ns || w->async_at_ns > now) {
                p = &w->next;
                continue;
            }
            *p = w->next;
            f->waiting--;
            f->promised = true;
            w->next = due;
            due = w;
        }
    }
    rt_lock_release(&t->lock);
    while (due) {
        struct edge_waiter *next = due->next;
        reply_202(e, due);
        due = next;
    }
    for (size_t i = 0; i < origins; i++)
        watch_breaker(e, &t->origins[i], now);
}

unsigned edge_fills_retry_s(struct edge *e)
{
    rt_lock_take(&e->fills->lock);
    double per_s = e->fills->per_s;
    rt_lock_release(&e->fills->lock);
    double s = per_s > 0.1 ? (double)rt_chan_depth(e->work) / per_s : 1;
    return s < 1 ? 1 : s > 30 ? 30 : (unsigned)s;
}
