#include <stdlib.h>

#include "services/mailbox/mailbox.h"

struct mailbox_note *mailbox_note_create(uint16_t shard, int64_t at_ms, const struct mailbox_event *ev)
{
    struct mailbox_note *n = malloc(sizeof *n);
    if (!n)
        return NULL;
    atomic_init(&n->refs, 1);
    n->shard = shard;
    n->at_ms = at_ms;
    n->ev = *ev;
    return n;
}

void mailbox_note_ref(void *note)
{
    struct mailbox_note *n = note;
    atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
}

void mailbox_note_unref(void *note)
{
    struct mailbox_note *n = note;
    if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) ==
        1) /* pairs with every earlier unref */
        free(n);
}

void mailbox_tell(struct mailbox *mb, uint16_t shard, const struct mailbox_event *ev)
{
    struct mailbox_note *note = mailbox_note_create(shard, clock_wall_ms(mb->clock), ev);
    if (note)
        rt_bcast_publish(mb->events, note);
}
