/* What others see of a lane: gauges as atomics after every turn, counters as differences, events on the bus. */
#include "services/mailbox/tasks/worker_internal.h"
#include "services/mailbox/tenancy.h"

void mailbox_worker__publish(struct mailbox_lane *l)
{
    const struct mailbox_shard *s = &l->shard;
    mailbox_tenancy_tell(l);
    mailbox_lane_count_leases(l);
    for (int st = 0; st < MAILBOX_STATES; st++)
        atomic_store_explicit(&l->count[st], s->count[st], memory_order_relaxed);
    atomic_store_explicit(&l->topics, s->topics.count, memory_order_relaxed);
    atomic_store_explicit(&l->waiters, s->waiters, memory_order_relaxed);
    atomic_store_explicit(&l->open_streams, s->open_streams, memory_order_relaxed);
    atomic_store_explicit(&l->entries, s->slabs.live, memory_order_relaxed);
    atomic_store_explicit(&l->reorder_depth, s->reorder_depth_max, memory_order_relaxed);
    int64_t due = mailbox_shard_next_due(s),
            before = atomic_load_explicit(&l->next_due_us, memory_order_relaxed); /* ours */
    atomic_store_explicit(&l->next_due_us, due, memory_order_release); /* the scanner's acquire */
    if (due < before)
        rt_bell_ring(&l->mb->scan); /* it may sleep longer than that */
}

static void grow(struct obs_family *f, const char *class_name, uint64_t now, uint64_t *seen)
{
    if (now == *seen)
        return;
    obs_counter_add(OBS_COUNTER_OF(f, class_name), now - *seen);
    *seen = now;
}

static void count_attempts(struct obs_hist *h, const struct mailbox_class_stats *s,
                           struct mailbox_class_stats *seen)
{
    for (unsigned a = 1; a < sizeof s->attempts_at_ack / sizeof *s->attempts_at_ack; a++) {
        obs_hist_observe_n(h, a, s->attempts_at_ack[a] - seen->attempts_at_ack[a]);
        seen->attempts_at_ack[a] = s->attempts_at_ack[a];
    }
}

void mailbox_worker__count_up(struct mailbox_lane *l)
{
    struct obs_family **m = l->mb->m;
    uint64_t live = 0;
    for (uint32_t k = 0; k < l->shard.segment_n; k++)
        live += l->shard.segment_use[k].waiting_bytes;
    atomic_store_explicit(&l->live_bytes, live, memory_order_relaxed);
    for (uint8_t c = 0; c < l->rules.policies.n; c++) {
        const struct mailbox_class_stats *s = &l->shard.stats.of[c];
        struct mailbox_class_stats *p = &l->published.of[c];
        const char *name = l->rules.policies.p[c].class_name;
        grow(m[MAILBOX_M_enqueued], name, s->enqueued, &p->enqueued);
        grow(m[MAILBOX_M_duplicates], name, s->duplicates, &p->duplicates);
        grow(m[MAILBOX_M_delivered], name, s->delivered, &p->delivered);
        grow(m[MAILBOX_M_redelivered], name, s->redelivered, &p->redelivered);
        if (s->acked != p->acked)
            count_attempts(OBS_HIST_OF(m[MAILBOX_M_attempts], name), s, p);
        grow(m[MAILBOX_M_acked], name, s->acked, &p->acked);
        grow(m[MAILBOX_M_nacked], name, s->nacked, &p->nacked);
        grow(m[MAILBOX_M_lease_expired], name, s->lease_expired, &p->lease_expired);
        for (int cause = 1; cause < MAILBOX_CAUSE_COUNT; cause++) {
            if (s->dlq[cause] == p->dlq[cause])
                continue;
            obs_counter_add(
                OBS_COUNTER_OF(m[MAILBOX_M_dlq], name, mailbox_cause_name((enum mailbox_cause)cause)),
                s->dlq[cause] - p->dlq[cause]);
            p->dlq[cause] = s->dlq[cause];
        }
    }
    for (int c = 0; c < MAILBOX_CLASSES_MAX; c++)
        atomic_store_explicit(&l->oldest_ready_us[c], l->shard.oldest_ready_us[c], memory_order_relaxed);
    const struct mailbox_stats *s = &l->shard.stats;
    struct mailbox_stats *p = &l->published;
    for (int cause = 1; cause < MAILBOX_CAUSE_COUNT; cause++) {
        const char *name = mailbox_cause_name((enum mailbox_cause)cause);
        grow(m[MAILBOX_M_dlq_reprocessed], name, s->reprocessed[cause], &p->reprocessed[cause]);
        grow(m[MAILBOX_M_dlq_purged], name, s->purged[cause], &p->purged[cause]);
    }
    if (s->retired != p->retired) /* one line for all of them: there may be thousands */
        obs_log(svc_log(l->mb->svc), OBS_INFO, "dlq.purge", OBS_U64("shard", l->no),
                OBS_U64("purged", s->retired - p->retired), OBS_STR("why", "retention.dlq"), OBS_END);
    p->retired = s->retired;
    grow(m[MAILBOX_M_fence], "ack", s->stale_ack, &p->stale_ack);
    grow(m[MAILBOX_M_fence], "nack", s->stale_nack, &p->stale_nack);
    grow(m[MAILBOX_M_fence], "extend", s->stale_extend, &p->stale_extend);
}

/* Names of topics are the callers' affair: only who debugs sees them. */
static void log_topic(struct mailbox_lane *l, const struct mailbox_event *ev)
{
    struct obs_log *lg = svc_log(l->mb->svc);
    const char *event = ev->kind == MAILBOX_EV_TOPIC_CREATED ? "topic.created" : "topic.forgotten";
    if (obs_log_enabled(lg, OBS_DEBUG))
        obs_log(lg, OBS_INFO, event, OBS_U64("shard", l->no),
                OBS_STR("topic", str_of(ev->topic, ev->topic_len)), OBS_END);
    else
        obs_log(lg, OBS_INFO, event, OBS_U64("shard", l->no), OBS_END);
}

void mailbox_worker__tell_events(struct mailbox_lane *l)
{
    for (uint32_t i = 0; i < l->shard.events_n; i++) {
        struct mailbox_event *ev = &l->shard.events[i];
        if (ev->kind == MAILBOX_EV_DLQ_MOVED) {
            char id[UUID_CHARS];
            uuid_format(&ev->msg_id, id);
            obs_log(svc_log(l->mb->svc), OBS_INFO, "dlq.move", OBS_STR("msg_id", id),
                    OBS_STR("cause", mailbox_cause_name((enum mailbox_cause)ev->cause)),
                    OBS_U64("attempt", ev->attempt), OBS_END);
        }
        if (ev->kind == MAILBOX_EV_TOPIC_CREATED || ev->kind == MAILBOX_EV_TOPIC_FORGOTTEN)
            log_topic(l, ev);
        mailbox_tell(l->mb, l->no, ev);
    }
    l->shard.events_n = 0;
}
