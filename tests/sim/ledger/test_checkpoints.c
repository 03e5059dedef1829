/* Generations, merges and what lies on disk, with a generation complete at any moment of a merge and a disk that fails at any call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rig.h"

enum { TIER_RUNS = 4, TIER_MAX = 7, TIERS = 12 };

struct history {
    struct rig r;
    unsigned sent;
};

static void begin(struct history *h, struct store_disk *disk) RT_BLOCKS
{
    h->sent = 0;
    rig_init(&h->r, disk);
    assert_int_equal(rig_open(&h->r), ERR_OK);
}

static void end(struct history *h) RT_BLOCKS
{
    ledger_close(h->r.l, false);
    store_disk_destroy(h->r.disk);
}

/* The generation before is complete, and waits in gen_tx. */
static void next_generation(struct history *h) RT_BLOCKS
{
    atomic_store(&h->r.l->want_gen, true);
    assert_int_equal(rig_mint(&h->r, h->sent++).verdict, VERDICT_COMMITTED);
    assert_int_equal(rig_mint(&h->r, h->sent++).verdict, VERDICT_COMMITTED);
    assert_int_equal(store_sink_prepare(h->r.l->sink), ERR_OK);
}

static void written_generations(struct history *h, unsigned n) RT_BLOCKS
{
    for (unsigned i = 0; i < n; i++) {
        next_generation(h);
        assert_int_equal(rig_write(&h->r), ERR_OK);
    }
}

static void assert_runs(struct history *h, uint32_t n) RT_BLOCKS
{
    struct ledger_view *v = ledger_index_pin(&h->r.l->index);
    assert_int_equal(v->n_runs, n);
    for (uint32_t i = 0; i < v->n_runs; i++) {
        char path[64];
        struct store_stat st;
        snprintf(path, sizeof path, "led/index/%08u.run", v->runs[i]->number);
        assert_int_equal(store_disk_stat(h->r.disk, path, &st), ERR_OK);
        assert_int_equal(st.bytes, v->runs[i]->n_bytes);
    }
    ledger_view_unpin(v);
}

/* Opened again, from the newest checkpoint and not from an older one, it knows every unit, and the state is the same. */
static void assert_survives(struct history *h) RT_BLOCKS
{
    struct sha256 before, after;
    uint64_t checkpoint = atomic_load(&h->r.l->checkpoint_seq);
    ledger_state_digest(h->r.l->state, &before);
    ledger_close(h->r.l, false);
    assert_int_equal(rig_open(&h->r), ERR_OK);
    assert_int_equal(atomic_load(&h->r.l->checkpoint_seq), checkpoint);
    assert_int_equal(ledger_safe_cause(h->r.l), CAUSE_NONE);
    ledger_state_digest(h->r.l->state, &after);
    assert_true(sha256_eq(&before, &after));
    for (unsigned i = 0; i < h->sent; i++)
        assert_int_equal(rig_mint(&h->r, i).verdict, VERDICT_DUPLICATE);
}

/* After one slice, after two ... until the merge is over before the next generation comes. */
static void generations_are_written_while_a_merge_is_under_way(void **state) RT_BLOCKS
{
    (void)state;
    bool more = true;
    unsigned slices = 1;
    for (; more; slices++) {
        struct history h;
        struct store_disk *disk;
        assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
        begin(&h, disk);
        next_generation(&h); /* the first to be written is complete with the second */
        written_generations(&h, TIER_RUNS);
        assert_runs(&h, TIER_RUNS);
        for (unsigned i = 0; i < slices && more; i++)
            assert_int_equal(ledger_checkpoint_merge(h.r.l, &more), ERR_OK);
        written_generations(&h, 2);
        assert_int_equal(ledger_checkpoint_merge_all(h.r.l), ERR_OK);
        written_generations(&h, 1); /* names the merged run, removes the four */
        assert_runs(&h, 1 + 3);
        assert_survives(&h);
        end(&h);
    }
    assert_true(slices > 8); /* of index and state: begun, records, parts, done */
}

