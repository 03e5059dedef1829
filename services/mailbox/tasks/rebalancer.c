/*
 * The rebalancer keeps house so that workers never wait for it. Every 50 ms it looks whether a spare segment is wanted; every
 * 200 ms, per shard, it does one of these:
 *
 *   index  writes the index file of the oldest sealed segment that has none: what its worker collected, or by reading it;
 *   strip  takes a segment's file away when its audit time is over, its worker agrees that nothing in it waits, and its index,
 *          which is all that is left then, can be read;
 *   drop   takes the index of a stripped segment away when its worker agrees that no key in it is remembered;
 *   scrub  reads the next index and sealed segment again, at storage.scrub_rate, checking every frame, payload and record; from
 *          a minute after the start on, when those who waited for it have been served.
 *
 * Bytes that are wrong make the shard read-only: the flag `damaged` tells its worker. An index whose segment is there is written again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/mailbox/idx.h"
#include "services/mailbox/mailbox.h"
#include "store/file_replace.h"

enum {
    EVERY_MS = 50,
    KEEP_EVERY = 4,
    BUSY_SEGMENT_MS = 5000,
    SCRUB_PIECE = 1 << 20,
    SCRUB_AFTER_MS = 60000
};

/* ---- what there is ---- */

/* A restarted rebalancer, and a shard that came, find out what files there are and take over the spares. */
static void look_around(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    int64_t rest_ms = mailbox_config(mb)->storage_scrub_every;
    struct mailbox_idx_files f;
    l->keeping = (struct mailbox_keeping){
        .looked = true, .incarnation = atomic_load(&l->incarnation), .indexed_to = l->log.indexed_to};
    l->keeping.scrub_at_ns =
        clock_mono_ns(mb->clock) + (rest_ms < SCRUB_AFTER_MS ? rest_ms : SCRUB_AFTER_MS) * 1000000;
    if (!atomic_load(&l->readonly) && store_journal_adopt_spares(l->log.journal) != ERR_OK)
        obs_log(svc_log(mb->svc), OBS_WARN, "storage.no_spare", OBS_U64("shard", l->no), OBS_END);
    atomic_store(&l->idx_bytes, 0);
    if (mailbox_idx_list(svc_disk(mb->svc), l->dir, &f) != ERR_OK || !f.first_idx)
        return;
    l->keeping.oldest_idx = f.first_idx;
    for (uint32_t no = f.first_idx; no <= f.last_idx; no++) {
        char path[STORE_PATH_MAX];
        struct store_stat st;
        if (no > l->keeping.indexed_to && no >= f.first_seg)
            break; /* will be written again, and counted then */
        mailbox_idx_path(path, l->dir, no);
        if (store_disk_stat(svc_disk(mb->svc), path, &st) == ERR_OK)
            atomic_fetch_add(&l->idx_bytes, st.bytes);
    }
}

/* False: the shard is not here. Otherwise it stays until it is unpinned, and its files are known. */
static bool pin(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    if (!mailbox_presence_pin(&l->presence))
        return false;
    if (!l->keeping.looked || l->keeping.incarnation != atomic_load(&l->incarnation))
        look_around(mb, l);
    return true;
}

/* ---- spares ---- */

/* A second spare while segments last less than five seconds: making one must not race with using one up. */
static unsigned spares_wanted(const struct mailbox_lane *l)
{
    return atomic_load(&l->sealed_every_ms) < BUSY_SEGMENT_MS ? 2 : 1;
}

