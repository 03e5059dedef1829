/* Roots, proofs, checkpoints, tiles: what a stranger needs, open while public.roots is on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"
#include "services/ledger/core/tile_path.h"

enum { BODY_MAX = 64 << 20 };

static struct ledger_http_read *of(struct ledger_read *r)
{
    return (struct ledger_http_read *)r;
}

static void done(struct ledger_http_read *h, enum err err, struct buf *b, const char *missing)
{
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    if (err == ERR_OK && b->err == ERR_OK)
        net_reply_json(h->rq, 200, buf_bytes(b));
    else if (err == ERR_NOT_FOUND || err == ERR_RANGE)
        net_reply_problem(h->rq, ERR_NOT_FOUND, "%s", missing);
    else
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "the tree cannot be read");
    buf_fini(b);
    auth_cap_release(cap);
}

/* ---- roots ---- */

static void json_root(struct json_w *w, const struct ledger_group_row *g)
{
    json_obj_begin(w);
    json_put_u64(w, "seq", g->last_seq);
    json_put_hash(w, "root", &g->root);
    json_put_u64(w, "group_no", g->group_no);
    json_put_u64(w, "ledger_ms", g->ledger_ms);
    json_obj_end(w);
}

static void run_roots(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct ledger_head head;
    struct ledger_group_row g;
    struct buf b;
    struct json_w w;
    ledger_head_read(s->l, &head);
    buf_init(&b, BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "roots");
    json_arr_begin(&w);
    uint64_t index = head.group_no, next = h->a;
    enum err err = h->a >= head.seq ? ERR_OK : ledger_group_of(s->l, h->a + 1, &g, &index);
    /* The group that holds since+1 may end beyond it; one that ends exactly at since was seen. */
    for (uint64_t n = 0; err == ERR_OK && n < h->b && index < head.group_no; n++, index++) {
        err = ledger_group_at(s->l, index, &g);
        if (err == ERR_OK) {
            json_root(&w, &g);
            next = g.last_seq;
        }
    }
    json_arr_end(&w);
    json_put_u64(&w, "next_since", next);
    json_obj_end(&w);
    done(h, err, &b, "");
}

void ledger_get_roots(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (ledger_http_number(rq, "since", 0, 0, UINT64_MAX / 2, &h.a) &&
        ledger_http_number(rq, "limit", 1000, 1, 10000, &h.b) &&
        ledger_http_access(s, rq, ACCESS_OPEN_ROOTS, &h.cap))
        ledger_http_read_send(s, rq, &h, run_roots);
}

/* ---- proofs ---- */

static void put_path(struct json_w *w, const struct sha256 *path, size_t n)
{
    json_key(w, "proof");
    json_arr_begin(w);
    for (size_t i = 0; i < n; i++)
        json_hash(w, &path[i]);
    json_arr_end(w);
}

/* C2SP tlog-proof@v1: extra (the leaf), index, hashes, checkpoint. */
static void reply_tlog(struct ledger_service *s, struct ledger_http_read *h, const struct sha256 *path,
                       size_t n) RT_BLOCKS
{
    struct arena a;
    struct buf b;
    char text[64];
    arena_init(&a, 64 << 10, 16 << 20);
    buf_init(&b, 1 << 20);
    struct str note = ledger_note_text(s, h->b, &a);
    struct ledger_unit_facts f;
    uint32_t i;
    bool with_leaf = h->cap != NULL && ledger_find_seq(s->l, h->a, &a, &f, &i) == ERR_OK;
    if (note.n == 0) {
        net_reply_problem(h->rq, ERR_NOT_FOUND,
                          "no checkpoint was signed for that size; use one that ends a group");
    } else {
        buf_puts(&b, "c2sp.org/tlog-proof@v1\n");
        if (with_leaf) {
            char *leaf = arena_alloc(&a, base64_encoded_chars(f.leaves[i].n) + 1);
            if (leaf != NULL) {
                base64_encode(f.leaves[i].p, f.leaves[i].n, leaf);
                buf_printf(&b, "extra %s\n", leaf);
            }
        }
        buf_printf(&b, "index %llu\n", (unsigned long long)(h->a - 1));
        for (size_t k = 0; k < n; k++) {
            base64_encode(path[k].b, 32, text);
            buf_printf(&b, "%s\n", text);
        }
        buf_putc(&b, '\n');
        buf_put_str(&b, note);
        struct net_headers hdr = {.type = "text/plain; charset=utf-8"};
        net_reply(h->rq, 200, &hdr, buf_bytes(&b));
    }
    arena_fini(&a);
    buf_fini(&b);
}