/* The most that any tier holds; tiers lie in order, the highest first. */
static uint32_t fullest_tier(struct history *h) RT_BLOCKS
{
    uint32_t holds[TIERS] = {0}, most = 0, last = TIERS - 1;
    struct ledger_view *v = ledger_index_pin(&h->r.l->index);
    for (uint32_t i = 0; i < v->n_runs; i++) {
        uint32_t tier = v->runs[i]->run.tier;
        assert_true(tier <= last);
        last = tier;
        most = ++holds[tier] > most ? holds[tier] : most;
    }
    ledger_view_unpin(v);
    return most;
}

enum { SLICE_BYTES = INDEX_RUN_RECORD }; /* a quarter of a generation: two units of one entry */

/*
 * Generations that never stop coming, and slices of one record: a merge of tier 3 takes more than a thousand, and shorter ones come due
 * all the while. With what is owed for each generation, and no more, at most one run comes into a tier while
 * its four are merged.
 */
static void runs_stay_few_under_a_stream_that_never_pauses(void **state) RT_BLOCKS
{
    (void)state;
    enum { GENERATIONS = 360 }; /* into the fifth tier */
    struct history h;
    struct store_disk *disk;
    uint32_t most = 0, most_owed = 0;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    begin(&h, disk);
    h.r.l->set.merge_slice_bytes = SLICE_BYTES;
    next_generation(&h);
    for (unsigned i = 0; i < GENERATIONS; i++) {
        uint32_t owed = 0, holds;
        written_generations(&h, 1);
        most = (holds = fullest_tier(&h)) > most ? holds : most;
        for (bool more = true; ledger_checkpoint_merge_owed(h.r.l); owed++)
            assert_int_equal(ledger_checkpoint_merge(h.r.l, &more), ERR_OK);
        most_owed = owed > most_owed ? owed : most_owed;
    }
    print_message("at most %u in a tier, %u slices for a generation\n", most, most_owed);
    assert_true(most <= TIER_RUNS + 1);
    assert_true(most_owed < 4 * 256 / 2); /* the records of the longest merge alone are 4 * 256 slices */
    assert_survives(&h);
    end(&h);
}

/* Whoever pays nothing of what is owed waits in the end for whole merges; but more than seven a tier there are never. */
static void a_tier_never_holds_more_than_seven(void **state) RT_BLOCKS
{
    (void)state;
    struct history h;
    struct store_disk *disk;
    uint32_t most = 0;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    begin(&h, disk);
    h.r.l->set.merge_slice_bytes = SLICE_BYTES;
    next_generation(&h);
    for (unsigned i = 0; i < 200; i++) {
        uint32_t holds;
        written_generations(&h, 1);
        most = (holds = fullest_tier(&h)) > most ? holds : most;
    }
    assert_int_equal(most, TIER_MAX);
    assert_survives(&h);
    end(&h);
}

/*
 * Who opens the ledger waits for the log to be read, not for checkpoints: as many generations as memory may hold are left to the
 * checkpointer. Only of a longer log are the oldest written meanwhile.
 */
static void opening_leaves_three_generations_to_the_checkpointer(void **state) RT_BLOCKS
{
    (void)state;
    for (unsigned complete = 0; complete <= 6; complete++) {
        struct history h;
        struct store_disk *disk;
        assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
        h.sent = 0;
        rig_init(&h.r, disk);
        h.r.set.checkpoint_entries = h.r.set.commit_max_entries = 64;
        assert_int_equal(rig_open(&h.r), ERR_OK);
        unsigned per =
            h.r.set.checkpoint_entries + h.r.set.commit_max_entries; /* what a replayed one holds */
        while (h.sent < complete * per + 1) {
            if (rig_mint(&h.r, h.sent).verdict == VERDICT_COMMITTED)
                h.sent++;
            else /* three are frozen */
                assert_int_equal(rig_checkpoint(&h.r), ERR_OK);
            assert_int_equal(store_sink_prepare(h.r.l->sink), ERR_OK);
        }
        struct sha256 before, after;
        ledger_state_digest(h.r.l->state, &before);
        ledger_close(h.r.l, false);
        rig_forget_derived(&h.r);
        assert_int_equal(rig_open(&h.r), ERR_OK);
        unsigned left = complete < LEDGER_GENS_FROZEN_MAX ? complete : LEDGER_GENS_FROZEN_MAX;
        assert_int_equal(atomic_load(&h.r.l->checkpoint_seq), (complete - left) * per);
        assert_int_equal(rt_chan_depth(h.r.l->gen_tx), left);
        assert_int_equal(atomic_load(&h.r.l->frozen_gens), left);
        assert_int_equal(rig_checkpoint(&h.r), ERR_OK);
        assert_int_equal(atomic_load(&h.r.l->checkpoint_seq), complete * per);
        assert_int_equal(atomic_load(&h.r.l->frozen_gens), 0);
        ledger_state_digest(h.r.l->state, &after);
        assert_true(sha256_eq(&before, &after));
        assert_survives(&h);
        end(&h);
    }
}

