/*
 * The DLQ reprocessor: everything an operator asks for that must not hold up a shard.
 *
 * It never touches a shard's state: it asks the worker in small jobs (a page of dead letters, at most 32 ids to move) and reads
 * bodies from the journal itself, whose durable part any thread may read. Reprocessing is paced by its rate and can be canceled
 * between two steps; a chain is read segment by segment (chain.h), when nothing else waits.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/check.h"
#include "rt/oneshot.h"
#include "services/mailbox/operator.h"
#include "services/mailbox/tasks/chain.h"

enum {
    IDS_PER_JOB = 32,
    PAGE = 1000,
    STEP_MS = 10,
    ANSWER_MS = 10000,
    LIST_MS = ANSWER_MS / 2, /* then a list ends with what it has: its answer must be there in time */
    LOOK_MS = 1000,
    LIST_BYTES = 4 << 20,
    WAITING_MAX = 64 /* of each kind of what takes long; more are refused */
};

/* ---- asking the worker ---- */

/* One question with all it refers to: when nobody waits for the answer any more, whoever answers it frees it. */
struct ask {
    struct mailbox_job job;
    struct rt_oneshot answer;
    char topic[MAILBOX_TOPIC_MAX];
    struct mailbox_dlq dlq;
    struct mailbox_topics_query topics;
    struct mailbox_topic_info info;
    struct mailbox_dead *room;
    struct uuid *ids;
};

static void ask_free(struct ask *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; a->room && i < a->dlq.n; i++)
        free(a->room[i].history);
    free(a->room);
    free(a->ids);
    free(a);
}

static struct ask *ask_new(const struct mailbox_operator *op, enum mailbox_job_kind kind, uint32_t room,
                           const struct uuid *ids, uint32_t ids_n)
{
    struct ask *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->job.kind = kind;
    a->room = room ? calloc(room, sizeof *a->room) : NULL;
    a->ids = ids_n ? malloc(ids_n * sizeof *ids) : NULL;
    if ((room && !a->room) || (ids_n && !a->ids)) {
        ask_free(a);
        return NULL;
    }
    memcpy(a->topic, op->topic, op->topic_len);
    if (ids_n)
        memcpy(a->ids, ids, ids_n * sizeof *ids);
    struct str topic = str_of(a->topic, op->topic_len);
    a->topics = (struct mailbox_topics_query){
        .exact = topic, .exact_hash = op->topic_hash, .limit = 1, .got = &a->info};
    a->dlq = (struct mailbox_dlq){.topic = topic,
                                  .topic_hash = op->topic_hash,
                                  .after = op->after,
                                  .has_after = op->has_after,
                                  .limit = room,
                                  .cause = op->cause,
                                  .reason_len = op->reason_len,
                                  .before_ms = op->before_ms,
                                  .got = a->room,
                                  .ids = a->ids,
                                  .ids_n = ids_n,
                                  .delay_ms = op->delay_ms};
    memcpy(a->dlq.reason, op->reason, op->reason_len);
    if (kind == MAILBOX_JOB_TOPICS)
        a->job.topics = &a->topics;
    else
        a->job.dlq = &a->dlq;
    return a;
}

static void answered(struct mailbox_job *j)
{
    struct ask *a = j->arg;
    if (rt_oneshot_send(&a->answer, j) == ERR_OK)
        return;
    rt_oneshot_fini(&a->answer);
    ask_free(a);
}

