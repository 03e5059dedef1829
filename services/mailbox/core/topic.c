#include "services/mailbox/core/topic.h"

#include <stdlib.h>

#include "base/check.h"

enum err mailbox_topics_init(struct mailbox_topics *ts)
{
    *ts = (struct mailbox_topics){.slots = 1, .next_id = 1};
    return map64_init(&ts->by_id, 0);
}

void mailbox_topics_fini(struct mailbox_topics *ts)
{
    for (uint32_t i = 1; i < ts->slots; i++)
        free(ts->slot[i]);
    free(ts->slot);
    free(ts->free_slots);
    free(ts->table);
    map64_fini(&ts->by_id);
    *ts = (struct mailbox_topics){0};
}

static uint64_t hash64(const struct sha256 *h)
{
    return be64_get(h->b + 8);
}

struct mailbox_topic *mailbox_topics_find(const struct mailbox_topics *ts, const struct sha256 *hash,
                                          struct str name)
{
    if (!ts->table_cap)
        return NULL;
    uint64_t h = hash64(hash);
    for (uint32_t i = (uint32_t)h & (ts->table_cap - 1);; i = (i + 1) & (ts->table_cap - 1)) {
        if (!ts->table[i])
            return NULL;
        struct mailbox_topic *t = ts->slot[ts->table[i]];
        if (t->hash64 == h && str_eq(mailbox_topic_name(t), name))
            return t;
    }
}

struct mailbox_topic *mailbox_topics_by_id(const struct mailbox_topics *ts, uint32_t id)
{
    return map64_get(&ts->by_id, id);
}

static void table_put(uint32_t *table, uint32_t cap, uint64_t h, uint32_t slot)
{
    uint32_t i = (uint32_t)h & (cap - 1);
    while (table[i])
        i = (i + 1) & (cap - 1);
    table[i] = slot;
}

static enum err table_reserve(struct mailbox_topics *ts)
{
    if ((uint64_t)(ts->count + 1) * 4 <= (uint64_t)ts->table_cap * 3)
        return ERR_OK;
    uint32_t cap = ts->table_cap ? ts->table_cap * 2 : 64;
    uint32_t *table = calloc(cap, sizeof *table);
    if (!table)
        return ERR_NO_MEMORY;
    for (uint32_t i = 0; i < ts->table_cap; i++)
        if (ts->table[i])
            table_put(table, cap, ts->slot[ts->table[i]]->hash64, ts->table[i]);
    free(ts->table);
    ts->table = table;
    ts->table_cap = cap;
    return ERR_OK;
}

static void table_remove(struct mailbox_topics *ts, const struct mailbox_topic *t)
{
    uint32_t mask = ts->table_cap - 1, i = (uint32_t)t->hash64 & mask;
    while (ts->table[i] != t->slot)
        i = (i + 1) & mask;
    for (uint32_t j = (i + 1) & mask; ts->table[j]; j = (j + 1) & mask) {
        uint32_t home = (uint32_t)ts->slot[ts->table[j]]->hash64 & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            ts->table[i] = ts->table[j];
            i = j;
        }
    }
    ts->table[i] = 0;
}

static enum err slot_take(struct mailbox_topics *ts, uint32_t *out_slot)
{
    if (ts->free_n) {
        *out_slot = ts->free_slots[--ts->free_n];
        return ERR_OK;
    }
    if ((ts->slots & (ts->slots - 1)) == 0) { /* a power of two: room for as many again */
        struct mailbox_topic **wider = realloc(ts->slot, (size_t)ts->slots * 2 * sizeof *wider);
        if (!wider)
            return ERR_NO_MEMORY;
        if (!ts->slot)
            wider[0] = NULL;
        ts->slot = wider;
    }
    ts->slot[ts->slots] = NULL;
    *out_slot = ts->slots++;
    return ERR_OK;
}

static struct mailbox_topic *at(const struct mailbox_topics *ts, uint32_t slot)
{
    return ts->slot[slot];
}

static uint32_t *link_of(struct mailbox_topics *ts, const struct mailbox_topic *t)
{
    if (!t->above)
        return &ts->root;
    struct mailbox_topic *up = at(ts, t->above);
    return &up->below[up->below[1] == t->slot];
}

