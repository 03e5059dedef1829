/*
 * The published generation. Whoever pins takes the pointer and its reference under one lock, so nothing is freed between the two;
 * whoever publishes swaps the pointer under that lock and drops the reference that the pointer was. Whatever is pinned after a
 * publish returned is the new one.
 */
#include <stdlib.h>

#include "services/edge/pack.h"

const char *edge_slot_state_name(enum edge_slot_state s)
{
    static const char *const names[] = {"mounted", "rejected", "changed"};
    return names[s];
}

struct edge_generation *edge_pin(struct edge *e)
{
    rt_lock_take(&e->state_meta);
    struct edge_generation *g = e->generation;
    os_a32_add(&g->refs, 1, memory_order_relaxed);
    rt_lock_release(&e->state_meta);
    return g;
}

void edge_unpin(struct edge_generation *g)
{
    if (!g || os_a32_add(&g->refs, (uint32_t)-1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < g->n; i++)
        edge_pack_unref(g->slots[i].pack);
    map_fini(&g->by_name);
    free(g);
}

void edge_generation_publish(struct edge *e, struct edge_generation *g)
{
    rt_lock_take(&e->state_meta);
    struct edge_generation *old = e->generation;
    e->generation = g;
    rt_lock_release(&e->state_meta);
    edge_count_move(e);
    edge_unpin(old);
}

struct edge_slot *edge_slot_find(const struct edge_generation *g, struct str name)
{
    return map_get(&g->by_name, bytes_of_str(name));
}