/* Of a checkpoint, in a fresh ledger with two generations: the plan says which call of the disk fails. */
static enum err first_attempt(struct history *h, const struct store_fault_plan *plan, void **out_log,
                              bool *out_fired) RT_BLOCKS
{
    static const struct store_fault_plan none = {0};
    struct store_disk *disk;
    assert_int_equal(store_disk_faulty(plan->eio_at + plan->enospc_at, &none, &disk), ERR_OK);
    begin(h, disk);
    next_generation(h);
    next_generation(h);
    assert_int_equal(rt_chan_try_recv(h->r.l->gen_tx, out_log), ERR_OK);
    store_disk_faulty_plan(disk, plan);
    enum err err = ledger_checkpoint_write(h->r.l, *out_log);
    *out_fired = store_disk_faulty_fired(disk);
    store_disk_faulty_plan(disk, &none);
    return err;
}

/* Whatever it was that failed, the second attempt leaves each generation with one run. */
static void a_checkpoint_that_failed_is_written_once(void **state) RT_BLOCKS
{
    (void)state;
    bool fired = true;
    for (uint64_t k = 1; fired; k++) {
        struct history h;
        void *log;
        enum err err = first_attempt(&h, &(struct store_fault_plan){.eio_at = k}, &log, &fired);
        if (err != ERR_OK)
            assert_int_equal(ledger_checkpoint_write(h.r.l, log), ERR_OK);
        assert_runs(&h, 1);
        written_generations(&h, 1);
        assert_runs(&h, 2);
        assert_survives(&h);
        end(&h);
    }
}

static void a_merge_that_failed_hides_nothing_and_is_done_again(void **state) RT_BLOCKS
{
    (void)state;
    static const struct store_fault_plan none = {0};
    for (uint64_t k = 1, fired = 1; fired; k++) {
        struct history h;
        struct store_disk *disk;
        struct store_fault_plan plan = {.enospc_at = k, .eio_at = k % 2 ? k : 0};
        assert_int_equal(store_disk_faulty(k, &none, &disk), ERR_OK);
        begin(&h, disk);
        next_generation(&h);
        written_generations(&h, TIER_RUNS);
        store_disk_faulty_plan(disk, &plan);
        enum err err = ledger_checkpoint_merge_all(h.r.l);
        fired = store_disk_faulty_fired(disk);
        store_disk_faulty_plan(disk, &none);
        for (unsigned i = 0; i < h.sent; i++)
            assert_int_equal(rig_mint(&h.r, i).verdict, VERDICT_DUPLICATE);
        if (err != ERR_OK)
            assert_int_equal(ledger_checkpoint_merge_all(h.r.l), ERR_OK);
        written_generations(&h, 1);
        assert_runs(&h, 1 + 1);
        assert_survives(&h);
        end(&h);
    }
}

static void commit(struct history *h, struct core_entry e) RT_BLOCKS
{
    struct rig_outcome out;
    struct core_unit u = {e.id, {NULL, 0}, 0, &e, 1};
    rig_one(&h->r, &u, &out);
    assert_int_equal(out.verdict, VERDICT_COMMITTED);
}

