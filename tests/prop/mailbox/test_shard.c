/*
 * The shard core against a naive model on a virtual clock: a million random events a run, messages and whole segments that are written
 * again so that old ones can go, crashes with loss of what was not written, and the outside checker watching. Seed: MAILBOX_SEED, events: MAILBOX_EVENTS_N.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "services/mailbox/core/shard.h"
#include "services/mailbox/core/trace.h"

enum { TOPICS = 6, KEYS = 40, LIVE_MAX = 400, SEGMENT = 1 << 20 };

enum mstate { M_READY, M_DELAYED, M_LEASED, M_DLQ, M_DONE };

struct model_msg {
    bool used;
    struct uuid id;
    int topic, key, payload;
    uint64_t seq;
    enum mstate st;
    uint16_t attempt;
    unsigned tries;
    int64_t accept_us, due_us, retention_us;
    bool after_fail, acked, delayed_at_first, late, durable;
    bool
        key_moved; /* settled, and its key was written again: its attempt and who settled it may be gone with the segment */
    /* what a crash goes back to: the last written state */
    enum mstate d_st;
    uint16_t d_attempt;
    unsigned d_tries;
    int64_t d_due_us;
    bool d_after_fail, d_acked, d_late, d_known;
};

struct world {
    struct rng rng;
    struct mailbox_rules rules;
    struct mailbox_shard *s;
    void *group;
    struct mailbox_now now;
    struct model_msg m[LIVE_MAX];
    uint64_t seq[TOPICS];
    struct sha256 hash[TOPICS];
    char name[TOPICS][16];
    uint8_t *journal; /* committed groups, one after another; segment = 1 + offset / SEGMENT */
    size_t journal_n, journal_cap;
    uint32_t first_segment, groups; /* segments before the first are gone */
    struct mailbox_trace trace;
    struct sha256 head[TOPICS];
    uint64_t events, delivered, crashes, dups, full, moved, dropped;
};

static int64_t ms(const struct world *w)
{
    return w->now.mono_us / 1000;
}

static void feed(struct world *w, struct mailbox_trace_event ev)
{
    ev.at_ms = ms(w);
    if (mailbox_trace_feed(&w->trace, &ev) != ERR_OK)
        fail_msg("event %llu: %s", (unsigned long long)w->events, w->trace.why);
}

static struct model_msg *by_key(struct world *w, int topic, int key)
{
    for (int i = 0; i < LIVE_MAX; i++)
        if (w->m[i].used && w->m[i].topic == topic && w->m[i].key == key)
            return &w->m[i];
    return NULL;
}

static const struct mailbox_policy *policy(struct world *w, int topic)
{
    return &w->rules.policies.p[mailbox_policy_match(&w->rules.policies, str_from_c(w->name[topic]))];
}

static bool window_over(struct world *w, const struct model_msg *m)
{
    uint64_t r = policy(w, m->topic)->t_replay_ms;
    return r != MAILBOX_UNLIMITED && w->now.mono_us >= (m->accept_us / 1000 + (int64_t)r) * 1000;
}

static void model_done(struct world *w, struct model_msg *m, bool acked)
{
    m->st = M_DONE;
    m->acked = acked;
    if (window_over(w, m) && m->d_st == M_DONE)
        m->used = false;
}

/* Since when a message that comes back has waited: since it was accepted (kept in whole ms), if it has waited from then on. */
static int64_t since(const struct world *w, const struct model_msg *m)
{
    return m->late ? w->now.mono_us : m->accept_us / 1000 * 1000;
}

/* Time in the model: what is due has happened. */
static void model_time(struct world *w)
{
    for (int i = 0; i < LIVE_MAX; i++) {
        struct model_msg *m = &w->m[i];
        if (!m->used)
            continue;
        if (m->st == M_DELAYED && m->due_us <= w->now.mono_us) {
            m->st = M_READY;
            m->retention_us = m->after_fail ? since(w, m) : m->due_us;
            m->after_fail = false;
        } else if (m->st == M_LEASED && m->due_us <= w->now.mono_us) {
            if (m->tries >= policy(w, m->topic)->max_attempts) {
                m->st = M_DLQ;
                feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DEAD, .id = m->id});
            } else {
                m->st = M_READY;
                m->retention_us = since(w, m);
            }
        } else if (m->st == M_DONE && window_over(w, m) && m->d_st == M_DONE) {
            m->used = false;
        }
    }
}

static void tick(struct world *w)
{
    while (mailbox_shard_tick(w->s, w->now))
        ;
    model_time(w);
}

