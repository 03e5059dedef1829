/*
 * registry.log folded while it grows: random histories of runs (sealed, quarantined, released, settled, swept, discarded, breached)
 * are written through a log that is compacted as soon as it may be. The registry read back is the one the history says, whatever
 * was folded and whenever; the log stays bounded; and on a disk that fails at any call of it nothing that was durable is lost.
 * RON_SEED and RON_ROUNDS in the environment repeat or deepen a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "services/rewarder/compact.h"
#include "services/rewarder/rewarder.h"
#include "store/disk_faulty.h"

enum { EPOCHS = 12, LINES = 400, LINE_BYTES_MAX = 1400, ABOVE = 4096 };

/* What the lines so far say of one epoch. */
struct told {
    bool known, sealed, swept, has_settled;
    uint64_t n, seq_last;
    enum rewarder_state state;
    char kind[24];
};

struct story {
    struct told epochs[EPOCHS];
    uint64_t next_n;
};

struct world {
    struct store_disk *disk;
    struct rewarder r;
    struct rng rng;
    struct story story;
    uint64_t folded; /* how often */
};

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 0) : otherwise;
}

static enum err open_world(struct world *w) RT_BLOCKS
{
    w->r = (struct rewarder){.svc = NULL};
    enum err e = rewarder_registry_init(&w->r.registry);
    assert_int_equal(e, ERR_OK);
    e = rewarder_files_open(&w->r.files, w->disk, "r");
    w->r.files.compact_above = ABOVE;
    return e == ERR_OK ? rewarder_recover(&w->r) : e;
}

static void close_world(struct world *w) RT_BLOCKS
{
    rewarder_files_close(&w->r.files);
    rewarder_registry_fini(&w->r.registry);
}

/* ---- one line of the history ---- */

static void put_sealed(const char *epoch, uint64_t n, struct buf *b)
{
    struct rewarder_run *run = rewarder_run_create(STR("default"), str_from_c(epoch), false);
    run->info.n = n;
    run->info.leaves = 700;
    snprintf(run->info.policy_id, sizeof run->info.policy_id, "weekly");
    rewarder_note_sealed(run, &run->info, b);
    rewarder_run_unref(run);
}

static void begin(struct story *s, struct told *t, const char *epoch, bool breach, struct buf *b)
{
    *t = (struct told){.known = true,
                       .sealed = !breach,
                       .n = s->next_n++,
                       .state = breach ? REWARDER_QUARANTINED : REWARDER_SEALED};
    if (!breach) {
        put_sealed(epoch, t->n, b);
        return;
    }
    snprintf(t->kind, sizeof t->kind, "overflow");
    buf_printf(b,
               "{\"n\":%llu,\"t\":\"default\",\"e\":\"%s\",\"op\":\"quarantined\",\"kind\":\"overflow\","
               "\"reason\":\"r\",\"at\":1}",
               (unsigned long long)t->n, epoch);
}

/* A line that may follow what is known of the epoch, and what it changes. */
static void next_line(struct world *w, struct buf *b)
{
    struct story *s = &w->story;
    size_t i = rng_below(&w->rng, EPOCHS);
    struct told *t = &s->epochs[i];
    char epoch[16], head[96];
    snprintf(epoch, sizeof epoch, "e%zu", i);
    if (!t->known) {
        begin(s, t, epoch, rng_below(&w->rng, 4) == 0, b);
        return;
    }
    snprintf(head, sizeof head,
             "{\"n\":%llu,\"t\":\"default\",\"e\":\"%s\",\"op\":", (unsigned long long)t->n, epoch);
    if (t->state == REWARDER_QUARANTINED) {
        bool resume = t->sealed && rng_below(&w->rng, 2);
        buf_printf(b, "%s\"%s\",\"reason\":\"looked\"}", head, resume ? "released" : "discarded");
        if (resume)
            t->state = REWARDER_SEALED;
        else
            *t = (struct told){.known = false};
    } else if (t->state == REWARDER_SETTLED && !t->swept && rng_below(&w->rng, 2)) {
        buf_printf(b, "%s\"swept\"}", head);
        t->swept = true;
    } else if (t->state == REWARDER_SEALED && rng_below(&w->rng, 3) == 0) {
        t->has_settled = true;
        t->seq_last = 1 + rng_below(&w->rng, 1000000);
        t->state = REWARDER_SETTLED;
        buf_printf(b, "%s\"settled\",\"settled_at\":5,\"seq_first\":1,\"seq_last\":%llu}", head,
                   (unsigned long long)t->seq_last);
    } else {
        snprintf(t->kind, sizeof t->kind, "operator");
        t->state = REWARDER_QUARANTINED;
        buf_printf(b, "%s\"quarantined\",\"kind\":\"operator\",\"reason\":\"r\",\"at\":7}", head);
    }
}

/* ---- what a start reads back ---- */

