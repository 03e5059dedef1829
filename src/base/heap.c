#include "base/heap.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/check.h"

static enum err heap_reserve(struct heap *h, size_t count)
{
    struct heap_node **nodes = realloc(h->nodes, (count + 1) * sizeof(struct heap_node *));
    if (!nodes)
        return ERR_NO_MEMORY;
    h->nodes = nodes;
    h->cap = count;
    return ERR_OK;
}

enum err heap_init(struct heap *h, size_t reserve, size_t max,
                   bool (*less)(const struct heap_node *, const struct heap_node *))
{
    CHECK(reserve <= max && max < SIZE_MAX / sizeof(struct heap_node *) - 1);
    *h = (struct heap){.max = max, .less = less};
    return reserve ? heap_reserve(h, reserve) : ERR_OK;
}

void heap_fini(struct heap *h)
{
    free(h->nodes);
    *h = (struct heap){.max = h->max, .less = h->less};
}

static void heap_place(struct heap *h, size_t at, struct heap_node *node)
{
    h->nodes[at] = node;
    node->at = at;
}

static void heap_up(struct heap *h, size_t at, struct heap_node *node)
{
    while (at > 1 && h->less(node, h->nodes[at / 2])) {
        heap_place(h, at, h->nodes[at / 2]);
        at /= 2;
    }
    heap_place(h, at, node);
}

static void heap_down(struct heap *h, size_t at, struct heap_node *node)
{
    for (;;) {
        size_t child = at * 2;
        if (child > h->n)
            break;
        if (child < h->n && h->less(h->nodes[child + 1], h->nodes[child]))
            child++;
        if (!h->less(h->nodes[child], node))
            break;
        heap_place(h, at, h->nodes[child]);
        at = child;
    }
    heap_place(h, at, node);
}

enum err heap_push(struct heap *h, struct heap_node *node)
{
    CHECK(node->at == 0);
    if (h->n >= h->max)
        return ERR_BUSY;
    if (h->n == h->cap) {
        size_t cap = h->cap ? h->cap * 2 : 16;
        enum err e = heap_reserve(h, cap < h->max ? cap : h->max);
        if (e != ERR_OK)
            return e;
    }
    h->n++;
    heap_up(h, h->n, node);
    return ERR_OK;
}

struct heap_node *heap_top(const struct heap *h)
{
    return h->n ? h->nodes[1] : NULL;
}

void heap_fix(struct heap *h, struct heap_node *node)
{
    size_t at = node->at;
    CHECK(at >= 1 && at <= h->n && h->nodes[at] == node);
    if (at > 1 && h->less(node, h->nodes[at / 2]))
        heap_up(h, at, node);
    else
        heap_down(h, at, node);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    size_t at = node->at;
    CHECK(at >= 1 && at <= h->n && h->nodes[at] == node);
    struct heap_node *last = h->nodes[h->n--];
    node->at = 0;
    if (last == node)
        return;
    heap_place(h, at, last);
    heap_fix(h, last);
}

struct heap_node *heap_pop(struct heap *h)
{
    struct heap_node *top = heap_top(h);
    if (top)
        heap_remove(h, top);
    return top;
}

size_t heap_count(const struct heap *h)
{
    return h->n;
}
