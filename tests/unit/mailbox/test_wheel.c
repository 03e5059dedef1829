/* Timer wheel, slabs and fair share: the structures under the shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "services/mailbox/core/fair.h"
#include "services/mailbox/core/wheel.h"

struct seen {
    struct mailbox_slabs *slabs;
    int64_t now;
    uint64_t n;
};

static void due(void *ctx, uint32_t i)
{
    struct seen *s = ctx;
    assert_true(mailbox_entry_due(mailbox_entry_at(s->slabs, i)) <= s->now);
    mailbox_entry_at(s->slabs, i)->flags = 1;
    s->n++;
}

static uint32_t timer(struct mailbox_slabs *slabs, struct mailbox_wheel *w, int64_t at)
{
    uint32_t i;
    assert_int_equal(mailbox_slabs_alloc(slabs, &i), ERR_OK);
    mailbox_entry_at(slabs, i)->state = MAILBOX_LEASED;
    mailbox_entry_set_due(mailbox_entry_at(slabs, i), at);
    mailbox_wheel_add(w, i);
    return i;
}

static void a_timer_fires_at_its_microsecond_and_not_before(void **state)
{
    (void)state;
    static const int64_t after[] = {
        0,        1,          9999,          10000,       10240000 - 1, 10240000,
        10240001, 3600000000, 43200000000,   10737418240, 86400000000,  2592000000000,
        99999999, 123456789,  31536000000000};
    for (size_t k = 0; k < sizeof after / sizeof *after; k++) {
        struct mailbox_slabs slabs;
        struct mailbox_wheel *w = malloc(sizeof *w);
        assert_non_null(w);
        int64_t start = 777777;
        mailbox_slabs_init(&slabs);
        mailbox_wheel_init(w, &slabs, start);
        timer(&slabs, w, start + after[k]);
        assert_true(mailbox_wheel_next_due(w) <= start + after[k]);
        struct seen s = {&slabs, start + after[k] - 1, 0};
        if (after[k]) {
            while (mailbox_wheel_advance(w, s.now, 1, due, &s))
                ;
            assert_int_equal(s.n, 0);
        }
        s.now = start + after[k];
        while (mailbox_wheel_advance(w, s.now, 1, due, &s))
            ;
        assert_int_equal(s.n, 1);
        assert_int_equal(w->count, 0);
        assert_int_equal(mailbox_wheel_next_due(w), INT64_MAX);
        mailbox_slabs_fini(&slabs);
        free(w);
    }
}

static void the_next_due_of_a_topic_is_found_among_others(void **state)
{
    (void)state;
    struct mailbox_slabs slabs;
    struct mailbox_wheel *w = malloc(sizeof *w);
    assert_non_null(w);
    int64_t start = 10235000000; /* near the end of a coarse slot, where levels overlap */
    mailbox_slabs_init(&slabs);
    mailbox_wheel_init(w, &slabs, start);
    static const int64_t of_two[] = {2592000000000, 86400000000, 20000000, 10241000, 10239000, 5000};
    for (int i = 0; i < 100; i++)
        mailbox_entry_at(&slabs, timer(&slabs, w, start + 1000 * i))->topic = 1;
    assert_int_equal(mailbox_wheel_next_due_of(w, 2, 1000), INT64_MAX);
    for (size_t k = 0; k < sizeof of_two / sizeof *of_two; k++) { /* each is due before those before it */
        mailbox_entry_at(&slabs, timer(&slabs, w, start + of_two[k]))->topic = 2;
        assert_int_equal(mailbox_wheel_next_due_of(w, 2, 1000), start + of_two[k]);
    }
    assert_int_equal(mailbox_wheel_next_due_of(w, 2, 10), INT64_MAX); /* others stand before it */
    mailbox_slabs_fini(&slabs);
    free(w);
}

static void many_timers_fire_once_each_in_bounded_steps(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct mailbox_slabs slabs;
    struct mailbox_wheel *w = malloc(sizeof *w);
    uint32_t *ids = malloc(N * sizeof *ids);
    assert_true(w && ids);
    struct rng r;
    rng_seed(&r, 42);
    int64_t now = 1000000;
    mailbox_slabs_init(&slabs);
    mailbox_wheel_init(w, &slabs, now);
    for (int i = 0; i < N; i++)
        ids[i] = timer(&slabs, w, now + (int64_t)rng_below(&r, i % 3 ? 30000000 : UINT64_C(5000000000)));
    uint64_t removed = 0;
    struct seen s = {&slabs, now, 0};
    while (w->count) {
        s.now += (int64_t)rng_below(&r, 5000000);
        while (mailbox_wheel_advance(w, s.now, 64, due, &s))
            ;
        for (int k = 0; k < 3; k++) {
            uint32_t i = ids[rng_below(&r, N)];
            struct mailbox_entry *e = mailbox_entry_at(&slabs, i);
            assert_true(e->flags || mailbox_entry_due(e) > s.now);
            if (!e->flags) {
                mailbox_wheel_remove(w, i);
                e->flags = 1;
                removed++;
            }
        }
    }
    assert_int_equal(s.n + removed, N);
    mailbox_slabs_fini(&slabs);
    free(w);
    free(ids);
}

