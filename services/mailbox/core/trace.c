#include "services/mailbox/core/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum fate { WAITING, HELD, UNSURE, ACKED, DEAD, PURGED };

struct message {
    struct uuid id;
    enum fate fate;
    uint16_t attempt;
    unsigned tries;
    uint64_t seq;
    int64_t sent_ms, not_before_ms, held_ms, lease_until_ms, acked_ms, ack_seen_ms;
    struct first_order *topic;
};

struct key {
    struct message *m;
    size_t n;
    char bytes[];
};

struct first_order {
    uint64_t first_max; /* highest undelayed seq first-delivered */
    struct map seqs;
    size_t n;
    char name[];
};

struct seq {
    uint64_t v;
};

static const char *const kind_names[] = {"sent",     "duplicate", "delivered", "acked",       "nacked",
                                         "extended", "released",  "dead",      "reprocessed", "purged",
                                         "unsure",   "crash",     "restart"};

const char *mailbox_trace_kind_name(enum mailbox_trace_kind k)
{
    return k < MAILBOX_TRACE_KINDS ? kind_names[k] : "?";
}

enum err mailbox_trace_kind_parse(struct str s, enum mailbox_trace_kind *out_kind)
{
    for (int k = 0; k < MAILBOX_TRACE_KINDS; k++) {
        if (str_eq_c(s, kind_names[k])) {
            *out_kind = (enum mailbox_trace_kind)k;
            return ERR_OK;
        }
    }
    return ERR_SYNTAX;
}

enum err mailbox_trace_init(struct mailbox_trace *t, const struct mailbox_trace_rules *rules)
{
    memset(t, 0, sizeof *t);
    t->rules = *rules;
    t->last_start_ms = INT64_MIN / 2;
    enum err e = map_init(&t->messages, 0);
    if (e == ERR_OK)
        e = map_init(&t->keys, 0);
    if (e == ERR_OK)
        e = map_init(&t->topics, 0);
    return e;
}

static void free_all(struct map *m)
{
    size_t at = 0;
    void *v;
    while (map_next(m, &at, NULL, &v))
        free(v);
    map_fini(m);
}

void mailbox_trace_fini(struct mailbox_trace *t)
{
    size_t at = 0;
    void *v;
    free(t->crashes);
    free_all(&t->messages);
    free_all(&t->keys);
    while (map_next(&t->topics, &at, NULL, &v))
        free_all(&((struct first_order *)v)->seqs);
    free_all(&t->topics);
}

__attribute__((format(printf, 3, 4))) static enum err no(struct mailbox_trace *t, const struct uuid *id,
                                                         const char *fmt, ...)
{
    char text[UUID_CHARS];
    va_list ap;
    uuid_format(id, text);
    int n = snprintf(t->why, sizeof t->why, "%s: ", text);
    va_start(ap, fmt);
    vsnprintf(t->why + n, sizeof t->why - (size_t)n, fmt, ap);
    va_end(ap);
    return ERR_CONFLICT;
}

static enum err topic_of(struct mailbox_trace *t, struct str name, struct first_order **out)
{
    struct first_order *f = map_get(&t->topics, bytes_of_str(name));
    if (!f) {
        f = calloc(1, sizeof *f + name.n);
        if (!f || map_init(&f->seqs, 0) != ERR_OK)
            return free(f), ERR_NO_MEMORY;
        f->n = name.n;
        memcpy(f->name, name.p, name.n);
        enum err e = map_add(&t->topics, bytes_of(f->name, f->n), f);
        if (e != ERR_OK)
            return free(f), e;
    }
    *out = f;
    return ERR_OK;
}

static struct key *key_find(struct mailbox_trace *t, const struct mailbox_trace_event *ev, char *buf,
                            size_t cap, size_t *out_n)
{
    int n = snprintf(buf, cap, "%.*s\n%.*s", STR_ARG(ev->topic), STR_ARG(ev->key));
    *out_n = (size_t)n;
    return map_get(&t->keys, bytes_of(buf, (size_t)n));
}

