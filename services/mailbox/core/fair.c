#include "services/mailbox/core/fair.h"

#include <stdlib.h>

#include "base/check.h"

enum err mailbox_fair_init(struct mailbox_fair *f, uint32_t jobs_max, uint32_t quantum)
{
    *f = (struct mailbox_fair){.lanes = jobs_max + 1, .buckets = 64, .quantum = quantum};
    while (f->buckets < jobs_max)
        f->buckets *= 2;
    f->lane = calloc(f->lanes, sizeof *f->lane);
    f->bucket = calloc(f->buckets, sizeof *f->bucket);
    if (!f->lane || !f->bucket) {
        mailbox_fair_fini(f);
        return ERR_NO_MEMORY;
    }
    for (uint32_t i = f->lanes - 1; i > 0; i--) {
        f->lane[i].next_active = f->free_head;
        f->free_head = i;
    }
    return ERR_OK;
}

void mailbox_fair_fini(struct mailbox_fair *f)
{
    free(f->lane);
    free(f->bucket);
    *f = (struct mailbox_fair){0};
}

static uint32_t *chain_of(struct mailbox_fair *f, uint64_t key)
{
    return &f->bucket[key & (f->buckets - 1)];
}

static uint32_t lane_of(struct mailbox_fair *f, uint64_t key)
{
    for (uint32_t i = *chain_of(f, key); i; i = f->lane[i].next_same)
        if (f->lane[i].key == key)
            return i;
    return 0;
}

/* The ring is named by its last lane: the next to be served is after it. */
static void ring_add(struct mailbox_fair *f, uint32_t i)
{
    if (f->active_tail) {
        f->lane[i].next_active = f->lane[f->active_tail].next_active;
        f->lane[f->active_tail].next_active = i;
    } else {
        f->lane[i].next_active = i;
    }
    f->active_tail = i;
}

static uint32_t lane_open(struct mailbox_fair *f, uint64_t key)
{
    uint32_t i = f->free_head;
    CHECK(i != 0); /* there are as many lanes as jobs */
    f->free_head = f->lane[i].next_active;
    f->lane[i] = (struct mailbox_fair_lane){.key = key, .next_same = *chain_of(f, key)};
    *chain_of(f, key) = i;
    ring_add(f, i);
    return i;
}

enum err mailbox_fair_add(struct mailbox_fair *f, struct mailbox_fair_node *n, uint32_t share_max)
{
    uint32_t i = lane_of(f, n->key);
    if (i && f->lane[i].jobs >= share_max)
        return ERR_BUSY;
    if (!i)
        i = lane_open(f, n->key);
    struct mailbox_fair_lane *l = &f->lane[i];
    n->next = NULL;
    if (l->tail)
        l->tail->next = n;
    else
        l->head = n;
    l->tail = n;
    l->jobs++;
    f->jobs++;
    return ERR_OK;
}

static void lane_close(struct mailbox_fair *f, uint32_t i)
{
    uint32_t *link = chain_of(f, f->lane[i].key);
    while (*link != i)
        link = &f->lane[*link].next_same;
    *link = f->lane[i].next_same;
    uint32_t head = f->lane[f->active_tail].next_active;
    CHECK(head == i);
    if (f->active_tail == i)
        f->active_tail = 0;
    else
        f->lane[f->active_tail].next_active = f->lane[i].next_active;
    f->lane[i].next_active = f->free_head;
    f->free_head = i;
}

struct mailbox_fair_node *mailbox_fair_take(struct mailbox_fair *f)
{
    if (!f->active_tail)
        return NULL;
    for (;;) {
        uint32_t i = f->lane[f->active_tail].next_active;
        struct mailbox_fair_lane *l = &f->lane[i];
        if (l->deficit < (int64_t)l->head->cost) {
            l->deficit += f->quantum;
            if (l->deficit < (int64_t)l->head->cost) {
                f->active_tail = i; /* its turn is over */
                continue;
            }
        }
        struct mailbox_fair_node *n = l->head;
        l->deficit -= n->cost;
        l->head = n->next;
        l->jobs--;
        f->jobs--;
        if (!l->head)
            lane_close(f, i);
        else if (l->deficit < (int64_t)l->head->cost)
            f->active_tail = i;
        return n;
    }
}