/* Into the queue of the topic's shard; Busy is met with full jitter. */
static enum err enter(struct ask *a, struct mailbox_operator *op, struct deadline by, struct rt_task *self,
                      struct rng *rng) RT_BLOCKS
{
    struct mailbox *mb = op->lane->mb;
    enum mailbox_why why;
    for (int64_t most = 5;; most = most < 500 ? most * 2 : 500) {
        a->job.lane = op->lane = mailbox_lane_of(mb, mailbox_bucket(&op->topic_hash));
        enum err e = mailbox_submit(&a->job, true, &why);
        if (e == ERR_OK)
            return ERR_OK;
        if (why == MAILBOX_WHY_DRAINING)
            return ERR_DRAINING;
        if (why == MAILBOX_WHY_ELSEWHERE)
            return ERR_NOT_OWNER;
        if (deadline_left_ms(by) <= 0)
            return ERR_TIMEOUT;
        obs_counter_inc(OBS_COUNTER_OF(mb->m[MAILBOX_M_backoff_retries],
                                       a->job.kind == MAILBOX_JOB_PURGE ? "purge" : "reprocess"));
        if (rt_task_sleep(self, deadline_in_ms((int64_t)rng_below(rng, (uint64_t)most + 1))) != ERR_OK)
            return ERR_DRAINING;
        rt_task_beat(self);
    }
}

/*
 * Asks once. ERR_TIMEOUT: the shard does not answer, it hangs in a write perhaps, and the others' operators wait behind this one; the
 * question is left to it. ERR_OK or an error of the shard's: the question is ours again. *kept tells which.
 */
static enum err ask_once(struct ask *a, struct mailbox_operator *op, struct rt_task *self, struct rng *rng,
                         bool *kept) RT_BLOCKS
{
    struct deadline by = deadline_in_ms(ANSWER_MS);
    void *value;
    *kept = true;
    rt_oneshot_init(&a->answer);
    a->job.magic = MAILBOX_JOB_MAGIC;
    a->job.done = answered;
    a->job.arg = a;
    a->job.err = ERR_OK;
    enum err e = enter(a, op, by, self, rng);
    if (e != ERR_OK) {
        rt_oneshot_fini(&a->answer);
        return e;
    }
    do {
        e = rt_oneshot_recv(&a->answer, deadline_in_ms(LOOK_MS), &value);
        rt_task_beat(self);
    } while (e == ERR_TIMEOUT && deadline_left_ms(by) > 0);
    if (e != ERR_OK && !rt_oneshot_abandon(&a->answer, &value)) {
        *kept = false;
        return e;
    }
    rt_oneshot_fini(&a->answer);
    return a->job.err;
}

/*
 * A job that met the number of shards changing is sent again, to where the topic is then. NULL for no memory is fine; after an error
 * the question is gone.
 */
static enum err ask(struct ask *a, struct mailbox_operator *op, struct rt_task *self,
                    struct rng *rng) RT_BLOCKS
{
    enum err e;
    bool kept;
    if (!a)
        return ERR_NO_MEMORY;
    do {
        e = ask_once(a, op, self, rng, &kept);
    } while (kept && e == ERR_BUSY && a->job.why == MAILBOX_WHY_REBALANCING);
    if (e != ERR_OK && kept)
        ask_free(a);
    return e;
}

/* ---- reading the journal ---- */

static enum err read_record(struct mailbox_lane *l, const struct mailbox_dead *d, uint8_t *into,
                            struct mailbox_rec *out) RT_BLOCKS
{
    struct store_pos at = {d->segment, d->offset8 * 8};
    size_t pos = 0;
    if (d->segment == MAILBOX_SEGMENT_PENDING)
        return ERR_NOT_FOUND;
    if (!mailbox_presence_pin(&l->presence))
        return ERR_NOT_FOUND;
    enum err e = store_journal_pread(l->log.journal, at, into, MAILBOX_REC_HEAD);
    if (e == ERR_OK && le32_get(into) > d->length64 * 64)
        e = ERR_INTEGRITY;
    if (e == ERR_OK)
        e = store_journal_pread(l->log.journal, at, into, le32_get(into));
    mailbox_presence_unpin(&l->presence);
    if (e == ERR_OK && mailbox_rec_next(bytes_of(into, le32_get(into)), &pos, out) != ERR_OK)
        e = ERR_INTEGRITY;
    if (e == ERR_OK && out->type != MAILBOX_REC_ENQ && out->type != MAILBOX_REC_MOVE)
        e = ERR_INTEGRITY;
    return e;
}