static uint32_t active_segment(const struct world *w)
{
    return (uint32_t)(1 + w->journal_n / SEGMENT);
}

/* As the log does it: a group that may begin a segment names its topics. */
static void set_scope(struct world *w)
{
    bool stays = SEGMENT - w->journal_n % SEGMENT > 4 * MAILBOX_LAZY_BYTES;
    mailbox_shard_scope(w->s, active_segment(w), stays ? 0 : ++w->groups << 1 | 1);
}

static void commit(struct world *w)
{
    struct mailbox_rec_w *g = &w->s->group;
    assert_true(g->n < 4 * MAILBOX_LAZY_BYTES);
    if (g->n) {
        mailbox_rec_seal(g);
        if (w->journal_n / SEGMENT != (w->journal_n + g->n + 8) / SEGMENT)
            w->journal_n = (w->journal_n / SEGMENT + 1) * SEGMENT;
        if (w->journal_n + g->n + 8 > w->journal_cap) {
            w->journal_cap = (w->journal_n + g->n + 8) * 2;
            w->journal = realloc(w->journal, w->journal_cap);
            CHECK(w->journal != NULL);
        }
        memset(w->journal + w->journal_n, 0, 8);
        le64_put(w->journal + w->journal_n, g->n);
        memcpy(w->journal + w->journal_n + 8, g->p, g->n);
        mailbox_shard_committed(w->s, (uint32_t)(1 + w->journal_n / SEGMENT), w->journal_n % SEGMENT + 8);
        w->journal_n += 8 + ((le64_get(w->journal + w->journal_n) + 7) & ~(size_t)7);
        if (w->journal_n + 8 <= w->journal_cap)
            memset(w->journal + w->journal_n, 0, 8);
        set_scope(w);
    }
    for (int i = 0; i < LIVE_MAX; i++) {
        struct model_msg *m = &w->m[i];
        if (!m->used)
            continue;
        m->durable = m->d_known = true;
        m->d_st = m->st;
        m->d_attempt = m->attempt;
        m->d_tries = m->tries;
        m->d_due_us = m->due_us;
        m->d_after_fail = m->after_fail;
        m->d_late = m->late;
        m->d_acked = m->acked;
    }
}

static int free_slot(struct world *w)
{
    for (int i = 0; i < LIVE_MAX; i++)
        if (!w->m[i].used)
            return i;
    return -1;
}

static void do_send(struct world *w)
{
    int topic = (int)rng_below(&w->rng, TOPICS), key = (int)rng_below(&w->rng, KEYS), slot = free_slot(w);
    char k[16], pay[16];
    uint8_t attrs[4] = {0};
    snprintf(k, sizeof k, "key-%d", key);
    snprintf(pay, sizeof pay, "pay-%d", key);
    struct mailbox_send in = {.topic = str_from_c(w->name[topic]),
                              .idem_key = str_from_c(k),
                              .corr_id = STR("c"),
                              .topic_hash = &w->hash[topic],
                              .tenant = topic % 2 ? STR("acme") : STR("default"),
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of_str(str_from_c(pay))};
    if (rng_below(&w->rng, 4) == 0)
        in.delay_ms = rng_below(&w->rng, 2000);
    else if (rng_below(&w->rng, 8) == 0)
        in.deliver_at_ms = w->now.wall_ms + rng_below(&w->rng, 500) - 100;
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    sha256_of(in.payload.p, in.payload.n, &in.payload_hash);
    sha256_of(attrs, 4, &in.attrs_hash);
    struct mailbox_sent out = {0};
    struct model_msg *old = by_key(w, topic, key);
    if (old && old->st == M_DONE && window_over(w, old))
        old->used = false, old = NULL;
    if (slot < 0)
        slot = free_slot(w);
    if (slot < 0)
        return;
    uint32_t live = w->s->slabs.live;
    enum err e = mailbox_shard_send(w->s, w->now, &in, &out);
    if (old) {
        assert_int_equal(e, ERR_OK);
        assert_true(out.duplicate);
        assert_true(mailbox_id_eq(&out.msg_id, &old->id));
        feed(w,
             (struct mailbox_trace_event){
                 .kind = MAILBOX_TRACE_DUPLICATE, .id = out.msg_id, .topic = in.topic, .key = in.idem_key});
        w->dups++;
        return;
    }
    if (e == ERR_BUSY) {
        assert_int_equal(out.refusal, MAILBOX_REFUSED_MESSAGES);
        assert_true(live >= w->rules.index_max);
        w->full++;
        return;
    }
    assert_int_equal(e, ERR_OK);
    assert_false(out.duplicate);
    assert_int_equal(out.topic_seq, w->seq[topic] + 1);
    w->seq[topic]++;
    w->head[topic] = out.chain;
    uint64_t delay = in.deliver_at_ms > w->now.wall_ms ? in.deliver_at_ms - w->now.wall_ms : in.delay_ms;
    w->m[slot] = (struct model_msg){.used = true,
                                    .id = out.msg_id,
                                    .topic = topic,
                                    .key = key,
                                    .seq = out.topic_seq,
                                    .st = delay ? M_DELAYED : M_READY,
                                    .accept_us = w->now.mono_us,
                                    .retention_us = w->now.mono_us,
                                    .delayed_at_first = delay != 0,
                                    .late = delay != 0,
                                    .due_us = w->now.mono_us + (int64_t)delay * 1000};
    commit(w); /* flushed before the answer */
    feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_SENT,
                                         .id = out.msg_id,
                                         .topic = in.topic,
                                         .key = in.idem_key,
                                         .seq = out.topic_seq,
                                         .until_ms = delay ? ms(w) + (int64_t)delay : 0});
}