/* t goes up, its parent down: order by name is kept. */
static void rotate_up(struct mailbox_topics *ts, struct mailbox_topic *t)
{
    struct mailbox_topic *up = at(ts, t->above);
    int side = up->below[1] == t->slot;
    uint32_t *link = link_of(ts, up), inner = t->below[!side];
    *link = t->slot;
    t->above = up->above;
    up->below[side] = inner;
    if (inner)
        at(ts, inner)->above = up->slot;
    t->below[!side] = up->slot;
    up->above = t->slot;
}

static uint64_t priority(const struct mailbox_topic *t)
{
    return t->hash64 * UINT64_C(0x9E3779B97F4A7C15);
}

static void tree_add(struct mailbox_topics *ts, struct mailbox_topic *t)
{
    uint32_t *link = &ts->root, above = 0;
    while (*link) {
        above = *link;
        link = &at(ts, above)->below[str_cmp(mailbox_topic_name(t), mailbox_topic_name(at(ts, above))) > 0];
    }
    *link = t->slot;
    t->above = above;
    while (t->above && priority(t) > priority(at(ts, t->above)))
        rotate_up(ts, t);
}

static void tree_remove(struct mailbox_topics *ts, struct mailbox_topic *t)
{
    while (t->below[0] && t->below[1]) {
        struct mailbox_topic *l = at(ts, t->below[0]), *r = at(ts, t->below[1]);
        rotate_up(ts, priority(l) > priority(r) ? l : r);
    }
    uint32_t child = t->below[0] ? t->below[0] : t->below[1];
    *link_of(ts, t) = child;
    if (child)
        at(ts, child)->above = t->above;
}

enum err mailbox_topics_add(struct mailbox_topics *ts, const struct sha256 *hash, struct str name,
                            uint32_t id, struct mailbox_topic **out_topic)
{
    uint32_t slot;
    enum err e = table_reserve(ts);
    if (e != ERR_OK)
        return e;
    struct mailbox_topic *t = calloc(1, sizeof *t + name.n);
    if (!t)
        return ERR_NO_MEMORY;
    if ((e = slot_take(ts, &slot)) != ERR_OK) {
        free(t);
        return e;
    }
    t->id = id == MAILBOX_TOPIC_UNBORN ? 0 : id ? id : ts->next_id;
    if (t->id && (e = map64_add(&ts->by_id, t->id, t)) != ERR_OK) {
        ts->slot[slot] = NULL; /* the slot is lost until the next start: memory is gone anyway */
        free(t);
        return e;
    }
    if (t->id >= ts->next_id)
        ts->next_id = t->id + 1;
    t->slot = slot;
    t->hash64 = hash64(hash);
    t->bucket = mailbox_bucket(hash);
    t->name_len_less_1 = (uint8_t)(name.n - 1);
    memcpy(t->name, name.p, name.n);
    ts->slot[slot] = t;
    ts->count++;
    table_put(ts->table, ts->table_cap, t->hash64, slot);
    tree_add(ts, t);
    *out_topic = t;
    return ERR_OK;
}

enum err mailbox_topics_born(struct mailbox_topics *ts, struct mailbox_topic *t)
{
    CHECK(t->id == 0);
    enum err e = map64_add(&ts->by_id, ts->next_id, t);
    if (e == ERR_OK)
        t->id = ts->next_id++;
    return e;
}

void mailbox_topics_remove(struct mailbox_topics *ts, struct mailbox_topic *t)
{
    CHECK(at(ts, t->slot) == t);
    tree_remove(ts, t);
    table_remove(ts, t);
    if (t->id)
        map64_remove(&ts->by_id, t->id);
    ts->slot[t->slot] = NULL;
    ts->count--;
    if (ts->free_n == ts->free_cap) {
        uint32_t cap = ts->free_cap ? ts->free_cap * 2 : 64;
        uint32_t *wider = realloc(ts->free_slots, cap * sizeof *wider);
        if (wider) {
            ts->free_slots = wider;
            ts->free_cap = cap;
        }
    }
    if (ts->free_n < ts->free_cap)
        ts->free_slots[ts->free_n++] = t->slot;
    free(t);
}

struct mailbox_topic *mailbox_topics_after(const struct mailbox_topics *ts, struct str name, bool inclusive)
{
    struct mailbox_topic *best = NULL;
    for (uint32_t i = ts->root; i;) {
        struct mailbox_topic *t = at(ts, i);
        int c = str_cmp(mailbox_topic_name(t), name);
        if (c > 0 || (inclusive && c == 0)) {
            best = t;
            i = t->below[0];
        } else {
            i = t->below[1];
        }
    }
    return best;
}
