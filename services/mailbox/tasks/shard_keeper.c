/*
 * The shard keeper: which shards this node has (replica.h).
 *
 * Every tenth of a lease it looks at all leases with one statement: who has which shard, and which nodes live (each keeps a row of
 * its own). A node's fair share is the number of shards over the number of living nodes, the remainder going to the first names;
 * the shares add up, so whatever is free is somebody's to take. It takes what is free while it has less than its share, and gives
 * away when it has had more for a lease's time, one shard at a time. What stays free for two leases is anybody's, and stays with
 * whoever took it. A shard that became read-only here, for our disk's sake, is given to the others. Commands
 * (POST /admin/mailbox/shards/…) go before that.
 *
 * It only moves leases and stages. The worker of a shard loads and drops it; the lease is given back when the worker has dropped it.
 * Nothing rests on this task being in time: a row is stored while the epoch in the lease is ours, and only then.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rt/task.h"
#include "services/mailbox/replica.h"

enum {
    STEP_MIN_MS = 20,
    STEP_MAX_MS = 500,
    TELL_EVERY_MS = 5000,
    IDLE_MS = 1000,
    COOL_DOWN_LEASES = 3,
    ABANDONED_LEASES = 2
};

static struct deadline in_time(const struct mailbox_replica *x)
{
    return deadline_in_ms(x->timeout_ms);
}

static int64_t now_ns(const struct mailbox *mb)
{
    return clock_mono_ns(mb->clock);
}

static void node_stream(const struct mailbox_replica *x, char out[128])
{
    snprintf(out, 128, "%s/node/%s", x->stream, x->node);
}

static bool due(const struct mailbox_replica *x, int64_t now, int64_t renewed_ns)
{
    return now - renewed_ns >= x->lease_ms * 1000000 / 3;
}

/* ---- the node's own row: it lives ---- */

static enum err show_life(struct mailbox *mb) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    char stream[128];
    struct store_lease lease;
    int64_t now = now_ns(mb);
    node_stream(x, stream);
    if (x->node_epoch && !due(x, now, x->node_renewed_ns))
        return ERR_OK;
    enum err e = x->node_epoch ? store_pg_lease_renew(x->db, stream, x->node_epoch, x->lease_ms, in_time(x))
                               : ERR_FENCED;
    if (e == ERR_FENCED) {
        if (x->node_epoch)
            obs_log(svc_log(mb->svc), OBS_ERROR, "replica_node_taken", OBS_STR("node", x->node),
                    OBS_STR("why", "another process has the same replica.node"), OBS_END);
        e = store_pg_lease_found(x->db, stream, "", in_time(x), &lease);
        if (e == ERR_OK)
            e = store_pg_lease_take(x->db, stream, x->node, x->place, x->lease_ms, true, in_time(x),
                                    &x->node_epoch);
    }
    if (e == ERR_OK)
        x->node_renewed_ns = now;
    return e;
}

/* ---- looking ---- */

struct view {
    struct mailbox *mb;
    struct store_lease lease[MAILBOX_SHARDS_MAX];
    unsigned live, rank; /* rank: living nodes whose names come before ours */
    uint64_t print;
};

static void see_node(struct view *v, const char *name, const struct store_lease *lease)
{
    const struct mailbox_replica *x = v->mb->replica;
    bool self = strcmp(name, x->node) == 0;
    if (lease->left_ms <= 0 && !self)
        return;
    v->live++;
    v->rank += strcmp(name, x->node) < 0;
    for (const char *p = name; *p; p++)
        v->print = (v->print ^ (uint8_t)*p) * UINT64_C(1099511628211);
    v->print ^= v->live;
}

static void see(void *ctx, const char *stream, const struct store_lease *lease)
{
    struct view *v = ctx;
    const char *rest = stream + strlen(v->mb->replica->stream) + 1;
    char *end;
    if (strncmp(rest, "node/", 5) == 0) {
        see_node(v, rest + 5, lease);
        return;
    }
    unsigned long shard = strtoul(rest, &end, 10);
    if (end != rest && !*end && shard < v->mb->shards)
        v->lease[shard] = *lease;
}

static void tell_owner(struct mailbox_replica *x, uint16_t shard, const struct store_lease *lease)
{
    struct mailbox_owner o = {.epoch = lease->epoch, .left_ms = lease->left_ms};
    if (lease->left_ms > 0) {
        const char *space = strchr(lease->url, ' ');
        size_t n = space ? (size_t)(space - lease->url) : strlen(lease->url);
        snprintf(o.node, sizeof o.node, "%s", lease->holder);
        snprintf(o.url, sizeof o.url, "%.*s", (int)n, lease->url);
        snprintf(o.oap, sizeof o.oap, "%s", space ? space + 1 : "");
    }
    rt_lock_take(&x->lock);
    x->owner[shard] = o;
    rt_lock_release(&x->lock);
}