static void run_inclusion(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    struct ledger *l = s->l;
    struct ledger_proven p;
    struct buf b;
    struct json_w w;
    if (h->b == 0)
        h->b = ledger_head_seq(l);
    enum err err = ledger_prove_inclusion(l, h->a, h->b, &p);
    obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_proofs], "inclusion"));
    if (err == ERR_OK && h->c == 1) {
        reply_tlog(s, h, p.path, p.n);
        auth_cap_release(cap);
        return;
    }
    buf_init(&b, BODY_MAX);
    if (err == ERR_OK) {
        struct arena a;
        arena_init(&a, 4096, 65536);
        json_w_init(&w, &b);
        json_obj_begin(&w);
        json_put_u64(&w, "seq", h->a);
        json_put_u64(&w, "leaf_index", h->a - 1);
        json_put_hash(&w, "leaf_hash", &p.leaf);
        json_put_u64(&w, "tree_size", h->b);
        json_put_hash(&w, "root", &p.root);
        put_path(&w, p.path, p.n);
        struct str note = ledger_note_text(s, h->b, &a);
        if (note.n != 0)
            json_put_str(&w, "checkpoint", note);
        json_obj_end(&w);
        arena_fini(&a);
    }
    done(h, err, &b, "no such entry in a tree of that size");
}

void ledger_get_inclusion(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    struct str format;
    if (net_req_query(rq, "format", &format) == ERR_OK) {
        if (str_eq(format, STR("tlog")))
            h.c = 1;
        else if (!str_eq(format, STR("json"))) {
            net_reply_problem(rq, ERR_BAD_REQUEST, "format is json or tlog");
            return;
        }
    }
    if (!ledger_http_number(rq, "seq", 0, 1, UINT64_MAX / 2, &h.a) ||
        !ledger_http_number(rq, "size", 0, 1, UINT64_MAX / 2, &h.b))
        return;
    if (h.a == 0) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "seq is missing");
        return;
    }
    if (h.c == 1 &&
        net_req_header(rq, "authorization").p != NULL) { /* with a capability the leaf goes along */
        if (!ledger_http_access(s, rq, ACCESS_READ_ALL, &h.cap))
            return;
    } else if (!ledger_http_access(s, rq, ACCESS_OPEN_ROOTS, &h.cap)) {
        return;
    }
    ledger_http_read_send(s, rq, &h, run_inclusion);
}

static void run_consistency(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct ledger_proven p;
    struct buf b;
    struct json_w w;
    if (h->b == 0)
        h->b = ledger_head_seq(s->l);
    enum err err = ledger_prove_consistency(s->l, h->a, h->b, &p);
    obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_proofs], "consistency"));
    buf_init(&b, BODY_MAX);
    if (err == ERR_OK) {
        json_w_init(&w, &b);
        json_obj_begin(&w);
        json_put_u64(&w, "from", h->a);
        json_put_u64(&w, "to", h->b);
        json_put_hash(&w, "from_root", &p.from_root);
        json_put_hash(&w, "to_root", &p.root);
        put_path(&w, p.path, p.n);
        json_obj_end(&w);
    }
    done(h, err, &b, "beyond the head");
}

void ledger_get_consistency(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (!ledger_http_number(rq, "from", 0, 1, UINT64_MAX / 2, &h.a) ||
        !ledger_http_number(rq, "to", 0, 1, UINT64_MAX / 2, &h.b))
        return;
    if (h.a == 0 || (h.b != 0 && h.a > h.b)) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "1 <= from <= to");
        return;
    }
    if (ledger_http_access(s, rq, ACCESS_OPEN_ROOTS, &h.cap))
        ledger_http_read_send(s, rq, &h, run_consistency);
}

/* ---- checkpoint, key ---- */

static void run_checkpoint(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    struct ledger_head head;
    char text[NOTE_MAX];
    size_t n;
    ledger_head_read(s->l, &head);
    enum err err = ledger_note_cached(s, head.seq, text, &n);
    obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_proofs], "checkpoint"));
    struct net_header no_cache = {STR_INIT("Cache-Control"), STR_INIT("no-cache")};
    struct net_headers hdr = {.type = "text/plain; charset=utf-8", .list = &no_cache, .count = 1};
    if (err == ERR_OK)
        net_reply(h->rq, 200, &hdr, bytes_of(text, n));
    else
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "the head moved; ask again");
    auth_cap_release(cap);
}

