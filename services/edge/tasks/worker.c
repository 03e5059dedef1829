/*
 * worker: one fill at a time. Ask peers for what is known by its digest, else the origin: fetch into a temporary file, hashing on the way; try again after a timeout, 503 or 504 with
 * the back-off of core/retry.h; follow redirects only below configured origins; check everything; hand the file to
 * cas_writer; answer whoever waits. A worker that fails hands its job back, so nothing is lost and nothing answered twice.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "net/http_range.h"
#include "services/edge/fetch.h"
#include "services/edge/fills.h"
#include "services/edge/peers.h"
#include "store/file_replace.h"

enum { COMMIT_MS = 1000, HEADERS_MAX = 8 };

struct job {
    struct edge *e;
    struct rt_task *self;
    struct edge_client *client;
    struct edge_fill *f;
    struct edge_answer a;
    char tmp[STORE_PATH_MAX]; /* "": none */
    struct buf url;
    struct obs_span span; /* of the try under way */
};

static const struct edge_outcome
    interrupted = {.err = ERR_CANCELED, .reason = EDGE_R_NONE, .detail = ""},
    no_memory = {.err = ERR_UNAVAILABLE,
                 .reason = EDGE_R_AMNESIA,
                 .detail = "the object is too large to be kept in memory, or too much is being fetched"},
    wrong_length = {.err = ERR_UPSTREAM_INVALID,
                    .reason = EDGE_R_UPSTREAM,
                    .detail = "the origin's length is not declared, or not the one that it declared"};

static struct edge_outcome outcome(enum err err, enum edge_reason reason, const char *detail)
{
    return (struct edge_outcome){.err = err, .reason = reason, .detail = detail};
}

static struct edge_outcome origin_down(enum err err, enum edge_reason reason, const char *detail)
{
    return (struct edge_outcome){.err = err, .reason = reason, .detail = detail, .down = true};
}

RT_BLOCKS
static void drop_tmp(struct job *j)
{
    if (j->tmp[0] && store_disk_unlink(j->e->store->disk, j->tmp) != ERR_OK)
        obs_log(svc_log(j->e->svc), OBS_WARN, "temp_left", OBS_END);
    j->tmp[0] = 0;
}

/* ---- one GET ---- */

/* Only what has no digest of its own to be judged by: a manifest may list another object by now. */
static bool revalidates(const struct edge_fill *f)
{
    return f->has_stale && f->stale.etag[0] && !f->has_digest && !f->retagged;
}

/* A 304 that names a version is about that one (RFC 9111 §4.3.4). */
static bool of_another_version(const struct job *j)
{
    struct net_etag theirs, ours;
    return j->a.status == 304 && revalidates(j->f) && j->a.etag_seen &&
           net_etag_parse(str_from_c(j->a.etag), &theirs) == ERR_OK &&
           net_etag_parse(str_from_c(j->f->stale.etag), &ours) == ERR_OK &&
           !net_etag_weak_eq(&theirs, &ours);
}

static void make_headers(const struct job *j, const char *lines[HEADERS_MAX], char room[3][400])
{
    const struct edge_fill *f = j->f;
    size_t n = 0;
    lines[n++] = "Accept-Encoding: identity";
    lines[n++] = "Accept: */*";
    snprintf(room[0], sizeof room[0], "X-Corr-ID: %s", f->corr_id);
    lines[n++] = room[0];
    size_t name = (size_t)snprintf(room[1], sizeof room[1], "traceparent: ");
    obs_traceparent_format(&j->span.self, room[1] + name); /* we are the origin's caller */
    lines[n++] = room[1];
    if (revalidates(f)) {
        snprintf(room[2], sizeof room[2], "If-None-Match: %s", f->stale.etag);
        lines[n++] = room[2];
    }
    /* What the route's own origin may know is not told to another that it redirects to. */
    if (f->route->authorization && edge_url_below(buf_str(&j->url), &f->route->origin))
        lines[n++] = f->route->authorization;
    lines[n] = NULL;
}

RT_BLOCKS
static enum err open_tmp(struct job *j, struct store_file **out)
{
    struct edge_store *s = j->e->store;
    drop_tmp(j);
    snprintf(j->tmp, sizeof j->tmp, "%.440s/cas/tmp/%s-%llu", s->dir, rt_task_name(j->self),
             (unsigned long long)atomic_fetch_add(&s->tmp_serial, 1));
    enum err err = store_file_open(s->disk, j->tmp, STORE_WRITE | STORE_CREATE | STORE_TRUNC, out);
    if (err != ERR_OK)
        j->tmp[0] = 0;
    if (err == ERR_NO_SPACE)
        edge_store_want_room(s);
    return err;
}

