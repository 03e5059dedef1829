#include "services/mailbox/log.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rt/task.h"
#include "services/mailbox/idx.h"
#include "store/file_replace.h"

static void count_bad(struct mailbox_log *g, size_t reason)
{
    if (g->integrity)
        obs_counter_inc(obs_counter_nth(g->integrity, reason));
}

/* ---- reading ---- */

static enum err read_journal(void *ctx, uint32_t segment, uint64_t offset, uint8_t *into,
                             size_t n) RT_BLOCKS
{
    return store_journal_pread(ctx, (struct store_pos){segment, (uint32_t)offset}, into, n);
}

static enum err read_bytes(struct mailbox_log *g, uint32_t segment, uint64_t offset, uint8_t *into,
                           size_t n) RT_BLOCKS
{
    if (segment == MAILBOX_SEGMENT_PENDING) { /* still in the group being built */
        const struct mailbox_rec_w *w = &g->shard->group;
        CHECK(offset < w->n);
        size_t have = w->n - offset;
        memcpy(into, w->p + offset, have < n ? have : n);
        return ERR_OK;
    }
    if (mailbox_tail_get(&g->tail, segment, offset, into, n))
        return ERR_OK;
    obs_counter_inc(g->cold_reads);
    uint64_t end = g->segment_bytes;
    if (offset >= end)
        return ERR_CORRUPT;
    size_t most = end - offset < n ? (size_t)(end - offset) : n;
    struct mailbox_blocks_source from = {read_journal, g->journal};
    return mailbox_blocks_read(&g->blocks, &from, segment, offset,
                               segment == g->active_segment ? g->active_from : end, into, most);
}

static bool body_is_true(struct mailbox_log *g, const struct mailbox_rec *r)
{
    const struct mailbox_rec_enq *q = &r->enq;
    struct mailbox_topic *t = mailbox_topics_by_id(&g->shard->topics, r->topic_id);
    struct sha256 h;
    sha256_of(q->payload.p, q->payload.n, &h);
    if (!sha256_eq(&h, &q->payload_hash)) {
        count_bad(g, 0);
        return false;
    }
    if (!t)
        return true; /* read by another thread than the worker's, or of a topic that is gone: the CRC has to do */
    struct mailbox_link link = {.prev = q->chain_prev,
                                .payload_hash = q->payload_hash,
                                .topic = mailbox_topic_name(t),
                                .idem_key = q->idem_key,
                                .msg_id = q->msg_id,
                                .topic_seq = q->topic_seq,
                                .ts_ms = q->ts_ms,
                                .not_before_ms = q->not_before_ms};
    sha256_of(q->attrs.p, q->attrs.n, &link.attrs_hash);
    mailbox_chain_next(&link, &h);
    if (!sha256_eq(&h, &q->chain)) {
        count_bad(g, 1);
        return false;
    }
    return true;
}

enum err mailbox_log_read(struct mailbox_log *g, uint32_t segment, uint32_t offset8, uint32_t length64,
                          uint8_t *into, struct mailbox_rec *out)
{
    size_t at = 0;
    enum err e = read_bytes(g, segment, (uint64_t)offset8 * 8, into, (size_t)length64 * 64);
    if (e != ERR_OK)
        return e == ERR_CORRUPT ? ERR_INTEGRITY : e;
    struct bytes b = bytes_of(into, (size_t)length64 * 64);
    /* CRCs of the group being built are not there yet; everything else is checked against its CRC. */
    e = segment == MAILBOX_SEGMENT_PENDING ? mailbox_rec_next_trusted(b, &at, out)
                                           : mailbox_rec_next(b, &at, out);
    if (e != ERR_OK) {
        count_bad(g, 2);
        return ERR_INTEGRITY;
    }
    if (out->type == MAILBOX_REC_DEDUP)
        return ERR_OK;
    if ((out->type != MAILBOX_REC_ENQ && out->type != MAILBOX_REC_MOVE) || !body_is_true(g, out))
        return ERR_INTEGRITY;
    return ERR_OK;
}

enum err mailbox_log_read_key(struct mailbox_log *g, const struct mailbox_entry *e, struct mailbox_rec *out)
{
    struct mailbox_idx_place at = mailbox_log_place(g);
    return mailbox_idx_find(&at, e, out);
}

/* ---- opening ---- */

void mailbox_log_shard_dir(char out[STORE_PATH_MAX], const char *dir, uint16_t shard)
{
    char name[8];
    snprintf(name, sizeof name, "s%02u", shard);
    store_path_join(out, dir, name);
}

