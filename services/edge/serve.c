/*
 * The order is RFC 9110 §13.2.2: If-Match or If-Unmodified-Since, If-None-Match or If-Modified-Since, If-Range with Range.
 * What was decided is the same however the bytes then travel:
 *
 *   map    plaintext, every page warm: head and mapping leave in one writev, the kernel copies from the page cache. Long objects of
 *          the store, which nobody else writes into, go by sendfile
 *   read   a page is not warm: a reader reads it first, then as above; over TLS the kernel cannot copy, and people write into the files
 *          of a directory: the slice is read, and leaves if the file is still what it was. Of a long slice a piece at a time (ahead.h)
 */
#include "services/edge/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/rng.h"
#include "base/time_fmt.h"
#include "net/http_range.h"
#include "net/loop.h"
#include "services/edge/ahead.h"
#include "services/edge/core/accept.h"
#include "services/edge/trace.h"

enum {
    HEAD_MAX = 2048,
    INLINE_WARM_MAX = 64 << 10,
    BOUNDARY = 24,
    ETAG_CHARS = 73,
    MAP_MAX = 16 << 10 /* of the store: a second call is cheaper than copying more than this */
};

static const char *const from_names[] = {"pack", "cas", "fill", "revalidated", "stale"};

static void format_cache_control(int64_t max_age_s, bool immutable, struct buf *out)
{
    if (max_age_s <= 0)
        buf_puts(out, "Cache-Control: no-cache\r\n");
    else {
        buf_puts(out, "Cache-Control: public, max-age=");
        buf_put_u64(out, (uint64_t)max_age_s);
        buf_puts(out, immutable ? ", immutable\r\n" : "\r\n");
    }
}

/* A listener says the same line over and over. */
void edge_cache_control(int64_t max_age_s, bool immutable, struct buf *out)
{
    static _Thread_local struct {
        int64_t max_age_s;
        bool immutable;
        size_t n;
        char text[96];
    } last;
    if (last.n == 0 || last.max_age_s != max_age_s || last.immutable != immutable) {
        struct buf line;
        buf_init_fixed(&line, last.text, sizeof last.text);
        format_cache_control(max_age_s, immutable, &line);
        last.n = line.n;
        last.max_age_s = max_age_s;
        last.immutable = immutable;
    }
    buf_put(out, last.text, last.n);
}

static void put_last_modified(uint64_t since_s, int64_t now_s, struct buf *out)
{
    static _Thread_local struct {
        int64_t second;
        char text[TIME_HTTP_CHARS];
    } last = {.second = INT64_MIN};
    int64_t second = (int64_t)since_s < now_s ? (int64_t)since_s : now_s;
    if (second != last.second) {
        time_format_http(second * 1000, last.text);
        last.second = second;
    }
    buf_puts(out, "Last-Modified: ");
    buf_put(out, last.text, TIME_HTTP_CHARS - 1);
    buf_puts(out, "\r\n");
}

static void put_vary(const struct edge_repr *r, struct buf *out)
{
    if (r->vary)
        buf_puts(out, "Vary: Accept-Encoding\r\n");
}

struct reply {
    struct edge *e;
    struct net_req *rq;
    const struct edge_repr *r;
    char etag[ETAG_CHARS + 1];
    int64_t now_s;
    bool has_conditions;
    struct net_conditions c;
    struct net_validator v;
};

static void put_validators(const struct reply *p, struct buf *out)
{
    buf_put(out, "ETag: ", 6);
    buf_put(out, p->etag, ETAG_CHARS);
    buf_put(out, "\r\n", 2);
    edge_cache_control(p->r->max_age_s, p->r->immutable, out);
    put_vary(p->r, out);
}

/* Everything of a 200 or 206 besides Content-Type and Content-Length. */
static void put_headers(const struct reply *p, struct buf *out)
{
    const struct edge_repr *r = p->r;
    put_validators(p, out);
    buf_puts(out, "Accept-Ranges: bytes\r\nX-Cache: ");
    buf_puts(out, from_names[r->from]);
    buf_puts(out, "\r\n");
    if (r->encoding) {
        buf_puts(out, "Content-Encoding: ");
        buf_puts(out, r->encoding);
        buf_puts(out, "\r\n");
    }
    if (r->since_s)
        put_last_modified(r->since_s, p->now_s, out);
    if (r->age_s >= 0) {
        buf_puts(out, "Age: ");
        buf_put_u64(out, (uint64_t)r->age_s);
        buf_puts(out, "\r\n");
    }
    struct str want = net_req_header_list(p->rq, "want-repr-digest");
    if (want.p && edge_wants_digest(want)) {
        char text[64];
        base64_encode(r->digest.b, sizeof r->digest.b, text);
        buf_printf(out, "Repr-Digest: sha-256=:%s:\r\n", text);
    }
    edge_cors(p->e, p->rq, out);
}

