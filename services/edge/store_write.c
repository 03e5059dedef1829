/*
 * The store as cas_writer changes it. Order of a commit: the objects get their names, their directories are flushed, the
 * records are appended, refs.log is flushed, the catalogue changes, whoever waits is told. A flush that failed is never
 * repeated on the same file: a new log is written from memory, and if that fails too the store only reads until it is
 * started again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"
#include "services/edge/store.h"
#include "store/file_replace.h"
#include "svc/feed.h"

enum { COMPACT_BYTES = 1 << 20, TOUCH_EVERY = EDGE_TOUCH_MAX };

static void log_path(const struct edge_store *s, char out[STORE_PATH_MAX])
{
    store_path_join(out, s->dir, "refs.log");
}

/* A new log from memory, with these records behind it, takes the old one's place. */
RT_BLOCKS
static enum err rewrite_log(struct edge_store *s, struct bytes more)
{
    uint8_t head[EDGE_LOG_HEADER];
    char path[STORE_PATH_MAX];
    struct buf b;
    struct store_file *fresh;
    log_path(s, path);
    buf_init(&b, (size_t)4 << 30);
    edge_log_header_encode(EDGE_LOG_REFS, (uint64_t)edge_now_ms(s->e), head);
    buf_put(&b, head, sizeof head);
    rt_lock_take(&s->refs);
    edge_catalog_dump(&s->catalog, &b);
    rt_lock_release(&s->refs);
    buf_put_bytes(&b, more);
    enum err e = b.err == ERR_OK ? store_file_replace(s->disk, path, buf_bytes(&b)) : b.err;
    if (e == ERR_OK)
        e = store_file_open(s->disk, path, STORE_WRITE, &fresh);
    if (e == ERR_OK) {
        store_file_close(s->log);
        s->log = fresh;
        s->log_bytes = b.n;
    }
    buf_fini(&b);
    return e;
}

static void apply_all(struct edge_store *s, const struct edge_record *const *list, size_t n)
{
    rt_lock_take(&s->refs);
    for (size_t i = 0; i < n; i++)
        if (edge_catalog_apply(&s->catalog, list[i]) != ERR_OK)
            break; /* no memory: the log has it, the next start will */
    rt_lock_release(&s->refs);
}

/*
 * Appends, flushes, then lets the records be seen. What no room was left for is taken back, so that the next ones begin where these
 * did: the log is as good as before. Any other failure leaves a file nobody can be sure of, and a new one is written.
 */
RT_BLOCKS
static enum err write_records(struct edge_store *s, const struct edge_record *const *list, size_t n)
{
    struct buf b;
    if (n == 0)
        return ERR_OK;
    if (atomic_load(&s->readonly))
        return ERR_UNAVAILABLE;
    buf_init(&b, n * (EDGE_RECORD_MAX + EDGE_RECORD_HEAD));
    for (size_t i = 0; i < n; i++)
        edge_record_encode(list[i], &b);
    enum err e = b.err;
    if (e == ERR_OK)
        e = store_file_pwrite(s->log, b.p, b.n, s->log_bytes);
    bool taken_back = e == ERR_NO_SPACE && store_file_truncate(s->log, s->log_bytes) == ERR_OK;
    if (e == ERR_OK)
        e = store_file_sync(s->log);
    if (e == ERR_OK)
        s->log_bytes += b.n;
    else if (!taken_back && (e = rewrite_log(s, buf_bytes(&b))) != ERR_OK) {
        atomic_store(&s->readonly, true);
        obs_log(svc_log(s->e->svc), OBS_ERROR, "store_readonly", OBS_ERR(e), OBS_END);
    }
    if (e == ERR_OK)
        apply_all(s, list, n);
    buf_fini(&b);
    return e;
}

/* ---- commits ---- */

