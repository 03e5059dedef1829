#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "rt/bell.h"
#include "rt/chan.h"

RT_UNCHECKED
static void a_bell_that_rang_after_it_was_noted_does_not_let_sleep(void **state)
{
    (void)state;
    struct rt_bell b;
    rt_bell_init(&b);
    uint64_t noted = rt_bell_note(&b);
    rt_bell_ring(&b);
    assert_int_equal(rt_bell_wait(&b, noted, deadline_never()), ERR_OK);
    assert_int_equal(rt_bell_doze(&b, noted, deadline_never()), ERR_OK);
    noted = rt_bell_note(&b); /* heard */
    assert_int_equal(rt_bell_wait(&b, noted, deadline_in_ms(0)), ERR_TIMEOUT);
}

enum { QUEUES = 2, ITEMS = 20000 };
static struct rt_chan *queues[QUEUES];

static void *send_all(void *arg)
{
    uintptr_t q = (uintptr_t)arg;
    for (uintptr_t i = 1; i <= ITEMS; i++)
        while (rt_chan_try_send(queues[q], (void *)i) == ERR_BUSY)
            sched_yield();
    rt_chan_close(queues[q]);
    return NULL;
}

/* A sleep that misses a ring never ends: then this test does not either. */
RT_UNCHECKED
static void one_sleeper_on_two_queues_gets_everything_and_both_ends(void **state)
{
    (void)state;
    struct rt_bell b;
    pthread_t senders[QUEUES];
    uintptr_t got[QUEUES] = {0};
    rt_bell_init(&b);
    for (uintptr_t q = 0; q < QUEUES; q++) {
        queues[q] = rt_chan_create(&(struct rt_chan_spec){.name = "some",
                                                          .capacity = 8,
                                                          .policy = RT_REJECT,
                                                          .on_ready = rt_bell_ring,
                                                          .on_ready_arg = &b});
        assert_non_null(queues[q]);
        assert_int_equal(pthread_create(&senders[q], NULL, send_all, (void *)q), 0);
    }
    for (unsigned over = 0; over < QUEUES;) {
        uint64_t noted = rt_bell_note(&b);
        bool busy = false;
        over = 0;
        for (int q = 0; q < QUEUES; q++) {
            void *item;
            enum err e = rt_chan_try_recv(queues[q], &item);
            if (e == ERR_OK)
                assert_int_equal((uintptr_t)item, ++got[q]);
            busy |= e == ERR_OK;
            over += e == ERR_CLOSED;
        }
        if (!busy && over < QUEUES)
            assert_int_equal(rt_bell_wait(&b, noted, deadline_never()), ERR_OK);
    }
    for (int q = 0; q < QUEUES; q++) {
        assert_int_equal(got[q], ITEMS);
        pthread_join(senders[q], NULL);
        rt_chan_destroy(queues[q], NULL, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bell_that_rang_after_it_was_noted_does_not_let_sleep),
        cmocka_unit_test(one_sleeper_on_two_queues_gets_everything_and_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
