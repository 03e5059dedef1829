#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rt/chan.h"

static struct rt_chan *make(size_t capacity, enum rt_policy policy)
{
    struct rt_chan *ch =
        rt_chan_create(&(struct rt_chan_spec){.name = "test", .capacity = capacity, .policy = policy});
    assert_non_null(ch);
    return ch;
}

static int items[256]; /* the addresses are what travels */

RT_BLOCKS
static void full_channel_is_busy_and_keeps_the_item_with_the_caller(void **state)
{
    (void)state;
    struct rt_chan *ch = make(3, RT_REJECT);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rt_chan_try_send(ch, &items[i]), ERR_OK);
    assert_int_equal(rt_chan_try_send(ch, &items[3]), ERR_BUSY);
    assert_int_equal(rt_chan_send(ch, &items[3], deadline_never()), ERR_BUSY);
    struct rt_chan_stats st = rt_chan_stats(ch);
    assert_int_equal(st.depth, 3);
    assert_int_equal(st.high_water, 3);
    assert_int_equal(st.sent, 3);
    assert_int_equal(st.rejected, 2);
    for (int i = 0; i < 3; i++) {
        void *item = NULL;
        assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
        assert_ptr_equal(item, &items[i]);
    }
    void *item = NULL;
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_EMPTY);
    assert_null(item);
    rt_chan_destroy(ch, NULL, NULL);
}

static void items_leave_in_the_order_they_came_however_often_the_ring_wraps(void **state)
{
    (void)state;
    struct rt_chan *ch = make(5, RT_REJECT); /* the ring behind it has 8 slots */
    int sent = 0, received = 0;
    for (int round = 0; round < 100; round++) {
        while (rt_chan_try_send(ch, &items[sent % 256]) == ERR_OK)
            sent++;
        assert_int_equal(rt_chan_depth(ch), 5);
        for (int k = 0; k < 1 + round % 5; k++) {
            void *item;
            assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
            assert_ptr_equal(item, &items[received++ % 256]);
        }
    }
    struct rt_chan_stats st = rt_chan_stats(ch);
    assert_int_equal(st.sent, sent);
    assert_int_equal(st.received, received);
    rt_chan_close(ch);
    void *item;
    while (rt_chan_try_recv(ch, &item) == ERR_OK)
        received++;
    assert_int_equal(sent, received);
    rt_chan_destroy(ch, NULL, NULL);
}

RT_BLOCKS
static void closed_channel_is_drained_before_it_says_closed(void **state)
{
    (void)state;
    struct rt_chan *ch = make(4, RT_WAIT);
    assert_int_equal(rt_chan_send(ch, &items[0], deadline_never()), ERR_OK);
    assert_int_equal(rt_chan_send(ch, &items[1], deadline_never()), ERR_OK);
    rt_chan_close(ch);
    rt_chan_close(ch);
    assert_true(rt_chan_is_closed(ch));
    assert_int_equal(rt_chan_try_send(ch, &items[2]), ERR_CLOSED);
    assert_int_equal(rt_chan_send(ch, &items[2], deadline_never()), ERR_CLOSED);
    void *got[4];
    size_t n = 0;
    assert_int_equal(rt_chan_recv_batch(ch, got, 4, deadline_never(), &n), ERR_OK);
    assert_int_equal(n, 2);
    assert_ptr_equal(got[1], &items[1]);
    assert_int_equal(rt_chan_recv(ch, deadline_never(), got), ERR_CLOSED);
    assert_int_equal(rt_chan_try_recv(ch, got), ERR_CLOSED);
    rt_chan_destroy(ch, NULL, NULL);
}

static void drop_oldest_hands_back_exactly_what_it_pushed_out(void **state)
{
    (void)state;
    struct rt_chan *ch = make(2, RT_DROP_OLDEST);
    void *dropped = &items[99];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rt_chan_push_drop_oldest(ch, &items[i], &dropped), ERR_OK);
        assert_null(dropped);
    }
    for (int i = 2; i < 10; i++) {
        assert_int_equal(rt_chan_push_drop_oldest(ch, &items[i], &dropped), ERR_OK);
        assert_ptr_equal(dropped, &items[i - 2]);
    }
    struct rt_chan_stats st = rt_chan_stats(ch);
    assert_int_equal(st.dropped, 8);
    assert_int_equal(st.received, 0);
    assert_int_equal(st.depth, 2);
    void *item;
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    assert_ptr_equal(item, &items[8]);
    rt_chan_close(ch);
    dropped = &items[99];
    assert_int_equal(rt_chan_push_drop_oldest(ch, &items[11], &dropped), ERR_CLOSED);
    assert_ptr_equal(dropped, &items[99]);
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    assert_ptr_equal(item, &items[9]);
    rt_chan_destroy(ch, NULL, NULL);
}

