/*
 * What subscribers are told: every seq once, with exactly the accounts it moved, whether the commit was told by the committer
 * or is read from the journal again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger_rig.h"
#include "rt/deadline.h"
#include "services/ledger/stream.h"
#include "waiting.h"

enum {
    PAYERS = 600,
    SOME = 300,
    LAST = 3 * PAYERS + SOME,
    EVENTS_MAX = 16,
    NAME = 24,
    ACCOUNTS_MAX = 1024
};

struct told {
    uint64_t seq_start, seq_end;
    size_t n;
    char (*accounts)[NAME];
};

struct listener {
    struct ledger_stream st;
    struct told v[EVENTS_MAX];
    size_t n;
    _Atomic uint64_t up_to; /* release after v: who waited for it may read */
    _Atomic bool gone, ended;
};

static enum err listen_send(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    struct listener *l = (struct listener *)st;
    assert_true(l->n < EVENTS_MAX);
    struct told *t = &l->v[l->n++];
    *t = (struct told){ev->seq_start, ev->seq_end, ev->n_accounts, calloc(ev->n_accounts, NAME)};
    for (size_t i = 0; i < ev->n_accounts; i++)
        snprintf(t->accounts[i], NAME, "%.*s", STR_ARG(ev->accounts[i]));
    atomic_store_explicit(&l->up_to, ev->seq_end, memory_order_release);
    return ERR_OK;
}
static enum err listen_idle(struct ledger_stream *st)
{
    (void)st;
    return ERR_OK;
}
static void listen_lagged(struct ledger_stream *st, uint64_t next_since)
{
    (void)st;
    (void)next_since;
}
static void listen_end(struct ledger_stream *st)
{
    atomic_store(&((struct listener *)st)->ended, true);
}
static bool listen_gone(struct ledger_stream *st)
{
    return atomic_load(&((struct listener *)st)->gone);
}
static const struct ledger_stream_ops listen_ops = {listen_send, listen_idle, listen_lagged, listen_end,
                                                    listen_gone};

static struct ledger_rig rig;
static struct rig_client direct;
static struct rig_unit units[PAYERS];
static char payers[PAYERS][NAME], payees[PAYERS][NAME];

static void listen_to(struct listener *l)
{
    *l = (struct listener){.st = {.ops = &listen_ops, .commits = true}};
    assert_int_equal(ledger_stream_submit(svc_state(rig.svc), &l->st), ERR_OK);
}

static void await_up_to(struct listener *l, uint64_t seq)
{
    AWAIT(atomic_load_explicit(&l->up_to, memory_order_acquire) >= seq);
}

static void forget(struct listener *l)
{
    atomic_store(&l->gone, true);
    AWAIT(atomic_load(&l->ended));
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].accounts);
}

/* All units in one request: one group. */
RT_UNCHECKED
static void commit(size_t n)
{
    struct ledger_unit list[PAYERS];
    struct rig_reply reply;
    for (size_t i = 0; i < n; i++)
        list[i] = units[i].u;
    rig_ingest(&direct, &(struct ledger_ingest){.units = list, .n_units = n}, 20000, &reply);
    assert_int_equal(reply.outcome, LEDGER_ANSWERED);
}

static bool names(const struct told *t, const char *account)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->accounts[i], account) == 0)
            return true;
    return false;
}

static const struct told *event_of(const struct listener *l, uint64_t seq)
{
    const struct told *found = NULL;
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].seq_start <= seq && seq <= l->v[i].seq_end) {
            assert_null(found);
            found = &l->v[i];
        }
    assert_non_null(found);
    return found;
}

/*
 * Seq 1..PAYERS fund payer i, the next PAYERS pay from payer i to payee i, the next from payer 0 to payee 0; SOME pay from payer
 * 1 + i to payee 1 + i again.
 */
