/*
 * Tenants: whose topics hold how many messages that are not settled.
 *
 * A topic belongs to the tenant whose send made it, and all that waits in it is counted for that tenant: ready, delayed, leased and
 * dead letters. Who it is stands in the topic's record, so that a replay finds the same counts; a topic whose record names nobody is
 * MAILBOX_TENANT_DEFAULT's. A message costs nothing: its topic knows.
 *
 * Ownership   Tenants are the table's, and stay until fini. `told` and `note` are for the caller, who publishes the counts.
 * Threads     One writer.
 * Memory      One allocation per tenant, and a table.
 */
#ifndef RON_MAILBOX_CORE_TENANT_H
#define RON_MAILBOX_CORE_TENANT_H

#include "base/map.h"

enum { MAILBOX_TENANT_MAX = 63, MAILBOX_TENANTS_MAX = 65536 };
#define MAILBOX_TENANT_DEFAULT "default"

struct mailbox_tenant {
    uint32_t waiting; /* messages in its topics that are not settled */
    uint32_t told;
    void *note;
    struct mailbox_tenant *changed_next;
    bool changed;
    uint8_t name_n;
    char name[];
};

struct mailbox_tenants {
    struct map by_name;
    struct mailbox_tenant *changed; /* whose count moved since the caller looked */
};

void mailbox_tenants_init(struct mailbox_tenants *ts);
void mailbox_tenants_fini(struct mailbox_tenants *ts);
/* Finds or makes; an empty name, or one that is too long, is the default's. NULL: no memory, or too many. */
struct mailbox_tenant *mailbox_tenants_get(struct mailbox_tenants *ts, struct str name);
void mailbox_tenants_count(struct mailbox_tenants *ts, struct mailbox_tenant *t, int by);
/* The next one whose count moved, in no order; NULL: none is left. */
struct mailbox_tenant *mailbox_tenants_changed(struct mailbox_tenants *ts);
uint64_t mailbox_tenants_sum(const struct mailbox_tenants *ts); /* of all that waits */

static inline struct str mailbox_tenant_name(const struct mailbox_tenant *t)
{
    return str_of(t->name, t->name_n);
}

#endif