/* What says in a younger run that something is gone must outlast a merge of the young ones: it hides what an older run says. */
static void what_is_gone_stays_gone_whatever_is_merged(void **state) RT_BLOCKS
{
    (void)state;
    struct history h;
    struct store_disk *disk;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    begin(&h, disk);
    struct core_entry e = {.id = STR("paid"),
                           .ts = 1,
                           .kind = CORE_MINT,
                           .account = STR("acct:h"),
                           .asset = STR("ron"),
                           .amount = {10}};
    commit(&h, e);
    e.id = STR("hold");
    e.kind = CORE_HOLD;
    e.nonce = 1;
    commit(&h, e);
    next_generation(&h); /* complete: the one with the hold */
    written_generations(&h, TIER_RUNS - 1);
    assert_int_equal(ledger_checkpoint_merge_all(h.r.l), ERR_OK);
    assert_runs(&h, 1); /* in which the hold is open */
    e = (struct core_entry){.id = STR("release"),
                            .ts = 1,
                            .kind = CORE_RELEASE,
                            .account = STR("acct:h"),
                            .asset = STR("ron"),
                            .amount = {10},
                            .ref_id = STR("hold")};
    commit(&h, e);
    written_generations(&h, TIER_RUNS);
    assert_int_equal(ledger_checkpoint_merge_all(h.r.l), ERR_OK);
    written_generations(&h, 1);
    assert_runs(&h, 2 + 1);
    assert_survives(&h);
    end(&h);
}

/*
 * Power fails right behind a checkpoint, and nothing is kept that was not flushed: the newest manifest still holds, with all that it names.
 * An older one would do as well, or the journal alone; that is why only this looks whether runs are flushed before they are named.
 */
static void what_a_manifest_names_was_flushed_before(void **state) RT_BLOCKS
{
    (void)state;
    static const struct store_fault_plan nothing_kept = {.keep = STORE_KEEP_NONE};
    for (unsigned generations = 1; generations <= TIER_RUNS + 2;
         generations++) { /* the last with merged runs */
        struct history h;
        struct store_disk *disk;
        assert_int_equal(store_disk_faulty(generations, &nothing_kept, &disk), ERR_OK);
        begin(&h, disk);
        next_generation(&h);
        for (unsigned i = 0; i < generations; i++) {
            written_generations(&h, 1);
            if (i + 1 < generations)
                assert_int_equal(ledger_checkpoint_merge_all(h.r.l), ERR_OK);
        }
        uint64_t checkpoint = atomic_load(&h.r.l->checkpoint_seq);
        assert_int_equal(checkpoint, 2 * generations);
        store_disk_faulty_cut(disk);
        ledger_close(h.r.l, false);
        store_disk_faulty_reboot(disk);
        assert_int_equal(rig_open(&h.r), ERR_OK);
        assert_int_equal(atomic_load(&h.r.l->checkpoint_seq), checkpoint);
        assert_survives(&h);
        end(&h);
    }
}

static bool go_on(void *ctx, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    return true;
}

static bool stop(void *ctx, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    return false;
}

static void a_bit_that_rotted_in_an_index_run_is_found_wherever_it_is(void **state) RT_BLOCKS
{
    (void)state;
    for (uint64_t at = 0, bytes = 1; at < bytes; at++) {
        struct history h;
        struct store_disk *disk;
        struct store_file *f;
        uint8_t b;
        assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
        begin(&h, disk);
        next_generation(&h);
        written_generations(&h, 1);
        assert_int_equal(ledger_checkpoint_reread(h.r.l, (struct ledger_reread){go_on, NULL}), ERR_OK);
        assert_int_equal(ledger_checkpoint_reread(h.r.l, (struct ledger_reread){stop, NULL}), ERR_CANCELED);
        struct ledger_view *v = ledger_index_pin(&h.r.l->index);
        char path[64];
        snprintf(path, sizeof path, "led/index/%08u.run", v->runs[0]->number);
        bytes = v->runs[0]->n_bytes;
        ledger_view_unpin(v);
        assert_int_equal(store_file_open(disk, path, STORE_READ | STORE_WRITE, &f), ERR_OK);
        assert_int_equal(store_file_read_all(f, &b, 1, at), ERR_OK);
        b ^= 0x10;
        assert_int_equal(store_file_pwrite(f, &b, 1, at), ERR_OK);
        store_file_close(f);
        assert_int_equal(ledger_checkpoint_reread(h.r.l, (struct ledger_reread){go_on, NULL}), ERR_CORRUPT);
        struct store_stat st;
        assert_int_equal(ledger_safe_cause(h.r.l), CAUSE_SCRUB);
        assert_int_equal(store_disk_stat(disk, path, &st), ERR_NOT_FOUND);
        end(&h);
    }
}

