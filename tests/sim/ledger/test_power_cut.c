/*
 * Power fails at any call to the disk, during commits and during checkpoints, with any subset of sectors persisted. Afterwards:
 * nothing acknowledged is missing or moved, no seq is missing or used twice, every root a client has seen is a prefix of the
 * tree, the journal alone rebuilds the same state, and a torn tail never is safe mode. EIO: safe mode and no further write.
 * ENOSPC: refused before a seq.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"

enum { ACCOUNTS = 6, STEPS = 30, KNOWN_MAX = 4096 };

static const char *const names[ACCOUNTS] = {"acct:a", "acct:b", "acct:c", "acct:d", "acct:e", "acct:f"};

/* What a client was told. */
struct told {
    char idem[24];
    uint64_t seq;
    struct core_entry entry;
    char id[24], ref[24];
};

struct client {
    struct told known[KNOWN_MAX];
    unsigned n;
    uint64_t size;
    struct sha256 root;
    uint64_t next, nonce[ACCOUNTS];
    struct rng rng;
};

static void make_entry(struct client *c, struct told *t)
{
    struct rng *r = &c->rng;
    unsigned a = (unsigned)rng_below(r, ACCOUNTS),
             b = (a + 1 + (unsigned)rng_below(r, ACCOUNTS - 1)) % ACCOUNTS;
    uint64_t n = c->next++;
    snprintf(t->idem, sizeof t->idem, "t:%llu", (unsigned long long)n);
    snprintf(t->id, sizeof t->id, "e%llu", (unsigned long long)n);
    t->entry = (struct core_entry){.id = str_from_c(t->id),
                                   .ts = 1000 + n,
                                   .kind = CORE_MINT,
                                   .account = str_from_c(names[a]),
                                   .asset = STR("ron"),
                                   .amount = {1000}};
    switch (rng_below(r, 6)) {
    case 0:
        break;
    case 1:
        t->entry.kind = CORE_HOLD;
        t->entry.amount.units = 1 + rng_below(r, 50);
        t->entry.nonce = c->nonce[a] + 1;
        t->entry.hold_until = rng_below(r, 2) ? 1760000000000 + 50 + rng_below(r, 2000) : 0;
        break;
    default:
        t->entry.kind = CORE_TRANSFER;
        t->entry.to = str_from_c(names[b]);
        t->entry.amount.units = 1 + rng_below(r, 100);
        t->entry.nonce = c->nonce[a] + 1;
        break;
    }
}

static unsigned account_of(const struct core_entry *e)
{
    for (unsigned a = 0; a < ACCOUNTS; a++)
        if (str_eq_c(e->account, names[a]))
            return a;
    return 0;
}

/* Sends what was sent before, too: it must be the duplicate. False: the ledger does not take writes any more. */
static bool step(struct rig *r, struct client *c) RT_BLOCKS
{
    struct told fresh[3];
    struct rig_outcome out[3];
    struct ledger_job *jobs[3];
    unsigned n = 1 + (unsigned)rng_below(&c->rng, 3);
    bool going = true;
    r->mono_ns += 20000000;
    r->wall_ms += 20;
    for (unsigned i = 0; i < n; i++) {
        make_entry(c, &fresh[i]);
        struct core_unit u = {str_from_c(fresh[i].idem), {NULL, 0}, 0, &fresh[i].entry, 1};
        fresh[i].entry.id = str_from_c(fresh[i].id);
        jobs[i] = rig_job(r, &u, 1, &out[i]);
        out[i] = (struct rig_outcome){0};
    }
    rig_round(r, jobs, n);
    for (unsigned i = 0; i < n; i++) {
        CHECK(out[i].answered);
        if (out[i].err != ERR_OK)
            going = false;
        if (out[i].err != ERR_OK || out[i].verdict != VERDICT_COMMITTED)
            continue;
        struct told *t = &c->known[c->n++];
        *t = fresh[i];
        t->entry.id = str_from_c(t->id);
        t->seq = out[i].seq;
        if (t->entry.nonce != 0)
            c->nonce[account_of(&t->entry)] = t->entry.nonce;
        c->size = out[i].tree_size;
        c->root = out[i].root;
    }
    if (c->n > 0 && rng_below(&c->rng, 4) == 0) {
        struct told *t = &c->known[rng_below(&c->rng, c->n)];
        struct core_unit u = {str_from_c(t->idem), {NULL, 0}, 0, &t->entry, 1};
        struct rig_outcome again;
        rig_one(r, &u, &again);
        bool unreadable =
            again.verdict == VERDICT_REJECTED && again.reason == ERR_UNAVAILABLE; /* the disk is gone */
        if (again.err == ERR_OK && !unreadable &&
            (again.verdict != VERDICT_DUPLICATE || again.seq != t->seq))
            fail_msg("%s: verdict %d, reason %s, seq %llu, told %llu, head %llu", t->idem,
                     (int)again.verdict, err_name(again.reason), (unsigned long long)again.seq,
                     (unsigned long long)t->seq, (unsigned long long)ledger_head_seq(r->l));
    }
    if (rng_below(&c->rng, 6) == 0)
        atomic_store(&r->l->want_gen, true);
    /* Every merge that is due; or a few slices, so that several are under way when the next generation is written. */
    bool more = true;
    if (rng_below(&c->rng, 2) == 0 ? rig_checkpoint(r) != ERR_OK : rig_write(r) != ERR_OK)
        going = false;
    for (uint64_t slices = rng_below(&c->rng, 8); going && more && slices > 0; slices--)
        going = ledger_checkpoint_merge(r->l, &more) == ERR_OK;
    return going && ledger_safe_cause(r->l) == CAUSE_NONE;
}

