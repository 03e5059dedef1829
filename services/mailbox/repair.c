/*
 * Reading goes segment by segment, oldest first. Frames lie on multiples of 4096: where none verifies, the bytes up to the next one
 * that does are searched for records, which carry a CRC each and begin on multiples of 8. A segment whose file is gone (stripped)
 * speaks through its index.
 *
 * Writing re-appends every entry with the core's own means, as compaction does, to a log in an empty directory. The shard's entries
 * then point into the new files one after the other; each is read from the old ones before.
 */
#include "services/mailbox/repair.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/mailbox/log.h"
#include "services/mailbox/routing.h"
#include "store/file_replace.h"

enum { ALIGN = 4096 };

struct mailbox_repair {
    struct mailbox_repair_config cfg;
    struct mailbox_repair_report report;
    struct mailbox_rules rules;
    struct mailbox_shard *shard, *empty; /* empty: the one the new log is opened with */
    void *group, *empty_group;
    struct mailbox_log log; /* the new one */
    bool log_open;
    char old_dir[STORE_PATH_MAX], new_dir[STORE_PATH_MAX];
    struct mailbox_now now;
    struct store_layout layout;
    uint8_t *segment; /* the one being read, whole */
    uint32_t in_memory;
    uint64_t next_group;
    bool in_doubt; /* something was lost in a segment that has no index to say what */
};

/* ---- reading ---- */

static enum err read_segment(struct mailbox_repair *r, uint32_t no) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct store_file *f;
    size_t n = 0;
    if (r->in_memory == no)
        return ERR_OK;
    store_journal_segment_path(path, r->old_dir, no);
    enum err e = store_file_open(r->cfg.disk, path, STORE_READ, &f);
    if (e != ERR_OK)
        return e;
    r->in_memory = 0;
    memset(r->segment, 0, r->cfg.segment_bytes); /* a file that was cut off ends in zeros */
    e = store_file_pread(f, r->segment, r->cfg.segment_bytes, 0, &n);
    store_file_close(f);
    if (e == ERR_OK)
        r->in_memory = no;
    return e;
}

static enum err take_record(struct mailbox_repair *r, uint32_t no, uint64_t at,
                            const struct mailbox_rec *rec)
{
    struct mailbox_replay_at where = {no, at, true, r->now.wall_ms};
    enum err e = mailbox_replay_record(r->shard, rec, &where, r->cfg.routing);
    if (e == ERR_CORRUPT) {
        r->report.orphans++;
        return ERR_OK;
    }
    return e;
}

static enum err take_frame(struct mailbox_repair *r, uint32_t no, uint64_t offset,
                           const struct store_frame *f)
{
    size_t pos = 0;
    struct mailbox_rec rec;
    enum err e = ERR_OK;
    while (e == ERR_OK) {
        size_t at = pos;
        enum err more = mailbox_rec_next(f->payload, &pos, &rec);
        if (more != ERR_OK)
            return more == ERR_EMPTY ? ERR_OK : more;
        e = take_record(r, no, offset + STORE_FRAME_HEADER + at, &rec);
    }
    return e;
}

/* Where the next frame that verifies begins, from `at` on; the segment's end when there is none. */
static uint64_t next_frame(const struct mailbox_repair *r, uint64_t at, struct store_frame *out)
{
    for (; at < r->cfg.segment_bytes; at += ALIGN) {
        uint32_t len;
        uint64_t group;
        if (store_frame_peek(&r->layout, r->segment + at, &len, &group) == ERR_OK &&
            at + len <= r->cfg.segment_bytes &&
            store_frame_decode(&r->layout, r->segment + at, len, out) == ERR_OK)
            return at;
    }
    return r->cfg.segment_bytes;
}

/* The header and trailer of a frame hold no record; what else is not zero and in none is lost. */
static enum err search_records(struct mailbox_repair *r, uint32_t no, uint64_t from, uint64_t to)
{
    struct mailbox_rec rec;
    uint64_t at = from, lost = 0;
    enum err e = ERR_OK;
    if (store_is_zero(r->segment + from, to - from))
        return ERR_OK;
    mailbox_salvage_lost(r->shard);
    r->report.bad_frames++;
    while (e == ERR_OK && at + MAILBOX_REC_HEAD <= to) {
        size_t n = 0;
        if (mailbox_rec_next(bytes_of(r->segment + at, to - at), &n, &rec) == ERR_OK) {
            e = take_record(r, no, at, &rec);
            at += n;
        } else {
            lost += store_is_zero(r->segment + at, 8) ? 0 : 8;
            at += 8;
        }
    }
    r->report.bad_bytes += lost;
    return e;
}

