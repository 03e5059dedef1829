#include "store/sink_replica.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/rng.h"
#include "rt/backoff.h"
#include "rt/task.h"

enum { BODY_MAX = 96 << 20 };

static const struct rt_backoff_spec retry = {10, 40, 1000, 0};

struct replica_sink {
    struct store_sink base;
    struct store_sink_replica_config cfg;
    char stream[65];
    uint64_t epoch;
    bool fenced;
    bool unknown;       /* the row of this append was sent, and nobody said what became of it */
    _Atomic bool stuck; /* relaxed: for the health task */
    struct buf plain, body;
    struct rt_backoff backoff;
    char why[400];
};

static struct replica_sink *of(const struct store_sink *s)
{
    return (struct replica_sink *)(uintptr_t)s;
}

/* Between two attempts; ends early when the task is cancelled. */
static enum err rest(int64_t ms) RT_BLOCKS
{
    struct rt_task *self = rt_task_current();
    for (struct deadline by = deadline_in_ms(ms); !deadline_passed(by);) {
        if (self != NULL && rt_task_canceled(self))
            return ERR_CANCELED;
        int64_t left = deadline_left_ms(by);
        (void)poll(NULL, 0, (int)(left < 20 ? left : 20));
        if (self != NULL)
            rt_task_beat(self);
    }
    return ERR_OK;
}

static enum err fenced(struct replica_sink *x)
{
    x->fenced = true;
    obs_counter_inc(x->cfg.fenced_total);
    return ERR_FENCED;
}

/* For the person who reads the log: who holds the lease, or which roots differ. */
static void explain_fence(struct replica_sink *x, const struct store_frame *f) RT_BLOCKS
{
    struct store_lease lease;
    struct store_pg_head head;
    char ours[65], theirs[65];
    struct deadline by = deadline_in_ms(x->cfg.timeout_ms);
    snprintf(x->why, sizeof x->why, "epoch %llu is over", (unsigned long long)x->epoch);
    if (store_pg_lease_read(x->cfg.pg, x->stream, by, &lease) != ERR_OK)
        return;
    if (lease.epoch != x->epoch) {
        snprintf(x->why, sizeof x->why, "epoch %llu is over, %s writes in epoch %llu",
                 (unsigned long long)x->epoch, lease.holder, (unsigned long long)lease.epoch);
        return;
    }
    if (store_pg_stream_head(x->cfg.pg, x->stream, by, &head) != ERR_OK)
        return;
    hex_encode(f->prev_root.b, 32, ours);
    hex_encode(head.root.b, 32, theirs);
    snprintf(x->why, sizeof x->why,
             "group %llu follows root %s, but PostgreSQL ends with group %llu and root %s",
             (unsigned long long)f->group_no, ours, (unsigned long long)head.group_no, theirs);
}

/* Is the row there? ERR_OK: it is, and on the quorum. ERR_NOT_FOUND: it is not. */
static enum err look(struct replica_sink *x, const struct store_frame *f, struct deadline by) RT_BLOCKS
{
    struct sha256 root;
    uint64_t epoch;
    enum err e = store_pg_connect(x->cfg.pg, by);
    if (e == ERR_OK)
        e = store_pg_barrier(x->cfg.pg, x->stream, x->epoch, by);
    if (e == ERR_OK)
        e = store_pg_frame_root(x->cfg.pg, x->stream, f->group_no, by, &root, &epoch);
    if (e != ERR_OK)
        return e;
    return sha256_eq(&root, &f->new_root) && epoch == x->epoch ? ERR_OK : ERR_FENCED;
}

/* Once more, and now knowing what is there. */
static enum err attempt(struct replica_sink *x, const struct store_frame *f) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(x->cfg.timeout_ms);
    enum err e = look(x, f, by);
    if (e != ERR_NOT_FOUND)
        return e;
    x->unknown = true;
    e = store_pg_append_send(x->cfg.pg, x->stream, f, buf_bytes(&x->body), by);
    return e == ERR_OK ? store_pg_append_finish(x->cfg.pg, by) : e;
}

/* Until it is known. `e` is what the first attempt said. */
static enum err settle(struct replica_sink *x, const struct store_frame *f, enum err e) RT_BLOCKS
{
    rt_backoff_reset(&x->backoff);
    bool first = true;
    while (e != ERR_OK && e != ERR_FENCED) {
        if (e == ERR_CANCELED || e == ERR_CORRUPT || e == ERR_NO_MEMORY)
            return e;
        snprintf(x->why, sizeof x->why, "%s", store_pg_why(x->cfg.pg));
        atomic_store_explicit(&x->stuck, true, memory_order_relaxed);
        obs_gauge_set(x->cfg.connected, 0);
        if (!first)
            e = rest(rt_backoff_next_ms(&x->backoff));
        first = false;
        bool unknown = x->unknown;
        if (e != ERR_CANCELED)
            e = attempt(x, f);
        if (e == ERR_OK && unknown)
            obs_counter_inc(x->cfg.resolved_total);
    }
    atomic_store_explicit(&x->stuck, false, memory_order_relaxed);
    obs_gauge_set(x->cfg.connected, store_pg_connected(x->cfg.pg) ? 1 : 0);
    if (e == ERR_FENCED) {
        explain_fence(x, f);
        return fenced(x);
    }
    return ERR_OK;
}

