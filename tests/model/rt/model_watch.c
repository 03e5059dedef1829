/* Watch and broadcast: who waits always learns, whatever the order. */
#include "base/check.h"
#include "model.h"
#include "rt/bcast.h"
#include "rt/os.h"
#include "rt/watch.h"

#define VALUE(n) ((void *)(uintptr_t)(n))

RT_BLOCKS
static void follow(void *arg)
{
    struct rt_watch *w = arg;
    uint64_t version = 1, last = 0;
    void *value = NULL;
    enum err e;
    while ((e = rt_watch_wait(w, version, deadline_never(), &value, &version)) == ERR_OK) {
        CHECK((uintptr_t)value > last); /* never an older one */
        last = (uintptr_t)value;
        CHECK(version == last + 1); /* value and version belong together */
    }
    CHECK(e == ERR_CLOSED && last == 2); /* the last value is never missed */
}

static void last_value_reaches_every_follower(void)
{
    struct rt_watch *w = rt_watch_create(&(struct rt_watch_spec){.name = "model"});
    struct os_thread t[2];
    for (int i = 0; i < 2; i++)
        CHECK(os_thread_start(&t[i], "follower", follow, w) == ERR_OK);
    rt_watch_publish(w, VALUE(1));
    rt_watch_publish(w, VALUE(2));
    rt_watch_close(w);
    for (int i = 0; i < 2; i++)
        os_thread_join(&t[i]);
    rt_watch_destroy(w);
}

/* Values with a reference count: none is freed while a reader has it, none is forgotten. */
struct snapshot {
    struct os_a32 refs;
};

static void snapshot_ref(void *value)
{
    struct snapshot *s = value;
    CHECK(os_a32_add(&s->refs, 1, memory_order_relaxed) > 0);
}

static void snapshot_unref(void *value)
{
    struct snapshot *s = value;
    if (os_a32_add(&s->refs, (uint32_t)-1, memory_order_acq_rel) == 1)
        os_free(s);
}

static struct snapshot *snapshot_make(void)
{
    struct snapshot *s = os_alloc(sizeof *s);
    CHECK(s != NULL);
    os_a32_store(&s->refs, 1, memory_order_relaxed);
    return s;
}

static void read_snapshot(void *arg)
{
    struct snapshot *s = rt_watch_get(arg, NULL);
    CHECK(os_a32_load(&s->refs, memory_order_relaxed) > 0); /* freed memory would be noticed here */
    snapshot_unref(s);
}

static void snapshot_lives_as_long_as_its_readers(void)
{
    struct rt_watch *w = rt_watch_create(&(struct rt_watch_spec){
        .name = "model", .initial = snapshot_make(), .ref = snapshot_ref, .unref = snapshot_unref});
    struct os_thread t[2];
    for (int i = 0; i < 2; i++)
        CHECK(os_thread_start(&t[i], "reader", read_snapshot, w) == ERR_OK);
    rt_watch_publish(w, snapshot_make());
    for (int i = 0; i < 2; i++)
        os_thread_join(&t[i]);
    rt_watch_destroy(w);
}

RT_BLOCKS
static void listen(void *arg)
{
    struct rt_bcast_sub *s = arg;
    uint64_t next = 1;
    void *item;
    enum err e;
    while ((e = rt_bcast_recv(s, deadline_never(), &item)) != ERR_CLOSED) {
        if (e == ERR_LAGGED) {
            uint64_t lost = rt_bcast_take_lost(s);
            CHECK(lost > 0);
            next += lost;
            model_cover(0);
            continue;
        }
        CHECK(e == ERR_OK && (uintptr_t)item == next); /* in order, gaps only as told */
        next++;
    }
    CHECK(next == 4);
    model_cover(1);
}

static void slow_listener_learns_exactly_what_it_lost(void)
{
    struct rt_bcast *b = rt_bcast_create(&(struct rt_bcast_spec){.name = "model", .capacity = 2});
    struct rt_bcast_sub *s = rt_bcast_subscribe(b, NULL, NULL);
    struct os_thread t;
    CHECK(os_thread_start(&t, "listener", listen, s) == ERR_OK);
    for (uintptr_t i = 1; i <= 3; i++)
        rt_bcast_publish(b, VALUE(i));
    rt_bcast_close(b);
    os_thread_join(&t);
    rt_bcast_unsubscribe(s);
    rt_bcast_destroy(b);
}

static void publish_one(void *arg)
{
    rt_bcast_publish(arg, VALUE(9));
}

RT_BLOCKS
static void listen_for_two(void *arg)
{
    struct rt_bcast_sub *s = arg;
    void *item;
    for (int i = 0; i < 2; i++)
        CHECK(rt_bcast_recv(s, deadline_never(), &item) == ERR_OK);
}

static void two_publishers_two_listeners(void)
{
    struct rt_bcast *b = rt_bcast_create(&(struct rt_bcast_spec){.name = "model", .capacity = 2});
    struct rt_bcast_sub *s[2];
    struct os_thread t[3];
    for (int i = 0; i < 2; i++) {
        s[i] = rt_bcast_subscribe(b, NULL, NULL);
        CHECK(os_thread_start(&t[i], "listener", listen_for_two, s[i]) == ERR_OK);
    }
    CHECK(os_thread_start(&t[2], "publisher", publish_one, b) == ERR_OK);
    publish_one(b);
    for (int i = 0; i < 3; i++)
        os_thread_join(&t[i]);
    for (int i = 0; i < 2; i++)
        rt_bcast_unsubscribe(s[i]);
    rt_bcast_destroy(b);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "last_value_reaches_every_follower",
         .body = last_value_reaches_every_follower,
         .preemptions = 2},
        {.name = "snapshot_lives_as_long_as_its_readers", .body = snapshot_lives_as_long_as_its_readers},
        {.name = "slow_listener_learns_exactly_what_it_lost",
         .body = slow_listener_learns_exactly_what_it_lost,
         .covers = 2},
        {.name = "two_publishers_two_listeners", .body = two_publishers_two_listeners, .preemptions = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