static struct model_msg *model_next(struct world *w, int topic)
{
    struct model_msg *best = NULL;
    for (int i = 0; i < LIVE_MAX; i++) {
        struct model_msg *m = &w->m[i];
        if (m->used && m->topic == topic && m->st == M_READY && (!best || m->seq < best->seq))
            best = m;
    }
    return best;
}

static bool model_blocked(struct world *w, int topic)
{
    if (!policy(w, topic)->ordered)
        return false;
    for (int i = 0; i < LIVE_MAX; i++) {
        struct model_msg *m = &w->m[i];
        if (m->used && m->topic == topic && (m->st == M_LEASED || (m->st == M_DELAYED && m->after_fail)))
            return true;
    }
    return false;
}

static void do_recv(struct world *w)
{
    int topic = (int)rng_below(&w->rng, TOPICS);
    struct mailbox_topic *t =
        mailbox_topics_find(&w->s->topics, &w->hash[topic], str_from_c(w->name[topic]));
    uint32_t got[8], max = 1 + (uint32_t)rng_below(&w->rng, 8);
    if (!t)
        return;
    int64_t vis = (int64_t)(50 + rng_below(&w->rng, 1500)) * 1000;
    struct mailbox_want want = {t, vis, max, INT64_MAX, 0, false};
    bool blocked = model_blocked(w, topic);
    uint32_t n = mailbox_shard_lease(w->s, w->now, &want, got);
    uint32_t k = 0;
    while (k < max && !blocked) {
        struct model_msg *m = model_next(w, topic);
        if (!m)
            break;
        if (w->now.mono_us - m->retention_us > (int64_t)w->rules.retention_ready_ms * 1000 ||
            m->tries >= policy(w, topic)->max_attempts) {
            struct mailbox_entry *x = mailbox_shard_entry(w->s, mailbox_shard_find(w->s, &m->id));
            if (x->state != MAILBOX_DLQ)
                fail_msg("event %llu: seq %llu has outstayed (%lld us, tries %u) in the model, the shard "
                         "says state %d, due %lld",
                         (unsigned long long)w->events, (unsigned long long)m->seq,
                         (long long)(w->now.mono_us - m->retention_us), m->tries, x->state,
                         (long long)(w->now.mono_us - mailbox_entry_due(x)));
            m->st = M_DLQ;
            feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DEAD, .id = m->id});
            continue;
        }
        if (k >= n) {
            struct mailbox_entry *x = mailbox_shard_entry(w->s, mailbox_shard_find(w->s, &m->id));
            fail_msg("event %llu, %llu crashes: topic %d seq %llu is ready in the model (attempt %u, tries "
                     "%u), in the shard "
                     "state %d attempt %u tries %u, blocking %u",
                     (unsigned long long)w->events, (unsigned long long)w->crashes, topic,
                     (unsigned long long)m->seq, m->attempt, m->tries, x->state, x->attempt, x->tries,
                     t->blocking);
        }
        struct mailbox_entry *e = mailbox_shard_entry(w->s, got[k]);
        if (!mailbox_id_eq(&e->msg_id, &m->id)) {
            struct mailbox_entry *x = mailbox_shard_entry(w->s, mailbox_shard_find(w->s, &m->id));
            for (int q = 0; q < LIVE_MAX; q++)
                if (mailbox_id_eq(&w->m[q].id, &e->msg_id))
                    print_message(
                        "model: used %d state %d attempt %u tries %u due in %lld us, after fail %d\n",
                        w->m[q].used, w->m[q].st, w->m[q].attempt, w->m[q].tries,
                        (long long)(w->m[q].due_us - w->now.mono_us), w->m[q].after_fail);
            fail_msg("event %llu, %llu crashes: topic %d: the model's next is seq %llu (in the shard: "
                     "state %d attempt %u tries "
                     "%u), the shard's seq %llu attempt %u",
                     (unsigned long long)w->events, (unsigned long long)w->crashes, topic,
                     (unsigned long long)m->seq, x->state, x->attempt, x->tries,
                     (unsigned long long)e->topic_seq, e->attempt);
        }
        m->attempt++;
        m->tries++;
        m->st = M_LEASED;
        m->due_us = w->now.mono_us + vis;
        assert_int_equal(e->attempt, m->attempt);
        assert_int_equal(e->tries, m->tries);
        k++;
    }
    assert_int_equal(k, n);
    if (n) {
        commit(w);
        for (k = 0; k < n; k++) {
            struct mailbox_entry *e = mailbox_shard_entry(w->s, got[k]);
            feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DELIVERED,
                                                 .id = e->msg_id,
                                                 .attempt = e->attempt,
                                                 .until_ms = (w->now.mono_us + vis) / 1000});
            w->delivered++;
        }
    }
}

