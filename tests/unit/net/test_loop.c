#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/loop.h"

static char trail[128];
static size_t trail_n;

static void mark(char c)
{
    if (trail_n + 1 < sizeof trail)
        trail[trail_n++] = c;
    trail[trail_n] = 0;
}

struct timer {
    struct net_timer t;
    char name;
};

static void fired(struct net_timer *t)
{
    mark(((struct timer *)(void *)t)->name);
}

static void timers_fire_in_order_once_and_can_be_moved_or_cancelled(void **state)
{
    (void)state;
    struct clock_manual clock;
    struct net_loop *loop;
    clock_manual_init(&clock, 1000);
    assert_int_equal(net_loop_create(&clock.clock, &loop), ERR_OK);
    struct timer a = {{.fn = fired}, 'a'}, b = {{.fn = fired}, 'b'}, c = {{.fn = fired}, 'c'},
                 d = {{.fn = fired}, 'd'};
    int64_t now = net_loop_now_ns(loop), ms = 1000000;
    trail_n = 0;
    net_timer_set(loop, &a.t, now + 30 * ms);
    net_timer_set(loop, &b.t, now + 10 * ms);
    net_timer_set(loop, &c.t, now + 20 * ms);
    net_timer_set(loop, &d.t, now + 5 * ms);
    net_timer_set(loop, &a.t, now + 15 * ms); /* moved */
    net_timer_cancel(loop, &d.t);
    net_timer_cancel(loop, &d.t);
    net_loop_once(loop, 0);
    assert_int_equal(trail_n, 0);
    clock_manual_advance_ms(&clock, 15);
    net_loop_once(loop, 0);
    assert_string_equal(trail, "ba");
    assert_false(net_timer_armed(&a.t));
    clock_manual_advance_ms(&clock, 100);
    net_loop_once(loop, 0);
    net_loop_once(loop, 0);
    assert_string_equal(trail, "bac");
    net_loop_destroy(loop);
}

struct peer {
    struct net_fd nf;
    struct net_loop *loop;
    struct net_fd *remove;
    char name;
};

static void readable(struct net_fd *nf, uint32_t events)
{
    struct peer *p = (struct peer *)(void *)nf;
    assert_true(events & EPOLLIN);
    mark(p->name);
    if (p->remove)
        net_loop_remove(p->loop, p->remove);
}

static void a_descriptor_removed_during_an_iteration_is_not_called_any_more(void **state)
{
    (void)state;
    struct net_loop *loop;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    int one[2], two[2];
    assert_int_equal(pipe(one), 0);
    assert_int_equal(pipe(two), 0);
    struct peer a = {{.fd = one[0], .fn = readable}, loop, NULL, 'a'},
                b = {{.fd = two[0], .fn = readable}, loop, NULL, 'b'};
    a.remove = &b.nf;
    b.remove = &a.nf; /* whichever comes first ends the other */
    assert_int_equal(net_loop_add(loop, &a.nf, EPOLLIN), ERR_OK);
    assert_int_equal(net_loop_add(loop, &b.nf, EPOLLIN), ERR_OK);
    assert_int_equal(write(one[1], "x", 1), 1);
    assert_int_equal(write(two[1], "x", 1), 1);
    trail_n = 0;
    net_loop_once(loop, 0);
    assert_int_equal(trail_n, 1);
    net_loop_remove(loop, &a.nf);
    net_loop_remove(loop, &b.nf);
    net_loop_destroy(loop);
    for (int i = 0; i < 2; i++) {
        close(one[i]);
        close(two[i]);
    }
}

struct note {
    struct net_msg m;
    unsigned from, number;
};

enum { SENDERS = 3, NOTES = 20000 };
static struct net_loop *shared;
static unsigned next_of[SENDERS], received;
static struct note notes[SENDERS][NOTES];

static void note_arrived(struct net_msg *m)
{
    struct note *n = (struct note *)(void *)m;
    assert_int_equal(n->number, next_of[n->from]++); /* in the sender's order */
    assert_ptr_equal(net_loop_current(), shared);
    if (++received == SENDERS * NOTES)
        net_loop_stop(shared);
}

static void *sender(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < NOTES; i++) {
        notes[me][i] = (struct note){{.fn = note_arrived}, me, i};
        if (i % 7 == 0 && me == 1)
            net_loop_cork();
        net_loop_post(shared, &notes[me][i].m);
        if ((i % 7 == 6 || i == NOTES - 1) && me == 1)
            net_loop_uncork();
    }
    return NULL;
}