RT_BLOCKS
static enum err place_object(struct edge_store *s, struct edge_commit *c)
{
    char path[STORE_PATH_MAX], dir[STORE_PATH_MAX];
    struct store_stat st;
    if (!c->tmp[0])
        return ERR_OK;
    edge_store_object_path(s, &c->record.digest, path);
    bool there = store_disk_stat(s->disk, path, &st) == ERR_OK && st.bytes == c->record.size;
    /* Where the same bytes are already they are replaced: these have just been hashed, those may be damaged by now. */
    enum err e = store_disk_rename(s->disk, c->tmp, path);
    if (e == ERR_OK && store_path_dir(path, dir))
        e = store_disk_sync_dir(s->disk, dir);
    if (e == ERR_OK) /* what fails is counted by whoever asked for it, wherever it failed */
        obs_counter_inc(obs_counter_nth(s->e->m[EDGE_M_cas_writes], there ? 1 : 0));
    return e;
}

static void set_since(struct edge_store *s, struct edge_record *r)
{
    uint64_t before = 0;
    bool same = false;
    if (r->type != EDGE_PUT_REF)
        return;
    rt_lock_take(&s->refs);
    struct edge_ref *old = edge_catalog_ref(&s->catalog, r->name);
    if (old) {
        before = old->since_ms / 1000;
        same = sha256_eq(&old->object->digest, &r->digest);
    }
    rt_lock_release(&s->refs);
    r->since_ms = 1000 * (same ? before : edge_since_next(edge_now_ms(s->e), before));
}

RT_BLOCKS
static bool low_on_space(struct edge_store *s)
{
    uint64_t left;
    if (svc_amnesia(s->e->svc))
        return false;
    bool low =
        store_disk_free_bytes(s->disk, s->dir, &left) == ERR_OK && left < edge_config(s->e)->cas_min_free;
    atomic_store(&s->full, low);
    return low;
}

RT_BLOCKS
static void evict(struct edge_store *s, bool force, uint64_t spare_from);

/*
 * What was just stored counts as used now. Whoever waited for it has still to open it: returns the number of the first of these
 * uses, so that the eviction which follows leaves them alone. One that is too large for the store goes with the next.
 */
static uint64_t use_stored(struct edge_store *s, struct edge_commit **list, size_t n)
{
    int64_t now_ms = edge_now_ms(s->e);
    rt_lock_take(&s->refs);
    uint64_t first = s->catalog.uses + 1;
    for (size_t i = 0; i < n; i++) {
        const struct edge_commit *c = list[i];
        struct edge_object *o = NULL;
        if (c->result == ERR_OK && (c->nameless || c->record.type == EDGE_PUT_REF))
            o = edge_catalog_object(&s->catalog, &c->record.digest);
        if (o)
            edge_catalog_use(&s->catalog, o, now_ms);
    }
    rt_lock_release(&s->refs);
    return first;
}

/* An object nobody has a name for; after a restart the scrub finds it again. */
static enum err adopt(struct edge_store *s, const struct sha256 *digest, uint64_t size)
{
    rt_lock_take(&s->refs);
    enum err e = edge_catalog_adopt(&s->catalog, digest, size, (uint32_t)(edge_now_ms(s->e) / 1000));
    rt_lock_release(&s->refs);
    return e;
}

void edge_store_commit(struct edge_store *s, struct edge_commit **list, size_t n)
{
    const struct edge_record *records[64] = {NULL};
    size_t good = 0;
    CHECK(n <= 64);
    bool low = low_on_space(s);
    for (size_t i = 0; i < n; i++) {
        struct edge_commit *c = list[i];
        c->result = low && c->tmp[0] ? ERR_NO_SPACE : place_object(s, c);
        set_since(s, &c->record);
        if (c->result == ERR_OK && c->nameless)
            c->result = adopt(s, &c->record.digest, c->record.size);
        else if (c->result == ERR_OK)
            records[good++] = &c->record;
    }
    enum err e = write_records(s, records, good);
    if (e == ERR_NO_SPACE)
        edge_store_want_room(s);
    if (e == ERR_OK && good)
        atomic_store(&s->failed, false);
    for (size_t i = 0; i < n; i++) {
        struct edge_commit *c = list[i];
        if (c->result == ERR_OK && !c->nameless)
            c->result = e;
        else if (c->result != ERR_OK && c->tmp[0] && store_disk_unlink(s->disk, c->tmp) != ERR_OK)
            obs_log(svc_log(s->e->svc), OBS_WARN, "temp_left", OBS_END);
    }
    uint64_t spare_from = use_stored(s, list, n);
    for (size_t i = 0; i < n; i++) {
        struct edge_commit *c = list[i];
        if (rt_oneshot_send(&c->done, c) != ERR_OK)
            obs_log(svc_log(s->e->svc), OBS_DEBUG, "commit_unwaited", OBS_END);
        edge_commit_unref(c);
    }
    evict(s, low, spare_from);
}

