#include "outside.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/outbox.h"
#include "services/mailbox/tasks/worker_internal.h"

struct shop *shop;

/* ---- clock, configuration, topology ---- */

static int64_t mono(void *ctx)
{
    (void)ctx;
    return os_now_ns();
}

static int64_t wall(void *ctx)
{
    (void)ctx;
    return INT64_C(1760292161000) + os_now_ns() / 1000000;
}

static const struct clock model_clock = {mono, wall, NULL};

const void *svc_config(const struct svc *s)
{
    (void)s;
    return &shop->config;
}

const struct rt_topology *svc_topology(const struct svc *s)
{
    static struct rt_topology t, *topology = &t;
    const struct mailbox_config *cfg = svc_config(s);
    rt_topology_init(topology, "mailbox");
#include "rt/topology_rows.h"
#include "services/mailbox/topology.def"
#include "rt/topology_rows_end.h"
    return topology;
}

unsigned os_cpus(void)
{
    return 1;
}

/* ---- a journal of bytes; a write takes its time, and others run meanwhile ---- */

enum { SEGMENT = 1, BEGINS = 4096 };

static void device_works(void)
{
    os_a32_add(&shop->device, 1, memory_order_acq_rel);
}

enum err mailbox_log_open(struct mailbox_log *g, struct mailbox_shard *shard,
                          const struct mailbox_log_config *cfg, struct store_journal_report *out_report)
{
    *g = (struct mailbox_log){.shard = shard};
    *out_report = (struct store_journal_report){0};
    mailbox_replay_begin(shard);
    for (size_t at = 0; at < shop->written;) {
        struct mailbox_replay_at where = {SEGMENT, BEGINS + at, true, (uint64_t)wall(NULL)};
        struct mailbox_rec r;
        CHECK(mailbox_rec_next(bytes_of(shop->journal, shop->written), &at, &r) == ERR_OK);
        CHECK(mailbox_replay_record(shard, &r, &where, NULL) == ERR_OK);
    }
    return mailbox_replay_end(shard, cfg->now);
}

void mailbox_log_close(struct mailbox_log *g)
{
    (void)g;
}

enum err mailbox_log_commit(struct mailbox_log *g, struct mailbox_now now)
{
    struct mailbox_shard *s = g->shard;
    size_t at = shop->written;
    (void)now;
    CHECK(at + s->group.n <= sizeof shop->journal);
    mailbox_rec_seal(&s->group);
    shop->writing = true;
    device_works();
    memcpy(shop->journal + at, s->group.p, s->group.n);
    shop->written += s->group.n;
    device_works();
    shop->writing = false;
    mailbox_shard_committed(s, SEGMENT, BEGINS + at);
    return ERR_OK;
}

bool mailbox_log_has_room(const struct mailbox_log *g)
{
    (void)g;
    return true;
}

enum err mailbox_log_read(struct mailbox_log *g, uint32_t segment, uint32_t offset8, uint32_t length64,
                          uint8_t *into, struct mailbox_rec *out)
{
    size_t at = 0, from = (size_t)offset8 * 8 - (segment ? BEGINS : 0), n = (size_t)length64 * 64,
           end = segment ? shop->written : g->shard->group.n;
    n = end - from < n ? end - from : n;
    memcpy(into, (segment ? shop->journal : g->shard->group.p) + from, n);
    return mailbox_rec_next_trusted(bytes_of(into, n), &at, out);
}

enum err mailbox_log_read_key(struct mailbox_log *g, const struct mailbox_entry *e, struct mailbox_rec *out)
{
    (void)g, (void)e, (void)out;
    UNREACHABLE();
}

void mailbox_log_shard_dir(char out[STORE_PATH_MAX], const char *dir, uint16_t shard)
{
    (void)dir, (void)shard;
    out[0] = 0;
}

size_t store_journal_segments(struct store_journal *j, struct store_segment *out, size_t max)
{
    (void)j, (void)out, (void)max;
    return 1;
}

bool store_journal_wants_spare(const struct store_journal *j)
{
    (void)j;
    return false;
}

enum err store_journal_adopt_spares(struct store_journal *j)
{
    (void)j;
    return ERR_OK;
}

enum err store_journal_prepare_spare(struct store_journal *j)
{
    (void)j;
    UNREACHABLE();
}

enum err store_disk_mkdirs(struct store_disk *d, const char *path)
{
    (void)d, (void)path;
    return ERR_OK;
}

enum err mailbox_tail_resize(struct mailbox_tail *t, size_t cap)
{
    (void)t, (void)cap;
    return ERR_OK;
}

const char *store_sink_replica_why(const struct store_sink *s)
{
    (void)s;
    return "";
}

/* ---- what a model does without ---- */

void mailbox_tell(struct mailbox *mb, uint16_t shard, const struct mailbox_event *ev)
{
    (void)mb, (void)shard, (void)ev;
}

