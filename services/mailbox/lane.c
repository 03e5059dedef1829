/*
 * A lane: one shard, its journal, and the newest bytes of it.
 *
 * Opening replays the journal through the core; what does not fit the rules is corruption, and the lane comes up read-only.
 * Committing makes one frame of the group: seal the records, compute the root, one write, one flush; then the entries learn
 * where their bodies are. A failed write closes the lane for ever (until a restart reads what is really there).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/mailbox/mailbox.h"
#include "store/file_replace.h"

/* ---- tail cache ---- */

static enum err tail_init(struct mailbox_tail *t, size_t cap)
{
    *t = (struct mailbox_tail){.cap = cap, .parts_cap = 4096};
    if (cap == 0)
        return ERR_OK;
    t->ring = malloc(cap);
    t->part = calloc(t->parts_cap, sizeof *t->part);
    return t->ring && t->part ? ERR_OK : ERR_NO_MEMORY;
}

static void tail_fini(struct mailbox_tail *t)
{
    free(t->ring);
    free(t->part);
}

static bool overlaps(size_t a, size_t an, size_t b, size_t bn)
{
    return a < b + bn && b < a + an;
}

void mailbox_tail_put(struct mailbox_tail *t, uint32_t segment, uint64_t offset, const uint8_t *p, size_t n)
{
    if (n > t->cap)
        return;
    size_t at = t->cap - t->at < n ? 0 : t->at;
    while (t->n > 0) { /* oldest first: what stands in the way, or has no descriptor left */
        struct mailbox_tail_part *old = &t->part[t->first];
        if (t->n < t->parts_cap && !overlaps(old->at, old->n, at, n) && !(at < t->at && old->at >= t->at))
            break;
        t->first = (t->first + 1) % t->parts_cap;
        t->n--;
    }
    memcpy(t->ring + at, p, n);
    t->part[(t->first + t->n) % t->parts_cap] = (struct mailbox_tail_part){segment, offset, n, at};
    t->n++;
    t->at = at + n;
}

bool mailbox_tail_get(const struct mailbox_tail *t, uint32_t segment, uint64_t offset, uint8_t *into,
                      size_t n)
{
    uint32_t low = 0, high = t->n; /* parts are in journal order */
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        const struct mailbox_tail_part *p = &t->part[(t->first + mid) % t->parts_cap];
        if (p->segment < segment || (p->segment == segment && p->offset + p->n <= offset))
            low = mid + 1;
        else
            high = mid;
    }
    if (low == t->n)
        return false;
    const struct mailbox_tail_part *p = &t->part[(t->first + low) % t->parts_cap];
    if (p->segment != segment || offset < p->offset || offset >= p->offset + p->n)
        return false;
    size_t have = (size_t)(p->offset + p->n - offset);
    memcpy(into, t->ring + p->at + (offset - p->offset), have < n ? have : n);
    if (have < n)
        memset(into + have, 0, n - have);
    return true;
}

/* ---- reading ---- */

static enum err read_bytes(struct mailbox_lane *l, uint32_t segment, uint64_t offset, uint8_t *into,
                           size_t n) RT_BLOCKS
{
    if (segment == MAILBOX_SEGMENT_PENDING) { /* still in the group being built */
        const struct mailbox_rec_w *g = &l->shard.group;
        CHECK(offset < g->n);
        size_t have = g->n - offset;
        memcpy(into, g->p + offset, have < n ? have : n);
        return ERR_OK;
    }
    if (mailbox_tail_get(&l->tail, segment, offset, into, n))
        return ERR_OK;
    obs_counter_inc(obs_counter(l->mb->m[MAILBOX_M_cold_reads]));
    uint64_t end = mailbox_config(l->mb)->segment_bytes;
    size_t most = end - offset < n ? (size_t)(end - offset) : n;
    enum err e = store_journal_pread(l->journal, (struct store_pos){segment, (uint32_t)offset}, into, most);
    if (e != ERR_RANGE)
        return e;
    e = store_journal_pread(l->journal, (struct store_pos){segment, (uint32_t)offset}, into,
                            MAILBOX_REC_HEAD);
    if (e != ERR_OK || le32_get(into) > most)
        return e == ERR_OK ? ERR_CORRUPT : e;
    return store_journal_pread(l->journal, (struct store_pos){segment, (uint32_t)offset}, into,
                               le32_get(into));
}

