/* Keeps a spare segment ready, packs what is sealed, and reads it again in peace: damage is found before it is needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/checkpoint.h"
#include "services/ledger/files.h"
#include "services/ledger/segz.h"
#include "services/ledger/service.h"
#include "store/file_replace.h"
#include "svc/background.h"

enum { RETRY_MS = 50, LOOK_MS = 1000, PACE_MS = 100, SEGMENTS_MAX = 65536, KEEP_UNPACKED = 2 };

/* False: one is wanted and could not be made. */
static bool keep_spare(struct ledger *l) RT_BLOCKS
{
    if (l->sink->journal == NULL || !store_journal_wants_spare(l->sink->journal) ||
        ledger_safe_cause(l) == CAUSE_IO_ERROR)
        return true;
    svc_background_io(false); /* writers will need it; nothing else here is for them */
    enum err err = store_sink_prepare(l->sink);
    svc_background_io(true);
    bool pressure = err != ERR_OK;
    obs_gauge_set(obs_gauge(l->m[LEDGER_M_disk_pressure]),
                  pressure ? 1 : 0); /* opening may have found it */
    if (pressure != atomic_exchange(&l->disk_pressure, pressure)) {
        obs_log(l->deps.log, pressure ? OBS_ERROR : OBS_INFO, "disk_pressure", OBS_BOOL("on", pressure),
                OBS_ERR(err), OBS_END);
    }
    return !pressure;
}

/* Writes down that another segment has begun; segments are numbered from 1. False: it could not. */
static bool note_begun(struct ledger *l) RT_BLOCKS
{
    uint32_t n = l->sink->journal == NULL ? 0 : (uint32_t)store_journal_segments(l->sink->journal, NULL, 0);
    if (l->set.amnesia || n == l->begun_noted || ledger_safe_cause(l) != CAUSE_NONE)
        return true;
    if (ledger_begun_write(l, n) != ERR_OK)
        return false;
    l->begun_noted = n;
    return true;
}

/* What cannot wait until this thread has time. False: to be tried again soon. */
static bool keep_up(struct ledger *l) RT_BLOCKS
{
    bool noted = note_begun(l);
    return keep_spare(l) && noted;
}

/* Sleeps until then, but for a spare that is wanted meanwhile: the writer must not wait for us. */
static enum err rest(struct ledger *l, struct deadline until) RT_BLOCKS
{
    for (;;) {
        uint64_t noted = rt_bell_note(&l->segment_want);
        bool kept = keep_up(l);
        enum err err = rt_bell_doze(&l->segment_want, noted,
                                    kept ? until : deadline_min(until, deadline_in_ms(RETRY_MS)));
        if (err == ERR_TIMEOUT && deadline_passed(until))
            return ERR_OK;
        if (err != ERR_OK && err != ERR_TIMEOUT)
            return err;
    }
}

struct keeper {
    uint32_t packed_below; /* all segments before this one are packed */
    size_t seen;           /* with so many segments, replayed from there, there was nothing to pack */
    uint32_t seen_from;
    size_t next_scrub;
};

/* Packing and reading again take long; the writer must not wait for either. */
static void pace(void *ledger) RT_BLOCKS
{
    keep_up(ledger);
}

/* A generation that is still in memory must not have its segment packed under it: reads go by position, which stays. */
static bool pack_one(struct ledger *l, struct keeper *k) RT_BLOCKS
{
    uint32_t replayed_from = atomic_load_explicit(&l->checkpoint_segment, memory_order_acquire);
    size_t n = store_journal_segments(l->sink->journal, NULL, 0);
    if (n == k->seen && replayed_from == k->seen_from)
        return false;
    struct store_segment *v = ledger_segments(l, &n);
    if (v == NULL)
        return false;
    char path[STORE_PATH_MAX], dir[STORE_PATH_MAX];
    struct store_stat st;
    bool packed = false, tried = false;
    store_path_join(dir, l->set.dir, "journal");
    for (size_t i = 0; !tried && i + 1 + KEEP_UNPACKED < n && v[i].segment_no < replayed_from; i++) {
        if (v[i].segment_no < k->packed_below || !v[i].sealed)
            continue;
        store_journal_segment_path(path, dir, v[i].segment_no);
        if (store_disk_stat(l->deps.disk, path, &st) == ERR_OK) {
            enum err err = ledger_segz_pack(l, v[i].segment_no, (struct ledger_pace){pace, l});
            obs_log(l->deps.log, err == ERR_OK ? OBS_INFO : OBS_WARN, "segment_packed",
                    OBS_U64("segment", v[i].segment_no), OBS_ERR(err), OBS_END);
            packed = err == ERR_OK;
            tried = true;
        }
        if (!tried || packed)
            k->packed_below = v[i].segment_no + 1;
    }
    free(v);
    if (!packed) { /* nothing to pack, or it failed: tried again when something has changed */
        k->seen = n;
        k->seen_from = replayed_from;
    }
    return packed;
}