static enum err on_sent(struct mailbox_trace *t, const struct mailbox_trace_event *ev)
{
    char buf[512];
    size_t n;
    struct first_order *topic;
    struct key *k = key_find(t, ev, buf, sizeof buf, &n);
    if (map_get(&t->messages, bytes_of(ev->id.b, 16)))
        return no(t, &ev->id, "accepted twice");
    if (k) {
        bool over = t->rules.t_replay_ms != INT64_MAX &&
                    ev->at_ms - k->m->sent_ms >= t->rules.t_replay_ms - t->rules.slack_ms;
        if (!over || k->m->fate == WAITING || k->m->fate == HELD || k->m->fate == DEAD)
            return no(t, &ev->id, "second message for key %.*s %lld ms after the first", STR_ARG(ev->key),
                      (long long)(ev->at_ms - k->m->sent_ms));
    }
    enum err e = topic_of(t, ev->topic, &topic);
    struct message *m = calloc(1, sizeof *m);
    struct seq *sq = malloc(sizeof *sq);
    if (e != ERR_OK || !m || !sq)
        return free(m), free(sq), ERR_NO_MEMORY;
    sq->v = ev->seq;
    if (map_add(&topic->seqs, bytes_of(&sq->v, sizeof sq->v), sq) != ERR_OK) {
        free(m);
        free(sq);
        return no(t, &ev->id, "topic_seq %llu given twice", (unsigned long long)ev->seq);
    }
    *m = (struct message){
        .id = ev->id, .seq = ev->seq, .sent_ms = ev->at_ms, .not_before_ms = ev->until_ms, .topic = topic};
    if (map_add(&t->messages, bytes_of(m->id.b, 16), m) != ERR_OK)
        return free(m), ERR_NO_MEMORY;
    if (!k) {
        k = malloc(sizeof *k + n);
        if (!k)
            return ERR_NO_MEMORY;
        k->n = n;
        memcpy(k->bytes, buf, n);
        if (map_add(&t->keys, bytes_of(k->bytes, n), k) != ERR_OK)
            return free(k), ERR_NO_MEMORY;
    }
    k->m = m;
    t->sent++;
    return ERR_OK;
}

static enum err on_duplicate(struct mailbox_trace *t, const struct mailbox_trace_event *ev)
{
    char buf[512];
    size_t n;
    struct key *k = key_find(t, ev, buf, sizeof buf, &n);
    if (!k || !mailbox_id_eq(&k->m->id, &ev->id))
        return no(t, &ev->id, "called a duplicate of a message that was not answered for this key");
    t->duplicates++;
    return ERR_OK;
}

static enum err note_crash(struct mailbox_trace *t, int64_t at_ms)
{
    if (t->crashes_n == t->crashes_cap) {
        size_t cap = t->crashes_cap ? t->crashes_cap * 2 : 16;
        int64_t *wider = realloc(t->crashes, cap * sizeof *wider);
        if (!wider)
            return ERR_NO_MEMORY;
        t->crashes = wider;
        t->crashes_cap = cap;
    }
    t->crashes[t->crashes_n++] = at_ms;
    return ERR_OK;
}

static bool crashed_between(const struct mailbox_trace *t, int64_t from_ms, int64_t to_ms)
{
    for (size_t i = t->crashes_n; i > 0 && t->crashes[i - 1] >= from_ms; i--)
        if (t->crashes[i - 1] <= to_ms)
            return true;
    return false;
}

static enum err on_delivered(struct mailbox_trace *t, struct message *m,
                             const struct mailbox_trace_event *ev)
{
    int64_t slack = t->rules.slack_ms;
    if (m->fate == ACKED) {
        if (!crashed_between(t, m->acked_ms, m->ack_seen_ms + t->rules.lazy_ms + slack))
            return no(t, &m->id, "delivered %lld ms after its ack", (long long)(ev->at_ms - m->acked_ms));
        t->acked--;
        m->fate = WAITING;
    }
    if (m->fate == PURGED)
        return no(t, &m->id, "delivered after it was purged");
    if (ev->attempt <= m->attempt)
        return no(t, &m->id, "attempt %u after %u", ev->attempt, m->attempt);
    if (m->fate == HELD && ev->at_ms < m->lease_until_ms - slack && t->last_start_ms < m->held_ms)
        return no(t, &m->id, "delivered %lld ms before the running lease ends",
                  (long long)(m->lease_until_ms - ev->at_ms));
    if (m->not_before_ms && ev->at_ms < m->not_before_ms - slack)
        return no(t, &m->id, "delivered %lld ms before its time",
                  (long long)(m->not_before_ms - ev->at_ms));
    if (m->tries >= t->rules.max_attempts)
        return no(t, &m->id, "delivered %u times in one life", m->tries + 1);
    if (t->rules.ordered_first && m->attempt == 0 && ev->attempt == 1 && m->not_before_ms == 0) {
        if (m->seq < m->topic->first_max)
            return no(t, &m->id, "first delivery of seq %llu after seq %llu", (unsigned long long)m->seq,
                      (unsigned long long)m->topic->first_max);
        m->topic->first_max = m->seq;
    }
    m->attempt = ev->attempt;
    m->tries++;
    m->fate = HELD;
    m->held_ms = ev->at_ms;
    m->lease_until_ms = ev->until_ms;
    t->delivered++;
    return ERR_OK;
}

