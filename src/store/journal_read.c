/*
 * Reading back: by position, by segment, from a group on.
 *
 * Read handles are opened on first use and kept, at most STORE_OPEN_SEGMENTS_MAX of them; the least recently
 * used one without a reader inside is closed first. A handle is only used between taking and giving back a
 * count under the lock, so that dropping a segment never closes a file under a reader.
 */
#include "store/journal.h"
#include "store/journal_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/* --- segments --- */

enum err journal__add_segment(struct store_journal *j, const struct store_segment *info, bool packed)
{
    enum err e = ERR_OK;
    rt_lock_take(&j->lock);
    if (j->n_segments == j->cap_segments) {
        size_t cap = j->cap_segments ? j->cap_segments * 2 : 16;
        struct journal_segment *grown = realloc(j->segment, cap * sizeof *grown);
        if (grown) {
            j->segment = grown;
            j->cap_segments = cap;
        } else {
            e = ERR_NO_MEMORY;
        }
    }
    if (e == ERR_OK) {
        CHECK(j->n_segments == 0 || info->segment_no == j->segment[j->n_segments - 1].info.segment_no + 1);
        j->segment[j->n_segments++] = (struct journal_segment){.info = *info, .packed = packed};
    }
    rt_lock_release(&j->lock);
    return e;
}

static struct journal_segment *find_segment(struct store_journal *j, uint32_t no) RT_REQUIRES(&j->lock)
{
    if (j->n_segments == 0 || no < j->segment[0].info.segment_no)
        return NULL;
    size_t i = no - j->segment[0].info.segment_no;
    return i < j->n_segments ? &j->segment[i] : NULL;
}

size_t store_journal_segments(struct store_journal *j, struct store_segment *out, size_t max)
{
    rt_lock_take(&j->lock);
    size_t n = j->n_segments;
    for (size_t i = 0; i < n && i < max; i++)
        out[i] = j->segment[i].info;
    rt_lock_release(&j->lock);
    return n;
}

/* Takes a file out of the table when too many are open; the caller closes it without the lock. */
static struct store_file *evict(struct store_journal *j) RT_REQUIRES(&j->lock)
{
    struct journal_segment *victim = NULL;
    if (j->n_open <= STORE_OPEN_SEGMENTS_MAX)
        return NULL;
    for (size_t i = 0; i < j->n_segments; i++) {
        struct journal_segment *s = &j->segment[i];
        if (s->file && s->readers == 0 && (!victim || s->last_use < victim->last_use))
            victim = s;
    }
    if (!victim)
        return NULL;
    struct store_file *f = victim->file;
    victim->file = NULL;
    j->n_open--;
    return f;
}

/* ERR_EMPTY: not open yet. ERR_OK with *out NULL: packed. */
static enum err borrow(struct store_journal *j, uint32_t no, struct store_file **out)
{
    enum err e = ERR_OK;
    rt_lock_take(&j->lock);
    struct journal_segment *s = find_segment(j, no);
    if (!s) {
        e = ERR_NOT_FOUND;
    } else if (s->packed) {
        *out = NULL;
    } else if (!s->file) {
        e = ERR_EMPTY;
    } else {
        s->readers++;
        s->last_use = ++j->use_clock;
        *out = s->file;
    }
    rt_lock_release(&j->lock);
    return e;
}

static void give_back(struct store_journal *j, uint32_t no)
{
    rt_lock_take(&j->lock);
    struct journal_segment *s = find_segment(j, no);
    CHECK(s && s->readers > 0);
    s->readers--;
    rt_lock_release(&j->lock);
}

static enum err open_reader(struct store_journal *j, uint32_t no) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    store_journal_segment_path(path, j->dir, no);
    struct store_file *f, *surplus = NULL;
    enum err e = store_file_open(j->cfg.disk, path, STORE_READ, &f);
    if (e)
        return e;
    rt_lock_take(&j->lock);
    struct journal_segment *s = find_segment(j, no);
    if (!s || s->packed || s->file) {
        surplus = f; /* somebody was faster, or the segment is gone */
    } else {
        s->file = f;
        s->last_use = ++j->use_clock;
        j->n_open++;
        surplus = evict(j);
    }
    rt_lock_release(&j->lock);
    store_file_close(surplus);
    return ERR_OK;
}

/* Of a segment that is listed every byte must be there: what is not is damage, not something that never was. */
static enum err must_be_there(enum err e)
{
    return e == ERR_NOT_FOUND || e == ERR_RANGE ? ERR_CORRUPT : e;
}

