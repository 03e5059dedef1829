#include "services/mailbox/quota.h"

#include <stdio.h>
#include <string.h>

enum { BATCH_MESSAGES = 64, BATCH_BYTES = 1 << 20 };

struct limits {
    char tenant[MAILBOX_TENANT_MAX + 1];
    uint64_t sends, bytes, waiting; /* two a second; 0 = no limit */
};

void mailbox_quotas_init(struct mailbox_quotas *s)
{
    rt_lock_init(&s->lock, "quota", 40);
    atomic_init(&s->n, 0);
    atomic_init(&s->counts, false);
}

void mailbox_quotas_fini(struct mailbox_quotas *s)
{
    rt_lock_fini(&s->lock);
}

static const char *number(const char *p, uint64_t *out)
{
    uint64_t v = 0;
    const char *from = p;
    for (; *p >= '0' && *p <= '9' && p - from < 15; p++)
        v = v * 10 + (uint64_t)(*p - '0');
    if (p == from)
        return NULL;
    if (strncmp(p, "KiB", 3) == 0)
        v <<= 10, p += 3;
    else if (strncmp(p, "MiB", 3) == 0)
        v <<= 20, p += 3;
    *out = v;
    return *p == 0 || *p == ' ' ? p : NULL;
}

static enum err parse(const char *line, struct limits *out, char why[200])
{
    const char *p = line + strcspn(line, " ");
    size_t n = (size_t)(p - line);
    *out = (struct limits){0};
    if (n < 1 || n > MAILBOX_TENANT_MAX) {
        snprintf(why, 200, "quotas: \"%.80s\" does not begin with a tenant", line);
        return ERR_BAD_REQUEST;
    }
    memcpy(out->tenant, line, n);
    while (*(p += strspn(p, " "))) {
        const char *word = p;
        if (strncmp(p, "send_rate=", 10) == 0)
            p = number(p + 10, &out->sends);
        else if (strncmp(p, "bytes_rate=", 11) == 0)
            p = number(p + 11, &out->bytes);
        else if (strncmp(p, "max_messages=", 13) == 0)
            p = number(p + 13, &out->waiting);
        else
            p = NULL;
        if (!p) {
            snprintf(why, 200,
                     "quotas: \"%.60s\": cannot use \"%.*s\" (send_rate=N, bytes_rate=N[KiB|MiB], "
                     "max_messages=N)",
                     line, (int)strcspn(word, " ") < 60 ? (int)strcspn(word, " ") : 60, word);
            return ERR_BAD_REQUEST;
        }
    }
    return ERR_OK;
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct mailbox_quota *find(struct mailbox_quotas *s, struct str tenant) RT_REQUIRES(&s->lock)
{
    for (unsigned i = 0; i < atomic_load(&s->n); i++)
        if (str_eq_c(tenant, s->q[i].tenant))
            return &s->q[i];
    return NULL;
}

static void apply(struct mailbox_quotas *s, const struct limits *l) RT_REQUIRES(&s->lock)
{
    struct mailbox_quota *q = find(s, str_from_c(l->tenant));
    uint64_t sends = at_least(l->sends, BATCH_MESSAGES), bytes = at_least(l->bytes, BATCH_BYTES);
    if (l->waiting)
        atomic_store(&s->counts, true);
    if (q) {
        rt_bucket_configure(&q->sends, l->sends, sends);
        rt_bucket_configure(&q->bytes, l->bytes, bytes);
        atomic_store(&q->max_messages, (int64_t)l->waiting);
        return;
    }
    q = &s->q[atomic_load(&s->n)];
    memcpy(q->tenant, l->tenant, sizeof q->tenant);
    rt_bucket_init(&q->sends, l->sends, sends);
    rt_bucket_init(&q->bytes, l->bytes, bytes);
    atomic_init(&q->waiting, 0);
    atomic_init(&q->max_messages, (int64_t)l->waiting);
    atomic_fetch_add(&s->n, 1);
}

/* Tenants that are no longer listed keep their place without a limit. */
static void lift(struct mailbox_quotas *s) RT_REQUIRES(&s->lock)
{
    atomic_store(&s->counts, false);
    for (unsigned i = 0; i < atomic_load(&s->n); i++) {
        rt_bucket_configure(&s->q[i].sends, 0, BATCH_MESSAGES);
        rt_bucket_configure(&s->q[i].bytes, 0, BATCH_BYTES);
        atomic_store(&s->q[i].max_messages, 0);
    }
}

enum err mailbox_quotas_set(struct mailbox_quotas *s, const char *const *lines, size_t n, char why[200])
{
    struct limits l;
    enum err e = ERR_OK;
    for (size_t i = 0; i < n && e == ERR_OK; i++)
        e = parse(lines[i], &l, why);
    if (e != ERR_OK || !s)
        return e;
    rt_lock_take(&s->lock);
    lift(s);
    for (size_t i = 0; i < n; i++) {
        bool room = atomic_load(&s->n) < MAILBOX_QUOTAS_MAX;
        if (parse(lines[i], &l, why) == ERR_OK && (room || find(s, str_from_c(l.tenant))))
            apply(s, &l);
    }
    rt_lock_release(&s->lock);
    return ERR_OK;
}

enum err mailbox_quotas_take(struct mailbox_quotas *s, struct str tenant, uint64_t messages, uint64_t bytes,
                             int64_t now_ns)
{
    if (atomic_load_explicit(&s->n, memory_order_relaxed) == 0)
        return ERR_OK;
    bool ok = true;
    rt_lock_take(&s->lock);
    struct mailbox_quota *q = find(s, tenant);
    if (q) /* bytes first look, so that a refusal takes nothing */
        ok = rt_bucket_wait_ms(&q->bytes, bytes, now_ns) == 0 &&
             rt_bucket_take(&q->sends, messages, now_ns) && rt_bucket_take(&q->bytes, bytes, now_ns);
    rt_lock_release(&s->lock);
    return ok ? ERR_OK : ERR_RATE_LIMITED;
}

struct mailbox_quota *mailbox_quotas_find(struct mailbox_quotas *s, struct str tenant)
{
    rt_lock_take(&s->lock);
    struct mailbox_quota *q = find(s, tenant);
    rt_lock_release(&s->lock);
    return q;
}

bool mailbox_quota_take_place(struct mailbox_quota *q)
{
    int64_t most = atomic_load_explicit(&q->max_messages, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&q->waiting, 1, memory_order_relaxed) < most || most == 0)
        return true;
    mailbox_quota_give_places(q, 1);
    return false;
}

void mailbox_quota_give_places(struct mailbox_quota *q, int64_t n)
{
    atomic_fetch_sub_explicit(&q->waiting, n, memory_order_relaxed);
}
