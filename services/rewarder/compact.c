#include "services/rewarder/compact.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"

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

enum { ARENA_CHUNK = 64 * 1024 };

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

static enum err take(struct fold *f, const json_t *o, struct bytes line)
{
    const json_t *t = json_object_get(o, "t"), *e = json_object_get(o, "e"), *op = json_object_get(o, "op");
    uint64_t n = (uint64_t)json_integer_value(json_object_get(o, "n"));
    if (!json_is_string(t) || !json_is_string(e) || !json_is_string(op))
        return ERR_CORRUPT;
    struct str what = {json_string_value(op), json_string_length(op)};
    struct bytes key = key_of(f, str_of(json_string_value(t), json_string_length(t)),
                              str_of(json_string_value(e), json_string_length(e)));
    if (!key.p)
        return ERR_NO_MEMORY;
    struct kept *k = map_get(&f->runs, key);
    if (n > f->last_n) {
        f->last_n = n;
        f->last_end = (struct bytes){NULL, 0};
    }
    if (str_eq(what, STR("sealed")) || (!k && str_eq(what, STR("quarantined"))))
        return make(f, key, line);
    if (!k) {
        /* The end of a run that an earlier fold dropped: it is there for its number. */
        if (str_eq(what, STR("discarded")) && n >= f->last_n)
            f->last_end = line;
        return ERR_OK;
    }
    if (str_eq(what, STR("discarded"))) {
        end(f, key, k, n, line);
    } else if (str_eq(what, STR("settled"))) {
        k->settled = line;
        k->status = (struct bytes){NULL, 0};
    } else if (str_eq(what, STR("quarantined"))) {
        k->status = line;
    } else if (str_eq(what, STR("released"))) {
        k->status = k->settled.p ? line : (struct bytes){NULL, 0};
    } else if (str_eq(what, STR("swept"))) {
        k->swept = line;
    } else {
        return ERR_CORRUPT; /* a newer version wrote it: dropping it could lose something */
    }
    return ERR_OK;
}

static enum err take_all(struct fold *f, struct bytes frames)
{
    enum err e = ERR_OK;
    for (size_t at = 0; at < frames.n && e == ERR_OK;) {
        struct bytes line;
        json_error_t why;
        if (!rewarder_log_next(frames, &at, &line))
            return ERR_CORRUPT;
        json_t *o = json_loadb((const char *)line.p, line.n, JSON_REJECT_DUPLICATES, &why);
        e = o ? take(f, o, line) : ERR_CORRUPT;
        json_decref(o);
    }
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