static bool body_is_true(struct mailbox_lane *l, const struct mailbox_rec *r)
{
    const struct mailbox_rec_enq *q = &r->enq;
    struct mailbox_topic *t = mailbox_topics_by_id(&l->shard.topics, r->topic_id);
    struct sha256 h;
    sha256_of(q->payload.p, q->payload.n, &h);
    if (!sha256_eq(&h, &q->payload_hash)) {
        obs_counter_inc(obs_counter_nth(l->mb->m[MAILBOX_M_integrity], 0));
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
        obs_counter_inc(obs_counter_nth(l->mb->m[MAILBOX_M_integrity], 1));
        return false;
    }
    return true;
}

enum err mailbox_lane_read(struct mailbox_lane *l, uint32_t segment, uint32_t offset8, uint32_t length64,
                           uint8_t *into, struct mailbox_rec *out)
{
    size_t at = 0;
    enum err e = read_bytes(l, segment, (uint64_t)offset8 * 8, into, (size_t)length64 * 64);
    if (e != ERR_OK)
        return e == ERR_CORRUPT ? ERR_INTEGRITY : e;
    struct bytes b = bytes_of(into, (size_t)length64 * 64);
    /* CRCs of the group being built are not there yet; everything else is checked against its CRC. */
    e = segment == MAILBOX_SEGMENT_PENDING ? mailbox_rec_next_trusted(b, &at, out)
                                           : mailbox_rec_next(b, &at, out);
    if (e != ERR_OK) {
        obs_counter_inc(obs_counter_nth(l->mb->m[MAILBOX_M_integrity], 2));
        return ERR_INTEGRITY;
    }
    if (out->type == MAILBOX_REC_DEDUP)
        return ERR_OK;
    if ((out->type != MAILBOX_REC_ENQ && out->type != MAILBOX_REC_MOVE) || !body_is_true(l, out))
        return ERR_INTEGRITY;
    return ERR_OK;
}

/* ---- opening ---- */

struct replay {
    struct mailbox_lane *l;
    struct mailbox_now now;
    struct sha256 root;
};

static enum err replay_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct replay *r = ctx;
    struct mailbox_lane *l = r->l;
    struct sha256 root;
    uint32_t enqs;
    size_t pos = 0;
    for (;;) {
        struct mailbox_rec rec;
        struct mailbox_replay_at where = {at.segment, at.offset + STORE_FRAME_HEADER + pos, true,
                                          r->now.wall_ms};
        enum err e =
            mailbox_rec_next_trusted(f->payload, &pos, &rec); /* the frame's CRC covers the bytes */
        if (e == ERR_EMPTY)
            break;
        if (e == ERR_OK)
            e = mailbox_replay_record(&l->shard, &rec, &where, l->mb->routing);
        if (e != ERR_OK)
            return e;
    }
    mailbox_group_root(&r->root, f->group_no, f->payload, &root, &enqs);
    if (!sha256_eq(&root, &f->new_root) || enqs != f->count2)
        return ERR_CORRUPT;
    r->root = root;
    l->next_group = f->group_no + 1;
    l->next_seq = f->first_seq + f->count;
    mailbox_tail_put(&l->tail, at.segment, at.offset + STORE_FRAME_HEADER, f->payload.p, f->payload.n);
    return ERR_OK;
}

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, struct mailbox_recv, deadline_node)->deadline_us <
           heap_entry(b, struct mailbox_recv, deadline_node)->deadline_us;
}