static enum err replica_append(struct store_sink *s, const struct store_frame *f, const struct bytes *parts,
                               size_t n_parts, struct store_pos *out_pos) RT_BLOCKS
{
    struct replica_sink *x = of(s);
    if (x->fenced || x->epoch == 0)
        return ERR_FENCED;
    struct store_frame row = *f;
    row.epoch = x->epoch;
    enum err e = store_pg_body_encode(&row, parts, n_parts, &x->plain, &x->body);
    if (e != ERR_OK)
        return e;
    int64_t began = os_now_ns();
    struct deadline by = deadline_in_ms(x->cfg.timeout_ms);
    x->unknown = store_pg_connected(x->cfg.pg);
    enum err sent = x->unknown ? store_pg_append_send(x->cfg.pg, x->stream, &row, buf_bytes(&x->body), by)
                               : ERR_DISCONNECTED;
    struct store_pos pos;
    e = store_sink_append(x->cfg.local, f, parts, n_parts, &pos);
    if (e != ERR_OK) { /* the row may be there; nobody is told that it is, and opening reads it back */
        store_pg_drop(x->cfg.pg); /* or its answer would be read as that of whatever is appended next */
        return e;
    }
    e = settle(x, &row, sent == ERR_OK ? store_pg_append_finish(x->cfg.pg, by) : sent);
    obs_hist_observe(x->cfg.append_seconds, (double)(os_now_ns() - began) / 1e9);
    if (e != ERR_OK)
        return e;
    obs_counter_inc(x->cfg.rows_total);
    obs_counter_add(x->cfg.bytes_total, x->body.n);
    *out_pos = pos;
    return ERR_OK;
}

static struct store_room replica_room(struct store_sink *s)
{
    return store_sink_room(of(s)->cfg.local);
}

static enum err replica_prepare(struct store_sink *s) RT_BLOCKS
{
    return store_sink_prepare(of(s)->cfg.local);
}

static enum err replica_replay(struct store_sink *s, uint64_t from_group, store_replay_fn *fn,
                               void *ctx) RT_BLOCKS
{
    return store_sink_replay(of(s)->cfg.local, from_group, fn, ctx);
}

static bool replica_failed(struct store_sink *s)
{
    return of(s)->fenced || store_sink_failed(of(s)->cfg.local);
}

static void replica_close(struct store_sink *s) RT_BLOCKS
{
    struct replica_sink *x = of(s);
    store_sink_close(x->cfg.local);
    store_pg_destroy(x->cfg.pg);
    buf_fini(&x->plain);
    buf_fini(&x->body);
    free(x);
}

enum err store_sink_replica(const struct store_sink_replica_config *cfg, struct store_sink **out)
{
    static const struct store_sink_ops ops = {
        .append = replica_append,
        .room = replica_room,
        .prepare = replica_prepare,
        .replay = replica_replay,
        .failed = replica_failed,
        .close = replica_close,
    };
    CHECK(cfg->timeout_ms > 0 && strlen(cfg->stream) < sizeof((struct replica_sink *)0)->stream);
    struct replica_sink *x = calloc(1, sizeof *x);
    if (x == NULL)
        return ERR_NO_MEMORY;
    x->base = (struct store_sink){&ops, "replicated", cfg->local->journal};
    x->cfg = *cfg;
    snprintf(x->stream, sizeof x->stream, "%s", cfg->stream);
    buf_init(&x->plain, BODY_MAX);
    buf_init(&x->body, BODY_MAX);
    rt_backoff_init(&x->backoff, &retry, rng_secure_u64());
    *out = &x->base;
    return ERR_OK;
}

void store_sink_replica_epoch(struct store_sink *s, uint64_t epoch)
{
    struct replica_sink *x = of(s);
    CHECK(epoch >= x->epoch);
    x->epoch = epoch;
    store_journal_set_epoch(s->journal, epoch);
}

const char *store_sink_replica_why(const struct store_sink *s)
{
    return of(s)->why;
}

bool store_sink_replica_stuck(const struct store_sink *s)
{
    return atomic_load_explicit(&of(s)->stuck, memory_order_relaxed);
}

struct store_sink *store_sink_replica_local(struct store_sink *s)
{
    return of(s)->cfg.local;
}