static void witness(void *ctx, uint32_t topic_id, uint64_t topic_seq, const struct sha256 *chain)
{
    mailbox_salvage_witness(((struct mailbox_repair *)ctx)->shard, topic_id, topic_seq, chain);
}

/* A sealed segment's index knows which topics were sent to in it, and their newest links: no other has lost anything here. */
static void ask_index(struct mailbox_repair *r, uint32_t no) RT_BLOCKS
{
    struct mailbox_idx_place at = {r->cfg.disk, r->old_dir, r->cfg.instance, r->cfg.shard};
    if (!r->in_doubt && mailbox_idx_topics(&at, no, witness, r) == ERR_OK)
        mailbox_salvage_believe(r->shard);
    else
        r->in_doubt = true;
}

static enum err take_segment(struct mailbox_repair *r, uint32_t no) RT_BLOCKS
{
    uint32_t bad = r->report.bad_frames;
    enum err e = read_segment(r, no);
    r->report.segments++;
    for (uint64_t at = STORE_SEGMENT_HEADER; e == ERR_OK && at < r->cfg.segment_bytes;) {
        struct store_frame f;
        uint64_t good = next_frame(r, at, &f);
        if (good > at)
            e = search_records(r, no, at, good);
        if (e != ERR_OK || good == r->cfg.segment_bytes)
            break;
        if (r->next_group && f.group_no > r->next_group && good == at)
            mailbox_salvage_lost(r->shard); /* whole frames are gone without a trace */
        if (f.group_no > r->next_group && r->next_group)
            r->report.bad_frames += (uint32_t)(f.group_no - r->next_group) - (good > at);
        r->next_group = f.group_no + 1;
        e = take_frame(r, no, good, &f);
        at = good + store_frame_len(&r->layout, f.payload.n);
    }
    if (e == ERR_OK && r->report.bad_frames > bad)
        ask_index(r, no);
    return e;
}

static enum err take_index(struct mailbox_repair *r, uint32_t no) RT_BLOCKS
{
    struct mailbox_idx_place at = {r->cfg.disk, r->old_dir, r->cfg.instance, r->cfg.shard};
    struct mailbox_idx_info x;
    enum err e = mailbox_idx_load(&at, no, r->shard, r->cfg.routing, r->now.wall_ms, &x);
    if (e == ERR_OK) {
        r->report.indexes++;
        r->next_group = x.last_group + 1;
        return ERR_OK;
    }
    if (e != ERR_NOT_FOUND && e != ERR_INTEGRITY && e != ERR_CORRUPT && e != ERR_VERSION)
        return e;
    r->report.bad_indexes++;
    mailbox_salvage_lost(r->shard);
    return ERR_OK;
}

static enum err take_all(struct mailbox_repair *r) RT_BLOCKS
{
    struct mailbox_idx_files f = {0};
    enum err e = mailbox_idx_list(r->cfg.disk, r->old_dir, &f);
    uint32_t first = f.first_idx && (!f.first_seg || f.first_idx < f.first_seg) ? f.first_idx : f.first_seg;
    uint32_t last = f.last_idx > f.last_seg ? f.last_idx : f.last_seg;
    for (uint32_t no = first; e == ERR_OK && no && no <= last; no++) {
        e = take_segment(r, no);
        if (e == ERR_NOT_FOUND) {
            r->report.segments--;
            e = take_index(r, no);
        }
    }
    return e;
}

static void lenient_rules(struct mailbox_rules *rules)
{
    rules->index_max = UINT64_MAX;
    rules->max_topics = UINT32_MAX;
    rules->retention_ready_ms = rules->retention_dlq_ms = (uint64_t)INT64_MAX / 2000;
    rules->policies.n = 1;
    rules->policies.p[0] = (struct mailbox_policy){
        .class_name = "default", .t_replay_ms = MAILBOX_UNLIMITED, .max_attempts = UINT8_MAX};
}

static void tell_nobody(void *ctx, struct str topic)
{
    (void)ctx, (void)topic;
}

static enum err make_shard(struct mailbox_repair *r, struct mailbox_shard **out, void **group)
{
    *out = calloc(1, sizeof **out);
    *group = malloc(MAILBOX_GROUP_MEMORY);
    return *out && *group
               ? mailbox_shard_init(*out, r->cfg.shard, &r->rules, rng_secure_u64(), r->now, *group)
               : ERR_NO_MEMORY;
}