/* ---- removal ---- */

/*
 * Opened ones are forgotten at once, and by whoever removes the file again afterwards: somebody may have opened it meanwhile. No
 * name may point to one that goes, unless there is no room to say so: then the files go first (a start forgets names whose object is
 * not there), and the log hears of it when that has made room.
 */
RT_BLOCKS
static enum err remove_objects(struct edge_store *s, const struct sha256 *list, size_t n,
                               enum edge_record_type type)
{
    char path[STORE_PATH_MAX];
    enum err e = ERR_OK;
    for (size_t at = 0; e == ERR_OK && at < n; at += 64) {
        struct edge_record records[64];
        const struct edge_record *view[64];
        size_t here = n - at < 64 ? n - at : 64;
        for (size_t i = 0; i < here; i++) {
            records[i] = (struct edge_record){
                .type = type, .digest = list[at + i], .at_ms = (uint64_t)edge_now_ms(s->e)};
            view[i] = &records[i];
            edge_store_forget(s, &list[at + i]);
        }
        e = write_records(s, view, here);
        bool unsaid = e == ERR_NO_SPACE && type == EDGE_DEL_OBJ && !atomic_load(&s->readonly);
        if (unsaid) {
            apply_all(s, view, here);
            e = ERR_OK;
        }
        for (size_t i = 0; e == ERR_OK && type == EDGE_DEL_OBJ && i < here; i++) {
            edge_store_object_path(s, &list[at + i], path);
            enum err gone = store_disk_unlink(s->disk, path);
            if (gone != ERR_OK && gone != ERR_NOT_FOUND)
                obs_log(svc_log(s->e->svc), OBS_WARN, "object_left", OBS_ERR(gone), OBS_END);
            edge_store_forget(s, &list[at + i]);
        }
        if (unsaid)
            e = write_records(s, view, here);
    }
    return e;
}

RT_BLOCKS
static void evict(struct edge_store *s, bool force, uint64_t spare_from)
{
    const struct edge_config *cfg = edge_config(s->e);
    struct edge_limits limits = {.bytes = cfg->cas_max_bytes,
                                 .objects = cfg->cas_max_objects,
                                 .force = force,
                                 .spare_from = spare_from};
    struct sha256 *gone = NULL;
    size_t n = 0;
    if (svc_amnesia(s->e->svc) && limits.bytes > cfg->cas_amnesia)
        limits.bytes = cfg->cas_amnesia;
    rt_lock_take(&s->refs);
    enum err e = edge_catalog_victims(&s->catalog, &limits, &gone, &n);
    rt_lock_release(&s->refs);
    if (e == ERR_OK && n) {
        e = remove_objects(s, gone, n, EDGE_DEL_OBJ);
        obs_counter_add(obs_counter(s->e->m[EDGE_M_evictions]), n);
        svc_feed_tell(s->e->events, "cas_evicted", "{\"objects\":%zu}", n);
        obs_log(svc_log(s->e->svc), OBS_INFO, "cas_evicted", OBS_U64("objects", n), OBS_ERR(e), OBS_END);
    }
    free(gone);
}

void edge_store_look_for_room(struct edge_store *s)
{
    if (atomic_exchange(&s->wants_room, false))
        evict(s, true, 0);
    low_on_space(s);
}

