/* What a start compares before it takes writes, and the bounds of the state: each refused by its name, and nothing changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "services/ledger/policy.h"

static const char segment[] = "led/journal/00000001.seg";

struct place {
    uint64_t from, to;
};

static void found(struct rig *r) RT_BLOCKS
{
    struct store_disk *disk;
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    rig_init(r, disk);
    assert_int_equal(rig_open(r), ERR_OK);
}

static void end(struct rig *r) RT_BLOCKS
{
    ledger_close(r->l, false);
    store_disk_destroy(r->disk);
}

static struct place mint_group(struct rig *r, unsigned i) RT_BLOCKS
{
    struct store_head before, after;
    store_journal_head(r->l->sink->journal, &before);
    assert_int_equal(rig_mint(r, i).verdict, VERDICT_COMMITTED);
    store_journal_head(r->l->sink->journal, &after);
    return (struct place){before.end.offset, after.end.offset};
}

/* Somebody put an older copy of the segment back. */
static void wipe(struct rig *r, struct place at) RT_BLOCKS
{
    struct store_file *f;
    void *zeros = calloc(1, at.to - at.from);
    assert_non_null(zeros);
    assert_int_equal(store_file_open(r->disk, segment, STORE_WRITE, &f), ERR_OK);
    assert_int_equal(store_file_pwrite(f, zeros, at.to - at.from, at.from), ERR_OK);
    store_file_close(f);
    free(zeros);
}

/* Reads go on, and nobody can write: not even what would be the very unit that is missing. */
static void assert_closed(struct rig *r, enum ledger_cause cause) RT_BLOCKS
{
    assert_int_equal(rig_open(r), ERR_OK);
    if (ledger_safe_cause(r->l) != cause)
        fail_msg("safe mode %s: %s %s", ledger_cause_name(ledger_safe_cause(r->l)), r->l->bad_file,
                 r->l->bad_reason);
    struct rig_outcome out = rig_mint(r, 99);
    assert_int_equal(out.err, ERR_SAFE_MODE);
}

static void a_journal_that_ends_before_the_checkpoint_is_not_written_to(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    found(&r);
    for (unsigned i = 0; i < 4; i++)
        mint_group(&r, i);
    struct place last = mint_group(&r, 4);
    atomic_store(&r.l->want_gen, true);
    rig_round(&r, NULL, 0);
    assert_int_equal(rig_checkpoint(&r), ERR_OK);
    assert_int_equal(atomic_load(&r.l->checkpoint_seq), 5);
    ledger_close(r.l, false);
    wipe(&r, last);
    assert_closed(&r, CAUSE_BEHIND_CHECKPOINT);
    end(&r);
}

static void a_journal_that_is_not_the_one_that_was_closed_is_not_written_to(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    found(&r);
    for (unsigned i = 0; i < 4; i++)
        mint_group(&r, i);
    struct place last = mint_group(&r, 4);
    ledger_close(r.l, true);
    rig_forget_derived(&r);
    wipe(&r, last); /* by itself it would be a torn tail, never acknowledged */
    assert_closed(&r, CAUSE_CLEAN_MISMATCH);
    end(&r);
}

/* A fingerprint that rotted in the journal: the unit it belonged to is not called another one, which would be final. */
static void a_fingerprint_that_rotted_is_no_conflict(void **state) RT_BLOCKS
{
    (void)state;
    enum { RECORD_FP = 20 };
    struct rig r;
    struct store_file *f;
    uint8_t b;
    found(&r);
    struct place at = mint_group(&r, 0);
    mint_group(&r, 1);
    atomic_store(&r.l->want_gen, true);
    rig_round(&r, NULL, 0);
    assert_int_equal(rig_checkpoint(&r), ERR_OK);
    assert_int_equal(rig_mint(&r, 0).verdict, VERDICT_DUPLICATE);
    uint64_t fp = at.from + STORE_FRAME_HEADER + RECORD_FP;
    assert_int_equal(store_file_open(r.disk, segment, STORE_READ | STORE_WRITE, &f), ERR_OK);
    assert_int_equal(store_file_read_all(f, &b, 1, fp), ERR_OK);
    b ^= 1;
    assert_int_equal(store_file_pwrite(f, &b, 1, fp), ERR_OK);
    store_file_close(f);
    struct rig_outcome out = rig_mint(&r, 0);
    assert_int_equal(out.verdict, VERDICT_REJECTED);
    assert_int_equal(out.reason, ERR_UNAVAILABLE);
    assert_int_equal(ledger_safe_cause(r.l), CAUSE_CORRUPT);
    end(&r);
}

