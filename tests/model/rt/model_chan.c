/* The channel: every policy, closing, time-outs and the event-loop hook under all interleavings. */
#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"

/* Items are small numbers; a bit set counts who was seen, so that twice or never is noticed. */
#define ITEM(n) ((void *)(uintptr_t)(1u << (n)))

struct shop {
    struct rt_chan *ch;
    struct os_a32 got;     /* items received */
    struct os_a32 refused; /* items that stayed with their sender, or came back */
    struct os_a32 told;    /* on_ready calls */
};

struct sender {
    struct shop *shop;
    unsigned first, n;
};

static void mark(struct os_a32 *set, const void *item)
{
    uint32_t bit = (uint32_t)(uintptr_t)item;
    CHECK((os_a32_or(set, bit, memory_order_relaxed) & bit) == 0); /* nothing twice */
}

static struct rt_chan *make(size_t capacity, enum rt_policy policy)
{
    struct rt_chan *ch =
        rt_chan_create(&(struct rt_chan_spec){.name = "model", .capacity = capacity, .policy = policy});
    CHECK(ch != NULL);
    return ch;
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

/* All that was sent is somewhere, once. */
static void check_all(struct shop *s, uint32_t all)
{
    uint32_t got = os_a32_load(&s->got, memory_order_relaxed);
    uint32_t refused = os_a32_load(&s->refused, memory_order_relaxed);
    CHECK((got & refused) == 0);
    CHECK((got | refused) == all);
}

RT_BLOCKS
static void send_waiting(void *arg)
{
    const struct sender *me = arg;
    for (unsigned i = 0; i < me->n; i++) {
        void *item = ITEM(me->first + i);
        enum err e = rt_chan_send(me->shop->ch, item, deadline_never());
        if (e == ERR_OK)
            continue;
        CHECK(e == ERR_CLOSED);
        model_cover(0);
        mark(&me->shop->refused, item);
    }
}

RT_BLOCKS
static void receive_until_closed(void *arg)
{
    struct shop *s = arg;
    void *item;
    enum err e;
    while ((e = rt_chan_recv(s->ch, deadline_never(), &item)) == ERR_OK)
        mark(&s->got, item);
    CHECK(e == ERR_CLOSED);
}

/* Two producers, a queue, two consumers, and a shutdown at any moment: nothing lost, nothing twice, all end. */
static void pipeline(size_t capacity, unsigned per_producer, unsigned producers, unsigned consumers)
{
    struct shop s = {.ch = make(capacity, RT_WAIT)};
    struct sender p[2];
    struct os_thread tp[2], tc[2];
    for (unsigned i = 0; i < consumers; i++)
        start(&tc[i], "consumer", receive_until_closed, &s);
    for (unsigned i = 0; i < producers; i++) {
        p[i] = (struct sender){&s, i * per_producer, per_producer};
        start(&tp[i], "producer", send_waiting, &p[i]);
    }
    rt_chan_close(s.ch);
    for (unsigned i = 0; i < producers; i++)
        os_thread_join(&tp[i]);
    for (unsigned i = 0; i < consumers; i++)
        os_thread_join(&tc[i]);
    check_all(&s, (1u << (producers * per_producer)) - 1);
    if (os_a32_load(&s.refused, memory_order_relaxed) == 0)
        model_cover(1);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void two_producers_queue_of_two_two_consumers_shutdown(void)
{
    pipeline(2, 1, 2, 2);
}

static void one_producer_queue_of_two_one_consumer_shutdown(void)
{
    pipeline(2, 2, 1, 1);
}

static void two_producers_queue_of_one_one_consumer_shutdown(void)
{
    pipeline(1, 2, 2, 1);
}

/* The queue is full, nobody receives: closing must end the wait for room. */
RT_BLOCKS
static void closing_ends_the_wait_for_room(void)
{
    struct shop s = {.ch = make(1, RT_WAIT)};
    struct sender p = {&s, 0, 2};
    struct os_thread t;
    start(&t, "producer", send_waiting, &p);
    rt_chan_close(s.ch);
    os_thread_join(&t);
    receive_until_closed(&s);
    check_all(&s, 3);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void send_trying(void *arg)
{
    const struct sender *me = arg;
    for (unsigned i = 0; i < me->n; i++) {
        void *item = ITEM(me->first + i);
        enum err e = rt_chan_try_send(me->shop->ch, item);
        if (e == ERR_OK)
            continue;
        CHECK(e == ERR_BUSY);
        model_cover(0);
        mark(&me->shop->refused, item);
    }
}

static void receive_some(void *arg)
{
    struct shop *s = arg;
    for (int i = 0; i < 2; i++) {
        void *item;
        enum err e = rt_chan_try_recv(s->ch, &item);
        CHECK(e == ERR_OK || e == ERR_EMPTY);
        if (e == ERR_OK)
            mark(&s->got, item);
    }
}

/* Full means busy at once; what was refused stays with its sender; the bound holds. */
RT_BLOCKS
static void full_queue_rejects_and_loses_nothing(void)
{
    struct shop s = {.ch = make(1, RT_REJECT)};
    struct sender p[2] = {{&s, 0, 2}, {&s, 2, 1}};
    struct os_thread t[3];
    start(&t[0], "sender", send_trying, &p[0]);
    start(&t[1], "sender", send_trying, &p[1]);
    start(&t[2], "receiver", receive_some, &s);
    CHECK(rt_chan_depth(s.ch) <= 1);
    for (int i = 0; i < 3; i++)
        os_thread_join(&t[i]);
    rt_chan_close(s.ch);
    receive_until_closed(&s);
    check_all(&s, 7);
    struct rt_chan_stats st = rt_chan_stats(s.ch);
    CHECK(st.high_water <= 1 && st.sent + st.rejected == 3 && st.received == st.sent);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void push(void *arg)
{
    const struct sender *me = arg;
    for (unsigned i = 0; i < me->n; i++) {
        void *dropped = NULL;
        CHECK(rt_chan_push_drop_oldest(me->shop->ch, ITEM(me->first + i), &dropped) == ERR_OK);
        if (dropped) {
            model_cover(0);
            mark(&me->shop->refused, dropped);
        }
    }
}

/* Each item is received, or handed back by exactly one push. */
RT_BLOCKS
static void drop_oldest_hands_back_exactly_the_dropped(void)
{
    struct shop s = {.ch = make(1, RT_DROP_OLDEST)};
    struct sender p[2] = {{&s, 0, 2}, {&s, 2, 1}};
    struct os_thread t[3];
    start(&t[0], "pusher", push, &p[0]);
    start(&t[1], "pusher", push, &p[1]);
    start(&t[2], "receiver", receive_some, &s);
    for (int i = 0; i < 3; i++)
        os_thread_join(&t[i]);
    rt_chan_close(s.ch);
    receive_until_closed(&s);
    check_all(&s, 7);
    struct rt_chan_stats st = rt_chan_stats(s.ch);
    CHECK(st.sent == 3 && st.received + st.dropped == 3);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void push_batch(void *arg)
{
    const struct sender *me = arg;
    void *items[3], *dropped[3];
    size_t gone = 0;
    CHECK(me->n <= 3);
    for (unsigned i = 0; i < me->n; i++)
        items[i] = ITEM(me->first + i);
    enum err e = rt_chan_push_drop_oldest_batch(me->shop->ch, items, me->n, dropped, &gone);
    model_cover(e == ERR_OK ? 0 : 1);
    for (unsigned i = 0; e != ERR_OK && i < me->n; i++)
        mark(&me->shop->refused, items[i]);
    for (size_t i = 0; i < gone; i++)
        mark(&me->shop->refused, dropped[i]);
}

/* A batch larger than the queue beside a receiver and the end: each item is received or handed back once. */
RT_BLOCKS
static void batch_of_drop_oldest_goes_whole_or_not_at_all(void)
{
    struct shop s = {.ch = make(1, RT_DROP_OLDEST)};
    struct sender p = {&s, 0, 2};
    struct os_thread t[2];
    start(&t[0], "pusher", push_batch, &p);
    start(&t[1], "receiver", receive_until_closed, &s);
    rt_chan_close(s.ch);
    for (int i = 0; i < 2; i++)
        os_thread_join(&t[i]);
    check_all(&s, 3);
    struct rt_chan_stats st = rt_chan_stats(s.ch);
    CHECK(st.sent == 0 || st.sent == 2);
    CHECK(st.received + st.dropped == st.sent);
    rt_chan_destroy(s.ch, NULL, NULL);
}

RT_BLOCKS
static void receive_one(void *arg)
{
    struct shop *s = arg;
    void *item;
    CHECK(rt_chan_recv(s->ch, deadline_never(), &item) == ERR_OK);
    mark(&s->got, item);
}

/* A push into a queue on which a receiver sleeps must wake it. */
RT_BLOCKS
static void drop_oldest_wakes_the_receiver(void)
{
    struct shop s = {.ch = make(1, RT_DROP_OLDEST)};
    struct sender p = {&s, 0, 2};
    struct os_thread t[2];
    start(&t[0], "receiver", receive_one, &s);
    start(&t[1], "pusher", push, &p);
    os_thread_join(&t[0]);
    os_thread_join(&t[1]);
    rt_chan_close(s.ch);
    receive_until_closed(&s);
    check_all(&s, 3);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void push_until_closed(void *arg)
{
    const struct sender *me = arg;
    for (unsigned i = 0; i < me->n; i++) {
        void *dropped = NULL;
        enum err e = rt_chan_push_drop_oldest(me->shop->ch, ITEM(me->first + i), &dropped);
        CHECK(e == ERR_OK || e == ERR_CLOSED);
        CHECK(e == ERR_OK || dropped == NULL);
        if (e != ERR_OK)
            mark(&me->shop->refused, ITEM(me->first + i));
        if (dropped)
            mark(&me->shop->refused, dropped);
        model_cover(e == ERR_OK ? 0 : 1);
    }
}

/* A push that is refused has dropped nothing. */
RT_BLOCKS
static void closing_does_not_come_between_a_drop_and_its_push(void)
{
    struct shop s = {.ch = make(1, RT_DROP_OLDEST)};
    struct sender p = {&s, 0, 2};
    struct os_thread t;
    start(&t, "pusher", push_until_closed, &p);
    rt_chan_close(s.ch);
    os_thread_join(&t);
    receive_until_closed(&s);
    check_all(&s, 3);
    rt_chan_destroy(s.ch, NULL, NULL);
}

/* Three pushes into two slots, one item taken: if the oldest was taken there was room, and nothing may be dropped. */
RT_BLOCKS
static void drop_oldest_drops_only_when_full(void)
{
    struct shop s = {.ch = make(2, RT_DROP_OLDEST)};
    struct sender p = {&s, 0, 3};
    struct os_thread t;
    start(&t, "pusher", push, &p);
    receive_one(&s);
    bool oldest = os_a32_load(&s.got, memory_order_relaxed) == 1;
    os_thread_join(&t);
    CHECK(os_a32_load(&s.refused, memory_order_relaxed) == (oldest ? 0 : 1));
    model_cover(oldest);
    rt_chan_close(s.ch);
    receive_until_closed(&s);
    rt_chan_destroy(s.ch, NULL, NULL);
}

RT_BLOCKS
static void receive_impatiently(void *arg)
{
    struct shop *s = arg;
    void *item;
    enum err e = rt_chan_recv(s->ch, deadline_at_ns(2000000000), &item);
    CHECK(e == ERR_OK || e == ERR_TIMEOUT);
    model_cover(e == ERR_OK ? 0 : 1);
    if (e == ERR_OK)
        mark(&s->got, item);
}

/* Two receivers, one of whom may time out just as it is woken: the item still reaches the other. */
RT_BLOCKS
static void timed_out_receiver_does_not_swallow_the_wakeup(void)
{
    struct shop s = {.ch = make(2, RT_REJECT)};
    struct os_thread t[2];
    start(&t[0], "impatient", receive_impatiently, &s);
    start(&t[1], "patient", receive_one, &s);
    CHECK(rt_chan_try_send(s.ch, ITEM(0)) == ERR_OK);
    os_thread_join(&t[0]);
    if (os_a32_load(&s.got, memory_order_relaxed) == 0 || rt_chan_depth(s.ch) == 0) {
        enum err e = rt_chan_try_send(s.ch, ITEM(1)); /* for the patient, in case the first is gone */
        CHECK(e == ERR_OK);
    }
    os_thread_join(&t[1]);
    rt_chan_close(s.ch);
    receive_until_closed(&s);
    rt_chan_destroy(s.ch, NULL, NULL);
}

/* Two senders wait for room; each item taken lets exactly one of them in. */
RT_BLOCKS
static void every_sender_gets_its_room(void)
{
    struct shop s = {.ch = make(1, RT_WAIT)};
    struct sender p[2] = {{&s, 0, 1}, {&s, 1, 1}};
    CHECK(rt_chan_try_send(s.ch, ITEM(2)) == ERR_OK);
    struct os_thread t[2];
    start(&t[0], "sender", send_waiting, &p[0]);
    start(&t[1], "sender", send_waiting, &p[1]);
    for (int i = 0; i < 3; i++)
        receive_one(&s);
    os_thread_join(&t[0]);
    os_thread_join(&t[1]);
    check_all(&s, 7);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void loop_is_told(void *arg)
{
    struct shop *s = arg;
    os_a32_add(&s->told, 1, memory_order_release);
    os_wake_one(&s->told);
}

static void send_two(void *arg)
{
    struct shop *s = arg;
    CHECK(rt_chan_try_send(s->ch, ITEM(0)) == ERR_OK);
    CHECK(rt_chan_try_send(s->ch, ITEM(1)) == ERR_OK);
}

/* An event loop that sleeps unless told must not oversleep an item. */
static void event_loop_is_always_told(void)
{
    struct shop s = {0};
    s.ch = rt_chan_create(&(struct rt_chan_spec){
        .name = "model", .capacity = 2, .policy = RT_REJECT, .on_ready = loop_is_told, .on_ready_arg = &s});
    struct os_thread t;
    start(&t, "sender", send_two, &s);
    uint32_t seen = 0;
    while (os_a32_load(&s.got, memory_order_relaxed) != 3) {
        void *item;
        enum err e = rt_chan_try_recv(s.ch, &item);
        if (e == ERR_OK) {
            mark(&s.got, item);
            continue;
        }
        CHECK(e == ERR_EMPTY);
        while (os_a32_load(&s.told, memory_order_acquire) == seen)
            os_sleep_on(&s.told, seen, OS_NEVER);
        seen = os_a32_load(&s.told, memory_order_acquire);
        model_cover(0);
    }
    os_thread_join(&t);
    rt_chan_close(s.ch);
    rt_chan_destroy(s.ch, NULL, NULL);
}

static void send_batch(void *arg)
{
    const struct sender *me = arg;
    void *items[3];
    for (unsigned i = 0; i < me->n; i++)
        items[i] = ITEM(me->first + i);
    size_t n = 0;
    enum err e = rt_chan_try_send_batch(me->shop->ch, items, me->n, &n);
    CHECK(e == ERR_OK || e == ERR_BUSY);
    for (size_t i = e == ERR_OK ? n : 0; i < me->n; i++)
        mark(&me->shop->refused, items[i]);
}

RT_BLOCKS
static void receive_batches(void *arg)
{
    struct shop *s = arg;
    void *items[2];
    size_t n;
    while (rt_chan_recv_batch(s->ch, items, 2, deadline_never(), &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            mark(&s->got, items[i]);
    }
}

static void batches_keep_every_item(void)
{
    struct shop s = {.ch = make(2, RT_REJECT)};
    struct sender p = {&s, 0, 3};
    struct os_thread t[3];
    start(&t[0], "consumer", receive_batches, &s);
    start(&t[1], "consumer", receive_batches, &s);
    start(&t[2], "sender", send_batch, &p);
    os_thread_join(&t[2]);
    rt_chan_close(s.ch);
    os_thread_join(&t[0]);
    os_thread_join(&t[1]);
    check_all(&s, 7);
    rt_chan_destroy(s.ch, NULL, NULL);
}

/* State behind a queue with one consumer needs no lock: its plain read-modify-write never loses an update. */
RT_BLOCKS
static void writer(void *arg)
{
    struct shop *s = arg;
    void *item;
    while (rt_chan_recv(s->ch, deadline_never(), &item) == ERR_OK) {
        uint32_t sum = os_a32_load(&s->got, memory_order_relaxed);
        os_a32_store(&s->got, sum + (uint32_t)(uintptr_t)item, memory_order_relaxed);
    }
}

static void single_writer_loses_no_update(void)
{
    struct shop s = {.ch = make(2, RT_WAIT)};
    struct sender p[2] = {{&s, 0, 1}, {&s, 1, 1}};
    struct os_thread t[3];
    start(&t[0], "writer", writer, &s);
    start(&t[1], "client", send_waiting, &p[0]);
    start(&t[2], "client", send_waiting, &p[1]);
    os_thread_join(&t[1]);
    os_thread_join(&t[2]);
    rt_chan_close(s.ch);
    os_thread_join(&t[0]);
    CHECK(os_a32_load(&s.got, memory_order_relaxed) == 3);
    rt_chan_destroy(s.ch, NULL, NULL);
}

RT_BLOCKS
static void retry_gives_up_after_its_back_off(void)
{
    struct shop s = {0};
    s.ch = rt_chan_create(&(struct rt_chan_spec){.name = "model", .capacity = 1, .policy = RT_RETRY_ONCE});
    CHECK(rt_chan_send(s.ch, ITEM(0), deadline_never()) == ERR_OK);
    struct os_thread t;
    start(&t, "receiver", receive_some, &s);
    enum err e = rt_chan_send(s.ch, ITEM(1), deadline_never());
    CHECK(e == ERR_OK || e == ERR_BUSY);
    model_cover(e == ERR_OK ? 0 : 1);
    os_thread_join(&t);
    rt_chan_close(s.ch);
    receive_until_closed(&s);
    CHECK(os_a32_load(&s.got, memory_order_relaxed) == (e == ERR_OK ? 3 : 1));
    rt_chan_destroy(s.ch, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "closing_ends_the_wait_for_room", .body = closing_ends_the_wait_for_room, .covers = 1},
        {.name = "drop_oldest_wakes_the_receiver", .body = drop_oldest_wakes_the_receiver, .covers = 1},
        {.name = "closing_does_not_come_between_a_drop_and_its_push",
         .body = closing_does_not_come_between_a_drop_and_its_push,
         .covers = 2},
        {.name = "drop_oldest_drops_only_when_full", .body = drop_oldest_drops_only_when_full, .covers = 2},
        {.name = "timed_out_receiver_does_not_swallow_the_wakeup",
         .body = timed_out_receiver_does_not_swallow_the_wakeup,
         .timeouts = 1,
         .covers = 2},
        {.name = "every_sender_gets_its_room", .body = every_sender_gets_its_room, .preemptions = 2},
        {.name = "event_loop_is_always_told", .body = event_loop_is_always_told, .covers = 1},
        {.name = "retry_gives_up_after_its_back_off",
         .body = retry_gives_up_after_its_back_off,
         .timeouts = 1,
         .covers = 2},
        {.name = "single_writer_loses_no_update", .body = single_writer_loses_no_update, .preemptions = 2},
        {.name = "batches_keep_every_item", .body = batches_keep_every_item, .preemptions = 2},
        {.name = "one_producer_queue_of_two_one_consumer_shutdown",
         .body = one_producer_queue_of_two_one_consumer_shutdown,
         .covers = 2},
        {.name = "full_queue_rejects_and_loses_nothing",
         .body = full_queue_rejects_and_loses_nothing,
         .covers = 1},
        {.name = "drop_oldest_hands_back_exactly_the_dropped",
         .body = drop_oldest_hands_back_exactly_the_dropped,
         .covers = 1},
        {.name = "batch_of_drop_oldest_goes_whole_or_not_at_all",
         .body = batch_of_drop_oldest_goes_whole_or_not_at_all,
         .preemptions = 2,
         .covers = 2},
        {.name = "two_producers_queue_of_one_one_consumer_shutdown",
         .body = two_producers_queue_of_one_one_consumer_shutdown,
         .preemptions = 2,
         .covers = 2},
        {.name = "two_producers_queue_of_two_two_consumers_shutdown",
         .body = two_producers_queue_of_two_two_consumers_shutdown,
         .preemptions = 2,
         .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