static enum err open_memory(struct mailbox_lane *l)
{
    struct mailbox *mb = l->mb;
    const struct mailbox_config *cfg = mailbox_config(mb);
    const struct rt_topology *t = svc_topology(mb->svc);
    enum err e = tail_init(&l->tail, cfg->tail_cache);
    if (e == ERR_OK)
        e = mailbox_fair_init(&l->fair, (uint32_t)cfg->shard_capacity + MAILBOX_BATCH_JOBS,
                              (uint32_t)cfg->fair_quantum);
    if (e == ERR_OK)
        e = heap_init(&l->parked, 0, cfg->max_waiters + 1, sooner);
    l->group_memory = malloc(MAILBOX_GROUP_MEMORY);
    l->read_buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    l->work =
        rt_chan_create(&(struct rt_chan_spec){.name = "work_tx",
                                              .label = l->label,
                                              .capacity = rt_topology_find_queue(t, "work_tx")->capacity,
                                              .policy = RT_REJECT});
    l->requeue =
        rt_chan_create(&(struct rt_chan_spec){.name = "requeue_tx",
                                              .label = l->label,
                                              .capacity = rt_topology_find_queue(t, "requeue_tx")->capacity,
                                              .policy = RT_REJECT});
    if (e == ERR_OK && (!l->group_memory || !l->read_buffer || !l->work || !l->requeue))
        e = ERR_NO_MEMORY;
    return e;
}

static enum err open_journal(struct mailbox_lane *l, struct replay *r,
                             struct store_journal_report *report) RT_BLOCKS
{
    struct mailbox *mb = l->mb;
    const struct mailbox_config *cfg = mailbox_config(mb);
    struct store_journal_config jc = {
        .disk = svc_disk(mb->svc),
        .dir = l->dir,
        .layout = {.align = 4096,
                   .segment_bytes = (uint32_t)cfg->segment_bytes,
                   .count_zero_sectors = true,
                   .crc_at_end = true},
        .epoch = 1,
        .frame_bytes_max =
            (MAILBOX_GROUP_MEMORY + STORE_FRAME_HEADER + STORE_FRAME_TRAILER + 4095) / 4096 * 4096,
        .direct = true,
        .accept_damage = true,
        .clock = mb->clock,
        .flush_seconds = obs_hist(mb->m[MAILBOX_M_flush]),
        .bytes_total = obs_counter(mb->m[MAILBOX_M_journal_bytes]),
        .flush_fail_total = obs_counter(mb->m[MAILBOX_M_flush_fail]),
        .torn_bytes_total = obs_counter(mb->m[MAILBOX_M_torn_bytes])};
    memcpy(jc.stream_id, mb->instance, 14);
    be16_put(jc.stream_id + 14, l->no);
    enum err e = store_disk_mkdirs(svc_disk(mb->svc), l->dir);
    if (e != ERR_OK && e != ERR_EXISTS)
        return e;
    return store_journal_open(&jc, replay_frame, r, report, &l->journal);
}

enum err mailbox_lane_open(struct mailbox *mb, struct mailbox_lane *l, uint16_t no)
{
    struct store_journal_report report = {0};
    char why[200];
    memset(l, 0, sizeof *l);
    l->mb = mb;
    l->no = no;
    l->next_group = l->next_seq = 1;
    l->held_end = &l->held;
    l->operators_end = &l->operators;
    snprintf(l->label, sizeof l->label, "%u", no);
    snprintf(l->dir, sizeof l->dir, "%.400s/s%02u", svc_data_dir(mb->svc), no);
    atomic_store(&l->next_due_us, INT64_MAX);
    enum err e = mailbox_rules_make(mailbox_config(mb), mb->shards, &l->rules, why);
    if (e == ERR_OK)
        e = open_memory(l);
    struct replay r = {.l = l, .now = mailbox_now(mb)};
    if (e == ERR_OK)
        e = mailbox_shard_init(&l->shard, no, &l->rules, rng_secure_u64(), r.now, l->group_memory);
    if (e != ERR_OK)
        return e;
    mailbox_replay_begin(&l->shard);
    e = open_journal(l, &r, &report);
    if (e != ERR_OK)
        return e;
    if (report.torn_bytes)
        obs_log(svc_log(mb->svc), OBS_WARN, "journal.torn_tail", OBS_U64("shard", no),
                OBS_U64("bytes", report.torn_bytes), OBS_END);
    e = mailbox_replay_end(&l->shard, mailbox_now(mb));
    l->root = r.root;
    if (report.damaged) {
        mailbox_shard_failed(&l->shard);
        atomic_store(&l->readonly, true);
        obs_log(svc_log(mb->svc), OBS_ERROR, "journal.corrupt", OBS_U64("shard", no),
                OBS_STR("file", report.bad_file), OBS_U64("byte", report.bad_offset),
                OBS_STR("why", report.bad_reason ? report.bad_reason : "contents"), OBS_END);
    } else if (e == ERR_OK && store_journal_wants_spare(l->journal)) {
        e = store_journal_prepare_spare(l->journal);
        if (e == ERR_NO_SPACE) {
            atomic_store(&l->disk_full, true);
            e = ERR_OK;
        }
    }
    obs_log(svc_log(mb->svc), OBS_INFO, "journal.recovered", OBS_U64("shard", no),
            OBS_U64("groups", report.frames), OBS_U64("bytes", report.bytes),
            OBS_U64("messages", l->shard.slabs.live), OBS_END);
    return e;
}