/* A look-up may go wrong between two readings; a run that is made of others takes nothing over that does not add up. */
static void what_rotted_does_not_become_part_of_a_merged_run(void **state) RT_BLOCKS
{
    (void)state;
    struct history h;
    struct store_disk *disk;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    begin(&h, disk);
    next_generation(&h);
    written_generations(&h, TIER_RUNS);
    struct ledger_view *v = ledger_index_pin(&h.r.l->index);
    ((uint8_t *)v->runs[1]->bytes)[INDEX_RUN_HEADER + 5] ^= 0x10;
    ledger_view_unpin(v);
    assert_int_equal(ledger_checkpoint_merge_all(h.r.l), ERR_CORRUPT);
    assert_runs(&h, TIER_RUNS);
    end(&h);
}

/* A digest of what a stranger may be told, all of it; ERR_CORRUPT at the first thing that cannot be. */
static enum err tell_all(struct ledger *l, struct sha256 *out) RT_BLOCKS
{
    struct sha256_ctx c;
    struct ledger_proven p;
    struct ledger_group_row g;
    char note[NOTE_MAX];
    size_t n;
    uint64_t head = ledger_head_seq(l);
    enum err err = ERR_OK;
    sha256_init(&c);
    for (uint64_t size = head; err == ERR_OK && size >= 1; size--) {
        err = ledger_group_of(l, size, &g, NULL);
        if (err == ERR_OK) {
            sha256_update(&c, &g.last_seq, sizeof g.last_seq);
            sha256_update(&c, &g.group_no, sizeof g.group_no);
            sha256_update(&c, g.root.b, sizeof g.root.b);
            err = ledger_checkpoint_note(l, size, note, &n);
        }
        if (err == ERR_OK)
            sha256_update(&c, note, n);
        err = err == ERR_NOT_FOUND ? ERR_OK : err;
        for (uint64_t seq = 1; err == ERR_OK && seq <= size; seq++) {
            err = ledger_prove_inclusion(l, seq, size, &p);
            if (err != ERR_OK)
                break;
            assert_int_equal(ledger_merkle_verify_inclusion(&p.leaf, seq - 1, size, p.path, p.n, &p.root),
                             ERR_OK);
            sha256_update(&c, p.path, p.n * sizeof p.path[0]);
            sha256_update(&c, &p.leaf, sizeof p.leaf);
            sha256_update(&c, &p.root, sizeof p.root);
            err = ledger_prove_consistency(l, seq, size, &p);
            sha256_update(&c, p.path, p.n * sizeof p.path[0]);
            sha256_update(&c, &p.from_root, sizeof p.from_root);
        }
    }
    sha256_final(&c, out);
    return err;
}

/*
 * Bytes all over tree and group table, while the ledger runs: whatever is asked, the answer is the right one or none, nothing wrong is
 * signed, and once it was noticed the next start has made the file anew.
 */
