/*
 * Opening: which segments there are, every frame replayed, and the end judged.
 *
 * Frames are walked from the start until a place without a valid one. If the next segment goes on with the group that
 * is due, the walk goes on there. Otherwise this is the end of the journal, and what lies there is
 *
 *   nothing     zeros to the end: an orderly stop, or a power cut between two groups.
 *   torn        a group that was being written when power failed and was therefore never acknowledged. All must hold:
 *               no valid frame or segment header of a later group exists, and data is visibly missing. Segments are
 *               full of zeros before they are used and never used twice, so a sector that was not written is zero: the
 *               sector of the frame's or the segment's header, the trailer, or a sector of the payload. It is wiped:
 *               zeroed from the place on (from the segment's first byte when the segment has no complete frame), flushed.
 *   corruption  anything else. It is reported with file, byte and reason, and never repaired here.
 *
 * A power cut while wiping only leaves more zeros, so the next opening comes to the same verdict.
 *
 * What was read may still not be on the device: when a flush failed and only the process was restarted, the page cache
 * answers with bytes that the kernel has given up writing. The one frame that can be in that state is the last one (the
 * journal closed itself behind it), so it is written and flushed once more before anything is built on it, with zeros
 * behind it where a wipe may have failed the same way; and so are the names of the files.
 */
#include "store/journal_internal.h"

#include <stdlib.h>

#include "base/check.h"

struct found {
    struct store_journal *j;
    uint32_t first, last; /* numbers of the segment files, 0 when there is none */
    uint32_t packed_last;
    size_t n;
    bool spare[STORE_SPARES_MAX], temp;
};

/* "00000012.seg" -> 12; 0 for any other name. */
static uint32_t number_of(const char *name, const char *suffix)
{
    uint32_t no = 0;
    for (int i = 0; i < 8; i++) {
        if (name[i] < '0' || name[i] > '9')
            return 0;
        no = no * 10 + (uint32_t)(name[i] - '0');
    }
    return strcmp(name + 8, suffix) == 0 ? no : 0;
}

static enum err look_at_name(void *ctx, const char *name)
{
    struct found *x = ctx;
    uint32_t no = number_of(name, ".seg"), packed = number_of(name, ".segz");
    for (size_t i = 0; i < STORE_SPARES_MAX; i++)
        x->spare[i] = x->spare[i] || strcmp(name, journal__spare_names[i]) == 0;
    if (packed > x->packed_last && x->j->cfg.packed_pread)
        x->packed_last = packed;
    if (strcmp(name, "spare.tmp") == 0)
        x->temp = true;
    else if (no > 0) {
        x->n++;
        if (!x->first || no < x->first)
            x->first = no;
        if (no > x->last)
            x->last = no;
    }
    return ERR_OK;
}

/* Where a walk stands when it cannot go on. */
struct tail {
    uint32_t segment, at;
    uint32_t wipe_from; /* 0 when the segment has no complete frame */
};

/* --- segments and their headers --- */

static enum err list_segment(struct journal_walk *w, uint32_t no, uint32_t last) RT_BLOCKS
{
    struct store_journal *j = w->j;
    char path[STORE_PATH_MAX];
    struct store_stat st;
    store_journal_segment_path(path, j->dir, no);
    enum err e = store_disk_stat(j->cfg.disk, path, &st);
    bool packed = e == ERR_NOT_FOUND && j->cfg.packed_pread && no != last;
    if (e == ERR_NOT_FOUND && !packed)
        return journal__damage(w->report, no, 0, "segment is missing");
    if (e && !packed)
        return e;
    if (!packed && st.bytes != j->cfg.layout.segment_bytes)
        return journal__damage(w->report, no, st.bytes, "segment has the wrong size");
    struct store_segment info = {
        .segment_no = no, .bytes_used = j->cfg.layout.segment_bytes, .sealed = no != last};
    return journal__add_segment(j, &info, packed);
}