static enum err look(struct mailbox *mb, struct view *v) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    char prefix[MAILBOX_STREAM_MAX + 2];
    *v = (struct view){.mb = mb, .print = UINT64_C(14695981039346656037)};
    snprintf(prefix, sizeof prefix, "%s/", x->stream);
    enum err e = store_pg_leases(x->db, prefix, in_time(x), see, v);
    if (e != ERR_OK)
        return e;
    for (uint16_t i = 0; i < mb->shards; i++)
        tell_owner(x, i, &v->lease[i]);
    if (v->print != x->live_print) {
        x->live_print = v->print;
        x->live_since_ns = now_ns(mb);
        obs_log(svc_log(mb->svc), OBS_INFO, "replica_nodes", OBS_U64("live", v->live), OBS_END);
    }
    unsigned live = v->live ? v->live : 1;
    atomic_store(&x->live, live);
    atomic_store(&x->share, mb->shards / live + (v->rank < mb->shards % live ? 1u : 0u));
    return ERR_OK;
}

/* ---- one shard ---- */

static void lose(struct mailbox_lane *l)
{
    if (mailbox_presence_lose(&l->presence))
        obs_log(svc_log(l->mb->svc), OBS_WARN, "shard.fenced", OBS_U64("shard", l->no),
                OBS_U64("epoch", l->tenure.epoch), OBS_END);
}

static enum err renew(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    char stream[MAILBOX_SHARD_STREAM];
    int64_t now = now_ns(mb);
    if (!due(x, now, l->tenure.renewed_ns) || mailbox_presence_is_lost(&l->presence))
        return ERR_OK;
    mailbox_replica_stream(x, l->no, stream);
    enum err e = store_pg_lease_renew(x->db, stream, l->tenure.epoch, x->lease_ms, in_time(x));
    if (e == ERR_OK) {
        l->tenure.renewed_ns = now;
        atomic_store(&l->lease_until_ns, now + x->lease_ms * 1000000);
    } else if (e == ERR_FENCED) {
        lose(l);
        e = ERR_OK;
    }
    return e;
}

/* The worker has dropped it, or could not load it: the next one may have it at once. */
static enum err give_back(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    char stream[MAILBOX_SHARD_STREAM];
    enum err e = ERR_OK;
    mailbox_replica_stream(x, l->no, stream);
    if (!mailbox_presence_is_lost(&l->presence))
        e = store_pg_lease_renew(x->db, stream, l->tenure.epoch, 0, in_time(x));
    if (e != ERR_OK && e != ERR_FENCED)
        return e;
    obs_log(svc_log(mb->svc), OBS_INFO, "shard.away", OBS_U64("shard", l->no),
            OBS_U64("epoch", l->tenure.epoch), OBS_END);
    int refused = atomic_exchange(&l->refused, ERR_OK);
    if (refused == ERR_CONFLICT) /* our copy knows what PostgreSQL does not: somebody has to decide */
        l->tenure.not_before_ns = INT64_MAX;
    else if (refused)
        l->tenure.not_before_ns = now_ns(mb) + COOL_DOWN_LEASES * x->lease_ms * 1000000;
    l->tenure.epoch = 0;
    l->tenure.pinned = false;
    mailbox_presence_forget_loss(&l->presence);
    atomic_store(&l->lease_until_ns, 0);
    return ERR_OK;
}

static enum err take(struct mailbox *mb, struct mailbox_lane *l, bool anyway, bool keep) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    char stream[MAILBOX_SHARD_STREAM];
    uint64_t epoch;
    int64_t now = now_ns(mb);
    mailbox_replica_stream(x, l->no, stream);
    enum err e =
        store_pg_lease_take(x->db, stream, x->node, x->place, x->lease_ms, anyway, in_time(x), &epoch);
    if (e == ERR_LOCKED)
        return ERR_OK; /* somebody was faster */
    if (e != ERR_OK)
        return e;
    l->tenure.epoch = epoch;
    l->tenure.renewed_ns = now;
    l->tenure.pinned = keep;
    l->tenure.free_since_ns = 0;
    l->tenure.trimmed = 0;
    atomic_store(&l->epoch, epoch);
    atomic_store(&l->lease_until_ns, now + x->lease_ms * 1000000);
    atomic_store(&l->trim_to, 0);
    atomic_store(&l->given_up, false);
    obs_counter_inc(obs_counter(mb->m[MAILBOX_M_replica_claims]));
    mailbox_presence_claim(&l->presence); /* the worker reads the stage before anything else */
    return ERR_OK;
}