/* ---- bounds ---- */

static struct rig_outcome send(struct rig *r, enum core_kind kind, const char *id, const char *account,
                               const char *to, uint64_t nonce, const char *ref) RT_BLOCKS
{
    struct rig_outcome out;
    struct core_entry e = {.id = str_from_c(id),
                           .ts = 1,
                           .kind = kind,
                           .account = str_from_c(account),
                           .asset = STR("ron"),
                           .amount = {10},
                           .nonce = nonce};
    if (to != NULL)
        e.to = str_from_c(to);
    if (ref != NULL)
        e.ref_id = str_from_c(ref);
    struct core_unit u = {str_from_c(id), {NULL, 0}, 0, &e, 1};
    rig_one(r, &u, &out);
    return out;
}

static void assert_limit(struct rig_outcome out)
{
    assert_int_equal(out.verdict, VERDICT_REJECTED);
    assert_int_equal(out.reason, ERR_LIMIT_REACHED);
}

static void assert_taken(struct rig_outcome out)
{
    if (out.verdict != VERDICT_COMMITTED)
        fail_msg("refused: %s", err_name(out.reason));
}

enum { LANE = 48 }; /* the bit above the counter */

static void accounts_lanes_holds_and_reversals_end_at_their_limits(void **state) RT_BLOCKS
{
    (void)state;
    struct rig r;
    found(&r);
    ledger_policy_free(r.l->policy); /* which does not allow reverses */
    r.l->policy = NULL;
    r.l->set.limits.max_accounts = 2;
    r.l->set.limits.max_lanes = 2;
    r.l->set.limits.max_open_holds = 1;
    r.l->set.limits.max_reversals = 1;
    for (unsigned i = 0; i < 10; i++) {
        char id[8];
        snprintf(id, sizeof id, "m%u", i);
        assert_taken(send(&r, CORE_MINT, id, "a", NULL, 0, NULL));
    }
    assert_taken(send(&r, CORE_TRANSFER, "t1", "a", "b", 1, NULL));
    assert_limit(send(&r, CORE_TRANSFER, "t2", "a", "c", 2, NULL)); /* a third account */
    assert_limit(send(&r, CORE_MINT, "x", "c", NULL, 0, NULL));
    assert_taken(send(&r, CORE_TRANSFER, "t2", "a", "b", (UINT64_C(1) << LANE) + 1, NULL));
    assert_limit(
        send(&r, CORE_TRANSFER, "t3", "a", "b", (UINT64_C(2) << LANE) + 1, NULL)); /* a third lane */
    assert_taken(send(&r, CORE_TRANSFER, "t3", "a", "b", 2, NULL));
    assert_taken(send(&r, CORE_HOLD, "h1", "a", NULL, 3, NULL));
    assert_limit(send(&r, CORE_HOLD, "h2", "a", NULL, 4, NULL)); /* a second open one */
    assert_taken(send(&r, CORE_RELEASE, "r1", "a", NULL, 0, "h1"));
    assert_taken(send(&r, CORE_HOLD, "h2", "a", NULL, 4, NULL)); /* the nonce was not used up */
    assert_taken(send(&r, CORE_REVERSE, "v1", "a", "b", 0, "t1"));
    assert_limit(send(&r, CORE_REVERSE, "v2", "a", "b", 0, "t2")); /* of a second transfer */
    uint64_t head = ledger_head_seq(r.l);
    assert_int_equal(head, 10 + 7);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_journal_that_ends_before_the_checkpoint_is_not_written_to),
        cmocka_unit_test(a_journal_that_is_not_the_one_that_was_closed_is_not_written_to),
        cmocka_unit_test(a_fingerprint_that_rotted_is_no_conflict),
        cmocka_unit_test(accounts_lanes_holds_and_reversals_end_at_their_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
