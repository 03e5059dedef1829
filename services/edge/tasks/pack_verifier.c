/*
 * pack_verifier: reloads on demand, seals what is new, writes down digests that requests had to compute, and looks every
 * second whether a mounted file changed in place.
 *
 * Sealing reads a pack once in small steps between which everything else gets its turn: first each content in the order of
 * its place (digest into the tag file), then the archive as a whole. Only when both are done does the tag file say so.
 */
#include <stdio.h>
#include <stdlib.h>

#include "services/edge/mbdb.h"
#include "services/edge/reload.h"
#include "svc/feed.h"

enum {
    STEP_BYTES = 4 << 20,
    TAG_BATCH = 64,
    CHECK_MS = 1000,
    RELOAD_GAP_MS = 5000,
    READ_BYTES = 256 << 10
};

struct seal {
    struct edge_pack *pack;  /* a reference; NULL: nothing to do */
    struct edge_entry *list; /* contents still to be hashed, by offset */
    size_t n, next;
    size_t root_next;     /* large archives: the entry of the root whose leaf comes next */
    struct edge_mbdb *db; /* MBTiles: where the tiles come from; NULL when all are done */
    uint64_t whole_at;
    struct sha256_ctx whole;
    uint8_t *scratch;
};

struct verifier {
    struct edge *e;
    struct rt_task *self;
    struct seal seal;
    int64_t checked_ns, reloaded_ns;
    uint64_t generation; /* whose packs were all looked at */
};