static void release_file(void *file, enum err result)
{
    struct edge_file *f = file;
    if (result == ERR_IO)
        edge_file_set_changed(f); /* became shorter while it was being sent */
    edge_file_unref(f);
}

static void release_long(void *ahead, enum err result)
{
    if (result == ERR_IO)
        edge_file_set_changed(edge_ahead_file(ahead));
    edge_ahead_unref(ahead);
}

bool edge_file_still(struct edge_file *f)
{
    const struct net_loop *loop =
        net_loop_current(); /* NULL: a reader, or it has ended and its last answers leave */
    return loop ? edge_file_unchanged_at(f, net_loop_now_ns(loop), EDGE_LOOK_NS) : edge_file_unchanged(f);
}

/* A file that is written into while it is being sent would end as bytes of two, under the digest of the first. */
static bool still_good(void *file)
{
    return edge_file_still(file);
}

static bool still_the_same(void *file)
{
    return edge_file_unchanged(file);
}

static bool long_still_good(void *ahead)
{
    return still_good(edge_ahead_file(ahead));
}

static bool long_still_the_same(void *ahead)
{
    return still_the_same(edge_ahead_file(ahead));
}

/* ---- bodies ---- */

static bool over_tls(const struct net_req *rq)
{
    return net_req_peer(rq)->kind == NET_PEER_TLS;
}

static void count_body(const struct reply *p, bool partial, uint64_t bytes)
{
    bool map = p->r->file && !over_tls(p->rq) && !p->r->read;
    obs_counter_inc(obs_counter_nth(p->e->m[EDGE_M_hits],
                                    (p->r->from == EDGE_FROM_PACK ? 0u : 2u) + (partial ? 1u : 0u)));
    obs_counter_inc(obs_counter_nth(p->e->m[EDGE_M_sends], map ? 0 : 1));
    obs_counter_add(obs_counter_nth(p->e->m[EDGE_M_bytes_out], edge_endpoint(p->rq)), bytes);
}

/* From the mapping, by sendfile, or read; user space must not touch the mapping, as TLS would. Pages that sendfile took are read by a
 * slow client as they are by then, whoever has written into them: an archive's are copied, however long the slice is. */
static struct net_part part_of(const struct reply *p, const struct net_range *range)
{
    const struct edge_file *f = p->r->file;
    uint64_t at = p->r->offset + range->first, n = range->last - range->first + 1;
    bool map = !p->r->read && !over_tls(p->rq) && (n <= MAP_MAX || p->r->from == EDGE_FROM_PACK);
    return (struct net_part){.p = map || f->memory ? f->bytes + at : NULL,
                             .n = (size_t)n,
                             .off = (off_t)at,
                             .shared = p->r->read,
                             .paced = n > INLINE_WARM_MAX && !f->memory};
}

static void send_file_parts(const struct reply *p, int status, const struct net_headers *h,
                            const struct net_part *parts, size_t count)
{
    struct edge_file *f = p->r->file;
    bool read = p->r->read, paced = false;
    for (size_t i = 0; i < count; i++)
        paced = paced || parts[i].paced;
    struct edge_ahead *ahead = paced ? edge_ahead_create(p->e, p->rq, f) : NULL;
    struct net_source from = {
        .fd = f->fd, .still = read ? still_the_same : still_good, .release = release_file, .arg = f};
    if (ahead)
        from = (struct net_source){.fd = f->fd,
                                   .still = read ? long_still_the_same : long_still_good,
                                   .ready = edge_ahead_ready,
                                   .release = release_long,
                                   .arg = ahead};
    else
        edge_file_ref(f);
    net_reply_parts(p->rq, status, h, &from, parts, count);
}