enum header_state { HEADER_VALID, HEADER_BLANK, HEADER_INCOMPLETE, HEADER_BAD };

static enum err judge_header(const struct journal_walk *w, uint32_t no, const uint8_t *p,
                             enum header_state *out_state, struct store_segment_header *out)
{
    const struct store_layout *l = &w->j->cfg.layout;
    enum err e = store_segment_decode(l, p, out);
    if (e == ERR_VERSION)
        return e;
    if (e == ERR_OK)
        *out_state = out->segment_no == no && memcmp(out->stream_id, w->j->cfg.stream_id, 16) == 0
                         ? HEADER_VALID
                         : HEADER_BAD;
    else if (store_is_zero(p, STORE_SEGMENT_HEADER))
        *out_state = HEADER_BLANK;
    else
        *out_state = store_segment_incomplete(l, p) ? HEADER_INCOMPLETE : HEADER_BAD;
    return ERR_OK;
}

static enum err read_header(struct journal_walk *w, uint32_t no, enum header_state *out_state,
                            struct store_segment_header *out) RT_BLOCKS
{
    const uint8_t *p;
    enum err e = journal__window(w, no, 0, STORE_SEGMENT_HEADER, &p);
    return e ? e : judge_header(w, no, p, out_state, out);
}

static void note_header(struct store_journal *j, uint32_t no, const struct store_segment_header *h)
{
    rt_lock_take(&j->lock);
    struct store_segment *info = &j->segment[no - j->segment[0].info.segment_no].info;
    info->first_group = h->first_group;
    info->first_seq = h->first_seq;
    rt_lock_release(&j->lock);
}

static bool header_follows(const struct journal_walk *w, const struct store_segment_header *h)
{
    return h->first_group == w->expect.group && h->first_seq == w->expect.seq &&
           sha256_eq(&h->prev_root, &w->expect.root);
}

/* --- the end of the journal --- */

/* Whether a valid frame of a group after the one due lies anywhere behind `at`. */
static enum err later_frame_exists(struct journal_walk *w, uint32_t no, uint32_t at, bool *out) RT_BLOCKS
{
    const struct store_layout *l = &w->j->cfg.layout;
    for (uint32_t step = l->align; l->segment_bytes - at >= step; at += step) {
        const uint8_t *p;
        uint32_t len;
        uint64_t group;
        struct store_frame f;
        enum err e = journal__window(w, no, at, STORE_FRAME_HEADER, &p);
        if (e)
            return e;
        if (store_frame_peek(l, p, &len, &group) || group <= w->expect.group || len > l->segment_bytes - at)
            continue;
        e = journal__window(w, no, at, len, &p);
        if (e)
            return e;
        if (store_frame_decode(l, p, len, &f) == ERR_OK) {
            *out = true;
            return ERR_OK;
        }
    }
    *out = false;
    return ERR_OK;
}

/* Whether the bytes at the end show that something was not written. */
static enum err visibly_missing(struct journal_walk *w, const struct tail *t, bool *out) RT_BLOCKS
{
    const struct store_layout *l = &w->j->cfg.layout;
    const uint8_t *p;
    uint32_t len;
    uint64_t group;
    if (t->at == 0) { /* the header of a segment, found incomplete already */
        *out = true;
        return ERR_OK;
    }
    enum err e = journal__window(w, t->segment, t->at, STORE_SECTOR, &p);
    if (e)
        return e;
    *out = store_is_zero(p, STORE_SECTOR);
    if (*out || store_frame_peek(l, p, &len, &group) || len > l->segment_bytes - t->at)
        return ERR_OK;
    e = journal__window(w, t->segment, t->at, len, &p);
    if (e == ERR_OK)
        *out = store_frame_incomplete(l, p, len);
    return e;
}

static enum err write_zeros(struct store_file *f, uint32_t at, uint32_t end) RT_BLOCKS
{
    static _Alignas(STORE_PAGE) const uint8_t zeros[64 * 1024];
    enum err e = ERR_OK;
    while (at < end && e == ERR_OK) {
        uint32_t n = end - at < sizeof zeros ? end - at : (uint32_t)sizeof zeros;
        e = store_file_pwrite(f, zeros, n, at);
        at += n;
    }
    return e;
}

