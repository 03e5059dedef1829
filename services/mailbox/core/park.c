/*
 * Waiting: parked RECVs and streams form a ring per topic. A topic that gains something to deliver, or whose waiter gains
 * room, is marked dirty; serving walks the dirty topics and gives one message to each waiter in turn.
 */
#include <stdlib.h>

#include "services/mailbox/core/shard_internal.h"

void mailbox_shard__mark_dirty(struct mailbox_shard *s, struct mailbox_topic *t)
{
    if (t->dirty || !t->waiters)
        return;
    t->dirty = true;
    t->dirty_next = 0;
    if (s->dirty_tail)
        s->topics.slot[s->dirty_tail]->dirty_next = t->slot;
    else
        s->dirty_head = t->slot;
    s->dirty_tail = t->slot;
}

enum err mailbox_shard_topic_to_wait(struct mailbox_shard *s, const struct sha256 *hash, struct str name,
                                     struct mailbox_topic **out_topic)
{
    struct mailbox_topic *t = mailbox_topics_find(&s->topics, hash, name);
    if (!t) {
        if (s->topics.count >= s->rules->max_topics)
            return ERR_BUSY;
        enum err e = mailbox_topics_add(&s->topics, hash, name, MAILBOX_TOPIC_UNBORN, &t);
        if (e != ERR_OK)
            return e;
        t->policy = mailbox_policy_match(&s->rules->policies, name);
    }
    *out_topic = t;
    return ERR_OK;
}

void mailbox_shard_wait(struct mailbox_shard *s, struct mailbox_topic *t, struct mailbox_waiter *w)
{
    CHECK(w->topic == 0);
    w->topic = t->slot;
    w->given = 0;
    if (t->waiters) { /* at the end of the ring */
        w->next = t->waiters;
        w->prev = t->waiters->prev;
        w->prev->next = w;
        w->next->prev = w;
    } else {
        w->next = w->prev = w;
        t->waiters = w;
    }
    t->waiting++;
    t->streams += w->stream != 0;
    s->waiters++;
    mailbox_shard__mark_dirty(s, t);
}

static void forget_unborn(struct mailbox_shard *s, struct mailbox_topic *t)
{
    if (t->id == 0 && !t->waiters && !t->dirty)
        mailbox_topics_remove(&s->topics, t);
}

void mailbox_shard_leave(struct mailbox_shard *s, struct mailbox_waiter *w)
{
    if (w->stream) {
        s->streams[w->stream].waiter = NULL;
        s->open_streams--;
    }
    if (w->topic) {
        struct mailbox_topic *t = s->topics.slot[w->topic];
        if (w->next == w) {
            t->waiters = NULL;
        } else {
            w->prev->next = w->next;
            w->next->prev = w->prev;
            if (t->waiters == w)
                t->waiters = w->next;
        }
        t->waiting--;
        t->streams -= w->stream != 0;
        s->waiters--;
        w->topic = 0;
        w->next = w->prev = NULL;
        forget_unborn(s, t);
    }
    w->stream = 0;
}

enum err mailbox_shard_stream_open(struct mailbox_shard *s, struct mailbox_waiter *w)
{
    for (uint32_t k = 1; k < s->streams_cap; k++) {
        if (!s->streams[k].waiter && s->streams[k].outstanding == 0) {
            s->streams[k].waiter = w;
            w->stream = (uint16_t)k;
            s->open_streams++;
            return ERR_OK;
        }
    }
    if (s->streams_cap >= 32768)
        return ERR_BUSY;
    uint16_t cap = (uint16_t)(s->streams_cap ? s->streams_cap * 2 : 16);
    struct mailbox_stream_slot *wider = realloc(s->streams, cap * sizeof *wider);
    if (!wider)
        return ERR_NO_MEMORY;
    memset(wider + s->streams_cap, 0, (size_t)(cap - s->streams_cap) * sizeof *wider);
    s->streams = wider;
    s->streams_cap = cap;
    return mailbox_shard_stream_open(s, w);
}

/* What a waiter holds is bounded by its bytes, but for the first: a message larger than all of them goes to who has nothing else. */
static bool holds_nothing(const struct mailbox_shard *s, const struct mailbox_waiter *w)
{
    return w->stream ? s->streams[w->stream].outstanding == 0 : w->given == 0;
}

/* Who is next to be given the topic's next message; NULL when there is none, or nobody has room for it. */
static struct mailbox_waiter *next_with_room(struct mailbox_shard *s, struct mailbox_topic *t)
{
    uint32_t head = mailbox_shard__ready_head(s, t);
    struct mailbox_waiter *w = t->waiters;
    for (uint32_t k = 0; head && k < t->waiting; k++, w = w->next)
        if (w->room > 0 && (w->room_bytes >= (int64_t)ENTRY(s, head)->length64 * 64 || holds_nothing(s, w)))
            return w;
    return NULL;
}

/*
 * An ordered topic gives one batch to one waiter: what is LEASED now was READY a moment ago in this very batch, so the check
 * is made once and the same waiter is fed until it is full.
 */
static uint32_t serve_topic(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t max,
                            void (*give)(void *, struct mailbox_waiter *, uint32_t), void *ctx)
{
    const struct mailbox_policy *p = mailbox_shard_policy(s, t);
    uint32_t n = 0;
    if (p->ordered) {
        struct mailbox_waiter *w = next_with_room(s, t);
        uint32_t got[64];
        if (!w)
            return 0;
        struct mailbox_want want = {
            t,         w->visibility_us,    w->room < 64 ? w->room : 64, w->room_bytes,
            w->stream, !holds_nothing(s, w)};
        if (want.max > max)
            want.max = max;
        n = mailbox_shard_lease(s, s->now, &want, got);
        for (uint32_t k = 0; k < n; k++) {
            w->room--;
            w->room_bytes -= (int64_t)ENTRY(s, got[k])->length64 * 64;
            w->given++;
            give(ctx, w, got[k]);
        }
        t->waiters = w->next;
        return n;
    }
    while (n < max && !mailbox_shard_group_full(s)) {
        struct mailbox_waiter *w = next_with_room(s, t);
        uint32_t got;
        if (!w)
            break;
        struct mailbox_want want = {t, w->visibility_us, 1, w->room_bytes, w->stream, !holds_nothing(s, w)};
        if (mailbox_shard_lease(s, s->now, &want, &got) == 0)
            continue; /* what was next has outstayed its time, and what is next now is for somebody else, or there is none */
        w->room--;
        w->room_bytes -= (int64_t)ENTRY(s, got)->length64 * 64;
        w->given++;
        t->waiters = w->next;
        n++;
        give(ctx, w, got);
    }
    return n;
}

uint32_t mailbox_shard_serve(struct mailbox_shard *s, struct mailbox_now now, uint32_t max_leases,
                             void (*give)(void *ctx, struct mailbox_waiter *w, uint32_t entry), void *ctx)
{
    uint32_t n = 0;
    s->now = now;
    while (s->dirty_head && !s->readonly) {
        struct mailbox_topic *t = s->topics.slot[s->dirty_head];
        if (n >= max_leases || mailbox_shard_group_full(s))
            break; /* stays dirty for the next group */
        n += serve_topic(s, t, max_leases - n, give, ctx);
        bool whole = mailbox_shard_policy(s, t)->ordered && !mailbox_shard_group_full(s);
        if (t->waiters && !whole && next_with_room(s, t))
            break;
        s->dirty_head = t->dirty_next;
        if (!s->dirty_head)
            s->dirty_tail = 0;
        t->dirty = false;
        forget_unborn(s, t);
    }
    return n;
}
