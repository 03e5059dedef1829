#include "services/edge/dirs.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/map.h"

struct key {
    uint64_t serial, offset;
};

struct slot {
    struct key key;
    struct edge_leaf *leaf; /* the cache's reference */
    size_t bytes;
    struct slot *older, *newer;
};

struct edge_dirs {
    struct rt_lock lock; /* guards everything below */
    struct map by_key;   /* -> struct slot */
    struct slot *newest, *oldest;
    size_t bytes;
};

enum err edge_dirs_create(struct edge_dirs **out)
{
    struct edge_dirs *d = calloc(1, sizeof *d);
    if (!d)
        return ERR_NO_MEMORY;
    rt_lock_init(&d->lock, "dirs", 26);
    enum err e = map_init(&d->by_key, 256);
    if (e != ERR_OK) {
        rt_lock_fini(&d->lock);
        free(d);
        return e;
    }
    *out = d;
    return ERR_OK;
}

void edge_leaf_unref(struct edge_leaf *l)
{
    /* Pairs with itself: the last one to leave sees everything the others did. */
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(l->dir.list);
    free(l);
}

static struct bytes bytes_of_key(const struct key *k)
{
    return bytes_of(k, sizeof *k);
}

static void unlink_slot(struct edge_dirs *d, struct slot *s)
{
    *(s->newer ? &s->newer->older : &d->newest) = s->older;
    *(s->older ? &s->older->newer : &d->oldest) = s->newer;
    s->newer = s->older = NULL;
}

static void push_slot(struct edge_dirs *d, struct slot *s)
{
    s->older = d->newest;
    *(d->newest ? &d->newest->newer : &d->oldest) = s;
    d->newest = s;
}

static struct slot *take_oldest(struct edge_dirs *d)
{
    struct slot *s = d->oldest;
    map_remove(&d->by_key, bytes_of_key(&s->key));
    unlink_slot(d, s);
    d->bytes -= s->bytes;
    return s;
}

void edge_dirs_destroy(struct edge_dirs *d)
{
    if (!d)
        return;
    while (d->oldest) {
        struct slot *s = take_oldest(d);
        edge_leaf_unref(s->leaf);
        free(s);
    }
    map_fini(&d->by_key);
    rt_lock_fini(&d->lock);
    free(d);
}

static struct edge_leaf *use(struct edge_dirs *d, struct slot *s)
{
    if (s != d->newest) {
        unlink_slot(d, s);
        push_slot(d, s);
    }
    atomic_fetch_add_explicit(&s->leaf->refs, 1, memory_order_relaxed);
    return s->leaf;
}

struct edge_leaf *edge_dirs_get(struct edge_dirs *d, uint64_t serial, uint64_t offset)
{
    struct key key = {serial, offset};
    rt_lock_take(&d->lock);
    struct slot *s = map_get(&d->by_key, bytes_of_key(&key));
    struct edge_leaf *l = s ? use(d, s) : NULL;
    rt_lock_release(&d->lock);
    return l;
}

struct edge_leaf *edge_dirs_put(struct edge_dirs *d, uint64_t serial, uint64_t offset, struct edge_dir dir,
                                size_t bytes_max)
{
    struct slot *s = calloc(1, sizeof *s), *gone = NULL;
    struct edge_leaf *l = calloc(1, sizeof *l);
    if (!s || !l) {
        free(s);
        free(l);
        free(dir.list);
        return NULL;
    }
    atomic_init(&l->refs, 1);
    l->dir = dir;
    *s = (struct slot){
        .key = {serial, offset}, .leaf = l, .bytes = sizeof *s + sizeof *l + dir.n * sizeof *dir.list};
    rt_lock_take(&d->lock);
    struct slot *old = map_get(&d->by_key, bytes_of_key(&s->key));
    bool added = !old && map_add(&d->by_key, bytes_of_key(&s->key), s) == ERR_OK;
    struct edge_leaf *kept = old ? use(d, old) : l;
    if (added) {
        push_slot(d, s);
        d->bytes += s->bytes;
        atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    }
    while (d->bytes > bytes_max && d->oldest != d->newest) {
        struct slot *o = take_oldest(d);
        o->older = gone;
        gone = o;
    }
    rt_lock_release(&d->lock);
    while (gone) { /* freed outside the lock */
        struct slot *next = gone->older;
        edge_leaf_unref(gone->leaf);
        free(gone);
        gone = next;
    }
    if (!added)
        free(s);
    if (old)
        edge_leaf_unref(l);
    return kept;
}

size_t edge_dirs_bytes(struct edge_dirs *d)
{
    rt_lock_take(&d->lock);
    size_t n = d->bytes;
    rt_lock_release(&d->lock);
    return n;
}