RT_BLOCKS
static void messages_of_one_sender_arrive_in_order_and_none_is_lost(void **state)
{
    (void)state;
    assert_int_equal(net_loop_create(NULL, &shared), ERR_OK);
    pthread_t threads[SENDERS];
    for (uintptr_t i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sender, (void *)i), 0);
    assert_int_equal(net_loop_run(shared, NULL),
                     ERR_OK); /* ends with the last message, or the test hangs */
    assert_int_equal(received, SENDERS * NOTES);
    for (int i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    assert_null(net_loop_current());
    net_loop_destroy(shared);
}

static void corked(struct net_msg *m)
{
    (void)m;
    mark('m');
}

static void corked_messages_leave_with_the_outermost_uncork(void **state)
{
    (void)state;
    struct net_loop *loop;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    struct net_msg m[3] = {{.fn = corked}, {.fn = corked}, {.fn = corked}};
    trail_n = 0;
    net_loop_cork();
    net_loop_post(loop, &m[0]);
    net_loop_cork();
    net_loop_post(loop, &m[1]);
    net_loop_uncork();
    net_loop_post(loop, &m[2]);
    net_loop_once(loop, 0);
    assert_int_equal(trail_n, 0);
    net_loop_uncork();
    net_loop_once(loop, 0);
    assert_string_equal(trail, "mmm");
    net_loop_destroy(loop);
}

struct end {
    struct net_batch b;
    char name;
};

static void batch_ended(struct net_batch *b)
{
    mark(((struct end *)(void *)b)->name);
}

static void batch_ends_run_after_everything_else_the_last_registered_first(void **state)
{
    (void)state;
    struct net_loop *loop;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    struct end a = {{.fn = batch_ended}, 'a'}, b = {{.fn = batch_ended}, 'b'};
    struct net_msg m = {.fn = corked};
    struct timer t = {{.fn = fired}, 't'};
    net_loop_at_batch_end(loop, &a.b);
    net_loop_at_batch_end(loop, &b.b);
    net_loop_post(loop, &m);
    net_timer_set(loop, &t.t, net_loop_now_ns(loop));
    trail_n = 0;
    net_loop_once(loop, 0);
    assert_string_equal(trail, "mtba");
    net_loop_destroy(loop);
}

static struct net_loop *left_to;
static bool leaves;

static void leaves_something(struct net_batch *b)
{
    mark(((struct end *)(void *)b)->name);
    if (leaves)
        net_loop_again(left_to);
    leaves = false;
}

static void what_is_left_for_a_batch_end_that_has_run_is_done_without_a_wait(void **state)
{
    (void)state;
    assert_int_equal(net_loop_create(NULL, &left_to), ERR_OK);
    struct end taker = {{.fn = batch_ended}, 'a'}, giver = {{.fn = leaves_something}, 'b'};
    struct timer waited = {{.fn = fired}, 't'};
    net_loop_at_batch_end(left_to, &giver.b);
    net_loop_at_batch_end(left_to, &taker.b); /* runs first */
    leaves = true;
    trail_n = 0;
    net_loop_once(left_to, 0);
    net_timer_set(left_to, &waited.t, net_loop_now_ns(left_to) + (int64_t)30 * 1000000000);
    net_loop_once(left_to, -1);
    assert_string_equal(trail, "abab"); /* no t: nothing was waited for */
    net_timer_set(left_to, &waited.t, net_loop_now_ns(left_to) + 1);
    net_loop_once(left_to, -1);
    assert_string_equal(trail, "ababtab");
    net_loop_destroy(left_to);
}

static void woken(void *arg)
{
    mark(*(const char *)arg);
}

static const char first[] = "1", second[] = "2";

static void asked_three_times(struct net_msg *m)
{
    mark('m');
    net_loop_at_end(woken, (void *)(uintptr_t)first);
    net_loop_at_end(woken, (void *)(uintptr_t)second);
    net_loop_at_end(woken, (void *)(uintptr_t)first);
    (void)m;
}

static void whom_an_iteration_has_work_for_is_woken_once_when_it_has_ended(void **state)
{
    (void)state;
    struct net_loop *loop;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    struct end a = {{.fn = batch_ended}, 'a'};
    struct net_msg m[2] = {{.fn = asked_three_times}, {.fn = asked_three_times}};
    net_loop_at_batch_end(loop, &a.b);
    net_loop_post(loop, &m[0]);
    net_loop_post(loop, &m[1]);
    trail_n = 0;
    net_loop_once(loop, 0);
    assert_string_equal(trail, "mma12");
    net_loop_once(loop, 0);
    assert_string_equal(trail, "mma12a");
    net_loop_at_end(woken, (void *)(uintptr_t)second); /* this thread runs no loop now */
    assert_string_equal(trail, "mma12a2");
    net_loop_destroy(loop);
}

