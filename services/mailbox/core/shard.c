/*
 * The shard: one message's life is a walk through the states of entry.h, and this file owns the moves.
 *
 *   send ──► READY/DELAYED ──lease──► LEASED ──ack──► DONE ──window over──► forgotten
 *                 ▲                      │
 *                 └── due, expiry, nack ─┴── too many tries ──► DLQ ──purge──► DONE
 *                 ▲                                              │
 *                 └─────────────────── reprocess ────────────────┘
 *
 * set_state() is the only writer of a state and keeps the counts of shard, topic and segment in step, so that
 * mailbox_shard_check() can recount everything and compare. Sending is in send.c, leasing in lease.c, the queues of a topic in
 * queue.c, settling in settle.c, time in expire.c, waiting in park.c, recovery in replay.c.
 */
#include <stdlib.h>

#include "services/mailbox/core/shard_internal.h"

enum err mailbox_shard_init(struct mailbox_shard *s, uint16_t no, const struct mailbox_rules *rules,
                            uint64_t seed, struct mailbox_now now, void *group_memory)
{
    memset(s, 0, offsetof(struct mailbox_shard, events));
    s->no = no;
    s->rules = rules;
    s->now = now;
    s->lazy_since_us = INT64_MAX;
    for (int c = 0; c < MAILBOX_CLASSES_MAX; c++)
        s->oldest_ready_us[c] = s->oldest_so_far_us[c] = INT64_MAX;
    rng_seed(&s->rng, seed);
    mailbox_slabs_init(&s->slabs);
    mailbox_index_init(&s->by_id, &s->slabs, offsetof(struct mailbox_entry, msg_id), sizeof(struct uuid),
                       rng_u64(&s->rng));
    mailbox_index_init(&s->by_key, &s->slabs, offsetof(struct mailbox_entry, digest), MAILBOX_DIGEST_KEPT,
                       rng_u64(&s->rng));
    for (uint32_t i = 0; i < MAILBOX_IDS_AHEAD; i++)
        s->ids_ahead[i] = rng_u64(&s->rng);
    mailbox_wheel_init(&s->timers, &s->slabs, now.mono_us);
    mailbox_wheel_init(&s->forget, &s->slabs, now.mono_us);
    mailbox_rec_w_init(&s->group, group_memory, MAILBOX_GROUP_MEMORY);
    mailbox_tenants_init(&s->tenants);
    enum err e = mailbox_topics_init(&s->topics);
    if (e == ERR_OK)
        e = mailbox_history_init(&s->history);
    return e;
}

void mailbox_shard_fini(struct mailbox_shard *s)
{
    mailbox_history_fini(&s->history);
    mailbox_topics_fini(&s->topics);
    mailbox_tenants_fini(&s->tenants);
    mailbox_index_fini(&s->by_id);
    mailbox_index_fini(&s->by_key);
    mailbox_slabs_fini(&s->slabs);
    free(s->pending);
    free(s->streams);
    free(s->segment_use);
}

void mailbox_shard_set_rules(struct mailbox_shard *s, const struct mailbox_rules *rules)
{
    s->rules = rules;
    for (uint32_t i = 1; i < s->topics.slots; i++)
        if (s->topics.slot[i])
            s->topics.slot[i]->policy =
                mailbox_policy_match(&rules->policies, mailbox_topic_name(s->topics.slot[i]));
}

struct mailbox_topic *mailbox_shard__topic(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    struct mailbox_topic *t = s->topics.slot[e->topic];
    CHECK(t != NULL);
    return t;
}

const struct mailbox_policy *mailbox_shard_policy(const struct mailbox_shard *s,
                                                  const struct mailbox_topic *t)
{
    return &s->rules->policies.p[t->policy];
}

const struct mailbox_policy *mailbox_shard__policy(const struct mailbox_shard *s,
                                                   const struct mailbox_entry *e)
{
    return mailbox_shard_policy(s, mailbox_shard__topic(s, e));
}

struct mailbox_class_stats *mailbox_shard__stats(struct mailbox_shard *s, const struct mailbox_topic *t)
{
    return &s->stats.of[t->policy];
}

uint32_t mailbox_shard_find(const struct mailbox_shard *s, const struct uuid *id)
{
    return mailbox_index_find(&s->by_id, id->b);
}

struct mailbox_topic *mailbox_shard_topic_of(const struct mailbox_shard *s, uint32_t entry)
{
    return mailbox_shard__topic(s, ENTRY(s, entry));
}