static void spare(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    uint64_t free_bytes = 0;
    atomic_store(&l->over_quota, mailbox_lane_over_quota(l));
    if (atomic_load(&l->readonly) || store_journal_spares(l->log.journal) >= spares_wanted(l))
        return;
    const struct mailbox_config *cfg = mailbox_config(mb);
    bool low = store_disk_free_bytes(svc_disk(mb->svc), l->dir, &free_bytes) == ERR_OK &&
               free_bytes < cfg->storage_min_free + mb->segment_bytes;
    uint64_t most = mailbox_lane_bytes_max(mb);
    uint64_t used = (store_journal_segments(l->log.journal, NULL, 0) + 1) * mb->segment_bytes +
                    atomic_load(&l->idx_bytes);
    bool over = used * mb->shards > most && store_journal_segments(l->log.journal, NULL, 0) > 0;
    enum err e = (low && !svc_amnesia(mb->svc)) || over
                     ? ERR_NO_SPACE
                     : store_journal_prepare_spares(l->log.journal, spares_wanted(l));
    bool spareless = e != ERR_OK && store_journal_spares(l->log.journal) == 0;
    if (spareless && !l->keeping.spareless)
        obs_log(svc_log(mb->svc), OBS_WARN, "storage.no_spare", OBS_U64("shard", l->no), OBS_ERR(e),
                OBS_END);
    l->keeping.spareless = spareless;
    atomic_store(&l->no_space, spareless && e == ERR_NO_SPACE);
}

static void watch_seals(struct mailbox *mb, struct mailbox_lane *l)
{
    struct mailbox_keeping *k = &l->keeping;
    uint32_t active = atomic_load(&l->active_segment);
    int64_t now = clock_mono_ns(mb->clock) / 1000000;
    if (active != k->segment_seen) {
        if (k->segment_seen)
            atomic_store(&l->sealed_every_ms, (now - k->segment_since_ms) / (active - k->segment_seen));
        k->segment_seen = active;
        k->segment_since_ms = now;
    } else if (now - k->segment_since_ms > atomic_load(&l->sealed_every_ms)) {
        atomic_store(&l->sealed_every_ms, now - k->segment_since_ms);
    }
}

/* ---- index, strip, drop ---- */

static struct mailbox_idx_place place_of(struct mailbox *mb, struct mailbox_lane *l)
{
    return (struct mailbox_idx_place){svc_disk(mb->svc), l->dir, mb->instance, l->no};
}

/* What the worker collected while it wrote this segment; NULL when it did not, or a later one took its place. */
static struct mailbox_idx_builder *take_built(struct mailbox_lane *l, uint32_t segment)
{
    struct mailbox_idx_builder *b = atomic_load(&l->log.built);
    if (!b || mailbox_idx_builder_segment(b) > segment)
        return NULL;
    b = atomic_exchange(&l->log.built, NULL);
    if (b && mailbox_idx_builder_segment(b) == segment)
        return b;
    mailbox_idx_builder_destroy(
        b); /* of a segment that has its file already, or the worker sealed another meanwhile */
    return NULL;
}

static bool index_next(struct mailbox *mb, struct mailbox_lane *l, const struct store_segment *oldest,
                       size_t n) RT_BLOCKS
{
    struct mailbox_keeping *k = &l->keeping;
    struct store_journal_report report = {0};
    uint64_t bytes = 0;
    if (k->indexed_to + 1 < oldest->segment_no)
        k->indexed_to = oldest->segment_no - 1;
    uint32_t next = k->indexed_to + 1;
    if (next + 1 >= oldest->segment_no + n) /* the active segment is the last */
        return false;
    struct mailbox_idx_place at = place_of(mb, l);
    struct mailbox_idx_builder *built = take_built(l, next);
    enum err e = built ? mailbox_idx_builder_save(built, &at, &bytes)
                       : mailbox_idx_write(&at, l->log.journal, next, &report, &bytes);
    mailbox_idx_builder_destroy(built);
    if (e == ERR_CORRUPT)
        mailbox_lane_found_damage(l, MAILBOX_INTEGRITY_SCRUB, &report);
    else if (e != ERR_OK)
        obs_log(svc_log(mb->svc), OBS_WARN, "segment.index", OBS_U64("shard", l->no),
                OBS_U64("segment", next), OBS_ERR(e), OBS_END);
    if (e != ERR_OK)
        return false;
    k->indexed_to = next;
    atomic_fetch_add(&l->idx_bytes, bytes);
    if (!k->oldest_idx)
        k->oldest_idx = next;
    return true;
}