void edge_store_probe(struct edge_store *s)
{
    char path[STORE_PATH_MAX];
    struct store_file *f;
    store_path_join(path, s->dir, "cas/tmp/probe");
    enum err e = store_file_open(s->disk, path, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (e != ERR_OK)
        return;
    e = store_file_append(f, "?", 1);
    if (e == ERR_OK)
        e = store_file_sync(f);
    store_file_close(f);
    if (store_disk_unlink(s->disk, path) == ERR_OK && e == ERR_OK)
        atomic_store(&s->failed, false);
}

struct oldest {
    struct edge_store *s;
    size_t n;
    char name[128];
};

static enum err find_oldest(void *ctx, const char *name)
{
    struct oldest *o = ctx;
    const char *at = strrchr(name, '.'), *best = strrchr(o->name, '.');
    o->n++;
    if (at && strlen(name) < sizeof o->name && (!best || strcmp(at, best) < 0))
        snprintf(o->name, sizeof o->name, "%s", name);
    return ERR_OK;
}

RT_BLOCKS
static void quarantine(struct edge_store *s, const struct sha256 *digest)
{
    char path[STORE_PATH_MAX], dir[STORE_PATH_MAX], to[STORE_PATH_MAX];
    struct oldest old = {.s = s};
    if (remove_objects(s, digest, 1, EDGE_QUARANTINE) != ERR_OK)
        return;
    edge_store_object_path(s, digest, path);
    store_path_join(dir, s->dir, "cas/quarantine");
    if (store_disk_list(s->disk, dir, find_oldest, &old) == ERR_OK && old.n >= EDGE_QUARANTINE_FILES &&
        old.name[0]) {
        store_path_join(to, dir, old.name);
        if (store_disk_unlink(s->disk, to) != ERR_OK)
            return;
    }
    snprintf(to, sizeof to, "%.300s/%s.%lld", dir, strrchr(path, '/') + 1, (long long)edge_now_ms(s->e));
    enum err e = store_disk_rename(s->disk, path, to);
    edge_store_forget(s, digest);
    svc_feed_tell(s->e->events, "cas_quarantined", "{\"object\":\"%.64s\"}", strrchr(path, '/') + 1);
    obs_log(svc_log(s->e->svc), OBS_ERROR, "cas_quarantined", OBS_STR("file", (const char *)to), OBS_ERR(e),
            OBS_END);
}

/* Somebody did not find its file. Nobody but us makes or removes any, so what is not there now is gone. */
RT_BLOCKS
static void forget_lost(struct edge_store *s, const struct sha256 *digest)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    edge_store_object_path(s, digest, path);
    rt_lock_take(&s->refs);
    bool named = edge_catalog_object(&s->catalog, digest) != NULL;
    rt_lock_release(&s->refs);
    if (!named || store_disk_stat(s->disk, path, &st) != ERR_NOT_FOUND)
        return;
    enum err e = remove_objects(s, digest, 1, EDGE_DEL_OBJ);
    obs_log(svc_log(s->e->svc), OBS_WARN, "objects_lost", OBS_U64("objects", 1), OBS_ERR(e), OBS_END);
}

RT_BLOCKS
static void purge(struct edge_store *s, struct edge_store_op *op)
{
    uint64_t size = 0, names = 0;
    char body[256], hex[SHA256_TEXT_CHARS];
    rt_lock_take(&s->refs);
    struct edge_object *o = edge_catalog_object(&s->catalog, &op->digest);
    for (const struct edge_ref *r = o ? o->refs : NULL; r; r = r->next)
        names++;
    size = o ? o->size : 0;
    rt_lock_release(&s->refs);
    if (!o) {
        net_reply_problem(op->rq, ERR_NOT_FOUND, "there is no such object");
        return;
    }
    enum err e = remove_objects(s, &op->digest, 1, EDGE_DEL_OBJ);
    if (e != ERR_OK) {
        net_reply_problem(op->rq, ERR_UNAVAILABLE, "the store cannot be written");
        return;
    }
    sha256_format(&op->digest, hex);
    int n = snprintf(body, sizeof body, "{\"digest\":\"%s\",\"bytes\":%llu,\"names\":%llu}", hex,
                     (unsigned long long)size, (unsigned long long)names);
    net_reply_json(op->rq, 200, bytes_of(body, (size_t)n));
}