enum err journal__read_at(struct store_journal *j, uint32_t segment_no, uint64_t at, void *p, size_t n)
{
    struct store_file *f;
    enum err e;
    bool gone = false;
    while ((e = borrow(j, segment_no, &f)) == ERR_EMPTY && !gone) {
        e = open_reader(j, segment_no);
        gone = e == ERR_NOT_FOUND; /* packed or dropped meanwhile, or lost: the list knows which */
        if (e && !gone)
            return e;
    }
    if (e)
        return e == ERR_EMPTY ? ERR_CORRUPT : e;
    if (!f)
        return must_be_there(j->cfg.packed_pread(j->cfg.packed_ctx, segment_no, p, n, at));
    e = store_file_read_all(f, p, n, at);
    give_back(j, segment_no);
    return must_be_there(e);
}

enum err store_journal_drop(struct store_journal *j, uint32_t segment_no, bool keep_listed)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    CHECK(!keep_listed || j->cfg.packed_pread);
    struct store_file *f = NULL;
    enum err e = ERR_OK;
    rt_lock_take(&j->lock);
    struct journal_segment *s = find_segment(j, segment_no);
    if (!s)
        e = ERR_NOT_FOUND;
    else if (!s->info.sealed || s->readers > 0 ||
             (!keep_listed && segment_no != j->segment[0].info.segment_no))
        e = ERR_BUSY; /* still written, being read, or not the oldest: a gap would look like damage */
    if (e == ERR_OK) {
        f = s->file;
        j->n_open -= f != NULL;
        s->file = NULL;
        s->packed = true;
        if (!keep_listed) {
            j->n_segments--;
            memmove(&j->segment[0], &j->segment[1], j->n_segments * sizeof j->segment[0]);
        }
    }
    rt_lock_release(&j->lock);
    if (e)
        return e;
    store_file_close(f);
    char path[STORE_PATH_MAX];
    store_journal_segment_path(path, j->dir, segment_no);
    return store_file_remove(j->cfg.disk, path);
}

/* --- by position --- */

enum err store_journal_pread(struct store_journal *j, struct store_pos at, void *p, size_t n)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    if (n > j->cfg.layout.segment_bytes || at.offset > j->cfg.layout.segment_bytes - n)
        return ERR_RANGE;
    return journal__read_at(j, at.segment, at.offset, p, n);
}

enum err store_journal_read(struct store_journal *j, struct store_pos at, struct buf *buf,
                            struct store_frame *out)
{
    uint8_t header[STORE_FRAME_HEADER];
    uint32_t len;
    uint64_t group;
    enum err e = store_journal_pread(j, at, header, sizeof header);
    if (e == ERR_OK)
        e = store_frame_peek(&j->cfg.layout, header, &len, &group);
    if (e)
        return e;
    buf_reset(buf);
    uint8_t *p = buf_reserve(buf, len);
    if (!p)
        return buf->err;
    e = store_journal_pread(j, at, p, len);
    if (e)
        return e == ERR_RANGE ? ERR_CORRUPT : e;
    buf_commit(buf, len);
    return store_frame_decode(&j->cfg.layout, p, len, out);
}

/* --- walking --- */

void journal__walk_init(struct journal_walk *w, struct store_journal *j,
                        struct store_journal_report *report, store_replay_fn *fn, void *ctx)
{
    memset(w, 0, sizeof *w);
    w->j = j;
    w->report = report;
    w->fn = fn;
    w->ctx = ctx;
}

void journal__walk_fini(struct journal_walk *w)
{
    free(w->window.p);
}

enum err journal__damage(struct store_journal_report *r, uint32_t segment_no, uint64_t offset,
                         const char *reason)
{
    if (!r->damaged) {
        r->damaged = true;
        snprintf(r->bad_file, sizeof r->bad_file, "%08u.seg", segment_no);
        r->bad_offset = offset;
        r->bad_reason = reason;
    }
    return ERR_CORRUPT;
}

enum err journal__unreadable(struct journal_walk *w, uint32_t segment_no, uint64_t at)
{
    bool first = !w->report->damaged;
    enum err e =
        journal__damage(w->report, segment_no, at, "segment is missing, or cannot be read to its end");
    rt_lock_take(&w->j->lock);
    const struct journal_segment *s = find_segment(w->j, segment_no);
    bool packed = s && s->packed;
    rt_lock_release(&w->j->lock);
    if (first && packed)
        snprintf(w->report->bad_file, sizeof w->report->bad_file, "%08u.segz", segment_no);
    return e;
}

