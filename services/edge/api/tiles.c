/*
 * GET /edge/tiles/{pack}/{z}/{x}/{y}[.ext]
 *
 * The tile's place comes from the directory in memory, its digest from this loop's cache, the tag file, or (once) from its
 * bytes. What would have to wait for a disk goes to a reader and comes back through the same functions.
 */
#include <stdlib.h>

#include "services/edge/api/api.h"
#include "services/edge/core/accept.h"
#include "services/edge/mbdb.h"
#include "services/edge/pack.h"
#include "services/edge/serve.h"

enum { HASH_INLINE_MAX = 64 << 10, INFLATE_INLINE_MAX = 16 << 10 };

/* One tile request; copied into the request's arena when it is deferred. */
struct tile_call {
    struct edge_generation *g; /* pinned */
    struct edge_pack *p;
    struct edge_tile tile;
    uint64_t at; /* in the file */
    uint32_t length;
    uint64_t key;
    enum edge_coding coding; /* of this tile as it is stored */
    bool inflate;
    bool unreadable; /* as it is stored, for this client; and we cannot decode it either */
    bool takes_gzip; /* MBTiles, where each tile has a coding of its own */
    unsigned loop;   /* where the request came in */
    uint64_t as_of;
};

static int64_t max_age_s(struct edge *e)
{
    return edge_config(e)->cache_tiles / 1000;
}

/* Something was read of the pack's file. False: of another one than was mounted, and that was answered. */
static bool as_mounted(struct edge *e, struct net_req *rq, const struct edge_pack *p)
{
    bool still = edge_file_still(p->file);
    if (!still)
        edge_refuse(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK, "the pack's file changed in place");
    return still;
}

static void no_tile(struct edge *e, struct net_req *rq, const struct edge_pack *p)
{
    char raw[1024];
    struct buf lines;
    if (!as_mounted(e, rq, p))
        return;
    if (edge_config(e)->tiles_missing == 1) {
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "the pack has no such tile");
        return;
    }
    buf_init_fixed(&lines, raw, sizeof raw);
    edge_cache_control(max_age_s(e), false, &lines);
    edge_cors(e, rq, &lines);
    net_reply(rq, 204, &(struct net_headers){.type = "", .raw = buf_str(&lines)}, bytes_of(NULL, 0));
}

/* A tile of such a pack may be coded, also when this one is not. */
static bool varies(const struct edge_pack *p)
{
    const struct edge_pmtiles_header *h = &p->header;
    return *edge_coding_name(h->tiles) ||
           (p->kind == EDGE_PACK_MBTILES && (h->type == EDGE_TYPE_MVT || h->type == EDGE_TYPE_MLT));
}

static struct edge_repr repr_of(struct edge *e, const struct tile_call *c)
{
    const struct edge_pmtiles_header *h = &c->p->header;
    const char *coding = edge_coding_name(c->coding);
    return (struct edge_repr){.type = h->mime[0] ? h->mime : edge_tile_mime(h->type),
                              .encoding = *coding && !c->inflate ? coding : NULL,
                              .vary = *coding || varies(c->p),
                              .from = EDGE_FROM_PACK,
                              .since_s = c->p->since_s,
                              .max_age_s = max_age_s(e),
                              .age_s = -1,
                              .size = c->length,
                              .as_of = c->as_of};
}

/* The verifier keeps what somebody had to compute. */
static void tell_verifier(struct edge *e, struct edge_pack *p, const struct edge_tag *tag)
{
    void *dropped = NULL;
    struct edge_tag_note *note = p->tags.file ? malloc(sizeof *note) : NULL;
    if (!note)
        return;
    *note = (struct edge_tag_note){edge_pack_ref(p), *tag};
    if (rt_chan_push_drop_oldest(e->tags, note, &dropped) != ERR_OK)
        dropped = note;
    if (!dropped)
        return;
    edge_pack_unref(((struct edge_tag_note *)dropped)->pack);
    free(dropped);
}

