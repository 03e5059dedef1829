/* Readers without a lock beside the one who commits, in threads of their own: an account is read as of one head, all of it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rig.h"

enum { UNITS = 30000, READERS = 2, ALL = 1000000 };

static struct rig rig;
static atomic_bool done;

static struct core_entry entry(const char *id, enum core_kind kind, const char *from, const char *to,
                               const char *asset, uint64_t amount, uint64_t nonce)
{
    return (struct core_entry){.id = str_from_c(id),
                               .ts = 1,
                               .kind = kind,
                               .account = str_from_c(from),
                               .to = to == NULL ? (struct str){NULL, 0} : str_from_c(to),
                               .asset = str_from_c(asset),
                               .amount = {amount},
                               .nonce = nonce};
}

static void commit(const char *idem, struct core_entry *v, uint32_t n) RT_BLOCKS
{
    struct rig_outcome out;
    struct core_unit u = {str_from_c(idem), {NULL, 0}, 0, v, n};
    rig_one(&rig, &u, &out);
    assert_int_equal(out.verdict, VERDICT_COMMITTED);
}

static uint64_t balance(const struct ledger_account_read *a, const char *asset)
{
    for (size_t i = 0; i < a->n_balances; i++)
        if (str_eq(a->balances[i].asset, str_from_c(asset)))
            return (uint64_t)a->balances[i].available.units;
    return 0;
}

/* Every unit takes one ron from alice under her next nonce and gives her one gold: three places that tell the same number. */
static void *reader(void *arg)
{
    uint64_t *reads = arg, last = 0;
    struct ledger_account_read a = {0};
    while (!atomic_load(&done)) {
        uint64_t head = ledger_head_seq(rig.l);
        if (ledger_state_read_account(rig.l->state, STR("alice"), head, &a) != ERR_OK)
            continue; /* something of it moved meanwhile: the service asks again, too */
        uint64_t units = (head - 2) / 2;
        CHECK(head % 2 == 0 && head >= last); /* no half of a unit, never back */
        CHECK(balance(&a, "ron") == ALL - units && balance(&a, "gold") == units);
        CHECK(units == 0 ? a.n_lanes == 0 : a.n_lanes == 1 && a.lanes[0].counter == units);
        last = head;
        (*reads)++;
    }
    ledger_account_read_fini(&a);
    return NULL;
}

static void i4_an_account_is_read_as_of_one_head_whatever_is_committed_meanwhile(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *disk;
    pthread_t threads[READERS];
    uint64_t reads[READERS] = {0}, all = 0;
    char idem[32], paid[32], got[32];
    assert_int_equal(store_disk_memory(0, &disk), ERR_OK);
    rig_init(&rig, disk);
    rig.set.amnesia = true;
    assert_int_equal(rig_open(&rig), ERR_OK);
    struct core_entry funds[] = {entry("f1", CORE_MINT, "alice", NULL, "ron", ALL, 0),
                                 entry("f2", CORE_MINT, "bob", NULL, "gold", ALL, 0)};
    commit("funds", funds, 2);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &reads[i]), 0);
    for (uint64_t k = 1; k <= UNITS; k++) {
        snprintf(idem, sizeof idem, "u%llu", (unsigned long long)k);
        snprintf(paid, sizeof paid, "p%llu", (unsigned long long)k);
        snprintf(got, sizeof got, "g%llu", (unsigned long long)k);
        struct core_entry v[] = {entry(paid, CORE_TRANSFER, "alice", "bob", "ron", 1, k),
                                 entry(got, CORE_TRANSFER, "bob", "alice", "gold", 1, k)};
        commit(idem, v, 2);
    }
    atomic_store(&done, true);
    for (size_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        all += reads[i];
    }
    printf("%llu reads beside %d commits\n", (unsigned long long)all, UNITS);
    assert_true(all > 0);
    ledger_close(rig.l, false);
    store_disk_destroy(disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i4_an_account_is_read_as_of_one_head_whatever_is_committed_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
