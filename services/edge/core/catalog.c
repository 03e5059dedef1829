#include "services/edge/core/catalog.h"

#include <stdlib.h>

#include "base/check.h"

enum { PUT_REF_FIXED = EDGE_RECORD_HEAD + 72, PACK_SINCE_FIXED = EDGE_RECORD_HEAD + 44 };
enum { PLACES_AHEAD = 16, KEYS_AHEAD = 8 }; /* of many objects that are looked up in a row */

static struct bytes digest_key(const struct sha256 *d)
{
    return bytes_of(d->b, sizeof d->b);
}

enum err edge_catalog_init(struct edge_catalog *c)
{
    *c = (struct edge_catalog){0};
    enum err e = map_init(&c->refs, 0);
    if (e == ERR_OK)
        e = map_init(&c->objects, 0);
    return e == ERR_OK ? map_init(&c->packs, 0) : e;
}

enum err edge_catalog_expect(struct edge_catalog *c, uint64_t log_bytes)
{
    size_t names = log_bytes / (PUT_REF_FIXED + 1);
    enum err e = map_reserve(&c->refs, names);
    return e == ERR_OK ? map_reserve(&c->objects, names) : e;
}

static void free_all(struct map *m)
{
    size_t at = 0;
    void *value;
    while (map_next(m, &at, NULL, &value))
        free(value);
    map_fini(m);
}

void edge_catalog_fini(struct edge_catalog *c)
{
    free_all(&c->refs);
    free_all(&c->objects);
    free_all(&c->packs);
}

struct edge_ref *edge_catalog_ref(const struct edge_catalog *c, struct str name)
{
    return map_get(&c->refs, bytes_of_str(name));
}

struct edge_object *edge_catalog_object(const struct edge_catalog *c, const struct sha256 *digest)
{
    return map_get(&c->objects, digest_key(digest));
}

const struct edge_pack_since *edge_catalog_pack(const struct edge_catalog *c, struct str name)
{
    return map_get(&c->packs, bytes_of_str(name));
}

static uint64_t ref_cost(const struct edge_ref *r)
{
    return PUT_REF_FIXED + r->name.n + r->mime.n + r->etag.n;
}

static void unlink_ref(struct edge_ref *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        r->object->refs = r->next;
    if (r->next)
        r->next->prev = r->prev;
}

/* Of one that is in the map no more. */
static void ref_free(struct edge_catalog *c, struct edge_ref *r)
{
    unlink_ref(r);
    c->ref_bytes -= ref_cost(r);
    free(r);
}

static void drop_ref(struct edge_catalog *c, struct edge_ref *r)
{
    CHECK(map_remove(&c->refs, bytes_of_str(r->name)) == r);
    ref_free(c, r);
}

static struct str keep(char **at, struct str s)
{
    if (s.n)
        memcpy(*at, s.p, s.n);
    struct str kept = str_of(*at, s.n);
    *at += s.n;
    return kept;
}

static enum err object_add(struct edge_catalog *c, const struct sha256 *digest, uint64_t size,
                           uint32_t use_s, struct edge_object **out)
{
    struct edge_object *o = edge_catalog_object(c, digest);
    if (!o) {
        o = calloc(1, sizeof *o);
        if (!o)
            return ERR_NO_MEMORY;
        *o = (struct edge_object){.digest = *digest, .size = size, .last_use_s = use_s, .touched_s = use_s};
        enum err e = map_add(&c->objects, digest_key(&o->digest), o);
        if (e != ERR_OK) {
            free(o);
            return e;
        }
        c->bytes += size;
    }
    *out = o;
    return ERR_OK;
}

enum err edge_catalog_adopt(struct edge_catalog *c, const struct sha256 *digest, uint64_t size,
                            uint32_t last_use_s)
{
    struct edge_object *o;
    return object_add(c, digest, size, last_use_s, &o);
}