/* What is missing at the end leaves no trace in the files; the last orderly stop may know of it. */
static void miss_the_end(struct mailbox_repair *r) RT_BLOCKS
{
    struct mailbox_last_groups last;
    uint64_t next = r->next_group ? r->next_group : 1;
    if (mailbox_files_last_groups(r->cfg.disk, r->cfg.dir, &last) != ERR_OK ||
        last.group[r->cfg.shard] < next)
        return;
    mailbox_salvage_lost(r->shard);
    r->report.bad_frames += (uint32_t)(last.group[r->cfg.shard] + 1 - next);
}

enum err mailbox_repair_open(const struct mailbox_repair_config *cfg, struct mailbox_repair **out,
                             struct mailbox_repair_report *out_report)
{
    struct mailbox_repair *r = calloc(1, sizeof *r);
    char name[16];
    if (!r)
        return ERR_NO_MEMORY;
    r->cfg = *cfg;
    r->now = (struct mailbox_now){clock_mono_ns(cfg->clock) / 1000, (uint64_t)clock_wall_ms(cfg->clock)};
    r->layout = (struct store_layout){.align = ALIGN,
                                      .segment_bytes = cfg->segment_bytes,
                                      .count_zero_sectors = true,
                                      .crc_at_end = true};
    r->segment = malloc(cfg->segment_bytes);
    snprintf(name, sizeof name, "s%02u", cfg->shard);
    store_path_join(r->old_dir, cfg->dir, name);
    snprintf(name, sizeof name, "s%02u.new", cfg->shard);
    store_path_join(r->new_dir, cfg->dir, name);
    lenient_rules(&r->rules);
    enum err e = r->segment ? make_shard(r, &r->shard, &r->group) : ERR_NO_MEMORY;
    if (e == ERR_OK) {
        mailbox_salvage_begin(r->shard);
        e = take_all(r);
    }
    if (e == ERR_OK)
        miss_the_end(r);
    if (e == ERR_OK) {
        r->report.topics_harmed = mailbox_salvage_harmed(r->shard, r->report.bad_frames,
                                                         cfg->tell ? cfg->tell : tell_nobody, cfg->ctx);
        e = mailbox_replay_end(r->shard, r->now);
    }
    if (e != ERR_OK) {
        mailbox_repair_close(r);
        return e;
    }
    const uint32_t *count = r->shard->count;
    r->report.topics = r->shard->topics.count;
    r->report.messages = (uint64_t)count[MAILBOX_READY] + count[MAILBOX_DELAYED] + count[MAILBOX_DLQ];
    r->report.keys = count[MAILBOX_DONE];
    *out_report = r->report;
    *out = r;
    return ERR_OK;
}

/* ---- writing ---- */

static enum err drop_name(void *ctx, const char *name) RT_BLOCKS
{
    struct mailbox_repair *r = ctx;
    char path[STORE_PATH_MAX];
    if (name[0] == '.')
        return ERR_OK;
    store_path_join(path, r->new_dir, name);
    return store_disk_unlink(r->cfg.disk, path);
}

/* What an interrupted repair left there goes. */
static enum err open_new(struct mailbox_repair *r) RT_BLOCKS
{
    struct store_journal_report report;
    enum err e = store_disk_mkdir(r->cfg.disk, r->new_dir);
    if (e == ERR_EXISTS)
        e = store_disk_list(r->cfg.disk, r->new_dir, drop_name, r);
    if (e == ERR_OK)
        e = make_shard(r, &r->empty, &r->empty_group);
    if (e != ERR_OK)
        return e;
    r->log_open = true;
    e = mailbox_log_open(&r->log, r->empty,
                         &(struct mailbox_log_config){.disk = r->cfg.disk,
                                                      .dir = r->new_dir,
                                                      .instance = r->cfg.instance,
                                                      .segment_bytes = r->cfg.segment_bytes,
                                                      .clock = r->cfg.clock,
                                                      .now = r->now},
                         &report);
    if (e != ERR_OK)
        return e;
    r->log.shard = r->shard;
    mailbox_shard_scope(r->shard, 0, 1);
    for (uint32_t k = 1; k < r->shard->topics.slots; k++)
        if (r->shard->topics.slot[k])
            r->shard->topics.slot[k]->scope = UINT64_MAX; /* named nowhere yet */
    return ERR_OK;
}

static enum err commit(struct mailbox_repair *r) RT_BLOCKS
{
    enum err e = ERR_OK;
    if (store_journal_wants_spare(r->log.journal))
        e = store_journal_prepare_spare(r->log.journal);
    return e == ERR_OK ? mailbox_log_commit(&r->log, r->now) : e;
}

