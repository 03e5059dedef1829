/*
 * Another number of shards while the service runs, a part of the rebalancer (reshard.h says what happens to the files):
 *
 *   close   every message call is refused with 429 rebalancing; what was taken in before is worked off
 *   leave   each worker writes what it has, remembers the leases, and lets go of its shard
 *   copy    buckets that change hands are written to their new journals, and the routing is replaced
 *   return  the routing on disk, whichever it is, comes into force; workers read the shards and put the leases back
 *   open
 *
 * Between close and open nothing is lost by a crash, nor by a rebalancer that fails and comes again: it begins with `leave`.
 * A worker never runs into two layouts: the routing only changes while no shard is here, and a job that was on its way meanwhile is
 * refused by a shard that does not own its bucket.
 *
 * The number of workers is that of the start. Until the next one they share what shards there are.
 */
#include <stdlib.h>

#include "base/check.h"
#include "services/mailbox/mailbox.h"
#include "services/mailbox/reshard.h"

enum { QUIET_MS = 10000, LOOK_MS = 5, AGAIN_MS = 1000 };

static bool wanted(struct mailbox *mb, uint16_t want)
{
    struct mailbox_change *c = &mb->change;
    uint64_t version = atomic_load(&mb->rules_version);
    const char *why = NULL;
    if (want == 0 || want == mb->shards || atomic_load(&mb->draining))
        return false;
    if (c->refused == want && c->refused_version == version)
        return false; /* said already; a reload asks again */
    if (mb->replica)
        why = "several nodes share the shards";
    else if (svc_amnesia(mb->svc))
        why = "shards in memory are made to fit at the start";
    for (uint16_t i = 0; !why && i < mb->shards; i++)
        if (atomic_load(&mb->lanes[i].readonly) || atomic_load(&mb->lanes[i].disk_full))
            why = "a shard is read-only, or has no room";
    if (!why)
        return true;
    c->refused = want;
    c->refused_version = version;
    obs_log(svc_log(mb->svc), OBS_WARN, "rebalance.refused", OBS_U64("shards", mb->shards),
            OBS_U64("wanted", want), OBS_STR("why", why), OBS_END);
    return false;
}

static void close_doors(struct mailbox *mb, uint16_t want)
{
    mb->change.want = want;
    mb->change.since_ns = clock_mono_ns(mb->clock);
    atomic_store(&mb->rebalancing, true);
    obs_log(svc_log(mb->svc), OBS_INFO, "rebalance.start", OBS_U64("shards", mb->shards),
            OBS_U64("wanted", want), OBS_END);
}

static bool quiet(struct mailbox *mb)
{
    for (uint16_t i = 0; i < mb->shards; i++)
        if (atomic_load(&mb->lanes[i].jobs))
            return clock_mono_ns(mb->clock) - mb->change.since_ns > (int64_t)QUIET_MS * 1000000;
    return true;
}

/* False: the service stops meanwhile. A shard that was just coming is waited for. */
static bool leave(struct mailbox *mb, struct rt_task *self) RT_BLOCKS
{
    for (;;) {
        bool all = true;
        for (uint16_t i = 0; i < mb->lanes_made; i++) {
            struct mailbox_presence *p = &mb->lanes[i].presence;
            (void)mailbox_presence_leave(p);
            all = all && mailbox_presence_stage(p) == MAILBOX_AWAY;
        }
        if (all)
            return true;
        if (rt_task_stopping(self) || rt_task_sleep(self, deadline_in_ms(LOOK_MS)) != ERR_OK)
            return false;
    }
}

static bool go_on(void *ctx)
{
    rt_task_beat(ctx);
    return !rt_task_stopping(ctx);
}

static enum err make_lanes(struct mailbox *mb, uint16_t shards) RT_BLOCKS
{
    while (mb->lanes_made < shards) {
        struct mailbox_lane *l = &mb->lanes[mb->lanes_made];
        enum err e = mailbox_lane_init(mb, l, mb->lanes_made);
        if (e != ERR_OK) {
            mailbox_lane_close(l);
            memset(l, 0, sizeof *l);
            return e;
        }
        mailbox_presence_begin_away(&l->presence);
        mb->lanes_made++; /* from now on a worker serves it */
    }
    return ERR_OK;
}