/* Reads an index file again. One that is bad is written anew from its segment; without one it is all there was, and damage. */
static bool index_is_good(struct mailbox *mb, struct mailbox_lane *l, uint32_t no, bool stripped,
                          uint64_t *out_bytes) RT_BLOCKS
{
    struct mailbox_idx_place at = place_of(mb, l);
    struct store_journal_report report = {.bad_reason =
                                              "the index of a segment that is gone cannot be used"};
    enum err e = mailbox_idx_check(&at, no, out_bytes);
    if (e != ERR_INTEGRITY && e != ERR_NOT_FOUND && e != ERR_IO)
        return e == ERR_OK;
    snprintf(report.bad_file, sizeof report.bad_file, "%08u.idx", no);
    if (stripped) {
        mailbox_lane_found_damage(l, MAILBOX_INTEGRITY_IDX, &report);
        return false;
    }
    obs_counter_inc(obs_counter_nth(mb->m[MAILBOX_M_integrity], MAILBOX_INTEGRITY_IDX));
    e = mailbox_idx_write(&at, l->log.journal, no, &report, out_bytes);
    obs_log(svc_log(mb->svc), OBS_WARN, "segment.index_rewritten", OBS_U64("shard", l->no),
            OBS_U64("segment", no), OBS_ERR(e), OBS_END);
    if (e == ERR_CORRUPT)
        mailbox_lane_found_damage(l, MAILBOX_INTEGRITY_SCRUB, &report);
    return e == ERR_OK;
}

/* Links of settled messages stay readable for retention.audit, or until they take too much disk. */
static bool audit_over(struct mailbox *mb, struct mailbox_lane *l, uint32_t segment,
                       uint64_t segments) RT_BLOCKS
{
    const struct mailbox_config *cfg = mailbox_config(mb);
    char path[STORE_PATH_MAX];
    struct store_stat st;
    if (svc_amnesia(mb->svc) || segments * mb->segment_bytes > cfg->retention_audit_bytes / mb->shards)
        return true; /* memory is not spent on history */
    store_journal_segment_path(path, l->dir, segment);
    return store_disk_stat(svc_disk(mb->svc), path, &st) == ERR_OK &&
           clock_wall_ms(mb->clock) - st.modified_ms > cfg->retention_audit;
}

static void strip(struct mailbox *mb, struct mailbox_lane *l, const struct store_segment *oldest,
                  size_t n) RT_BLOCKS
{
    uint32_t no = oldest->segment_no;
    if (n < 2 || !oldest->sealed || no > l->keeping.indexed_to)
        return;
    if (atomic_load(&l->strip_ok) == no) {
        uint64_t bytes;
        if (!index_is_good(mb, l, no, false, &bytes))
            return;
        enum err e = store_journal_drop(l->log.journal, no, false);
        obs_log(svc_log(mb->svc), e == ERR_OK ? OBS_INFO : OBS_WARN, "segment.strip",
                OBS_U64("shard", l->no), OBS_U64("segment", no), OBS_ERR(e), OBS_END);
    } else if (audit_over(mb, l, no, n)) {
        atomic_store(&l->strip_wish, no);
    }
}

