/*
 * Commits to subscribers. Every stream has a cursor into the group table; history and live are the same walk. The broadcast
 * wakes us up and names the rows that moved; the accounts of other groups are read from the journal. Those of the last groups are
 * kept for the other streams at the head.
 *
 * Without a stream nobody is woken for a commit: that would be one more hand-over for each, on the way to its answer. What is counted
 * is then counted by the tick.
 *
 * A stream that was at the head once and then falls 1024 groups behind is cut and told where to resume.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/reads.h"
#include "services/ledger/stream.h"

enum {
    LAG_GROUPS = 1024,
    ACCOUNTS_MAX = 1024,
    BEHIND_MS = 100,
    LOOK_MS = 1000,
    IDLE_S = 15,
    BURST = 256,
    CACHE = 64
};
enum { RANGE_ROOM = 2 * CORE_UNIT_ENTRIES_MAX }; /* a unit may have more accounts than a range should */

/* The accounts of one group, cut into ranges of whole units with at most ACCOUNTS_MAX accounts each. */
struct range {
    uint64_t seq_start, seq_end;
    struct str *accounts;
    size_t n;
};
struct group_accounts {
    uint64_t group_no;
    struct arena arena;
    struct range *ranges;
    size_t n, cap;
};

struct publisher {
    struct ledger_service *s;
    struct ledger *l;
    struct ledger_stream *streams;
    uint64_t published; /* groups counted */
    bool behind;        /* a stream has no room for what there is */
    bool more;          /* a stream has had its share of this turn */
    struct group_accounts cache[CACHE];
};

static int by_text(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static size_t sort_unique(struct str *v, size_t n)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, by_text);
    size_t k = 1;
    for (size_t i = 1; i < n; i++)
        if (!str_eq(v[i], v[k - 1]))
            v[k++] = v[i];
    return k;
}

static enum err range_add(struct group_accounts *g, struct range r)
{
    if (g->n == g->cap) {
        size_t cap = g->cap == 0 ? 4 : g->cap * 2;
        struct range *v = realloc(g->ranges, cap * sizeof *v);
        if (v == NULL)
            return ERR_NO_MEMORY;
        g->ranges = v;
        g->cap = cap;
    }
    g->ranges[g->n++] = r;
    return ERR_OK;
}

/* `room` names, not cleared: with as many as a range may have, clearing would cost every commit more than its accounts do. */
static enum err range_begin(struct group_accounts *g, struct range *r, uint64_t seq, size_t room)
{
    *r = (struct range){seq, seq - 1, arena_alloc(&g->arena, room * sizeof *r->accounts), 0};
    return r->accounts == NULL ? ERR_NO_MEMORY : ERR_OK;
}

/*
 * Room for a unit of `n` entries. What is full is made unique first, and ended when that freed less than half of it: a range
 * that stays almost full would be sorted for every unit.
 */
static enum err range_room(struct group_accounts *g, struct range *r, size_t n)
{
    if (r->n + 2 * n <= ACCOUNTS_MAX)
        return ERR_OK;
    r->n = sort_unique(r->accounts, r->n);
    if (r->n == 0 || (r->n <= ACCOUNTS_MAX / 2 && r->n + 2 * n <= ACCOUNTS_MAX))
        return ERR_OK;
    enum err err = range_add(g, *r);
    return err == ERR_OK ? range_begin(g, r, r->seq_end + 1, RANGE_ROOM) : err;
}

static enum err range_take(struct group_accounts *g, struct range *r, const struct core_record *rec)
{
    struct bytes leaves = rec->bundle;
    struct str leaf;
    while (ledger_record_next_leaf(&leaves, &leaf)) {
        char scratch[CORE_LEAF_MAX];
        struct core_entry e;
        struct sha256 unit;
        if (r->n + 2 > RANGE_ROOM || ledger_canon_leaf_parse(leaf, scratch, &e, &unit) != ERR_OK)
            return ERR_CORRUPT;
        if (!arena_str(&g->arena, e.account, &r->accounts[r->n]))
            return ERR_NO_MEMORY;
        r->n++;
        if (e.to.n == 0)
            continue;
        if (!arena_str(&g->arena, e.to, &r->accounts[r->n]))
            return ERR_NO_MEMORY;
        r->n++;
    }
    r->seq_end += rec->n;
    return ERR_OK;
}

static enum err range_end(struct group_accounts *g, struct range *r)
{
    r->n = sort_unique(r->accounts, r->n);
    return range_add(g, *r);
}