RT_BLOCKS
static bool flush(struct job *j, struct store_file *f)
{
    enum err err = store_file_sync(f);
    if (err == ERR_NO_SPACE)
        edge_store_want_room(j->e->store);
    return err == ERR_OK;
}

RT_BLOCKS
static enum edge_got get_once(struct job *j)
{
    struct edge_origin_state *o = edge_fill_origin(j->e, j->f);
    const char *lines[HEADERS_MAX];
    char room[3][400];
    struct store_file *to;
    if (open_tmp(j, &to) != ERR_OK)
        return EDGE_GOT_DISK;
    make_headers(j, lines, room);
    atomic_store(&j->f->bytes, 0);
    obs_counter_inc(o->attempts);
    enum edge_got got = edge_fetch(j->client,
                                   &(struct edge_get){.url = buf_cstr(&j->url),
                                                      .headers = lines,
                                                      .timeout_ms = j->f->route->timeout_ms,
                                                      .max_bytes = j->f->route->max_bytes,
                                                      .to = to,
                                                      .progress = &j->f->bytes},
                                   j->self, &j->a);
    obs_counter_add(o->bytes, j->a.bytes);
    if (got == EDGE_GOT_ANSWER && j->a.status == 200 && !flush(j, to))
        got = EDGE_GOT_DISK;
    store_file_close(to);
    if (got == EDGE_GOT_TIMEOUT)
        obs_counter_inc(obs_counter_nth(j->e->m[EDGE_M_io_timeouts], j->a.connect_timeout ? 2 : 3));
    return got;
}

static bool is_redirect(const struct edge_answer *a)
{
    return a->location[0] && (a->status == 301 || a->status == 302 || a->status == 303 ||
                              a->status == 307 || a->status == 308);
}

/* Where a redirect leads, if it stays below some route's origin. */
static enum err follow(struct job *j)
{
    const struct edge_settings *s = edge_settings(j->e);
    struct buf next;
    buf_init(&next, EDGE_URL_MAX);
    enum err err = edge_url_resolve(buf_str(&j->url), str_from_c(j->a.location), &next);
    bool below = false;
    for (size_t i = 0; err == ERR_OK && i < s->routes_n && !below; i++)
        below = edge_url_below(buf_str(&next), &s->routes[i].origin);
    if (err == ERR_OK && below) {
        buf_reset(&j->url);
        buf_put_str(&j->url, buf_str(&next));
    }
    buf_fini(&next);
    return err == ERR_OK && below ? ERR_OK : ERR_NOT_ALLOWED;
}

static void first_url(struct job *j)
{
    const struct edge_fill *f = j->f;
    buf_reset(&j->url);
    edge_url_write(f->route->url, str_of(f->path.p + f->route->prefix.n, f->path.n - f->route->prefix.n),
                   f->query, &j->url);
}

/* One try, redirects included. */
RT_BLOCKS
static enum edge_got try_once(struct job *j, bool *out_off_list)
{
    uint64_t hops = 0;
    *out_off_list = false;
    first_url(j);
    for (;;) {
        enum edge_got got = get_once(j);
        if (got == EDGE_GOT_ANSWER && of_another_version(j)) {
            j->f->retagged = true; /* and is asked for, whatever it is */
            continue;
        }
        if (got != EDGE_GOT_ANSWER || !is_redirect(&j->a))
            return got;
        if (hops++ == edge_config(j->e)->fill_redirects || follow(j) != ERR_OK) {
            *out_off_list = true;
            return got;
        }
    }
}

/* ---- judging ---- */