static enum err wipe(struct journal_walk *w, const struct tail *t, uint32_t last) RT_BLOCKS
{
    uint32_t end = (last + STORE_SECTOR - 1) / STORE_SECTOR * STORE_SECTOR;
    w->report->torn_bytes += end - t->wipe_from;
    if (w->j->cfg.read_only)
        return ERR_OK;
    char path[STORE_PATH_MAX];
    struct store_file *f;
    store_journal_segment_path(path, w->j->dir, t->segment);
    enum err e = store_file_open(w->j->cfg.disk, path, STORE_WRITE, &f);
    if (e)
        return e;
    e = write_zeros(f, t->wipe_from, end);
    if (e == ERR_OK)
        e = store_file_sync(f);
    store_file_close(f);
    w->window.n = 0; /* what it holds is no longer what is there */
    return e;
}

static enum err judge_tail(struct journal_walk *w, const struct tail *t, uint32_t last_segment) RT_BLOCKS
{
    bool zero, later, missing;
    uint32_t last;
    if (t->segment != last_segment) {
        w->report->group_missing = true;
        return journal__damage(w->report, t->segment, t->at,
                               "frame is not valid, and a later segment exists");
    }
    enum err e = journal__rest_is_zero(w, t->segment, t->wipe_from, &zero, &last);
    if (e || zero)
        return e;
    e = later_frame_exists(w, t->segment, t->at ? t->at : STORE_SEGMENT_HEADER, &later);
    if (e)
        return e;
    if (later) {
        w->report->group_missing = true;
        return journal__damage(w->report, t->segment, t->at,
                               "frame is not valid, and a later group exists");
    }
    e = visibly_missing(w, t, &missing);
    if (e)
        return e;
    return missing ? wipe(w, t, last) : journal__damage(w->report, t->segment, t->at, "frame is not valid");
}

/* --- the walk over all segments --- */

/* Goes from the end of one segment into the next. *out_more false: t says where the journal ends. */
static enum err cross(struct journal_walk *w, struct tail *t, bool *out_more) RT_BLOCKS
{
    uint32_t next = t->segment + 1, ignored;
    enum header_state state;
    struct store_segment_header h;
    bool zero;
    *out_more = false;
    enum err e = journal__rest_is_zero(w, t->segment, t->at, &zero, &ignored);
    if (e || !zero || t->wipe_from == 0)
        return e; /* something lies here, or no frame at all: the tail is in this segment */
    e = read_header(w, next, &state, &h);
    if (e)
        return e;
    if (state == HEADER_BAD)
        return journal__damage(w->report, next, 0, "segment header is not valid");
    if (state == HEADER_VALID && !header_follows(w, &h)) {
        w->report->group_missing |= h.first_group > w->expect.group;
        return journal__damage(w->report, next, 0, "segment does not follow the one before");
    }
    if (state == HEADER_VALID)
        note_header(w->j, next, &h);
    *out_more = state == HEADER_VALID;
    *t = (struct tail){next, state == HEADER_VALID ? STORE_SEGMENT_HEADER : 0, 0};
    return ERR_OK;
}