static enum err replay_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct mailbox_log *g = ctx;
    struct mailbox_log_tail *r = g->replaying;
    if (rt_task_current())
        rt_task_beat(rt_task_current()); /* a shard that comes is replayed by its worker */
    struct sha256 root;
    uint32_t enqs;
    size_t pos = 0;
    for (;;) {
        struct mailbox_rec rec;
        struct mailbox_replay_at where = {at.segment, at.offset + STORE_FRAME_HEADER + pos, true,
                                          g->opened.wall_ms};
        enum err e =
            mailbox_rec_next_trusted(f->payload, &pos, &rec); /* the frame's CRC covers the bytes */
        if (e == ERR_EMPTY)
            break;
        if (e == ERR_OK)
            e = mailbox_replay_record(g->shard, &rec, &where, g->routing);
        if (e != ERR_OK)
            return e;
    }
    if (g->next_group == 1 && f->group_no > 1)
        r->root = f->prev_root; /* older segments were dropped: the journal vouches for where it begins */
    mailbox_group_root(&r->root, f->group_no, f->payload, &root, &enqs);
    if (!sha256_eq(&root, &f->new_root) || enqs != f->count2)
        return ERR_CORRUPT;
    *r = (struct mailbox_log_tail){at, f->prev_root, root};
    g->next_group = f->group_no + 1;
    g->next_seq = f->first_seq + f->count;
    mailbox_tail_put(&g->tail, at.segment, at.offset + STORE_FRAME_HEADER, f->payload.p, f->payload.n);
    return ERR_OK;
}

/*
 * Called whenever the group is empty. A group that surely lands in the active segment shares its scope with the groups before it;
 * one that may not gets a scope of its own, so that whatever segment it begins names its topics.
 */
static void set_scope(struct mailbox_log *g)
{
    bool stays = g->active_segment != 0 && store_journal_room(g->journal).active >= MAILBOX_FRAME_MAX;
    mailbox_shard_scope(g->shard, g->active_segment, stays ? 0 : (uint32_t)g->next_group << 1 | 1);
}

/* How many messages the index files speak of, less those they settle: what the tables will have to hold. */
static enum err expect_messages(struct mailbox_log *g, const struct mailbox_idx_place *at, uint32_t first,
                                uint32_t end) RT_BLOCKS
{
    uint64_t items = 0, settled = 0;
    struct mailbox_idx_info x;
    for (uint32_t no = first; no < end && mailbox_idx_peek(at, no, &x) == ERR_OK; no++) {
        items += x.items;
        settled += x.settled;
    }
    return items > settled ? mailbox_replay_expect(g->shard, items - settled) : ERR_OK;
}

static enum err damaged(struct store_journal_report *r, uint32_t no, const char *suffix, const char *why)
{
    r->damaged = true;
    snprintf(r->bad_file, sizeof r->bad_file, "%08u.%s", no, suffix);
    r->bad_offset = 0;
    r->bad_reason = why;
    return ERR_CORRUPT;
}

/*
 * Applies index files from the oldest on, up to the first that is missing or bad; the journal is replayed from there. Only a
 * stripped segment has nothing but its index: a bad one is damage then. An index is written when a later segment has begun: none can be
 * the last. A tool that verifies (`trust_idx` false) reads every
 * segment there is.
 */
static enum err load_idx(struct mailbox_log *g, const struct mailbox_log_config *cfg,
                         struct mailbox_log_tail *r, struct store_resume *resume,
                         struct store_journal_report *report) RT_BLOCKS
{
    struct mailbox_idx_place at = {cfg->disk, cfg->dir, cfg->instance, g->shard->no};
    struct mailbox_idx_files f;
    enum err e = mailbox_idx_list(cfg->disk, cfg->dir, &f);
    if (e == ERR_OK && f.last_idx >= f.last_seg && f.last_idx)
        return damaged(report, f.last_seg + 1, "seg", "an index says that there were later segments");
    if (e != ERR_OK || !f.first_idx || f.first_idx > f.first_seg)
        return e;
    uint32_t end = cfg->trust_idx ? f.last_seg : f.first_seg, no;
    e = expect_messages(g, &at, f.first_idx, end);
    for (no = f.first_idx; e == ERR_OK && no < end; no++) {
        struct mailbox_idx_info x;
        e = mailbox_idx_load(&at, no, g->shard, cfg->routing, g->opened.wall_ms, &x);
        bool joins = e == ERR_OK &&
                     (no == f.first_idx || (x.first_group == g->next_group && x.first_seq == g->next_seq &&
                                            sha256_eq(&x.prev_root, &r->root)));
        if (e == ERR_OK && !joins)
            e = ERR_CORRUPT;
        if (e != ERR_OK)
            break;
        g->next_group = x.last_group + 1;
        g->next_seq = x.next_seq;
        r->root = x.root;
    }
    bool usable_segment = no >= f.first_seg;
    if (e == ERR_INTEGRITY || e == ERR_NOT_FOUND || e == ERR_VERSION) {
        if (e == ERR_INTEGRITY)
            count_bad(g, 3);
        e = usable_segment ? ERR_OK : ERR_CORRUPT;
    }
    if (e == ERR_CORRUPT)
        return damaged(report, no, "idx", "the index of a segment that is gone cannot be used");
    if (e == ERR_OK && no > f.first_idx) {
        g->indexed_to = no - 1;
        *resume = (struct store_resume){{no, STORE_SEGMENT_HEADER}, g->next_group, g->next_seq, r->root};
    }
    return e;
}