enum err mailbox_worker__elsewhere(struct mailbox_lane *l, int64_t wait_most_us)
{
    (void)l, (void)wait_most_us;
    UNREACHABLE();
}

void mailbox_worker__operate(struct mailbox_lane *l, struct mailbox_now now, struct mailbox_job *j)
{
    (void)l, (void)now, (void)j;
    UNREACHABLE();
}

void mailbox_worker__reclaim(struct mailbox_lane *l, struct mailbox_now now)
{
    (void)l, (void)now;
}

void mailbox_worker__reclaimed(struct mailbox_lane *l)
{
    (void)l;
}

struct obs_log *svc_log(const struct svc *s)
{
    (void)s;
    return NULL;
}

struct obs_tracer *svc_tracer(const struct svc *s)
{
    (void)s;
    return NULL;
}

struct store_disk *svc_disk(const struct svc *s)
{
    (void)s;
    return NULL;
}

const char *svc_data_dir(const struct svc *s)
{
    (void)s;
    return "";
}

bool svc_amnesia(const struct svc *s)
{
    (void)s;
    return false;
}

struct net_server *svc_server(const struct svc *s)
{
    (void)s;
    return NULL;
}

void obs_span_begin(struct obs_tracer *t, const struct obs_trace *parent, const char *name,
                    struct obs_span *out)
{
    (void)t, (void)parent, (void)name, (void)out;
}

void obs_span_u64(struct obs_span *s, const char *key, uint64_t value)
{
    (void)s, (void)key, (void)value;
}

void obs_span_end(struct obs_tracer *t, struct obs_span *s, enum err err)
{
    (void)t, (void)s, (void)err;
}

void obs_hist_observe_n(struct obs_hist *h, double value, uint64_t n)
{
    (void)h, (void)value, (void)n;
}

/* Jobs come from no event loop: they go straight into the queue (model.net.outbox has the other way). */
struct net_loop *net_loop_current(void)
{
    return NULL;
}

unsigned net_server_threads(const struct net_server *s)
{
    (void)s;
    UNREACHABLE();
}

struct net_loop *net_server_loop(struct net_server *s, unsigned i)
{
    (void)s, (void)i;
    UNREACHABLE();
}

void net_outbox_put(struct net_outbox *o, unsigned door, void *item)
{
    (void)o, (void)door, (void)item;
    UNREACHABLE();
}

enum err net_outbox_create(struct net_server *server, struct rt_chan *to, enum rt_policy policy,
                           void (*refused)(void *item, enum err why, void *ctx), void *ctx,
                           struct net_outbox **out)
{
    (void)server, (void)to, (void)policy, (void)refused, (void)ctx, (void)out;
    UNREACHABLE();
}

void net_outbox_destroy(struct net_outbox *o)
{
    (void)o;
}

void net_loop_cork(void)
{
}

void net_loop_uncork(void)
{
}

/* Of batches for streams, whose calls have no loop. No envelope leaves before its group is written. */
void net_loop_post(struct net_loop *loop, struct net_msg *m)
{
    struct mailbox_batch *b = (struct mailbox_batch *)((char *)m - offsetof(struct mailbox_batch, msg));
    CHECK(loop == NULL && shop->lane.shard.group.n == 0);
    b->next = shop->posted;
    shop->posted = b;
}

/* ---- the shop ---- */

#define TOPIC STR("t")
static const char payload[] = "x";

void shop_open(void)
{
    shop = calloc(1, sizeof *shop);
    CHECK(shop != NULL);
    shop->config = (struct mailbox_config){.ready_shards = 1,
                                           .shard_capacity = 8,
                                           .shard_bytes = 1 << 20,
                                           .topic_share = 100,
                                           .global_inflight = 8,
                                           .index_max = 1024,
                                           .max_topics = 8,
                                           .max_waiters = 8,
                                           .max_streams = 8,
                                           .max_attempts = 3,
                                           .t_replay = 300000,
                                           .default_visibility = 5000,
                                           .lazy_flush = 50,
                                           .fair_quantum = 16384,
                                           .retention_ready = 604800000,
                                           .retention_dlq = 604800000,
                                           .scanner_min_wake = 50,
                                           .scanner_max_wake = 500,
                                           .storage_max_bytes = UINT64_C(1) << 40};
    struct mailbox *mb = &shop->mb;
    mb->clock = &model_clock;
    mb->shards = mb->lanes_made = 1;
    mb->workers = 1;
    mb->segment_bytes = 4 << 20;
    mb->lanes = &shop->lane;
    rt_bell_init(&mb->scan);
    mailbox_quotas_init(&mb->quotas);
    CHECK(mailbox_lane_open(mb, &shop->lane, 0) == ERR_OK);
    shop->answered = rt_chan_create(
        &(struct rt_chan_spec){.name = "answered", .capacity = SHOP_JOBS, .policy = RT_REJECT});
    CHECK(shop->answered != NULL);
}