/* Of bytes whose digest nobody knows yet. ERR_BUSY: only a reader can. */
static enum err compute_digest(struct edge *e, const struct tile_call *c, bool may_block,
                               struct sha256 *out) RT_UNCHECKED
{
    enum err err;
    if (may_block)
        err = edge_file_hash(c->p->file, c->at, c->length, out);
    else if (c->length > HASH_INLINE_MAX)
        return ERR_BUSY;
    else {
        uint8_t scratch[HASH_INLINE_MAX];
        err = edge_file_read_now(c->p->file, c->at, scratch, c->length);
        if (err == ERR_OK)
            sha256_of(scratch, c->length, out);
    }
    if (err == ERR_OK) {
        obs_counter_add(obs_counter(e->m[EDGE_M_hashed]), c->length);
        tell_verifier(e, c->p, &(struct edge_tag){c->key, c->length, *out});
    }
    return err;
}

/* cache: this loop's, NULL on a reader. */
static enum err digest_of(struct edge *e, const struct tile_call *c, struct edge_tag_cache *cache,
                          bool may_block, struct sha256 *out) RT_UNCHECKED
{
    struct edge_tag tag;
    if (cache && edge_tag_cache_get(cache, c->p->serial, c->key, out))
        return ERR_OK;
    enum err err = may_block ? edge_tags_find(&c->p->tags, c->key, &tag)
                             : edge_tags_find_now(&c->p->tags, c->key, &tag);
    if (err == ERR_BUSY)
        return err;
    if (err == ERR_OK && tag.length == c->length)
        *out = tag.digest;
    else
        err = compute_digest(e, c, may_block, out);
    if (err == ERR_OK && cache)
        edge_tag_cache_put(cache, c->p->serial, c->key, out);
    return err;
}

static void serve_inflated(struct edge *e, struct net_req *rq, struct tile_call *c, struct bytes stored)
{
    struct edge_repr r = repr_of(e, c);
    struct buf plain;
    if (!as_mounted(e, rq, c->p))
        return;
    buf_init(&plain, edge_config(e)->inflate_abs);
    if (edge_inflate(c->coding, stored, &plain) == ERR_OK) {
        if (!edge_variants_get(e->variants, c->p->serial, c->key, &r.digest)) {
            sha256_of(plain.p, plain.n, &r.digest);
            obs_counter_add(obs_counter(e->m[EDGE_M_hashed]), plain.n);
            edge_variants_put(e->variants, c->p->serial, c->key, &r.digest);
        }
        r.size = plain.n;
        r.memory = buf_bytes(&plain);
        edge_serve(e, rq, &r, true);
    } else {
        obs_counter_inc(obs_counter_nth(e->m[EDGE_M_integrity], 1));
        edge_refuse(e, rq, ERR_TILE_CORRUPT, EDGE_R_PACK, "the tile does not inflate within its bounds");
    }
    buf_fini(&plain);
}

static enum err inflate_tile(struct edge *e, struct net_req *rq, struct tile_call *c,
                             bool may_block) RT_UNCHECKED
{
    if (!may_block && c->length > INFLATE_INLINE_MAX)
        return ERR_BUSY;
    uint8_t *stored = malloc(c->length);
    if (!stored)
        return ERR_NO_MEMORY;
    enum err err = may_block ? edge_file_read(c->p->file, c->at, stored, c->length)
                             : edge_file_read_now(c->p->file, c->at, stored, c->length);
    if (err == ERR_OK)
        serve_inflated(e, rq, c, bytes_of(stored, c->length));
    free(stored);
    return err;
}

/* Not ERR_OK: nothing was answered; ERR_BUSY means that a reader can go on. */
static enum err serve_tile(struct edge *e, struct net_req *rq, struct tile_call *c,
                           struct edge_tag_cache *cache, bool may_block)
{
    if (c->unreadable) {
        edge_refuse(e, rq, ERR_NOT_ACCEPTABLE, EDGE_R_NONE,
                    "the tile is stored as br, which the client does not accept");
        return ERR_OK;
    }
    if (c->inflate)
        return inflate_tile(e, rq, c, may_block);
    struct edge_repr r = repr_of(e, c);
    enum err err = digest_of(e, c, cache, may_block, &r.digest);
    if (err != ERR_OK)
        return err;
    r.file = edge_file_ref(c->p->file);
    r.offset = c->at;
    edge_serve(e, rq, &r, may_block);
    return ERR_OK;
}

static void drop_call(void *arg)
{
    edge_unpin(((struct tile_call *)arg)->g);
}