static void batch_of_drop_oldest_hands_back_the_oldest_even_of_itself(void **state)
{
    (void)state;
    struct rt_chan *ch = make(3, RT_DROP_OLDEST);
    void *batch[5], *dropped[5], *item;
    size_t n = 9;
    for (int i = 0; i < 5; i++)
        batch[i] = &items[i];
    assert_int_equal(rt_chan_push_drop_oldest_batch(ch, batch, 2, dropped, &n), ERR_OK);
    assert_int_equal(n, 0);
    assert_int_equal(rt_chan_push_drop_oldest_batch(ch, batch, 5, dropped, &n), ERR_OK);
    assert_int_equal(n, 4); /* both that waited, and its own first two */
    assert_ptr_equal(dropped[0], &items[0]);
    assert_ptr_equal(dropped[1], &items[1]);
    assert_ptr_equal(dropped[2], &items[0]);
    assert_ptr_equal(dropped[3], &items[1]);
    for (int i = 2; i < 5; i++) {
        assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
        assert_ptr_equal(item, &items[i]);
    }
    rt_chan_close(ch);
    assert_int_equal(rt_chan_push_drop_oldest_batch(ch, batch, 5, dropped, &n), ERR_CLOSED);
    assert_int_equal(n, 4);
    rt_chan_destroy(ch, NULL, NULL);
}

RT_BLOCKS
static void waits_end_with_the_deadline(void **state)
{
    (void)state;
    struct rt_chan *ch = make(1, RT_WAIT);
    void *item = NULL;
    assert_int_equal(rt_chan_recv(ch, deadline_in_ms(0), &item), ERR_TIMEOUT);
    assert_int_equal(rt_chan_recv(ch, deadline_in_ms(1), &item), ERR_TIMEOUT);
    assert_null(item);
    assert_int_equal(rt_chan_send(ch, &items[0], deadline_in_ms(0)), ERR_OK);
    assert_int_equal(rt_chan_send(ch, &items[1], deadline_in_ms(1)), ERR_TIMEOUT);
    assert_int_equal(rt_chan_depth(ch), 1);
    rt_chan_try_recv(ch, &item) == ERR_OK ? (void)0 : fail();
    rt_chan_destroy(ch, NULL, NULL);
}

RT_BLOCKS
static void retry_once_is_busy_after_one_back_off(void **state)
{
    (void)state;
    struct rt_chan *ch = rt_chan_create(&(struct rt_chan_spec){
        .name = "test", .capacity = 1, .policy = RT_RETRY_ONCE, .retry_min_ms = 1, .retry_max_ms = 2});
    assert_int_equal(rt_chan_send(ch, &items[0], deadline_never()), ERR_OK);
    int64_t start_ns = os_now_ns();
    assert_int_equal(rt_chan_send(ch, &items[1], deadline_never()), ERR_BUSY);
    assert_true(os_now_ns() - start_ns >= 1000000);
    assert_int_equal(rt_chan_stats(ch).rejected, 1);
    void *item;
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    assert_int_equal(rt_chan_send(ch, &items[1], deadline_never()), ERR_OK);
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    rt_chan_destroy(ch, NULL, NULL);
}

