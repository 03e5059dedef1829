#include "services/mailbox/tasks/chain.h"

#include <stdlib.h>

#include "base/json_write.h"
#include "services/mailbox/idx.h"

enum {
    LOOKS_PER_STEP = 64, /* at index files; a segment that is read ends the step */
    PAGE_MS = 1000,      /* after which a page that has links ends */
    LINKS_BYTES = 4 << 20
};

struct mailbox_chain_walk {
    struct mailbox_operator *op;
    struct mailbox_topic_info topic;
    struct store_segment *segments;
    size_t n_segments, at;
    int64_t began_ns;
    uint64_t first, next; /* 0: not known yet */
    struct buf links;
    struct json_w w;
    uint32_t n;
    struct sha256 prev;
};

static void put_link(struct mailbox_chain_walk *c, const struct mailbox_rec_enq *q)
{
    struct sha256 attrs;
    sha256_of(q->attrs.p, q->attrs.n, &attrs);
    json_obj_begin(&c->w);
    json_put_u64(&c->w, "topic_seq", q->topic_seq);
    json_key(&c->w, "msg_id");
    json_uuid(&c->w, &q->msg_id);
    json_put_time_ms(&c->w, "ts", (int64_t)q->ts_ms);
    if (q->not_before_ms)
        json_put_time_ms(&c->w, "not_before", (int64_t)q->not_before_ms);
    json_put_str(&c->w, "idem_key", q->idem_key);
    json_put_hash(&c->w, "payload_hash", &q->payload_hash);
    json_put_hash(&c->w, "attrs_hash", &attrs);
    json_put_hash(&c->w, "hash_chain", &q->chain);
    json_obj_end(&c->w);
}

/* The oldest link there is; without a wish the page begins with it. */
static void found_first(struct mailbox_chain_walk *c, uint64_t topic_seq)
{
    if (c->first)
        return;
    c->first = topic_seq;
    if (!c->op->has_from)
        c->next = topic_seq;
}

static bool enough(const struct mailbox_chain_walk *c)
{
    return c->first && (c->next < c->first || c->n == c->op->limit || c->next > c->topic.topic_seq);
}

static enum err walk_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct mailbox_chain_walk *c = ctx;
    struct mailbox_rec r;
    size_t pos = 0;
    (void)at;
    while (!enough(c) && mailbox_rec_next_trusted(f->payload, &pos, &r) == ERR_OK) {
        if (r.type != MAILBOX_REC_ENQ || r.topic_id != c->topic.topic_id)
            continue;
        found_first(c, r.enq.topic_seq);
        if (r.enq.topic_seq != c->next || enough(c))
            continue;
        if (c->n++ == 0)
            c->prev = r.enq.chain_prev;
        put_link(c, &r.enq);
        c->next++;
    }
    return enough(c) ? ERR_CLOSED : ERR_OK;
}

/* Whether there is anything for this page in a segment. What cannot be known is looked at. */
static bool worth_reading(struct mailbox_chain_walk *c, const struct store_segment *s) RT_BLOCKS
{
    struct mailbox_lane *l = c->op->lane;
    struct mailbox_idx_place at = mailbox_log_place(&l->log);
    uint64_t first, last;
    if (!s->sealed || mailbox_idx_range(&at, s->segment_no, c->topic.topic_id, &first, &last) != ERR_OK)
        return true;
    if (last)
        found_first(c, first);
    return last && last >= c->next && !enough(c);
}

/* The shard has to be the one that told of the topic: its numbers are its own. */
static enum err pin(struct mailbox_chain_walk *c)
{
    struct mailbox_lane *l = c->op->lane;
    bool here = mailbox_presence_pin(&l->presence);
    if (here && atomic_load(&l->incarnation) == c->topic.incarnation)
        return ERR_OK;
    if (here)
        mailbox_presence_unpin(&l->presence);
    c->op->why = l->mb->replica ? MAILBOX_WHY_ELSEWHERE : MAILBOX_WHY_REBALANCING;
    return l->mb->replica ? ERR_NOT_OWNER : ERR_BUSY;
}

