/* The store as readers see it: finding names, opening objects, and bringing everything back after a start. */
#include "services/edge/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hex.h"
#include "store/file_replace.h"

static const int64_t STUCK_NS = 1000000000;

struct edge_opened {
    struct sha256 digest;
    struct edge_file *file;
    struct edge_opened *older, *newer;
};

void edge_store_object_path(const struct edge_store *s, const struct sha256 *digest,
                            char out[STORE_PATH_MAX])
{
    char hex[SHA256_HEX_CHARS];
    hex_encode(digest->b, 32, hex);
    int n = snprintf(out, STORE_PATH_MAX, "%s/cas/%.2s/%s", s->dir, hex, hex);
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

/* ---- names ---- */

bool edge_store_find(struct edge_store *s, struct str name, struct edge_hit *out)
{
    rt_lock_take(&s->refs);
    struct edge_ref *r = edge_catalog_ref(&s->catalog, name);
    if (r) {
        edge_catalog_use(&s->catalog, r->object, edge_now_ms(s->e));
        *out = (struct edge_hit){.digest = r->object->digest,
                                 .size = r->object->size,
                                 .since_s = r->since_ms / 1000,
                                 .fetched_ms = (int64_t)r->fetched_ms,
                                 .valid_until_ms = (int64_t)r->valid_until_ms};
        memcpy(out->mime, r->mime.p, r->mime.n);
        memcpy(out->etag, r->etag.p, r->etag.n);
    }
    rt_lock_release(&s->refs);
    return r != NULL;
}

bool edge_store_has(struct edge_store *s, const struct sha256 *digest, uint64_t *out_size)
{
    rt_lock_take(&s->refs);
    struct edge_object *o = edge_catalog_object(&s->catalog, digest);
    if (o) {
        edge_catalog_use(&s->catalog, o, edge_now_ms(s->e));
        *out_size = o->size;
    }
    rt_lock_release(&s->refs);
    return o != NULL;
}

uint64_t edge_store_pack_since(struct edge *e, const char *name, const struct sha256 *id,
                               uint64_t previous_s)
{
    struct edge_store *s = e->store;
    uint64_t since = 0, known = previous_s;
    rt_lock_take(&s->refs);
    const struct edge_pack_since *p = edge_catalog_pack(&s->catalog, str_from_c(name));
    if (p && sha256_eq(&p->pack_id, id))
        since = p->since_s;
    else if (p && p->since_s > known)
        known = p->since_s;
    rt_lock_release(&s->refs);
    if (since)
        return since;
    struct edge_store_op op = {
        .kind = EDGE_OP_PACK_SINCE, .digest = *id, .number = edge_since_next(edge_now_ms(e), known)};
    snprintf(op.name, sizeof op.name, "%s", name);
    if (edge_store_send(e, &op) != ERR_OK)
        obs_log(svc_log(e->svc), OBS_WARN, "pack_since_not_kept", OBS_STR("pack", name), OBS_END);
    return op.number;
}

/* ---- opened objects ---- */

static void list_remove(struct edge_store *s, struct edge_opened *o)
{
    *(o->newer ? &o->newer->older : &s->newest) = o->older;
    *(o->older ? &o->older->newer : &s->oldest) = o->newer;
    o->newer = o->older = NULL;
}

static void list_push(struct edge_store *s, struct edge_opened *o)
{
    o->older = s->newest;
    if (s->newest)
        s->newest->newer = o;
    else
        s->oldest = o;
    s->newest = o;
}

static struct bytes key_of(const struct sha256 *d)
{
    return bytes_of(d->b, sizeof d->b);
}

static struct edge_opened *take_out(struct edge_store *s, struct edge_opened *o)
{
    if (o) {
        map_remove(&s->opened, key_of(&o->digest));
        list_remove(s, o);
    }
    return o;
}

static void opened_free(struct edge_opened *o)
{
    if (o)
        edge_file_unref(o->file);
    free(o);
}

void edge_store_forget(struct edge_store *s, const struct sha256 *digest)
{
    rt_lock_take(&s->objects);
    struct edge_opened *o = take_out(s, map_get(&s->opened, key_of(digest)));
    s->forgotten++;
    rt_lock_release(&s->objects);
    opened_free(o);
}

enum err edge_store_open_now(struct edge_store *s, const struct sha256 *digest, struct edge_file **out)
{
    rt_lock_take(&s->objects);
    struct edge_opened *o = map_get(&s->opened, key_of(digest));
    if (o) {
        if (o != s->newest) {
            list_remove(s, o);
            list_push(s, o);
        }
        *out = edge_file_ref(o->file);
    }
    rt_lock_release(&s->objects);
    if (!o || edge_file_unchanged_at(*out, edge_now_ns(s->e), EDGE_LOOK_NS))
        return o ? ERR_OK : ERR_NOT_FOUND;
    edge_file_unref(*out); /* somebody wrote into it: it is opened, and so hashed, anew */
    edge_store_forget(s, digest);
    return ERR_NOT_FOUND;
}

static uint64_t forgotten(struct edge_store *s)
{
    rt_lock_take(&s->objects);
    uint64_t n = s->forgotten;
    rt_lock_release(&s->objects);
    return n;
}

/* Unless something was removed since `as_of`: it may have been this one, and whoever comes next must not find it here. */
static void remember(struct edge_store *s, const struct sha256 *digest, struct edge_file *f, uint64_t as_of)
{
    struct edge_opened *o = calloc(1, sizeof *o), *old = NULL;
    if (!o)
        return;
    *o = (struct edge_opened){.digest = *digest, .file = edge_file_ref(f)};
    rt_lock_take(&s->objects);
    bool added = s->forgotten == as_of && map_add(&s->opened, key_of(&o->digest), o) == ERR_OK;
    if (added) {
        list_push(s, o);
        if (map_count(&s->opened) > EDGE_OBJECTS_OPEN)
            old = take_out(s, s->oldest);
    }
    rt_lock_release(&s->objects);
    opened_free(added ? old : o);
}

RT_BLOCKS
static enum err load(struct edge_store *s, const char *path, struct edge_file **out)
{
    struct store_file *sf;
    enum err err = store_file_open(s->disk, path, STORE_READ, &sf);
    if (err != ERR_OK)
        return err;
    int fd = store_file_fd(sf);
    if (fd >= 0) {
        int own = dup(fd);
        err = own < 0 ? ERR_BUSY : edge_file_of_fd(own, out);
        if (err == ERR_PERMISSION) /* whatever it is, it is no file */
            err = ERR_CORRUPT;
    } else {
        uint64_t size;
        uint8_t *p = NULL;
        err = store_file_size(sf, &size);
        if (err == ERR_OK && !(p = malloc(size + 1)))
            err = ERR_NO_MEMORY;
        if (err == ERR_OK)
            err = store_file_read_all(sf, p, size, 0);
        if (err == ERR_OK)
            err = edge_file_of_memory(p, size, true, out);
        if (err != ERR_OK)
            free(p);
    }
    store_file_close(sf);
    return err;
}

/* What is not told now is found again by whoever asks for it next. */
static void tell_writer(struct edge_store *s, enum edge_store_op_kind kind, const struct sha256 *digest)
{
    if (edge_store_send(s->e, &(struct edge_store_op){.kind = kind, .digest = *digest}) != ERR_OK)
        obs_log(svc_log(s->e->svc), OBS_WARN, "quarantine_delayed", OBS_END);
}

enum err edge_store_open(struct edge_store *s, const struct sha256 *digest, bool trusted,
                         struct edge_file **out)
{
    char path[STORE_PATH_MAX];
    struct edge_file *f = NULL;
    struct sha256 found;
    enum err err = edge_store_open_now(s, digest, out);
    if (err == ERR_OK)
        return err;
    uint64_t as_of = forgotten(s);
    edge_store_object_path(s, digest, path);
    err = load(s, path, &f);
    if (err == ERR_NOT_FOUND)
        tell_writer(s, EDGE_OP_LOST, digest);
    if (err == ERR_OK && !trusted) {
        err = edge_file_hash(f, 0, f->size, &found);
        obs_counter_add(obs_counter(s->e->m[EDGE_M_hashed]), f->size);
        if (err == ERR_IO || (err == ERR_OK && !sha256_eq(&found, digest)))
            err = ERR_CORRUPT;
    }
    if (err == ERR_OK) {
        remember(s, digest, f, as_of);
        *out = f;
        return ERR_OK;
    }
    if (f)
        edge_file_unref(f);
    if (err == ERR_CORRUPT) {
        obs_counter_inc(obs_counter_nth(s->e->m[EDGE_M_integrity], 0));
        tell_writer(s, EDGE_OP_QUARANTINE, digest);
    }
    return err;
}

enum err edge_store_send(struct edge *e, const struct edge_store_op *op)
{
    struct edge_store_op *copy = malloc(sizeof *copy);
    if (!copy)
        return ERR_NO_MEMORY;
    *copy = *op;
    enum err err = rt_chan_try_send(e->store_ops, copy);
    if (err == ERR_BUSY)
        edge_count_dropped(e, "store_ops");
    if (err != ERR_OK)
        free(copy);
    return err;
}

void edge_store_want_room(struct edge_store *s)
{
    atomic_store(&s->wants_room, true);
    atomic_store(&s->full, true);
    rt_bell_ring(&s->e->store_bell);
}

void edge_store_doubt(struct edge_store *s)
{
    atomic_store(&s->failed, true);
    rt_bell_ring(&s->e->store_bell);
}

bool edge_store_reachable(struct edge_store *s)
{
    int64_t since = atomic_load(&s->at_work_ns);
    bool stuck = since && edge_now_ns(s->e) - since > STUCK_NS;
    return !atomic_load(&s->readonly) && !atomic_load(&s->full) && !atomic_load(&s->failed) && !stuck;
}

void edge_commit_unref(struct edge_commit *c)
{
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
        return;
    rt_oneshot_fini(&c->done);
    free(c);
}

/* ---- start ---- */

struct boot {
    struct edge_store *s;
    char dir[STORE_PATH_MAX];
};

static enum err remove_tmp(void *ctx, const char *name) RT_UNCHECKED
{
    struct boot *b = ctx;
    char path[STORE_PATH_MAX];
    store_path_join(path, b->dir, name);
    enum err e = store_disk_unlink(b->s->disk, path);
    return e == ERR_NOT_FOUND ? ERR_OK : e;
}

RT_BLOCKS
static enum err make_dirs(struct edge_store *s)
{
    static const char *const names[] = {"packs", "tags", "cas", "cas/tmp", "cas/quarantine"};
    struct boot b = {.s = s};
    char path[STORE_PATH_MAX];
    enum err e = store_disk_mkdirs(s->disk, s->dir);
    for (size_t i = 0; (e == ERR_OK || e == ERR_EXISTS) && i < sizeof names / sizeof *names; i++) {
        store_path_join(path, s->dir, names[i]);
        e = store_disk_mkdir(s->disk, path);
    }
    for (int i = 0; (e == ERR_OK || e == ERR_EXISTS) && i < 256; i++) {
        snprintf(path, sizeof path, "%.480s/cas/%02x", s->dir, (unsigned)i);
        e = store_disk_mkdir(s->disk, path);
    }
    if (e != ERR_OK && e != ERR_EXISTS)
        return e;
    store_path_join(b.dir, s->dir, "cas/tmp");
    return store_disk_list(s->disk, b.dir, remove_tmp, &b);
}

/* Replays what is good; *out_good is where that ends. Decodes a few records ahead of what it applies. */
static enum err replay(struct edge_store *s, struct bytes log, size_t *out_good)
{
    enum { AHEAD = 16 };
    struct edge_record ring[AHEAD];
    size_t at = EDGE_LOG_HEADER, n, in = 0, out = 0;
    enum err e = ERR_OK;
    while (e == ERR_OK || out < in) {
        if (e == ERR_OK && in - out < AHEAD) {
            struct edge_record *r = &ring[in % AHEAD];
            e = edge_record_decode(bytes_of(log.p + at, log.n - at), r, &n);
            if (e != ERR_OK)
                continue;
            edge_catalog_prefetch(&s->catalog, r);
            at += n;
            in++;
        } else {
            enum err applied = edge_catalog_apply(&s->catalog, &ring[out++ % AHEAD]);
            if (applied != ERR_OK)
                return applied;
        }
    }
    *out_good = at;
    return e == ERR_EMPTY ? ERR_OK : e;
}

struct listing {
    struct edge_catalog *catalog;
    size_t n;
    struct sha256 found[512];
};

static void listing_flush(struct listing *l)
{
    edge_catalog_found(l->catalog, l->found, l->n);
    l->n = 0;
}

static enum err object_listed(void *ctx, const char *name)
{
    struct listing *l = ctx;
    if (hex_decode(str_from_c(name), l->found[l->n].b, sizeof l->found[l->n].b) == ERR_OK)
        l->n++;
    if (l->n == sizeof l->found / sizeof *l->found)
        listing_flush(l);
    return ERR_OK;
}

/* A name whose object is not there is forgotten: it will be filled again. Directories are listed, which takes a fraction of asking for
 * each object; what an object holds, and so its length, is looked at when it is first opened. */
RT_BLOCKS
static void drop_lost(struct edge_store *s)
{
    size_t at = 0, n = 0;
    void *value;
    char path[STORE_PATH_MAX];
    struct listing listing = {.catalog = &s->catalog};
    struct sha256 *lost = calloc(map_count(&s->catalog.objects) + 1, sizeof *lost);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%.480s/cas/%02x", s->dir, i);
        enum err e = store_disk_list(s->disk, path, object_listed, &listing);
        listing_flush(&listing);
        if (e != ERR_OK)
            obs_log(svc_log(s->e->svc), OBS_WARN, "objects_not_listed", OBS_U64("folder", i), OBS_ERR(e),
                    OBS_END);
    }
    while (lost && map_next(&s->catalog.objects, &at, NULL, &value)) {
        const struct edge_object *o = value;
        if (!o->found)
            lost[n++] = o->digest;
    }
    for (size_t i = 0; i < n; i++)
        if (edge_catalog_apply(&s->catalog,
                               &(struct edge_record){.type = EDGE_DEL_OBJ, .digest = lost[i]}) != ERR_OK)
            break;
    if (n)
        obs_log(svc_log(s->e->svc), OBS_WARN, "objects_lost", OBS_U64("objects", n), OBS_END);
    free(lost);
}