void edge_store_do(struct edge_store *s, struct edge_store_op *op)
{
    struct edge_record since = {
        .type = EDGE_PACK_SINCE, .name = str_from_c(op->name), .since_s = op->number, .digest = op->digest};
    const struct edge_record *one = &since;
    switch (op->kind) {
    case EDGE_OP_PURGE:
        purge(s, op);
        return;
    case EDGE_OP_QUARANTINE:
        quarantine(s, &op->digest);
        return;
    case EDGE_OP_LOST:
        forget_lost(s, &op->digest);
        return;
    case EDGE_OP_PACK_SINCE:
        if (write_records(s, &one, 1) != ERR_OK)
            obs_log(svc_log(s->e->svc), OBS_WARN, "pack_since_not_kept", OBS_END);
        return;
    case EDGE_OP_ADOPT:
        if (adopt(s, &op->digest, op->number) != ERR_OK)
            obs_counter_inc(obs_counter_nth(s->e->m[EDGE_M_cas_writes], 2));
        return;
    }
}

/* ---- upkeep ---- */

/* Collects up to 1,024 objects used since the log last heard of them. */
static size_t collect_touches(struct edge_store *s, struct buf *out)
{
    size_t at = 0, n = 0;
    void *value;
    rt_lock_take(&s->refs);
    while (n < TOUCH_EVERY && map_next(&s->catalog.objects, &at, NULL, &value)) {
        struct edge_object *o = value;
        if (o->last_use_s == o->touched_s)
            continue;
        o->touched_s = o->last_use_s;
        edge_touch_put(out, &o->digest, o->last_use_s);
        n++;
    }
    rt_lock_release(&s->refs);
    return n;
}

static enum err drop_old(void *ctx, const char *name) RT_UNCHECKED
{
    struct edge_store *s = ctx;
    char path[STORE_PATH_MAX];
    const char *at = strrchr(name, '.');
    uint64_t since_ms;
    if (!at || str_parse_u64(str_from_c(at + 1), &since_ms) != ERR_OK ||
        edge_now_ms(s->e) < (int64_t)since_ms + EDGE_QUARANTINE_DAYS * INT64_C(86400000))
        return ERR_OK;
    snprintf(path, sizeof path, "%.300s/cas/quarantine/%.100s", s->dir, name);
    return store_disk_unlink(s->disk, path);
}

RT_BLOCKS
static void drop_old_quarantine(struct edge_store *s)
{
    char dir[STORE_PATH_MAX];
    store_path_join(dir, s->dir, "cas/quarantine");
    enum err e = store_disk_list(s->disk, dir, drop_old, s);
    if (e != ERR_OK)
        obs_log(svc_log(s->e->svc), OBS_WARN, "quarantine_left", OBS_ERR(e), OBS_END);
}

/* Without room for a second log the first one goes on. */
RT_BLOCKS
static enum err compact(struct edge_store *s)
{
    enum err e = rewrite_log(s, bytes_of(NULL, 0));
    if (e != ERR_OK)
        obs_log(svc_log(s->e->svc), OBS_WARN, "refs_not_compacted", OBS_ERR(e), OBS_END);
    return e == ERR_NO_SPACE ? ERR_OK : e;
}

void edge_store_upkeep(struct edge_store *s, bool last)
{
    struct buf touches;
    size_t n;
    drop_old_quarantine(s);
    buf_init(&touches, TOUCH_EVERY * EDGE_TOUCH_BYTES);
    do {
        buf_reset(&touches);
        n = collect_touches(s, &touches);
        struct edge_record r = {.type = EDGE_TOUCH, .touches = buf_bytes(&touches)};
        const struct edge_record *one = &r;
        if (n && write_records(s, &one, 1) != ERR_OK)
            break;
    } while (last && n == TOUCH_EVERY);
    buf_fini(&touches);
    rt_lock_take(&s->refs);
    uint64_t live = s->catalog.ref_bytes + map_count(&s->catalog.objects) * EDGE_TOUCH_BYTES;
    rt_lock_release(&s->refs);
    if (!atomic_load(&s->readonly) && s->log_bytes > COMPACT_BYTES && s->log_bytes / 2 > live &&
        compact(s) != ERR_OK)
        atomic_store(&s->readonly, true);
    evict(s, false, 0);
}
