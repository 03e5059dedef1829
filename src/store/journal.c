/*
 * Writing. One thread appends; another prepares the spare.
 *
 * append   1. Encode the frame into the page-aligned buffer, behind a segment header when the segment is blank.
 *          2. When it does not fit, take the spare first: rename it to its number, flush the directory. The name
 *             is durable before the frame is, so an acknowledged frame cannot lose its file.
 *          3. One positioned write, then the flush (which O_DSYNC makes part of the write).
 *          4. Only now advance the head and let readers see it.
 * failure  Any error after step 1 other than "no space for the rename" closes the journal for ever. The flag is set
 *          before append returns, so nobody can be answered in between.
 * spare    Written full of zeros and flushed under a temporary name, renamed, directory flushed: a spare.seg that
 *          exists is complete. There are two slots, the second for journals that ask for it; a slot goes
 *          NONE -> MAKING -> READY by the keeper, READY -> NONE by the writer, each side touching it only in
 *          its own states.
 */
#include "store/journal.h"
#include "store/journal_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

void journal__segment_name(char out[32], uint32_t segment_no)
{
    snprintf(out, 32, "%08u.seg", segment_no);
}

void store_journal_segment_path(char out[STORE_PATH_MAX], const char *dir, uint32_t segment_no)
{
    char name[32];
    journal__segment_name(name, segment_no);
    store_path_join(out, dir, name);
}

enum err journal__open_for_write(struct store_journal *j, const char *path, struct store_file **out,
                                 bool *out_dsync)
{
    if (j->cfg.direct && !j->cfg.unflushed) {
        enum err e = store_file_open(j->cfg.disk, path, STORE_WRITE | STORE_DIRECT | STORE_DSYNC, out);
        if (e != ERR_RANGE) {
            if (e == ERR_OK)
                *out_dsync = true;
            return e;
        }
    }
    enum err e = store_file_open(j->cfg.disk, path, STORE_WRITE, out);
    if (e == ERR_OK)
        *out_dsync = false;
    return e;
}

/* --- open and close --- */

static void check_config(const struct store_journal_config *cfg)
{
    uint32_t payload_max = store_frame_payload_max(&cfg->layout); /* checks the layout too */
    CHECK(cfg->disk && cfg->dir && cfg->clock && cfg->epoch > 0);
    CHECK(cfg->read_only || (cfg->frame_bytes_max % cfg->layout.align == 0 && cfg->frame_bytes_max > 0 &&
                             cfg->frame_bytes_max <= store_frame_len(&cfg->layout, payload_max)));
}

static enum err journal_create(const struct store_journal_config *cfg, struct store_journal **out)
{
    check_config(cfg);
    struct store_journal *j = calloc(1, sizeof *j);
    if (!j)
        return ERR_NO_MEMORY;
    j->magic = STORE_JOURNAL_MAGIC;
    j->cfg = *cfg;
    CHECK(strlen(cfg->dir) < sizeof j->dir);
    strcpy(j->dir, cfg->dir);
    atomic_init(&j->epoch, cfg->epoch);
    j->cfg.dir = j->dir;
    if (!cfg->read_only) {
        j->buffer =
            aligned_alloc(STORE_PAGE, (cfg->frame_bytes_max + STORE_SEGMENT_HEADER + STORE_PAGE - 1) /
                                          STORE_PAGE * STORE_PAGE);
        if (!j->buffer) {
            free(j);
            return ERR_NO_MEMORY;
        }
    }
    rt_lock_init(&j->lock, "journal_segments", STORE_JOURNAL_LOCK_RANK);
    *out = j;
    return ERR_OK;
}

enum err store_journal_open(const struct store_journal_config *cfg, store_replay_fn *replay, void *ctx,
                            struct store_journal_report *out_report, struct store_journal **out)
{
    struct store_journal_report report = {0};
    struct store_journal *j;
    enum err e = journal_create(cfg, &j);
    if (e)
        return e;
    e = journal__recover(j, replay, ctx, &report);
    *out_report = report;
    if (e == ERR_CORRUPT && cfg->accept_damage)
        e = ERR_OK;
    if (e || report.damaged || cfg->read_only)
        atomic_store_explicit(&j->failed, true, memory_order_release);
    if (e) {
        store_journal_close(j);
        return e;
    }
    obs_counter_add(cfg->torn_bytes_total, report.torn_bytes);
    atomic_store_explicit(&j->durable_end, (uint64_t)j->head.end.segment << 32 | j->head.end.offset,
                          memory_order_release);
    journal__set_room(j);
    *out = j;
    return ERR_OK;
}

