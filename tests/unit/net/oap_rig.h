/* A server of its protocol on a loop that the test turns itself, with a clock that it sets: what the tests of the server and of the
 * client stand on. */
#ifndef RON_TESTS_UNIT_NET_OAP_RIG_H
#define RON_TESTS_UNIT_NET_OAP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/loop.h"
#include "net/oap_client.h"
#include "net/oap_server.h"

enum {
    APP = NET_OAP_MAILBOX,
    OP_ECHO = 1,
    OP_KEEP = 2,
    OP_CAP = 3,
    OP_FAIL = 4,
    OP_BIG = 5,
    OP_STREAM = 6
};

struct fix {
    struct clock_manual clock;
    struct net_loop *loop;
    struct net_oap_server *server;
    struct net_oap_client *client;
    char dir[64], uds[128];
    struct net_oap_req *kept[128];
    size_t kept_n;
    int closed;
    int room_calls;
    void (*refused)(struct fix *f); /* NULL, or called for each request that is refused without a handler */
    int asker, asked;               /* its connection, and how often it did */
    /* what the client heard */
    int answers, ends;
    enum err e;
    uint16_t status;
    struct buf payload;
};

static inline void note_close(struct net_oap_req *rq, void *arg)
{
    struct fix *f = arg;
    (void)rq;
    f->closed++;
}

static inline void note_room(struct net_oap_req *rq, void *arg)
{
    struct fix *f = arg;
    (void)rq;
    f->room_calls++;
}

static inline void serve(struct net_oap_req *rq, void *ctx)
{
    struct fix *f = ctx;
    static uint8_t big[3 << 20];
    switch (net_oap_req_code(rq)) {
    case OP_ECHO:
        net_oap_reply(rq, 200, net_oap_req_payload(rq));
        break;
    case OP_CAP:
        net_oap_reply(rq, 200, bytes_of_str(net_oap_req_cap(rq)));
        break;
    case OP_FAIL:
        net_oap_reply_problem(rq, ERR_FORBIDDEN, "not %s", "you");
        break;
    case OP_BIG:
        for (size_t i = 0; i < sizeof big; i++)
            big[i] = (uint8_t)(i * 7 >> 3);
        net_oap_reply(rq, 200, bytes_of(big, sizeof big));
        break;
    case OP_STREAM:
        net_oap_req_set_timeout(rq, 0);
        net_oap_req_on_room(rq, note_room, f);
        __attribute__((fallthrough));
    case OP_KEEP:
        net_oap_req_on_close(rq, note_close, f);
        f->kept[f->kept_n++] = rq;
        break;
    default:
        net_oap_reply_problem(rq, ERR_NOT_FOUND, "no such operation");
    }
}

static inline void note_reject(void *ctx, enum net_reject why)
{
    struct fix *f = ctx;
    (void)why;
    if (f->refused != NULL)
        f->refused(f);
}

static inline int open_fix(void **state)
{
    struct fix *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -1;
    clock_manual_init(&f->clock, INT64_C(1780000000000));
    f->clock.mono_ns = 1000;
    strcpy(f->dir, "/tmp/ron-oap-XXXXXX");
    if (mkdtemp(f->dir) == NULL || net_loop_create(&f->clock.clock, &f->loop) != ERR_OK)
        return -1;
    snprintf(f->uds, sizeof f->uds, "%s/oap.sock", f->dir);
    struct net_listen listen_on[] = {{.bind = "127.0.0.1:0"}, {.uds = f->uds}};
    struct net_oap_handler handlers[] = {{.app = APP, .fn = serve, .ctx = f}};
    struct net_oap_server_config cfg = {.loops = &f->loop,
                                        .loops_count = 1,
                                        .listen = listen_on,
                                        .listen_count = 2,
                                        .handlers = handlers,
                                        .handlers_count = 1,
                                        .hooks = {.ctx = f, .reject = note_reject}};
    buf_init(&f->payload, 1 << 24);
    *state = f;
    return net_oap_server_create(&cfg, &f->server) == ERR_OK ? 0 : -1;
}

static inline int close_fix(void **state)
{
    struct fix *f = *state;
    net_oap_client_destroy(f->client);
    for (size_t i = 0; i < f->kept_n; i++)
        if (f->kept[i] != NULL)
            net_oap_reply(f->kept[i], 200, bytes_of(NULL, 0));
    for (int i = 0; i < 5; i++)
        net_loop_once(f->loop, 0);
    net_oap_server_destroy(f->server);
    net_loop_destroy(f->loop);
    buf_fini(&f->payload);
    unlink(f->uds);
    rmdir(f->dir);
    free(f);
    return 0;
}

static inline void turn(struct fix *f, int times)
{
    for (int i = 0; i < times; i++)
        net_loop_once(f->loop, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fix, close_fix)

#endif