static struct model_msg *any(struct world *w)
{
    for (int tries = 0; tries < 40; tries++) {
        struct model_msg *m = &w->m[rng_below(&w->rng, LIVE_MAX)];
        if (m->used)
            return m;
    }
    return NULL;
}

static void do_ack(struct world *w)
{
    struct model_msg *m = any(w);
    struct mailbox_settled out = {0};
    if (!m)
        return;
    struct mailbox_fence f = {.msg_id = m->id};
    switch (rng_below(&w->rng, 3)) {
    case 0:
        f.attempt = m->attempt;
        break;
    case 1:
        f.attempt = (uint16_t)(m->attempt + rng_below(&w->rng, 3) - 1);
        break;
    default:
        break;
    }
    enum err want = ERR_OK;
    if (m->st == M_DONE && window_over(w, m))
        want = ERR_NOT_FOUND;
    else if (f.attempt && f.attempt != m->attempt && !(m->st == M_DONE && m->attempt == 0))
        want = ERR_STALE_ATTEMPT;
    else if (m->st == M_DONE)
        want = m->acked ? ERR_OK : ERR_NOT_FOUND;
    else if (m->st == M_DLQ)
        want = ERR_DEAD_LETTERED;
    else if (m->attempt == 0)
        want = ERR_NOT_LEASED;
    enum err got = mailbox_shard_ack(w->s, w->now, &f, &out);
    if (want == ERR_NOT_FOUND && got == ERR_STALE_ATTEMPT)
        got = ERR_NOT_FOUND;
    assert_int_equal(got, want);
    if (want != ERR_OK || m->st == M_DONE)
        return;
    feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_ACKED, .id = m->id, .attempt = m->attempt});
    model_done(w, m, true);
}

static void do_nack(struct world *w)
{
    struct model_msg *m = any(w);
    struct mailbox_settled out = {0};
    if (!m)
        return;
    struct mailbox_fence f = {.msg_id = m->id, .attempt = rng_below(&w->rng, 2) ? m->attempt : 0};
    struct mailbox_nack n = {.reason = STR("no"),
                             .dead = rng_below(&w->rng, 20) == 0,
                             .use_delay = rng_below(&w->rng, 3) == 0,
                             .delay_ms = rng_below(&w->rng, 300)};
    if (m->st == M_DONE && window_over(w, m))
        return;
    enum err want = m->st == M_DLQ ? ERR_DEAD_LETTERED : m->st == M_LEASED ? ERR_OK : ERR_NOT_LEASED;
    assert_int_equal(mailbox_shard_nack(w->s, w->now, &f, &n, &out), want);
    if (want != ERR_OK)
        return;
    bool dead = n.dead || m->tries >= policy(w, m->topic)->max_attempts;
    assert_int_equal(out.dead, dead);
    feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_NACKED, .id = m->id, .attempt = m->attempt});
    if (dead) {
        m->st = M_DLQ;
        feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DEAD, .id = m->id});
        return;
    }
    uint64_t most = w->rules.backoff_base_ms << (m->tries - 1);
    if (most > w->rules.backoff_max_ms)
        most = w->rules.backoff_max_ms;
    if (n.use_delay)
        assert_int_equal(out.delay_ms, n.delay_ms);
    else
        assert_true(out.delay_ms <= most);
    m->st = M_DELAYED;
    m->after_fail = true;
    m->due_us = w->now.mono_us + (int64_t)out.delay_ms * 1000;
}