struct job {
    struct mailbox_fair_node n;
    int id;
};

static void a_hot_topic_does_not_hold_up_quiet_ones(void **state)
{
    (void)state;
    enum { HOT = 3000, QUIET = 999 };
    struct mailbox_fair f;
    struct job *jobs = calloc(HOT + QUIET, sizeof *jobs);
    assert_non_null(jobs);
    assert_int_equal(mailbox_fair_init(&f, 4096, 16384), ERR_OK);
    for (int i = 0; i < HOT; i++) {
        jobs[i] = (struct job){{NULL, 1, 1024}, i};
        assert_int_equal(mailbox_fair_add(&f, &jobs[i].n, HOT), ERR_OK);
    }
    for (int i = HOT; i < HOT + QUIET; i++) {
        jobs[i] = (struct job){{NULL, (uint64_t)i, 1024}, i};
        assert_int_equal(mailbox_fair_add(&f, &jobs[i].n, HOT), ERR_OK);
    }
    int taken = 0, last_quiet = 0, hot_seen = -1;
    struct mailbox_fair_node *n;
    while ((n = mailbox_fair_take(&f)) != NULL) {
        struct job *j = (struct job *)n;
        taken++;
        if (j->id >= HOT)
            last_quiet = taken;
        else
            assert_int_equal(j->id, ++hot_seen); /* first come first served inside a topic */
    }
    assert_int_equal(taken, HOT + QUIET);
    assert_true(last_quiet <=
                QUIET + 2 * 16); /* one round: a quantum of the hot topic, then everybody else */
    mailbox_fair_fini(&f);
    free(jobs);
}

static void a_topic_holds_no_more_than_its_share(void **state)
{
    (void)state;
    struct mailbox_fair f;
    struct job j[4] = {{{NULL, 1, 1}, 0}, {{NULL, 1, 1}, 1}, {{NULL, 1, 1}, 2}, {{NULL, 2, 1}, 3}};
    assert_int_equal(mailbox_fair_init(&f, 8, 100), ERR_OK);
    assert_int_equal(mailbox_fair_add(&f, &j[0].n, 2), ERR_OK);
    assert_int_equal(mailbox_fair_add(&f, &j[1].n, 2), ERR_OK);
    assert_int_equal(mailbox_fair_add(&f, &j[2].n, 2), ERR_BUSY);
    assert_int_equal(mailbox_fair_add(&f, &j[3].n, 2), ERR_OK);
    assert_ptr_equal(mailbox_fair_take(&f), &j[0].n);
    assert_int_equal(mailbox_fair_add(&f, &j[2].n, 2), ERR_OK);
    mailbox_fair_fini(&f);
}

static void a_due_is_kept_exactly_and_what_lies_beyond_years_is_never(void **state)
{
    (void)state;
    static const int64_t kept[] = {0, 1, -1, INT64_C(1795000000000), MAILBOX_DUE_MAX - 1, -MAILBOX_DUE_MAX},
                         never[] = {MAILBOX_DUE_MAX, MAILBOX_DUE_MAX + 1, INT64_MAX};
    struct mailbox_entry e = {.stream = UINT16_MAX};
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        mailbox_entry_set_due(&e, kept[k]);
        assert_true(mailbox_entry_due(&e) == kept[k]);
    }
    for (size_t k = 0; k < sizeof never / sizeof *never; k++) {
        mailbox_entry_set_due(&e, never[k]);
        assert_true(mailbox_entry_due(&e) == INT64_MAX);
    }
    mailbox_entry_set_due(&e, INT64_MIN);
    assert_true(mailbox_entry_due(&e) == -MAILBOX_DUE_MAX);
    assert_int_equal(e.stream, UINT16_MAX); /* its neighbour */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_due_is_kept_exactly_and_what_lies_beyond_years_is_never),
        cmocka_unit_test(a_timer_fires_at_its_microsecond_and_not_before),
        cmocka_unit_test(the_next_due_of_a_topic_is_found_among_others),
        cmocka_unit_test(many_timers_fire_once_each_in_bounded_steps),
        cmocka_unit_test(a_hot_topic_does_not_hold_up_quiet_ones),
        cmocka_unit_test(a_topic_holds_no_more_than_its_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