void store_journal_close(struct store_journal *j)
{
    if (!j)
        return;
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    store_file_close(j->active);
    for (size_t i = 0; i < STORE_SPARES_MAX; i++)
        store_file_close(j->spare[i].file);
    for (size_t i = 0; i < j->n_segments; i++) {
        CHECK(j->segment[i].readers == 0);
        store_file_close(j->segment[i].file);
    }
    free(j->segment);
    free(j->buffer);
    rt_lock_fini(&j->lock);
    j->magic = 0;
    free(j);
}

/* --- what others may ask --- */

bool store_journal_failed(const struct store_journal *j)
{
    return atomic_load_explicit(&j->failed, memory_order_acquire);
}

void store_journal_fail(struct store_journal *j)
{
    atomic_store_explicit(&j->failed, true, memory_order_release);
}

void store_journal_set_epoch(struct store_journal *j, uint64_t epoch)
{
    CHECK(epoch >= j->head.last_epoch && epoch > 0);
    atomic_store_explicit(&j->epoch, epoch, memory_order_relaxed);
}

void store_journal_head(const struct store_journal *j, struct store_head *out)
{
    *out = j->head;
}

void store_journal_stats(const struct store_journal *j, struct store_journal_stats *out)
{
    out->frames = atomic_load_explicit(&j->frames, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&j->bytes, memory_order_relaxed);
    out->flushes = atomic_load_explicit(&j->flushes, memory_order_relaxed);
    out->direct = j->active_dsync;
}

void journal__set_room(struct store_journal *j)
{
    uint64_t active = j->active ? j->cfg.layout.segment_bytes - j->head.end.offset : 0;
    atomic_store_explicit(&j->room_active, active, memory_order_relaxed);
}

struct store_room store_journal_room(const struct store_journal *j)
{
    if (store_journal_failed(j))
        return (struct store_room){0, 0};
    bool ready = store_journal_spares(j) > 0;
    return (struct store_room){atomic_load_explicit(&j->room_active, memory_order_relaxed),
                               ready ? j->cfg.layout.segment_bytes - STORE_SEGMENT_HEADER : 0};
}

bool store_journal_fits(const struct store_journal *j, size_t payload_len)
{
    uint32_t len = store_frame_len(&j->cfg.layout, payload_len);
    struct store_room room = store_journal_room(j);
    return len > 0 && len <= j->cfg.frame_bytes_max && (len <= room.active || len <= room.spare);
}

/* --- the spare --- */

const char *const journal__spare_names[STORE_SPARES_MAX] = {"spare.seg", "spare2.seg"};

void journal__set_spare(struct journal_spare *s, struct store_file *file, bool dsync)
{
    s->file = file;
    s->dsync = dsync;
    atomic_store_explicit(&s->state, SPARE_READY, memory_order_release);
}

static int spare_state(const struct journal_spare *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire);
}

unsigned store_journal_spares(const struct store_journal *j)
{
    unsigned ready = 0;
    for (size_t i = 0; i < STORE_SPARES_MAX; i++)
        ready += spare_state(&j->spare[i]) == SPARE_READY;
    return ready;
}

bool store_journal_wants_spare(const struct store_journal *j)
{
    bool making = false;
    for (size_t i = 0; i < STORE_SPARES_MAX; i++)
        making = making || spare_state(&j->spare[i]) == SPARE_MAKING;
    return !store_journal_failed(j) && !making && store_journal_spares(j) == 0;
}