/*
 * A write to our disk failed, or bytes on it are wrong. Alone we would stay read-only; here others have a disk that works, and the
 * rows. We do not try it again by ourselves: a command or a restart does.
 */
static void give_up(struct mailbox *mb, struct mailbox_lane *l)
{
    if (!atomic_load(&l->readonly) || atomic_load(&mb->replica->live) < 2 ||
        !mailbox_presence_leave(&l->presence))
        return;
    l->tenure.not_before_ns = INT64_MAX;
    atomic_store(&l->given_up, true);
    obs_log(svc_log(mb->svc), OBS_ERROR, "shard.given_up", OBS_U64("shard", l->no),
            OBS_U64("epoch", l->tenure.epoch), OBS_END);
}

/* Rows that no node needs any more: their segment's index was dropped here. */
static enum err trim(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    uint64_t to = atomic_load(&l->trim_to);
    char stream[MAILBOX_SHARD_STREAM];
    if (to <= l->tenure.trimmed || !mailbox_presence_is_here(&l->presence))
        return ERR_OK;
    mailbox_replica_stream(mb->replica, l->no, stream);
    enum err e = store_pg_trim(mb->replica->db, stream, l->tenure.epoch, to, in_time(mb->replica));
    if (e == ERR_OK)
        l->tenure.trimmed = to;
    return e;
}

/* ---- all of them ---- */

static enum err tend(struct mailbox *mb) RT_BLOCKS
{
    enum err e = ERR_OK;
    uint32_t here = 0;
    for (uint16_t i = 0; e == ERR_OK && i < mb->shards; i++) {
        struct mailbox_lane *l = &mb->lanes[i];
        enum mailbox_stage stage = mailbox_presence_stage(&l->presence);
        here += stage == MAILBOX_HERE;
        if (!l->tenure.epoch)
            continue;
        give_up(mb, l);
        e = stage == MAILBOX_AWAY ? give_back(mb, l) : renew(mb, l);
        if (e == ERR_OK)
            e = trim(mb, l);
    }
    atomic_store(&mb->replica->here, here);
    return e;
}

static unsigned held(const struct mailbox *mb, bool *out_going)
{
    unsigned n = 0;
    *out_going = false;
    for (uint16_t i = 0; i < mb->shards; i++) {
        bool going = mailbox_presence_stage(&mb->lanes[i].presence) == MAILBOX_GOING;
        n += mb->lanes[i].tenure.epoch && !going;
        *out_going = *out_going || going;
    }
    return n;
}

/* Whoever's share it is does not take it: it cannot, or somebody told it not to. Looked at for so long, it is anybody's. */
static bool abandoned(struct mailbox *mb, struct mailbox_lane *l, bool is_free)
{
    int64_t now = now_ns(mb);
    if (!is_free)
        l->tenure.free_since_ns = 0;
    else if (!l->tenure.free_since_ns)
        l->tenure.free_since_ns = now;
    return is_free && now - l->tenure.free_since_ns > ABANDONED_LEASES * mb->replica->lease_ms * 1000000;
}

static enum err claim(struct mailbox *mb, const struct view *v) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    uint64_t asked = atomic_load(&x->want_claim);
    bool going, rebalance = mailbox_config(mb)->replica_rebalance;
    unsigned have = held(mb, &going), share = rebalance ? atomic_load(&x->share) : mb->shards;
    enum err e = ERR_OK;
    for (uint16_t i = 0; e == ERR_OK && i < mb->shards; i++) {
        struct mailbox_lane *l = &mb->lanes[i];
        const struct store_lease *lease = &v->lease[i];
        bool wanted = asked >> i & 1;
        bool is_free = lease->left_ms <= 0 || strcmp(lease->holder, x->node) == 0;
        if (l->tenure.epoch && wanted && mailbox_presence_is_here(&l->presence)) {
            l->tenure.pinned = true;
            atomic_fetch_and(&x->want_claim, ~(UINT64_C(1) << i));
        }
        if (l->tenure.epoch)
            continue;
        bool nobodys = abandoned(mb, l, is_free);
        if (!wanted && (!is_free || (have >= share && !nobodys) || now_ns(mb) < l->tenure.not_before_ns))
            continue;
        e = take(mb, l, wanted, wanted || (nobodys && have >= share));
        if (wanted && e == ERR_OK)
            atomic_fetch_and(&x->want_claim,
                             ~(UINT64_C(1) << i)); /* once: it may turn out that it cannot be loaded */
        have += l->tenure.epoch != 0;
    }
    return e;
}

