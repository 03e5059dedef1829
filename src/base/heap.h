/*
 * Intrusive binary min-heap: the element carries a struct heap_node (zero it first), so it can be moved or
 * removed from the middle in O(log n). Timers, leases and expiry queues use it.
 *
 * Ownership   Elements stay the caller's; an element is in at most one heap per node.
 * Threads     One at a time.
 * Memory      An array of pointers, at most max of them; with reserve = max nothing allocates after
 * heap_init. Order       less(a, b): a comes first. Equal elements come in any order; put a sequence number
 * into less() for FIFO.
 */
#ifndef RON_BASE_HEAP_H
#define RON_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct heap_node {
    size_t at; /* 1-based place in the heap; 0: in none */
};

/* The struct around a node: heap_entry(node, struct timer, heap) */
#define heap_entry(node, type, member) ((type *)((uintptr_t)(node)-offsetof(type, member)))

struct heap {
    struct heap_node **nodes; /* nodes[0] unused */
    size_t n, cap, max;
    bool (*less)(const struct heap_node *a, const struct heap_node *b);
};

NODISCARD enum err heap_init(struct heap *h, size_t reserve, size_t max,
                             bool (*less)(const struct heap_node *, const struct heap_node *));
void heap_fini(struct heap *h);
NODISCARD enum err heap_push(struct heap *h, struct heap_node *node); /* ERR_BUSY at max, ERR_NO_MEMORY */
struct heap_node *heap_top(const struct heap *h);                     /* NULL when empty */
struct heap_node *heap_pop(struct heap *h);                           /* NULL when empty */
void heap_remove(struct heap *h, struct heap_node *node);             /* must be in h */
void heap_fix(struct heap *h, struct heap_node *node);                /* after its order changed */
size_t heap_count(const struct heap *h);

static inline bool heap_has(const struct heap_node *node)
{
    return node->at != 0;
}

#endif