static struct edge_outcome judge_body(struct job *j)
{
    const struct edge_route *r = j->f->route;
    const struct edge_answer *a = &j->a;
    struct net_etag tag;
    struct sha256 claimed;
    /* Without a length the end of the connection would be the end of the object, and anybody on the way could cause that. */
    bool whole = a->declared >= 0 ? (uint64_t)a->declared == a->bytes : a->chunked || r->manifest;
    if (!whole || a->unclear)
        return wrong_length;
    if (a->coded)
        return outcome(ERR_UPSTREAM_INVALID, EDGE_R_UPSTREAM,
                       "the origin sent a content coding that was not asked for");
    if (a->no_store)
        return outcome(ERR_UPSTREAM_INVALID, EDGE_R_UPSTREAM,
                       "the origin does not allow the object to be stored");
    if (r->manifest)
        return j->f->has_digest && sha256_eq(&j->f->digest, &a->digest)
                   ? outcome(ERR_OK, EDGE_R_NONE, "")
                   : outcome(ERR_UPSTREAM_INVALID, EDGE_R_DIGEST_MISMATCH,
                             "the object is not the one the manifest lists");
    bool good = a->etag_seen && net_etag_parse(str_from_c(a->etag), &tag) == ERR_OK && !tag.weak;
    if (!good && !r->any_etag)
        return outcome(ERR_UPSTREAM_INVALID, EDGE_R_ETAG_INVALID, "the origin gave no strong ETag");
    if (good && str_starts(tag.tag, STR("\"sha256:")) && tag.tag.n == 73 &&
        sha256_parse(str_of(tag.tag.p + 1, 71), &claimed) == ERR_OK && !sha256_eq(&claimed, &a->digest))
        return outcome(ERR_UPSTREAM_INVALID, EDGE_R_DIGEST_MISMATCH,
                       "the object is not the one its ETag names");
    return outcome(ERR_OK, EDGE_R_NONE, "");
}

static struct edge_outcome judge(struct job *j, enum edge_got got, bool off_list)
{
    switch (got) {
    case EDGE_GOT_TIMEOUT:
        return origin_down(ERR_UPSTREAM_UNAVAILABLE, EDGE_R_TIMEOUT, "the origin did not answer in time");
    case EDGE_GOT_FAILED:
        return origin_down(ERR_UPSTREAM, EDGE_R_UPSTREAM, "the origin cannot be reached or is not trusted");
    case EDGE_GOT_SHORT:
        return wrong_length;
    case EDGE_GOT_FORBIDDEN:
        return outcome(ERR_NOT_ALLOWED, EDGE_R_NOT_ALLOWED, "the origin's address is not allowed");
    case EDGE_GOT_TOO_LARGE:
        return outcome(ERR_UPSTREAM_INVALID, EDGE_R_FILL_CAP, "the object is larger than the route allows");
    case EDGE_GOT_DISK:
        return outcome(ERR_UNAVAILABLE, EDGE_R_CAS, "the store cannot be written");
    case EDGE_GOT_MEMORY:
        return no_memory;
    case EDGE_GOT_CANCELED:
        return interrupted;
    case EDGE_GOT_ANSWER:
        break;
    }
    if (off_list)
        return outcome(ERR_NOT_ALLOWED, EDGE_R_NOT_ALLOWED,
                       "the origin redirects to where fills may not go");
    if (j->a.status == 200)
        return judge_body(j);
    if (j->a.status == 304 && revalidates(j->f))
        return outcome(ERR_OK, EDGE_R_NONE, "");
    if (j->a.status == 404 || j->a.status == 410)
        return outcome(ERR_NOT_FOUND, EDGE_R_NONE, "the origin has no such object");
    if (edge_retry_status(j->a.status))
        return origin_down(ERR_UPSTREAM_UNAVAILABLE, EDGE_R_UPSTREAM, "the origin is unavailable");
    return outcome(ERR_UPSTREAM, EDGE_R_UPSTREAM, "the origin answered with an error");
}

static bool transient(const struct edge_outcome *o)
{
    return o->err == ERR_UPSTREAM_UNAVAILABLE;
}

/* Its tries and sleeps would be over by now, had it not waited in the queue. */
static bool past_its_end(const struct job *j, const struct edge_retry *retry)
{
    uint64_t ms = edge_retry_job_ms(retry, (uint64_t)j->f->route->timeout_ms);
    return ms < INT64_MAX / 1000000 && edge_now_ns(j->e) > j->f->queued_ns + (int64_t)ms * 1000000;
}

RT_BLOCKS
static struct edge_outcome fetch_with_retries(struct job *j)
{
    const struct edge_config *cfg = edge_config(j->e);
    struct edge_retry retry = {cfg->retry_base, cfg->retry_max, (unsigned)cfg->retry_count,
                               cfg->retry_jitter};
    for (unsigned n = 0;; n++) {
        bool off_list;
        if (n)
            edge_fill_to(j->e, j->f, EDGE_FILL_FETCHING);
        j->f->tries++;
        obs_span_begin(svc_tracer(j->e->svc), &j->f->span.self, "svc.edge.try", &j->span);
        enum edge_got got = try_once(j, &off_list);
        struct edge_outcome o = judge(j, got, off_list);
        obs_span_u64(&j->span, "status", got == EDGE_GOT_ANSWER ? (uint64_t)j->a.status : 0);
        obs_span_u64(&j->span, "try", n + 1);
        obs_span_end(svc_tracer(j->e->svc), &j->span, o.err);
        if (!transient(&o) || n >= retry.max_retries || svc_draining(j->e->svc) ||
            past_its_end(j, &retry) || !edge_fill_wanted(j->e, j->f))
            return o;
        edge_fill_to(j->e, j->f, EDGE_FILL_BACKOFF);
        obs_counter_inc(obs_counter_nth(j->e->m[EDGE_M_backoff], 0));
        int64_t ms = (int64_t)edge_retry_sleep_ms(&retry, n, rng_secure_u64());
        if (rt_task_sleep(j->self, deadline_in_ms(ms)) != ERR_OK)
            return rt_task_canceled(j->self) ? interrupted : o;
    }
}

