#include "services/wallet/core/chain.h"

#include <stdlib.h>

#include "base/check.h"

struct wallet_chain {
    struct heap_node node;      /* in waiting */
    struct wallet_chain *next;  /* in ready, or spare */
    struct wallet_link *parked; /* by (nonce, arrival) */
    struct wallet_link *out_list;
    size_t out;
    int64_t due_ns;
    bool ready;
    size_t name_n;
    char name[WALLET_CHAIN_NAME_MAX];
};

static bool due_sooner(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, struct wallet_chain, node)->due_ns <
           heap_entry(b, struct wallet_chain, node)->due_ns;
}

enum err wallet_chains_init(struct wallet_chains *cs, size_t expect)
{
    *cs = (struct wallet_chains){0};
    enum err e = map_init(&cs->by_name, expect);
    return e == ERR_OK ? heap_init(&cs->waiting, expect, SIZE_MAX / 64, due_sooner) : e;
}

void wallet_chains_fini(struct wallet_chains *cs)
{
    size_t at = 0;
    void *c;
    while (cs->by_name.slots && map_next(&cs->by_name, &at, NULL, &c))
        free(c);
    for (struct wallet_chain *s = cs->spare, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    map_fini(&cs->by_name);
    heap_fini(&cs->waiting);
}

static void ready_push(struct wallet_chains *cs, struct wallet_chain *c)
{
    CHECK(!c->ready && c->out == 0 && c->parked);
    c->ready = true;
    c->next = NULL;
    *(cs->ready_last ? &cs->ready_last->next : &cs->ready_first) = c;
    cs->ready_last = c;
}

/* A chain that may go again: now, later, or not at all because nothing is left. */
static void chain_free(struct wallet_chains *cs, struct wallet_chain *c)
{
    if (c->out || c->ready || heap_has(&c->node))
        return;
    if (!c->parked) {
        CHECK(map_remove(&cs->by_name, bytes_of(c->name, c->name_n)) == c);
        c->next = cs->spare;
        cs->spare = c;
        cs->count--;
    } else if (c->due_ns == 0 || heap_push(&cs->waiting, &c->node) != ERR_OK) {
        c->due_ns = 0;
        ready_push(cs, c);
    }
}

static struct wallet_chain *chain_of(struct wallet_chains *cs, struct str name)
{
    struct wallet_chain *c = map_get(&cs->by_name, bytes_of_str(name));
    if (c)
        return c;
    c = cs->spare;
    if (c)
        cs->spare = c->next;
    else if (!(c = malloc(sizeof *c)))
        return NULL;
    *c = (struct wallet_chain){.name_n = name.n};
    memcpy(c->name, name.p, name.n);
    if (map_add(&cs->by_name, bytes_of(c->name, c->name_n), c) != ERR_OK) {
        free(c);
        return NULL;
    }
    cs->count++;
    return c;
}

static void park(struct wallet_chains *cs, struct wallet_chain *c, struct wallet_link *link)
{
    struct wallet_link **at = &c->parked;
    while (*at &&
           ((*at)->nonce < link->nonce || ((*at)->nonce == link->nonce && (*at)->arrival < link->arrival)))
        at = &(*at)->next;
    link->next = *at;
    link->out = false;
    *at = link;
    cs->parked++;
}

enum err wallet_chains_put(struct wallet_chains *cs, struct str name, uint64_t nonce,
                           struct wallet_link *link)
{
    CHECK(name.n > 0 && name.n <= WALLET_CHAIN_NAME_MAX && !link->chain);
    struct wallet_chain *c = chain_of(cs, name);
    if (!c)
        return ERR_NO_MEMORY;
    *link = (struct wallet_link){.chain = c, .nonce = nonce, .arrival = cs->arrivals++};
    park(cs, c, link);
    chain_free(cs, c);
    return ERR_OK;
}

bool wallet_link_waits(const struct wallet_link *link)
{
    return link->chain && !link->out && link->chain->out > 0;
}

static void unlink_from(struct wallet_link **list, struct wallet_link *link)
{
    while (*list != link) {
        CHECK(*list);
        list = &(*list)->next;
    }
    *list = link->next;
}

static void wake_due(struct wallet_chains *cs, int64_t now_ns)
{
    for (struct heap_node *n; (n = heap_top(&cs->waiting));) {
        struct wallet_chain *c = heap_entry(n, struct wallet_chain, node);
        if (c->due_ns > now_ns)
            break;
        heap_pop(&cs->waiting);
        c->due_ns = 0;
        ready_push(cs, c);
    }
}

size_t wallet_chains_take(struct wallet_chains *cs, int64_t now_ns, struct wallet_link **out, size_t max)
{
    size_t n = 0;
    wake_due(cs, now_ns);
    while (n < max && cs->ready_first) {
        struct wallet_chain *c = cs->ready_first;
        cs->ready_first = c->next;
        if (!cs->ready_first)
            cs->ready_last = NULL;
        c->ready = false;
        while (n < max && c->parked) {
            struct wallet_link *link = c->parked;
            c->parked = link->next;
            link->next = c->out_list;
            link->out = true;
            c->out_list = link;
            c->out++;
            cs->parked--;
            cs->out++;
            out[n++] = link;
        }
    }
    return n;
}

void wallet_chains_settled(struct wallet_chains *cs, struct wallet_link *link)
{
    struct wallet_chain *c = link->chain;
    CHECK(c);
    if (link->out) {
        unlink_from(&c->out_list, link);
        c->out--;
        cs->out--;
    } else {
        unlink_from(&c->parked, link);
        cs->parked--;
        if (!c->parked && c->ready) { /* it has nothing to take any more: leave the ready list */
            struct wallet_chain **at = &cs->ready_first, *last = NULL;
            while (*at != c) {
                last = *at;
                at = &(*at)->next;
            }
            *at = c->next;
            if (cs->ready_last == c)
                cs->ready_last = last;
            c->ready = false;
        }
        if (!c->parked && heap_has(&c->node))
            heap_remove(&cs->waiting, &c->node);
    }
    link->chain = NULL;
    chain_free(cs, c);
}

void wallet_chains_again(struct wallet_chains *cs, struct wallet_link *link, int64_t due_ns)
{
    struct wallet_chain *c = link->chain;
    CHECK(c && link->out);
    unlink_from(&c->out_list, link);
    c->out--;
    cs->out--;
    if (due_ns > c->due_ns)
        c->due_ns = due_ns;
    park(cs, c, link);
    chain_free(cs, c);
}

int64_t wallet_chains_next_ns(const struct wallet_chains *cs, int64_t now_ns)
{
    if (cs->ready_first)
        return now_ns;
    struct heap_node *n = heap_top(&cs->waiting);
    return n ? heap_entry(n, struct wallet_chain, node)->due_ns : INT64_MAX;
}

void wallet_chains_each(const struct wallet_chains *cs, void (*fn)(struct wallet_link *link, void *arg),
                        void *arg)
{
    size_t at = 0;
    void *value;
    while (map_next(&cs->by_name, &at, NULL, &value)) {
        struct wallet_chain *c = value;
        for (struct wallet_link *l = c->parked, *next; l; l = next) {
            next = l->next;
            fn(l, arg);
        }
        for (struct wallet_link *l = c->out_list, *next; l; l = next) {
            next = l->next;
            fn(l, arg);
        }
    }
}
