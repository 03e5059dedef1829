/*
 * Rules that hold whatever the order of arrival, the batching and the restarts: duplicates are one unit for ever, equal tuples
 * are one unit, one debit per nonce, the same rounds give the same seqs and root in any arrival order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "services/ledger/policy.h"
#include "services/ledger/files.h"
#include "services/ledger/segz.h"

static void open_memory(struct rig *r) RT_BLOCKS
{
    struct store_disk *disk;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    rig_init(r, disk);
    assert_int_equal(rig_open(r), ERR_OK);
}

static void close_memory(struct rig *r) RT_BLOCKS
{
    ledger_close(r->l, false);
    store_disk_destroy(r->disk);
}

static struct core_entry mint(const char *id, const char *account, uint64_t amount)
{
    return (struct core_entry){.id = str_from_c(id),
                               .ts = 1,
                               .kind = CORE_MINT,
                               .account = str_from_c(account),
                               .asset = STR("ron"),
                               .amount = {amount}};
}

static struct core_entry pay(const char *id, uint64_t ts, uint64_t amount, uint64_t nonce)
{
    return (struct core_entry){.id = str_from_c(id),
                               .ts = ts,
                               .kind = CORE_TRANSFER,
                               .account = STR("acct:a"),
                               .to = STR("acct:b"),
                               .asset = STR("ron"),
                               .amount = {amount},
                               .nonce = nonce};
}

static struct rig_outcome send(struct rig *r, const char *idem, const struct core_entry *e) RT_BLOCKS
{
    struct core_unit u = {idem == NULL ? (struct str){NULL, 0} : str_from_c(idem), {NULL, 0}, 0, e, 1};
    struct rig_outcome out;
    rig_one(r, &u, &out);
    return out;
}

/* idem: replays, over restarts and merges of runs, change nothing and say the first seq. */
static void i6_a_replay_changes_nothing_over_restarts_and_merges(void **state) RT_BLOCKS
{
    (void)state;
    enum { UNITS = 1500 };
    struct rig r;
    static char ids[UNITS][16], idems[UNITS][16];
    static uint64_t seqs[UNITS];
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000000);
    assert_int_equal(send(&r, "m", &m).verdict, VERDICT_COMMITTED);
    for (unsigned i = 0; i < UNITS; i++) {
        snprintf(ids[i], sizeof ids[i], "e%u", i);
        snprintf(idems[i], sizeof idems[i], "u%u", i);
        struct core_entry e = pay(ids[i], 10 + i, 1 + i % 7, i + 1);
        struct rig_outcome o = send(&r, idems[i], &e);
        assert_int_equal(o.verdict, VERDICT_COMMITTED);
        seqs[i] = o.seq;
        if (i % 60 == 0) {
            atomic_store(&r.l->want_gen, true);
            assert_int_equal(rig_checkpoint(&r), ERR_OK);
        }
        assert_true(store_sink_prepare(r.l->sink) == ERR_OK);
    }
    struct ledger_head before, after;
    struct sha256 digest, again;
    ledger_head_read(r.l, &before);
    ledger_state_digest(r.l->state, &digest);
    struct ledger_view *v = ledger_index_pin(&r.l->index);
    assert_true(v->n_runs >= 2 && v->runs[0]->run.tier >= 1); /* there were merges */
    for (uint32_t i = 0; i < v->n_runs; i++) { /* and every byte of what they made is as it should be */
        struct ledger_index_run deep;
        assert_int_equal(ledger_index_run_open(v->runs[i]->bytes, v->runs[i]->n_bytes, true, &deep),
                         ERR_OK);
    }
    ledger_view_unpin(v);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < UNITS; i++) {
            struct core_entry e = pay(round == 0 ? ids[i] : "another-id", 99999 + i, 1 + i % 7,
                                      i + 1); /* re-stamped, re-named: the same unit */
            struct rig_outcome o = send(&r, idems[i], &e);
            assert_int_equal(o.verdict, VERDICT_DUPLICATE);
            assert_int_equal(o.seq, seqs[i]);
            struct core_entry other = pay(ids[i], 10 + i, 8 + i % 7, i + 1);
            o = send(&r, idems[i], &other);
            assert_int_equal(o.reason, ERR_CONFLICT);
        }
        ledger_close(r.l, round == 0);
        assert_int_equal(rig_open(&r), ERR_OK);
        assert_int_equal(ledger_safe_cause(r.l), CAUSE_NONE);
    }
    ledger_head_read(r.l, &after);
    ledger_state_digest(r.l->state, &again);
    assert_true(before.seq == after.seq && sha256_eq(&before.root, &after.root) &&
                sha256_eq(&digest, &again));
    close_memory(&r);
}

