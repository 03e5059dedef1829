#include "services/edge/reload.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/json_write.h"
#include "services/edge/core/catalog.h"
#include "services/edge/retired.h"
#include "services/edge/seal.h"
#include "services/edge/store.h"
#include "store/file_replace.h"
#include "svc/feed.h"

/* A pack that should be there. */
struct wish {
    char name[EDGE_PACK_NAME_MAX + 1];
    char path[STORE_PATH_MAX]; /* "" : built in */
    char mount[EDGE_NAME_MAX + 1];
    enum edge_pack_kind kind;
    bool pinned, twice;
    struct sha256 sha256;
};

struct wishes {
    struct wish list[EDGE_PACKS_MAX];
    size_t n, refused; /* refused: no room for them */
};

void edge_reload_init(struct edge_reload *r)
{
    *r = (struct edge_reload){0};
    buf_init(&r->swapped, 1 << 16);
    buf_init(&r->unchanged, 1 << 16);
    buf_init(&r->removed, 1 << 16);
    buf_init(&r->refused, 1 << 18);
}

void edge_reload_fini(struct edge_reload *r)
{
    buf_fini(&r->swapped);
    buf_fini(&r->unchanged);
    buf_fini(&r->removed);
    buf_fini(&r->refused);
}

static struct wish *wish_find(struct wishes *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->list[i].name, name) == 0)
            return &w->list[i];
    return NULL;
}