static void send_one(const struct reply *p, int status, const struct net_headers *h,
                     const struct net_range *range)
{
    const struct edge_repr *r = p->r;
    uint64_t n = range->last - range->first + 1;
    count_body(p, status == 206, n);
    if (!r->file) {
        net_reply(p->rq, status, h, bytes_of(r->memory.p + range->first, (size_t)n));
        return;
    }
    struct net_part part = part_of(p, range);
    send_file_parts(p, status, h, &part, 1);
}

static void make_boundary(char out[BOUNDARY + 1])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint8_t random[BOUNDARY];
    rng_secure(random, sizeof random);
    for (int i = 0; i < BOUNDARY; i++)
        out[i] = letters[random[i] % 62];
    out[BOUNDARY] = 0;
}

/* Heads of all parts in one buffer, data where it is: 2 * count + 1 pieces. What is only in memory is copied between them. */
static void send_parts(const struct reply *p, const struct net_headers *h, struct str boundary,
                       const struct net_range *list, size_t count)
{
    const struct edge_repr *r = p->r;
    struct arena *a = net_req_arena(p->rq);
    struct net_part *pieces = arena_array(a, 2 * count + 1, sizeof *pieces);
    size_t *ends = arena_array(a, count, sizeof *ends);
    uint64_t sum = 0;
    struct buf heads;
    buf_init(&heads, count * 512 + 512 + (r->file ? 0 : (size_t)r->size));
    for (size_t i = 0; ends && i < count; i++) {
        net_multipart_head(&heads, i == 0, boundary, str_from_c(r->type), &list[i], r->size);
        ends[i] = heads.n;
        if (r->file)
            sum += list[i].last - list[i].first + 1;
        else
            buf_put(&heads, r->memory.p + list[i].first, (size_t)(list[i].last - list[i].first + 1));
    }
    net_multipart_tail(&heads, boundary);
    uint8_t *text = r->file && heads.err == ERR_OK ? arena_alloc(a, heads.n) : NULL;
    if (heads.err != ERR_OK || !pieces || !ends || (r->file && !text)) {
        edge_refuse(p->e, p->rq, ERR_UNAVAILABLE, EDGE_R_CAS, "the parts cannot be put together");
    } else if (!r->file) {
        count_body(p, true, heads.n);
        net_reply(p->rq, 206, h, buf_bytes(&heads));
    } else {
        memcpy(text, heads.p, heads.n);
        for (size_t i = 0; i < count; i++) {
            size_t from = i ? ends[i - 1] : 0;
            pieces[2 * i] = (struct net_part){.p = text + from, .n = ends[i] - from};
            pieces[2 * i + 1] = part_of(p, &list[i]);
        }
        pieces[2 * count] = (struct net_part){.p = text + ends[count - 1], .n = heads.n - ends[count - 1]};
        count_body(p, true, sum + heads.n);
        send_file_parts(p, 206, h, pieces, 2 * count + 1);
    }
    buf_fini(&heads);
}

/* ---- waiting for the disk ---- */

static void serve_later(struct edge *e, struct net_req *rq, void *arg, unsigned reader)
{
    (void)reader;
    edge_serve(e, rq, arg, true);
}

static void drop_repr(void *arg)
{
    edge_file_unref(((struct edge_repr *)arg)->file);
}

static void defer(const struct reply *p)
{
    struct edge_repr *copy = arena_alloc(net_req_arena(p->rq), sizeof *copy);
    if (!copy) {
        edge_refuse(p->e, p->rq, ERR_UNAVAILABLE, EDGE_R_CAS, "no memory for this request");
        return;
    }
    *copy = *p->r;
    edge_file_ref(copy->file);
    edge_defer(p->e, p->rq, serve_later, drop_repr, copy);
}

enum heat { HEAT_WARM, HEAT_COLD, HEAT_GONE };

static enum heat heat_of(const struct reply *p, const struct net_range *list, size_t count,
                         bool may_block) RT_UNCHECKED
{
    const struct edge_repr *r = p->r;
    int64_t now_ns = edge_now_ns(p->e);
    for (size_t i = 0; r->file && i < count; i++) {
        uint64_t at = r->offset + list[i].first, n = list[i].last - list[i].first + 1;
        if (n > EDGE_AHEAD_BYTES)
            n = EDGE_AHEAD_BYTES; /* the rest when it comes to it */
        if (edge_file_warm(r->file, at, n, now_ns))
            continue;
        if (may_block) {
            if (edge_file_warm_up(r->file, at, n, now_ns) != ERR_OK)
                return HEAT_GONE;
        } else if (n > INLINE_WARM_MAX || !edge_file_warm_now(r->file, at, n, now_ns))
            return HEAT_COLD;
    }
    return HEAT_WARM;
}