/* More than any table of a fixed size for segments would hold. Each opening has to find them all, and the same end. */
static void
i9_a_journal_of_hundreds_of_segments_is_opened_from_a_checkpoint_and_from_nothing(void **state) RT_BLOCKS
{
    (void)state;
    enum { SEGMENTS = 300 };
    struct rig r;
    struct store_disk *disk;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    rig_init(&r, disk);
    r.set.segment_bytes = 64 << 10;
    r.set.commit_max_bytes = 8 << 10;
    r.set.checkpoint_entries = 1024;
    assert_int_equal(rig_open(&r), ERR_OK);
    struct store_segment *v = NULL;
    size_t n = 0;
    for (unsigned i = 0; n < SEGMENTS; i++) {
        assert_true(i < 100 * SEGMENTS);
        char id[16];
        snprintf(id, sizeof id, "m%u", i);
        struct core_entry m = mint(id, i % 2 ? "acct:a" : "acct:b", 1 + i);
        assert_int_equal(send(&r, id, &m).verdict, VERDICT_COMMITTED);
        assert_true(store_sink_prepare(r.l->sink) == ERR_OK);
        assert_int_equal(rig_checkpoint(&r), ERR_OK);
        if (i % 100 != 0)
            continue;
        v = ledger_segments(r.l, &n);
        assert_non_null(v);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(v[k].segment_no, k + 1);
        free(v);
    }
    struct ledger_head before, after;
    struct sha256 digest, again;
    ledger_head_read(r.l, &before);
    ledger_state_digest(r.l->state, &digest);
    for (unsigned round = 0; round < 3;
         round++) { /* after a kill; in order; without anything but the journal */
        ledger_close(r.l, round == 1);
        if (round == 2)
            rig_forget_derived(&r);
        assert_int_equal(rig_open(&r), ERR_OK);
        assert_int_equal(ledger_safe_cause(r.l), CAUSE_NONE);
        ledger_head_read(r.l, &after);
        ledger_state_digest(r.l->state, &again);
        assert_true(before.seq == after.seq && before.group_no == after.group_no &&
                    sha256_eq(&before.root, &after.root) && sha256_eq(&digest, &again));
        v = ledger_segments(r.l, &n);
        assert_true(v != NULL && n >= SEGMENTS);
        free(v);
        struct core_entry m = mint("m7", "acct:a", 8); /* an old unit, from one of the first segments */
        assert_int_equal(send(&r, "m7", &m).verdict, VERDICT_DUPLICATE);
    }
    close_memory(&r);
}

static struct ledger_job *validated(struct rig *r, const struct core_unit *u,
                                    struct rig_outcome *out) RT_BLOCKS
{
    *out = (struct rig_outcome){0};
    struct ledger_job *job = rig_job(r, u, 1, out);
    assert_true(ledger_prevalidate(r->l, job));
    return job;
}

static void judged(struct rig *r, struct ledger_job *job) RT_BLOCKS
{
    r->l->round.jobs[0] = job;
    r->l->round.n = 1;
    rig_judge(r);
}

/*
 * Jobs that were validated before a generation was even opened, and judged when it is long in a run: its keys are in no generation
 * that such a job, or the current view, knows of.
 */