/* The first segment's header, which also says where numbering starts unless a checkpoint or genesis does. */
static enum err enter_first(struct journal_walk *w, struct tail *t, bool *out_more) RT_BLOCKS
{
    const struct store_resume *r = &w->j->cfg.resume;
    enum header_state state;
    struct store_segment_header h;
    enum err e = read_header(w, t->segment, &state, &h);
    if (e)
        return e;
    *out_more = false;
    bool resumes = r->pos.segment != 0 && r->pos.offset > STORE_SEGMENT_HEADER;
    if (state == HEADER_BAD ||
        (state != HEADER_VALID && (resumes || (r->pos.segment == 0 && t->segment != 1))))
        return journal__damage(w->report, t->segment, 0, "segment header is not valid");
    if (state != HEADER_VALID)
        return ERR_OK; /* the very first write was torn, or never came */
    if (!resumes) {
        bool genesis = t->segment == 1 || r->pos.segment != 0;
        if (genesis && !header_follows(w, &h))
            return journal__damage(w->report, t->segment, 0, "segment does not start where it should");
        w->expect =
            (struct journal_expect){.group = h.first_group, .seq = h.first_seq, .root = h.prev_root};
    }
    note_header(w->j, t->segment, &h);
    t->at = resumes ? r->pos.offset : STORE_SEGMENT_HEADER;
    t->wipe_from = resumes ? r->pos.offset : 0;
    *out_more = true;
    return ERR_OK;
}

static enum err walk_all(struct journal_walk *w, struct tail *t, uint32_t last) RT_BLOCKS
{
    bool more = false;
    enum err e = enter_first(w, t, &more);
    while (e == ERR_OK && more) {
        uint32_t before = t->at;
        e = journal__walk_frames(w, t->segment, t->at, &t->at);
        if (e)
            return e;
        if (t->at > before || t->wipe_from)
            t->wipe_from = t->at;
        more = false;
        if (t->segment < last)
            e = cross(w, t, &more);
    }
    return e ? e : judge_tail(w, t, last);
}

/* --- what is needed to write on --- */

/* The torn-tail rule rests on spares being zero: look, rather than believe. */
static enum err is_blank(struct store_journal *j, const char *path, bool *out_blank) RT_BLOCKS
{
    struct store_stat st;
    struct store_file *f;
    enum err e = store_disk_stat(j->cfg.disk, path, &st);
    if (e == ERR_OK)
        e = store_file_open(j->cfg.disk, path, STORE_READ, &f);
    if (e)
        return e;
    bool blank = st.bytes == j->cfg.layout.segment_bytes;
    uint8_t *page = malloc(STORE_WINDOW_BYTES);
    if (!page)
        e = ERR_NO_MEMORY;
    for (uint64_t at = 0; e == ERR_OK && blank && at < st.bytes;) {
        size_t n = st.bytes - at < STORE_WINDOW_BYTES ? (size_t)(st.bytes - at) : STORE_WINDOW_BYTES;
        e = store_file_read_all(f, page, n, at);
        blank = e == ERR_OK && store_is_zero(page, n);
        at += n;
    }
    free(page);
    store_file_close(f);
    *out_blank = blank;
    return e;
}

enum err journal__adopt_spare(struct store_journal *j, const char *name, struct store_file **out_file,
                              bool *out_dsync)
{
    char path[STORE_PATH_MAX];
    bool blank;
    store_path_join(path, j->dir, name);
    enum err e = is_blank(j, path, &blank);
    if (e)
        return e;
    if (!blank) {
        e = store_file_remove(j->cfg.disk, path);
        return e ? e : ERR_NOT_FOUND;
    }
    return journal__open_for_write(j, path, out_file, out_dsync);
}

static enum err adopt_one(struct store_journal *j, size_t slot) RT_BLOCKS
{
    struct store_file *f;
    bool dsync;
    enum err e = journal__adopt_spare(j, journal__spare_names[slot], &f, &dsync);
    if (e == ERR_OK)
        journal__set_spare(&j->spare[slot], f, dsync);
    return e == ERR_NOT_FOUND ? ERR_OK : e;
}

static enum err adopt_spares(struct store_journal *j, const struct found *x) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    enum err e = ERR_OK;
    if (x->temp) {
        store_path_join(path, j->dir, "spare.tmp");
        e = store_disk_unlink(j->cfg.disk, path);
    }
    for (size_t i = 0; e == ERR_OK && i < STORE_SPARES_MAX; i++)
        if (x->spare[i] && !j->cfg.spares_later)
            e = adopt_one(j, i);
    return e;
}

