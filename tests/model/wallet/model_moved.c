/*
 * A cached balance against what moves it: a commit that is heard of, a commit of our own, and a fetch that comes back, at any
 * moment of somebody asking. What is vouched for as of seq n shows what n left behind.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "services/wallet/wallet.h"

/* Metrics and logs do nothing here. */
struct obs_log *svc_log(const struct svc *s)
{
    (void)s;
    return NULL;
}
static const char account[] = "acct:a";

struct scene {
    struct wallet w;
    struct wallet_shard shard;
    struct os_a64 seq; /* the ledger's; seq 11 changes the balance from 10 to 11 */
};

static void store(struct scene *x, uint64_t seq)
{
    struct wallet_account *a = wallet_account_new(STR("acct:a"), 1, 0);
    CHECK(a);
    a->as_of_seq = seq;
    a->fetched_ns = 1;
    strcpy(wallet_account_holdings(a)->asset, "ron");
    wallet_account_holdings(a)->available = money_from_u64(seq);
    rt_lock_take(&x->shard.cache_lock);
    wallet_cache_put(&x->shard.cache, a);
    rt_lock_release(&x->shard.cache_lock);
}

static struct scene *scene_open(void)
{
    struct scene *x = calloc(1, sizeof *x);
    CHECK(x);
    rt_lock_init(&x->shard.cache_lock, "balance_cache", 20);
    CHECK(wallet_cache_init(&x->shard.cache, 1 << 20) == ERR_OK);
    x->w.touched = calloc(WALLET_TOUCHED_SLOTS, sizeof *x->w.touched);
    CHECK(x->w.touched);
    os_a64_store(&x->w.feed_seq, 10, memory_order_relaxed);
    os_a64_store(&x->seq, 10, memory_order_relaxed);
    store(x, 10);
    return x;
}

static void scene_close(struct scene *x)
{
    wallet_cache_fini(&x->shard.cache);
    rt_lock_fini(&x->shard.cache_lock);
    free(x->w.touched);
    free(x);
}

/* As the listener does: judge, then show. */
static void ask(struct scene *x, unsigned cover_old, unsigned cover_new)
{
    struct wallet_feed feed;
    struct wallet_freshness f;
    uint64_t touched = wallet_moved(&x->w, str_from_c(account), &feed);
    rt_lock_take(&x->shard.cache_lock);
    struct wallet_account *a = wallet_cache_find(&x->shard.cache, str_from_c(account));
    CHECK(a);
    wallet_freshness(a, touched, &feed, 1000, &f);
    uint64_t shown = (uint64_t)wallet_account_holding(a, STR("ron")).available.units;
    rt_lock_release(&x->shard.cache_lock);
    if (f.clean)
        CHECK(shown == (f.seq >= 11 ? 11 : 10)); /* what it is vouched for as */
    model_cover(f.clean && f.seq >= 11 ? cover_new : cover_old);
}

static void invalidator(void *arg)
{
    struct scene *x = arg;
    const uint32_t slot = (uint32_t)wallet_slot(str_from_c(account));
    os_a64_store(&x->seq, 11, memory_order_release);
    wallet_heard(&x->w, &(struct wallet_heard){11, 11, 500, &slot, 1});
}

static void fetch(void *arg)
{
    struct scene *x = arg;
    store(x, os_a64_load(&x->seq, memory_order_acquire));
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

static void a_commit_is_heard_of_while_somebody_asks(void)
{
    struct scene *x = scene_open();
    struct os_thread t;
    start(&t, "invalidator", invalidator, x);
    ask(x, 0, 2);
    os_thread_join(&t);
    ask(x, 1, 2);
    CHECK(os_a64_load(&x->w.feed_seq, memory_order_relaxed) == 11);
    scene_close(x);
}

static void a_fetch_comes_back_while_a_commit_is_heard_of(void)
{
    struct scene *x = scene_open();
    struct os_thread t, f;
    start(&t, "invalidator", invalidator, x);
    start(&f, "fetch", fetch, x);
    ask(x, 0, 1);
    os_thread_join(&t);
    os_thread_join(&f);
    ask(x, 0, 1);
    scene_close(x);
}

/* Events are lost: what was heard last vouches for nothing any more. */
static void lose_events(void *arg)
{
    struct scene *x = arg;
    const uint32_t other = 0;
    os_a64_store(&x->seq, 12, memory_order_release);
    wallet_heard(&x->w,
                 &(struct wallet_heard){12, 12, 500, &other, 1}); /* 11, which moved it, was never told */
}

static void a_hole_in_the_feed_makes_it_suspect(void)
{
    struct scene *x = scene_open();
    struct os_thread t;
    start(&t, "invalidator", lose_events, x);
    ask(x, 0, 1);
    os_thread_join(&t);
    ask(x, 0, 1);
    scene_close(x);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "a_commit_is_heard_of_while_somebody_asks",
         .body = a_commit_is_heard_of_while_somebody_asks,
         .covers = 2},
        {.name = "a_fetch_comes_back_while_a_commit_is_heard_of",
         .body = a_fetch_comes_back_while_a_commit_is_heard_of,
         .covers = 2},
        {.name = "a_hole_in_the_feed_makes_it_suspect",
         .body = a_hole_in_the_feed_makes_it_suspect,
         .covers = 1},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
