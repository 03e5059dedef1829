/*
 * The guard over a ledger of one head: what goes back is refused for good, what follows and is behind is waited for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "ledger_client/guard.h"

struct one_head {
    struct ledger_client client;
    struct ledger_head_reply head;
    unsigned asked;
};

static void give_head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    struct one_head *h = (struct one_head *)c;
    (void)by;
    h->asked++;
    fn(ctx, &h->head);
}

static void no_proof(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                     ledger_proof_fn *fn, void *ctx)
{
    struct ledger_proof_reply none = {.a = {.outcome = LEDGER_REFUSED, .err = ERR_UNAVAILABLE}};
    (void)c;
    (void)from;
    (void)to;
    (void)by;
    fn(ctx, &none);
}

static void keep(struct ledger_client *c)
{
    (void)c;
}

static const struct ledger_client_ops ops = {.head = give_head, .consistency = no_proof, .close = keep};

static struct one_head at_size(uint64_t size, bool follows)
{
    struct one_head h = {.client = {.ops = &ops, .transport = "test"},
                         .head = {.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                  .ready = true,
                                  .follows = follows,
                                  .head_seq = size}};
    memset(h.head.root.b, (int)size, sizeof h.head.root.b);
    return h;
}

static void note(void *ctx, const struct ledger_head_reply *r)
{
    *(struct ledger_answer *)ctx = r->a;
}

static struct ledger_answer ask(struct ledger_client *guard)
{
    struct ledger_answer a = {.status = -1};
    ledger_client_head(guard, deadline_in_ms(10000), note, &a);
    assert_int_not_equal(a.status, -1);
    return a;
}

static void a_writer_that_went_back_is_refused_for_good(void **state)
{
    (void)state;
    struct one_head h = at_size(5, false);
    struct ledger_client *g;
    assert_int_equal(ledger_client_guard(&h.client, &g), ERR_OK);
    assert_int_equal(ask(g).outcome, LEDGER_ANSWERED);
    h.head = at_size(3, false).head;
    ledger_guard_suspect(g);
    assert_int_equal(ask(g).err, ERR_LEDGER_FORKED);
    h.head = at_size(5, false).head;
    assert_int_equal(ask(g).err, ERR_LEDGER_FORKED);
    ledger_client_close(g);
}

static void a_copy_that_is_behind_is_waited_for(void **state)
{
    (void)state;
    struct one_head h = at_size(5, false);
    struct ledger_client *g;
    assert_int_equal(ledger_client_guard(&h.client, &g), ERR_OK);
    assert_int_equal(ask(g).outcome, LEDGER_ANSWERED);
    h.head = at_size(3, true).head; /* the writer is gone, and its copy has not heard of everything yet */
    ledger_guard_suspect(g);
    struct ledger_answer behind = ask(g);
    assert_int_equal(behind.outcome, LEDGER_REFUSED);
    assert_int_equal(behind.err, ERR_UNAVAILABLE);
    h.head = at_size(5, true).head;
    assert_int_equal(ask(g).outcome, LEDGER_ANSWERED);
    h.head = at_size(5, false).head; /* it writes now */
    assert_int_equal(ask(g).outcome, LEDGER_ANSWERED);
    ledger_client_close(g);
}

static void a_copy_with_another_root_for_the_same_size_is_refused_for_good(void **state)
{
    (void)state;
    struct one_head h = at_size(5, false);
    struct ledger_client *g;
    assert_int_equal(ledger_client_guard(&h.client, &g), ERR_OK);
    assert_int_equal(ask(g).outcome, LEDGER_ANSWERED);
    h.head = at_size(5, true).head;
    h.head.root.b[0] ^= 1;
    assert_int_equal(ask(g).err, ERR_LEDGER_FORKED);
    ledger_client_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_that_went_back_is_refused_for_good),
        cmocka_unit_test(a_copy_that_is_behind_is_waited_for),
        cmocka_unit_test(a_copy_with_another_root_for_the_same_size_is_refused_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
