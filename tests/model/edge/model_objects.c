/*
 * One object of the store, by store.c and store_write.c themselves on a disk of one file: somebody opens it while the writer
 * removes it and stores it again.
 *
 *   purge, evict   a name that is seen always has its object on disk
 *   quarantine     besides: the object has become damaged. Who begins after it was put aside never gets the damaged file, not
 *                  even out of the cache of opened objects, into which a reader may have put it late
 *
 * Opened files are mappings: damage that comes later shows through.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "services/edge/store.h"
#include "svc/feed.h"

enum { OLD = 1, FRESH = 2, FILES = 3 };

enum removal { PURGE, EVICT, QUARANTINE };

static struct edge_config config;

struct shelf {
    struct store_disk disk; /* first: the store only knows this */
    struct edge e;
    struct store_file log;
    enum removal removal;
    struct os_a32 object;         /* which file has the object's name, 0: none */
    struct os_a32 damaged[FILES]; /* its bytes are not what its name says */
    struct os_a32 removed; /* release by the writer when the removal has returned; acquire by who begins */
};

struct opened {
    struct store_file f;
    uint32_t file;
};

static const struct sha256 digest = {{7}};

static struct shelf *shelf_of(struct store_disk *d)
{
    return (struct shelf *)(void *)d;
}

/* ---- a disk that holds the object, its temporary file, and a log nobody reads ---- */

static enum err disk_open(struct store_disk *d, const char *path, unsigned flags, struct store_file **out)
{
    (void)path;
    CHECK(flags == STORE_READ);
    uint32_t file = os_a32_load(&shelf_of(d)->object, memory_order_acquire);
    if (!file)
        return ERR_NOT_FOUND;
    struct opened *o = calloc(1, sizeof *o);
    CHECK(o);
    *o = (struct opened){.f.disk = d, .file = file};
    *out = &o->f;
    return ERR_OK;
}

static enum err disk_close(struct store_file *f)
{
    if (f != &shelf_of(f->disk)->log)
        free(f);
    return ERR_OK;
}

/* A file's one byte says which file it is. */
static enum err disk_pread(struct store_file *f, void *p, size_t n, uint64_t at, size_t *out_n)
{
    CHECK(n == 1 && at == 0);
    *(uint8_t *)p = (uint8_t)((struct opened *)(void *)f)->file;
    *out_n = 1;
    return ERR_OK;
}

static enum err disk_size(struct store_file *f, uint64_t *out)
{
    (void)f;
    *out = 1;
    return ERR_OK;
}

static int disk_fd(struct store_file *f)
{
    (void)f;
    return -1;
}

static enum err disk_pwrite(struct store_file *f, const void *p, size_t n, uint64_t at)
{
    (void)p;
    (void)n;
    (void)at;
    CHECK(f == &shelf_of(f->disk)->log);
    return ERR_OK;
}

static enum err disk_sync(struct store_file *f)
{
    (void)f;
    return ERR_OK;
}

static enum err disk_sync_dir(struct store_disk *d, const char *dir)
{
    (void)d;
    (void)dir;
    return ERR_OK;
}

static enum err disk_rename(struct store_disk *d, const char *from, const char *to)
{
    (void)to;
    os_a32_store(&shelf_of(d)->object, strstr(from, "/tmp/") ? FRESH : 0, memory_order_release);
    return ERR_OK;
}

static enum err disk_unlink(struct store_disk *d, const char *path)
{
    if (!strstr(path, "/tmp/"))
        os_a32_store(&shelf_of(d)->object, 0, memory_order_release);
    return ERR_OK;
}

static enum err disk_list(struct store_disk *d, const char *dir, store_list_fn *fn, void *ctx)
{
    (void)d;
    (void)dir;
    (void)fn;
    (void)ctx;
    return ERR_OK;
}

static enum err disk_stat(struct store_disk *d, const char *path, struct store_stat *out)
{
    (void)path;
    if (!os_a32_load(&shelf_of(d)->object, memory_order_acquire))
        return ERR_NOT_FOUND;
    *out = (struct store_stat){.bytes = 1};
    return ERR_OK;
}

static enum err disk_free_bytes(struct store_disk *d, const char *dir, uint64_t *out)
{
    (void)d;
    (void)dir;
    *out = UINT64_MAX;
    return ERR_OK;
}