/* ---- segments: what still lives where ---- */

static struct mailbox_segment_use *use_of(struct mailbox_shard *s, uint32_t segment)
{
    if (segment == MAILBOX_SEGMENT_PENDING)
        return NULL;
    if (s->segment_n == 0)
        s->segment_first = segment;
    if (segment < s->segment_first || segment >= s->segment_first + s->segment_n) {
        uint32_t first = segment < s->segment_first ? segment : s->segment_first;
        uint32_t end =
            s->segment_first + s->segment_n > segment + 1 ? s->segment_first + s->segment_n : segment + 1;
        struct mailbox_segment_use *wider = calloc(end - first, sizeof *wider);
        CHECK(wider != NULL); /* 16 bytes per segment of at least 4 MiB */
        if (s->segment_n)
            memcpy(wider + (s->segment_first - first), s->segment_use, s->segment_n * sizeof *wider);
        free(s->segment_use);
        s->segment_use = wider;
        s->segment_first = first;
        s->segment_n = end - first;
    }
    return &s->segment_use[segment - s->segment_first];
}

const struct mailbox_segment_use *mailbox_shard_segment_use(const struct mailbox_shard *s, uint32_t segment)
{
    static const struct mailbox_segment_use none;
    if (segment < s->segment_first || segment >= s->segment_first + s->segment_n)
        return &none;
    return &s->segment_use[segment - s->segment_first];
}

static void account(struct mailbox_shard *s, const struct mailbox_entry *e, int sign)
{
    struct mailbox_segment_use *u = use_of(s, e->segment);
    if (!u || e->state == MAILBOX_FREE)
        return;
    uint32_t one = (uint32_t)sign;
    if (e->state == MAILBOX_DONE) {
        u->keys += one;
    } else {
        u->waiting += one;
        u->waiting_bytes += (uint64_t)(sign * (int64_t)(e->length64 * 64));
    }
}

static bool waits(enum mailbox_state st)
{
    return st != MAILBOX_FREE && st != MAILBOX_DONE;
}

static bool blocks(const struct mailbox_entry *e)
{
    return e->state == MAILBOX_LEASED || (e->state == MAILBOX_DELAYED && (e->flags & MAILBOX_F_AFTER_FAIL));
}

void mailbox_shard__set_state(struct mailbox_shard *s, uint32_t i, enum mailbox_state to)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);

    account(s, e, -1);
    if (waits(to) != waits(e->state))
        mailbox_tenants_count(&s->tenants, t->tenant, waits(to) ? 1 : -1);
    if (e->state != MAILBOX_FREE) {
        CHECK(s->count[e->state] > 0 && t->count[e->state] > 0);
        s->count[e->state]--;
        t->count[e->state]--;
        t->blocking -= blocks(e);
    }
    e->state = to & 7;
    if (to != MAILBOX_DELAYED)
        e->flags &= (uint8_t)~MAILBOX_F_AFTER_FAIL & 31;
    if (to != MAILBOX_FREE) {
        s->count[to]++;
        t->count[to]++;
        t->blocking += blocks(e);
    }
    account(s, e, 1);
}

void mailbox_shard__set_place(struct mailbox_shard *s, uint32_t i, uint32_t segment, uint32_t offset8,
                              uint32_t length64)
{
    struct mailbox_entry *e = ENTRY(s, i);
    account(s, e, -1);
    e->segment = segment;
    e->offset8 = offset8;
    e->length64 = (uint16_t)length64;
    account(s, e, 1);
}

/* ---- windows ---- */

/*
 * accept_ms32 holds the monotonic accept time modulo 2^32 ms; the id's wall time says which of the turns it was. Wall steps
 * below 24 days cannot confuse the two.
 */
int64_t mailbox_shard__accept_us(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    int64_t now_ms = s->now.mono_us / 1000;
    int64_t about = now_ms - ((int64_t)s->now.wall_ms - (int64_t)mailbox_id_ts_ms(&e->msg_id));
    if (about > now_ms)
        about = now_ms;
    int32_t off = (int32_t)(e->accept_ms32 - (uint32_t)(uint64_t)about);
    int64_t at = about + off;
    return (at > now_ms ? now_ms : at) * 1000;
}

int64_t mailbox_shard__ready_since_us(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    return e->flags & MAILBOX_F_LATE ? s->now.mono_us : mailbox_shard__accept_us(s, e);
}