/* Nonces of accounts as the ledger has them: some units may have committed without our hearing of it. */
static void resync(struct rig *r, struct client *c)
{
    struct ledger_account_read read = {0};
    for (unsigned a = 0; a < ACCOUNTS; a++) {
        assert_int_equal(
            ledger_state_read_account(r->l->state, str_from_c(names[a]), ledger_head_seq(r->l), &read),
            ERR_OK);
        uint64_t last = read.n_lanes > 0 ? read.lanes[0].counter : 0;
        assert_true(last >= c->nonce[a]); /* never back */
        c->nonce[a] = last;
    }
    ledger_account_read_fini(&read);
}

static void check_promises(struct rig *r, struct client *c) RT_BLOCKS
{
    struct ledger *l = r->l;
    struct ledger_head head;
    struct arena a;
    ledger_head_read(l, &head);
    assert_true(head.seq >= c->size);
    arena_init(&a, 65536, 64 << 20);
    for (unsigned i = 0; i < c->n; i++) {
        struct ledger_unit_facts f;
        arena_reset(&a);
        assert_int_equal(ledger_find_unit(l, str_from_c(c->known[i].idem), &a, &f), ERR_OK);
        assert_int_equal(f.seq, c->known[i].seq);
    }
    arena_fini(&a);
    if (c->size > 0) {
        struct ledger_node_source nodes = ledger_nodes(l);
        struct sha256 path[MERKLE_PATH_MAX], from;
        size_t n;
        assert_int_equal(ledger_merkle_root(&nodes, c->size, &from), ERR_OK);
        assert_true(sha256_eq(&from, &c->root));
        assert_int_equal(ledger_merkle_consistency(&nodes, c->size, head.seq, path, &n), ERR_OK);
        assert_int_equal(ledger_merkle_verify_consistency(c->size, head.seq, &c->root, &head.root, path, n),
                         ERR_OK);
    }
    uint64_t last = 0;
    for (uint64_t g = 0; g < head.group_no; g++) { /* groups and seqs without gap */
        struct ledger_group_row row;
        assert_int_equal(ledger_group_at(l, g, &row), ERR_OK);
        assert_true(row.group_no == g + 1 && row.last_seq > last);
        last = row.last_seq;
    }
    assert_int_equal(last, head.seq);
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static struct client client;

/* One history with power failing at the given calls, again and again on the same disk. */
static void one_history(uint64_t seed, unsigned cuts) RT_BLOCKS
{
    struct store_disk *disk;
    struct store_fault_plan none = {0};
    struct rig r;
    assert_int_equal(store_disk_faulty(seed, &none, &disk), ERR_OK);
    rig_init(&r, disk);
    memset(&client, 0, sizeof client);
    rng_seed(&client.rng, seed);
    for (unsigned cut = 0; cut < cuts; cut++) {
        struct store_fault_plan plan = {.crash_at = 1 + rng_below(&client.rng, cut == 0 ? 400 : 250),
                                        .keep = (enum store_keep)rng_below(&client.rng, 3)};
        store_disk_faulty_plan(disk, &plan);
        enum err err = rig_open(&r); /* may be cut too */
        if (err == ERR_OK) {
            if (!store_disk_faulty_is_down(disk))
                resync(&r, &client);
            for (unsigned i = 0; i < STEPS && step(&r, &client); i++)
                ;
            store_disk_faulty_cut(disk);
            ledger_close(r.l, false);
        } else {
            store_disk_faulty_cut(disk);
        }
        store_disk_faulty_reboot(disk);
        store_disk_faulty_plan(disk, &none);
        err = rig_open(&r);
        if (err != ERR_OK)
            fail_msg("seed %llu cut %u: %s", (unsigned long long)seed, cut, err_name(err));
        if (ledger_safe_cause(r.l) != CAUSE_NONE)
            fail_msg("seed %llu cut %u: safe mode %s: %s %s", (unsigned long long)seed, cut,
                     ledger_cause_name(ledger_safe_cause(r.l)), r.l->bad_file, r.l->bad_reason);
        check_promises(&r, &client);
        resync(&r, &client);
        struct sha256 digest, again;
        struct ledger_head head, rebuilt;
        ledger_state_digest(r.l->state, &digest);
        ledger_head_read(r.l, &head);
        ledger_close(r.l, true);
        rig_forget_derived(&r);
        assert_int_equal(rig_open(&r), ERR_OK);
        ledger_state_digest(r.l->state, &again);
        ledger_head_read(r.l, &rebuilt);
        assert_true(sha256_eq(&digest, &again) && head.seq == rebuilt.seq &&
                    sha256_eq(&head.root, &rebuilt.root));
        ledger_close(r.l, cut % 2 == 0);
    }
    store_disk_destroy(disk);
}

static void power_may_fail_at_any_call(void **state) RT_BLOCKS
{
    (void)state;
    uint64_t first = env_number("SEED", 1), seeds = env_number("SEEDS", 60);
    printf("SEED=%llu SEEDS=%llu\n", (unsigned long long)first, (unsigned long long)seeds);
    unsigned told = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        one_history(seed, 5);
        told += client.n;
    }
    printf("%u acknowledged units found again\n", told);
    assert_true(told > seeds * 20);
}