void ledger_get_checkpoint(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (ledger_http_access(s, rq, ACCESS_OPEN_ROOTS, &h.cap))
        ledger_http_read_send(s, rq, &h, run_checkpoint);
}

void ledger_get_key(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct auth_cap *cap;
    if (!ledger_http_access(s, rq, ACCESS_OPEN_ROOTS, &cap))
        return;
    auth_cap_release(cap);
    char vkey[NOTE_VKEY_MAX];
    struct buf b;
    struct json_w w;
    buf_init(&b, 4096);
    json_w_init(&w, &b);
    ledger_signer_vkey(s->l->signer, vkey);
    json_obj_begin(&w);
    json_put_str(&w, "origin", ledger_signer_origin(s->l->signer));
    json_put_cstr(&w, "vkey", vkey);
    json_key(&w, "ledger_id");
    json_hex(&w, s->l->ledger_id, 16);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

/* ---- tiles ---- */

static void reply_tile(struct ledger_http_read *h, struct bytes body)
{
    struct net_header forever = {STR_INIT("Cache-Control"), STR_INIT("max-age=31536000, immutable")};
    struct net_headers hdr = {.type = "application/octet-stream", .list = &forever, .count = 1};
    net_reply(h->rq, 200, &hdr, body);
}

static enum err bundle(struct ledger_service *s, uint64_t first, uint64_t n, struct buf *b) RT_BLOCKS
{
    struct arena a;
    enum err err = ERR_OK;
    uint64_t seq = first, end = first + n;
    arena_init(&a, 256 << 10, 64 << 20);
    while (err == ERR_OK && seq < end) {
        struct ledger_unit_facts f;
        uint32_t i;
        arena_reset(&a);
        err = ledger_find_seq(s->l, seq, &a, &f, &i);
        for (; err == ERR_OK && i < f.n && seq < end; i++, seq++) {
            uint8_t len[2];
            be16_put(len, (uint16_t)f.leaves[i].n);
            buf_put(b, len, 2);
            buf_put_str(b, f.leaves[i]);
        }
    }
    arena_fini(&a);
    return err == ERR_OK ? b->err : err;
}

static void run_tile(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    struct ledger_tile t = {
        .entries = (h->c & 0x100) != 0, .level = (unsigned)h->c & 0xff, .n = h->a, .width = (unsigned)h->b};
    struct buf b;
    buf_init(&b, BODY_MAX);
    uint64_t have = ledger_head_seq(s->l) >> (t.entries ? 0 : 8 * t.level), first = t.n * TILE_WIDTH;
    enum err err = first + t.width > have ? ERR_NOT_FOUND : ERR_OK;
    if (err == ERR_OK && t.entries) {
        err = bundle(s, first + 1, t.width, &b);
    } else if (err == ERR_OK) {
        uint8_t *p = buf_reserve(&b, t.width * 32);
        err = p == NULL ? ERR_NO_MEMORY
                        : ledger_tile_nodes(s->l, 8 * t.level, first, t.width, (struct sha256 *)p);
        if (err == ERR_OK)
            buf_commit(&b, t.width * 32);
    }
    obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_proofs], "tile"));
    if (err == ERR_OK)
        reply_tile(h, buf_bytes(&b));
    else if (err == ERR_NOT_FOUND || err == ERR_RANGE)
        net_reply_problem(h->rq, ERR_NOT_FOUND, "beyond the head");
    else
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "the tree cannot be read");
    buf_fini(&b);
    auth_cap_release(cap);
}

void ledger_get_tile(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_tile t;
    struct ledger_http_read h = {0};
    if (ledger_tile_parse(net_req_param(rq, "path"), &t) != ERR_OK) {
        net_reply_problem(rq, ERR_NOT_FOUND, "not a tile");
        return;
    }
    h.a = t.n;
    h.b = t.width;
    h.c = t.level | (t.entries ? 0x100u : 0);
    if (t.entries && s->l->set.public_entries) {
        ledger_http_read_send(s, rq, &h, run_tile);
        return;
    }
    if (ledger_http_access(s, rq, t.entries ? ACCESS_READ_ALL : ACCESS_OPEN_ROOTS, &h.cap))
        ledger_http_read_send(s, rq, &h, run_tile);
}