static void expect_epoch(struct world *w, const char *epoch, const struct told *t)
{
    struct rewarder_run *run =
        rewarder_registry_find(&w->r.registry, STR("default"), str_from_c(epoch), false);
    if (!t->known) {
        assert_null(run);
        return;
    }
    assert_non_null(run);
    const struct rewarder_run_info *i = &run->info;
    assert_int_equal(i->state, t->state);
    assert_int_equal(i->n, t->n);
    assert_int_equal(i->swept, t->swept);
    assert_int_equal(i->leaves, t->sealed ? 700 : 0);
    assert_int_equal(i->seq_last, t->has_settled ? t->seq_last : 0);
    if (t->state == REWARDER_QUARANTINED)
        assert_string_equal(i->cause, t->kind);
    rewarder_run_unref(run);
}

static void expect_story(struct world *w, const struct story *s)
{
    size_t known = 0;
    for (size_t i = 0; i < EPOCHS; i++) {
        char epoch[16];
        snprintf(epoch, sizeof epoch, "e%zu", i);
        expect_epoch(w, epoch, &s->epochs[i]);
        known += s->epochs[i].known;
    }
    assert_int_equal(w->r.registry.order_n, known);
    assert_int_equal(w->r.registry.next_n, s->next_n);
}

static void reopen(struct world *w) RT_BLOCKS
{
    close_world(w);
    assert_int_equal(open_world(w), ERR_OK);
    expect_story(w, &w->story);
}

static enum err append(struct world *w, struct bytes line) RT_BLOCKS
{
    uint64_t saved;
    enum err e = rewarder_log_append(&w->r.files, line);
    if (e != ERR_OK)
        return e;
    e = rewarder_log_compact(&w->r.files, &saved);
    w->folded += saved > 0;
    return e;
}

/* ---- tests ---- */

static void a_folded_log_says_what_the_whole_one_said_and_stays_small(void **state) RT_BLOCKS
{
    (void)state;
    uint64_t rounds = from_env("RON_ROUNDS", 40), seed = from_env("RON_SEED", (uint64_t)os_now_ns() | 1);
    uint64_t folded = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        struct world w = {.story = {.next_n = 1}};
        print_message("RON_SEED=%llu\n", (unsigned long long)(seed + i));
        rng_seed(&w.rng, seed + i);
        assert_int_equal(store_disk_memory(0, &w.disk), ERR_OK);
        assert_int_equal(open_world(&w), ERR_OK);
        for (unsigned k = 0; k < LINES; k++) {
            struct buf line;
            buf_init(&line, 4096);
            next_line(&w, &line);
            assert_int_equal(append(&w, buf_bytes(&line)), ERR_OK);
            buf_fini(&line);
            uint64_t twice = 2 * w.r.files.log_alive;
            assert_true(w.r.files.log_end <= (twice > ABOVE ? twice : ABOVE) + LINE_BYTES_MAX);
            assert_true(w.r.files.log_alive <= EPOCHS * LINE_BYTES_MAX + 200);
            if (rng_below(&w.rng, 50) == 0)
                reopen(&w);
        }
        reopen(&w);
        folded += w.folded;
        close_world(&w);
        store_disk_destroy(w.disk);
    }
    assert_true(folded > 0);
}

enum { ANY_CALL = 200, REWRITE_CALLS = 9 };

static struct store_fault_plan plan_of(struct rng *g, uint64_t calls)
{
    struct store_fault_plan p = {.crash_at = 0};
    uint64_t at = 1 + rng_below(g, calls), kind = rng_below(g, 6);
    if (kind == 0)
        p.eio_at = at;
    else if (kind == 1)
        p.enospc_at = at;
    else if (kind == 2)
        p.short_at = at;
    else
        p.crash_at = at;
    p.keep = (enum store_keep)rng_below(g, 3);
    return p;
}

static bool will_rewrite(struct world *w) RT_BLOCKS
{
    uint64_t end = w->r.files.log_end;
    struct bytes all;
    struct buf folded;
    if (end <= ABOVE || end <= 2 * w->r.files.log_alive)
        return false;
    buf_init(&folded, 1 << 20);
    assert_int_equal(rewarder_log_read(&w->r.files, &all), ERR_OK);
    assert_int_equal(rewarder_log_fold(all, &folded), ERR_OK);
    bool worth = folded.n <= end / 2;
    free((void *)(uintptr_t)all.p);
    buf_fini(&folded);
    return worth;
}

/*
 * Lines until the fault has done its worst; the story ends with the last line that was said to be durable. An aimed fault waits
 * for the first rewrite. Returns whether the fault fell into a rewrite.
 */
static bool write_until_it_fails(struct world *w, bool aimed, struct story *out_next) RT_BLOCKS
{
    bool hit = false;
    for (unsigned k = 0; k < LINES; k++) {
        struct buf line;
        struct story before = w->story;
        buf_init(&line, 4096);
        next_line(w, &line);
        *out_next = w->story;
        enum err e = rewarder_log_append(&w->r.files, buf_bytes(&line));
        buf_fini(&line);
        if (e != ERR_OK) {
            w->story = before;
            return hit;
        }
        uint64_t saved;
        if (aimed && will_rewrite(w)) {
            struct store_fault_plan plan = plan_of(&w->rng, REWRITE_CALLS);
            store_disk_faulty_plan(w->disk, &plan);
            aimed = false;
        }
        bool fired = store_disk_faulty_fired(w->disk);
        e = rewarder_log_compact(&w->r.files, &saved);
        hit = hit || (!fired && store_disk_faulty_fired(w->disk));
        if (store_disk_faulty_is_down(w->disk) || !w->r.files.log)
            return hit;
    }
    return hit;
}