static enum err put_ref(struct edge_catalog *c, const struct edge_record *rec)
{
    struct edge_object *o;
    struct edge_ref *r = malloc(sizeof *r + rec->name.n + rec->mime.n + rec->etag.n);
    if (!r)
        return ERR_NO_MEMORY;
    enum err e = object_add(c, &rec->digest, rec->size, (uint32_t)(rec->fetched_ms / 1000), &o);
    if (e != ERR_OK) {
        free(r);
        return e;
    }
    char *at = (char *)(r + 1);
    *r = (struct edge_ref){.object = o,
                           .fetched_ms = rec->fetched_ms,
                           .valid_until_ms = rec->valid_until_ms,
                           .since_ms = rec->since_ms,
                           .name = keep(&at, rec->name),
                           .mime = keep(&at, rec->mime),
                           .etag = keep(&at, rec->etag)};
    void *old;
    e = map_put(&c->refs, bytes_of_str(r->name), r, &old);
    if (e != ERR_OK) {
        free(r);
        return e;
    }
    if (old)
        ref_free(c, old);
    r->next = o->refs;
    if (r->next)
        r->next->prev = r;
    o->refs = r;
    c->ref_bytes += ref_cost(r);
    return ERR_OK;
}

static void del_object(struct edge_catalog *c, const struct sha256 *digest)
{
    struct edge_object *o = edge_catalog_object(c, digest);
    if (!o)
        return;
    while (o->refs)
        drop_ref(c, o->refs); /* NOLINT(clang-analyzer-unix.Malloc): it is taken out of the list */
    map_remove(&c->objects, digest_key(digest));
    c->bytes -= o->size;
    free(o);
}

/* The i-th of many: meanwhile what the next ones need is on its way. */
static struct edge_object *one_of_many(const struct edge_catalog *c, const void *digests, size_t stride,
                                       size_t n, size_t i)
{
    const uint8_t *at = (const uint8_t *)digests + i * stride;
    if (n - i > PLACES_AHEAD)
        map_prefetch_place(&c->objects, bytes_of(at + PLACES_AHEAD * stride, sizeof(struct sha256)));
    if (n - i > KEYS_AHEAD)
        map_prefetch(&c->objects, bytes_of(at + KEYS_AHEAD * stride, sizeof(struct sha256)));
    return map_get(&c->objects, bytes_of(at, sizeof(struct sha256)));
}

void edge_catalog_found(struct edge_catalog *c, const struct sha256 *digests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct edge_object *o = one_of_many(c, digests, sizeof *digests, n, i);
        if (o)
            o->found = true;
    }
}

static void touch(struct edge_catalog *c, struct bytes touches)
{
    for (size_t i = 0; i < touches.n / EDGE_TOUCH_BYTES; i++) {
        struct sha256 digest;
        uint32_t at_s;
        edge_touch_at(touches, i, &digest, &at_s);
        struct edge_object *o =
            one_of_many(c, touches.p, EDGE_TOUCH_BYTES, touches.n / EDGE_TOUCH_BYTES, i);
        if (!o)
            continue;
        o->touched_s = o->last_use_s = at_s; /* the log's word is the last one */
    }
}

static enum err put_pack(struct edge_catalog *c, const struct edge_record *rec)
{
    struct edge_pack_since *p = malloc(sizeof *p + rec->name.n);
    void *old;
    if (!p)
        return ERR_NO_MEMORY;
    char *at = (char *)(p + 1);
    *p = (struct edge_pack_since){rec->since_s, rec->digest, keep(&at, rec->name)};
    enum err e = map_put(&c->packs, bytes_of_str(p->name), p, &old);
    if (e != ERR_OK) {
        free(p);
        return e;
    }
    if (!old)
        c->ref_bytes += PACK_SINCE_FIXED + p->name.n;
    free(old);
    return ERR_OK;
}

enum err edge_catalog_apply(struct edge_catalog *c, const struct edge_record *rec)
{
    struct edge_ref *r;
    switch (rec->type) {
    case EDGE_PUT_REF:
        return put_ref(c, rec);
    case EDGE_DEL_REF:
        r = edge_catalog_ref(c, rec->name);
        if (r)
            drop_ref(c, r);
        return ERR_OK;
    case EDGE_DEL_OBJ:
    case EDGE_QUARANTINE:
        del_object(c, &rec->digest);
        return ERR_OK;
    case EDGE_TOUCH:
        touch(c, rec->touches);
        return ERR_OK;
    case EDGE_RENEW:
        r = edge_catalog_ref(c, rec->name);
        if (r) {
            r->fetched_ms = rec->fetched_ms;
            r->valid_until_ms = rec->valid_until_ms;
        }
        return ERR_OK;
    case EDGE_PACK_SINCE:
        return put_pack(c, rec);
    case EDGE_DIX_FILE:
        return ERR_OK;
    }
    UNREACHABLE();
}