/* The body as it lies in the old files; ERR_INTEGRITY when it does not verify. */
static enum err body_of(struct mailbox_repair *r, const struct mailbox_entry *e,
                        struct mailbox_rec *out) RT_BLOCKS
{
    struct sha256 h;
    size_t at = 0;
    uint64_t from = (uint64_t)e->offset8 * 8;
    enum err err = read_segment(r, e->segment);
    if (err == ERR_NOT_FOUND && e->state == MAILBOX_DONE) { /* its index still knows half of the hash */
        struct mailbox_idx_place place = {r->cfg.disk, r->old_dir, r->cfg.instance, r->cfg.shard};
        err = mailbox_idx_find(&place, e, out);
        return err == ERR_OK || err == ERR_NO_MEMORY ? err : ERR_INTEGRITY;
    }
    if (err != ERR_OK)
        return err == ERR_NOT_FOUND ? ERR_INTEGRITY : err;
    if (from >= r->cfg.segment_bytes ||
        mailbox_rec_next(bytes_of(r->segment + from, r->cfg.segment_bytes - from), &at, out) != ERR_OK)
        return ERR_INTEGRITY;
    if (out->type == MAILBOX_REC_DEDUP)
        return ERR_OK;
    if (out->type != MAILBOX_REC_ENQ && out->type != MAILBOX_REC_MOVE)
        return ERR_INTEGRITY;
    sha256_of(out->enq.payload.p, out->enq.payload.n, &h);
    return sha256_eq(&h, &out->enq.payload_hash) ? ERR_OK : ERR_INTEGRITY;
}

static enum err write_entries(struct mailbox_repair *r) RT_BLOCKS
{
    struct mailbox_shard *s = r->shard;
    enum err e = ERR_OK;
    for (uint32_t i = 1; e == ERR_OK && i < s->slabs.used; i++) {
        struct mailbox_rec rec;
        if (mailbox_shard_entry(s, i)->state == MAILBOX_FREE)
            continue;
        if (mailbox_shard_group_full(s))
            e = commit(r);
        if (e == ERR_OK)
            e = body_of(r, mailbox_shard_entry(s, i), &rec);
        if (e == ERR_INTEGRITY) {
            r->report.bodies_lost++;
            e = ERR_OK;
            continue;
        }
        if (e == ERR_OK)
            e = mailbox_shard_reappend(s, r->now, i, &rec);
    }
    return e;
}

static enum err write_topics(struct mailbox_repair *r) RT_BLOCKS
{
    struct mailbox_shard *s = r->shard;
    enum err e = ERR_OK;
    for (uint32_t k = 1; e == ERR_OK && k < s->topics.slots; k++) {
        if (!s->topics.slot[k])
            continue;
        if (mailbox_shard_group_full(s))
            e = commit(r);
        if (e == ERR_OK)
            mailbox_shard_reappend_topic(s, s->topics.slot[k], UINT32_MAX);
    }
    return e == ERR_OK ? commit(r) : e;
}

/* What CLEAN says of the old journal goes first. A crash in between leaves the old files, or the new ones, under the right name. */
static enum err put_in_place(struct mailbox_repair *r) RT_BLOCKS
{
    char name[64];
    snprintf(name, sizeof name, "s%02u.damaged-%llu", r->cfg.shard, (unsigned long long)r->now.wall_ms);
    store_path_join(r->report.old_dir, r->cfg.dir, name);
    snprintf(r->report.new_dir, sizeof r->report.new_dir, "%s", r->old_dir);
    enum err e = mailbox_files_forget_last_group(r->cfg.disk, r->cfg.dir, r->cfg.shard);
    if (e == ERR_OK)
        e = store_disk_rename(r->cfg.disk, r->old_dir, r->report.old_dir);
    if (e == ERR_OK)
        e = store_disk_rename(r->cfg.disk, r->new_dir, r->old_dir);
    return e == ERR_OK ? store_disk_sync_dir(r->cfg.disk, r->cfg.dir) : e;
}

enum err mailbox_repair_write(struct mailbox_repair *r, struct mailbox_repair_report *out_report)
{
    enum err e = open_new(r);
    if (e == ERR_OK)
        e = write_topics(r);
    if (e == ERR_OK)
        e = write_entries(r);
    if (e == ERR_OK)
        e = commit(r);
    if (r->log_open)
        mailbox_log_close(&r->log);
    r->log_open = false;
    if (e == ERR_OK)
        e = put_in_place(r);
    if (e == ERR_OK)
        *out_report = r->report;
    return e;
}

static void end_shard(struct mailbox_shard *s, void *group)
{
    if (s)
        mailbox_shard_fini(s);
    free(s);
    free(group);
}

void mailbox_repair_close(struct mailbox_repair *r)
{
    if (!r)
        return;
    if (r->log_open)
        mailbox_log_close(&r->log);
    end_shard(r->shard, r->group);
    end_shard(r->empty, r->empty_group);
    free(r->segment);
    free(r);
}