static void do_extend_or_release(struct world *w)
{
    struct model_msg *m = any(w);
    struct mailbox_settled out = {0};
    if (!m || (m->st == M_DONE && window_over(w, m)))
        return;
    if (rng_below(&w->rng, 2)) {
        struct mailbox_fence f = {.msg_id = m->id};
        int64_t vis = (int64_t)(50 + rng_below(&w->rng, 3000)) * 1000;
        enum err want = m->st == M_DLQ ? ERR_DEAD_LETTERED : m->st == M_LEASED ? ERR_OK : ERR_NOT_LEASED;
        assert_int_equal(mailbox_shard_extend(w->s, w->now, &f, vis, &out), want);
        if (want == ERR_OK) {
            m->due_us = w->now.mono_us + vis;
            feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_EXTENDED,
                                                 .id = m->id,
                                                 .attempt = m->attempt,
                                                 .until_ms = m->due_us / 1000});
        }
        return;
    }
    bool leased = m->st == M_LEASED;
    assert_int_equal(mailbox_shard_release(w->s, w->now, &m->id, m->attempt),
                     leased ? ERR_OK : ERR_NOT_LEASED);
    if (!leased)
        return;
    feed(w,
         (struct mailbox_trace_event){.kind = MAILBOX_TRACE_RELEASED, .id = m->id, .attempt = m->attempt});
    m->st = M_READY;
    m->retention_us = since(w, m);
    if (m->tries >= policy(w, m->topic)->max_attempts) {
        m->st = M_DLQ;
        feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_DEAD, .id = m->id});
    }
}

static void do_operator(struct world *w)
{
    struct model_msg *m = any(w);
    if (!m)
        return;
    bool dead = m->st == M_DLQ;
    if (rng_below(&w->rng, 3)) {
        uint64_t delay = rng_below(&w->rng, 2) ? rng_below(&w->rng, 500) : 0;
        assert_int_equal(mailbox_shard_reprocess(w->s, w->now, &m->id, delay),
                         dead ? ERR_OK : ERR_NOT_FOUND);
        if (!dead)
            return;
        m->tries = 0;
        m->st = delay ? M_DELAYED : M_READY;
        m->after_fail = false;
        m->late = true;
        m->due_us = m->retention_us = w->now.mono_us + (int64_t)delay * 1000;
        feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_REPROCESSED, .id = m->id});
    } else {
        assert_int_equal(mailbox_shard_purge(w->s, w->now, &m->id), dead ? ERR_OK : ERR_NOT_FOUND);
        if (!dead)
            return;
        feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_PURGED, .id = m->id});
        m->st = M_DONE;
        m->acked = false;
    }
    commit(w);
}

/* ---- compaction: no state changes, whatever is written again ---- */

static void move(struct world *w, uint32_t i)
{
    const struct mailbox_entry *e = mailbox_shard_entry(w->s, i);
    size_t pos = 0, at = (size_t)(e->segment - 1) * SEGMENT + (size_t)e->offset8 * 8;
    struct mailbox_rec body;
    assert_int_equal(mailbox_rec_next(bytes_of(w->journal + at, w->journal_n - at), &pos, &body), ERR_OK);
    for (int k = 0; e->state == MAILBOX_DONE && k < LIVE_MAX; k++)
        if (w->m[k].used && mailbox_id_eq(&w->m[k].id, &e->msg_id))
            w->m[k].key_moved = true;
    assert_int_equal(mailbox_shard_reappend(w->s, w->now, i, &body), ERR_OK);
    w->moved++;
    if (w->s->group.n > MAILBOX_LAZY_BYTES || rng_below(&w->rng, 64) == 0)
        commit(w);
}