static const struct store_disk_ops disk_ops = {.open = disk_open,
                                               .close = disk_close,
                                               .pread = disk_pread,
                                               .pwrite = disk_pwrite,
                                               .sync = disk_sync,
                                               .size = disk_size,
                                               .fd = disk_fd,
                                               .sync_dir = disk_sync_dir,
                                               .rename = disk_rename,
                                               .unlink = disk_unlink,
                                               .list = disk_list,
                                               .stat = disk_stat,
                                               .free_bytes = disk_free_bytes};

/* ---- opened files ---- */

struct mapping {
    struct edge_file f;
    struct os_a32 refs;
    uint32_t file;
};

static struct mapping *mapping_of(struct edge_file *f)
{
    return (struct mapping *)(void *)f;
}

enum err edge_file_of_memory(const uint8_t *p, size_t n, bool owned, struct edge_file **out)
{
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m && n == 1 && owned);
    m->f.size = n;
    m->file = p[0];
    os_a32_store(&m->refs, 1, memory_order_relaxed);
    union {
        const uint8_t *c;
        void *p;
    } copy = {p};
    free(copy.p);
    *out = &m->f;
    return ERR_OK;
}

enum err edge_file_of_fd(int fd, struct edge_file **out)
{
    (void)fd;
    (void)out;
    UNREACHABLE();
}

struct edge_file *edge_file_ref(struct edge_file *f)
{
    os_a32_add(&mapping_of(f)->refs, 1, memory_order_relaxed);
    return f;
}

void edge_file_unref(struct edge_file *f)
{
    if (os_a32_add(&mapping_of(f)->refs, (uint32_t)-1, memory_order_acq_rel) == 1)
        free(f);
}

static struct shelf *now; /* of the run */

static bool is_damaged(struct edge_file *f)
{
    return os_a32_load(&now->damaged[mapping_of(f)->file], memory_order_acquire) != 0;
}

enum err edge_file_hash(struct edge_file *f, uint64_t at, uint64_t n, struct sha256 *out)
{
    (void)at;
    (void)n;
    *out = digest;
    out->b[31] = is_damaged(f) ? 1 : 0;
    return ERR_OK;
}

/* Damage leaves no trace in a file's times. */
bool edge_file_unchanged_at(struct edge_file *f, int64_t now_ns, int64_t every_ns)
{
    (void)f;
    (void)now_ns;
    (void)every_ns;
    return true;
}

/* ---- the rest of the service ---- */

static int64_t no_time(void *ctx)
{
    (void)ctx;
    return 1000;
}

static const struct clock still = {.mono_ns = no_time, .wall_ms = no_time};

const void *svc_config(const struct svc *s)
{
    (void)s;
    return &config;
}

struct obs_log *svc_log(const struct svc *s)
{
    (void)s;
    return NULL;
}

bool svc_amnesia(const struct svc *s)
{
    (void)s;
    return false;
}

struct store_disk *svc_disk(const struct svc *s)
{
    (void)s;
    return &now->disk;
}

const char *svc_data_dir(const struct svc *s)
{
    (void)s;
    return "edge";
}

void svc_feed_tell(struct svc_feed *f, const char *name, const char *json_fmt, ...)
{
    (void)f;
    (void)name;
    (void)json_fmt;
}

void net_reply_json(struct net_req *rq, int status, struct bytes body)
{
    (void)rq;
    (void)body;
    CHECK(status == 200);
}

void net_reply_problem(struct net_req *rq, enum err e, const char *detail_fmt, ...)
{
    (void)rq;
    (void)e;
    (void)detail_fmt;
    UNREACHABLE(); /* the object is there when it is purged */
}

/* ---- who takes part ---- */

static void check_name_has_object(struct shelf *s)
{
    struct edge_store *st = s->e.store;
    rt_lock_take(&st->refs);
    if (edge_catalog_ref(&st->catalog, STR("x")))
        CHECK(os_a32_load(&s->object, memory_order_acquire) != 0);
    rt_lock_release(&st->refs);
}

static void request(void *arg) RT_UNCHECKED
{
    struct shelf *s = arg;
    struct edge_hit hit;
    struct edge_file *f;
    bool late = os_a32_load(&s->removed, memory_order_acquire) != 0;
    check_name_has_object(s);
    if (!edge_store_find(s->e.store, STR("x"), &hit)) {
        model_cover(0);
        return;
    }
    enum err e = edge_store_open(s->e.store, &hit.digest, false, &f);
    if (e != ERR_OK) {
        model_cover(1); /* removed meanwhile, or seen to be damaged: the next request fills it again */
        CHECK(e == ERR_NOT_FOUND || (e == ERR_CORRUPT && s->removal == QUARANTINE));
        return;
    }
    model_cover(2);
    CHECK(!late || !is_damaged(f));
    edge_file_unref(f);
}