static void i6_what_came_and_went_while_a_job_waited_is_still_known(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    struct rig_outcome again, other, id, fresh;
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000), n = mint("n", "acct:a", 7), k = mint("k", "acct:a", 1);
    struct core_entry same_id = mint("n", "acct:b", 9), unrelated = mint("f", "acct:a", 1);
    assert_int_equal(send(&r, "m", &m).verdict, VERDICT_COMMITTED);
    struct ledger_job *waiting[] = {
        validated(&r, &(struct core_unit){STR("n"), {NULL, 0}, 0, &n, 1}, &again),
        validated(&r, &(struct core_unit){STR("n"), {NULL, 0}, 0, &k, 1}, &other),
        validated(&r, &(struct core_unit){STR("i"), {NULL, 0}, 0, &same_id, 1}, &id),
        validated(&r, &(struct core_unit){STR("f"), {NULL, 0}, 0, &unrelated, 1}, &fresh)};
    atomic_store(&r.l->want_gen, true);
    assert_int_equal(send(&r, "n", &n).verdict,
                     VERDICT_COMMITTED); /* in a generation that no waiting job has seen */
    atomic_store(&r.l->want_gen, true);
    struct core_entry o = mint("o", "acct:a", 1);
    assert_int_equal(send(&r, "o", &o).verdict, VERDICT_COMMITTED);
    assert_int_equal(rig_checkpoint(&r), ERR_OK);
    struct ledger_view *v = ledger_index_pin(&r.l->index);
    assert_int_equal(v->n_gens, 1); /* all but the open one are in runs */
    ledger_view_unpin(v);
    for (size_t i = 0; i < 4; i++)
        judged(&r, waiting[i]);
    assert_int_equal(again.verdict,
                     VERDICT_REJECTED); /* what it was cannot be said without the disk: once more, please */
    assert_int_equal(again.reason, ERR_BUSY);
    assert_int_equal(other.reason, ERR_BUSY);
    assert_int_equal(id.reason, ERR_ID_EXISTS);
    assert_int_equal(fresh.verdict, VERDICT_COMMITTED);
    assert_int_equal(send(&r, "n", &n).verdict, VERDICT_DUPLICATE);
    assert_int_equal(send(&r, "n", &k).reason, ERR_CONFLICT);
    close_memory(&r);
}

static void count(void *n)
{
    ++*(uint64_t *)n;
}

/* Killed with the checkpoint several segments behind, and those segments packed meanwhile: replay begins in a packed one. */
static void a_checkpoint_that_lies_in_a_packed_segment_is_replayed(void **state) RT_BLOCKS
{
    (void)state;
    enum { UNITS = 330, CHECKPOINT_AT = 80, PACKED = 3 }; /* 63 groups of one unit fill a segment */
    struct rig r;
    struct ledger_head before, after;
    struct sha256 digest, again;
    uint64_t asked = 0;
    char id[16];
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000000);
    assert_int_equal(send(&r, "m", &m).verdict, VERDICT_COMMITTED);
    for (unsigned i = 0; i < UNITS; i++) {
        snprintf(id, sizeof id, "e%u", i);
        struct core_entry e = pay(id, 10 + i, 1, i + 1);
        if (i == CHECKPOINT_AT)
            atomic_store(&r.l->want_gen, true);
        assert_int_equal(send(&r, id, &e).verdict, VERDICT_COMMITTED);
        if (i == CHECKPOINT_AT)
            assert_int_equal(rig_checkpoint(&r), ERR_OK);
        assert_int_equal(store_sink_prepare(r.l->sink), ERR_OK);
    }
    assert_int_equal(atomic_load(&r.l->checkpoint_segment), 2);
    ledger_head_read(r.l, &before);
    ledger_state_digest(r.l->state, &digest);
    for (uint32_t segment = 1; segment <= PACKED; segment++)
        assert_int_equal(ledger_segz_pack(r.l, segment, (struct ledger_pace){count, &asked}), ERR_OK);
    /* Read, compressed, compared: whoever packs is asked after every chunk of each; and before every megabyte that is written. */
    assert_int_equal(asked, PACKED * (3 * (r.l->set.segment_bytes / SEGZ_CHUNK) + 1));
    ledger_close(r.l, false);
    assert_int_equal(rig_open(&r), ERR_OK);
    assert_int_equal(ledger_safe_cause(r.l), CAUSE_NONE);
    ledger_head_read(r.l, &after);
    ledger_state_digest(r.l->state, &again);
    assert_true(before.seq == after.seq && sha256_eq(&before.root, &after.root) &&
                sha256_eq(&digest, &again));
    close_memory(&r);
}