static int by_offset(const void *a, const void *b)
{
    const struct edge_entry *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* ---- sealing ---- */

static void seal_end(struct seal *s) RT_UNCHECKED
{
    edge_mbdb_close(s->db);
    edge_pack_unref(s->pack);
    free(s->list);
    free(s->scratch);
    *s = (struct seal){0};
}

static bool seal_wanted(struct edge *e, const struct edge_slot *slot)
{
    return slot->pack && slot->pack->file && !slot->pack->file->memory && edge_pack_ok(slot->pack) &&
           edge_config(e)->packs_seal_rate && !atomic_load(&slot->pack->sealed);
}

static void seal_begin(struct verifier *v) RT_UNCHECKED
{
    struct edge_generation *g = edge_pin(v->e);
    struct seal *s = &v->seal;
    for (size_t i = 0; g->number != v->generation && i < g->n && !s->pack; i++)
        if (seal_wanted(v->e, &g->slots[i]))
            s->pack = edge_pack_ref(g->slots[i].pack);
    if (!s->pack)
        v->generation = g->number;
    edge_unpin(g);
    if (!s->pack)
        return;
    const struct edge_pack *p = s->pack;
    s->scratch = malloc(READ_BYTES);
    s->n = p->large ? 0 : p->dir.n;
    s->list = malloc(s->n * sizeof *s->list + 1);
    if (!s->scratch || !s->list ||
        (p->kind == EDGE_PACK_MBTILES && edge_mbdb_open(p->file->fd, edge_config(v->e)->packs_max_tile,
                                                        EDGE_MBDB_WAITS, &s->db) != ERR_OK)) {
        seal_end(s);
        v->generation = 0; /* later again */
        return;
    }
    if (s->n)
        memcpy(s->list, p->dir.list, s->n * sizeof *s->list);
    qsort(s->list, s->n, sizeof *s->list, by_offset);
    sha256_init(&s->whole);
}

/* Of a large archive: the tiles below the root's next entry. False: there are no more. */
RT_BLOCKS
static bool seal_next_leaf(struct verifier *v, enum err *out_err)
{
    struct seal *s = &v->seal;
    const struct edge_pack *p = s->pack;
    struct edge_pmtiles_limits limits = edge_pack_limits(v->e);
    struct edge_fault fault;
    struct edge_dir below = {NULL, 0};
    if (!p->large || s->root_next == p->dir.n)
        return false;
    const struct edge_entry *entry = &p->dir.list[s->root_next++];
    uint64_t high = s->root_next < p->dir.n ? p->dir.list[s->root_next].id : UINT64_MAX;
    if (entry->run) {
        below.list = malloc(sizeof *entry);
        below.n = below.list ? 1 : 0;
        if (below.list)
            *below.list = *entry;
    } else
        *out_err = edge_pmtiles_walk_leaf(&p->header, &limits, entry, high, edge_pack_read, p->file, &below,
                                          &fault);
    if (*out_err == ERR_OK) {
        free(s->list);
        s->list = below.list;
        s->n = below.n;
        s->next = 0;
        qsort(s->list, s->n, sizeof *s->list, by_offset);
    }
    return true;
}

/* A digest into the tag file; a bucket that is full only means that it will be computed again. */
RT_BLOCKS
static enum err seal_put(struct verifier *v, const struct edge_tag *tag)
{
    struct edge_pack *p = v->seal.pack;
    enum err err = edge_tags_put(&p->tags, tag);
    if (err != ERR_TOO_LARGE)
        return err;
    if (!p->tags.full)
        obs_log(svc_log(v->e->svc), OBS_WARN, "tags_full", OBS_STR("pack", (const char *)p->name), OBS_END);
    p->tags.full = true;
    return ERR_OK;
}

RT_BLOCKS
static enum err seal_content(struct verifier *v, const struct edge_entry *entry)
{
    struct edge_pack *p = v->seal.pack;
    struct edge_tag tag = {.key = entry->offset, .length = entry->length}, known;
    if (edge_tags_find(&p->tags, tag.key, &known) == ERR_OK && known.length == tag.length)
        return ERR_OK; /* a request needed it before, or another leaf names it too */
    enum err err =
        edge_file_hash(p->file, p->header.data.offset + entry->offset, entry->length, &tag.digest);
    return err == ERR_OK ? seal_put(v, &tag) : err;
}

/* The next tile of an MBTiles file. ERR_EMPTY: that was the last. */
RT_BLOCKS
static enum err seal_row(struct verifier *v, uint64_t *io_done)
{
    struct edge_tile t;
    struct bytes tile;
    enum err err = edge_mbdb_next(v->seal.db, &t, &tile);
    if (err != ERR_OK)
        return err;
    struct edge_tag tag = {.key = edge_tile_mbtiles_key(&t), .length = (uint32_t)tile.n};
    sha256_of(tile.p, tile.n, &tag.digest);
    *io_done += tile.n + 1;
    return seal_put(v, &tag);
}

/* About STEP_BYTES of work. ERR_EMPTY: done. */
RT_BLOCKS
static enum err seal_step(struct verifier *v, uint64_t *out_bytes)
{
    struct seal *s = &v->seal;
    struct edge_pack *p = s->pack;
    enum err err = ERR_OK;
    uint64_t done = 0;
    while (err == ERR_OK && done < STEP_BYTES && s->db) {
        err = seal_row(v, &done);
        if (err == ERR_EMPTY) {
            edge_mbdb_close(s->db);
            s->db = NULL;
            err = ERR_OK;
        }
    }
    while (err == ERR_OK && done < STEP_BYTES && (s->next < s->n || seal_next_leaf(v, &err))) {
        if (err != ERR_OK || s->next == s->n)
            continue;
        const struct edge_entry *entry = &s->list[s->next];
        if (s->next == 0 || entry->offset != entry[-1].offset) {
            err = seal_content(v, entry);
            done += entry->length;
        }
        s->next++;
    }
    bool tiles_done = !s->db && s->next == s->n && (!p->large || s->root_next == p->dir.n);
    while (err == ERR_OK && done < STEP_BYTES && tiles_done && s->whole_at < p->file->size) {
        uint64_t left = p->file->size - s->whole_at;
        size_t n = left < READ_BYTES ? (size_t)left : READ_BYTES;
        err = edge_file_read(p->file, s->whole_at, s->scratch, n);
        if (err == ERR_OK)
            sha256_update(&s->whole, s->scratch, n);
        s->whole_at += n;
        done += n;
        atomic_store_explicit(&p->sealed_bytes, s->whole_at, memory_order_relaxed);
    }
    obs_counter_add(obs_counter(v->e->m[EDGE_M_hashed]), done);
    *out_bytes = done;
    return err == ERR_OK && tiles_done && s->whole_at == p->file->size ? ERR_EMPTY : err;
}

RT_BLOCKS
static void seal_some(struct verifier *v)
{
    struct seal *s = &v->seal;
    uint64_t bytes = 0, rate = edge_config(v->e)->packs_seal_rate;
    enum err err = seal_step(v, &bytes);
    if (err == ERR_EMPTY && edge_file_unchanged(s->pack->file)) {
        sha256_final(&s->whole, &s->pack->archive);
        err = edge_tags_seal(&s->pack->tags, &s->pack->archive, (uint64_t)edge_now_ms(v->e));
        /* Pairs with the acquire of whoever serves the archive. */
        atomic_store_explicit(&s->pack->sealed, true, memory_order_release);
        svc_feed_tell(v->e->events, "pack_sealed", "{\"pack\":\"%s\"}", s->pack->name);
        obs_log(svc_log(v->e->svc), OBS_INFO, "pack_sealed", OBS_STR("pack", (const char *)s->pack->name),
                OBS_ERR(err), OBS_END);
        seal_end(s);
        return;
    }
    if (err != ERR_OK) {
        atomic_store(&s->pack->file->changed, true);
        obs_log(svc_log(v->e->svc), OBS_WARN, "pack_unreadable",
                OBS_STR("pack", (const char *)s->pack->name), OBS_ERR(err), OBS_END);
        seal_end(s);
        return;
    }
    int64_t pause_ms = rate ? (int64_t)(bytes * 1000 / rate) : 0;
    if (pause_ms > 1 && rt_task_sleep(v->self, deadline_in_ms(pause_ms)) != ERR_OK)
        seal_end(s);
}

/* ---- digests computed by requests ---- */

RT_BLOCKS
static void write_tags(struct verifier *v)
{
    void *notes[TAG_BATCH];
    size_t n = 0;
    if (rt_chan_try_recv_batch(v->e->tags, notes, TAG_BATCH, &n) != ERR_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        struct edge_tag_note *note = notes[i];
        if (edge_tags_put(&note->pack->tags, &note->tag) != ERR_OK)
            note->pack->tags.full = true;
        edge_pack_unref(note->pack);
        free(note);
    }
}

/* ---- reloads ---- */

/* What is said to those who asked at the same time differs only in the names that mean nothing. */
static void refuse_unknown(const struct edge_call *c, const struct edge_generation *before,
                           const struct edge_generation *after, struct edge_reload *out)
{
    for (size_t i = 0; i < c->names_n; i++) {
        char name[EDGE_PACK_NAME_MAX + 1];
        if (edge_slot_find(before, c->names[i]) || edge_slot_find(after, c->names[i]))
            continue;
        snprintf(name, sizeof name, "%.*s", STR_ARG(c->names[i]));
        edge_reload_refuse(out, name, "there is no such pack");
    }
}

static void answer(const struct edge_call *c, enum err err, struct edge_reload *done,
                   const struct edge_generation *before, const struct edge_generation *after)
{
    struct edge_reload mine;
    struct buf body;
    if (err != ERR_OK) {
        net_reply_problem(c->rq, err, "the packs could not be looked at");
        return;
    }
    edge_reload_init(&mine);
    refuse_unknown(c, before, after, &mine);
    buf_init(&body, 1 << 19);
    if (done->refused_n || mine.refused_n) {
        buf_printf(&body, "{\"packs\":[%s%s%s]}", buf_cstr(&done->refused),
                   done->refused_n && mine.refused_n ? "," : "", buf_cstr(&mine.refused));
        net_reply_problem_details(c->rq, ERR_PACK_INVALID,
                                  done->refused_n ? "a pack was refused; the good ones are live"
                                                  : "there is no such pack; the others are live",
                                  buf_bytes(&body));
    } else {
        buf_printf(
            &body,
            "{\"generation\":%llu,\"done\":true,\"swapped\":[%s],\"unchanged\":[%s],\"removed\":[%s]}",
            (unsigned long long)done->generation, buf_cstr(&done->swapped), buf_cstr(&done->unchanged),
            buf_cstr(&done->removed));
        net_reply_json(c->rq, 200, buf_bytes(&body));
    }
    buf_fini(&body);
    edge_reload_fini(&mine);
}

RT_BLOCKS
static void reload(struct verifier *v)
{
    struct edge_reload r;
    struct edge_pack_op *op = edge_reload_begin(v->e);
    if (!op)
        return;
    edge_reload_init(&r);
    struct edge_generation *before = edge_pin(v->e);
    enum err err = edge_packs_reload(v->e, op->only, op->only_n, &r);
    struct edge_generation *after = edge_pin(v->e);
    v->reloaded_ns = edge_now_ns(v->e);
    for (struct edge_call *c = edge_reload_end(v->e, op), *next; c; c = next) {
        next = c->next; /* it goes with its request */
        answer(c, err, &r, before, after);
    }
    edge_unpin(before);
    edge_unpin(after);
    edge_reload_fini(&r);
}

/* A file that was overwritten is not served any more; a reload finds out what is there now. */
static void check_files(struct verifier *v) RT_UNCHECKED
{
    int64_t now = edge_now_ns(v->e);
    if (now - v->checked_ns < CHECK_MS * 1000000LL)
        return;
    v->checked_ns = now;
    struct edge_generation *g = edge_pin(v->e);
    bool changed = false;
    for (size_t i = 0; i < g->n; i++) {
        struct edge_slot *slot = &g->slots[i];
        if (!slot->pack || !slot->pack->file || edge_file_unchanged(slot->pack->file))
            continue;
        if (slot->state != EDGE_CHANGED) {
            svc_feed_tell(v->e->events, "pack_changed", "{\"pack\":\"%s\"}", slot->name);
            obs_log(svc_log(v->e->svc), OBS_WARN, "pack_changed", OBS_STR("pack", (const char *)slot->name),
                    OBS_END);
            obs_gauge_set(OBS_GAUGE_OF(v->e->m[EDGE_M_pack_state], slot->name, "mounted"), 0);
            obs_gauge_set(OBS_GAUGE_OF(v->e->m[EDGE_M_pack_state], slot->name, "changed"), 1);
        }
        slot->state = EDGE_CHANGED;
        changed = true;
    }
    edge_unpin(g);
    if (changed) {
        atomic_store(&v->e->packs_ok, false);
        if (now - v->reloaded_ns > RELOAD_GAP_MS * 1000000LL &&
            edge_request_reload(v->e, NULL, 0, NULL) == ERR_CLOSED)
            v->reloaded_ns = now; /* draining; otherwise the next check asks again */
    }
}

enum err edge_pack_verifier_run(struct rt_task *self, void *arg)
{
    struct verifier v = {.e = arg, .self = self};
    enum err err = ERR_OK;
    while (!rt_task_stopping(self)) {
        void *op;
        bool busy = v.seal.pack != NULL || rt_chan_depth(v.e->tags) > 0;
        err = busy ? rt_chan_try_recv(v.e->pack_ops, &op)
                   : rt_chan_recv(v.e->pack_ops, deadline_in_ms(200), &op);
        if (err == ERR_OK)
            reload(&v);
        else if (err != ERR_TIMEOUT && err != ERR_EMPTY)
            break;
        write_tags(&v);
        check_files(&v);
        if (!v.seal.pack)
            seal_begin(&v);
        if (v.seal.pack)
            seal_some(&v);
        rt_task_beat(self);
    }
    seal_end(&v.seal);
    return rt_task_stopping(self) || err == ERR_CLOSED ? ERR_OK
           : err == ERR_TIMEOUT || err == ERR_EMPTY    ? ERR_OK
                                                       : err;
}
