#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "net/http_route.h"

static void nothing(struct net_req *rq, void *ctx)
{
    (void)rq;
    (void)ctx;
}

#define ROUTE(m, p)                                                                                        \
    {                                                                                                      \
        .method = (m), .pattern = (p), .fn = nothing                                                       \
    }

static const struct net_route table[] = {
    ROUTE("GET", "/"),
    ROUTE("GET", "/v1/tx/{txid}"),
    ROUTE("GET", "/v1/tx/{txid}/proof"),
    ROUTE("POST", "/v1/tx/latest"),
    ROUTE("GET", "/v1/accounts/{a}/x/{b}"),
    ROUTE("GET", "/files/{path*}"),
    ROUTE("DELETE", "/files/{path*}"),
    ROUTE("HEAD", "/own-head"),
    ROUTE("GET", "/own-head"),
    ROUTE("GET", "/files/special"),
};

static void text_of(const struct net_match *m, char *out)
{
    if (!m->leaf) {
        sprintf(out, m->allow.p ? "allow %.*s" : "none", STR_ARG(m->allow));
        return;
    }
    out += sprintf(out, "%s %s", m->leaf->route->method, m->leaf->route->pattern);
    for (size_t i = 0; i < m->leaf->param_count; i++)
        out += sprintf(out, " %.*s=%.*s", STR_ARG(m->leaf->param_names[i]), STR_ARG(m->params[i]));
}

static void paths_find_their_routes(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"GET", "/", "GET /"},
        {"HEAD", "/", "GET /"},
        {"POST", "/", "allow GET, HEAD"},
        {"GET", "/v1/tx/abc", "GET /v1/tx/{txid} txid=abc"},
        {"GET", "/v1/tx/abc/proof", "GET /v1/tx/{txid}/proof txid=abc"},
        {"GET", "/v1/tx/latest", "GET /v1/tx/{txid} txid=latest"},
        {"POST", "/v1/tx/latest", "POST /v1/tx/latest"},
        {"PUT", "/v1/tx/latest", "allow POST"},
        {"GET", "/v1/tx/latest/proof", "GET /v1/tx/{txid}/proof txid=latest"},
        {"GET", "/v1/tx/", "none"},
        {"GET", "/v1/tx", "none"},
        {"GET", "/v1/tx/a/proof/", "none"},
        {"GET", "/v1/tx/a%2Fproof", "GET /v1/tx/{txid} txid=a%2Fproof"},
        {"GET", "/v1/accounts/1/x/2", "GET /v1/accounts/{a}/x/{b} a=1 b=2"},
        {"GET", "/files/a", "GET /files/{path*} path=a"},
        {"GET", "/files/a/b//c/", "GET /files/{path*} path=a/b//c/"},
        {"GET", "/files/", "none"},
        {"GET", "/files", "none"},
        {"GET", "/files/special", "GET /files/special"},
        {"DELETE", "/files/special", "DELETE /files/{path*} path=special"},
        {"GET", "/files/special/x", "GET /files/{path*} path=special/x"},
        {"PATCH", "/files/a", "allow GET, HEAD, DELETE"},
        {"HEAD", "/own-head", "HEAD /own-head"},
        {"PUT", "/own-head", "allow HEAD, GET"},
        {"GET", "//", "none"},
        {"GET", "", "none"},
        {"OPTIONS", "*", "none"},
    };
    struct net_routes set = {table, sizeof table / sizeof *table, NULL};
    struct net_router *r;
    assert_int_equal(net_router_create(&set, 1, &r), ERR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct net_match m;
        char out[256];
        net_router_find(r, str_from_c(rows[i][0]), str_from_c(rows[i][1]), &m);
        text_of(&m, out);
        if (strcmp(out, rows[i][2]) != 0)
            fail_msg("%s %s: %s instead of %s", rows[i][0], rows[i][1], out, rows[i][2]);
    }
    net_router_destroy(r);
}

static void bad_patterns_and_doubles_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "x", "/{", "/{}", "/a{b}", "/{*}", "/{a*}/b", "/{a}b", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}"};
    struct net_router *r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct net_route one = ROUTE("GET", bad[i]);
        struct net_routes set = {&one, 1, NULL};
        if (net_router_create(&set, 1, &r) != ERR_SYNTAX)
            fail_msg("accepted: %s", bad[i]);
    }
    struct net_route two[] = {ROUTE("GET", "/a/{b}"), ROUTE("GET", "/a/{c}")};
    struct net_routes sets[] = {{&two[0], 1, NULL}, {&two[1], 1, NULL}};
    assert_int_equal(net_router_create(sets, 2, &r), ERR_EXISTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_find_their_routes),
        cmocka_unit_test(bad_patterns_and_doubles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