/* ---- committing ---- */

static struct edge_commit *commit_make(struct job *j, enum edge_record_type type)
{
    struct edge_commit *c = calloc(1, sizeof *c);
    struct edge_fill *f = j->f;
    int64_t now = edge_now_ms(j->e);
    if (!c)
        return NULL;
    atomic_init(&c->refs, 2);
    rt_oneshot_init(&c->done);
    c->nameless = f->nameless;
    snprintf(c->name, sizeof c->name, "%s", f->name);
    c->record = (struct edge_record){.type = type,
                                     .name = str_from_c(c->name),
                                     .fetched_ms = (uint64_t)now,
                                     .valid_until_ms =
                                         f->route->max_age_ms ? (uint64_t)(now + f->route->max_age_ms) : 0};
    if (type == EDGE_PUT_REF) {
        bool given = edge_mime_ok(str_from_c(j->a.type));
        snprintf(c->mime, sizeof c->mime, "%s", given ? j->a.type : edge_mime_of(f->path));
        struct net_etag tag; /* what is none is not sent back */
        bool tagged = j->a.etag_seen && net_etag_parse(str_from_c(j->a.etag), &tag) == ERR_OK;
        snprintf(c->etag, sizeof c->etag, "%s", tagged ? j->a.etag : "");
        c->record.mime = str_from_c(c->mime);
        c->record.etag = str_from_c(c->etag);
        c->record.digest = j->a.digest;
        c->record.size = j->a.bytes;
        snprintf(c->tmp, sizeof c->tmp, "%s", j->tmp);
        j->tmp[0] = 0; /* the writer's now */
    }
    return c;
}

RT_BLOCKS
static struct edge_outcome commit_record(struct job *j, enum edge_record_type type)
{
    struct edge_commit *c = commit_make(j, type);
    void *value;
    struct edge_outcome failed = outcome(ERR_UNAVAILABLE, EDGE_R_CAS, "the store cannot be written");
    if (!c)
        return failed;
    enum err err = rt_chan_send(j->e->commit, c, deadline_in_ms(COMMIT_MS));
    if (err != ERR_OK) {
        edge_count_dropped(j->e, "commit");
        if (c->tmp[0] && store_disk_unlink(j->e->store->disk, c->tmp) != ERR_OK)
            obs_log(svc_log(j->e->svc), OBS_WARN, "temp_left", OBS_END);
        edge_commit_unref(c);
        edge_commit_unref(c);
        return failed;
    }
    do {
        err = rt_oneshot_recv(&c->done, deadline_in_ms(COMMIT_MS), &value);
        rt_task_beat(j->self);
    } while (err == ERR_TIMEOUT);
    if (err != ERR_OK && rt_oneshot_abandon(&c->done, &value))
        err = ERR_OK;
    struct edge_outcome o = err != ERR_OK         ? interrupted
                            : c->result == ERR_OK ? outcome(ERR_OK, EDGE_R_NONE, "")
                                                  : failed;
    edge_commit_unref(c);
    return o;
}

RT_BLOCKS
static struct edge_outcome commit(struct job *j, enum edge_record_type type)
{
    struct obs_span s;
    obs_span_begin(svc_tracer(j->e->svc), &j->f->span.self, "svc.edge.commit", &s);
    struct edge_outcome o = commit_record(j, type);
    obs_span_u64(&s, "bytes", j->a.bytes);
    obs_span_end(svc_tracer(j->e->svc), &s, o.err);
    return o;
}

/* ---- from peers ---- */

/* The object into a temporary file, if a peer has it. ERR_NOT_FOUND: the origin must be asked. */
RT_BLOCKS
static enum err fetch_from_peers(struct job *j)
{
    struct store_file *to;
    if (!j->f->has_digest || edge_settings(j->e)->peers_n == 0)
        return ERR_NOT_FOUND;
    enum err err = open_tmp(j, &to);
    if (err != ERR_OK)
        return ERR_IO;
    err = edge_peers_fetch(j->e, j->client, j->self, j->f, to, &j->a);
    if (err == ERR_OK && !flush(j, to))
        err = ERR_IO;
    store_file_close(to);
    if (err == ERR_OK) { /* how the origin would name it is not known */
        j->a.etag_seen = false;
        j->a.type[0] = 0;
        j->a.status = 200;
    } else
        drop_tmp(j);
    return err;
}