int64_t mailbox_shard__window_end_us(const struct mailbox_shard *s, const struct mailbox_entry *e)
{
    uint64_t replay = mailbox_shard__policy(s, e)->t_replay_ms;
    if (replay == MAILBOX_UNLIMITED)
        return INT64_MAX;
    return mailbox_shard__accept_us(s, e) + (int64_t)replay * 1000;
}

void mailbox_shard__free(struct mailbox_shard *s, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    struct mailbox_topic *t = mailbox_shard__topic(s, e);
    mailbox_index_remove(&s->by_id, i);
    if (!(e->flags & MAILBOX_F_KEYLESS))
        mailbox_index_remove(&s->by_key, i);
    if (e->flags & MAILBOX_F_HISTORY)
        mailbox_history_drop(&s->history, i);
    account(s, e, -1);
    if (waits(e->state))
        mailbox_tenants_count(&s->tenants, t->tenant, -1);
    s->count[e->state]--;
    t->count[e->state]--;
    mailbox_slabs_free(&s->slabs, i);
    mailbox_shard__topic_unused(s, t);
}

void mailbox_shard__forget_later(struct mailbox_shard *s, uint32_t i)
{
    struct mailbox_entry *e = ENTRY(s, i);
    if (mailbox_entry_due(e) <= s->now.mono_us)
        mailbox_shard__free(s, i);
    else if (mailbox_entry_due(e) != INT64_MAX)
        mailbox_wheel_add(&s->forget, i);
}

void mailbox_shard__topic_unused(struct mailbox_shard *s, struct mailbox_topic *t)
{
    if (t->count[MAILBOX_READY] + t->count[MAILBOX_DELAYED] + t->count[MAILBOX_LEASED] +
            t->count[MAILBOX_DLQ] + t->count[MAILBOX_DONE] ==
        0)
        t->idle_since_us = s->now.mono_us;
}

void mailbox_shard__to_done(struct mailbox_shard *s, uint32_t i, bool acked, bool in_heap)
{
    struct mailbox_entry *e = ENTRY(s, i);
    mailbox_shard__set_state(s, i, MAILBOX_DONE);
    mailbox_entry_set_due(e, mailbox_shard__window_end_us(s, e));
    e->flags = (uint8_t)(acked ? e->flags | MAILBOX_F_ACKED : e->flags & ~MAILBOX_F_ACKED) & 31;
    if (e->flags & MAILBOX_F_HISTORY) {
        mailbox_history_drop(&s->history, i);
        e->flags &= (uint8_t)~MAILBOX_F_HISTORY & 31;
    }
    if (in_heap)
        e->flags = (e->flags | MAILBOX_F_GHOST) & 31;
    else
        mailbox_shard__forget_later(s, i);
}

/* ---- records ---- */

void mailbox_shard__wrote(struct mailbox_shard *s, enum err e, bool flush)
{
    CHECK(e == ERR_OK); /* MAILBOX_GROUP_SLACK is what one event may add */
    if (s->readonly) {
        mailbox_rec_w_reset(&s->group);
        return;
    }
    s->must_flush |= flush;
    if (s->lazy_since_us == INT64_MAX)
        s->lazy_since_us = s->now.mono_us;
}

enum err mailbox_shard__pending_reserve(struct mailbox_shard *s)
{
    if (s->pending_n < s->pending_cap)
        return ERR_OK;
    uint32_t cap = s->pending_cap ? s->pending_cap * 2 : 256;
    struct mailbox_pending *wider = realloc(s->pending, cap * sizeof *wider);
    if (!wider)
        return ERR_NO_MEMORY;
    s->pending = wider;
    s->pending_cap = cap;
    return ERR_OK;
}

void mailbox_shard__put_topic(struct mailbox_shard *s, uint32_t id, const struct mailbox_topic *t)
{
    struct str tenant = mailbox_tenant_name(t->tenant);
    struct mailbox_rec_topic r = {
        t->chain_id,           t->created_ms,
        t->topic_seq,          t->chain,
        mailbox_topic_name(t), str_eq_c(tenant, MAILBOX_TENANT_DEFAULT) ? str_of("", 0) : tenant};
    mailbox_shard__wrote(s, mailbox_rec_put_topic(&s->group, id, &r), true);
}