/* A copy that begins in the middle of a history begins with segment 2: the first one is where a history begins. */
static enum err begin_where_told(const struct mailbox_log_config *cfg,
                                 struct store_journal_config *jc) RT_BLOCKS
{
    struct mailbox_idx_files f;
    if (cfg->begins.next_group <= 1)
        return ERR_OK;
    enum err e = mailbox_idx_list(cfg->disk, cfg->dir, &f);
    if (e == ERR_OK && !f.first_seg && !f.first_idx) {
        jc->resume = cfg->begins;
        jc->first_segment = 2;
    }
    return e;
}

enum err mailbox_log_open(struct mailbox_log *g, struct mailbox_shard *shard,
                          const struct mailbox_log_config *cfg, struct store_journal_report *out_report)
{
    *g = (struct mailbox_log){.shard = shard,
                              .next_group = 1,
                              .next_seq = 1,
                              .segment_bytes = cfg->segment_bytes,
                              .routing = cfg->routing,
                              .opened = cfg->now,
                              .disk = cfg->disk,
                              .build_idx = cfg->build_idx && cfg->segment_bytes <= MAILBOX_COLLECT_MAX,
                              .cold_reads = cfg->cold_reads,
                              .integrity = cfg->integrity};
    struct store_journal_config jc = {.disk = cfg->disk,
                                      .dir = cfg->dir,
                                      .layout = {.align = 4096,
                                                 .segment_bytes = cfg->segment_bytes,
                                                 .count_zero_sectors = true,
                                                 .crc_at_end = true},
                                      .epoch = cfg->read_only ? UINT64_MAX
                                               : cfg->epoch   ? cfg->epoch
                                                              : 1,
                                      .unflushed = cfg->unflushed,
                                      .frame_bytes_max = MAILBOX_FRAME_MAX,
                                      .direct = cfg->direct,
                                      .read_only = cfg->read_only,
                                      .accept_damage = true,
                                      .spares_later = true,
                                      .clock = cfg->clock,
                                      .flush_seconds = cfg->flush_seconds,
                                      .bytes_total = cfg->bytes_total,
                                      .flush_fail_total = cfg->flush_fail_total,
                                      .torn_bytes_total = cfg->torn_bytes_total};
    memcpy(jc.stream_id, cfg->instance, 14);
    be16_put(jc.stream_id + 14, shard->no);
    enum err e = mailbox_tail_init(&g->tail, cfg->tail_bytes);
    if (e != ERR_OK)
        return e;
    CHECK(strlen(cfg->dir) < sizeof g->dir);
    strcpy(g->dir, cfg->dir);
    memcpy(g->instance, cfg->instance, 16);
    struct mailbox_log_tail r = {0};
    g->replaying = &r;
    struct store_journal_report idx_report = {0};
    mailbox_replay_begin(shard);
    e = load_idx(g, cfg, &r, &jc.resume, &idx_report);
    if (e == ERR_OK)
        e = begin_where_told(cfg, &jc);
    if (e != ERR_OK && e != ERR_CORRUPT)
        return e;
    /* Without what the bad index said the frames would contradict it: they are only checked. */
    e = store_sink_local(&jc, idx_report.damaged ? NULL : replay_frame, g, out_report, &g->sink);
    if (e != ERR_OK)
        return e;
    g->journal = g->sink->journal;
    if (idx_report.damaged)
        *out_report = idx_report;
    if (cfg->catch_up && !out_report->damaged)
        e = cfg->catch_up(cfg->catch_up_ctx, g);
    g->replaying = NULL;
    if (e != ERR_OK)
        return e;
    struct store_head head;
    store_journal_head(g->journal, &head);
    g->root = r.root;
    g->active_segment = head.end.segment; /* begun, perhaps, and without a frame: the power was cut */
    g->active_from = r.at.segment == head.end.segment ? r.at.offset : 0;
    e = mailbox_replay_end(shard, cfg->now);
    if (out_report->damaged)
        mailbox_shard_failed(shard);
    set_scope(g);
    return e;
}