static void read_by_nobody(void *item, void *arg)
{
    (void)item, (void)arg;
}

void shop_close(void)
{
    for (unsigned i = 0; i < SHOP_JOBS; i++) {
        for (uint32_t k = 0; k < shop->jobs[i].recv.bodies_n; k++)
            free(shop->jobs[i].recv.bodies[k]);
        free(shop->jobs[i].recv.bodies);
        free(shop->jobs[i].recv.got);
    }
    while (shop->posted) {
        struct mailbox_batch *b = shop->posted;
        shop->posted = b->next;
        for (uint32_t k = 0; k < b->n; k++)
            free(b->bodies[k]);
        free(b->bodies);
        free(b->got);
        free(b);
    }
    mailbox_lane_close(&shop->lane);
    mailbox_quotas_fini(&shop->mb.quotas);
    rt_chan_destroy(shop->answered, read_by_nobody, NULL);
    free(shop);
    shop = NULL;
}

void shop_restart(void)
{
    mailbox_lane_unload(&shop->lane);
    CHECK(mailbox_lane_load(&shop->lane, NULL) == ERR_OK);
}

static void answer(struct mailbox_job *j)
{
    struct shop_job *sj = j->arg;
    CHECK(os_a32_add(&sj->answers, 1, memory_order_acq_rel) == 0); /* each job is answered once */
    CHECK(rt_chan_try_send(shop->answered, sj) == ERR_OK);
}

static struct shop_job *new_job(enum mailbox_job_kind kind)
{
    CHECK(shop->jobs_n < SHOP_JOBS);
    struct shop_job *sj = &shop->jobs[shop->jobs_n++];
    sj->job = (struct mailbox_job){
        .magic = MAILBOX_JOB_MAGIC, .kind = kind, .lane = &shop->lane, .done = answer, .arg = sj};
    mailbox_topic_hash(TOPIC, &sj->hash);
    sj->job.fair.key = 1;
    sj->job.fair.cost = 256;
    return sj;
}

struct shop_job *shop_send(const char *key)
{
    static const uint8_t attrs[4];
    struct shop_job *sj = new_job(MAILBOX_JOB_SEND);
    struct mailbox_send_item *it = &sj->send;
    it->topic_hash = sj->hash;
    it->in = (struct mailbox_send){.topic = TOPIC,
                                   .idem_key = str_from_c(key),
                                   .topic_hash = &sj->hash,
                                   .attrs = bytes_of(attrs, 4),
                                   .payload = bytes_of(payload, 1)};
    mailbox_dedup_digest(it->in.topic, it->in.idem_key, &it->in.digest);
    sha256_of(payload, 1, &it->in.payload_hash);
    sha256_of(attrs, 4, &it->in.attrs_hash);
    sj->job.send = it;
    return sj;
}

struct shop_job *shop_recv(int64_t wait_ms)
{
    struct shop_job *sj = new_job(MAILBOX_JOB_RECV);
    sj->recv = (struct mailbox_recv){.topic = TOPIC,
                                     .topic_hash = sj->hash,
                                     .visibility_us = 5000000,
                                     .max = 1,
                                     .max_bytes = 1 << 20,
                                     .wait_ms = wait_ms};
    sj->job.recv = &sj->recv;
    return sj;
}

struct shop_job *shop_ack(const struct uuid *id, uint16_t attempt)
{
    struct shop_job *sj = new_job(MAILBOX_JOB_ACK);
    sj->settle.fence = (struct mailbox_fence){.msg_id = *id, .attempt = attempt};
    sj->job.settle = &sj->settle;
    return sj;
}

struct shop_job *shop_stream(void)
{
    struct shop_job *sj = new_job(MAILBOX_JOB_STREAM);
    sj->stream = (struct mailbox_stream){.call = &sj->call,
                                         .topic = TOPIC,
                                         .topic_hash = sj->hash,
                                         .visibility_us = 5000000,
                                         .credit = 4,
                                         .max_bytes = 1 << 20};
    sj->job.stream = &sj->stream;
    return sj;
}

struct shop_job *shop_stream_close(struct shop_job *opened)
{
    struct shop_job *sj = new_job(MAILBOX_JOB_STREAM_CLOSE);
    sj->job.stream = &opened->stream;
    return sj;
}

enum err shop_submit(struct shop_job *sj)
{
    enum mailbox_why why;
    return mailbox_submit(
        &sj->job, sj->job.kind == MAILBOX_JOB_ACK || sj->job.kind == MAILBOX_JOB_STREAM_CLOSE, &why);
}

void shop_wait(unsigned n)
{
    void *sj;
    for (unsigned i = 0; i < n; i++)
        CHECK(rt_chan_recv(shop->answered, deadline_never(), &sj) == ERR_OK);
}
