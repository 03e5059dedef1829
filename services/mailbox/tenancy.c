#include "services/mailbox/tenancy.h"

#include "services/mailbox/mailbox.h"

/* The tenant's line; one that was found stays. */
static struct mailbox_quota *quota_of(struct mailbox_lane *l, struct mailbox_tenant *t)
{
    if (!t->note && mailbox_quotas_lines(&l->mb->quotas) > 0)
        t->note = mailbox_quotas_find(&l->mb->quotas, mailbox_tenant_name(t));
    return t->note;
}

struct mailbox_quota *mailbox_tenancy_take(struct mailbox_lane *l, struct mailbox_send_item *it)
{
    it->in.over_quota = false;
    if (!mailbox_quotas_count_messages(&l->mb->quotas))
        return NULL;
    const struct mailbox_topic *topic =
        mailbox_topics_find(&l->shard.topics, it->in.topic_hash, it->in.topic);
    struct mailbox_quota *q = topic && topic->tenant ? quota_of(l, topic->tenant)
                                                     : mailbox_quotas_find(&l->mb->quotas, it->in.tenant);
    if (!q)
        return NULL;
    it->in.over_quota = !mailbox_quota_take_place(q);
    return it->in.over_quota ? NULL : q;
}

void mailbox_tenancy_sent(struct mailbox_lane *l, const struct mailbox_send_item *it,
                          struct mailbox_quota *taken)
{
    if (!taken)
        return;
    if (it->err != ERR_OK || it->sent.duplicate) {
        mailbox_quota_give_places(taken, 1);
        return;
    }
    struct mailbox_tenant *t = mailbox_shard_topic_of(&l->shard, it->sent.entry)->tenant;
    t->note = taken;
    t->told++;
}

static void tell(struct mailbox_lane *l, struct mailbox_tenant *t)
{
    struct mailbox_quota *q = quota_of(l, t);
    if (!q)
        return;
    mailbox_quota_give_places(q, (int64_t)t->told - (int64_t)t->waiting);
    t->told = t->waiting;
}

void mailbox_tenancy_tell(struct mailbox_lane *l)
{
    struct mailbox_tenants *ts = &l->shard.tenants;
    unsigned lines = mailbox_quotas_lines(&l->mb->quotas);
    struct mailbox_tenant *t;
    void *value;
    for (size_t at = 0;
         lines != l->quota_lines_seen && ts->by_name.slots && map_next(&ts->by_name, &at, NULL, &value);)
        tell(l, value);
    l->quota_lines_seen = lines;
    while ((t = mailbox_tenants_changed(ts)) != NULL)
        tell(l, t);
}

void mailbox_tenancy_forget(struct mailbox_lane *l)
{
    const struct mailbox_tenants *ts = &l->shard.tenants;
    void *value;
    for (size_t at = 0; ts->by_name.slots && map_next(&ts->by_name, &at, NULL, &value);) {
        struct mailbox_tenant *t = value;
        if (t->note)
            mailbox_quota_give_places(t->note, t->told);
        t->told = 0;
    }
    l->quota_lines_seen = 0;
}