/* ---- listing ---- */

static void put_history(struct json_w *w, const struct mailbox_failures *h)
{
    json_key(w, "history");
    json_arr_begin(w);
    for (uint8_t k = 0; h && k < h->n; k++) {
        json_obj_begin(w);
        json_put_u64(w, "attempt", h->f[k].attempt);
        json_put_time_ms(w, "at", (int64_t)h->f[k].at_ms);
        json_put_cstr(w, "cause", mailbox_cause_name((enum mailbox_cause)h->f[k].cause));
        json_put_str(w, "reason", str_of(h->f[k].reason, h->f[k].reason_len));
        json_obj_end(w);
    }
    json_arr_end(w);
    json_put_bool(w, "history_truncated", h == NULL || h->truncated);
}

static void put_attrs(struct json_w *w, struct bytes attrs)
{
    struct mailbox_attr a;
    size_t at = 0;
    json_key(w, "attrs");
    json_obj_begin(w);
    while (mailbox_attrs_next(attrs, &at, &a)) {
        json_key_str(w, a.key);
        json_str(w, a.value);
    }
    json_obj_end(w);
}

static void put_dead(struct json_w *w, struct mailbox_operator *op, const struct mailbox_dead *d,
                     uint8_t *buffer) RT_BLOCKS
{
    struct mailbox_rec r;
    const struct mailbox_failures *h = d->history;
    const struct mailbox_failure *last = h && h->n ? &h->f[h->n - 1] : NULL;
    json_obj_begin(w);
    json_key(w, "msg_id");
    json_uuid(w, &d->id);
    json_put_u64(w, "topic_seq", d->topic_seq);
    json_put_time_ms(w, "ts", (int64_t)mailbox_id_ts_ms(&d->id));
    if (read_record(op->lane, d, buffer, &r) == ERR_OK) {
        json_put_str(w, "idem_key", r.enq.idem_key);
        json_put_u64(w, "size", r.enq.payload.n);
        json_put_hash(w, "payload_hash", &r.enq.payload_hash);
        put_attrs(w, r.enq.attrs);
        if (op->payload)
            json_put_base64(w, "payload_b64", r.enq.payload);
    }
    json_put_u64(w, "attempt", d->attempt);
    json_put_cstr(w, "cause", last ? mailbox_cause_name((enum mailbox_cause)last->cause) : "unknown");
    json_put_str(w, "reason", last ? str_of(last->reason, last->reason_len) : STR(""));
    json_put_time_ms(w, "moved_at", (int64_t)d->moved_ms);
    put_history(w, h);
    json_obj_end(w);
}

/* Whoever asked waits for ANSWER_MS; after that nobody reads the answer. */
static bool within(const struct mailbox_operator *op, int64_t ms)
{
    return clock_mono_ns(op->lane->mb->clock) - op->call->started_ns < ms * 1000000;
}

/* Once for every so many dead letters that were looked at; op->after says where the next begins. True: there is more. */
static bool list_some(struct mailbox_operator *op, struct json_w *w, uint8_t *buffer, uint32_t *left,
                      struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    bool first = op->body.n == 0;
    struct ask *a = ask_new(op, MAILBOX_JOB_DLQ_PAGE, *left, NULL, 0);
    op->err = ask(a, op, self, rng);
    if (op->err != ERR_OK)
        return false;
    const struct mailbox_dlq *q = &a->dlq;
    uint32_t n = 0;
    if (first) {
        json_obj_begin(w);
        json_put_str(w, "topic", q->topic);
        json_put_u64(w, "count", q->count);
        json_key(w, "entries");
        json_arr_begin(w);
    }
    while (n < q->n && op->body.n < LIST_BYTES)
        put_dead(w, op, &q->got[n++], buffer);
    bool more = q->more || n < q->n;
    op->after = n < q->n ? q->got[n - 1].id : q->last;
    op->has_after = more;
    *left -= n;
    ask_free(a);
    return more;
}