static void remove_object(struct shelf *s) RT_UNCHECKED
{
    struct edge_store *st = s->e.store;
    if (s->removal == EVICT) {
        config.cas_max_bytes = 0;
        edge_store_upkeep(st, false);
        config.cas_max_bytes = 1000;
        return;
    }
    if (s->removal == QUARANTINE)
        os_a32_store(&s->damaged[OLD], 1, memory_order_release);
    edge_store_do(st,
                  &(struct edge_store_op){.kind = s->removal == PURGE ? EDGE_OP_PURGE : EDGE_OP_QUARANTINE,
                                          .digest = digest});
}

static void store_again(struct edge_store *st) RT_UNCHECKED
{
    void *told;
    struct edge_commit *c = calloc(1, sizeof *c);
    CHECK(c);
    atomic_init(&c->refs, 2);
    rt_oneshot_init(&c->done);
    snprintf(c->tmp, sizeof c->tmp, "edge/cas/tmp/0");
    c->record = (struct edge_record){.type = EDGE_PUT_REF, .name = STR("x"), .size = 1, .digest = digest};
    edge_store_commit(st, &c, 1);
    CHECK(rt_oneshot_recv(&c->done, deadline_in_ms(1), &told) == ERR_OK && c->result == ERR_OK);
    edge_commit_unref(c);
}

static void write_store(void *arg) RT_UNCHECKED
{
    struct shelf *s = arg;
    struct edge_hit hit;
    struct edge_file *f;
    remove_object(s);
    os_a32_store(&s->removed, 1, memory_order_release);
    CHECK(!edge_store_find(s->e.store, STR("x"), &hit));
    store_again(s->e.store);
    CHECK(edge_store_find(s->e.store, STR("x"), &hit));
    CHECK(edge_store_open(s->e.store, &hit.digest, true, &f) == ERR_OK);
    CHECK(!is_damaged(f)); /* neither from disk nor out of the cache */
    edge_file_unref(f);
}

static void shelf_open(struct shelf *s, enum removal removal)
{
    struct edge_store *st = calloc(1, sizeof *st);
    CHECK(st && edge_catalog_init(&st->catalog) == ERR_OK && map_init(&st->opened, 4) == ERR_OK);
    *s = (struct shelf){.disk.ops = &disk_ops, .removal = removal};
    s->log.disk = &s->disk;
    os_a32_store(&s->object, OLD, memory_order_relaxed);
    now = s;
    config = (struct edge_config){.cas_max_bytes = 1000, .cas_max_objects = 1000};
    s->e.clock = &still;
    s->e.store = st;
    s->e.store_ops =
        rt_chan_create(&(struct rt_chan_spec){.name = "store_ops", .capacity = 4, .policy = RT_REJECT});
    CHECK(s->e.store_ops);
    st->e = &s->e;
    st->disk = &s->disk;
    st->log = &s->log;
    snprintf(st->dir, sizeof st->dir, "edge");
    rt_lock_init(&st->refs, "refs", 24);
    rt_lock_init(&st->objects, "objects", 25);
    CHECK(edge_catalog_apply(
              &st->catalog,
              &(struct edge_record){.type = EDGE_PUT_REF, .name = STR("x"), .size = 1, .digest = digest}) ==
          ERR_OK);
}

static void shelf_close(struct shelf *s) RT_UNCHECKED
{
    void *op;
    while (rt_chan_try_recv(s->e.store_ops, &op) == ERR_OK)
        free(op);
    rt_chan_destroy(s->e.store_ops, NULL, NULL);
    edge_store_destroy(s->e.store);
}

static void race(enum removal removal)
{
    struct shelf *s = calloc(1, sizeof *s);
    struct os_thread r, w;
    CHECK(s);
    shelf_open(s, removal);
    CHECK(os_thread_start(&r, "reader", request, s) == ERR_OK);
    CHECK(os_thread_start(&w, "cas_writer", write_store, s) == ERR_OK);
    os_thread_join(&r);
    os_thread_join(&w);
    check_name_has_object(s);
    shelf_close(s);
    free(s);
}

static void purge(void)
{
    race(PURGE);
}

static void evict(void)
{
    race(EVICT);
}

static void quarantine(void)
{
    race(QUARANTINE);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "purge", .body = purge, .covers = 3},
        {.name = "evict", .body = evict, .covers = 3},
        {.name = "quarantine", .body = quarantine, .covers = 3},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