static enum err find_tile(struct edge *e, struct tile_call *c, bool may_block)
{
    struct edge_entry entry;
    enum err err = edge_pack_find(e, c->p, edge_tile_id(&c->tile), may_block, &entry);
    if (err == ERR_OK) {
        c->key = entry.offset;
        c->at = c->p->header.data.offset + entry.offset;
        c->length = entry.length;
    }
    return err;
}

static void tile_later(struct edge *e, struct net_req *rq, void *arg, unsigned reader)
{
    struct tile_call c = *(struct tile_call *)arg; /* the arena goes with the answer */
    (void)reader;
    enum err err = find_tile(e, &c, true);
    if (err == ERR_NOT_FOUND)
        no_tile(e, rq, c.p);
    else if (err != ERR_OK || serve_tile(e, rq, &c, NULL, true) != ERR_OK)
        edge_refuse(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK, "the pack cannot be read");
    edge_unpin(c.g);
}

/* ---- MBTiles ---- */

/* The tile's bytes are at hand, and so is everything but their digest. cache: this loop's, NULL on a reader.
 * ERR_BUSY: the page that keeps the digest is not in memory, and only a reader may wait for it. */
static enum err mbtile_digest(struct edge *e, const struct tile_call *c, struct bytes stored,
                              struct edge_tag_cache *cache, bool may_block, struct sha256 *out) RT_UNCHECKED
{
    struct edge_tag found;
    if (cache && edge_tag_cache_get(cache, c->p->serial, c->key, out))
        return ERR_OK;
    enum err err = may_block ? edge_tags_find(&c->p->tags, c->key, &found)
                             : edge_tags_find_now(&c->p->tags, c->key, &found);
    if (err == ERR_BUSY && !may_block)
        return err;
    if (err == ERR_OK && found.length == stored.n)
        *out = found.digest;
    else {
        sha256_of(stored.p, stored.n, out);
        obs_counter_add(obs_counter(e->m[EDGE_M_hashed]), stored.n);
        tell_verifier(e, c->p, &(struct edge_tag){c->key, (uint32_t)stored.n, *out});
    }
    if (cache)
        edge_tag_cache_put(cache, c->p->serial, c->key, out);
    return ERR_OK;
}

/* False: it should go to a reader. */
static bool answer_mbtile(struct edge *e, struct net_req *rq, struct tile_call *c, struct bytes stored,
                          struct edge_tag_cache *cache, bool may_block)
{
    c->coding = edge_mbdb_is_gzip(stored) ? EDGE_CODING_GZIP : EDGE_CODING_NONE;
    c->inflate = c->coding == EDGE_CODING_GZIP && !c->takes_gzip;
    if (!may_block && stored.n > (c->inflate ? INFLATE_INLINE_MAX : HASH_INLINE_MAX))
        return false;
    if (c->inflate) {
        serve_inflated(e, rq, c, stored);
        return true;
    }
    if (!as_mounted(e, rq, c->p))
        return true;
    c->length = (uint32_t)stored.n;
    struct edge_repr r = repr_of(e, c);
    r.memory = stored;
    if (mbtile_digest(e, c, stored, cache, may_block, &r.digest) != ERR_OK)
        return false;
    edge_serve(e, rq, &r, may_block);
    return true;
}

static void mbtile_later(struct edge *e, struct net_req *rq, void *arg, unsigned reader) RT_UNCHECKED
{
    struct tile_call c = *(struct tile_call *)arg;
    struct edge_mbdb *db = NULL;
    struct bytes stored;
    edge_mbtiles_prepare(e, c.p, c.loop); /* the next one is answered where it came in */
    enum err err = edge_mbtiles_reader(e, c.p, reader, &db);
    if (err == ERR_OK)
        err = edge_mbdb_tile(db, &c.tile, &stored);
    if (err == ERR_NOT_FOUND)
        no_tile(e, rq, c.p);
    else if (err == ERR_OK)
        (void)answer_mbtile(e, rq, &c, stored, NULL, true); /* a reader waits: true */
    else if (as_mounted(e, rq, c.p))
        edge_refuse(e, rq, ERR_TILE_CORRUPT, EDGE_R_PACK, "the pack cannot be read");
    edge_unpin(c.g);
}

