#include "services/mailbox/core/wheel.h"

#include "base/check.h"

enum { L0 = 0, L1 = 1024, L2 = 2048 };

void mailbox_wheel_init(struct mailbox_wheel *w, struct mailbox_slabs *slabs, int64_t now_us)
{
    memset(w, 0, sizeof *w);
    w->slabs = slabs;
    w->tick = now_us / MAILBOX_WHEEL_TICK_US;
    w->cascaded = true;
}

static uint32_t slot_for(const struct mailbox_wheel *w, int64_t due_us)
{
    int64_t t = due_us / MAILBOX_WHEEL_TICK_US;
    if (t < w->tick)
        t = w->tick; /* already due: found by the next advance */
    if (t - w->tick < 1024)
        return L0 + (uint32_t)(t & 1023);
    if ((t >> 10) - (w->tick >> 10) < 1024)
        return L1 + (uint32_t)((t >> 10) & 1023);
    if ((t >> 20) - (w->tick >> 20) < 256)
        return L2 + (uint32_t)((t >> 20) & 255);
    return L2 + (uint32_t)(((w->tick >> 20) + 255) & 255);
}

static void link_in(struct mailbox_wheel *w, uint32_t entry, uint32_t slot)
{
    struct mailbox_entry *e = mailbox_entry_at(w->slabs, entry);
    e->left = 0;
    e->right = w->head[slot];
    if (e->right)
        mailbox_entry_at(w->slabs, e->right)->left = entry;
    w->head[slot] = entry;
    w->occupied[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static void pop_head(struct mailbox_wheel *w, uint32_t slot)
{
    struct mailbox_entry *e = mailbox_entry_at(w->slabs, w->head[slot]);
    w->head[slot] = e->right;
    if (e->right)
        mailbox_entry_at(w->slabs, e->right)->left = 0;
    else
        w->occupied[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    e->left = e->right = 0;
}

void mailbox_wheel_add(struct mailbox_wheel *w, uint32_t entry)
{
    link_in(w, entry, slot_for(w, mailbox_entry_due(mailbox_entry_at(w->slabs, entry))));
    w->count++;
}

/* The first of a list has no left neighbour, so its slot must be searched among the places its due time allows. */
static uint32_t slot_of_head(const struct mailbox_wheel *w, uint32_t entry, int64_t due_us)
{
    int64_t t = due_us / MAILBOX_WHEEL_TICK_US;
    if (t < w->tick)
        t = w->tick;
    uint32_t tries[] = {L0 + (uint32_t)(t & 1023), L1 + (uint32_t)((t >> 10) & 1023),
                        L2 + (uint32_t)((t >> 20) & 255)};
    for (size_t i = 0; i < 3; i++)
        if (w->head[tries[i]] == entry)
            return tries[i];
    for (uint32_t i = 0; i < MAILBOX_WHEEL_SLOTS;
         i++) /* beyond the horizon, or overdue and not yet reached */
        if (w->head[i] == entry)
            return i;
    UNREACHABLE();
}

void mailbox_wheel_remove(struct mailbox_wheel *w, uint32_t entry)
{
    struct mailbox_entry *e = mailbox_entry_at(w->slabs, entry);
    if (e->left) {
        mailbox_entry_at(w->slabs, e->left)->right = e->right;
        if (e->right)
            mailbox_entry_at(w->slabs, e->right)->left = e->left;
        e->left = e->right = 0;
    } else {
        pop_head(w, slot_of_head(w, entry, mailbox_entry_due(e)));
    }
    w->count--;
}

/* Empties the coarse slots that begin at this tick into finer ones; false when the budget ran out. */
static bool cascade(struct mailbox_wheel *w, uint32_t *budget)
{
    if (w->cascaded)
        return true;
    uint32_t slots[2], n = 0;
    if ((w->tick & 0xfffff) == 0)
        slots[n++] = L2 + (uint32_t)((w->tick >> 20) & 255);
    if ((w->tick & 1023) == 0)
        slots[n++] = L1 + (uint32_t)((w->tick >> 10) & 1023);
    for (uint32_t i = 0; i < n; i++) {
        while (w->head[slots[i]]) {
            uint32_t entry = w->head[slots[i]];
            uint32_t to = slot_for(w, mailbox_entry_due(mailbox_entry_at(w->slabs, entry)));
            if (to ==
                slots
                    [i]) /* a full turn away again: cannot happen at level 1, at level 2 it is the horizon */
                break;
            if (*budget == 0)
                return false;
            --*budget;
            pop_head(w, slots[i]);
            link_in(w, entry, to);
        }
    }
    w->cascaded = true;
    return true;
}

static bool run_slot(struct mailbox_wheel *w, int64_t now_us, uint32_t *budget,
                     void (*due)(void *, uint32_t), void *ctx)
{
    uint32_t slot = L0 + (uint32_t)(w->tick & 1023);
    uint32_t entry = w->head[slot];
    while (entry) {
        struct mailbox_entry *e = mailbox_entry_at(w->slabs, entry);
        uint32_t after = e->right;
        if (mailbox_entry_due(e) <= now_us) {
            if (*budget == 0)
                return false;
            --*budget;
            mailbox_wheel_remove(w, entry);
            due(ctx, entry);
        }
        entry = after;
    }
    return true;
}

bool mailbox_wheel_advance(struct mailbox_wheel *w, int64_t now_us, uint32_t budget,
                           void (*due)(void *ctx, uint32_t entry), void *ctx)
{
    int64_t target = now_us / MAILBOX_WHEEL_TICK_US;
    for (;;) {
        if (!cascade(w, &budget))
            return true;
        if (!run_slot(w, now_us, &budget, due, ctx))
            return true;
        if (w->tick >= target)
            return false;
        if (w->count == 0) {
            w->tick = target;
            w->cascaded = true;
            return false;
        }
        CHECK(w->head[L0 + (w->tick & 1023)] == 0);
        int64_t next =
            mailbox_wheel_next_due(w) / MAILBOX_WHEEL_TICK_US; /* nothing to do or to cascade before it */
        w->tick = next > target ? target : next > w->tick ? next : w->tick + 1;
        w->cascaded = false;
    }
}

static int64_t first_from(const struct mailbox_wheel *w, uint32_t base, uint32_t slots, uint32_t start)
{
    for (uint32_t i = 0; i < slots;) {
        uint32_t s = base + ((start + i) & (slots - 1));
        uint64_t word = w->occupied[s / 64] >> (s % 64);
        if (word & 1)
            return i;
        i += word ? (uint32_t)__builtin_ctzll(word) : 64 - s % 64;
    }
    return -1;
}

int64_t mailbox_wheel_next_due(const struct mailbox_wheel *w)
{
    if (w->count == 0)
        return INT64_MAX;
    int64_t best = INT64_MAX, i = first_from(w, L0, 1024, (uint32_t)(w->tick & 1023));
    if (i >= 0)
        best = w->tick + i;
    i = first_from(w, L1, 1024, (uint32_t)((w->tick >> 10) & 1023));
    if (i >= 0 && ((w->tick >> 10) + i) << 10 < best)
        best = ((w->tick >> 10) + i) << 10;
    i = first_from(w, L2, 256, (uint32_t)((w->tick >> 20) & 255));
    if (i >= 0 && ((w->tick >> 20) + i) << 20 < best)
        best = ((w->tick >> 20) + i) << 20;
    return best < w->tick ? w->tick * MAILBOX_WHEEL_TICK_US : best * MAILBOX_WHEEL_TICK_US;
}

/* Levels overlap, so each has its say; within one, slots come in the order of time. */
int64_t mailbox_wheel_next_due_of(const struct mailbox_wheel *w, uint32_t topic, uint32_t most)
{
    const uint32_t base[] = {L0, L1, L2}, slots[] = {1024, 1024, 256};
    int64_t best = INT64_MAX;
    for (int level = 0; level < 3; level++) {
        uint32_t start = (uint32_t)(w->tick >> 10 * level);
        int64_t found = INT64_MAX;
        for (uint32_t i = 0; i < slots[level] && found == INT64_MAX; i++) {
            const struct mailbox_entry *e;
            for (uint32_t x = w->head[base[level] + ((start + i) & (slots[level] - 1))]; x; x = e->right) {
                if (most-- == 0)
                    return INT64_MAX;
                e = mailbox_entry_at(w->slabs, x);
                if (e->topic == topic && mailbox_entry_due(e) < found)
                    found = mailbox_entry_due(e);
            }
        }
        best = found < best ? found : best;
    }
    return best;
}
