/* The local sink is the journal; the memory sink brings its own disk along. */
#include "store/sink.h"

#include <stdlib.h>

#include "base/check.h"

struct journal_sink {
    struct store_sink base;
    struct store_disk *own_disk; /* the memory sink's; NULL otherwise */
};

static enum err sink_append(struct store_sink *s, const struct store_frame *f, const struct bytes *parts,
                            size_t n_parts, struct store_pos *out_pos) RT_BLOCKS
{
    return store_journal_append(s->journal, f, parts, n_parts, out_pos);
}

/* Making a spare in memory is cheap: the writer does it itself as soon as it has used one up. */
static enum err sink_append_memory(struct store_sink *s, const struct store_frame *f,
                                   const struct bytes *parts, size_t n_parts,
                                   struct store_pos *out_pos) RT_BLOCKS
{
    enum err e = store_journal_append(s->journal, f, parts, n_parts, out_pos);
    if (e == ERR_OK && store_journal_wants_spare(s->journal)) {
        enum err full =
            store_journal_prepare_spare(s->journal); /* room() says so; the keeper tries again */
        (void)full;
    }
    return e;
}

static struct store_room sink_room(struct store_sink *s)
{
    return store_journal_room(s->journal);
}

static enum err sink_prepare(struct store_sink *s) RT_BLOCKS
{
    return store_journal_prepare_spare(s->journal);
}

static enum err sink_replay(struct store_sink *s, uint64_t from_group, store_replay_fn *fn,
                            void *ctx) RT_BLOCKS
{
    return store_journal_replay(s->journal, from_group, fn, ctx);
}

static bool sink_failed(struct store_sink *s)
{
    return store_journal_failed(s->journal);
}

static void sink_close(struct store_sink *s) RT_BLOCKS
{
    struct journal_sink *x = (struct journal_sink *)s;
    store_journal_close(s->journal);
    store_disk_destroy(x->own_disk);
    free(x);
}

enum err store_sink_local(const struct store_journal_config *cfg, store_replay_fn *replay, void *ctx,
                          struct store_journal_report *out_report, struct store_sink **out)
{
    static const struct store_sink_ops ops = {
        .append = sink_append,
        .room = sink_room,
        .prepare = sink_prepare,
        .replay = sink_replay,
        .failed = sink_failed,
        .close = sink_close,
    };
    struct journal_sink *x = calloc(1, sizeof *x);
    if (!x)
        return ERR_NO_MEMORY;
    x->base = (struct store_sink){&ops, "local", NULL};
    enum err e = store_journal_open(cfg, replay, ctx, out_report, &x->base.journal);
    if (e)
        free(x);
    else
        *out = &x->base;
    return e;
}

enum err store_sink_memory(const struct store_journal_config *cfg, uint64_t bytes_max,
                           struct store_sink **out)
{
    static const struct store_sink_ops ops = {
        .append = sink_append_memory,
        .room = sink_room,
        .prepare = sink_prepare,
        .replay = sink_replay,
        .failed = sink_failed,
        .close = sink_close,
    };
    struct journal_sink *x = calloc(1, sizeof *x);
    if (!x)
        return ERR_NO_MEMORY;
    x->base = (struct store_sink){&ops, "memory", NULL};
    struct store_journal_config own = *cfg;
    struct store_journal_report report;
    enum err e = store_disk_memory(bytes_max, &x->own_disk);
    if (e == ERR_OK)
        e = store_disk_mkdir(x->own_disk, "journal");
    if (e == ERR_OK) {
        own.disk = x->own_disk;
        own.dir = "journal";
        own.direct = false;
        e = store_journal_open(&own, NULL, NULL, &report, &x->base.journal);
    }
    if (e == ERR_OK)
        e = store_journal_prepare_spare(x->base.journal);
    if (e) {
        sink_close(&x->base);
        return e;
    }
    *out = &x->base;
    return ERR_OK;
}

enum err store_sink_append(struct store_sink *s, const struct store_frame *f, const struct bytes *parts,
                           size_t n_parts, struct store_pos *out_pos)
{
    rt_lock_check_none("append a commit group");
    return s->ops->append(s, f, parts, n_parts, out_pos);
}

struct store_room store_sink_room(struct store_sink *s)
{
    return s->ops->room(s);
}

enum err store_sink_prepare(struct store_sink *s)
{
    rt_lock_check_none("prepare a sink");
    return s->ops->prepare(s);
}

enum err store_sink_replay(struct store_sink *s, uint64_t from_group, store_replay_fn *fn, void *ctx)
{
    rt_lock_check_none("replay a sink");
    return s->ops->replay(s, from_group, fn, ctx);
}

bool store_sink_failed(struct store_sink *s)
{
    return s->ops->failed(s);
}

void store_sink_close(struct store_sink *s)
{
    if (s)
        s->ops->close(s);
}
