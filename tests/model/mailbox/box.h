/* What the models of a shard share: the real core behind the real channel, one topic, and jobs that are answered once. */
#ifndef RON_TESTS_MODEL_MAILBOX_BOX_H
#define RON_TESTS_MODEL_MAILBOX_BOX_H

#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "services/mailbox/core/shard.h"

enum kind {
    JOB_SEND,
    JOB_RECV,
    JOB_ACK,
    JOB_EXTEND,
    JOB_RELEASE,
    JOB_TICK,       /* the first lease has ended */
    JOB_TICK_AGAIN, /* for the same slot, late or repeated */
    JOB_WAIT,       /* a receive that waits, or a stream */
    JOB_LEAVE,
    JOB_TIMEOUT,
};

struct job {
    enum kind kind;
    struct os_a32 answers;
    enum err err;
    uint32_t got;
    uint16_t attempt;
    const char *key; /* of a send */
};

struct box {
    struct rt_chan *work;
    struct mailbox_shard *shard;
    struct mailbox_rules rules;
    struct mailbox_now now;
    struct uuid id;
    struct sha256 hash;
    struct job jobs[6];
};

static uint8_t group[MAILBOX_GROUP_MEMORY];

static inline struct box *box_open(size_t capacity)
{
    struct box *b = calloc(1, sizeof *b);
    CHECK(b != NULL);
    b->work = rt_chan_create(
        &(struct rt_chan_spec){.name = "work_tx", .capacity = capacity, .policy = RT_REJECT});
    b->shard = calloc(1, sizeof *b->shard);
    CHECK(b->work && b->shard);
    b->now = (struct mailbox_now){1000000, 1000};
    b->rules = (struct mailbox_rules){
        .index_max = 100, .max_topics = 10, .retention_ready_ms = 1000000, .retention_dlq_ms = 1000000};
    b->rules.policies.n = 1;
    b->rules.policies.p[0] =
        (struct mailbox_policy){.class_name = "d", .t_replay_ms = 100000, .max_attempts = 3};
    CHECK(mailbox_shard_init(b->shard, 0, &b->rules, 1, b->now, group) == ERR_OK);
    mailbox_topic_hash(STR("t"), &b->hash);
    return b;
}

static inline void box_close(struct box *b)
{
    rt_chan_destroy(b->work, NULL, NULL);
    mailbox_shard_check(b->shard);
    mailbox_shard_fini(b->shard);
    free(b->shard);
    free(b);
}

static inline void do_send(struct box *b, struct job *j)
{
    static const uint8_t attrs[4];
    struct mailbox_sent out = {0};
    struct mailbox_send in = {.topic = STR("t"),
                              .idem_key = str_from_c(j->key ? j->key : "k"),
                              .topic_hash = &b->hash,
                              .attrs = bytes_of(attrs, 4),
                              .payload = bytes_of("x", 1)};
    mailbox_dedup_digest(in.topic, in.idem_key, &in.digest);
    j->err = mailbox_shard_send(b->shard, b->now, &in, &out);
    b->id = out.msg_id;
}

static inline void do_recv(struct box *b, struct job *j)
{
    struct mailbox_topic *t = mailbox_topics_find(&b->shard->topics, &b->hash, STR("t"));
    struct mailbox_want w = {t, 500000, 1, INT64_MAX, 0, false};
    uint32_t entry;
    j->got = t ? mailbox_shard_lease(b->shard, b->now, &w, &entry) : 0;
    j->attempt = j->got ? mailbox_shard_entry(b->shard, entry)->attempt : 0;
}

static inline void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

static inline void answer(struct job *j)
{
    CHECK(os_a32_add(&j->answers, 1, memory_order_relaxed) == 0); /* each job is answered once */
}

static inline void commit(struct box *b)
{
    mailbox_shard_committed(b->shard, 1, 4096);
}

#endif