static void drop_oldest_segment(struct world *w)
{
    uint32_t oldest = w->first_segment;
    for (uint32_t i = 1; i < w->s->slabs.used; i++) {
        const struct mailbox_entry *e = mailbox_shard_entry(w->s, i);
        if (e->state != MAILBOX_FREE && e->segment == oldest)
            move(w, i);
    }
    for (uint32_t k = 1; k < w->s->topics.slots; k++)
        if (w->s->topics.slot[k])
            mailbox_shard_reappend_topic(w->s, w->s->topics.slot[k], oldest);
    commit(w);
    const struct mailbox_segment_use *u = mailbox_shard_segment_use(w->s, oldest);
    assert_true(u->waiting == 0 && u->keys == 0 && u->waiting_bytes == 0);
    w->first_segment++;
    w->dropped++;
}

static void do_compact(struct world *w)
{
    commit(w); /* so that every body can be read */
    if (w->first_segment + 1 < active_segment(w))
        drop_oldest_segment(w);
    for (uint32_t i = 1; i < w->s->slabs.used; i++) {
        const struct mailbox_entry *e = mailbox_shard_entry(w->s, i);
        if (e->state != MAILBOX_FREE && e->segment != MAILBOX_SEGMENT_PENDING && rng_below(&w->rng, 4) == 0)
            move(w, i);
    }
}

static void open_shard(struct world *w, uint64_t seed)
{
    w->s = calloc(1, sizeof *w->s);
    CHECK(w->s != NULL);
    assert_int_equal(mailbox_shard_init(w->s, 0, &w->rules, seed, w->now, w->group), ERR_OK);
}

static void compare(struct world *w)
{
    uint32_t n[5] = {0};
    mailbox_shard_check(w->s);
    for (int i = 0; i < LIVE_MAX; i++) {
        if (!w->m[i].used)
            continue;
        if (w->m[i].st == M_DONE && window_over(w, &w->m[i]))
            continue;
        n[w->m[i].st]++;
        uint32_t e = mailbox_shard_find(w->s, &w->m[i].id);
        assert_true(e != 0);
        static const enum mailbox_state as[] = {MAILBOX_READY, MAILBOX_DELAYED, MAILBOX_LEASED, MAILBOX_DLQ,
                                                MAILBOX_DONE};
        const struct mailbox_entry *en = mailbox_shard_entry(w->s, e);
        if (en->state != as[w->m[i].st] || (en->state != MAILBOX_DONE && en->tries != w->m[i].tries))
            fail_msg("event %llu, %llu crashes: seq %llu is state %d, tries %u; it should be %d, %u",
                     (unsigned long long)w->events, (unsigned long long)w->crashes,
                     (unsigned long long)w->m[i].seq, en->state, en->tries, as[w->m[i].st], w->m[i].tries);
    }
    assert_int_equal(n[M_READY], w->s->count[MAILBOX_READY]);
    assert_int_equal(n[M_DELAYED], w->s->count[MAILBOX_DELAYED]);
    assert_int_equal(n[M_LEASED], w->s->count[MAILBOX_LEASED]);
    assert_int_equal(n[M_DLQ], w->s->count[MAILBOX_DLQ]);
    assert_int_equal(w->s->reorder_depth_max, 0);
}