void mailbox_shard__name_topic(struct mailbox_shard *s, struct mailbox_topic *t)
{
    if (t->scope == s->scope)
        return;
    mailbox_shard__put_topic(s, t->id, t);
    t->scope = s->scope;
}

void mailbox_shard_committed(struct mailbox_shard *s, uint32_t segment, uint64_t payload_offset)
{
    for (uint32_t k = 0; k < s->pending_n; k++) {
        struct mailbox_pending p = s->pending[k];
        mailbox_shard__set_place(s, p.entry, segment, (uint32_t)((payload_offset + p.at) / 8),
                                 ENTRY(s, p.entry)->length64);
    }
    s->pending_n = 0;
    mailbox_rec_w_reset(&s->group);
    s->must_flush = false;
    s->lazy_since_us = INT64_MAX;
}

void mailbox_shard_failed(struct mailbox_shard *s)
{
    s->readonly = true;
    s->pending_n = 0;
    mailbox_rec_w_reset(&s->group);
    s->must_flush = false;
    s->lazy_since_us = INT64_MAX;
}

void mailbox_shard__event(struct mailbox_shard *s, enum mailbox_event_kind kind,
                          const struct mailbox_topic *t, uint32_t i, uint8_t cause)
{
    if (s->events_n == MAILBOX_EVENTS) {
        s->events_lost++;
        return;
    }
    struct mailbox_event *ev = &s->events[s->events_n++];
    struct str name = mailbox_topic_name(t);
    ev->kind = kind;
    ev->cause = cause;
    ev->topic_len = (uint16_t)name.n;
    memcpy(ev->topic, name.p, ev->topic_len);
    ev->msg_id = i ? ENTRY(s, i)->msg_id : (struct uuid){{0}};
    ev->attempt = i ? ENTRY(s, i)->attempt : 0;
}

/* ---- checking ---- */

void mailbox_shard_check(const struct mailbox_shard *s)
{
    uint32_t count[MAILBOX_STATES] = {0}, live = 0, keyless = 0;
    uint64_t waiting = 0, keys = 0, bytes = 0, seg_waiting = 0, seg_keys = 0, seg_bytes = 0;

    for (uint32_t i = 1; i < s->slabs.used; i++) {
        const struct mailbox_entry *e = ENTRY(s, i);
        if (e->state == MAILBOX_FREE)
            continue;
        live++;
        count[e->state]++;
        keyless += (e->flags & MAILBOX_F_KEYLESS) != 0;
        CHECK(mailbox_index_find(&s->by_id, e->msg_id.b) == i);
        CHECK((e->flags & MAILBOX_F_KEYLESS) || mailbox_index_find(&s->by_key, e->digest) == i);
        CHECK(e->state != MAILBOX_LEASED || e->attempt > 0);
        if (e->segment != MAILBOX_SEGMENT_PENDING) {
            waiting += e->state != MAILBOX_DONE;
            keys += e->state == MAILBOX_DONE;
            bytes += e->state != MAILBOX_DONE ? (uint64_t)e->length64 * 64 : 0;
        }
    }
    for (uint32_t k = 0; k < s->segment_n; k++) {
        seg_waiting += s->segment_use[k].waiting;
        seg_keys += s->segment_use[k].keys;
        seg_bytes += s->segment_use[k].waiting_bytes;
        CHECK(s->segment_use[k].waiting || !s->segment_use[k].waiting_bytes);
    }
    CHECK(live == s->slabs.live && live == s->by_id.n && live - keyless == s->by_key.n);
    CHECK(waiting == seg_waiting && keys == seg_keys && bytes == seg_bytes);
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        CHECK(count[st] == s->count[st]);
    CHECK(s->timers.count == (uint64_t)count[MAILBOX_LEASED] + count[MAILBOX_DELAYED]);
    uint32_t by_topic[MAILBOX_STATES] = {0};
    for (uint32_t k = 1; k < s->topics.slots; k++) {
        const struct mailbox_topic *t = s->topics.slot[k];
        for (int st = 0; t && st < MAILBOX_STATES; st++)
            by_topic[st] += t->count[st];
    }
    for (int st = MAILBOX_READY; st < MAILBOX_STATES; st++)
        CHECK(by_topic[st] == s->count[st]);
    CHECK(mailbox_tenants_sum(&s->tenants) == (uint64_t)count[MAILBOX_READY] + count[MAILBOX_DELAYED] +
                                                  count[MAILBOX_LEASED] + count[MAILBOX_DLQ]);
}