/* The page ends early when what is in it weighs enough for one answer, or took long enough. */
static void list(struct mailbox_operator *op, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    uint8_t *buffer = malloc(MAILBOX_REC_BYTES_MAX);
    struct json_w w;
    uint32_t left = op->limit;
    bool more = false;
    json_w_init(&w, &op->body);
    op->err = ERR_NO_MEMORY;
    if (buffer)
        do {
            more = list_some(op, &w, buffer, &left, self, rng);
        } while (more && left > 0 && op->body.n < LIST_BYTES && within(op, LIST_MS));
    if (op->err == ERR_OK) {
        json_arr_end(&w);
        if (more) {
            json_key(&w, "next");
            json_uuid(&w, &op->after);
        }
        json_obj_end(&w);
        if (op->body.err != ERR_OK)
            op->err = ERR_TOO_LARGE;
    }
    free(buffer);
}

/* ---- moving ---- */

static enum err move(struct mailbox_operator *op, enum mailbox_job_kind kind, const struct uuid *ids,
                     uint32_t n, uint32_t *out_moved, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    struct ask *a = ask_new(op, kind, 0, ids, n);
    enum err e = ask(a, op, self, rng);
    if (e != ERR_OK)
        return e;
    *out_moved += a->dlq.moved;
    ask_free(a);
    return ERR_OK;
}

/* The ids the selection names: those of the given ones that fit it, or pages until the limit. */
static enum err select_ids(struct mailbox_operator *op, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    const struct uuid *given = op->ids;
    uint32_t given_n = op->ids_n;
    struct uuid *ids = calloc(op->limit, sizeof *ids);
    enum err e = ids ? ERR_OK : ERR_NO_MEMORY;
    bool more = true;
    uint32_t n = 0;
    while (e == ERR_OK && more && n < op->limit) {
        uint32_t want = op->limit - n < PAGE ? op->limit - n : PAGE;
        struct ask *a = ask_new(op, MAILBOX_JOB_DLQ_PAGE, want, given, given_n);
        if ((e = ask(a, op, self, rng)) != ERR_OK)
            break;
        for (uint32_t i = 0; i < a->dlq.n; i++)
            ids[n++] = a->dlq.got[i].id;
        more = op->has_after = a->dlq.more;
        op->after = a->dlq.last;
        ask_free(a);
    }
    free(op->ids);
    op->ids = ids;
    op->ids_n = n;
    return e;
}

static enum err purge_selected(struct mailbox_operator *op, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    enum err e = ERR_OK;
    for (uint32_t i = 0; e == ERR_OK && i < op->ids_n; i += IDS_PER_JOB) {
        uint32_t n = op->ids_n - i < IDS_PER_JOB ? op->ids_n - i : IDS_PER_JOB;
        e = move(op, MAILBOX_JOB_PURGE, op->ids + i, n, &op->purged, self, rng);
    }
    return e;
}

/* A round of it. All means all, however many: until a round finds nothing more. True: there may be more. */
static bool purge_step(struct mailbox_operator *op, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    uint32_t before = op->purged;
    if (op->all) {
        free(op->ids);
        op->ids = NULL;
        op->ids_n = 0;
        op->has_after = false;
    }
    op->err = select_ids(op, self, rng);
    if (op->err == ERR_OK)
        op->err = purge_selected(op, self, rng);
    if (op->err == ERR_OK && op->all && op->purged > before)
        return true;
    if (op->err == ERR_OK)
        buf_printf(&op->body, "{\"purged\":%u}", op->purged);
    return false;
}