static void equal_tuples_without_a_name_are_one_unit(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000);
    send(&r, "m", &m);
    struct core_entry e = pay("x1", 5, 10, 1);
    struct rig_outcome first = send(&r, NULL, &e);
    assert_int_equal(first.verdict, VERDICT_COMMITTED);
    struct core_entry again = pay("x2", 6, 10, 1);
    struct rig_outcome second = send(&r, NULL, &again);
    assert_int_equal(second.verdict, VERDICT_DUPLICATE);
    assert_int_equal(second.seq, first.seq);
    struct rig_outcome named =
        send(&r, "named", &again); /* the same tuple under another name: its nonce is spent */
    assert_int_equal(named.reason, ERR_NONCE_CONFLICT);
    close_memory(&r);
}

static void a_unit_that_came_too_late_is_refused_for_good(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000);
    struct core_unit u = {STR("late"), {NULL, 0}, (uint64_t)r.wall_ms - 1, &m, 1};
    struct rig_outcome out;
    rig_one(&r, &u, &out);
    assert_int_equal(out.reason, ERR_EXPIRED);
    u.not_after = (uint64_t)r.wall_ms + 1000;
    rig_one(&r, &u, &out);
    assert_int_equal(out.verdict, VERDICT_COMMITTED);
    r.mono_ns += INT64_C(5000000000);
    rig_one(&r, &u, &out); /* known: its first outcome, whatever the time */
    assert_int_equal(out.verdict, VERDICT_DUPLICATE);
    close_memory(&r);
}

static void a_stepped_wall_clock_expires_nothing_early(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000);
    send(&r, "m", &m);
    struct core_entry h = {.id = STR("h"),
                           .ts = 1,
                           .kind = CORE_HOLD,
                           .account = STR("acct:a"),
                           .asset = STR("ron"),
                           .amount = {100},
                           .nonce = 1,
                           .hold_until = (uint64_t)r.wall_ms + 10000};
    assert_int_equal(send(&r, "h", &h).verdict, VERDICT_COMMITTED);
    r.wall_ms += 3600000; /* somebody sets the clock an hour ahead */
    struct core_entry c = {.id = STR("c"),
                           .ts = 1,
                           .kind = CORE_CAPTURE,
                           .account = STR("acct:a"),
                           .to = STR("acct:b"),
                           .asset = STR("ron"),
                           .amount = {10},
                           .ref_id = STR("h")};
    assert_int_equal(send(&r, "c", &c).verdict, VERDICT_COMMITTED);
    r.mono_ns += INT64_C(11000000000); /* eleven real seconds */
    rig_round(&r, NULL, 0);            /* an idle round makes the expiry entry */
    assert_int_equal(ledger_head_seq(r.l), 4);
    struct core_entry late = c;
    late.id = STR("c2");
    struct rig_outcome o = send(&r, "c2", &late);
    assert_int_equal(o.reason, ERR_HOLD_CLOSED);
    struct ledger_account_read read = {0};
    assert_int_equal(ledger_state_read_account(r.l->state, STR("acct:a"), 4, &read), ERR_OK);
    assert_true(read.balances[0].available.units == 990 && read.balances[0].held.units == 0);
    ledger_account_read_fini(&read);
    close_memory(&r);
}

