#include "services/mailbox/core/entry.h"

#include <stdlib.h>

#include "base/check.h"

void mailbox_slabs_init(struct mailbox_slabs *s)
{
    *s = (struct mailbox_slabs){.used = 1}; /* index 0 means none */
}

void mailbox_slabs_fini(struct mailbox_slabs *s)
{
    for (uint32_t i = 0; i < s->slabs; i++)
        huge_free(s->slab[i]);
    free(s->slab);
    *s = (struct mailbox_slabs){0};
}

static enum err grow(struct mailbox_slabs *s)
{
    struct mailbox_entry **dir = realloc(s->slab, (s->slabs + 1) * sizeof *dir);
    if (!dir)
        return ERR_NO_MEMORY;
    s->slab = dir;
    struct mailbox_entry *slab = huge_alloc(mailbox_slabs_whole(s, s->slabs));
    if (!slab)
        return ERR_NO_MEMORY;
    s->slab[s->slabs++] = slab;
    return ERR_OK;
}

enum err mailbox_slabs_alloc(struct mailbox_slabs *s, uint32_t *out_index)
{
    uint32_t index = s->free_head;
    if (index) {
        s->free_head = mailbox_entry_at(s, index)->right;
    } else {
        if (s->used == INT32_MAX) /* an index slot keeps at least one bit for its mark */
            return ERR_NO_MEMORY;
        if (s->used / MAILBOX_SLAB_ENTRIES == s->slabs) {
            enum err e = grow(s);
            if (e != ERR_OK)
                return e;
        }
        index = s->used++;
    }
    memset(mailbox_entry_at(s, index), 0, sizeof(struct mailbox_entry));
    s->live++;
    *out_index = index;
    return ERR_OK;
}

void mailbox_slabs_free(struct mailbox_slabs *s, uint32_t index)
{
    struct mailbox_entry *e = mailbox_entry_at(s, index);
    CHECK(e->state != MAILBOX_FREE && s->live > 0);
    e->state = MAILBOX_FREE;
    uint32_t *head = s->hold_free ? &s->held_head : &s->free_head;
    e->right = *head;
    *head = index;
    s->live--;
}

void mailbox_slabs_release_held(struct mailbox_slabs *s)
{
    s->hold_free = false;
    while (s->held_head) {
        uint32_t index = s->held_head;
        struct mailbox_entry *e = mailbox_entry_at(s, index);
        s->held_head = e->right;
        e->right = s->free_head;
        s->free_head = index;
    }
}