/* An event of a lease: the answer was a success, so the attempt must be the newest. */
static enum err current(struct mailbox_trace *t, const struct message *m,
                        const struct mailbox_trace_event *ev)
{
    if (ev->attempt && ev->attempt != m->attempt)
        return no(t, &m->id, "%s accepted from attempt %u while %u is the newest",
                  mailbox_trace_kind_name(ev->kind), ev->attempt, m->attempt);
    if (m->fate == PURGED)
        return no(t, &m->id, "%s accepted after a purge", mailbox_trace_kind_name(ev->kind));
    return ERR_OK;
}

enum err mailbox_trace_feed(struct mailbox_trace *t, const struct mailbox_trace_event *ev)
{
    if (ev->kind == MAILBOX_TRACE_SENT)
        return on_sent(t, ev);
    if (ev->kind == MAILBOX_TRACE_DUPLICATE)
        return on_duplicate(t, ev);
    if (ev->kind == MAILBOX_TRACE_CRASH || ev->kind == MAILBOX_TRACE_RESTART) {
        t->last_start_ms = ev->at_ms;
        return ev->kind == MAILBOX_TRACE_CRASH ? note_crash(t, ev->at_ms) : ERR_OK;
    }
    struct message *m = map_get(&t->messages, bytes_of(ev->id.b, 16));
    if (!m)
        return no(t, &ev->id, "%s, but never accepted", mailbox_trace_kind_name(ev->kind));
    if (ev->kind == MAILBOX_TRACE_DELIVERED)
        return on_delivered(t, m, ev);
    if (ev->kind == MAILBOX_TRACE_UNSURE && ev->attempt && ev->attempt != m->attempt)
        return ERR_OK; /* nothing was accepted: an attempt that was no longer the newest can have changed nothing */
    enum err e = current(t, m, ev);
    if (e != ERR_OK)
        return e;
    switch (ev->kind) {
    case MAILBOX_TRACE_ACKED:
        t->acked += m->fate != ACKED;
        m->fate = ACKED;
        m->acked_ms = ev->at_ms;
        m->ack_seen_ms = ev->until_ms ? ev->until_ms : ev->at_ms;
        return ERR_OK;
    case MAILBOX_TRACE_UNSURE:
        if (m->fate == HELD || m->fate == WAITING)
            m->fate = UNSURE;
        return ERR_OK;
    case MAILBOX_TRACE_EXTENDED:
        m->lease_until_ms = ev->until_ms;
        return ERR_OK;
    case MAILBOX_TRACE_NACKED:
    case MAILBOX_TRACE_RELEASED:
        m->fate = WAITING;
        return ERR_OK;
    case MAILBOX_TRACE_DEAD:
        t->dead += m->fate != DEAD;
        m->fate = DEAD;
        return ERR_OK;
    case MAILBOX_TRACE_REPROCESSED:
        t->dead -= m->fate == DEAD;
        m->fate = WAITING;
        m->tries = 0;
        m->not_before_ms = 0;
        return ERR_OK;
    case MAILBOX_TRACE_PURGED:
        t->dead -= m->fate == DEAD;
        m->fate = PURGED;
        return ERR_OK;
    case MAILBOX_TRACE_SENT:
    case MAILBOX_TRACE_DUPLICATE:
    case MAILBOX_TRACE_DELIVERED:
    case MAILBOX_TRACE_CRASH:
    case MAILBOX_TRACE_RESTART:
    case MAILBOX_TRACE_KINDS:
        break;
    }
    return no(t, &ev->id, "unknown event");
}

enum err mailbox_trace_end(struct mailbox_trace *t)
{
    size_t at = 0;
    void *v;
    while (map_next(&t->messages, &at, NULL, &v)) {
        const struct message *m = v;
        if (m->fate == WAITING || m->fate == HELD)
            return no(t, &m->id,
                      "accepted, then lost: neither acked nor dead-lettered (seq %llu, attempt %u)",
                      (unsigned long long)m->seq, m->attempt);
    }
    return ERR_OK;
}