/* Writes the last frame (with its segment's header when it is the first) and the zeros behind it once more. */
static enum err harden_segment(struct journal_walk *w, uint32_t no, uint32_t from, uint32_t end) RT_BLOCKS
{
    struct store_journal *j = w->j;
    char path[STORE_PATH_MAX];
    struct store_file *f;
    const uint8_t *p;
    store_journal_segment_path(path, j->dir, no);
    enum err e = store_file_open(j->cfg.disk, path, STORE_WRITE, &f);
    if (e)
        return e;
    e = store_file_allocate(f, j->cfg.layout.segment_bytes); /* a copy may have holes */
    if (e == ERR_OK && from < end)
        e = journal__window(w, no, from, end - from, &p);
    if (e == ERR_OK && from < end)
        e = store_file_pwrite(f, p, end - from, from);
    uint32_t rest = j->cfg.layout.segment_bytes - end,
             reach = j->cfg.frame_bytes_max + STORE_SEGMENT_HEADER;
    if (e == ERR_OK)
        e = write_zeros(f, end, end + (rest < reach ? rest : reach));
    if (e == ERR_OK)
        e = store_file_sync(f);
    store_file_close(f);
    return e;
}

static enum err harden(struct journal_walk *w, const struct tail *t) RT_BLOCKS
{
    enum err e = store_disk_sync_dir(w->j->cfg.disk, w->j->dir);
    uint32_t last_end = w->last.offset + w->last_len;
    uint32_t from = w->last.offset == STORE_SEGMENT_HEADER ? 0 : w->last.offset;
    if (e == ERR_OK && w->last.segment && w->last.segment != t->segment)
        e = harden_segment(w, w->last.segment, from, last_end);
    if (e || !t->segment)
        return e;
    if (w->last.segment == t->segment)
        return harden_segment(w, t->segment, from, last_end);
    return harden_segment(w, t->segment, t->wipe_from, t->wipe_from);
}

static enum err open_active(struct store_journal *j, const struct tail *t) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    store_journal_segment_path(path, j->dir, t->segment);
    enum err e = journal__open_for_write(j, path, &j->active, &j->active_dsync);
    j->active_blank = t->wipe_from == 0;
    return e;
}

/* Group, sequence and root that the first frame of all, or the first after the checkpoint, must continue. */
static struct journal_expect first_expectation(const struct store_journal_config *cfg)
{
    const struct store_resume *r = &cfg->resume;
    return (struct journal_expect){
        .group = r->next_group ? r->next_group : 1, .seq = r->next_seq ? r->next_seq : 1, .root = r->root};
}

static void set_head(struct store_journal *j, const struct journal_walk *w, const struct tail *t)
{
    j->head.last_group = w->expect.group - 1;
    j->head.next_seq = w->expect.seq;
    j->head.last_epoch = w->expect.epoch;
    j->head.last_ms = w->expect.ms;
    j->head.root = w->expect.root;
    j->head.end =
        (struct store_pos){t->segment, t->at < STORE_SEGMENT_HEADER ? STORE_SEGMENT_HEADER : t->at};
    if (t->segment == 0 && j->cfg.first_segment > 1)
        j->head.end.segment = j->cfg.first_segment - 1; /* empty: the first segment gets that number */
    if (j->n_segments == 0)
        return;
    rt_lock_take(&j->lock);
    struct store_segment *last = &j->segment[j->n_segments - 1].info;
    if (last->segment_no == t->segment)
        last->bytes_used = j->head.end.offset;
    if (t->wipe_from == 0) {
        last->first_group = w->expect.group;
        last->first_seq = w->expect.seq;
    }
    rt_lock_release(&j->lock);
}