/* ---- the answer ---- */

static void reply_416(const struct reply *p)
{
    char raw[1024], range[NET_CONTENT_RANGE_CHARS];
    struct buf lines;
    buf_init_fixed(&lines, raw, sizeof raw);
    net_content_range_format(NULL, p->r->size, range);
    buf_printf(&lines, "Content-Range: %s\r\nX-Reason: invalid_range\r\n", range);
    edge_cors(p->e, p->rq, &lines);
    obs_counter_inc(obs_counter_nth(p->e->m[EDGE_M_ranges], 2));
    edge_count_reject(p->e, p->rq, ERR_RANGE_NOT_SATISFIABLE, EDGE_R_INVALID_RANGE);
    struct net_headers h = {.raw = buf_str(&lines)};
    net_reply_problem_full(
        p->rq, &(struct net_problem){.err = ERR_RANGE_NOT_SATISFIABLE,
                                     .detail = STR("no byte of the object is in the range"),
                                     .details_json = bytes_of("{\"reason\":\"invalid_range\"}", 26),
                                     .headers = &h});
}

static void not_modified(struct net_req *rq, struct str lines)
{
    net_reply(rq, 304, &(struct net_headers){.type = "", .raw = lines}, bytes_of(NULL, 0));
}

/* Unless a date had a part in it, or somebody follows this request: then each one is judged for itself. */
static void remember_304(const struct reply *p, struct str lines)
{
    const struct net_conditions *c = &p->c;
    struct net_memo *memo =
        p->r->as_of && c->if_none_match.p && !c->if_unmodified_since.p && !net_req_traceparent(p->rq).p
            ? net_req_memo(p->rq)
            : NULL;
    if (!memo || lines.n > sizeof memo->text)
        return;
    memcpy(memo->text, lines.p, lines.n);
    memo->n = lines.n;
    memo->as_of = p->r->as_of;
}

bool edge_serve_again(struct net_req *rq, uint64_t as_of)
{
    const struct net_memo *memo = net_req_memo(rq);
    if (!memo || memo->as_of != as_of)
        return false;
    not_modified(rq, str_of(memo->text, memo->n));
    return true;
}

static void reply_304(const struct reply *p)
{
    char raw[HEAD_MAX];
    struct buf lines;
    buf_init_fixed(&lines, raw, sizeof raw);
    put_validators(p, &lines);
    edge_cors(p->e, p->rq, &lines);
    remember_304(p, buf_str(&lines));
    not_modified(p->rq, buf_str(&lines));
}

/* The status; 0: it waits for the disk, and comes back. */
static int reply_body(const struct reply *p, const struct net_range *list, size_t count, bool may_block)
{
    char raw[HEAD_MAX], boundary[BOUNDARY + 1], type[64], text[NET_CONTENT_RANGE_CHARS];
    struct buf lines;
    struct net_range whole = {0, p->r->size - 1};
    bool nothing = p->r->size == 0 || net_req_is_head(p->rq);
    if (!nothing) {
        enum heat heat = heat_of(p, count ? list : &whole, count ? count : 1, may_block);
        if (heat == HEAT_COLD) {
            defer(p);
            return 0;
        }
        if (heat == HEAT_GONE || (p->r->file && !edge_file_still(p->r->file))) {
            bool pack = p->r->from == EDGE_FROM_PACK;
            edge_refuse(p->e, p->rq, pack ? ERR_PACK_UNAVAILABLE : ERR_UNAVAILABLE,
                        pack ? EDGE_R_PACK : EDGE_R_CAS, "the file changed under its name");
            return 503;
        }
    }
    buf_init_fixed(&lines, raw, sizeof raw);
    put_headers(p, &lines);
    if (count == 1) {
        net_content_range_format(&list[0], p->r->size, text);
        buf_printf(&lines, "Content-Range: %s\r\n", text);
    }
    if (count)
        obs_counter_inc(obs_counter_nth(p->e->m[EDGE_M_ranges], count == 1 ? 0 : 1));
    struct net_headers h = {.type = p->r->type, .raw = buf_str(&lines)};
    if (count > 1) {
        make_boundary(boundary);
        snprintf(type, sizeof type, "multipart/byteranges; boundary=%s", boundary);
        h.type = type;
        send_parts(p, &h, str_of(boundary, BOUNDARY), list, count);
    } else if (p->r->size == 0) {
        count_body(p, false, 0);
        net_reply(p->rq, 200, &h, bytes_of(NULL, 0));
    } else if (net_req_is_head(p->rq)) { /* only the length of the body matters */
        count_body(p, false, 0);
        net_reply_pinned(p->rq, 200, &h, bytes_of("", (size_t)p->r->size), NULL, NULL);
    } else
        send_one(p, count ? 206 : 200, &h, count ? &list[0] : &whole);
    return count ? 206 : 200;
}