static void an_io_error_is_safe_mode_and_nothing_is_written_after_it(void **state) RT_BLOCKS
{
    (void)state;
    unsigned seen = 0;
    for (uint64_t k = 1; k < 160; k++) {
        struct store_disk *disk;
        struct store_fault_plan none = {0}, plan = {.eio_at = k};
        struct rig r;
        assert_int_equal(store_disk_faulty(k, &none, &disk), ERR_OK);
        rig_init(&r, disk);
        memset(&client, 0, sizeof client);
        rng_seed(&client.rng, k);
        assert_int_equal(rig_open(&r), ERR_OK);
        store_disk_faulty_plan(disk, &plan);
        for (unsigned i = 0; i < STEPS && step(&r, &client); i++)
            ;
        if (ledger_safe_cause(r.l) == CAUSE_IO_ERROR) {
            seen++;
            uint64_t writes = store_disk_faulty_writes(disk);
            struct rig_outcome out;
            struct told t;
            make_entry(&client, &t);
            struct core_unit u = {str_from_c(t.idem), {NULL, 0}, 0, &t.entry, 1};
            rig_one(&r, &u, &out);
            assert_int_equal(out.err, ERR_SAFE_MODE);
            assert_int_equal(store_disk_faulty_writes(disk), writes);
            check_promises(&r, &client); /* reads go on, up to the last acknowledged root */
        }
        ledger_close(r.l, false);
        store_disk_faulty_plan(disk, &none);
        assert_int_equal(rig_open(&r), ERR_OK); /* a restart re-reads what is there */
        assert_int_equal(ledger_safe_cause(r.l), CAUSE_NONE);
        check_promises(&r, &client);
        ledger_close(r.l, false);
        store_disk_destroy(disk);
    }
    printf("%u of them in a commit\n", seen);
    assert_true(seen > 5);
}

