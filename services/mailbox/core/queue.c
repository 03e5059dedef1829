/*
 * The queues of a topic: fresh messages in a list, returned ones in a heap by number, dead letters in a list. The next to be
 * delivered is the lower of the first two heads.
 */
#include "services/mailbox/core/shard_internal.h"

void mailbox_shard__fifo_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    e->left = e->right = 0;
    if (t->fifo_tail)
        ENTRY(s, t->fifo_tail)->right = i;
    else
        t->fifo_head = i;
    t->fifo_tail = i;
}

/* Top-down skew heap: no balance is stored, and merging is a loop, so depth costs no stack. */
static uint32_t heap_merge(struct mailbox_shard *s, uint32_t a, uint32_t b)
{
    uint32_t root = 0, *link = &root;
    while (a && b) {
        if (ENTRY(s, b)->topic_seq < ENTRY(s, a)->topic_seq) {
            uint32_t swap = a;
            a = b;
            b = swap;
        }
        struct mailbox_entry *e = ENTRY(s, a);
        uint32_t rest = e->right;
        *link = a;
        e->right = e->left;
        link = &e->left;
        a = rest;
    }
    *link = a ? a : b;
    return root;
}

void mailbox_shard__heap_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    e->left = e->right = 0;
    t->heap = heap_merge(s, t->heap, i);
}

static uint32_t heap_pop(struct mailbox_shard *s, struct mailbox_topic *t)
{
    uint32_t i = t->heap;
    struct mailbox_entry *e = ENTRY(s, i);
    t->heap = heap_merge(s, e->left, e->right);
    e->left = e->right = 0;
    return i;
}

uint32_t mailbox_shard__ready_head(struct mailbox_shard *s, struct mailbox_topic *t)
{
    while (t->heap && (ENTRY(s, t->heap)->flags & MAILBOX_F_GHOST)) {
        uint32_t i = heap_pop(s, t);
        ENTRY(s, i)->flags &= (uint8_t)~MAILBOX_F_GHOST & 31;
        mailbox_shard__forget_later(s, i);
    }
    if (!t->heap)
        return t->fifo_head;
    if (!t->fifo_head)
        return t->heap;
    return ENTRY(s, t->heap)->topic_seq < ENTRY(s, t->fifo_head)->topic_seq ? t->heap : t->fifo_head;
}

void mailbox_shard__ready_pop(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    if (i == t->heap) {
        heap_pop(s, t);
        return;
    }
    CHECK(i == t->fifo_head);
    struct mailbox_entry *e = ENTRY(s, i);
    t->fifo_head = e->right;
    if (!t->fifo_head)
        t->fifo_tail = 0;
    e->right = 0;
}

void mailbox_shard__dlq_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    e->left = t->dlq_tail;
    e->right = 0;
    if (t->dlq_tail)
        ENTRY(s, t->dlq_tail)->right = i;
    else
        t->dlq_head = i;
    t->dlq_tail = i;
}

void mailbox_shard__dlq_remove(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    *(e->left ? &ENTRY(s, e->left)->right : &t->dlq_head) = e->right;
    *(e->right ? &ENTRY(s, e->right)->left : &t->dlq_tail) = e->left;
    e->left = e->right = 0;
}