static void bad_tag(const struct reply *p)
{
    edge_refuse(p->e, p->rq, ERR_ETAG_INVALID, EDGE_R_ETAG_INVALID,
                "a validator in the request is not well-formed");
}

static int answer(struct reply *p, bool may_block, size_t *out_parts)
{
    const struct edge_config *cfg = edge_config(p->e);
    struct net_range list[NET_RANGE_PARTS_MAX];
    struct net_range_limits limits = {cfg->range_specs, cfg->range_parts};
    size_t count = 0;
    net_req_conditions(p->rq, &p->c);
    switch (net_conditions_check(&p->c, &p->v, p->now_s)) {
    case NET_CONDITION_NOT_MODIFIED:
        reply_304(p);
        return 304;
    case NET_CONDITION_FAILED:
        edge_refuse(p->e, p->rq, ERR_PRECONDITION_FAILED, EDGE_R_NONE,
                    "the object is not the one the request names");
        return 412;
    case NET_CONDITION_BAD:
        bad_tag(p);
        return 400;
    case NET_CONDITION_TRUE:
        break;
    }
    switch (net_range_read(&p->c, &p->v, p->now_s, p->r->size, &limits, list, &count)) {
    case NET_RANGE_WHOLE:
        return reply_body(p, NULL, 0, may_block);
    case NET_RANGE_PARTS:
        *out_parts = count;
        return reply_body(p, list, count, may_block);
    case NET_RANGE_UNSATISFIABLE:
        reply_416(p);
        return 416;
    case NET_RANGE_BAD:
        bad_tag(p);
        return 400;
    }
    UNREACHABLE();
}

static void answer_traced(struct reply *p, bool may_block)
{
    struct edge_trace t;
    const char *from = from_names[p->r->from];
    struct edge *e = p->e;
    size_t parts = 0;
    bool traced = edge_trace_begin(e, p->rq, &t);
    int status = answer(p, may_block, &parts);
    if (traced && status)
        edge_trace_end(e, &t, from, status, parts);
}

void edge_serve(struct edge *e, struct net_req *rq, const struct edge_repr *r, bool may_block)
{
    struct reply p = {.e = e, .rq = rq, .r = r, .now_s = edge_now_ms(e) / 1000};
    struct edge_file *file = r->file;
    memcpy(p.etag, "\"sha256:", 8);
    hex_encode(r->digest.b, 32, p.etag + 8);
    p.etag[ETAG_CHARS - 1] = '"';
    p.v = (struct net_validator){.etag = {.tag = str_of(p.etag, ETAG_CHARS)},
                                 .modified_s = r->since_s ? (int64_t)r->since_s : INT64_MIN};
    size_t parts = 0;
    if (net_req_traceparent(rq).p)
        answer_traced(&p, may_block);
    else
        (void)answer(&p, may_block, &parts);
    edge_file_unref(file);
}

void edge_serve_object(struct edge *e, struct net_req *rq, const struct sha256 *digest,
                       struct edge_file *file, enum edge_from from, bool may_block)
{
    struct edge_repr r = {.digest = *digest,
                          .size = file->size,
                          .type = "application/octet-stream",
                          .immutable = true,
                          .from = from,
                          .max_age_s = 31536000,
                          .age_s = -1,
                          .file = file};
    edge_serve(e, rq, &r, may_block);
}