/* A run that is no longer running may be forgotten, and freed, by the next one that is asked for: nobody looks at it after this. */
static void set_state(struct mailbox *mb, struct mailbox_operator *op, enum mailbox_run_state state)
{
    struct mailbox_event ev = {.kind = MAILBOX_EV_REPROCESS_DONE, .msg_id = op->job};
    ev.topic_len = (uint16_t)op->topic_len;
    memcpy(ev.topic, op->topic, ev.topic_len);
    uint16_t shard = op->lane->no;
    uint32_t moved = op->moved, skipped = op->skipped;
    char kid[sizeof op->kid];
    memcpy(kid, op->kid, sizeof kid);
    rt_lock_take(&mb->jobs.lock);
    op->state = state;
    op->finished_ms = (uint64_t)clock_wall_ms(mb->clock);
    rt_lock_release(&mb->jobs.lock);
    mailbox_tell(mb, shard, &ev);
    obs_log(svc_log(mb->svc), OBS_INFO, "dlq.reprocess", OBS_U64("moved", moved),
            OBS_U64("skipped", skipped), OBS_STR("kid", kid), OBS_END);
}

/* One step of a run; true while it is not finished. */
static bool step(struct mailbox *mb, struct mailbox_operator *op, struct rt_task *self,
                 struct rng *rng) RT_BLOCKS
{
    int64_t now = clock_mono_ns(mb->clock);
    if (atomic_load(&op->cancel)) {
        set_state(mb, op, MAILBOX_RUN_CANCELED);
        return false;
    }
    if (op->at >= op->ids_n) {
        set_state(mb, op, MAILBOX_RUN_DONE);
        return false;
    }
    if (now < op->next_at_ns)
        return true;
    uint32_t per_step = op->rate / (1000 / STEP_MS), moved = 0;
    uint32_t n = per_step < 1 ? 1 : per_step > IDS_PER_JOB ? IDS_PER_JOB : per_step;
    if (n > op->ids_n - op->at)
        n = op->ids_n - op->at;
    enum err e = move(op, MAILBOX_JOB_REPROCESS, op->ids + op->at, n, &moved, self, rng);
    if (e != ERR_OK) {
        set_state(mb, op, MAILBOX_RUN_FAILED);
        return false;
    }
    op->at += n;
    op->next_at_ns = now + (int64_t)n * 1000000000 / op->rate;
    rt_lock_take(&mb->jobs.lock);
    op->moved += moved;
    op->skipped += n - moved;
    rt_lock_release(&mb->jobs.lock);
    return true;
}

/* ---- answering ---- */

static void post_back(struct net_msg *m)
{
    struct mailbox_call *c = (struct mailbox_call *)((char *)m - offsetof(struct mailbox_call, msg));
    c->finish(c);
}

/* From here on a call's own work is its loop's; a run goes on. */
static void finish(struct mailbox_operator *op)
{
    struct mailbox_call *c = op->call;
    op->call = NULL;
    c->msg.fn = post_back;
    net_loop_post(c->loop, &c->msg);
}

/* ---- chains ---- */

static enum err topic_info(struct mailbox_operator *op, struct mailbox_topic_info *info,
                           struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    struct ask *a = ask_new(op, MAILBOX_JOB_TOPICS, 0, NULL, 0);
    enum err e = ask(a, op, self, rng);
    if (e != ERR_OK)
        return e;
    *info = a->info;
    if (a->topics.n == 0)
        e = ERR_NOT_FOUND;
    ask_free(a);
    return e;
}

/* A part of the first of them; true while it is not through. */
static bool chain_step(struct mailbox_operator *op, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    op->err = within(op, ANSWER_MS) ? ERR_OK : ERR_TIMEOUT;
    if (op->err == ERR_OK && !op->walk) {
        struct mailbox_topic_info *info = calloc(1, sizeof *info);
        op->err = info ? topic_info(op, info, self, rng) : ERR_NO_MEMORY;
        if (op->err == ERR_OK)
            op->err = mailbox_chain_begin(op, info);
        free(info);
    }
    return op->err == ERR_OK && mailbox_chain_step(op);
}

/* ---- what takes long ---- */