/* Power off: what was not written is gone; the journal makes the state again. */
static void do_crash(struct world *w)
{
    uint64_t seed = rng_u64(&w->rng);
    mailbox_shard_fini(w->s);
    free(w->s);
    feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_CRASH});
    uint64_t off_ms = rng_below(&w->rng, 200);
    w->now.mono_us += (int64_t)off_ms * 1000;
    w->now.wall_ms += off_ms;
    open_shard(w, seed);
    mailbox_replay_begin(w->s);
    for (size_t at = (size_t)(w->first_segment - 1) * SEGMENT; at + 8 <= w->journal_n;) {
        uint64_t n = le64_get(w->journal + at);
        if (n == 0) {
            at = (at / SEGMENT + 1) * SEGMENT;
            continue;
        }
        size_t pos = 0;
        struct bytes p = bytes_of(w->journal + at + 8, n);
        for (;;) {
            struct mailbox_rec r;
            struct mailbox_replay_at where = {(uint32_t)(1 + at / SEGMENT), at % SEGMENT + 8 + pos, true,
                                              w->now.wall_ms};
            enum err e = mailbox_rec_next(p, &pos, &r);
            if (e == ERR_EMPTY)
                break;
            assert_int_equal(e, ERR_OK);
            assert_int_equal(mailbox_replay_record(w->s, &r, &where, NULL), ERR_OK);
        }
        at += 8 + ((n + 7) & ~(size_t)7);
    }
    assert_int_equal(mailbox_replay_end(w->s, w->now), ERR_OK);
    mailbox_shard_check(w->s);
    set_scope(w);
    w->crashes++;

    int64_t wall_minus_mono_us = (int64_t)w->now.wall_ms * 1000 - w->now.mono_us;
    for (int i = 0; i < LIVE_MAX; i++) {
        struct model_msg *m = &w->m[i];
        if (!m->used)
            continue;
        CHECK(m->d_known);
        m->st = m->d_st == M_LEASED ? M_READY : m->d_st;
        m->attempt = m->d_attempt;
        m->tries = m->d_tries;
        m->after_fail = m->d_after_fail;
        m->late = m->d_late;
        m->acked = m->d_acked;
        /* times are taken back from what was written in wall ms: follow the shard's reading, which the checker bounds */
        uint32_t e = mailbox_shard_find(w->s, &m->id);
        int64_t accept = (int64_t)mailbox_id_ts_ms(&m->id) * 1000 - wall_minus_mono_us;
        m->accept_us = accept > w->now.mono_us ? w->now.mono_us : accept;
        if (m->st == M_DONE && window_over(w, m)) {
            assert_int_equal(e, 0);
            m->used = false;
            continue;
        }
        if (!e)
            fail_msg("event %llu: message of state %d lost over a crash", (unsigned long long)w->events,
                     (int)m->st);
        struct mailbox_entry *en = mailbox_shard_entry(w->s, e);
        if (m->st == M_DELAYED) {
            int64_t off = mailbox_entry_due(en) - m->d_due_us;
            if (m->d_due_us > w->now.mono_us && (en->state != MAILBOX_DELAYED || off < -2000 || off > 2000))
                fail_msg(
                    "event %llu: seq %llu is due in %lld us, after the crash it is state %d, due in %lld",
                    (unsigned long long)w->events, (unsigned long long)m->seq,
                    (long long)(m->d_due_us - w->now.mono_us), en->state,
                    (long long)(mailbox_entry_due(en) - w->now.mono_us));
            m->due_us = mailbox_entry_due(en);
        }
        bool delayed = en->state == MAILBOX_DELAYED && !(en->flags & MAILBOX_F_AFTER_FAIL);
        m->retention_us = en->state == MAILBOX_READY || delayed ? mailbox_entry_due(en) : since(w, m);
        if (m->key_moved && en->attempt == 0) {
            m->attempt = 0;
            m->acked = true;
        }
        assert_int_equal(en->attempt, m->attempt);
    }
    for (int i = 0; i < TOPICS; i++) {
        struct mailbox_topic *t = mailbox_topics_find(&w->s->topics, &w->hash[i], str_from_c(w->name[i]));
        if (!w->seq[i])
            continue;
        assert_non_null(t);
        assert_int_equal(t->topic_seq, w->seq[i]);
        assert_true(sha256_eq(&t->chain, &w->head[i]));
    }
    tick(w);
    compare(w);
}

static void world_init(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    rng_seed(&w->rng, seed);
    w->now = (struct mailbox_now){5000000, UINT64_C(1760292161000)};
    w->rules = (struct mailbox_rules){.index_max = 150,
                                      .max_topics = 100,
                                      .backoff_base_ms = 20,
                                      .backoff_max_ms = 400,
                                      .retention_ready_ms = 20000,
                                      .retention_dlq_ms = 10000000,
                                      .topic_idle_ms = 0};
    w->rules.policies.n = 3;
    w->rules.policies.p[0] = (struct mailbox_policy){
        .class_name = "default", .t_replay_ms = 3000, .default_visibility_ms = 500, .max_attempts = 4};
    w->rules.policies.p[1] = (struct mailbox_policy){.match = "ordered*",
                                                     .class_name = "o",
                                                     .t_replay_ms = 1000,
                                                     .default_visibility_ms = 500,
                                                     .max_attempts = 4,
                                                     .ordered = true};
    w->rules.policies.p[2] = (struct mailbox_policy){.match = "t2",
                                                     .class_name = "short",
                                                     .t_replay_ms = 10,
                                                     .default_visibility_ms = 500,
                                                     .max_attempts = 4};
    for (int i = 0; i < TOPICS; i++) {
        snprintf(w->name[i], sizeof w->name[i], i < 4 ? "t%d" : "ordered/%d", i);
        mailbox_topic_hash(str_from_c(w->name[i]), &w->hash[i]);
    }
    w->group = malloc(MAILBOX_GROUP_MEMORY);
    CHECK(w->group != NULL);
    struct mailbox_trace_rules tr = {
        .max_attempts = 4, .t_replay_ms = 10, .lazy_ms = INT64_MAX / 4, .slack_ms = 2};
    assert_int_equal(mailbox_trace_init(&w->trace, &tr), ERR_OK);
    w->first_segment = 1;
    open_shard(w, seed);
    set_scope(w);
}

