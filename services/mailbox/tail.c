#include "services/mailbox/tail.h"

#include <stdlib.h>

enum err mailbox_tail_init(struct mailbox_tail *t, size_t cap)
{
    *t = (struct mailbox_tail){.cap = cap, .parts_cap = 4096};
    if (cap == 0)
        return ERR_OK;
    t->ring = malloc(cap);
    t->part = calloc(t->parts_cap, sizeof *t->part);
    return t->ring && t->part ? ERR_OK : ERR_NO_MEMORY;
}

void mailbox_tail_fini(struct mailbox_tail *t)
{
    free(t->ring);
    free(t->part);
}

enum err mailbox_tail_resize(struct mailbox_tail *t, size_t cap)
{
    struct mailbox_tail other;
    if (t->cap == cap)
        return ERR_OK;
    enum err e = mailbox_tail_init(&other, cap);
    mailbox_tail_fini(e == ERR_OK ? t : &other);
    if (e == ERR_OK)
        *t = other;
    return e;
}

static bool overlaps(size_t a, size_t an, size_t b, size_t bn)
{
    return a < b + bn && b < a + an;
}

void mailbox_tail_put(struct mailbox_tail *t, uint32_t segment, uint64_t offset, const uint8_t *p, size_t n)
{
    if (n > t->cap || t->cap == 0)
        return;
    size_t at = t->cap - t->at < n ? 0 : t->at;
    while (t->n > 0) { /* oldest first: what stands in the way, or has no descriptor left */
        struct mailbox_tail_part *old = &t->part[t->first];
        if (t->n < t->parts_cap && !overlaps(old->at, old->n, at, n) && !(at < t->at && old->at >= t->at))
            break;
        t->first = (t->first + 1) % t->parts_cap;
        t->n--;
    }
    memcpy(t->ring + at, p, n);
    t->part[(t->first + t->n) % t->parts_cap] = (struct mailbox_tail_part){segment, offset, n, at};
    t->n++;
    t->at = at + n;
}

bool mailbox_tail_get(const struct mailbox_tail *t, uint32_t segment, uint64_t offset, uint8_t *into,
                      size_t n)
{
    uint32_t low = 0, high = t->n; /* parts are in journal order */
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        const struct mailbox_tail_part *p = &t->part[(t->first + mid) % t->parts_cap];
        if (p->segment < segment || (p->segment == segment && p->offset + p->n <= offset))
            low = mid + 1;
        else
            high = mid;
    }
    if (low == t->n)
        return false;
    const struct mailbox_tail_part *p = &t->part[(t->first + low) % t->parts_cap];
    if (p->segment != segment || offset < p->offset || offset >= p->offset + p->n)
        return false;
    size_t have = (size_t)(p->offset + p->n - offset);
    memcpy(into, t->ring + p->at + (offset - p->offset), have < n ? have : n);
    if (have < n)
        memset(into + have, 0, n - have);
    return true;
}