static enum err note_one(struct journal_walk *w, uint32_t no) RT_BLOCKS
{
    enum header_state state;
    struct store_segment_header h;
    uint8_t
        page[STORE_SEGMENT_HEADER]; /* there may be thousands of them: a window each would read gigabytes */
    enum err e = journal__read_at(w->j, no, 0, page, sizeof page);
    if (e == ERR_CORRUPT)
        return journal__unreadable(w, no, 0);
    if (e == ERR_OK)
        e = judge_header(w, no, page, &state, &h);
    if (e)
        return e;
    if (state != HEADER_VALID)
        return journal__damage(w->report, no, 0, "segment header is not valid");
    note_header(w->j, no, &h);
    return ERR_OK;
}

/*
 * Headers of segments that the checkpoint covers are not replayed, but readers need their first groups. ERR_CORRUPT: one is damaged; the
 * others were noted.
 */
static enum err note_covered(struct journal_walk *w, uint32_t first, uint32_t end) RT_BLOCKS
{
    enum err e = ERR_OK;
    for (uint32_t no = first; no < end && (e == ERR_OK || e == ERR_CORRUPT); no++) {
        enum err one = note_one(w, no);
        e = one == ERR_OK ? e : one;
    }
    return e;
}

/* ERR_CORRUPT: one is missing or not what it should be, or the newest are gone; *out_last is the one before it. */
static enum err list_segments(struct journal_walk *w, const struct found *x, uint32_t first,
                              uint32_t *out_last) RT_BLOCKS
{
    for (uint32_t no = first; x->n > 0 && no <= x->last; no++) {
        enum err e = list_segment(w, no, x->last);
        *out_last = no - 1;
        if (e)
            return e;
    }
    *out_last = x->last;
    uint32_t begun = w->j->cfg.last_segment;
    if (x->packed_last >= begun && x->packed_last)
        begun = x->packed_last + 1; /* only sealed ones are packed: a later one had begun */
    if (begun <= x->last)
        return ERR_OK;
    w->report->group_missing = true;
    return journal__damage(w->report, x->last + 1, 0, "segment is missing, and it had begun");
}

static enum err recover_segments(struct journal_walk *w, const struct found *x, struct tail *t) RT_BLOCKS
{
    struct store_journal_config *cfg = &w->j->cfg;
    uint32_t first = cfg->first_segment && cfg->first_segment < x->first ? cfg->first_segment : x->first;
    uint32_t last = 0;
    enum err listed = list_segments(w, x, first, &last);
    if (listed && (listed != ERR_CORRUPT || last == 0 || last < first))
        return listed;
    *t = (struct tail){cfg->resume.pos.segment ? cfg->resume.pos.segment : first, 0, 0};
    if (t->segment < first || t->segment > last)
        return journal__damage(w->report, t->segment, 0, "segment of the checkpoint is missing");
    enum err e = note_covered(w, first, t->segment);
    if (e && e != ERR_CORRUPT)
        return e;
    listed = e ? e : listed;
    if (listed)
        cfg->read_only = true; /* the rest can be read; where it ends may not be the journal's end */
    e = walk_all(w, t, last);
    return e ? e : listed;
}

enum err journal__recover(struct store_journal *j, store_replay_fn *fn, void *ctx,
                          struct store_journal_report *report)
{
    struct found x = {.j = j};
    struct journal_walk w;
    struct tail t = {0};
    enum err e = store_disk_list(j->cfg.disk, j->dir, look_at_name, &x);
    if (e)
        return e;
    journal__walk_init(&w, j, report, fn, ctx);
    w.expect = first_expectation(&j->cfg);
    if (x.n > 0 || x.packed_last || j->cfg.last_segment)
        e = recover_segments(&w, &x, &t);
    else if (j->cfg.resume.pos.segment)
        e = journal__damage(report, j->cfg.resume.pos.segment, 0, "segment of the checkpoint is missing");
    if (e == ERR_OK && !j->cfg.read_only)
        e = harden(&w, &t);
    journal__walk_fini(&w);
    if (e == ERR_OK || e == ERR_CORRUPT)
        set_head(j, &w, &t);
    if (e || j->cfg.read_only)
        return e;
    if (x.n > 0)
        e = open_active(j, &t);
    return e ? e : adopt_spares(j, &x);
}