void edge_catalog_prefetch(const struct edge_catalog *c, const struct edge_record *r)
{
    if (r->type != EDGE_PUT_REF)
        return;
    map_prefetch_place(&c->objects, digest_key(&r->digest));
    map_prefetch_place(&c->refs, bytes_of_str(r->name));
}

static void dump_touches(const struct edge_catalog *c, struct buf *out)
{
    struct buf t;
    size_t at = 0;
    void *value;
    buf_init(&t, EDGE_TOUCH_MAX * EDGE_TOUCH_BYTES);
    bool more = true;
    while (more) {
        more = map_next(&c->objects, &at, NULL, &value);
        if (more) {
            const struct edge_object *o = value;
            edge_touch_put(&t, &o->digest, o->last_use_s);
        }
        if (t.n && (!more || t.n == EDGE_TOUCH_MAX * EDGE_TOUCH_BYTES)) {
            edge_record_encode(&(struct edge_record){.type = EDGE_TOUCH, .touches = buf_bytes(&t)}, out);
            buf_reset(&t);
        }
    }
    buf_fini(&t);
}

void edge_catalog_dump(const struct edge_catalog *c, struct buf *out)
{
    size_t at = 0;
    void *value;
    while (map_next(&c->packs, &at, NULL, &value)) {
        const struct edge_pack_since *p = value;
        edge_record_encode(
            &(struct edge_record){
                .type = EDGE_PACK_SINCE, .name = p->name, .since_s = p->since_s, .digest = p->pack_id},
            out);
    }
    at = 0;
    while (map_next(&c->refs, &at, NULL, &value)) {
        const struct edge_ref *r = value;
        edge_record_encode(&(struct edge_record){.type = EDGE_PUT_REF,
                                                 .name = r->name,
                                                 .mime = r->mime,
                                                 .etag = r->etag,
                                                 .size = r->object->size,
                                                 .fetched_ms = r->fetched_ms,
                                                 .valid_until_ms = r->valid_until_ms,
                                                 .since_ms = r->since_ms,
                                                 .digest = r->object->digest},
                           out);
    }
    dump_touches(c, out);
}

void edge_catalog_use(struct edge_catalog *c, struct edge_object *o, int64_t now_ms)
{
    o->last_use_s = (uint32_t)(now_ms / 1000);
    o->use_no = ++c->uses;
}

static int older_first(const void *a, const void *b)
{
    const struct edge_object *x = *(const struct edge_object *const *)a,
                             *y = *(const struct edge_object *const *)b;
    if (x->last_use_s != y->last_use_s)
        return x->last_use_s < y->last_use_s ? -1 : 1;
    if (x->use_no != y->use_no)
        return x->use_no < y->use_no ? -1 : 1;
    return memcmp(x->digest.b, y->digest.b, sizeof x->digest.b);
}

static uint64_t share95(uint64_t v)
{
    return v / 100 * 95 + v % 100 * 95 / 100;
}

enum err edge_catalog_victims(const struct edge_catalog *c, const struct edge_limits *limits,
                              struct sha256 **out, size_t *out_n)
{
    uint64_t bytes = c->bytes, objects = map_count(&c->objects);
    uint64_t max_bytes = limits->force && bytes < limits->bytes ? bytes : limits->bytes;
    *out = NULL;
    *out_n = 0;
    if (!limits->force && bytes <= limits->bytes && objects <= limits->objects)
        return ERR_OK;
    const struct edge_object **all = calloc(objects ? objects : 1, sizeof *all);
    struct sha256 *list = calloc(objects ? objects : 1, sizeof *list);
    if (!all || !list) {
        free(all);
        free(list);
        return ERR_NO_MEMORY;
    }
    size_t at = 0, n = 0, gone = 0;
    void *value;
    while (map_next(&c->objects, &at, NULL, &value)) {
        const struct edge_object *o = value;
        if (!limits->spare_from || o->use_no < limits->spare_from)
            all[n++] = o;
    }
    qsort(all, n, sizeof(*all), older_first);
    while (gone < n && (bytes > share95(max_bytes) || objects - gone > share95(limits->objects))) {
        bytes -= all[gone]->size;
        list[gone] = all[gone]->digest;
        gone++;
    }
    free(all);
    *out = list;
    *out_n = gone;
    return ERR_OK;
}

uint64_t edge_since_next(int64_t now_ms, uint64_t previous_s)
{
    uint64_t next = (now_ms > 0 ? (uint64_t)now_ms / 1000 : 0) + 1;
    return next > previous_s ? next : previous_s + 1;
}