/* Behind those that wait already. */
static void wait_in(struct mailbox_operator **list, struct mailbox_operator *op)
{
    size_t n = 0;
    for (; *list; list = &(*list)->run_next)
        n++;
    if (n < WAITING_MAX) {
        *list = op;
        return;
    }
    op->err = ERR_BUSY;
    op->why = MAILBOX_WHY_REPROC;
    finish(op);
}

static void leave_list(struct mailbox_operator **list)
{
    struct mailbox_operator *op = *list;
    *list = op->run_next;
    op->run_next = NULL;
    mailbox_chain_end(op);
    if (op->kind == MAILBOX_OPERATOR_PURGE) /* also one that a drain has cut short */
        obs_log(svc_log(op->lane->mb->svc), OBS_INFO, "dlq.purge", OBS_U64("purged", op->purged),
                OBS_STR("kid", op->kid), OBS_END);
    finish(op);
}

/* A part of the first in each turn: nobody else is kept waiting, however much somebody wants to see or to be rid of. */
static void go_on(struct mailbox *mb, struct rt_task *self, struct rng *rng) RT_BLOCKS
{
    if (mb->walks && !chain_step(mb->walks, self, rng))
        leave_list(&mb->walks);
    if (mb->purges && !purge_step(mb->purges, self, rng))
        leave_list(&mb->purges);
}

static void give_up(struct mailbox_operator **list)
{
    while (*list) {
        (*list)->err = ERR_DRAINING;
        leave_list(list);
    }
}

/* ---- the loop ---- */

/* What matches is known before it is answered; a shard that cannot say ends the run, and the caller learns why. */
static void begin_run(struct mailbox *mb, struct mailbox_operator *op, struct rt_task *self,
                      struct rng *rng) RT_BLOCKS
{
    enum err e = select_ids(op, self, rng);
    rt_lock_take(&mb->jobs.lock);
    op->matched = op->ids_n;
    rt_lock_release(&mb->jobs.lock);
    op->found->matched = op->ids_n;
    op->found->err = e;
    finish(op);
    if (e != ERR_OK) {
        set_state(mb, op, MAILBOX_RUN_FAILED);
        return;
    }
    op->run_next = mb->runs;
    mb->runs = op;
}

/* Where what takes long waits for its turns; NULL: it is done at once. */
static struct mailbox_operator **list_of(struct mailbox *mb, enum mailbox_operator_kind kind)
{
    return kind == MAILBOX_OPERATOR_CHAIN   ? &mb->walks
           : kind == MAILBOX_OPERATOR_PURGE ? &mb->purges
                                            : NULL;
}

enum err mailbox_reprocessor_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    struct rng rng;
    rng_seed(&rng, rng_secure_u64());
    for (;;) {
        void *item = NULL;
        int64_t rest_ms = mb->walks || mb->purges ? 0 : mb->runs ? STEP_MS : 250;
        enum err e = rt_chan_recv(mb->reproc, deadline_in_ms(rest_ms), &item);
        rt_task_beat(self);
        if (e == ERR_CLOSED || e == ERR_CANCELED)
            break;
        struct mailbox_operator *op = item; /* NULL: nobody asks */
        struct mailbox_operator **waits = op ? list_of(mb, op->kind) : NULL;
        if (waits) {
            wait_in(waits, op);
        } else if (op && op->kind == MAILBOX_OPERATOR_RUN) {
            begin_run(mb, op, self, &rng);
        } else if (op) {
            list(op, self, &rng);
            finish(op);
        }
        if (!waits) /* first all that came are taken in, and what is short goes before them */
            go_on(mb, self, &rng);
        for (struct mailbox_operator **link = &mb->runs; *link;) {
            struct mailbox_operator *run = *link, *next = run->run_next;
            if (step(mb, run, self, &rng))
                link = &run->run_next;
            else
                *link = next;
        }
    }
    give_up(&mb->walks);
    give_up(&mb->purges);
    return ERR_OK;
}