static void a_full_disk_refuses_before_a_seq_is_given(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *disk;
    struct store_fault_plan small = {.capacity = 1200 << 10};
    struct rig r;
    unsigned refused = 0;
    assert_int_equal(store_disk_faulty(3, &small, &disk), ERR_OK);
    rig_init(&r, disk);
    memset(&client, 0, sizeof client);
    rng_seed(&client.rng, 3);
    assert_int_equal(rig_open(&r), ERR_OK);
    for (unsigned i = 0; i < 2000 && refused < 50; i++) {
        struct told t;
        struct rig_outcome out;
        make_entry(&client, &t);
        struct core_unit u = {str_from_c(t.idem), {NULL, 0}, 0, &t.entry, 1};
        t.entry.id = str_from_c(t.id);
        uint64_t next = r.l->next_seq;
        rig_one(&r, &u, &out);
        if (out.err == ERR_UNAVAILABLE) {
            refused++;
            assert_int_equal(r.l->next_seq, next);
        } else if (out.verdict == VERDICT_COMMITTED && t.entry.nonce != 0) {
            client.nonce[account_of(&t.entry)] = t.entry.nonce;
        }
        enum err err = store_sink_prepare(r.l->sink);
        assert_true(err == ERR_OK || err == ERR_NO_SPACE);
    }
    assert_true(refused >= 50);
    assert_int_equal(ledger_safe_cause(r.l), CAUSE_NONE); /* pressure, not an error */
    struct store_fault_plan large = {0};
    store_disk_faulty_plan(disk, &large);
    assert_int_equal(store_sink_prepare(r.l->sink), ERR_OK); /* room again: it goes on by itself */
    struct told t;
    struct rig_outcome out;
    make_entry(&client, &t);
    t.entry.kind = CORE_MINT;
    t.entry.nonce = t.entry.hold_until = 0;
    t.entry.to = (struct str){NULL, 0};
    struct core_unit u = {str_from_c(t.idem), {NULL, 0}, 0, &t.entry, 1};
    rig_one(&r, &u, &out);
    assert_int_equal(out.verdict, VERDICT_COMMITTED);
    ledger_close(r.l, false);
    store_disk_destroy(disk);
}

static void a_flipped_bit_in_the_journal_is_always_noticed(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *disk;
    struct store_fault_plan none = {0};
    struct rig r;
    struct rng rng;
    rng_seed(&rng, 11);
    assert_int_equal(store_disk_faulty(11, &none, &disk), ERR_OK);
    rig_init(&r, disk);
    memset(&client, 0, sizeof client);
    rng_seed(&client.rng, 11);
    assert_int_equal(rig_open(&r), ERR_OK);
    for (unsigned i = 0; i < 8; i++)
        step(&r, &client);
    struct store_head end;
    store_journal_head(r.l->sink->journal, &end);
    ledger_close(r.l, false);
    rig_forget_derived(&r);
    for (unsigned i = 0; i < 200; i++) {
        uint64_t byte = 4096 + rng_below(&rng, end.end.offset - 4096 - 4096);
        unsigned bit = (unsigned)rng_below(&rng, 8);
        assert_int_equal(store_disk_faulty_flip(disk, "led/journal/00000001.seg", byte, bit), ERR_OK);
        assert_int_equal(rig_open(&r), ERR_OK);
        assert_int_equal(ledger_safe_cause(r.l), CAUSE_CORRUPT);
        assert_true(r.l->bad_file[0] != 0);
        ledger_close(r.l, false);
        rig_forget_derived(&r);
        assert_int_equal(store_disk_faulty_flip(disk, "led/journal/00000001.seg", byte, bit), ERR_OK);
    }
    assert_int_equal(rig_open(&r), ERR_OK);
    assert_int_equal(ledger_safe_cause(r.l), CAUSE_NONE);
    check_promises(&r, &client);
    ledger_close(r.l, false);
    store_disk_destroy(disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_may_fail_at_any_call),
        cmocka_unit_test(an_io_error_is_safe_mode_and_nothing_is_written_after_it),
        cmocka_unit_test(a_full_disk_refuses_before_a_seq_is_given),
        cmocka_unit_test(a_flipped_bit_in_the_journal_is_always_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
