/* The feed of the direct client: one more stream of the publisher, whose thread calls the sink. */
#include <stdlib.h>

#include "services/ledger/direct_internal.h"
#include "services/ledger/stream.h"

struct ledger_feed {
    struct ledger_stream st;
    struct direct *d;
    const struct ledger_feed_sink *sink;
    void *ctx;
    _Atomic bool stop;  /* the owner wants no more */
    _Atomic bool ended; /* the publisher has let go */
    bool opened, lagged;
};

static enum err feed_send(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    struct ledger_feed *f = (struct ledger_feed *)st;
    if (atomic_load(&f->stop))
        return ERR_CLOSED;
    struct ledger_commit_event out = {ev->seq_start, ev->seq_end,  ev->tree_size,
                                      ev->root,      ev->accounts, ev->n_accounts};
    f->sink->on_commit(f->ctx, &out);
    return ERR_OK;
}

static enum err feed_idle(struct ledger_stream *st)
{
    return atomic_load(&((struct ledger_feed *)st)->stop) ? ERR_CLOSED : ERR_OK;
}

static void feed_lagged(struct ledger_stream *st, uint64_t next_since)
{
    (void)next_since;
    ((struct ledger_feed *)st)->lagged = true;
}

static void feed_end(struct ledger_stream *st)
{
    struct ledger_feed *f = (struct ledger_feed *)st;
    if (!atomic_load(&f->stop))
        f->sink->on_end(f->ctx, f->lagged ? ERR_LAGGED : ERR_CLOSED);
    atomic_store(&f->ended, true); /* from here on it is the owner's */
}

static bool feed_gone(struct ledger_stream *st)
{
    struct ledger_feed *f = (struct ledger_feed *)st;
    if (!f->opened && !atomic_load(&f->stop)) {
        f->opened = true;
        if (f->sink->on_open != NULL)
            f->sink->on_open(f->ctx);
    }
    return atomic_load(&f->stop);
}

static const struct ledger_stream_ops feed_ops = {feed_send, feed_idle, feed_lagged, feed_end, feed_gone};

struct ledger_feed *ledger_direct__feed(struct ledger_client *c, uint64_t since,
                                        const struct ledger_feed_sink *sink, void *ctx)
{
    struct direct *d = ledger_direct__of(c);
    struct ledger_feed *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->st = (struct ledger_stream){.ops = &feed_ops, .commits = true, .since = since};
    f->d = d;
    f->sink = sink;
    f->ctx = ctx;
    if (ledger_stream_submit(d->s, &f->st) != ERR_OK) {
        free(f);
        return NULL;
    }
    return f;
}

/* The publisher must have let go before we free. */
void ledger_direct__feed_stop(struct ledger_feed *f)
{
    atomic_store(&f->stop, true);
    rt_bell_ring(&f->d->s->stream_bell);
    while (!atomic_load(&f->ended))
        ledger_nap();
    free(f);
}