/* True: answered without waiting for anything. */
static bool mbtile_now(struct edge *e, struct net_req *rq, struct tile_call *c)
{
    struct bytes stored;
    /* Pairs with the release of the reader that opened it. */
    struct edge_mbdb *db = c->loop < EDGE_LOOPS_MAX
                               ? atomic_load_explicit(&c->p->loop_db[c->loop], memory_order_acquire)
                               : NULL;
    enum err err = db ? edge_mbdb_tile(db, &c->tile, &stored) : ERR_BUSY;
    if (err == ERR_NOT_FOUND) {
        no_tile(e, rq, c->p);
        return true;
    }
    return err == ERR_OK && answer_mbtile(e, rq, c, stored, e->tag_cache[c->loop], false);
}

/* ---- */

static void defer_call(struct edge *e, struct net_req *rq, const struct tile_call *c, edge_job_fn *run)
{
    struct tile_call *copy = arena_alloc(net_req_arena(rq), sizeof *copy);
    if (!copy) {
        edge_unpin(c->g);
        edge_refuse(e, rq, ERR_UNAVAILABLE, EDGE_R_NONE, "no memory for this request");
        return;
    }
    *copy = *c;
    edge_defer(e, rq, run, drop_call, copy);
}

/* Does the client take the coding the pack stores? */
static void choose_coding(struct net_req *rq, struct tile_call *c)
{
    enum edge_coding coding = c->coding = c->p->header.tiles;
    if (!*edge_coding_name(coding) || edge_accepts(net_req_header_list(rq, "accept-encoding"), coding))
        return;
    c->unreadable = coding == EDGE_CODING_BROTLI;
    c->inflate = !c->unreadable;
}

/* Looks the tile up and answers, or hands over the pin with the deferred call. True: the pin is still ours. */
static bool tile_of_pack(struct edge *e, struct net_req *rq, struct tile_call *c, struct str ext)
{
    const struct edge_pmtiles_header *h = &c->p->header;
    if (c->p->kind == EDGE_PACK_DIR || (ext.p && !edge_tile_ext_fits(h->type, ext)) ||
        c->tile.z < h->zoom_min || c->tile.z > h->zoom_max) {
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "the pack has no such tiles");
        return true;
    }
    if (c->p->kind == EDGE_PACK_MBTILES) {
        c->takes_gzip = edge_accepts(net_req_header_list(rq, "accept-encoding"), EDGE_CODING_GZIP);
        c->key = edge_tile_mbtiles_key(&c->tile);
        c->loop = net_req_loop_index(rq);
        if (mbtile_now(e, rq, c))
            return true;
        defer_call(e, rq, c, mbtile_later);
        return false;
    }
    choose_coding(rq, c);
    enum err err = find_tile(e, c, false);
    if (err == ERR_NOT_FOUND) {
        no_tile(e, rq, c->p);
        return true;
    }
    if (err == ERR_OK && serve_tile(e, rq, c, e->tag_cache[net_req_loop_index(rq)], false) == ERR_OK)
        return true;
    defer_call(e, rq, c, tile_later);
    return false;
}

struct edge_pack *edge_pack_for(struct edge *e, struct net_req *rq, struct edge_generation *g,
                                struct str name)
{
    struct edge_slot *slot = edge_slot_find(g, name);
    if (!slot)
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "there is no such pack");
    else if (!slot->pack || !edge_pack_ok(slot->pack))
        edge_refuse(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK,
                    slot->pack ? "the pack's file changed in place" : "the pack was refused");
    else
        return slot->pack;
    return NULL;
}

void edge_get_tile(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct tile_call c = {.as_of = edge_as_of(e)};
    struct str ext;
    if (edge_serve_again(rq, c.as_of))
        return;
    if (edge_tile_parse(net_req_param_raw(rq, "z"), net_req_param_raw(rq, "x"), net_req_param_raw(rq, "y"),
                        &c.tile, &ext) != ERR_OK) {
        edge_refuse(e, rq, ERR_BAD_REQUEST, EDGE_R_BAD_REQUEST,
                    "z, x and y must be decimal, z at most 30, x and y below 2^z");
        return;
    }
    c.g = edge_pin(e);
    c.p = edge_pack_for(e, rq, c.g, net_req_param_raw(rq, "pack"));
    if (!c.p || tile_of_pack(e, rq, &c, ext))
        edge_unpin(c.g);
}