void mailbox_log_close(struct mailbox_log *g)
{
    store_sink_close(g->sink);
    mailbox_idx_builder_destroy(g->builder);
    mailbox_idx_builder_destroy(atomic_load(&g->built));
    mailbox_tail_fini(&g->tail);
    mailbox_blocks_fini(&g->blocks);
    *g = (struct mailbox_log){0};
}

enum err mailbox_log_follow(struct mailbox_log *g, const struct store_frame *f)
{
    struct store_head head;
    struct store_pos at;
    struct bytes payload = f->payload;
    store_journal_head(g->journal, &head);
    if (f->epoch < head.last_epoch || f->group_no != head.last_group + 1 || f->first_seq != head.next_seq ||
        !sha256_eq(&f->prev_root, &head.root))
        return ERR_CORRUPT;
    if (payload.n > MAILBOX_GROUP_MEMORY)
        return ERR_CORRUPT;
    store_journal_set_epoch(g->journal, f->epoch);
    enum err e = store_sink_append(g->sink, f, &payload, 1, &at);
    if (e == ERR_NO_SPACE) {
        e = store_journal_adopt_spares(g->journal); /* nobody else does it yet */
        if (e == ERR_OK && store_journal_wants_spare(g->journal))
            e = store_journal_prepare_spare(g->journal);
        if (e == ERR_OK)
            e = store_sink_append(g->sink, f, &payload, 1, &at);
    }
    return e == ERR_OK ? replay_frame(g, f, at) : e;
}

enum err mailbox_log_tee(struct mailbox_log *g, struct store_sink_replica_config *cfg, uint64_t epoch)
{
    struct store_sink *tee;
    cfg->local = g->sink;
    enum err e = store_sink_replica(cfg, &tee);
    if (e != ERR_OK) {
        store_pg_destroy(cfg->pg);
        return e;
    }
    g->sink = tee;
    store_sink_replica_epoch(tee, epoch);
    return ERR_OK;
}

bool mailbox_log_has_room(const struct mailbox_log *g)
{
    return store_journal_fits(g->journal, MAILBOX_GROUP_MEMORY);
}

static const struct mailbox_digest *digest_of(void *ctx, uint32_t k)
{
    const struct mailbox_shard *s = ctx;
    CHECK(
        k <
        s->pending_n); /* every message of a group is pending until the group is written, in the order of records */
    return &s->pending[k].digest;
}

/* The index of the active segment grows with it; a sealed one is left for the rebalancer. Failing only means to read it later. */
static void collect(struct mailbox_log *g, const struct store_frame *f, struct store_pos pos)
{
    if (!g->build_idx)
        return;
    if (pos.segment != g->active_segment) {
        if (g->builder)
            mailbox_idx_builder_destroy(atomic_exchange(&g->built, g->builder));
        g->builder = mailbox_idx_builder_create(pos.segment);
    }
    if (g->builder && mailbox_idx_builder_add(g->builder, f, (uint64_t)pos.offset + STORE_FRAME_HEADER,
                                              digest_of, g->shard) != ERR_OK) {
        mailbox_idx_builder_destroy(g->builder);
        g->builder = NULL;
    }
}

enum err mailbox_log_commit(struct mailbox_log *g, struct mailbox_now now)
{
    struct mailbox_shard *s = g->shard;
    struct store_pos pos;
    struct sha256 root;
    uint32_t enqs;
    if (s->group.n == 0)
        return ERR_OK;
    if (!store_journal_fits(g->journal, s->group.n))
        return ERR_NO_SPACE;
    mailbox_rec_seal(&s->group);
    struct bytes payload = bytes_of(s->group.p, s->group.n);
    mailbox_group_root(&g->root, g->next_group, payload, &root, &enqs);
    struct store_frame f = {.group_no = g->next_group,
                            .first_seq = g->next_seq,
                            .count = s->group.records,
                            .count2 = enqs,
                            .ms = now.wall_ms,
                            .prev_root = g->root,
                            .new_root = root};
    enum err e = store_sink_append(g->sink, &f, &payload, 1, &pos);
    if (e == ERR_NO_SPACE)
        return e;
    if (e != ERR_OK) {
        mailbox_shard_failed(s);
        return e == ERR_FENCED ? e : ERR_SAFE_MODE;
    }
    f.payload = payload;
    collect(g, &f, pos);
    g->root = root;
    g->next_group++;
    g->next_seq += s->group.records;
    g->active_segment = pos.segment;
    g->active_from = pos.offset;
    mailbox_tail_put(&g->tail, pos.segment, (uint64_t)pos.offset + STORE_FRAME_HEADER, payload.p,
                     payload.n);
    mailbox_shard_committed(s, pos.segment, (uint64_t)pos.offset + STORE_FRAME_HEADER);
    set_scope(g);
    return ERR_OK;
}