enum err journal__window(struct journal_walk *w, uint32_t segment_no, uint32_t at, uint32_t n,
                         const uint8_t **out)
{
    struct journal_window *v = &w->window;
    uint32_t segment_bytes = w->j->cfg.layout.segment_bytes;
    CHECK(n <= segment_bytes && at <= segment_bytes - n);
    bool inside = v->segment_no == segment_no && at >= v->at && at + n <= v->at + v->n;
    if (!inside) {
        uint32_t want = n > STORE_WINDOW_BYTES ? n : STORE_WINDOW_BYTES;
        if (want > segment_bytes - at)
            want = segment_bytes - at;
        if (want > v->cap) {
            uint8_t *grown = realloc(v->p, want);
            if (!grown)
                return ERR_NO_MEMORY;
            v->p = grown;
            v->cap = want;
        }
        v->n = 0;
        enum err e = journal__read_at(w->j, segment_no, at, v->p, want);
        if (e == ERR_CORRUPT)
            return journal__unreadable(w, segment_no, at);
        if (e)
            return e;
        v->segment_no = segment_no;
        v->at = at;
        v->n = want;
    }
    *out = v->p + (at - v->at);
    return ERR_OK;
}

enum err journal__rest_is_zero(struct journal_walk *w, uint32_t segment_no, uint32_t from, bool *out_zero,
                               uint32_t *out_last)
{
    uint32_t end = w->j->cfg.layout.segment_bytes, last = from;
    for (uint32_t at = from; at < end;) {
        uint32_t n = end - at < STORE_PAGE ? end - at : STORE_PAGE;
        const uint8_t *p;
        enum err e = journal__window(w, segment_no, at, n, &p);
        if (e)
            return e;
        if (!store_is_zero(p, n))
            for (uint32_t i = n; i > 0; i--)
                if (p[i - 1]) {
                    last = at + i;
                    break;
                }
        at += n;
    }
    *out_zero = last == from;
    *out_last = last;
    return ERR_OK;
}

static enum err judge_frame(struct journal_walk *w, const struct store_frame *f, struct store_pos at)
{
    struct journal_expect *x = &w->expect;
    const char *wrong = NULL;
    if (f->group_no != x->group)
        wrong = "group number does not follow";
    else if (f->first_seq != x->seq)
        wrong = "sequence number does not follow";
    else if (!sha256_eq(&f->prev_root, &x->root))
        wrong = "previous root differs";
    else if (f->epoch < x->epoch || f->epoch > atomic_load_explicit(&w->j->epoch, memory_order_relaxed))
        wrong = "epoch out of order";
    if (wrong) {
        w->report->group_missing |= f->group_no > x->group || f->first_seq > x->seq;
        return journal__damage(w->report, at.segment, at.offset, wrong);
    }
    enum err e = w->fn && f->group_no >= w->from_group ? w->fn(w->ctx, f, at) : ERR_OK;
    if (e == ERR_CORRUPT)
        return journal__damage(w->report, at.segment, at.offset, "contents are not valid");
    if (e)
        return e;
    *x = (struct journal_expect){f->group_no + 1, f->first_seq + f->count, f->epoch, f->ms, f->new_root};
    return ERR_OK;
}

/* ERR_EMPTY: no valid frame here. */
static enum err walk_one(struct journal_walk *w, struct store_pos at, uint32_t *out_len) RT_BLOCKS
{
    const struct store_layout *l = &w->j->cfg.layout;
    const uint8_t *p;
    uint32_t len;
    uint64_t group;
    struct store_frame f;
    enum err e = journal__window(w, at.segment, at.offset, STORE_FRAME_HEADER, &p);
    if (e)
        return e;
    e = store_frame_peek(l, p, &len, &group);
    if (e == ERR_VERSION)
        return e;
    if (e || len > l->segment_bytes - at.offset)
        return ERR_EMPTY;
    e = journal__window(w, at.segment, at.offset, len, &p);
    if (e)
        return e;
    if (store_frame_decode(l, p, len, &f))
        return ERR_EMPTY;
    e = judge_frame(w, &f, at);
    if (e == ERR_OK) {
        w->report->frames++;
        w->report->bytes += len;
        w->last = at;
        w->last_len = len;
        *out_len = len;
    }
    return e;
}

enum err journal__walk_frames(struct journal_walk *w, uint32_t segment_no, uint32_t at, uint32_t *out_end)
{
    uint32_t segment_bytes = w->j->cfg.layout.segment_bytes, len;
    while (segment_bytes - at >= w->j->cfg.layout.align) {
        if (w->stop.segment == segment_no && at >= w->stop.offset)
            break;
        enum err e = walk_one(w, (struct store_pos){segment_no, at}, &len);
        if (e == ERR_EMPTY)
            break;
        if (e)
            return e;
        at += len;
    }
    *out_end = at;
    return ERR_OK;
}