/* shuffle: any order of arrival in a round, any sink, the same seqs and root. */
static void i8_arrival_order_in_a_round_does_not_matter(void **state) RT_BLOCKS
{
    (void)state;
    enum { JOBS = 40, ROUNDS = 25 };
    struct sha256 root = {{0}};
    for (unsigned variant = 0; variant < 6; variant++) {
        struct rig r;
        struct rng rng, shuffle;
        rng_seed(&rng, 5);
        rng_seed(&shuffle, variant);
        open_memory(&r);
        uint64_t nonce[4] = {0};
        static const char *const who[4] = {"acct:0", "acct:1", "acct:2", "acct:3"};
        for (unsigned round = 0; round < ROUNDS; round++) {
            static char ids[JOBS][24];
            struct core_entry e[JOBS];
            struct rig_outcome out[JOBS];
            struct ledger_job *jobs[JOBS];
            for (unsigned i = 0; i < JOBS; i++) {
                unsigned a = (unsigned)rng_below(&rng, 4);
                snprintf(ids[i], sizeof ids[i], "r%u-%u", round, i);
                uint64_t ts = 1000 * round + rng_below(&rng, 5);
                e[i] = rng_below(&rng, 3) == 0 ? mint(ids[i], who[a], 100)
                                               : (struct core_entry){.id = str_from_c(ids[i]),
                                                                     .kind = CORE_TRANSFER,
                                                                     .account = str_from_c(who[a]),
                                                                     .to = str_from_c(who[(a + 1) % 4]),
                                                                     .asset = STR("ron"),
                                                                     .amount = {1 + rng_below(&rng, 90)},
                                                                     .nonce = ++nonce[a]};
                e[i].ts = ts;
                struct core_unit u = {str_from_c(ids[i]), {NULL, 0}, 0, &e[i], 1};
                jobs[i] = rig_job(&r, &u, 1, &out[i]);
            }
            for (unsigned i = JOBS - 1; variant > 0 && i > 0; i--) {
                unsigned k = (unsigned)rng_below(&shuffle, i + 1);
                struct ledger_job *t = jobs[i];
                jobs[i] = jobs[k];
                jobs[k] = t;
            }
            rig_round(&r, jobs, JOBS);
            for (unsigned a = 0; a < 4;
                 a++) { /* what was refused is not repeated: start each round from the truth */
                struct ledger_account_read read = {0};
                assert_int_equal(
                    ledger_state_read_account(r.l->state, str_from_c(who[a]), ledger_head_seq(r.l), &read),
                    ERR_OK);
                nonce[a] = read.n_lanes == 0 ? 0 : read.lanes[0].counter;
                ledger_account_read_fini(&read);
            }
            assert_true(store_sink_prepare(r.l->sink) == ERR_OK);
            if (variant == 3) { /* and restarts in between */
                ledger_close(r.l, true);
                assert_int_equal(rig_open(&r), ERR_OK);
            }
        }
        struct ledger_head head;
        ledger_head_read(r.l, &head);
        if (variant == 0)
            root = head.root;
        assert_true(head.seq > 200 && sha256_eq(&root, &head.root));
        close_memory(&r);
    }
}

static void reverses_never_exceed_the_transfer(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    open_memory(&r);
    struct core_entry m = mint("m", "acct:a", 1000), t = pay("t", 2, 100, 1);
    send(&r, "m", &m);
    send(&r, "t", &t);
    struct core_entry rev = {.id = STR("r1"),
                             .ts = 3,
                             .kind = CORE_REVERSE,
                             .account = STR("acct:a"),
                             .to = STR("acct:b"),
                             .asset = STR("ron"),
                             .amount = {60},
                             .ref_id = STR("t")};
    assert_int_equal(send(&r, "r1", &rev).reason,
                     ERR_POLICY_DENIED); /* reverse must be allowed by policy */
    ledger_policy_free(r.l->policy);
    r.l->policy = NULL;
    assert_int_equal(send(&r, "r1", &rev).verdict, VERDICT_COMMITTED);
    rev.id = STR("r2");
    assert_int_equal(send(&r, "r2", &rev).reason, ERR_AMOUNT_EXCEEDS);
    rev.amount.units = 40;
    assert_int_equal(send(&r, "r2", &rev).verdict, VERDICT_COMMITTED);
    rev.id = STR("r3");
    rev.amount.units = 1;
    assert_int_equal(send(&r, "r3", &rev).reason, ERR_AMOUNT_EXCEEDS);
    rev.ref_id = STR("nothing");
    assert_int_equal(send(&r, "r4", &rev).reason, ERR_REF_NOT_FOUND);
    rev.ref_id = STR("t");
    rev.account = STR("acct:c");
    assert_int_equal(send(&r, "r5", &rev).reason, ERR_REF_MISMATCH);
    close_memory(&r);
}