static void drop(struct mailbox *mb, struct mailbox_lane *l, uint32_t oldest_segment) RT_BLOCKS
{
    struct mailbox_idx_place at = place_of(mb, l);
    struct mailbox_idx_info info = {0};
    struct mailbox_keeping *k = &l->keeping;
    char path[STORE_PATH_MAX];
    struct store_stat st = {0};
    if (!k->oldest_idx || k->oldest_idx >= oldest_segment)
        return; /* its segment is still there */
    if (atomic_load(&l->drop_ok) != k->oldest_idx) {
        atomic_store(&l->drop_wish, k->oldest_idx);
        return;
    }
    mailbox_idx_path(path, l->dir, k->oldest_idx);
    enum err e = store_disk_stat(svc_disk(mb->svc), path, &st);
    bool known = mb->replica && e == ERR_OK && mailbox_idx_peek(&at, k->oldest_idx, &info) == ERR_OK;
    if (e == ERR_OK)
        e = store_file_remove(svc_disk(mb->svc), path);
    if (known && e == ERR_OK)
        atomic_store(&l->trim_to, info.last_group); /* nor does any other node need its rows */
    obs_log(svc_log(mb->svc), e == ERR_OK ? OBS_INFO : OBS_WARN, "segment.drop", OBS_U64("shard", l->no),
            OBS_U64("segment", k->oldest_idx), OBS_ERR(e), OBS_END);
    if (e != ERR_OK && e != ERR_NOT_FOUND)
        return;
    if (e == ERR_OK)
        atomic_fetch_sub(&l->idx_bytes, st.bytes);
    k->oldest_idx = k->oldest_idx < k->indexed_to ? k->oldest_idx + 1 : 0;
}

/* ---- scrub ---- */

struct scrub {
    struct mailbox *mb;
    struct mailbox_lane *lane;
    struct rt_task *self;
    uint64_t rate, since_sleep;
};

static void look_after_spares(struct mailbox *mb) RT_BLOCKS
{
    for (uint16_t i = 0; i < mb->shards; i++) {
        if (!pin(mb, &mb->lanes[i]))
            continue;
        watch_seals(mb, &mb->lanes[i]);
        spare(mb, &mb->lanes[i]);
        mailbox_presence_unpin(&mb->lanes[i].presence);
    }
}

/* Frames come CRC-checked; the payloads are hashed again, since they were trusted when their index was loaded. */
static enum err scrub_frame(void *ctx, const struct store_frame *f, struct store_pos at) RT_BLOCKS
{
    struct scrub *s = ctx;
    size_t pos = 0;
    struct mailbox_rec r;
    enum err e;
    (void)at;
    while ((e = mailbox_rec_next(f->payload, &pos, &r)) == ERR_OK) {
        struct sha256 h;
        if (r.type != MAILBOX_REC_ENQ && r.type != MAILBOX_REC_MOVE)
            continue;
        sha256_of(r.enq.payload.p, r.enq.payload.n, &h);
        if (!sha256_eq(&h, &r.enq.payload_hash))
            return ERR_CORRUPT;
    }
    s->since_sleep += f->payload.n;
    if (e == ERR_EMPTY && s->since_sleep >= SCRUB_PIECE) {
        int64_t pause_ms = (int64_t)(s->since_sleep * 1000 / s->rate);
        s->since_sleep = 0;
        rt_task_beat(s->self);
        look_after_spares(s->mb); /* they do not wait for a slow scrub */
        if (!mailbox_presence_is_here(&s->lane->presence))
            return ERR_CANCELED; /* another node waits for it */
        if (rt_task_stopping(s->self) || rt_task_sleep(s->self, deadline_in_ms(pause_ms)) != ERR_OK)
            return ERR_CANCELED;
    }
    return e == ERR_EMPTY ? ERR_OK : ERR_CORRUPT;
}

/* A sector that cannot be read is as wrong as one with other bytes. */
static void scrub_segment(struct scrub *s, uint32_t no) RT_BLOCKS
{
    struct mailbox_lane *l = s->lane;
    struct store_journal_report report = {0};
    enum err e = store_journal_scan(l->log.journal, no, scrub_frame, s, &report);
    if (e == ERR_IO) {
        snprintf(report.bad_file, sizeof report.bad_file, "%08u.seg", no);
        report.bad_reason = "cannot be read";
    }
    if (e == ERR_CORRUPT || e == ERR_IO)
        mailbox_lane_found_damage(l, MAILBOX_INTEGRITY_SCRUB, &report);
}

/*
 * One segment and its index per pass, then the others' turn; of a stripped one the index. A shard that fills segments faster than in
 * five seconds is left alone, but for one a minute: its newest ones have just been read for their index.
 */