RT_BLOCKS
static enum err keep_bad(struct edge_store *s, const char *path)
{
    char bad[STORE_PATH_MAX];
    snprintf(bad, sizeof bad, "%.480s.bad-%lld", path, (long long)edge_now_ms(s->e));
    obs_counter_inc(obs_counter_nth(s->e->m[EDGE_M_integrity], 2));
    obs_log(svc_log(s->e->svc), OBS_ERROR, "refs_corrupt", OBS_STR("kept_as", (const char *)bad), OBS_END);
    return store_disk_rename(s->disk, path, bad);
}

/* Writes the catalogue as a new log. */
RT_BLOCKS
static enum err rewrite(struct edge_store *s, const char *path)
{
    uint8_t head[EDGE_LOG_HEADER];
    struct buf b;
    buf_init(&b, (size_t)4 << 30);
    edge_log_header_encode(EDGE_LOG_REFS, (uint64_t)edge_now_ms(s->e), head);
    buf_put(&b, head, sizeof head);
    edge_catalog_dump(&s->catalog, &b);
    enum err e = b.err == ERR_OK ? store_file_replace(s->disk, path, buf_bytes(&b)) : b.err;
    buf_fini(&b);
    return e;
}

RT_BLOCKS
static enum err recover(struct edge_store *s, const char *path)
{
    struct buf log;
    uint64_t created;
    size_t good = 0;
    bool fresh = false;
    buf_init(&log, (size_t)4 << 30);
    enum err e = store_file_slurp(s->disk, path, &log);
    if (e == ERR_NOT_FOUND || (e == ERR_OK && log.n < EDGE_LOG_HEADER)) {
        fresh = true;
        e = ERR_OK;
    } else if (e == ERR_OK) {
        e = edge_log_header_decode(EDGE_LOG_REFS, buf_bytes(&log), &created);
        if (e == ERR_CORRUPT) {
            fresh = true;
            e = keep_bad(s, path);
        } else if (e == ERR_OK)
            e = edge_catalog_expect(&s->catalog, log.n);
        if (e == ERR_OK && !fresh)
            e = replay(s, buf_bytes(&log), &good);
    }
    if (e == ERR_TORN || e == ERR_CORRUPT) {
        bool corrupt = e == ERR_CORRUPT || edge_record_any_after(buf_bytes(&log), good);
        if (corrupt)
            e = keep_bad(s, path);
        else {
            obs_log(svc_log(s->e->svc), OBS_WARN, "refs_truncated", OBS_U64("bytes", log.n - good),
                    OBS_END);
            e = ERR_OK;
        }
        fresh = true;
    }
    buf_fini(&log);
    if (e != ERR_OK)
        return e;
    drop_lost(s);
    return fresh ? rewrite(s, path) : ERR_OK;
}