static enum err write_spare(struct store_journal *j, const char *temp) RT_BLOCKS
{
    struct store_file *f;
    enum err e = store_file_open(j->cfg.disk, temp, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (e)
        return e;
    e = store_file_allocate(f, j->cfg.layout.segment_bytes);
    if (e == ERR_OK)
        e = store_file_sync(f);
    store_file_close(f);
    return e;
}

static enum err make_spare(struct store_journal *j, const char *name, struct store_file **out,
                           bool *out_dsync) RT_BLOCKS
{
    char temp[STORE_PATH_MAX], path[STORE_PATH_MAX];
    store_path_join(temp, j->dir, "spare.tmp");
    store_path_join(path, j->dir, name);
    enum err e = write_spare(j, temp);
    if (e == ERR_OK)
        e = store_disk_rename(j->cfg.disk, temp, path);
    if (e == ERR_OK)
        e = store_disk_sync_dir(j->cfg.disk, j->dir);
    if (e == ERR_OK)
        e = journal__open_for_write(j, path, out, out_dsync);
    if (e == ERR_NO_SPACE) {
        enum err ignored =
            store_disk_unlink(j->cfg.disk, temp); /* gives the space back; there may be no such file */
        (void)ignored;
    }
    return e;
}

enum err store_journal_prepare_spare(struct store_journal *j)
{
    return store_journal_prepare_spares(j, 1);
}

enum err store_journal_prepare_spares(struct store_journal *j, unsigned want)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    CHECK(want <= STORE_SPARES_MAX);
    if (store_journal_failed(j))
        return ERR_CLOSED;
    size_t i = 0;
    while (i < STORE_SPARES_MAX && spare_state(&j->spare[i]) != SPARE_NONE)
        i++;
    if (store_journal_spares(j) >= want || i == STORE_SPARES_MAX)
        return ERR_OK;
    struct journal_spare *s = &j->spare[i];
    int none = SPARE_NONE;
    if (!atomic_compare_exchange_strong_explicit(&s->state, &none, SPARE_MAKING, memory_order_acquire,
                                                 memory_order_acquire))
        return ERR_OK;
    struct store_file *file;
    bool dsync;
    enum err e = make_spare(j, journal__spare_names[i], &file, &dsync);
    if (e == ERR_OK) {
        journal__set_spare(s, file, dsync);
        return ERR_OK;
    }
    atomic_store_explicit(&s->state, SPARE_NONE, memory_order_release);
    if (e != ERR_NO_SPACE && e != ERR_NO_MEMORY)
        store_journal_fail(
            j); /* a disk that fails for a spare will fail for a frame: stop before an answer depends on it */
    return e;
}

enum err store_journal_adopt_spares(struct store_journal *j)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    enum err e = store_journal_failed(j) ? ERR_CLOSED : ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < STORE_SPARES_MAX; i++) {
        struct journal_spare *s = &j->spare[i];
        struct store_file *file;
        bool dsync;
        int none = SPARE_NONE;
        if (!atomic_compare_exchange_strong_explicit(&s->state, &none, SPARE_MAKING, memory_order_acquire,
                                                     memory_order_acquire))
            continue;
        e = journal__adopt_spare(j, journal__spare_names[i], &file, &dsync);
        if (e == ERR_OK)
            journal__set_spare(s, file, dsync);
        else
            atomic_store_explicit(&s->state, SPARE_NONE, memory_order_release);
        if (e == ERR_NOT_FOUND)
            e = ERR_OK;
    }
    return e;
}

/* --- append --- */

static enum err fail_closed(struct store_journal *j)
{
    store_journal_fail(j);
    obs_counter_inc(j->cfg.flush_fail_total);
    return ERR_IO;
}

/* The spare becomes segment no. Its name is durable when this returns ERR_OK. */
static enum err take_spare(struct store_journal *j, uint32_t no) RT_BLOCKS
{
    size_t i = 0;
    while (i < STORE_SPARES_MAX && spare_state(&j->spare[i]) != SPARE_READY)
        i++;
    if (i == STORE_SPARES_MAX)
        return ERR_NO_SPACE;
    struct journal_spare *s = &j->spare[i];
    char from[STORE_PATH_MAX], to[STORE_PATH_MAX];
    store_path_join(from, j->dir, journal__spare_names[i]);
    store_journal_segment_path(to, j->dir, no);
    enum err e = store_disk_rename(j->cfg.disk, from, to);
    if (e == ERR_NO_SPACE)
        return e; /* the directory could not grow; nothing has changed */
    if (e || store_disk_sync_dir(j->cfg.disk, j->dir))
        return fail_closed(j);
    store_file_close(j->active);
    j->active = s->file;
    j->active_dsync = s->dsync;
    j->active_blank = true;
    s->file = NULL;
    atomic_store_explicit(&s->state, SPARE_NONE, memory_order_release);
    j->head.end = (struct store_pos){no, STORE_SEGMENT_HEADER};
    journal__set_room(j);
    return ERR_OK;
}

static void encode_header(struct store_journal *j, const struct store_frame *f)
{
    struct store_segment_header h = {
        .segment_no = j->head.end.segment,
        .first_seq = f->first_seq,
        .first_group = f->group_no,
        .epoch = atomic_load_explicit(&j->epoch, memory_order_relaxed),
        .prev_root = f->prev_root,
        .created_ms = (uint64_t)clock_wall_ms(j->cfg.clock),
    };
    memcpy(h.stream_id, j->cfg.stream_id, 16);
    store_segment_encode(&j->cfg.layout, &h, j->buffer);
}