/* Peers first, where the digest is known; then the origin, where there is one. */
RT_BLOCKS
static struct edge_outcome fetch(struct job *j)
{
    edge_fill_to(j->e, j->f, EDGE_FILL_FETCHING);
    enum err err = fetch_from_peers(j);
    if (err == ERR_OK)
        return outcome(ERR_OK, EDGE_R_NONE, "");
    if (err == ERR_CANCELED)
        return interrupted;
    if (err == ERR_IO)
        return outcome(ERR_UNAVAILABLE, EDGE_R_CAS, "the store cannot be written");
    if (err == ERR_NO_MEMORY)
        return no_memory;
    return j->f->nameless ? outcome(ERR_NOT_FOUND, EDGE_R_NONE, "neither this node nor its peers have it")
                          : fetch_with_retries(j);
}

RT_BLOCKS
static struct edge_outcome fill(struct job *j)
{
    uint64_t size;
    j->f->written = false;
    if (j->f->has_digest && edge_store_has(j->e->store, &j->f->digest, &size)) {
        j->a = (struct edge_answer){.bytes = size, .digest = j->f->digest};
        edge_fill_to(j->e, j->f, EDGE_FILL_COMMITTING);
        return commit(j, EDGE_PUT_REF); /* known under another name: no GET */
    }
    struct edge_outcome o = fetch(j);
    if (o.err != ERR_OK && !(o.err == ERR_NOT_FOUND && j->f->has_stale))
        return o;
    edge_fill_to(j->e, j->f, EDGE_FILL_COMMITTING);
    if (o.err == ERR_NOT_FOUND) {
        struct edge_outcome dropped = commit(j, EDGE_DEL_REF);
        return dropped.err == ERR_OK ? o : dropped;
    }
    j->f->written = j->a.status != 304;
    return commit(j, j->f->written ? EDGE_PUT_REF : EDGE_RENEW);
}

RT_BLOCKS
static void work(struct job *j)
{
    if (edge_fill_give_up(j->e, j->f)) {
        edge_fill_end(j->e, j->f, &interrupted);
        return;
    }
    struct edge_outcome o = fill(j);
    o.unasked = j->f->tries == 0; /* stored under another name, or a peer had it */
    if (o.err == ERR_UNAVAILABLE && o.reason == EDGE_R_CAS) {
        obs_counter_inc(obs_counter_nth(j->e->m[EDGE_M_cas_writes], 2));
        edge_store_doubt(j->e->store);
    }
    drop_tmp(j);
    edge_client_let_go(j->client);
    if (o.err == ERR_CANCELED)
        edge_fill_hand_back(j->e, j->f);
    else
        edge_fill_end(j->e, j->f, &o);
}

/* Aborted while draining: nobody will take what is still queued, so whoever waits for it is told. */
RT_BLOCKS
static void refuse_queued(struct edge *e)
{
    void *item;
    struct edge_outcome o = outcome(ERR_DRAINING, EDGE_R_DRAINING, "the service is shutting down");
    while (rt_chan_try_recv(e->work, &item) == ERR_OK)
        edge_fill_end(e, item, &o);
}

enum err edge_worker_run(struct rt_task *self, void *arg)
{
    struct edge *e = arg;
    struct job j = {.e = e, .self = self, .client = edge_client_create(e)};
    enum err err = j.client ? ERR_OK : ERR_NO_MEMORY;
    buf_init(&j.url, EDGE_URL_MAX);
    atomic_fetch_add(&e->workers_run, 1);
    while (err == ERR_OK) {
        void *item;
        err = rt_chan_recv(e->work, deadline_in_ms(1000), &item);
        if (err == ERR_OK) {
            j.f = item;
            work(&j);
        } else if (err == ERR_TIMEOUT)
            err = ERR_OK;
        rt_task_beat(self);
        if (rt_task_canceled(self) && err == ERR_OK)
            err = ERR_CANCELED;
    }
    if (svc_draining(e->svc))
        refuse_queued(e);
    atomic_fetch_sub(&e->workers_run, 1);
    buf_fini(&j.url);
    edge_client_destroy(j.client);
    return err == ERR_CLOSED ? ERR_OK : err;
}