static void batch_send_says_how_many_fitted(void **state)
{
    (void)state;
    struct rt_chan *ch = make(3, RT_REJECT);
    void *some[5] = {&items[0], &items[1], &items[2], &items[3], &items[4]};
    size_t n = 0;
    assert_int_equal(rt_chan_try_send_batch(ch, some, 5, &n), ERR_OK);
    assert_int_equal(n, 3);
    assert_int_equal(rt_chan_try_send_batch(ch, some + n, 2, &n), ERR_BUSY);
    void *got[5];
    assert_int_equal(rt_chan_try_recv_batch(ch, got, 5, &n), ERR_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(got, some, 3 * sizeof got[0]);
    rt_chan_destroy(ch, NULL, NULL);
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static void event_loop_is_told_once_per_emptiness_it_saw(void **state)
{
    (void)state;
    int calls = 0;
    struct rt_chan *ch = rt_chan_create(&(struct rt_chan_spec){.name = "test",
                                                               .capacity = 4,
                                                               .policy = RT_REJECT,
                                                               .on_ready = count_call,
                                                               .on_ready_arg = &calls});
    void *item;
    assert_int_equal(rt_chan_try_send(ch, &items[0]), ERR_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(rt_chan_try_send(ch, &items[1]), ERR_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    assert_int_equal(rt_chan_try_send(ch, &items[2]), ERR_OK);
    assert_int_equal(calls, 1); /* it has not yet been told that the channel was empty */
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_EMPTY);
    assert_int_equal(rt_chan_try_send(ch, &items[3]), ERR_OK);
    assert_int_equal(calls, 2);
    rt_chan_close(ch);
    assert_int_equal(calls, 3);
    assert_int_equal(rt_chan_try_recv(ch, &item), ERR_OK);
    rt_chan_destroy(ch, NULL, NULL);
}

static void give_back(void *item, void *arg)
{
    (void)item;
    ++*(int *)arg;
}

static void destroying_gives_back_what_was_left(void **state)
{
    (void)state;
    struct rt_chan *ch = make(4, RT_REJECT);
    assert_int_equal(rt_chan_try_send(ch, &items[0]), ERR_OK);
    assert_int_equal(rt_chan_try_send(ch, &items[1]), ERR_OK);
    int given = 0;
    rt_chan_destroy(ch, give_back, &given);
    assert_int_equal(given, 2);
}

/* Many threads: every number sent arrives once, and in order per sender. */
enum { SENDERS = 3, RECEIVERS = 3, PER_SENDER = 20000 };

struct storm {
    struct rt_chan *ch;
    struct os_count bad, sum, got;
};

struct storm_sender {
    struct storm *storm;
    uintptr_t id;
};

RT_BLOCKS
static void storm_send(void *arg)
{
    struct storm_sender *me = arg;
    for (uintptr_t i = 1; i <= PER_SENDER; i++) {
        if (rt_chan_send(me->storm->ch, (void *)(i * SENDERS + me->id), deadline_never()) != ERR_OK)
            os_count_add(&me->storm->bad, 1);
    }
}

RT_BLOCKS
static void storm_recv(void *arg)
{
    struct storm *s = arg;
    uintptr_t last[SENDERS] = {0};
    void *got[7];
    size_t n;
    while (rt_chan_recv_batch(s->ch, got, 7, deadline_never(), &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++) {
            uintptr_t v = (uintptr_t)got[i], from = v % SENDERS;
            if (v / SENDERS <= last[from])
                os_count_add(&s->bad, 1);
            last[from] = v / SENDERS;
            os_count_add(&s->sum, v);
        }
        os_count_add(&s->got, n);
    }
}

static void everything_sent_by_many_arrives_once_at_many(void **state)
{
    (void)state;
    struct storm s = {.ch = make(16, RT_WAIT)};
    struct os_thread senders[SENDERS], receivers[RECEIVERS];
    struct storm_sender who[SENDERS];
    for (uintptr_t i = 0; i < RECEIVERS; i++)
        assert_int_equal(os_thread_start(&receivers[i], "recv", storm_recv, &s), ERR_OK);
    for (uintptr_t i = 0; i < SENDERS; i++) {
        who[i] = (struct storm_sender){&s, i};
        assert_int_equal(os_thread_start(&senders[i], "send", storm_send, &who[i]), ERR_OK);
    }
    for (int i = 0; i < SENDERS; i++)
        os_thread_join(&senders[i]);
    rt_chan_close(s.ch);
    for (int i = 0; i < RECEIVERS; i++)
        os_thread_join(&receivers[i]);
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= PER_SENDER; i++)
        sum += SENDERS * i * SENDERS + (SENDERS - 1) * SENDERS / 2;
    assert_int_equal(os_count_get(&s.bad), 0);
    assert_int_equal(os_count_get(&s.got), SENDERS * PER_SENDER);
    assert_int_equal(os_count_get(&s.sum), sum);
    assert_true(rt_chan_stats(s.ch).high_water <= 16);
    rt_chan_destroy(s.ch, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_channel_is_busy_and_keeps_the_item_with_the_caller),
        cmocka_unit_test(items_leave_in_the_order_they_came_however_often_the_ring_wraps),
        cmocka_unit_test(closed_channel_is_drained_before_it_says_closed),
        cmocka_unit_test(drop_oldest_hands_back_exactly_what_it_pushed_out),
        cmocka_unit_test(batch_of_drop_oldest_hands_back_the_oldest_even_of_itself),
        cmocka_unit_test(waits_end_with_the_deadline),
        cmocka_unit_test(retry_once_is_busy_after_one_back_off),
        cmocka_unit_test(batch_send_says_how_many_fitted),
        cmocka_unit_test(event_loop_is_told_once_per_emptiness_it_saw),
        cmocka_unit_test(destroying_gives_back_what_was_left),
        cmocka_unit_test(everything_sent_by_many_arrives_once_at_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