static void world_fini(struct world *w)
{
    mailbox_shard_fini(w->s);
    free(w->s);
    free(w->group);
    free(w->journal);
    mailbox_trace_fini(&w->trace);
}

/* Deliver and settle everything, then nothing may be missing. */
static void drain(struct world *w)
{
    for (int round = 0; round < 100000; round++) {
        bool left = false;
        for (int i = 0; i < LIVE_MAX; i++) {
            struct model_msg *m = &w->m[i];
            if (!m->used || m->st == M_DONE)
                continue;
            left = true;
            if (m->st == M_LEASED) {
                struct mailbox_fence f = {.msg_id = m->id, .attempt = m->attempt};
                struct mailbox_settled out = {0};
                assert_int_equal(mailbox_shard_ack(w->s, w->now, &f, &out), ERR_OK);
                feed(w, (struct mailbox_trace_event){
                            .kind = MAILBOX_TRACE_ACKED, .id = m->id, .attempt = m->attempt});
                model_done(w, m, true);
            } else if (m->st == M_DLQ) {
                assert_int_equal(mailbox_shard_purge(w->s, w->now, &m->id), ERR_OK);
                feed(w, (struct mailbox_trace_event){.kind = MAILBOX_TRACE_PURGED, .id = m->id});
                m->st = M_DONE;
                commit(w);
            }
        }
        if (!left)
            break;
        w->now.mono_us += 5000;
        w->now.wall_ms += 5;
        tick(w);
        for (int k = 0; k < TOPICS; k++)
            do_recv(w);
        commit(w);
    }
    if (mailbox_trace_end(&w->trace) != ERR_OK)
        fail_msg("%s", w->trace.why);
}

static void run(uint64_t seed, uint64_t events)
{
    struct world *w = malloc(sizeof *w);
    CHECK(w != NULL);
    world_init(w, seed);
    for (w->events = 0; w->events < events; w->events++) {
        uint64_t step_us = rng_below(&w->rng, 4) ? rng_below(&w->rng, 3000) : rng_below(&w->rng, 60000);
        w->now.mono_us += (int64_t)step_us;
        w->now.wall_ms = UINT64_C(1760292161000) + (uint64_t)w->now.mono_us / 1000;
        tick(w);
        uint64_t what = rng_below(&w->rng, 1000);
        if (what < 330)
            do_send(w);
        else if (what < 600)
            do_recv(w);
        else if (what < 800)
            do_ack(w);
        else if (what < 880)
            do_nack(w);
        else if (what < 950)
            do_extend_or_release(w);
        else if (what < 998)
            do_operator(w);
        else if (rng_below(&w->rng, 8) == 0) {
            if (rng_below(&w->rng, 2)) /* the crash cuts it off, or finds it done */
                do_compact(w);
            do_crash(w);
        }
        if (mailbox_shard_group_full(w->s) || w->s->group.n > MAILBOX_LAZY_BYTES ||
            rng_below(&w->rng, 10) == 0)
            commit(w);
        if (w->events % 97 == 0)
            compare(w);
    }
    drain(w);
    print_message("seed %llu: %llu events, %zu sent, %llu duplicates, %llu delivered, %llu refused full, "
                  "%llu crashes, %llu moved, %llu segments dropped\n",
                  (unsigned long long)seed, (unsigned long long)events, w->trace.sent,
                  (unsigned long long)w->dups, (unsigned long long)w->delivered,
                  (unsigned long long)w->full, (unsigned long long)w->crashes, (unsigned long long)w->moved,
                  (unsigned long long)w->dropped);
    assert_true(w->trace.sent > events / 100 && w->crashes > 0 && w->moved > 0);
    world_fini(w);
    free(w);
}

static void a_million_events_agree_with_the_model_and_the_contract(void **state)
{
    (void)state;
    const char *seed = getenv("MAILBOX_SEED"), *n = getenv("MAILBOX_EVENTS_N");
    uint64_t events = n ? strtoull(n, NULL, 10) : 250000;
    if (seed) {
        run(strtoull(seed, NULL, 10), events);
        return;
    }
    for (uint64_t k = 1; k <= 4; k++)
        run(k, events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_events_agree_with_the_model_and_the_contract)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