static void give_back(void *item, void *arg)
{
    (void)arg;
    struct mailbox_job *j = item;
    if (j == NULL || j->magic != MAILBOX_JOB_MAGIC)
        return; /* a tick */
    j->err = ERR_BUSY;
    j->why = MAILBOX_WHY_DRAINING;
    mailbox_job_done(j);
}

static void drop_tick(void *item, void *arg)
{
    (void)item, (void)arg;
}

void mailbox_lane_close(struct mailbox_lane *l)
{
    if (l->journal)
        store_journal_close(l->journal);
    if (l->work)
        rt_chan_destroy(l->work, give_back, NULL);
    if (l->requeue)
        rt_chan_destroy(l->requeue, drop_tick, NULL);
    mailbox_shard_fini(&l->shard);
    mailbox_fair_fini(&l->fair);
    heap_fini(&l->parked);
    tail_fini(&l->tail);
    free(l->group_memory);
    free(l->read_buffer);
    free(l->served);
}

/* ---- committing ---- */

enum err mailbox_lane_commit(struct mailbox_lane *l, struct mailbox_now now)
{
    struct mailbox_shard *s = &l->shard;
    struct store_pos pos;
    struct sha256 root;
    uint32_t enqs;
    if (s->group.n == 0)
        return ERR_OK;
    if (!store_journal_fits(l->journal, s->group.n))
        return ERR_NO_SPACE;
    mailbox_rec_seal(&s->group);
    struct bytes payload = bytes_of(s->group.p, s->group.n);
    mailbox_group_root(&l->root, l->next_group, payload, &root, &enqs);
    struct store_frame f = {.group_no = l->next_group,
                            .first_seq = l->next_seq,
                            .count = s->group.records,
                            .count2 = enqs,
                            .ms = now.wall_ms,
                            .prev_root = l->root,
                            .new_root = root};
    atomic_store(&l->busy_since_ns, clock_mono_ns(l->mb->clock));
    enum err e = store_journal_append(l->journal, &f, &payload, 1, &pos);
    atomic_store(&l->busy_since_ns, 0);
    if (e == ERR_NO_SPACE)
        return e;
    if (e != ERR_OK) {
        mailbox_shard_failed(s);
        atomic_store(&l->readonly, true);
        obs_log(svc_log(l->mb->svc), OBS_ERROR, "shard.readonly", OBS_U64("shard", l->no), OBS_ERR(e),
                OBS_END);
        return ERR_SAFE_MODE;
    }
    obs_hist_observe(obs_hist(l->mb->m[MAILBOX_M_group_records]), s->group.records);
    obs_hist_observe(obs_hist(l->mb->m[MAILBOX_M_group_bytes]), (double)s->group.n);
    l->root = root;
    l->next_group++;
    l->next_seq += s->group.records;
    atomic_store(&l->active_segment, pos.segment);
    mailbox_tail_put(&l->tail, pos.segment, (uint64_t)pos.offset + STORE_FRAME_HEADER, payload.p,
                     payload.n);
    mailbox_shard_committed(s, pos.segment, (uint64_t)pos.offset + STORE_FRAME_HEADER);
    return ERR_OK;
}
