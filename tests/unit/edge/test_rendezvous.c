/* Who is home to an object: the same for everybody, spread evenly, and stable when nodes come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "services/edge/core/rendezvous.h"

enum { OBJECTS = 4000, NODES = 8 };

static const struct str nodes[NODES] = {
    STR_INIT("https://a/"), STR_INIT("https://b/"), STR_INIT("https://c/"), STR_INIT("https://d/"),
    STR_INIT("https://e/"), STR_INIT("https://f/"), STR_INIT("https://g/"), STR_INIT("https://h/")};

static struct sha256 object(unsigned i)
{
    struct sha256 d;
    sha256_of(&i, sizeof i, &d);
    return d;
}

static void the_order_is_a_permutation_whatever_order_the_list_has(void **state)
{
    (void)state;
    struct str turned[NODES];
    for (size_t i = 0; i < NODES; i++)
        turned[i] = nodes[NODES - 1 - i];
    for (unsigned o = 0; o < 200; o++) {
        struct sha256 d = object(o);
        size_t a[EDGE_PEERS_MAX], b[EDGE_PEERS_MAX];
        unsigned seen = 0;
        edge_rendezvous(nodes, NODES, &d, a);
        edge_rendezvous(turned, NODES, &d, b);
        for (size_t i = 0; i < NODES; i++) {
            assert_true(str_eq(nodes[a[i]], turned[b[i]]));
            seen |= 1u << a[i];
        }
        assert_int_equal(seen, (1u << NODES) - 1);
    }
}

static void homes_are_spread_evenly(void **state)
{
    (void)state;
    unsigned count[NODES] = {0};
    for (unsigned o = 0; o < OBJECTS; o++) {
        struct sha256 d = object(o);
        size_t order[EDGE_PEERS_MAX];
        edge_rendezvous(nodes, NODES, &d, order);
        count[order[0]]++;
    }
    for (size_t i = 0; i < NODES; i++)
        assert_in_range(count[i], OBJECTS / NODES * 8 / 10, OBJECTS / NODES * 12 / 10);
}

static void a_node_that_goes_moves_only_its_own(void **state)
{
    (void)state;
    for (unsigned o = 0; o < OBJECTS; o++) {
        struct sha256 d = object(o);
        size_t all[EDGE_PEERS_MAX], fewer[EDGE_PEERS_MAX];
        edge_rendezvous(nodes, NODES, &d, all);
        edge_rendezvous(nodes, NODES - 1, &d, fewer); /* the last one is gone */
        assert_int_equal(fewer[0], all[0] == NODES - 1 ? all[1] : all[0]);
    }
}

static void the_score_is_the_one_other_programs_can_compute(void **state)
{
    (void)state;
    /* python3: max(["https://a/", "https://b/", "https://c/"], key=lambda n: sha256(n.encode() + b"\\0" + bytes(32)).digest()) */
    struct sha256 zero = {{0}};
    size_t order[EDGE_PEERS_MAX];
    edge_rendezvous(nodes, 3, &zero, order);
    static const size_t want[] = {1, 0, 2};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(order[i], want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_a_permutation_whatever_order_the_list_has),
        cmocka_unit_test(homes_are_spread_evenly),
        cmocka_unit_test(a_node_that_goes_moves_only_its_own),
        cmocka_unit_test(the_score_is_the_one_other_programs_can_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