static void survives(uint64_t seed, uint64_t *fired, uint64_t *hit) RT_BLOCKS
{
    struct world w = {.story = {.next_n = 1}};
    struct story next;
    rng_seed(&w.rng, seed);
    assert_int_equal(store_disk_faulty(seed, &(struct store_fault_plan){.crash_at = 0}, &w.disk), ERR_OK);
    assert_int_equal(open_world(&w), ERR_OK);
    bool aimed = rng_below(&w.rng, 2);
    struct store_fault_plan plan = plan_of(&w.rng, ANY_CALL);
    if (!aimed)
        store_disk_faulty_plan(w.disk, &plan);
    *hit += write_until_it_fails(&w, aimed, &next);
    *fired += store_disk_faulty_fired(w.disk);
    close_world(&w);
    if (!store_disk_faulty_is_down(w.disk))
        store_disk_faulty_cut(w.disk);
    store_disk_faulty_reboot(w.disk);
    store_disk_faulty_plan(w.disk, &(struct store_fault_plan){.crash_at = 0});
    assert_int_equal(open_world(&w), ERR_OK);
    /* The line whose write failed may have reached the disk all the same; nothing else may differ. */
    bool later = w.r.registry.next_n == next.next_n && w.r.registry.next_n != w.story.next_n;
    for (size_t i = 0; !later && i < EPOCHS; i++) {
        char epoch[16];
        snprintf(epoch, sizeof epoch, "e%zu", i);
        struct rewarder_run *run =
            rewarder_registry_find(&w.r.registry, STR("default"), str_from_c(epoch), false);
        const struct told *a = &w.story.epochs[i], *b = &next.epochs[i];
        if (memcmp(a, b, sizeof *a) != 0)
            later = (run != NULL) != a->known ||
                    (run && (run->info.state != a->state || run->info.swept != a->swept));
        rewarder_run_unref(run);
    }
    expect_story(&w, later ? &next : &w.story);
    close_world(&w);
    store_disk_destroy(w.disk);
}

/* Runs are numbered when they are admitted and written down when they are sealed: the later one may be there first. */
static void runs_that_were_sealed_out_of_turn_are_listed_in_turn_after_a_restart(void **state) RT_BLOCKS
{
    (void)state;
    static const struct {
        const char *epoch;
        uint64_t n;
    } sealed[] = {{"e2", 2}, {"e4", 4}, {"e1", 1}, {"e3", 3}};
    struct world w = {.story = {.next_n = 1}};
    assert_int_equal(store_disk_faulty(1, &(struct store_fault_plan){.crash_at = 0}, &w.disk), ERR_OK);
    assert_int_equal(open_world(&w), ERR_OK);
    for (size_t i = 0; i < sizeof sealed / sizeof *sealed; i++) {
        struct buf line;
        buf_init(&line, 4096);
        put_sealed(sealed[i].epoch, sealed[i].n, &line);
        assert_int_equal(rewarder_log_append(&w.r.files, buf_bytes(&line)), ERR_OK);
        buf_fini(&line);
    }
    close_world(&w);
    assert_int_equal(open_world(&w), ERR_OK);
    struct rewarder_listing page = {STR("default"), REWARDER_STATE_COUNT, UINT64_MAX};
    struct rewarder_run *run;
    for (uint64_t n = 4; n > 0; n--) {
        assert_int_equal(rewarder_registry_list(&w.r.registry, &page, &run, 1), 1);
        assert_int_equal(page.before = run->info.n, n);
        rewarder_run_unref(run);
        assert_int_equal(rewarder_registry_unsettled(&w.r.registry, false, 4 - n, &run, 1), 1);
        assert_int_equal(run->info.n, 5 - n);
        rewarder_run_unref(run);
    }
    close_world(&w);
    store_disk_destroy(w.disk);
}

static void a_disk_that_fails_anywhere_in_a_rewrite_loses_no_line(void **state) RT_BLOCKS
{
    (void)state;
    uint64_t rounds = from_env("RON_ROUNDS", 400), seed = from_env("RON_SEED", (uint64_t)os_now_ns() | 1);
    uint64_t fired = 0, hit = 0;
    print_message("RON_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < rounds; i++)
        survives(seed + i, &fired, &hit);
    print_message("%llu of %llu faults happened, %llu in a rewrite\n", (unsigned long long)fired,
                  (unsigned long long)rounds, (unsigned long long)hit);
    assert_true(rounds < 100 || hit > rounds / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folded_log_says_what_the_whole_one_said_and_stays_small),
        cmocka_unit_test(runs_that_were_sealed_out_of_turn_are_listed_in_turn_after_a_restart),
        cmocka_unit_test(a_disk_that_fails_anywhere_in_a_rewrite_loses_no_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