static void check(const struct listener *l)
{
    size_t in_all = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct told *t = &l->v[i];
        assert_int_equal(t->seq_start, i == 0 ? 1 : l->v[i - 1].seq_end + 1);
        assert_true(t->n > 0 && t->n <= ACCOUNTS_MAX);
        for (size_t k = 1; k < t->n; k++)
            assert_true(strcmp(t->accounts[k - 1], t->accounts[k]) < 0);
        in_all += t->n;
    }
    assert_int_equal(l->v[l->n - 1].seq_end, LAST);
    for (size_t i = 0; i < PAYERS; i++) {
        assert_true(names(event_of(l, i + 1), payers[i]));
        assert_true(names(event_of(l, PAYERS + i + 1), payers[i]));
        assert_true(names(event_of(l, PAYERS + i + 1), payees[i]));
    }
    const struct told *hot = event_of(l, 2 * PAYERS + 1);
    assert_int_equal(hot->n, 2);
    assert_true(names(hot, payers[0]) && names(hot, payees[0]));
    for (size_t i = 1; i <= SOME; i++) {
        assert_true(names(event_of(l, 3 * PAYERS + i), payers[i]));
        assert_true(names(event_of(l, 3 * PAYERS + i), payees[i]));
    }
    assert_int_equal(in_all, PAYERS + 2 * PAYERS + 2 + 2 * SOME); /* nobody else */
}

RT_UNCHECKED
static void live_and_later_subscribers_are_told_the_same_accounts(void **state)
{
    (void)state;
    static struct listener live, later;
    char name[NAME];
    ledger_rig_open(&rig, false, NULL, 0);
    rig_client_open(&rig, RIG_DIRECT, &direct);
    listen_to(&live);
    for (int i = 0; i < PAYERS; i++) {
        snprintf(payers[i], NAME, "acct:payer-%d", i);
        snprintf(payees[i], NAME, "acct:payee-%d", i);
        snprintf(name, sizeof name, "fund-%d", i);
        rig_mint(&units[i], name, payers[i], 1000000);
    }
    commit(PAYERS);
    await_up_to(&live, PAYERS); /* from here on it is known that somebody listens */
    for (int i = 0; i < PAYERS; i++) {
        snprintf(name, sizeof name, "pay-%d", i);
        rig_pay(&units[i], name, payers[i], payees[i], 1, 1);
    }
    commit(PAYERS); /* more accounts than one event may name */
    for (int i = 0; i < PAYERS; i++) {
        snprintf(name, sizeof name, "hot-%d", i);
        rig_pay(&units[i], name, payers[0], payees[0], 1, (uint64_t)i + 2);
    }
    commit(PAYERS); /* two accounts, again and again */
    for (int i = 0; i < SOME; i++) {
        snprintf(name, sizeof name, "again-%d", i);
        rig_pay(&units[i], name, payers[i + 1], payees[i + 1], 1, 2);
    }
    commit(SOME); /* each account once */
    await_up_to(&live, LAST);
    listen_to(&later);
    await_up_to(&later, LAST);
    check(&live);
    check(&later);
    forget(&live);
    forget(&later);
    rig_client_close(&direct);
    assert_int_equal(ledger_rig_stop(&rig), 0);
    /* What is kept in memory is gone now: everything comes from the journal. */
    ledger_rig_start(&rig);
    listen_to(&later);
    await_up_to(&later, LAST);
    check(&later);
    forget(&later);
    assert_int_equal(ledger_rig_stop(&rig), 0);
    ledger_rig_close(&rig);
}

/* ---- soon ---- */

static enum err count_send(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    atomic_store_explicit(&((struct listener *)st)->up_to, ev->seq_end, memory_order_release);
    return ERR_OK;
}

/* Were the publisher not woken for each, it would look once a second: that many would take longer than anybody waits here. */
static void subscribers_are_told_when_something_is_committed_and_not_when_somebody_looks(void **state)
{
    (void)state;
    enum { COMMITS = 150 };
    static const struct ledger_stream_ops count_ops = {count_send, listen_idle, listen_lagged, listen_end,
                                                       listen_gone};
    struct listener l = {.st = {.ops = &count_ops}};
    struct deadline by = deadline_in_ms(AWAIT_MS);
    ledger_rig_open(&rig, true, NULL, 0);
    rig_client_open(&rig, RIG_DIRECT, &direct);
    assert_int_equal(ledger_stream_submit(svc_state(rig.svc), &l.st), ERR_OK);
    for (uint64_t seq = 1; seq <= COMMITS; seq++) {
        char name[NAME];
        snprintf(name, sizeof name, "soon-%llu", (unsigned long long)seq);
        rig_mint(&units[0], name, "acct:alice", 1);
        commit(1);
        await_up_to(&l, seq);
        assert_false(deadline_passed(by));
    }
    forget(&l);
    rig_client_close(&direct);
    ledger_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_and_later_subscribers_are_told_the_same_accounts),
        cmocka_unit_test(subscribers_are_told_when_something_is_committed_and_not_when_somebody_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
