/*
 * The archive's own digest needs every byte in the order of the file, a content's digest its bytes alone. Contents are taken in
 * the order of their place, so in a clustered archive both come from one reading: `whole` follows close behind, and a content
 * that begins where `whole` has come to is put into both. What lies behind that place already (contents out of order, or shared)
 * is read a second time.
 */
#include "services/edge/seal.h"

#include <stdlib.h>
#include <string.h>

#include "services/edge/mbdb.h"
#include "svc/feed.h"

enum { STEP_BYTES = 96 << 10, READ_BYTES = 96 << 10 }; /* about one turn */
enum { ENTRY_COST = 32 };                              /* bytes that take as long as looking at an entry */

bool edge_seal_wanted(struct edge_pack *p)
{
    return p && p->file && !p->file->memory && edge_pack_ok(p) &&
           !atomic_load_explicit(&p->sealed, memory_order_relaxed);
}

void edge_seal_end(struct edge_seal *s) RT_UNCHECKED
{
    edge_mbdb_close(s->db);
    edge_pack_unref(s->pack);
    free(s->list);
    free(s->scratch);
    *s = (struct edge_seal){0};
}

enum err edge_seal_begin(struct edge_seal *s, struct edge *e, struct edge_pack *p)
{
    *s = (struct edge_seal){.e = e, .pack = edge_pack_ref(p), .n = p->large ? 0 : p->dir.n};
    s->scratch = malloc(READ_BYTES);
    s->list = malloc(s->n * sizeof *s->list + 1);
    enum err err = s->scratch && s->list ? ERR_OK : ERR_NO_MEMORY;
    if (err == ERR_OK && p->kind == EDGE_PACK_MBTILES)
        err = edge_mbdb_open(p->file->fd, edge_config(e)->packs_max_tile, EDGE_MBDB_WAITS, &s->db);
    if (err != ERR_OK) {
        edge_seal_end(s);
        return err;
    }
    if (s->n)
        memcpy(s->list, p->dir.list, s->n * sizeof *s->list);
    edge_dir_sort_by_offset(s->list, s->n);
    sha256_init(&s->whole);
    return ERR_OK;
}

/* Of a large archive: the tiles below the root's next entry. False: there are no more. */
RT_BLOCKS
static bool next_leaf(struct edge_seal *s, uint64_t *io_done, enum err *out_err)
{
    const struct edge_pack *p = s->pack;
    struct edge_pmtiles_limits limits = edge_pack_limits(s->e);
    struct edge_fault fault;
    struct edge_dir below = {NULL, 0};
    if (!p->large || s->root_next == p->dir.n)
        return false;
    const struct edge_entry *entry = &p->dir.list[s->root_next++];
    uint64_t high = s->root_next < p->dir.n ? p->dir.list[s->root_next].id : UINT64_MAX;
    if (entry->run) {
        below.list = malloc(sizeof *entry);
        if (below.list) {
            *below.list = *entry;
            below.n = 1;
        } else {
            *out_err = ERR_NO_MEMORY;
        }
    } else {
        *out_err = edge_pmtiles_walk_leaf(&p->header, &limits, entry, high, edge_pack_read, p->file, &below,
                                          &fault);
    }
    if (*out_err == ERR_OK) {
        free(s->list);
        s->list = below.list;
        s->n = below.n;
        s->next = 0;
        *io_done += s->n * sizeof *s->list;
        edge_dir_sort_by_offset(s->list, s->n);
    }
    return true;
}

static void no_more_tags(struct edge_seal *s)
{
    struct edge_pack *p = s->pack;
    if (!p->tags.full)
        obs_log(svc_log(s->e->svc), OBS_WARN, "tags_full", OBS_STR("pack", (const char *)p->name), OBS_END);
    p->tags.full = true;
}

/* A digest into the tag file; a bucket that is full only means that it will be computed again. */
RT_BLOCKS
static enum err put_tag(struct edge_seal *s, const struct edge_tag *tag)
{
    enum err err = edge_tags_put(&s->pack->tags, tag);
    if (err != ERR_TOO_LARGE)
        return err;
    no_more_tags(s);
    return ERR_OK;
}

/* The next bytes of the archive, at most up to `end`, into `whole` and, unless NULL, into `also`. */
RT_BLOCKS
static enum err read_on(struct edge_seal *s, uint64_t end, struct sha256_ctx *also)
{
    uint64_t left = end - s->whole_at;
    size_t n = left < READ_BYTES ? (size_t)left : READ_BYTES;
    enum err err = edge_file_read(s->pack->file, s->whole_at, s->scratch, n);
    if (err != ERR_OK)
        return err;
    sha256_update(&s->whole, s->scratch, n);
    if (also)
        sha256_update(also, s->scratch, n);
    s->whole_at += n;
    s->hashed += n;
    atomic_store_explicit(&s->pack->sealed_bytes, s->whole_at, memory_order_relaxed);
    return ERR_OK;
}

RT_BLOCKS
static enum err hash_content(struct edge_seal *s, uint64_t at, uint64_t n, struct sha256 *out)
{
    struct sha256_ctx c;
    enum err err = ERR_OK;
    if (s->whole_at != at)
        return edge_file_hash(s->pack->file, at, n, out);
    sha256_init(&c);
    while (err == ERR_OK && s->whole_at < at + n)
        err = read_on(s, at + n, &c);
    if (err == ERR_OK)
        sha256_final(&c, out);
    return err;
}