static void a_commit_wakes_nobody_who_does_not_listen(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    open_memory(&r);
    struct core_entry m = mint("m1", "acct:a", 1000);
    send(&r, "m1", &m);
    assert_int_equal(rt_bcast_stats(r.l->root_pub).published, 0);
    ledger_listen(r.l);
    m.id = STR("m2");
    send(&r, "m2", &m);
    assert_int_equal(rt_bcast_stats(r.l->root_pub).published, 1);
    ledger_unlisten(r.l);
    m.id = STR("m3");
    send(&r, "m3", &m);
    assert_int_equal(rt_bcast_stats(r.l->root_pub).published, 1);
    assert_int_equal(ledger_head_seq(r.l), 3);
    close_memory(&r);
}

/* Lanes of one account in turn, lanes of two accounts in turn, and a lane whose unit was taken back. */
static void i7_lanes_are_told_apart_whichever_was_used_last(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    open_memory(&r);
    struct core_entry m = mint("m-a", "acct:a", 1000);
    send(&r, "m-a", &m);
    m = mint("m-b", "acct:b", 1000);
    send(&r, "m-b", &m);
    char id[32];
    for (uint64_t counter = 1; counter <= 3; counter++)
        for (uint64_t lane = 0; lane < 6; lane++)
            for (unsigned who = 0; who < 2; who++) {
                snprintf(id, sizeof id, "p-%u-%u-%u", (unsigned)counter, (unsigned)lane, who);
                struct core_entry p = pay(id, 2, 1, lane << CORE_LANE_SHIFT | counter);
                p.account = who == 0 ? STR("acct:a") : STR("acct:b");
                p.to = STR("acct:c");
                assert_int_equal(send(&r, id, &p).verdict, VERDICT_COMMITTED);
                snprintf(id, sizeof id, "again-%u-%u-%u", (unsigned)counter, (unsigned)lane, who);
                p.id = str_from_c(id);
                assert_int_equal(send(&r, id, &p).reason, ERR_NONCE_CONFLICT);
            }
    /* The first entry makes lane 9, the second finds it again and cannot pay: both are taken back, and the lane with them. */
    struct core_entry two[2] = {pay("two-1", 2, 1, UINT64_C(9) << CORE_LANE_SHIFT | 1),
                                pay("two-2", 2, 100000, UINT64_C(9) << CORE_LANE_SHIFT | 2)};
    struct core_unit u = {STR("two"), {NULL, 0}, 0, two, 2};
    struct rig_outcome out;
    rig_one(&r, &u, &out);
    assert_int_equal(out.reason, ERR_INSUFFICIENT_FUNDS);
    struct core_entry late = pay("late-9", 2, 1, UINT64_C(9) << CORE_LANE_SHIFT | 2);
    assert_int_equal(send(&r, "late-9", &late).reason, ERR_NONCE_GAP);
    late.nonce = UINT64_C(9) << CORE_LANE_SHIFT | 1;
    assert_int_equal(send(&r, "late-9", &late).verdict, VERDICT_COMMITTED);
    struct core_entry next = pay("next-10", 2, 1, UINT64_C(10) << CORE_LANE_SHIFT | 1);
    assert_int_equal(send(&r, "next-10", &next).verdict, VERDICT_COMMITTED);
    late.id = STR("late-9-2");
    late.nonce = UINT64_C(9) << CORE_LANE_SHIFT | 2;
    assert_int_equal(send(&r, "late-9-2", &late).verdict, VERDICT_COMMITTED);
    close_memory(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i6_a_replay_changes_nothing_over_restarts_and_merges),
        cmocka_unit_test(i9_a_journal_of_hundreds_of_segments_is_opened_from_a_checkpoint_and_from_nothing),
        cmocka_unit_test(i6_what_came_and_went_while_a_job_waited_is_still_known),
        cmocka_unit_test(a_checkpoint_that_lies_in_a_packed_segment_is_replayed),
        cmocka_unit_test(equal_tuples_without_a_name_are_one_unit),
        cmocka_unit_test(a_unit_that_came_too_late_is_refused_for_good),
        cmocka_unit_test(a_stepped_wall_clock_expires_nothing_early),
        cmocka_unit_test(i8_arrival_order_in_a_round_does_not_matter),
        cmocka_unit_test(reverses_never_exceed_the_transfer),
        cmocka_unit_test(a_commit_wakes_nobody_who_does_not_listen),
        cmocka_unit_test(i7_lanes_are_told_apart_whichever_was_used_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
