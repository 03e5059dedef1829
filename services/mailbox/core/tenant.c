#include "services/mailbox/core/tenant.h"

#include <stdlib.h>

#include "base/check.h"

void mailbox_tenants_init(struct mailbox_tenants *ts)
{
    *ts = (struct mailbox_tenants){0};
}

static bool free_one(struct bytes key, void *value, void *arg)
{
    (void)key;
    (void)arg;
    free(value);
    return true;
}

void mailbox_tenants_fini(struct mailbox_tenants *ts)
{
    if (ts->by_name.slots)
        map_sweep(&ts->by_name, free_one, NULL);
    map_fini(&ts->by_name);
    *ts = (struct mailbox_tenants){0};
}

struct mailbox_tenant *mailbox_tenants_get(struct mailbox_tenants *ts, struct str name)
{
    if (name.n == 0 || name.n > MAILBOX_TENANT_MAX)
        name = STR(MAILBOX_TENANT_DEFAULT);
    struct mailbox_tenant *t = ts->by_name.slots ? map_get(&ts->by_name, bytes_of(name.p, name.n)) : NULL;
    if (t || map_count(&ts->by_name) >= MAILBOX_TENANTS_MAX)
        return t;
    if (!(t = calloc(1, sizeof *t + name.n)))
        return NULL;
    t->name_n = (uint8_t)name.n;
    memcpy(t->name, name.p, name.n);
    if (map_add(&ts->by_name, bytes_of(t->name, name.n), t) != ERR_OK) {
        free(t);
        return NULL;
    }
    return t;
}

void mailbox_tenants_count(struct mailbox_tenants *ts, struct mailbox_tenant *t, int by)
{
    CHECK(by >= 0 || t->waiting >= (uint32_t)-by);
    t->waiting += (uint32_t)by;
    if (t->changed)
        return;
    t->changed = true;
    t->changed_next = ts->changed;
    ts->changed = t;
}

struct mailbox_tenant *mailbox_tenants_changed(struct mailbox_tenants *ts)
{
    struct mailbox_tenant *t = ts->changed;
    if (t) {
        ts->changed = t->changed_next;
        t->changed = false;
    }
    return t;
}

uint64_t mailbox_tenants_sum(const struct mailbox_tenants *ts)
{
    uint64_t sum = 0;
    void *value;
    for (size_t at = 0; ts->by_name.slots && map_next(&ts->by_name, &at, NULL, &value);)
        sum += ((const struct mailbox_tenant *)value)->waiting;
    return sum;
}