static void scrub(struct mailbox *mb, struct mailbox_lane *l, struct rt_task *self) RT_BLOCKS
{
    struct mailbox_keeping *k = &l->keeping;
    struct store_segment oldest[1];
    struct scrub s = {mb, l, self, mailbox_config(mb)->storage_scrub_rate, 0};
    size_t n = store_journal_segments(l->log.journal, oldest, 1);
    int64_t now = clock_mono_ns(mb->clock);
    uint64_t bytes = 0;
    uint32_t first = oldest->segment_no, active = first + (uint32_t)n - 1, next = k->scrubbed + 1;
    if (k->oldest_idx && k->oldest_idx < first)
        first = k->oldest_idx;
    if (!s.rate || first == active || now < k->scrub_at_ns)
        return;
    if (k->scrub_ended_ns && now - k->scrub_ended_ns < mailbox_config(mb)->storage_scrub_every * 1000000)
        return;
    if (next < first || next >= active)
        next = first;
    k->scrub_ended_ns = next + 1 == active ? now : 0; /* the last of a round: rest before the next */
    if (!k->scrub_ended_ns && atomic_load(&l->sealed_every_ms) < BUSY_SEGMENT_MS)
        k->scrub_at_ns = now + INT64_C(60000000000);
    bool stripped = next < oldest->segment_no;
    if (next <= k->indexed_to && index_is_good(mb, l, next, stripped, &bytes))
        k->scrub_at_ns =
            (k->scrub_at_ns > now ? k->scrub_at_ns : now) + (int64_t)(bytes * 1000 / s.rate) * 1000000;
    if (!stripped)
        scrub_segment(&s, next);
    k->scrubbed = next;
}

/* ---- the loop ---- */

static void keep(struct mailbox *mb, struct mailbox_lane *l, struct rt_task *self) RT_BLOCKS
{
    struct store_segment oldest[1] = {0};
    size_t n = store_journal_segments(l->log.journal, oldest, 1);
    if (atomic_load(&l->readonly) || n == 0)
        return;
    bool indexed = index_next(mb, l, oldest, n);
    strip(mb, l, oldest, n);
    drop(mb, l, oldest->segment_no);
    if (!indexed && !atomic_load(&l->damaged))
        scrub(mb, l, self);
}

static void show_bytes(struct mailbox *mb)
{
    double seg = 0, idx = 0, live = 0;
    for (uint16_t i = 0; i < mb->shards; i++) {
        struct mailbox_lane *l = &mb->lanes[i];
        if (!mailbox_presence_pin(&l->presence))
            continue;
        seg += (double)(store_journal_segments(l->log.journal, NULL, 0) * mb->segment_bytes);
        idx += (double)atomic_load(&l->idx_bytes);
        live += (double)atomic_load(&l->live_bytes);
        mailbox_presence_unpin(&l->presence);
    }
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_storage_bytes], "seg"), seg);
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_storage_bytes], "idx"), idx);
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_storage_bytes], "live"), live);
}

static void look_after(struct mailbox *mb, struct mailbox_lane *l, bool all, struct rt_task *self) RT_BLOCKS
{
    if (!pin(mb, l))
        return;
    if (all || atomic_load(&l->log.built))
        keep(mb, l, self);
    mailbox_presence_unpin(&l->presence);
}

enum err mailbox_rebalancer_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    for (uint16_t i = 0; i < mb->shards; i++)
        mb->lanes[i].keeping.looked = false;
    for (unsigned turn = 0;
         rt_task_sleep(self, deadline_in_ms(EVERY_MS)) == ERR_OK && !rt_task_stopping(self); turn++) {
        look_after_spares(mb);
        mailbox_change_look(mb, self);
        for (uint16_t i = 0; i < mb->shards; i++)
            look_after(mb, &mb->lanes[i], turn % KEEP_EVERY == 0, self);
        if (turn % KEEP_EVERY == 0)
            show_bytes(mb);
    }
    return ERR_OK;
}