/* Checks a header against its own segment and sets the expectation from it. */
static enum err start_at_header(struct journal_walk *w, uint32_t no) RT_BLOCKS
{
    const uint8_t *p;
    struct store_segment_header h;
    enum err e = journal__window(w, no, 0, STORE_SEGMENT_HEADER, &p);
    if (e)
        return e;
    e = store_segment_decode(&w->j->cfg.layout, p, &h);
    if (e == ERR_OK && (h.segment_no != no || memcmp(h.stream_id, w->j->cfg.stream_id, 16) != 0))
        e = ERR_CORRUPT;
    if (e)
        return e == ERR_CORRUPT ? journal__damage(w->report, no, 0, "segment header is not valid") : e;
    w->expect = (struct journal_expect){.group = h.first_group, .seq = h.first_seq, .root = h.prev_root};
    return ERR_OK;
}

static enum err copy_segment(struct store_journal *j, uint32_t no, struct store_segment *out,
                             uint64_t *out_next_group)
{
    rt_lock_take(&j->lock);
    struct journal_segment *s = find_segment(j, no), *next = find_segment(j, no + 1);
    enum err e = s ? ERR_OK : ERR_NOT_FOUND;
    if (s) {
        *out = s->info;
        *out_next_group = next ? next->info.first_group : 0;
    }
    rt_lock_release(&j->lock);
    return e;
}

static struct store_pos durable_end(const struct store_journal *j)
{
    uint64_t end = atomic_load_explicit(&j->durable_end, memory_order_acquire);
    return (struct store_pos){(uint32_t)(end >> 32), (uint32_t)end};
}

static enum err scan_walk(struct journal_walk *w, const struct store_segment *s,
                          uint64_t next_group) RT_BLOCKS
{
    uint32_t end, ignored;
    bool zero;
    enum err e = start_at_header(w, s->segment_no);
    if (e == ERR_OK)
        e = journal__walk_frames(w, s->segment_no, STORE_SEGMENT_HEADER, &end);
    if (e)
        return e;
    if (!s->sealed) {
        bool whole = w->stop.segment != s->segment_no || end == w->stop.offset;
        return whole ? ERR_OK : journal__damage(w->report, s->segment_no, end, "frame is not valid");
    }
    if (next_group && w->expect.group != next_group)
        return journal__damage(w->report, s->segment_no, end, "frame is not valid");
    e = journal__rest_is_zero(w, s->segment_no, end, &zero, &ignored);
    return e || zero ? e : journal__damage(w->report, s->segment_no, end, "bytes behind the last frame");
}

enum err store_journal_scan(struct store_journal *j, uint32_t segment_no, store_replay_fn *fn, void *ctx,
                            struct store_journal_report *out_report)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    struct store_journal_report report = {0};
    struct store_segment s;
    struct journal_walk w;
    uint64_t next_group;
    enum err e = copy_segment(j, segment_no, &s, &next_group);
    if (e)
        return e;
    journal__walk_init(&w, j, &report, fn, ctx);
    w.stop = durable_end(j);
    if (w.stop.segment == segment_no && w.stop.offset <= STORE_SEGMENT_HEADER)
        e = ERR_OK; /* blank: nothing has been written */
    else
        e = scan_walk(&w, &s, next_group);
    journal__walk_fini(&w);
    *out_report = report;
    return e;
}

/* The last segment that starts at or before the group; the first one when none does. */
static uint32_t segment_of_group(struct store_journal *j, uint64_t group, uint32_t *out_last)
{
    rt_lock_take(&j->lock);
    uint32_t no = j->n_segments ? j->segment[0].info.segment_no : 0;
    for (size_t i = 0; i < j->n_segments; i++) {
        uint64_t first = j->segment[i].info.first_group;
        if (first > group)
            break;
        if (first != 0) /* else damaged, or behind damage: nothing was read there */
            no = j->segment[i].info.segment_no;
    }
    *out_last = j->n_segments ? j->segment[j->n_segments - 1].info.segment_no : 0;
    rt_lock_release(&j->lock);
    return no;
}

enum err store_journal_replay(struct store_journal *j, uint64_t from_group, store_replay_fn *fn, void *ctx)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    struct store_journal_report report = {0};
    struct journal_walk w;
    journal__walk_init(&w, j, &report, fn, ctx);
    w.from_group = from_group;
    w.stop = durable_end(j);
    uint32_t last, no = segment_of_group(j, from_group, &last);
    enum err e = ERR_OK;
    for (bool first = true; e == ERR_OK && no && no <= last && no <= w.stop.segment; no++, first = false) {
        uint32_t end;
        if (w.stop.segment == no && w.stop.offset <= STORE_SEGMENT_HEADER)
            break;
        if (first)
            e = start_at_header(&w, no);
        if (e == ERR_OK)
            e = journal__walk_frames(&w, no, STORE_SEGMENT_HEADER, &end);
        if (e == ERR_OK && no == w.stop.segment && end != w.stop.offset)
            e = journal__damage(&report, no, end, "frame is not valid");
    }
    journal__walk_fini(&w);
    return e;
}
