#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "net/admission.h"
#include "net/http_server.h"
#include "net/sock.h"

static const int64_t second = 1000000000;

static void peer_of(const char *text, uint8_t out[16])
{
    assert_int_equal(net_addr_parse(str_from_c(text), out), ERR_OK);
}

static enum err enter(struct net_admission *a, const struct net_admission_limits *l, const char *peer,
                      int64_t now, struct net_admission_refusal *out_why)
{
    uint8_t addr[16];
    struct net_admission_permit p = {0};
    peer_of(peer, addr);
    enum err e = net_admission_enter(a, l, addr, now, &p, out_why);
    net_admission_leave(&p);
    return e;
}

static void a_peer_gets_its_burst_then_its_rate(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.rate_per_peer = 10, .inflight = 100};
    struct net_admission_refusal why = {0};
    assert_int_equal(net_admission_create(&a), ERR_OK);
    int64_t now = 100 * second;
    for (int i = 0; i < 20; i++)
        assert_int_equal(enter(a, &l, "10.0.0.1", now, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.1", now, &why), ERR_RATE_LIMITED);
    assert_int_equal(why.wait_s, 1);
    assert_int_equal(enter(a, &l, "10.0.0.2", now, &why), ERR_OK); /* another peer */
    now += second / 10;
    assert_int_equal(enter(a, &l, "10.0.0.1", now, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.1", now, &why), ERR_RATE_LIMITED);
    now += 10 * second; /* full again, not fuller */
    for (int i = 0; i < 20; i++)
        assert_int_equal(enter(a, &l, "10.0.0.1", now, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.1", now, &why), ERR_RATE_LIMITED);
    net_admission_destroy(a);
}

static void a_rate_below_one_in_a_second_lets_one_in_at_a_time(void **state)
{
    (void)state;
    static const double rates[] = {0.4, 0.1, 0.001, 1e-30};
    static const struct net_admission_limits none = {.inflight = 100};
    struct net_admission_refusal why = {0};
    for (size_t i = 0; i < 2 * sizeof rates / sizeof *rates; i++) {
        struct net_admission *a;
        struct net_admission_limits l = none;
        double rate = rates[i / 2];
        *(i % 2 ? &l.rate : &l.rate_per_peer) = rate;
        assert_int_equal(net_admission_create(&a), ERR_OK);
        assert_int_equal(enter(a, &l, "10.0.0.1", second, &why), ERR_OK);
        assert_int_equal(enter(a, &l, "10.0.0.1", second, &why), ERR_RATE_LIMITED);
        assert_true(why.wait_s >= 2);
        int64_t next = second + (int64_t)why.wait_s * second;
        assert_int_equal(enter(a, &l, "10.0.0.1", next, &why), ERR_OK);
        net_admission_destroy(a);
    }
}

static void an_ipv6_peer_is_its_64_bit_prefix(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.rate_per_peer = 0.5, .inflight = 100};
    struct net_admission_refusal why = {0};
    assert_int_equal(net_admission_create(&a), ERR_OK);
    assert_int_equal(enter(a, &l, "2001:db8:0:1::1", second, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "2001:db8:0:1::2", second, &why), ERR_RATE_LIMITED);
    assert_int_equal(enter(a, &l, "2001:db8:0:2::1", second, &why), ERR_OK);
    net_admission_destroy(a);
}

static void the_rate_of_all_bounds_everybody_together(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.rate = 2, .inflight = 100};
    struct net_admission_refusal why = {0};
    assert_int_equal(net_admission_create(&a), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.1", second, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.2", second, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.3", second, &why), ERR_RATE_LIMITED);
    assert_int_equal(enter(a, &l, "10.0.0.3", second + second / 2, &why), ERR_OK);
    net_admission_destroy(a);
}

static void a_burst_of_its_own_is_let_in_before_the_rate_counts(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.rate = 2, .burst = 5, .inflight = 100};
    struct net_admission_refusal why = {0};
    assert_int_equal(net_admission_create(&a), ERR_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(enter(a, &l, "10.0.0.1", second, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.1", second, &why), ERR_RATE_LIMITED);
    assert_false(why.own);
    assert_int_equal(enter(a, &l, "10.0.0.1", second + second / 2, &why), ERR_OK);
    assert_int_equal(enter(a, &l, "10.0.0.1", second + second / 2, &why), ERR_RATE_LIMITED);
    net_admission_destroy(a);
}

static void permits_are_counted_per_peer_and_for_all(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.inflight = 3, .inflight_per_peer = 2};
    struct net_admission_permit p[4] = {0};
    uint8_t one[16], two[16];
    struct net_admission_refusal why = {0};
    peer_of("10.0.0.1", one);
    peer_of("10.0.0.2", two);
    assert_int_equal(net_admission_create(&a), ERR_OK);
    assert_int_equal(net_admission_enter(a, &l, one, 0, &p[0], &why), ERR_OK);
    assert_int_equal(net_admission_enter(a, &l, one, 0, &p[1], &why), ERR_OK);
    assert_int_equal(net_admission_enter(a, &l, one, 0, &p[3], &why), ERR_BUSY);
    assert_int_equal(net_admission_enter(a, &l, two, 0, &p[2], &why), ERR_OK);
    assert_int_equal(net_admission_enter(a, &l, two, 0, &p[3], &why), ERR_BUSY); /* of all */
    assert_int_equal(net_admission_inflight(a), 3);
    net_admission_leave(&p[0]);
    net_admission_leave(&p[0]); /* twice does no harm */
    assert_int_equal(net_admission_enter(a, &l, two, 0, &p[3], &why), ERR_OK);
    for (int i = 1; i < 4; i++)
        net_admission_leave(&p[i]);
    assert_int_equal(net_admission_inflight(a), 0);
    net_admission_destroy(a);
}

static void a_flood_of_peers_never_takes_the_slot_of_one_at_work(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.rate_per_peer = 1000, .inflight = 100, .inflight_per_peer = 1};
    struct net_admission_permit held = {0}, again = {0};
    uint8_t addr[16];
    struct net_admission_refusal why = {0};
    assert_int_equal(net_admission_create(&a), ERR_OK);
    peer_of("10.0.0.1", addr);
    assert_int_equal(net_admission_enter(a, &l, addr, second, &held, &why), ERR_OK);
    for (uint32_t i = 0; i < 100000; i++) {
        uint8_t other[16];
        struct net_admission_permit p = {0};
        peer_of("11.0.0.0", other);
        memcpy(other + 13, &i, 3);
        assert_int_equal(net_admission_enter(a, &l, other, second + i, &p, &why), ERR_OK);
        net_admission_leave(&p);
    }
    assert_int_equal(net_admission_enter(a, &l, addr, second, &again, &why), ERR_BUSY);
    net_admission_leave(&held);
    assert_int_equal(net_admission_enter(a, &l, addr, second, &again, &why), ERR_OK);
    net_admission_leave(&again);
    net_admission_destroy(a);
}

static void networks_hold_their_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *net, *addr;
        bool in;
    } rows[] = {
        {"10.0.0.0/8", "10.255.0.1", true},
        {"10.0.0.0/8", "11.0.0.1", false},
        {"10.0.0.1", "10.0.0.1", true},
        {"10.0.0.1", "10.0.0.2", false},
        {"0.0.0.0/0", "1.2.3.4", true},
        {"0.0.0.0/0", "::1", false},
        {"2001:db8::/33", "2001:db8::1", true},
        {"2001:db8::/33", "2001:db8:8000::1", false},
        {"::/0", "1.2.3.4", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct net_cidr c;
        uint8_t addr[16];
        assert_int_equal(net_cidr_parse(str_from_c(rows[i].net), &c), ERR_OK);
        peer_of(rows[i].addr, addr);
        assert_int_equal(net_cidr_has(&c, addr), rows[i].in);
    }
    static const char *const bad[] = {"",  "10.0.0.0/33", "10.0.0/8",   "10.0.0.0/",
                                      "x", "::/129",      "10.0.0.0/08"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct net_cidr c;
        assert_int_equal(net_cidr_parse(str_from_c(bad[i]), &c), ERR_SYNTAX);
    }
}

static void rates_are_asked_before_counts_and_the_own_limit_before_that_of_all(void **state)
{
    (void)state;
    struct net_admission *a;
    struct net_admission_limits l = {.rate = 3, .rate_per_peer = 1, .inflight = 1, .inflight_per_peer = 1};
    struct net_admission_refusal why = {0};
    struct net_admission_permit held = {0};
    uint8_t one[16], two[16], three[16];
    peer_of("10.0.0.1", one);
    peer_of("10.0.0.2", two);
    peer_of("10.0.0.3", three);
    assert_int_equal(net_admission_create(&a), ERR_OK);
    assert_int_equal(net_admission_enter(a, &l, one, second, &held, &why), ERR_OK);
    struct net_admission_permit none = {0};
    assert_int_equal(net_admission_enter(a, &l, one, second, &none, &why), ERR_BUSY); /* own count */
    assert_true(why.own);
    assert_int_equal(net_admission_enter(a, &l, one, second, &none, &why),
                     ERR_RATE_LIMITED); /* own rate first */
    assert_true(why.own);
    assert_int_equal(net_admission_enter(a, &l, two, second, &none, &why),
                     ERR_BUSY); /* everybody's count */
    assert_false(why.own);
    assert_int_equal(net_admission_enter(a, &l, three, second, &none, &why),
                     ERR_RATE_LIMITED); /* their rate first */
    assert_false(why.own);
    assert_true(why.wait_s >= 1);
    net_admission_leave(&held);
    assert_int_equal(net_admission_inflight(a), 0);
    net_admission_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_gets_its_burst_then_its_rate),
        cmocka_unit_test(a_rate_below_one_in_a_second_lets_one_in_at_a_time),
        cmocka_unit_test(an_ipv6_peer_is_its_64_bit_prefix),
        cmocka_unit_test(the_rate_of_all_bounds_everybody_together),
        cmocka_unit_test(a_burst_of_its_own_is_let_in_before_the_rate_counts),
        cmocka_unit_test(permits_are_counted_per_peer_and_for_all),
        cmocka_unit_test(a_flood_of_peers_never_takes_the_slot_of_one_at_work),
        cmocka_unit_test(networks_hold_their_addresses),
        cmocka_unit_test(rates_are_asked_before_counts_and_the_own_limit_before_that_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