struct scrub {
    struct ledger *l;
    uint64_t bytes;
};

static bool scrub_on(void *ctx, size_t bytes) RT_BLOCKS
{
    struct scrub *s = ctx;
    pace(s->l);
    s->bytes += bytes;
    obs_counter_add(ledger_m_counter(s->l, LEDGER_M_scrub_bytes), bytes);
    if (s->l->set.scrub_rate == 0)
        return false;
    if (s->bytes < s->l->set.scrub_rate / 10)
        return true;
    s->bytes = 0;
    return rest(s->l, deadline_in_ms(PACE_MS)) == ERR_OK;
}

/* The frame is whole; so must be what the group table says of it. */
static enum err scrub_frame(void *ctx, const struct store_frame *f, struct store_pos at) RT_BLOCKS
{
    struct ledger *l = ((struct scrub *)ctx)->l;
    struct ledger_group_row row,
        want = {f->first_seq + f->count - 1, f->group_no, f->ms, at.segment, at.offset, f->new_root};
    if (ledger_column_get(&l->groups, f->group_no - 1, &row) == ERR_OK &&
        memcmp(&row, &want, sizeof row) != 0 &&
        ledger_checkpoint_rotten(l, "groups", (f->group_no - 1) * sizeof row,
                                 "row differs from the frame") != ERR_OK)
        return ERR_CANCELED;
    return scrub_on(ctx, f->payload.n + STORE_FRAME_HEADER) ? ERR_OK : ERR_CANCELED;
}

static void scrub_segment(struct ledger *l, uint32_t segment) RT_BLOCKS
{
    struct scrub s = {l, 0};
    struct store_journal_report rep = {0};
    enum err err = store_journal_scan(l->sink->journal, segment, scrub_frame, &s, &rep);
    if (err != ERR_OK && err != ERR_CORRUPT && err != ERR_CANCELED)
        obs_log(l->deps.log, OBS_WARN, "scrub_failed", OBS_STR("what", "journal"),
                OBS_U64("segment", segment), OBS_ERR(err), OBS_END);
    if (err != ERR_CORRUPT)
        return;
    memcpy(l->bad_file, rep.bad_file, sizeof l->bad_file);
    l->bad_offset = rep.bad_offset;
    snprintf(l->bad_reason, sizeof l->bad_reason, "%s", rep.bad_reason);
    ledger_enter_safe_mode(l, CAUSE_SCRUB, rep.bad_file);
}

static void scrub_index(struct ledger *l) RT_BLOCKS
{
    struct scrub s = {l, 0};
    enum err err = ledger_checkpoint_reread(l, (struct ledger_reread){scrub_on, &s});
    if (err != ERR_OK && err != ERR_CORRUPT && err != ERR_CANCELED)
        obs_log(l->deps.log, OBS_WARN, "scrub_failed", OBS_STR("what", "index"), OBS_ERR(err), OBS_END);
}

/* One sealed segment after the other, then the index, and from the first again. */
static void scrub_next(struct ledger *l, struct keeper *k) RT_BLOCKS
{
    size_t n = 0;
    struct store_segment *v = l->set.scrub_rate == 0 ? NULL : ledger_segments(l, &n);
    if (v == NULL)
        return;
    if (k->next_scrub + 1 < n) {
        scrub_segment(l, v[k->next_scrub++].segment_no);
    } else {
        k->next_scrub = 0;
        scrub_index(l);
    }
    free(v);
}

enum err ledger_segment_keeper_run(struct rt_task *self, void *arg)
{
    struct ledger_service *s = arg;
    struct ledger *l = s->l;
    struct keeper k = {0};
    int64_t look_ms = 0;
    svc_background_cpu();
    svc_background_io(true);
    while (!rt_task_stopping(self) && rest(l, deadline_in_ms(look_ms)) == ERR_OK) {
        rt_task_beat(self);
        look_ms = LOOK_MS;
        if (ledger_safe_cause(l) != CAUSE_NONE || l->set.amnesia)
            continue;
        if (l->set.compress && pack_one(l, &k))
            look_ms = 0; /* there may be more */
        else
            scrub_next(l, &k);
    }
    return ERR_OK;
}
