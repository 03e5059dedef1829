#include "services/rewarder/compact.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "services/rewarder/line.h"

/* What stays of one run: lines, borrowed from the log. */
struct kept {
    struct bytes made, settled, status, swept;
    bool gone;
};

struct fold {
    struct arena arena;
    struct map runs;     /* tenant NUL epoch -> the run that is alive under it */
    struct kept **order; /* every run ever made, in the order of its first line */
    size_t order_n, order_cap;
    uint64_t last_n; /* the highest number, and the line that ended the run it belonged to */
    struct bytes last_end;
};

enum { ARENA_CHUNK = 64 * 1024, LINE_BYTES = 256 * 1024 };

static struct bytes key_of(struct fold *f, struct str tenant, struct str epoch)
{
    uint8_t *p = arena_alloc(&f->arena, tenant.n + 1 + epoch.n);
    if (!p)
        return (struct bytes){NULL, 0};
    memcpy(p, tenant.p, tenant.n);
    p[tenant.n] = '\0';
    memcpy(p + tenant.n + 1, epoch.p, epoch.n);
    return bytes_of(p, tenant.n + 1 + epoch.n);
}

static enum err make(struct fold *f, struct bytes key, struct bytes line)
{
    struct kept *k = arena_zalloc(&f->arena, sizeof *k);
    if (k && f->order_n == f->order_cap) {
        size_t cap = f->order_cap ? 2 * f->order_cap : 256;
        struct kept **p = realloc(f->order, cap * sizeof *p);
        if (!p)
            return ERR_NO_MEMORY;
        f->order = p;
        f->order_cap = cap;
    }
    if (!k)
        return ERR_NO_MEMORY;
    k->made = line;
    enum err e = map_add(&f->runs, key, k);
    if (e == ERR_OK)
        f->order[f->order_n++] = k;
    return e == ERR_EXISTS ? ERR_CORRUPT : e;
}

static void end(struct fold *f, struct bytes key, struct kept *k, uint64_t n, struct bytes line)
{
    map_remove(&f->runs, key);
    k->gone = true;
    if (n >= f->last_n)
        f->last_end = line;
}

static enum err take(struct fold *f, const struct rewarder_line *l, struct bytes text)
{
    struct bytes key = key_of(f, l->tenant, l->epoch);
    if (!key.p)
        return ERR_NO_MEMORY;
    struct kept *k = map_get(&f->runs, key);
    if (l->n > f->last_n) {
        f->last_n = l->n;
        f->last_end = (struct bytes){NULL, 0};
    }
    if (str_eq(l->op, STR("sealed")) || (!k && str_eq(l->op, STR("quarantined"))))
        return make(f, key, text);
    if (!k) {
        /* The end of a run that an earlier fold dropped: it is there for its number. */
        if (str_eq(l->op, STR("discarded")) && l->n >= f->last_n)
            f->last_end = text;
        return ERR_OK;
    }
    if (str_eq(l->op, STR("discarded"))) {
        end(f, key, k, l->n, text);
    } else if (str_eq(l->op, STR("settled"))) {
        k->settled = text;
        k->status = (struct bytes){NULL, 0};
    } else if (str_eq(l->op, STR("quarantined"))) {
        k->status = text;
    } else if (str_eq(l->op, STR("released"))) {
        k->status = k->settled.p ? text : (struct bytes){NULL, 0};
    } else if (str_eq(l->op, STR("swept"))) {
        k->swept = text;
    } else {
        return ERR_CORRUPT; /* a newer version wrote it: dropping it could lose something */
    }
    return ERR_OK;
}

static enum err take_all(struct fold *f, struct bytes frames)
{
    struct arena scratch;
    struct rewarder_line line;
    struct bytes text;
    enum err e = ERR_OK;
    arena_init(&scratch, LINE_BYTES, LINE_BYTES);
    for (size_t at = 0; at < frames.n && e == ERR_OK;) {
        arena_reset(&scratch);
        e = rewarder_log_next(frames, &at, &text) ? rewarder_line_read(text, &scratch, &line) : ERR_CORRUPT;
        if (e == ERR_OK)
            e = take(f, &line, text);
    }
    arena_fini(&scratch);
    return e;
}

static void put(struct bytes line, struct buf *out)
{
    if (line.p)
        rewarder_log_frame(line, out);
}

enum err rewarder_log_fold(struct bytes frames, struct buf *out)
{
    struct fold f = {.order = NULL};
    arena_init(&f.arena, ARENA_CHUNK, SIZE_MAX);
    enum err e = map_init(&f.runs, 256);
    if (e == ERR_OK)
        e = take_all(&f, frames);
    for (size_t i = 0; e == ERR_OK && i < f.order_n; i++) {
        const struct kept *k = f.order[i];
        if (k->gone)
            continue;
        put(k->made, out);
        put(k->settled, out);
        put(k->status, out);
        put(k->swept, out);
    }
    if (e == ERR_OK)
        put(f.last_end, out);
    map_fini(&f.runs);
    arena_fini(&f.arena);
    free(f.order);
    return e == ERR_OK ? out->err : e;
}

enum err rewarder_log_compact(struct rewarder_files *f, uint64_t *out_saved)
{
    uint64_t twice = 2 * f->log_alive, before = f->log_end;
    struct bytes all;
    struct buf folded;
    *out_saved = 0;
    if (before <= f->compact_above || before <= twice)
        return ERR_OK;
    enum err e = rewarder_log_read(f, &all);
    if (e != ERR_OK)
        return e;
    buf_init(&folded, all.n + 1);
    e = rewarder_log_fold(all, &folded);
    if (e == ERR_OK && folded.n <= before / 2) {
        e = rewarder_log_rewrite(f, buf_bytes(&folded));
        if (e == ERR_OK)
            *out_saved = before - folded.n;
    }
    f->log_alive = e == ERR_OK ? folded.n : before; /* what failed is looked at again when it has doubled */
    buf_fini(&folded);
    free((void *)(uintptr_t)all.p);
    return e;
}
