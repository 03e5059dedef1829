/*
 * Salvage: what replay does differently when a journal is known to be damaged.
 *
 * A topic is harmed when its numbers or links jump. A loss at the very end of a topic leaves no jump: so whenever bytes cannot be
 * read every topic is in doubt, and only a later record that fits its last one clears it, or the index file of the segment, which
 * knows how far each topic got in it. Numbers go on where they were; the links
 * of a harmed topic start from a new chain id, so that nobody can mistake the new history for the old one.
 */
#include "services/mailbox/core/shard_internal.h"

void mailbox_salvage_begin(struct mailbox_shard *s)
{
    s->salvaging = true;
    mailbox_replay_begin(s);
}

void mailbox_salvage_lost(struct mailbox_shard *s)
{
    for (uint32_t k = 1; k < s->topics.slots; k++)
        if (s->topics.slot[k])
            s->topics.slot[k]->harm |= MAILBOX_HARM_DOUBT;
}

void mailbox_salvage_witness(struct mailbox_shard *s, uint32_t topic_id, uint64_t topic_seq,
                             const struct sha256 *chain)
{
    struct mailbox_topic *t = mailbox_topics_by_id(&s->topics, topic_id);
    if (t && (t->topic_seq != topic_seq || !sha256_eq(&t->chain, chain)))
        t->harm |= MAILBOX_HARM_SURE;
}

void mailbox_salvage_believe(struct mailbox_shard *s)
{
    for (uint32_t k = 1; k < s->topics.slots; k++)
        if (s->topics.slot[k])
            s->topics.slot[k]->harm &= MAILBOX_HARM_SURE;
}

static void begin_anew(struct mailbox_shard *s, struct mailbox_topic *t)
{
    uint8_t random[10];
    rng_bytes(&s->rng, random, sizeof random);
    t->chain_id = uuid_v7((int64_t)s->now.wall_ms, random);
    mailbox_chain_genesis(mailbox_topic_name(t), &t->chain_id, &t->chain);
    t->harm = 0;
}

/* A group leases a message once at most. */
static void raise_attempt(struct mailbox_shard *s, uint32_t i, uint32_t groups)
{
    struct mailbox_entry *e = ENTRY(s, i);
    uint64_t most = UINT16_MAX - 1u, to = (uint64_t)e->attempt + groups;
    e->attempt = (uint16_t)(to < most ? to : most);
    if (e->state == MAILBOX_DELAYED && (e->flags & MAILBOX_F_AFTER_FAIL)) {
        mailbox_entry_set_due(
            e, 0); /* its failure belongs to an older attempt now: it is tried again at once, in order */
        mailbox_shard__set_state(s, i, MAILBOX_READY);
    }
}

uint32_t mailbox_salvage_harmed(struct mailbox_shard *s, uint32_t groups,
                                void (*tell)(void *ctx, struct str topic), void *ctx)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k < s->topics.slots; k++) {
        struct mailbox_topic *t = s->topics.slot[k];
        if (!t || !t->harm)
            continue;
        tell(ctx, mailbox_topic_name(t));
        begin_anew(s, t);
        n++;
    }
    for (uint32_t i = 1; groups && i < s->slabs.used; i++)
        if (ENTRY(s, i)->state != MAILBOX_FREE && ENTRY(s, i)->state != MAILBOX_DONE)
            raise_attempt(s, i, groups);
    s->salvaging = false;
    return n;
}