enum err edge_store_create(struct edge *e, struct edge_store **out)
{
    char path[STORE_PATH_MAX];
    struct edge_store *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    *out = s;
    s->e = e;
    s->disk = svc_disk(e->svc);
    snprintf(s->dir, sizeof s->dir, "%s", svc_data_dir(e->svc));
    rt_lock_init(&s->refs, "refs", 24);
    rt_lock_init(&s->objects, "objects", 25);
    enum err err = edge_catalog_init(&s->catalog);
    if (err == ERR_OK)
        err = map_init(&s->opened, EDGE_OBJECTS_OPEN + 1);
    if (err == ERR_OK)
        err = make_dirs(s);
    store_path_join(path, s->dir, "refs.log");
    if (err == ERR_OK)
        err = recover(s, path);
    if (err == ERR_OK)
        err = store_file_open(s->disk, path, STORE_WRITE, &s->log);
    if (err == ERR_OK)
        err = store_file_size(s->log, &s->log_bytes);
    return err;
}

void edge_store_destroy(struct edge_store *s)
{
    if (!s)
        return;
    while (s->newest)
        opened_free(take_out(s, s->newest));
    map_fini(&s->opened);
    store_file_close(s->log);
    edge_catalog_fini(&s->catalog);
    rt_lock_fini(&s->refs);
    rt_lock_fini(&s->objects);
    free(s);
}