static struct wish *wish_add(struct wishes *w, struct str name)
{
    if (w->n == EDGE_PACKS_MAX) {
        w->refused++;
        return NULL;
    }
    struct wish *x = &w->list[w->n++];
    *x = (struct wish){0};
    snprintf(x->name, sizeof x->name, "%.*s", STR_ARG(name));
    return x;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void wish_from_dir(struct wishes *w, const char *dir, const char *entry)
{
    struct stat st;
    char path[512];
    struct str name = str_from_c(entry);
    enum edge_pack_kind kind = EDGE_PACK_DIR;
    int n = snprintf(path, sizeof path, "%s/%s", dir, entry);
    if (entry[0] == '.' || n < 0 || (size_t)n >= sizeof path || stat(path, &st) != 0)
        return;
    if (str_ends(name, STR(".pmtiles")))
        kind = EDGE_PACK_PMTILES;
    else if (str_ends(name, STR(".mbtiles")))
        kind = EDGE_PACK_MBTILES;
    if (kind == EDGE_PACK_DIR ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        return;
    if (kind != EDGE_PACK_DIR)
        name.n -= 8;
    if (!edge_pack_name_ok(name))
        return;
    char text[EDGE_PACK_NAME_MAX + 1];
    snprintf(text, sizeof text, "%.*s", STR_ARG(name));
    struct wish *old = wish_find(w, text);
    if (old) { /* the first in bytewise order has the name; the later file is reported under it */
        old->twice = true;
        return;
    }
    struct wish *x = wish_add(w, name);
    if (!x)
        return;
    x->kind = kind;
    store_path_absolute(x->path, path);
    if (kind == EDGE_PACK_DIR)
        snprintf(x->mount, sizeof x->mount, "%.*s/", STR_ARG(name));
}

/* All names before any is taken, however many other files lie there: which packs are mounted must not depend on the order in which a
 * directory gives them. */
static void scan_packs_dir(struct wishes *w, const char *dir)
{
    DIR *d = opendir(dir);
    char **names = NULL, **more;
    size_t n = 0, cap = 0;
    for (struct dirent *de = d ? readdir(d) : NULL; de; de = readdir(d)) {
        if (de->d_name[0] == '.')
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 256;
            more = reallocarray(names, cap, sizeof *names);
            if (!more)
                break;
            names = more;
        }
        if ((names[n] = strdup(de->d_name)))
            n++;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(names, n, sizeof *names, by_bytes);
    for (size_t i = 0; i < n; i++) {
        wish_from_dir(w, dir, names[i]);
        free(names[i]);
    }
    free(names);
}

static void collect(struct edge *e, struct wishes *w)
{
    struct edge_settings *s = edge_settings(e);
    for (size_t i = 0; i < s->mounts_n; i++) {
        struct wish *x = wish_add(w, s->mounts[i].name);
        if (!x)
            break;
        x->kind = (enum edge_pack_kind)s->mounts[i].kind;
        x->pinned = s->mounts[i].pinned;
        x->sha256 = s->mounts[i].sha256;
        store_path_absolute(x->path, s->mounts[i].path);
        snprintf(x->mount, sizeof x->mount, "%.*s", STR_ARG(s->mounts[i].mount));
    }
    scan_packs_dir(w, s->packs_dir);
    if (edge_config(e)->packs_demo && !wish_find(w, "demo")) {
        struct wish *x = wish_add(w, STR("demo"));
        if (x)
            x->kind = EDGE_PACK_PMTILES;
    }
}

static void note(struct buf *b, const char *name)
{
    buf_printf(b, "%s\"%s\"", b->n ? "," : "", name);
}

void edge_reload_refuse(struct edge_reload *r, const char *name, const char *error)
{
    struct json_w w;
    if (r->refused.n)
        buf_putc(&r->refused, ',');
    json_w_init(&w, &r->refused);
    json_obj_begin(&w);
    json_put_cstr(&w, "name", name);
    json_put_cstr(&w, "error", error);
    json_obj_end(&w);
    r->refused_n++;
}

/* Every byte is read and its digest known before it may be mounted: a pinned digest, or packs.verify = before_mount. */
RT_BLOCKS
static enum err check_whole(struct edge *e, struct edge_pack *p, const struct wish *w, struct edge_fault *f)
{
    if (!p->file || (!w->pinned && edge_config(e)->packs_verify == 0))
        return ERR_OK;
    enum err err = edge_seal_wanted(p) ? edge_seal_whole(e, p) : ERR_OK;
    if (err != ERR_OK)
        return err;
    if (w->pinned && !sha256_eq(&p->archive, &w->sha256)) {
        snprintf(f->text, sizeof f->text, "its SHA-256 is not the one configured");
        obs_counter_inc(obs_counter_nth(e->m[EDGE_M_integrity], 1));
        return ERR_CORRUPT;
    }
    return ERR_OK;
}

/* What was found damaged stays refused for as long as it looks the same: its digests speak of bytes that are gone. */
static enum err check_healthy(const struct edge_slot *old, const struct edge_pack *p, struct edge_fault *f)
{
    if (!old || !old->pack || !atomic_load(&old->pack->damaged) || !sha256_eq(&old->pack->id, &p->id))
        return ERR_OK;
    snprintf(f->text, sizeof f->text, "its bytes are not those that were sealed, or make no archive");
    return ERR_CORRUPT;
}

static bool is_sealed(struct edge_pack *p)
{
    return atomic_load_explicit(
        &p->sealed, memory_order_acquire); /* pairs with the release after the digest was written */
}

/* A digest that was configured meanwhile is compared with what is mounted, too. */
static bool pin_holds(struct edge_pack *p, const struct wish *w)
{
    return !w->pinned || (is_sealed(p) && sha256_eq(&p->archive, &w->sha256));
}

RT_BLOCKS
static bool unchanged(const struct edge *e, const struct edge_slot *old, const struct wish *w)
{
    struct sha256 id;
    if (!old || !old->pack || strcmp(old->path, w->path) != 0 || old->kind != w->kind ||
        !edge_pack_ok(old->pack) || strcmp(old->pack->mount, w->mount) != 0)
        return false;
    if (!*w->path)
        return true;
    return w->kind != EDGE_PACK_DIR && edge_pack_terms_hold(e, old->pack) && pin_holds(old->pack, w) &&
           edge_pack_peek(w->path, w->kind, &id) == ERR_OK && sha256_eq(&id, &old->pack->id);
}

/* The same bytes in files with other times, or below another prefix, are served from the new one. */
static bool kept(struct edge_pack *old, const struct edge_pack *p)
{
    return p->kind == EDGE_PACK_DIR && sha256_eq(&old->id, &p->id) && strcmp(old->mount, p->mount) == 0 &&
           edge_dir_same(old, p) && !atomic_load_explicit(&old->outdated, memory_order_relaxed);
}

/* Of an archive that was opened again in other terms: without a tag file its digest would have to be computed once more. */
static void inherit(struct edge_pack *p, struct edge_pack *old)
{
    if (p->tags.file || !p->file || is_sealed(p) || !is_sealed(old))
        return;
    p->archive = old->archive;
    atomic_store_explicit(&p->sealed_bytes, p->file->size, memory_order_relaxed);
    atomic_store_explicit(&p->sealed, true, memory_order_release);
}

/* Fills slot i of the new generation. */
RT_BLOCKS
static void mount_one(struct edge *e, const struct wish *w, const struct edge_slot *old,
                      struct edge_slot *slot, struct edge_reload *out)
{
    struct edge_fault fault = {""};
    struct edge_pack *p = NULL;
    enum err err = ERR_OK;
    snprintf(slot->name, sizeof slot->name, "%s", w->name);
    snprintf(slot->path, sizeof slot->path, "%s", w->path);
    snprintf(slot->mount, sizeof slot->mount, "%s", w->mount);
    slot->kind = w->kind;
    if (unchanged(e, old, w)) {
        slot->pack = edge_pack_ref(old->pack);
        note(&out->unchanged, w->name);
    } else {
        err = edge_pack_open(e,
                             &(struct edge_pack_spec){str_from_c(w->name), str_from_c(w->mount),
                                                      *w->path ? w->path : NULL, w->kind},
                             &p, &fault);
        if (err == ERR_OK)
            err = check_healthy(old, p, &fault);
        if (err == ERR_OK)
            err = check_whole(e, p, w, &fault);
        if (err == ERR_OK && old && old->pack && kept(old->pack, p)) {
            edge_pack_unref(p); /* a directory whose files are all the same */
            slot->pack = edge_pack_ref(old->pack);
            note(&out->unchanged, w->name);
        } else if (err == ERR_OK) {
            bool same_bytes = old && old->pack && sha256_eq(&old->pack->id, &p->id);
            if (same_bytes)
                inherit(p, old->pack);
            slot->pack = p;
            p->since_s =
                edge_store_pack_since(e, p->name, &p->id, old && old->pack ? old->pack->since_s : 0);
            note(same_bytes ? &out->unchanged : &out->swapped, w->name);
            obs_log(svc_log(e->svc), OBS_INFO, "pack_mounted", OBS_STR("pack", (const char *)w->name),
                    OBS_U64("tiles", p->tiles), OBS_U64("files", p->list_n), OBS_END);
        } else {
            if (p)
                edge_pack_unref(p);
            snprintf(slot->error, sizeof slot->error, "%s", fault.text[0] ? fault.text : err_title(err));
            slot->state = EDGE_REJECTED;
            slot->pack = old && old->pack ? edge_pack_ref(old->pack) : NULL;
        }
    }
    if (slot->state == EDGE_MOUNTED && w->twice) {
        snprintf(slot->error, sizeof slot->error, "a second file has the same name");
        slot->state = EDGE_REJECTED;
    }
    if (err == ERR_BUSY) { /* only at the start, which does not wait for much of it */
        e->packs_unread = true;
        obs_log(svc_log(e->svc), OBS_INFO, "pack_unread", OBS_STR("pack", (const char *)w->name), OBS_END);
    } else if (slot->state == EDGE_REJECTED) {
        edge_reload_refuse(out, w->name, slot->error);
        svc_feed_tell(e->events, "pack_rejected", "{\"pack\":\"%s\"}", w->name);
        obs_log(svc_log(e->svc), OBS_WARN, "pack_rejected", OBS_STR("pack", (const char *)w->name),
                OBS_STR("why", (const char *)slot->error), OBS_END);
    }
}

static void keep_slot(const struct edge_slot *old, struct edge_slot *slot)
{
    *slot = *old;
    if (slot->pack)
        edge_pack_ref(slot->pack);
}

static bool chosen(const struct str *only, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq_c(only[i], name))
            return true;
    return n == 0;
}

static void publish(struct edge *e, struct edge_generation *g)
{
    bool all = true;
    for (size_t i = 0; i < g->n; i++)
        all = all && g->slots[i].state == EDGE_MOUNTED;
    edge_generation_publish(e, g);
    atomic_store(&e->packs_ok, all);
    for (size_t i = 0; i < g->n; i++)
        for (int s = EDGE_MOUNTED; s <= EDGE_CHANGED; s++)
            obs_gauge_set(OBS_GAUGE_OF(e->m[EDGE_M_pack_state], g->slots[i].name,
                                       edge_slot_state_name((enum edge_slot_state)s)),
                          atomic_load(&g->slots[i].state) == s);
    obs_gauge_set(obs_gauge(e->m[EDGE_M_generation]), (double)g->number);
    svc_feed_tell(e->events, "generation_published", "{\"generation\":%llu,\"packs\":%zu}",
                  (unsigned long long)g->number, g->n);
    obs_log(svc_log(e->svc), OBS_INFO, "generation_published", OBS_U64("generation", g->number),
            OBS_U64("packs", g->n), OBS_END);
}

/* ---- what is left of packs that are gone ---- */

struct tag_files {
    struct edge *e;
    const struct edge_generation *g;
    char dir[STORE_PATH_MAX];
};

/* Of a pack that was refused: it may come back as it was. */
static bool tag_file_used(const struct edge_generation *g, const char *name)
{
    char mine[EDGE_TAG_NAME_MAX];
    for (size_t i = 0; i < g->n; i++) {
        const struct edge_slot *slot = &g->slots[i];
        size_t n = strlen(slot->name);
        if (!slot->pack) {
            if (strncmp(name, slot->name, n) == 0 && (name[n] == '-' || name[n] == '.'))
                return true;
            continue;
        }
        edge_pack_tag_name(slot->pack, mine);
        if (strcmp(name, mine) == 0)
            return true;
    }
    return false;
}

static enum err remove_unused(void *ctx, const char *name) RT_UNCHECKED
{
    const struct tag_files *t = ctx;
    char path[STORE_PATH_MAX];
    struct str s = str_from_c(name);
    if ((!str_ends(s, STR(".tag")) && !str_ends(s, STR(".dix"))) || tag_file_used(t->g, name))
        return ERR_OK;
    store_path_join(path, t->dir, name);
    enum err err = store_disk_unlink(svc_disk(t->e->svc), path);
    if (err != ERR_OK)
        obs_log(svc_log(t->e->svc), OBS_WARN, "tags_not_removed", OBS_STR("file", name), OBS_ERR(err),
                OBS_END);
    return ERR_OK;
}

/* Who still serves from a replaced pack has its tag file open and keeps it. */
RT_BLOCKS
static void remove_unused_tags(struct edge *e, const struct edge_generation *g)
{
    struct tag_files t = {.e = e, .g = g};
    store_path_join(t.dir, svc_data_dir(e->svc), "tags");
    enum err err = store_disk_list(svc_disk(e->svc), t.dir, remove_unused, &t);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        obs_log(svc_log(e->svc), OBS_WARN, "tags_not_listed", OBS_ERR(err), OBS_END);
}

enum err edge_packs_reload(struct edge *e, const struct str *only, size_t only_n, struct edge_reload *out)
{
    struct edge_generation *old = e->generation ? edge_pin(e) : NULL;
    struct wishes *w = calloc(1, sizeof *w);
    struct edge_generation *g = calloc(1, sizeof *g + EDGE_PACKS_MAX * sizeof g->slots[0]);
    enum err err = w && g ? map_init(&g->by_name, EDGE_PACKS_MAX) : ERR_NO_MEMORY;
    if (err != ERR_OK) {
        free(w);
        free(g);
        edge_unpin(old);
        return err;
    }
    os_a32_store(&g->refs, 1, memory_order_relaxed);
    g->number = old ? old->number + 1 : 1;
    g->published_ms = edge_now_ms(e);
    collect(e, w);
    if (w->refused)
        obs_log(svc_log(e->svc), OBS_WARN, "packs_too_many", OBS_U64("refused", w->refused), OBS_END);
    for (size_t i = 0; err == ERR_OK && i < w->n; i++) {
        struct edge_slot *slot = &g->slots[g->n++],
                         *before = old ? edge_slot_find(old, str_from_c(w->list[i].name)) : NULL;
        if (before && !chosen(only, only_n, w->list[i].name))
            keep_slot(before, slot);
        else
            mount_one(e, &w->list[i], before, slot, out);
        err = map_add(&g->by_name, bytes_of_str(str_from_c(slot->name)), slot);
    }
    for (size_t i = 0; old && i < old->n; i++)
        if (!wish_find(w, old->slots[i].name))
            note(&out->removed, old->slots[i].name);
    out->generation = g->number;
    free(w);
    if (err == ERR_OK) {
        edge_retired_add(e, old, g);
        publish(e, g);
        remove_unused_tags(e, g);
    } else
        edge_unpin(g);
    edge_unpin(old);
    return err;
}

/* ---- asking for it ---- */

static struct edge_pack_op *op_make(const struct str *only, size_t only_n)
{
    size_t text = 0, at = 0;
    for (size_t i = 0; i < only_n; i++)
        text += only[i].n;
    struct edge_pack_op *op = calloc(1, sizeof *op + only_n * sizeof *only + text);
    if (!op || !only_n)
        return op;
    op->only = (struct str *)(void *)(op + 1);
    op->only_n = only_n;
    char *names = (char *)(op->only + only_n);
    for (size_t i = 0; i < only_n; i++) {
        memcpy(names + at, only[i].p, only[i].n);
        op->only[i] = str_of(names + at, only[i].n);
        at += only[i].n;
    }
    return op;
}

static bool same_names(const struct edge_pack_op *op, const struct str *only, size_t only_n)
{
    bool same = op->only_n == only_n;
    for (size_t i = 0; same && i < only_n; i++)
        same = str_eq(op->only[i], only[i]);
    return same;
}

/* Joins the reload that waits in the queue; a narrower one becomes one of all packs. */
static bool join_waiting(struct edge *e, const struct str *only, size_t only_n, struct edge_call *call)
{
    rt_lock_take(&e->reload_lock);
    struct edge_pack_op *next = e->reload_next;
    if (next && !same_names(next, only, only_n))
        next->only_n = 0;
    if (next && call)
        edge_calls_add(&next->calls, call);
    rt_lock_release(&e->reload_lock);
    return next != NULL;
}

enum err edge_request_reload(struct edge *e, const struct str *only, size_t only_n, struct edge_call *call)
{
    if (join_waiting(e, only, only_n, call))
        return ERR_OK;
    struct edge_pack_op *op = op_make(only, only_n);
    if (!op)
        return ERR_NO_MEMORY;
    rt_lock_take(&e->reload_lock);
    bool first = !e->reload_next;
    if (first) {
        e->reload_next = op;
        if (call)
            edge_calls_add(&op->calls, call);
    }
    rt_lock_release(&e->reload_lock);
    if (!first) { /* somebody was faster */
        free(op);
        return edge_request_reload(e, only, only_n, call);
    }
    enum err err = rt_chan_try_send(e->pack_ops, e); /* only says that there is one */
    if (err == ERR_OK)
        return err;
    rt_lock_take(&e->reload_lock);
    e->reload_next = NULL;
    struct edge_call *joined = edge_calls_take(&op->calls);
    rt_lock_release(&e->reload_lock);
    free(op);
    while (joined) {
        struct edge_call *next = joined->next;
        if (joined != call)
            net_reply_problem(joined->rq, err == ERR_BUSY ? ERR_BUSY : ERR_DRAINING, "no reload now");
        joined = next;
    }
    return err;
}

struct edge_pack_op *edge_reload_begin(struct edge *e)
{
    rt_lock_take(&e->reload_lock);
    struct edge_pack_op *op = e->reload_now = e->reload_next;
    e->reload_next = NULL;
    rt_lock_release(&e->reload_lock);
    return op;
}

struct edge_call *edge_reload_end(struct edge *e, struct edge_pack_op *op)
{
    rt_lock_take(&e->reload_lock);
    struct edge_call *calls = edge_calls_take(&op->calls);
    e->reload_now = NULL;
    rt_lock_release(&e->reload_lock);
    free(op);
    return calls;
}

void edge_reload_tick(struct edge *e)
{
    struct edge_call *late[2] = {NULL, NULL};
    int64_t now = edge_now_ns(e);
    rt_lock_take(&e->reload_lock);
    if (e->reload_now)
        late[0] = edge_calls_overdue(&e->reload_now->calls, now);
    if (e->reload_next)
        late[1] = edge_calls_overdue(&e->reload_next->calls, now);
    rt_lock_release(&e->reload_lock);
    for (size_t i = 0; i < 2; i++)
        while (late[i]) {
            struct edge_call *next = late[i]->next; /* goes with its request */
            static const char body[] = "{\"done\":false}";
            net_reply_json(late[i]->rq, 202, bytes_of(body, sizeof body - 1));
            late[i] = next;
        }
}
