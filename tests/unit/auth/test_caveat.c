#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

#include "auth/caveat.h"

static void every_caveat_of_the_grammar_parses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum auth_cv kind;
    } rows[] = {
        {"aud = svc-wallet", AUTH_CV_AUD},
        {"aud in svc-wallet,ron-ledger", AUTH_CV_AUD},
        {"aud in *", AUTH_CV_AUD},
        {"exp < 2026-12-01T00:00:00Z", AUTH_CV_EXP},
        {"nbf > 2026-01-01T00:00:00.500Z", AUTH_CV_NBF},
        {"op in transfer,read", AUTH_CV_OP},
        {"account in acct:alice,acct:shop-*", AUTH_CV_ACCOUNT},
        {"to in acct:shop-7", AUTH_CV_TO},
        {"asset in ron", AUTH_CV_ASSET},
        {"max_amount <= 5000", AUTH_CV_MAX_AMOUNT},
        {"max_amount <= 340282366920938463463374607431768211455", AUTH_CV_MAX_AMOUNT},
        {"daily <= 100000", AUTH_CV_DAILY},
        {"topic in orders,mail/*", AUTH_CV_TOPIC},
        {"ip in 10.0.0.0/8", AUTH_CV_IP},
        {"ip in 127.0.0.1,::1,2001:db8::/32,0.0.0.0/0", AUTH_CV_IP},
        {"bytes <= 65536", AUTH_CV_BYTES},
        {"rate <= 100/s", AUTH_CV_RATE},
        {"tenant = t1", AUTH_CV_TENANT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct auth_caveat c;
        if (auth_caveat_parse(str_from_c(rows[i].text), &c) != ERR_OK)
            fail_msg("refused: %s", rows[i].text);
        assert_int_equal(c.kind, rows[i].kind);
        assert_true(str_eq_c(c.text, rows[i].text));
    }
}

static void whatever_does_not_fit_the_grammar_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        " ",
        "aud",
        "aud =",
        "aud = ",
        "aud  = x",
        "aud =  x",
        "aud = x ",
        " aud = x",
        "aud = a,b",
        "aud = x*",
        "Aud = x",
        "aud == x",
        "aud in",
        "aud in ",
        "aud in a,",
        "aud in ,a",
        "aud in a,,b",
        "aud in a, b",
        "aud in a*b",
        "aud in **",
        "exp < tomorrow",
        "exp <= 2026-12-01T00:00:00Z",
        "exp < 2026-12-01",
        "exp > 2026-12-01T00:00:00Z",
        "nbf < 2026-12-01T00:00:00Z",
        "op = read",
        "max_amount <= -1",
        "max_amount <= 05",
        "max_amount <= 1.5",
        "max_amount <= 340282366920938463463374607431768211456",
        "max_amount < 5",
        "daily <= ",
        "ip in 10.0.0.1/8",
        "ip in 10.0.0.0/33",
        "ip in ::/129",
        "ip in 10.0.0",
        "ip in 010.0.0.1",
        "ip in 10.0.0.0/08",
        "ip in 1.2.3.4/",
        "ip in fe80::1%eth0",
        "bytes <= x",
        "bytes <= 18446744073709551616",
        "rate <= 100",
        "rate <= 0/s",
        "rate <= 100/m",
        "rate <= 1000001/s",
        "tenant = ",
        "tenant = a,b",
        "tenant in a",
        "colour = red",
        "account in a\tb",
        "account in \xc3\xa9",
        "op in read\n",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct auth_caveat c = {.kind = AUTH_CV_COUNT};
        if (auth_caveat_parse(str_from_c(rows[i]), &c) != ERR_SYNTAX)
            fail_msg("accepted: '%s'", rows[i]);
        assert_int_equal(c.kind, AUTH_CV_COUNT); /* untouched */
    }
    struct auth_caveat c;
    assert_int_equal(auth_caveat_parse((struct str){"aud = a\0b", 9}, &c), ERR_SYNTAX);
    assert_int_equal(auth_caveat_parse((struct str){"ip in 1.2.3.4\0", 14}, &c), ERR_SYNTAX);
}

static void a_star_at_the_end_is_the_only_wildcard(void **state)
{
    (void)state;
    static const struct {
        const char *list, *value;
        bool covers, spells;
    } rows[] = {
        {"a,b", "a", true, true},          {"a,b", "b", true, true},
        {"a,b", "c", false, false},        {"a,b", "a,b", false, false},
        {"shop-*", "shop-7", true, false}, {"shop-*", "shop-", true, false},
        {"shop-*", "shop", false, false},  {"*", "anything", true, false},
        {"*", "", false, false},           {"a", "", false, false},
        {"ab", "a", false, false},         {"a", "ab", false, false},
        {"x,y*,z", "yes", true, false},    {"ab,abc", "abc", true, true},
        {"abc,ab", "ab", true, true},      {"a*,b", "a*b", true, false},
        {"ab,a", "ab,a", false, false},    {"ab*,c", "a", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str list = str_from_c(rows[i].list), value = str_from_c(rows[i].value);
        if (auth_list_covers(list, value) != rows[i].covers ||
            auth_list_spells(list, value) != rows[i].spells)
            fail_msg("%s | %s", rows[i].list, rows[i].value);
    }
}

static void ip_of(const char *text, uint8_t out[16])
{
    memset(out, 0, 16);
    if (inet_pton(AF_INET6, text, out) == 1)
        return;
    out[10] = out[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, text, out + 12), 1);
}

static void addresses_are_matched_by_prefix_and_family(void **state)
{
    (void)state;
    static const struct {
        const char *list, *peer;
        bool covers;
    } rows[] = {
        {"10.0.0.0/8", "10.255.0.1", true},
        {"10.0.0.0/8", "11.0.0.1", false},
        {"10.1.2.3", "10.1.2.3", true},
        {"10.1.2.3", "10.1.2.2", false},
        {"192.168.4.0/22", "192.168.7.255", true},
        {"192.168.4.0/22", "192.168.8.0", false},
        {"0.0.0.0/0", "8.8.8.8", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "10.0.0.1", false},
        {"2001:db8::/33", "2001:db8:7fff::1", true},
        {"2001:db8::/33", "2001:db8:8000::1", false},
        {"127.0.0.1,::1", "::1", true},
        {"10.0.0.0/31", "10.0.0.2", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t ip[16];
        ip_of(rows[i].peer, ip);
        if (auth_ip_list_covers(str_from_c(rows[i].list), ip) != rows[i].covers)
            fail_msg("%s | %s", rows[i].list, rows[i].peer);
    }
    assert_false(auth_ip_list_covers(STR("0.0.0.0/0,::/0"), NULL));
}

static void every_kind_has_the_name_it_is_written_with(void **state)
{
    (void)state;
    assert_string_equal(auth_cv_name(AUTH_CV_UNKNOWN), "unknown");
    for (int k = AUTH_CV_UNKNOWN + 1; k < AUTH_CV_COUNT; k++)
        assert_string_not_equal(auth_cv_name((enum auth_cv)k), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_caveat_of_the_grammar_parses),
        cmocka_unit_test(whatever_does_not_fit_the_grammar_is_refused),
        cmocka_unit_test(a_star_at_the_end_is_the_only_wildcard),
        cmocka_unit_test(addresses_are_matched_by_prefix_and_family),
        cmocka_unit_test(every_kind_has_the_name_it_is_written_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