static void release(struct mailbox *mb)
{
    struct mailbox_replica *x = mb->replica;
    uint64_t asked = atomic_exchange(&x->want_release, 0);
    bool going, settled = now_ns(mb) - x->live_since_ns > x->lease_ms * 1000000;
    for (uint16_t i = 0; asked && i < mb->shards; i++) {
        if (asked >> i & 1 && mailbox_presence_leave(&mb->lanes[i].presence))
            mb->lanes[i].tenure.not_before_ns = now_ns(mb) + COOL_DOWN_LEASES * x->lease_ms * 1000000;
    }
    if (held(mb, &going) <= atomic_load(&x->share) || going || !settled ||
        !mailbox_config(mb)->replica_rebalance)
        return;
    for (uint16_t i = mb->shards; i-- > 0;)
        if (!mb->lanes[i].tenure.pinned && mailbox_presence_leave(&mb->lanes[i].presence))
            return;
}

static void tell_touch(struct mailbox *mb, enum err e, int64_t began)
{
    struct mailbox_replica *x = mb->replica;
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_replica_connected]), e == ERR_OK);
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_replica_shards]), atomic_load(&x->here));
    obs_gauge_set(obs_gauge(mb->m[MAILBOX_M_replica_nodes]), atomic_load(&x->live));
    if (e == ERR_OK)
        atomic_store(&x->in_touch_ns, began);
    else if (began - x->told_ns > INT64_C(1000000) * TELL_EVERY_MS) {
        x->told_ns = began;
        obs_log(svc_log(mb->svc), OBS_WARN, "replica_lost", OBS_ERR(e), OBS_STR("why", store_pg_why(x->db)),
                OBS_END);
    }
    rt_lock_take(&x->lock);
    snprintf(x->why, sizeof x->why, "%s", e == ERR_OK ? "" : store_pg_why(x->db));
    rt_lock_release(&x->lock);
}

static void step(struct mailbox *mb) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    struct view *v = calloc(1, sizeof *v);
    int64_t began = now_ns(mb);
    enum err e = v ? store_pg_connect(x->db, in_time(x)) : ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = show_life(mb);
    if (e == ERR_OK)
        e = tend(mb);
    if (e == ERR_OK)
        e = look(mb, v);
    if (e == ERR_OK && !atomic_load(&mb->draining))
        e = claim(mb, v);
    if (e == ERR_OK && !atomic_load(&mb->draining))
        release(mb);
    for (uint16_t i = 0; e != ERR_OK && i < mb->shards; i++)
        mb->lanes[i].tenure.free_since_ns = 0; /* we were not looking */
    free(v);
    tell_touch(mb, e, began);
}

/* The workers have ended: everything is free for the others at once. */
static void leave(struct mailbox *mb) RT_BLOCKS
{
    struct mailbox_replica *x = mb->replica;
    char stream[128];
    enum err e = ERR_OK;
    for (uint16_t i = 0; e == ERR_OK && i < mb->shards; i++)
        if (mb->lanes[i].tenure.epoch)
            e = give_back(mb, &mb->lanes[i]);
    node_stream(x, stream);
    if (e == ERR_OK && x->node_epoch)
        e = store_pg_lease_renew(x->db, stream, x->node_epoch, 0, in_time(x));
    obs_log(svc_log(mb->svc), e == ERR_OK ? OBS_INFO : OBS_WARN, "replica_left", OBS_ERR(e), OBS_END);
}

enum err mailbox_shard_keeper_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    while (!rt_task_stopping(self)) {
        int64_t rest = IDLE_MS;
        if (mb->replica) {
            step(mb);
            rest = mb->replica->lease_ms / 10;
            rest = rest < STEP_MIN_MS ? STEP_MIN_MS : rest > STEP_MAX_MS ? STEP_MAX_MS : rest;
        }
        rt_task_beat(self);
        if (rt_task_sleep(self, deadline_in_ms(rest)) != ERR_OK)
            break;
    }
    if (mb->replica && !rt_task_canceled(self))
        leave(mb);
    return ERR_OK;
}