RT_BLOCKS
static enum err seal_content(struct edge_seal *s, const struct edge_entry *entry)
{
    struct edge_pack *p = s->pack;
    struct edge_tag tag = {.key = entry->offset, .length = entry->length}, known;
    if (edge_tags_find(&p->tags, tag.key, &known) == ERR_OK && known.length == tag.length)
        return ERR_OK; /* a request needed it before, or another leaf names it too */
    s->contents += entry->length;
    s->hashed += s->whole_at != p->header.data.offset + entry->offset ? entry->length : 0;
    enum err err = hash_content(s, p->header.data.offset + entry->offset, entry->length, &tag.digest);
    return err == ERR_OK ? put_tag(s, &tag) : err;
}

/* The next tile of an MBTiles file. ERR_EMPTY: that was the last. */
RT_BLOCKS
static enum err seal_row(struct edge_seal *s, uint64_t *io_done)
{
    struct edge_tile t;
    struct bytes tile;
    enum err err = edge_mbdb_next(s->db, &t, &tile);
    if (err == ERR_TILE_CORRUPT) { /* whoever asks for it is told; the others are what they are */
        *io_done += STEP_BYTES;    /* finding that out may have taken long */
        return ERR_OK;
    }
    if (err != ERR_OK)
        return err;
    struct edge_tag tag = {.key = edge_tile_mbtiles_key(&t), .length = (uint32_t)tile.n};
    sha256_of(tile.p, tile.n, &tag.digest);
    s->hashed += tile.n;
    *io_done += tile.n + ENTRY_COST;
    return put_tag(s, &tag);
}

RT_BLOCKS
static enum err step_rows(struct edge_seal *s, uint64_t *io_done)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && *io_done < STEP_BYTES && s->db) {
        err = seal_row(s, io_done);
        if (err == ERR_EMPTY) {
            edge_mbdb_close(s->db);
            s->db = NULL;
            err = ERR_OK;
        }
    }
    return err;
}

/* Contents do not overlap in any archive that was not made to: a few megabytes in a million of them would be read for weeks, and
 * every pack behind this one would wait. What is left is hashed when somebody asks for it. */
static void skip_contents(struct edge_seal *s)
{
    s->next = s->n;
    if (s->pack->large)
        s->root_next = s->pack->dir.n;
    no_more_tags(s);
}

RT_BLOCKS
static enum err step_contents(struct edge_seal *s, uint64_t *io_done)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && *io_done < STEP_BYTES && (s->next < s->n || next_leaf(s, io_done, &err))) {
        if (err != ERR_OK || s->next == s->n)
            continue;
        const struct edge_entry *entry = &s->list[s->next];
        uint64_t at = s->pack->header.data.offset + entry->offset, from = s->whole_at;
        if (at > from) { /* what lies before it belongs to the whole alone */
            err = read_on(s, at, NULL);
            *io_done += s->whole_at - from;
            continue;
        }
        if (s->next == 0 || entry->offset != entry[-1].offset) {
            err = seal_content(s, entry);
            *io_done += entry->length;
        }
        *io_done += ENTRY_COST;
        s->next++;
        if (s->contents > s->pack->header.data.length)
            skip_contents(s);
    }
    return err;
}

static bool contents_done(const struct edge_seal *s)
{
    return !s->db && s->next == s->n && (!s->pack->large || s->root_next == s->pack->dir.n);
}

RT_BLOCKS
static enum err finish(struct edge_seal *s)
{
    struct edge_pack *p = s->pack;
    if (!edge_file_unchanged(p->file))
        return ERR_CONFLICT;
    sha256_final(&s->whole, &p->archive);
    enum err err = edge_tags_seal(&p->tags, &p->archive, (uint64_t)edge_now_ms(s->e));
    /* Pairs with the acquire of whoever serves the archive. */
    atomic_store_explicit(&p->sealed, true, memory_order_release);
    svc_feed_tell(s->e->events, "pack_sealed", "{\"pack\":\"%s\"}", p->name);
    obs_log(svc_log(s->e->svc), OBS_INFO, "pack_sealed", OBS_STR("pack", (const char *)p->name),
            OBS_ERR(err), OBS_END);
    return ERR_EMPTY;
}

enum err edge_seal_step(struct edge_seal *s, uint64_t *out_bytes)
{
    uint64_t done = 0, size = s->pack->file->size;
    enum err err = step_rows(s, &done);
    if (err == ERR_OK)
        err = step_contents(s, &done);
    while (err == ERR_OK && done < STEP_BYTES && contents_done(s) && s->whole_at < size) {
        uint64_t from = s->whole_at;
        err = read_on(s, size, NULL);
        done += s->whole_at - from;
    }
    obs_counter_add(obs_counter(s->e->m[EDGE_M_hashed]), s->hashed);
    s->hashed = 0;
    *out_bytes = done;
    return err == ERR_OK && contents_done(s) && s->whole_at == size ? finish(s) : err;
}

enum err edge_seal_whole(struct edge *e, struct edge_pack *p)
{
    struct edge_seal s;
    uint64_t bytes;
    enum err err = edge_seal_begin(&s, e, p);
    if (err != ERR_OK)
        return err;
    while ((err = edge_seal_step(&s, &bytes)) == ERR_OK) {
        err = edge_turns_next(&e->turns, bytes, edge_config(e)->packs_seal_rate);
        if (err != ERR_OK)
            break;
    }
    edge_seal_end(&s);
    return err == ERR_EMPTY ? ERR_OK : err;
}