static enum err write_flushed(struct store_journal *j, size_t n, uint64_t at) RT_BLOCKS
{
    int64_t start_ns = clock_mono_ns(j->cfg.clock);
    enum err e = store_file_pwrite(j->active, j->buffer, n, at);
    if (e == ERR_OK && !j->active_dsync && !j->cfg.unflushed)
        e = store_file_sync(j->active);
    obs_hist_observe(j->cfg.flush_seconds, (double)(clock_mono_ns(j->cfg.clock) - start_ns) / 1e9);
    return e ? fail_closed(j) : ERR_OK;
}

/* Readers learn about a new segment before they can learn of a frame in it. */
static enum err list_active(struct store_journal *j, const struct store_frame *f,
                            struct store_segment *out_sealed)
{
    struct store_segment info = {.segment_no = j->head.end.segment,
                                 .bytes_used = STORE_SEGMENT_HEADER,
                                 .first_group = f->group_no,
                                 .first_seq = f->first_seq};
    rt_lock_take(&j->lock);
    struct journal_segment *last = j->n_segments ? &j->segment[j->n_segments - 1] : NULL;
    if (last && last->info.segment_no == info.segment_no) { /* was listed blank by recovery */
        last->info = info;
        last = j->n_segments > 1 ? &j->segment[j->n_segments - 2] : NULL;
    }
    if (last) {
        last->info.sealed = true;
        *out_sealed = last->info;
    }
    bool listed = j->n_segments && j->segment[j->n_segments - 1].info.segment_no == info.segment_no;
    rt_lock_release(&j->lock);
    return listed ? ERR_OK : journal__add_segment(j, &info, false);
}

static void advance(struct store_journal *j, const struct store_frame *f, uint32_t len)
{
    j->head.last_group = f->group_no;
    j->head.next_seq = f->first_seq + f->count;
    j->head.last_ms = f->ms;
    j->head.last_epoch = atomic_load_explicit(&j->epoch, memory_order_relaxed);
    j->head.root = f->new_root;
    j->head.end.offset += len;
    rt_lock_take(&j->lock);
    j->segment[j->n_segments - 1].info.bytes_used = j->head.end.offset;
    rt_lock_release(&j->lock);
    atomic_store_explicit(&j->durable_end, (uint64_t)j->head.end.segment << 32 | j->head.end.offset,
                          memory_order_release);
    atomic_fetch_add_explicit(&j->frames, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&j->bytes, len, memory_order_relaxed);
    atomic_fetch_add_explicit(&j->flushes, 1, memory_order_relaxed);
    obs_counter_add(j->cfg.bytes_total, len);
    journal__set_room(j);
}

static void check_continues(const struct store_journal *j, const struct store_frame *f)
{
    CHECK(f->group_no == j->head.last_group + 1);
    CHECK(f->first_seq == j->head.next_seq);
    CHECK(sha256_eq(&f->prev_root, &j->head.root));
}

enum err store_journal_append(struct store_journal *j, const struct store_frame *f,
                              const struct bytes *parts, size_t n_parts, struct store_pos *out_pos)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    if (store_journal_failed(j))
        return ERR_CLOSED;
    check_continues(j, f);
    size_t payload_len = 0;
    for (size_t i = 0; i < n_parts; i++)
        payload_len += parts[i].n;
    uint32_t len = store_frame_len(&j->cfg.layout, payload_len);
    if (len == 0 || len > j->cfg.frame_bytes_max)
        return ERR_TOO_LARGE;
    if (!j->active || len > j->cfg.layout.segment_bytes - j->head.end.offset) {
        enum err e = take_spare(j, j->head.end.segment + 1);
        if (e)
            return e;
    }
    bool blank = j->active_blank;
    struct store_segment sealed = {0};
    if (blank) {
        /* Before the write: running out of memory afterwards would leave a durable frame that nobody can read. */
        if (list_active(j, f, &sealed))
            return ERR_NO_MEMORY;
        encode_header(j, f);
    }
    struct store_frame stamped = *f;
    stamped.epoch = atomic_load_explicit(&j->epoch, memory_order_relaxed);
    uint32_t lead = blank ? STORE_SEGMENT_HEADER : 0;
    store_frame_encode(&j->cfg.layout, &stamped, parts, n_parts, j->buffer + lead);
    enum err e = write_flushed(j, lead + len, j->head.end.offset - lead);
    if (e)
        return e;
    j->active_blank = false;
    *out_pos = j->head.end;
    advance(j, f, len);
    if (blank && sealed.segment_no && j->cfg.on_sealed)
        j->cfg.on_sealed(j->cfg.sealed_ctx, &sealed);
    return ERR_OK;
}