struct talker {
    struct net_fd nf;
    struct net_loop *loop;
    bool ends_the_loop;
};

/* Level-triggered and never read: it is ready in every iteration. */
static void talks(struct net_fd *nf, uint32_t events)
{
    struct talker *t = (struct talker *)(void *)nf;
    (void)events;
    mark('d');
    net_loop_at_end(woken, (void *)(uintptr_t)first);
    if (t->ends_the_loop)
        net_loop_stop(t->loop);
}

static void open_talker(struct talker *t, struct net_loop *loop)
{
    uint64_t one = 1;
    *t = (struct talker){.nf = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .fn = talks}, .loop = loop};
    assert_true(t->nf.fd >= 0);
    assert_int_equal(write(t->nf.fd, &one, sizeof one), sizeof one);
    assert_int_equal(net_loop_add(loop, &t->nf, EPOLLIN), ERR_OK);
}

static void nobody_is_woken_while_descriptors_are_ready_unless_there_were_many(void **state)
{
    (void)state;
    struct net_loop *loop;
    struct talker t;
    uint64_t ignored;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    open_talker(&t, loop);
    trail_n = 0;
    net_loop_once(loop, -1);
    net_loop_once(loop, -1);
    assert_string_equal(trail, "dd");
    assert_int_equal(read(t.nf.fd, &ignored, sizeof ignored), sizeof ignored);
    net_loop_once(loop, -1); /* it only looks: somebody waits to be woken */
    assert_string_equal(trail, "dd1");

    uint64_t one = 1;
    assert_int_equal(write(t.nf.fd, &one, sizeof one), sizeof one);
    trail_n = 0;
    for (int i = 0; i < 31; i++)
        net_loop_once(loop, -1);
    assert_int_equal(trail_n, 31);
    net_loop_once(loop, -1);
    assert_int_equal(trail_n, 33);
    assert_int_equal(trail[32], '1');
    net_loop_remove(loop, &t.nf);
    close(t.nf.fd);
    net_loop_destroy(loop);
}

RT_UNCHECKED static void who_waits_to_be_woken_is_woken_when_the_loop_ends(void **state)
{
    (void)state;
    struct net_loop *loop;
    struct talker t;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    open_talker(&t, loop);
    t.ends_the_loop = true;
    trail_n = 0;
    assert_int_equal(net_loop_run(loop, NULL), ERR_OK);
    assert_string_equal(trail, "d1");
    net_loop_remove(loop, &t.nf);
    close(t.nf.fd);
    net_loop_destroy(loop);
}

static char names[100];

static void asks_for_a_hundred(struct net_msg *m)
{
    (void)m;
    for (size_t i = 0; i < sizeof names; i++) {
        names[i] = 'x';
        net_loop_at_end(woken, &names[i]);
    }
}

static void more_wake_ups_than_an_iteration_can_keep_happen_at_once_and_none_is_lost(void **state)
{
    (void)state;
    struct net_loop *loop;
    assert_int_equal(net_loop_create(NULL, &loop), ERR_OK);
    struct net_msg m = {.fn = asks_for_a_hundred};
    net_loop_post(loop, &m);
    trail_n = 0;
    net_loop_once(loop, 0);
    assert_int_equal(trail_n, sizeof names);
    net_loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_once_and_can_be_moved_or_cancelled),
        cmocka_unit_test(a_descriptor_removed_during_an_iteration_is_not_called_any_more),
        cmocka_unit_test(messages_of_one_sender_arrive_in_order_and_none_is_lost),
        cmocka_unit_test(corked_messages_leave_with_the_outermost_uncork),
        cmocka_unit_test(batch_ends_run_after_everything_else_the_last_registered_first),
        cmocka_unit_test(what_is_left_for_a_batch_end_that_has_run_is_done_without_a_wait),
        cmocka_unit_test(whom_an_iteration_has_work_for_is_woken_once_when_it_has_ended),
        cmocka_unit_test(nobody_is_woken_while_descriptors_are_ready_unless_there_were_many),
        cmocka_unit_test(who_waits_to_be_woken_is_woken_when_the_loop_ends),
        cmocka_unit_test(more_wake_ups_than_an_iteration_can_keep_happen_at_once_and_none_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
