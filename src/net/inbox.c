#include "net/inbox.h"

#include <stdlib.h>

#include "base/check.h"
#include "rt/lock.h"

enum { INBOX_RANK = 940 };

struct net_inbox {
    struct net_msg msg;
    struct net_loop *loop;
    void (*fn)(void *ctx); /* NULL: destroyed, only the message still lives. The loop's */
    void *ctx;
    struct rt_lock lock; /* guards the rest */
    struct net_inbox_item *first, *last;
    struct net_inbox_item *round; /* being taken */
    bool posted, closed;
};

static void inbox_free(struct net_inbox *ib)
{
    rt_lock_fini(&ib->lock);
    free(ib);
}

static void on_message(struct net_msg *m)
{
    struct net_inbox *ib = (struct net_inbox *)((char *)m - offsetof(struct net_inbox, msg));
    if (ib->fn == NULL) {
        inbox_free(ib);
        return;
    }
    rt_lock_take(&ib->lock);
    ib->posted = false;
    rt_lock_release(&ib->lock);
    ib->fn(ib->ctx);
}

enum err net_inbox_create(struct net_loop *loop, void (*fn)(void *ctx), void *ctx, struct net_inbox **out)
{
    struct net_inbox *ib = calloc(1, sizeof *ib);
    if (ib == NULL)
        return ERR_NO_MEMORY;
    ib->msg.fn = on_message;
    ib->loop = loop;
    ib->fn = fn;
    ib->ctx = ctx;
    rt_lock_init(&ib->lock, "net.inbox", INBOX_RANK);
    *out = ib;
    return ERR_OK;
}

void net_inbox_destroy(struct net_inbox *ib)
{
    CHECK(ib->first == NULL && ib->round == NULL);
    rt_lock_take(&ib->lock);
    bool posted = ib->posted;
    rt_lock_release(&ib->lock);
    if (posted)
        ib->fn = NULL; /* the loop frees it when it comes by */
    else
        inbox_free(ib);
}

static enum err add(struct net_inbox *ib, struct net_inbox_item *item, bool late)
{
    bool post = false;
    enum err e = ERR_OK;
    rt_lock_take(&ib->lock);
    if (item->inside) {
        e = ERR_EXISTS;
    } else if (ib->closed && !late) {
        e = ERR_CLOSED;
    } else {
        item->inside = true;
        item->next = NULL;
        if (ib->last != NULL)
            ib->last->next = item;
        else
            ib->first = item;
        ib->last = item;
        post = !ib->posted;
        ib->posted = true;
    }
    rt_lock_release(&ib->lock);
    if (post)
        net_loop_post(ib->loop, &ib->msg);
    return e;
}

enum err net_inbox_add(struct net_inbox *ib, struct net_inbox_item *item)
{
    return add(ib, item, false);
}

enum err net_inbox_add_late(struct net_inbox *ib, struct net_inbox_item *item)
{
    return add(ib, item, true);
}

bool net_inbox_begin(struct net_inbox *ib)
{
    rt_lock_take(&ib->lock);
    CHECK(ib->round == NULL);
    ib->round = ib->first;
    ib->first = ib->last = NULL;
    bool closed = ib->closed;
    rt_lock_release(&ib->lock);
    return closed;
}

/* One at a time and under the lock: once `inside` is false another thread may add the item again and write
 * its `next`. */
struct net_inbox_item *net_inbox_next(struct net_inbox *ib)
{
    rt_lock_take(&ib->lock);
    struct net_inbox_item *item = ib->round;
    if (item != NULL) {
        ib->round = item->next;
        item->inside = false;
    }
    rt_lock_release(&ib->lock);
    return item;
}

void net_inbox_close(struct net_inbox *ib)
{
    rt_lock_take(&ib->lock);
    ib->closed = true;
    bool post = !ib->posted;
    ib->posted = true;
    rt_lock_release(&ib->lock);
    if (post)
        net_loop_post(ib->loop, &ib->msg);
}

void net_inbox_close_quietly(struct net_inbox *ib)
{
    rt_lock_take(&ib->lock);
    ib->closed = true;
    rt_lock_release(&ib->lock);
}
