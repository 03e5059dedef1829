#include "services/edge/retired.h"

#include <stdlib.h>

struct edge_retired {
    struct edge_retired *next;
    uint64_t generation; /* the last one it was in */
    struct edge_pack *pack;
};

static bool has_pack(const struct edge_generation *g, const struct edge_pack *p)
{
    const struct edge_slot *slot = edge_slot_find(g, str_from_c(p->name));
    return slot && slot->pack == p;
}

void edge_retired_add(struct edge *e, const struct edge_generation *old, const struct edge_generation *now)
{
    for (size_t i = 0; old && i < old->n; i++) {
        struct edge_pack *p = old->slots[i].pack;
        struct edge_retired *r = p && !has_pack(now, p) ? malloc(sizeof *r) : NULL;
        if (!r)
            continue; /* no memory: then whoever uses it last lets go */
        *r = (struct edge_retired){e->retired, old->number, edge_pack_ref(p)};
        e->retired = r;
    }
}

static bool file_used(struct edge_file *f)
{
    /* Pairs with the release of edge_file_unref: who sees 1 sees everything the others did. */
    return f && atomic_load_explicit(&f->refs, memory_order_acquire) > 1;
}

/* It is in no published generation, so nobody who has no reference can get one. */
static bool in_use(struct edge_pack *p)
{
    if (atomic_load_explicit(&p->refs, memory_order_acquire) > 1 || file_used(p->file))
        return true;
    for (size_t i = 0; i < p->list_n; i++)
        if (file_used(atomic_load_explicit(&p->list[i].open, memory_order_acquire)))
            return true;
    return false;
}

static struct edge_retired *let_go(struct edge_retired *r)
{
    struct edge_retired *next = r->next;
    edge_pack_unref(r->pack);
    free(r);
    return next;
}

void edge_retired_sweep(struct edge *e)
{
    uint64_t used = 1, last = 0;
    for (struct edge_retired **at = &e->retired; *at;) {
        struct edge_retired *r = *at;
        if (!in_use(r->pack)) {
            *at = let_go(r);
            continue;
        }
        used += r->generation != last; /* newest first: those of one generation are neighbours */
        last = r->generation;
        at = &r->next;
    }
    obs_gauge_set(obs_gauge(e->m[EDGE_M_pinned]), (double)used);
}

void edge_retired_drop(struct edge *e)
{
    while (e->retired)
        e->retired = let_go(e->retired);
}