/* Reads one frame and collects its accounts: of a group that was there before us, or larger than its event tells. */
static enum err collect(struct publisher *p, const struct ledger_group_row *row, uint64_t first_seq,
                        struct group_accounts *g) RT_BLOCKS
{
    struct buf b;
    struct store_frame f;
    struct range r;
    buf_init(&b, 32 << 20);
    enum err err =
        store_journal_read(p->l->sink->journal, (struct store_pos){row->segment, row->offset}, &b, &f);
    struct bytes rest = err == ERR_OK ? f.payload : bytes_of(NULL, 0);
    if (err == ERR_OK)
        err = range_begin(g, &r, first_seq, RANGE_ROOM);
    while (err == ERR_OK && rest.n > 0) {
        struct core_record rec;
        err = ledger_record_parse(rest, &rec);
        if (err == ERR_OK)
            err = range_room(g, &r, rec.n);
        if (err == ERR_OK)
            err = range_take(g, &r, &rec);
        if (err != ERR_OK)
            break;
        rest.p += rec.len;
        rest.n -= rec.len;
    }
    if (err == ERR_OK)
        err = range_end(g, &r);
    buf_fini(&b);
    return err;
}

static struct group_accounts *accounts_begin(struct publisher *p, uint64_t group_no)
{
    struct group_accounts *g = &p->cache[group_no % CACHE];
    if (g->arena.chunk_bytes == 0)
        arena_init(&g->arena, 16 << 10, 64 << 20);
    arena_reset(&g->arena);
    g->n = 0;
    g->group_no = 0;
    return g;
}

/*
 * The event of a commit names the rows it moved: reading the frame again would cost as much as writing it. Names lie in the
 * state for ever. More than one range's worth is left to collect(), which knows where units end.
 */
static void accounts_from_event(struct publisher *p, const struct ledger_group_event *ev)
{
    if (ev->n_rows == 0 || ev->n_rows > RANGE_ROOM)
        return;
    struct group_accounts *g = accounts_begin(p, ev->group_no);
    struct range r;
    if (range_begin(g, &r, ev->seq_start, ev->n_rows) != ERR_OK)
        return;
    r.seq_end = ev->seq_end;
    for (uint32_t i = 0; i < ev->n_rows; i++)
        r.accounts[r.n++] = ledger_state_row_account(p->l->state, ev->rows[i]);
    r.n = sort_unique(r.accounts, r.n);
    if (r.n <= ACCOUNTS_MAX && range_add(g, r) == ERR_OK)
        g->group_no = ev->group_no;
}

static struct group_accounts *accounts_of(struct publisher *p, const struct ledger_group_row *row,
                                          uint64_t first_seq) RT_BLOCKS
{
    struct group_accounts *g = &p->cache[row->group_no % CACHE];
    if (g->group_no == row->group_no)
        return g;
    g = accounts_begin(p, row->group_no);
    if (collect(p, row, first_seq, g) != ERR_OK)
        return NULL;
    g->group_no = row->group_no;
    return g;
}

static enum err send_group(struct publisher *p, struct ledger_stream *st,
                           const struct ledger_group_row *row, uint64_t first_seq) RT_BLOCKS
{
    struct ledger_stream_event ev = {first_seq,      row->last_seq, row->last_seq, row->group_no,
                                     row->ledger_ms, row->root,     NULL,          0};
    if (!st->commits)
        return st->ops->send(st, &ev);
    struct group_accounts *g = accounts_of(p, row, first_seq);
    if (g == NULL)
        return ERR_CLOSED;
    for (size_t i = 0; i < g->n; i++) {
        if (g->ranges[i].seq_end <= st->since)
            continue; /* sent before the buffer was full */
        ev.seq_start = g->ranges[i].seq_start;
        ev.seq_end = g->ranges[i].seq_end;
        ev.accounts = g->ranges[i].accounts;
        ev.n_accounts = g->ranges[i].n;
        enum err err = st->ops->send(st, &ev);
        if (err != ERR_OK)
            return err;
        st->since = ev.seq_end;
    }
    return ERR_OK;
}

/* Sends what there is and room for, and notes what is left. False: the stream has ended. */
static bool pump(struct publisher *p, struct ledger_stream *st, int64_t now_ns) RT_BLOCKS
{
    struct ledger *l = p->l;
    struct ledger_head head;
    ledger_head_read(l, &head);
    if (st->ops->gone(st))
        return false;
    for (unsigned i = 0; i < BURST && st->next_group < head.group_no; i++) {
        struct ledger_group_row row, before = {0};
        if (ledger_group_at(l, st->next_group, &row) != ERR_OK ||
            (st->next_group > 0 && ledger_group_at(l, st->next_group - 1, &before) != ERR_OK))
            return false;
        enum err err = row.last_seq <= st->since ? ERR_OK : send_group(p, st, &row, before.last_seq + 1);
        if (err == ERR_BUSY) {
            if (st->caught_up && head.group_no - st->next_group > LAG_GROUPS) {
                obs_counter_inc(
                    OBS_COUNTER_OF(l->m[LEDGER_M_bus_lagged], st->commits ? "events" : "roots"));
                obs_log(l->deps.log, OBS_WARN, "subscriber_lagged", OBS_U64("next_since", st->since),
                        OBS_END);
                st->ops->lagged(st, st->since);
                return false;
            }
            p->behind = true;
            return true;
        }
        if (err != ERR_OK)
            return false;
        if (row.last_seq > st->since)
            st->since = row.last_seq;
        st->next_group++;
        st->last_ns = now_ns;
    }
    p->more = p->more || st->next_group < head.group_no;
    st->caught_up = st->caught_up || st->next_group >= head.group_no;
    if (now_ns - st->last_ns > (int64_t)IDLE_S * 1000000000) {
        st->last_ns = now_ns;
        return st->ops->idle(st) != ERR_CLOSED;
    }
    return true;
}