static void a_bit_that_rotted_in_tree_or_groups_is_in_no_answer(void **state) RT_BLOCKS
{
    (void)state;
    static const char *const files[] = {"groups", "tree/00", "tree/01", "tree/02"};
    unsigned noticed = 0, flips = 0;
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        uint64_t bytes = 1;
        for (uint64_t at = 0; at < bytes; at += 3, flips++) { /* every field, and more than once */
            struct history h;
            struct store_disk *disk;
            struct store_file *f;
            struct sha256 right, now;
            char path[64];
            uint8_t b;
            assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
            begin(&h, disk);
            next_generation(&h);
            written_generations(&h, 2);
            assert_int_equal(tell_all(h.r.l, &right), ERR_OK);
            snprintf(path, sizeof path, "led/%s", files[k]);
            assert_int_equal(store_file_open(disk, path, STORE_READ | STORE_WRITE, &f), ERR_OK);
            assert_int_equal(store_file_size(f, &bytes), ERR_OK);
            assert_int_equal(store_file_read_all(f, &b, 1, at), ERR_OK);
            b ^= 0x10;
            assert_int_equal(store_file_pwrite(f, &b, 1, at), ERR_OK);
            store_file_close(f);
            enum err err = tell_all(h.r.l, &now);
            if (err == ERR_OK) { /* places and times of groups: nothing of that is told here */
                assert_true(sha256_eq(&now, &right));
            } else {
                noticed++;
                assert_int_equal(err, ERR_CORRUPT);
                assert_int_equal(ledger_safe_cause(h.r.l), CAUSE_SCRUB);
                ledger_close(h.r.l, false);
                assert_int_equal(rig_open(&h.r), ERR_OK);
                assert_int_equal(ledger_safe_cause(h.r.l), CAUSE_NONE);
                assert_int_equal(tell_all(h.r.l, &now), ERR_OK);
                assert_true(sha256_eq(&now, &right));
            }
            end(&h);
        }
    }
    print_message("%u of %u bytes noticed\n", noticed, flips);
    assert_true(noticed * 2 > flips);
}

static uint64_t files_in(struct history *h, const char *dir) RT_BLOCKS
{
    struct rig_names *names = calloc(1, sizeof *names);
    assert_non_null(names);
    assert_int_equal(store_disk_list(h->r.disk, dir, rig_name, names), ERR_OK);
    uint64_t n = names->n;
    free(names);
    return n;
}

/* It is tried every second: what is left behind each time would take the room that is made. */
static void a_checkpoint_without_room_leaves_nothing_behind(void **state) RT_BLOCKS
{
    (void)state;
    unsigned failed = 0;
    bool fired = true;
    for (uint64_t k = 1; fired; k++) {
        struct history h;
        void *log;
        enum err err = first_attempt(&h, &(struct store_fault_plan){.enospc_at = k}, &log, &fired);
        if (err != ERR_OK) {
            struct ledger_view *v = ledger_index_pin(&h.r.l->index);
            uint64_t in_force = v->n_runs; /* only the manifest failed: the next attempt writes just that */
            ledger_view_unpin(v);
            assert_int_equal(files_in(&h, "led/index"), in_force);
            assert_int_equal(files_in(&h, "led/state"), in_force);
            failed++;
            assert_int_equal(ledger_checkpoint_write(h.r.l, log), ERR_OK);
        }
        end(&h);
    }
    assert_true(failed > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generations_are_written_while_a_merge_is_under_way),
        cmocka_unit_test(runs_stay_few_under_a_stream_that_never_pauses),
        cmocka_unit_test(a_tier_never_holds_more_than_seven),
        cmocka_unit_test(opening_leaves_three_generations_to_the_checkpointer),
        cmocka_unit_test(a_checkpoint_that_failed_is_written_once),
        cmocka_unit_test(a_merge_that_failed_hides_nothing_and_is_done_again),
        cmocka_unit_test(what_is_gone_stays_gone_whatever_is_merged),
        cmocka_unit_test(what_a_manifest_names_was_flushed_before),
        cmocka_unit_test(a_bit_that_rotted_in_an_index_run_is_found_wherever_it_is),
        cmocka_unit_test(what_rotted_does_not_become_part_of_a_merged_run),
        cmocka_unit_test(a_bit_that_rotted_in_tree_or_groups_is_in_no_answer),
        cmocka_unit_test(a_checkpoint_without_room_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