/* Segments until one has been read. */
static enum err read_some(struct mailbox_chain_walk *c) RT_BLOCKS
{
    struct mailbox_lane *l = c->op->lane;
    struct store_journal_report report;
    enum err e = pin(c);
    if (e != ERR_OK)
        return e;
    for (int looks = 0; looks < LOOKS_PER_STEP && c->at < c->n_segments && !enough(c); looks++) {
        const struct store_segment *s = &c->segments[c->at++];
        if (!worth_reading(c, s))
            continue;
        e = store_journal_scan(l->log.journal, s->segment_no, walk_frame, c, &report);
        break;
    }
    mailbox_presence_unpin(&l->presence);
    return e == ERR_CLOSED || e == ERR_NOT_FOUND ? ERR_OK : e; /* not found: stripped since */
}

static void answer(struct mailbox_chain_walk *c)
{
    struct mailbox_operator *op = c->op;
    struct json_w w;
    json_arr_end(&c->w);
    if (c->first == 0)
        c->first = c->topic.topic_seq + 1; /* every link is past its retention */
    if (op->has_from && op->from < c->first) {
        op->err = ERR_NOT_RETAINED;
        buf_printf(&op->body, "{\"first_available\":%llu}", (unsigned long long)c->first);
        return;
    }
    json_w_init(&w, &op->body);
    json_obj_begin(&w);
    json_put_str(&w, "topic", str_of(op->topic, op->topic_len));
    json_key(&w, "chain_id");
    json_uuid(&w, &c->topic.chain_id);
    json_put_u64(&w, "first_available", c->first);
    json_key(&w, "head");
    json_obj_begin(&w);
    json_put_u64(&w, "topic_seq", c->topic.topic_seq);
    json_put_hash(&w, "hash_chain", &c->topic.chain);
    json_obj_end(&w);
    json_put_hash(&w, "chain_prev", c->n ? &c->prev : &c->topic.chain);
    json_put_raw(&w, "links", buf_str(&c->links));
    if (c->n && c->next <= c->topic.topic_seq && (c->n == op->limit || c->at < c->n_segments))
        json_put_u64(&w, "next", c->next);
    json_obj_end(&w);
    if (c->links.err != ERR_OK || op->body.err != ERR_OK)
        op->err = ERR_TOO_LARGE;
}

enum err mailbox_chain_begin(struct mailbox_operator *op, const struct mailbox_topic_info *info)
{
    struct mailbox_lane *l = op->lane;
    struct mailbox_chain_walk *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->op = op;
    c->topic = *info;
    c->next = op->has_from ? op->from : 0;
    c->began_ns = clock_mono_ns(l->mb->clock);
    buf_init(&c->links, LINKS_BYTES);
    json_w_init(&c->w, &c->links);
    json_arr_begin(&c->w);
    op->walk = c;
    enum err e = pin(c);
    if (e != ERR_OK)
        return e;
    size_t room = store_journal_segments(l->log.journal, NULL, 0) + 1; /* one may be begun meanwhile */
    c->segments = calloc(room, sizeof *c->segments);
    if (c->segments)
        c->n_segments = store_journal_segments(l->log.journal, c->segments, room);
    mailbox_presence_unpin(&l->presence);
    c->n_segments = c->n_segments < room ? c->n_segments : room;
    return c->segments ? ERR_OK : ERR_NO_MEMORY;
}

bool mailbox_chain_step(struct mailbox_operator *op)
{
    struct mailbox_chain_walk *c = op->walk;
    op->err = read_some(c);
    if (op->err != ERR_OK)
        return false;
    bool long_ago = clock_mono_ns(op->lane->mb->clock) - c->began_ns > PAGE_MS * INT64_C(1000000);
    if (c->at < c->n_segments && !enough(c) && !(c->n && long_ago))
        return true;
    answer(c);
    return false;
}

void mailbox_chain_end(struct mailbox_operator *op)
{
    if (!op->walk)
        return;
    buf_fini(&op->walk->links);
    free(op->walk->segments);
    free(op->walk);
    op->walk = NULL;
}