/* Each group once, however many streams there are: from its commit on /v1/roots has it. */
static void count_published(struct publisher *p)
{
    struct ledger_head head;
    ledger_head_read(p->l, &head);
    obs_counter_add(ledger_m_counter(p->l, LEDGER_M_roots_published), head.group_no - p->published);
    p->published = head.group_no;
}

static void stream_end(struct publisher *p, struct ledger_stream *st)
{
    atomic_fetch_sub(&p->s->n_streams, 1);
    ledger_unlisten(p->l);
    if (st->commits)
        atomic_fetch_sub(&p->l->event_subscribers, 1);
    st->ops->end(st);
}

static void pump_all(struct publisher *p) RT_BLOCKS
{
    int64_t now = p->l->deps.clock->mono_ns(p->l->deps.clock->ctx);
    count_published(p);
    p->behind = p->more = false;
    for (struct ledger_stream **at = &p->streams; *at != NULL;) {
        struct ledger_stream *st = *at;
        if (pump(p, st, now)) {
            at = &st->next;
            continue;
        }
        *at = st->next;
        stream_end(p, st);
    }
}

static void take_new(struct publisher *p) RT_BLOCKS
{
    void *item;
    while (rt_chan_try_recv(p->s->stream_tx, &item) == ERR_OK) {
        struct ledger_stream *st = item;
        struct ledger_group_row row;
        uint64_t index = 0;
        struct ledger_head head;
        ledger_head_read(p->l, &head);
        if (st->since >= head.seq)
            st->next_group = head.group_no;
        else if (ledger_group_of(p->l, st->since + 1, &row, &index) == ERR_OK)
            st->next_group = index;
        st->last_ns = p->l->deps.clock->mono_ns(p->l->deps.clock->ctx);
        st->next = p->streams;
        p->streams = st;
        if (st->commits)
            atomic_fetch_add(&p->l->event_subscribers, 1);
    }
}

/* Until there are no more, ERR_OK, or there will be none, ERR_CLOSED. What was lost the group table has. */
static enum err take_events(struct publisher *p, struct rt_bcast_sub *sub)
{
    void *item = NULL;
    for (;;) {
        enum err err = rt_bcast_try_recv(sub, &item);
        if (err == ERR_OK) {
            accounts_from_event(p, item);
            ledger_group_event_unref(item);
        } else if (err != ERR_LAGGED)
            return err == ERR_EMPTY ? ERR_OK : err;
    }
}

/* A stream that has no room is tried again soon, nobody says when it has; whose reader has left is seen in a while. */
static enum err wait_for_more(struct rt_task *self, struct publisher *p, uint64_t noted) RT_BLOCKS
{
    if (p->more && !rt_task_stopping(self))
        return ERR_OK;
    enum err err = rt_bell_doze(&p->s->stream_bell, noted, deadline_in_ms(p->behind ? BEHIND_MS : LOOK_MS));
    return err == ERR_TIMEOUT ? ERR_OK : err;
}

static void end_all(struct publisher *p) RT_BLOCKS
{
    take_new(p);
    while (p->streams != NULL) {
        struct ledger_stream *st = p->streams;
        p->streams = st->next;
        stream_end(p, st);
    }
    for (size_t i = 0; i < CACHE; i++) {
        if (p->cache[i].arena.chunk_bytes != 0)
            arena_fini(&p->cache[i].arena);
        free(p->cache[i].ranges);
    }
}

enum err ledger_roots_publisher_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct publisher *p = calloc(1, sizeof *p);
    if (p == NULL)
        return ERR_NO_MEMORY;
    p->s = s;
    p->l = s->l;
    struct ledger_head head;
    ledger_head_read(s->l, &head);
    p->published = head.group_no; /* what was there before us was published before */
    struct rt_bcast_sub *sub = rt_bcast_subscribe(s->l->root_pub, rt_bell_ring, &s->stream_bell);
    enum err err = sub == NULL ? ERR_NO_MEMORY : ERR_OK;
    while (err == ERR_OK) {
        uint64_t noted = rt_bell_note(&s->stream_bell);
        err = take_events(p, sub);
        rt_task_beat(self);
        take_new(p);
        pump_all(p);
        if (err == ERR_OK)
            err = wait_for_more(self, p, noted);
    }
    pump_all(p); /* the final root, before the streams end */
    end_all(p);
    if (sub != NULL)
        rt_bcast_unsubscribe(sub);
    free(p);
    return err == ERR_CLOSED || rt_task_stopping(self) ? ERR_OK : err;
}