static enum err copy(struct mailbox *mb, uint16_t want, struct rt_task *self) RT_BLOCKS
{
    struct mailbox_routing *from = malloc(sizeof *from), *to = malloc(sizeof *to);
    struct mailbox_rules *rules = malloc(sizeof *rules);
    struct mailbox_change *c = &mb->change;
    char why[200];
    enum err e =
        from && to && rules ? mailbox_rules_make(mailbox_config(mb), want, rules, why) : ERR_NO_MEMORY;
    struct mailbox_reshard r = {.disk = svc_disk(mb->svc),
                                .dir = svc_data_dir(mb->svc),
                                .instance = mb->instance,
                                .segment_bytes = mb->segment_bytes,
                                .direct = true,
                                .min_free = mailbox_config(mb)->storage_min_free,
                                .rules = rules,
                                .clock = mb->clock,
                                .now = mailbox_now(mb),
                                .go_on = go_on,
                                .ctx = self};
    if (e == ERR_OK)
        e = mailbox_routing_settle(r.disk, r.dir, from);
    if (e == ERR_OK)
        e = make_lanes(mb, want);
    if (e == ERR_OK && from->shards != want) { /* else a rebalancer that failed had come this far */
        mailbox_routing_change(from, want, to);
        e = mailbox_reshard(&r, from, to);
        c->topics = r.topics;
        c->messages = r.messages;
        c->keys = r.keys;
    }
    free(from);
    free(to);
    free(rules);
    return e;
}

/* What the disk says holds, also when the copying failed; until it says so, nothing is opened. False: the service stops meanwhile. */
static bool take_routing(struct mailbox *mb, struct rt_task *self) RT_BLOCKS
{
    struct mailbox_routing *now = malloc(sizeof *now);
    enum err e;
    while ((e = now ? mailbox_routing_settle(svc_disk(mb->svc), svc_data_dir(mb->svc), now)
                    : ERR_NO_MEMORY) != ERR_OK) {
        obs_log(svc_log(mb->svc), OBS_ERROR, "rebalance.routing", OBS_ERR(e), OBS_END);
        if (rt_task_stopping(self) || rt_task_sleep(self, deadline_in_ms(AGAIN_MS)) != ERR_OK) {
            free(now);
            return false;
        }
        if (!now)
            now = malloc(sizeof *now);
    }
    for (int b = 0; b < MAILBOX_BUCKETS; b++)
        __atomic_store_n(&mb->routing.of[b], now->of[b], __ATOMIC_RELAXED); /* event loops read it */
    mb->routing.generation = now->generation;
    mb->routing.shards = now->shards;
    mb->shards = now->shards;
    atomic_fetch_add(&mb->rules_version, 1); /* a shard's part of the bounds is another one now */
    free(now);
    return true;
}

/* False: the service stops meanwhile. A shard that cannot be read is asked for again and again: it is missed until then. */
static bool come_back(struct mailbox *mb, struct rt_task *self) RT_BLOCKS
{
    for (unsigned n = 0;; n++) {
        bool all = true;
        for (uint16_t i = 0; i < mb->shards; i++) {
            struct mailbox_lane *l = &mb->lanes[i];
            bool away = mailbox_presence_stage(&l->presence) == MAILBOX_AWAY;
            if (away && n % (AGAIN_MS / LOOK_MS) == 0) {
                if (n)
                    obs_log(svc_log(mb->svc), OBS_ERROR, "shard.unreadable", OBS_U64("shard", i),
                            OBS_ERR((enum err)atomic_load(&l->refused)), OBS_END);
                mailbox_presence_claim(&l->presence);
            }
            all = all && mailbox_presence_is_here(&l->presence);
        }
        if (all)
            return true;
        if (rt_task_stopping(self) || rt_task_sleep(self, deadline_in_ms(LOOK_MS)) != ERR_OK)
            return false;
    }
}

static void open_doors(struct mailbox *mb, enum err e)
{
    struct mailbox_change *c = &mb->change;
    for (uint16_t i = 0; i < mb->lanes_made; i++) {
        free(mb->lanes[i].leases_held);
        mb->lanes[i].leases_held = NULL;
        mb->lanes[i].leases_held_n = 0;
    }
    c->refused = e == ERR_OK ? 0 : c->want;
    c->refused_version = atomic_load(&mb->rules_version);
    obs_log(svc_log(mb->svc), e == ERR_OK ? OBS_INFO : OBS_ERROR, "rebalance.done",
            OBS_U64("shards", mb->shards), OBS_U64("topics", c->topics), OBS_U64("messages", c->messages),
            OBS_U64("keys", c->keys),
            OBS_U64("ms", (uint64_t)(clock_mono_ns(mb->clock) - c->since_ns) / 1000000), OBS_ERR(e),
            OBS_END);
    atomic_store(&mb->rebalancing, false);
}

void mailbox_change_look(struct mailbox *mb, struct rt_task *self)
{
    if (!atomic_load(&mb->rebalancing)) {
        uint16_t want = (uint16_t)mailbox_config(mb)->ready_shards;
        if (wanted(mb, want))
            close_doors(mb, want);
        return; /* spare segments are looked after while the queues run empty */
    }
    if (!quiet(mb) || !leave(mb, self))
        return;
    enum err e = copy(mb, mb->change.want, self);
    if (take_routing(mb, self) && come_back(mb, self))
        open_doors(mb, e);
}
