#include "ledger_client/remote.h"

#include <string.h>

#include "ledger_client/guard.h"
#include "ledger_client/json.h"
#include "rt/task.h"

enum { SETTLE_TURNS = 10, LOOK_NS = 1000000 };

void ledger_remote__await(struct ledger_remote *r, _Atomic bool *done)
{
    struct os_a32 never;
    os_a32_store(&never, 0, memory_order_relaxed);
    while (!atomic_load(done)) {
        if (atomic_load(&r->running))
            (void)os_sleep_on(&never, 0, os_now_ns() + LOOK_NS);
        else
            net_loop_once(r->loop, 0);
    }
}

void ledger_remote__settle(struct ledger_remote *r)
{
    for (int i = 0; i < SETTLE_TURNS; i++)
        net_loop_once(r->loop, 0);
}

struct ledger_answer ledger_remote__failed(enum err e, bool definite)
{
    return (struct ledger_answer){
        .outcome = definite ? LEDGER_REFUSED : LEDGER_UNKNOWN, .err = e, .code = str_from_c(err_code(e))};
}

void ledger_remote__absent(struct ledger_unit_reply *io_reply, struct arena *a)
{
    struct ledger_answer *answer = &io_reply->a;
    if (answer->err != ERR_NOT_FOUND)
        return;
    io_reply->ledger_ms = ledger_json_ledger_ms(answer->details, a);
    if (io_reply->ledger_ms == 0)
        return;
    answer->outcome = LEDGER_ANSWERED;
    answer->err = ERR_OK;
}

enum err ledger_client_io_run(struct rt_task *self, void *client) RT_BLOCKS
{
    struct ledger_remote *r = ((struct ledger_client *)client)->io;
    atomic_store(&r->running, true);
    enum err e = net_loop_run(r->loop, self);
    atomic_store(&r->running, false);
    return e;
}

void ledger_client_io_wake(struct rt_task *self, void *client)
{
    (void)self;
    struct ledger_remote *r = ((struct ledger_client *)client)->io;
    net_loop_wake(r->loop); /* not stop: it may be started anew */
}

static enum err transport_open(const struct ledger_client_conf *conf, struct ledger_client **out)
{
    if (strncmp(conf->url, "oap+unix:", 9) == 0 || strncmp(conf->url, "oap://", 6) == 0)
        return ledger_client_oap_open(conf, out);
    if (strncmp(conf->url, "http://", 7) == 0 || strncmp(conf->url, "https://", 8) == 0 ||
        strncmp(conf->url, "unix:", 5) == 0)
        return ledger_client_http_open(conf, out);
    return ERR_SYNTAX;
}

enum err ledger_client_open(const struct ledger_client_conf *conf, struct ledger_client **out_client)
{
    struct ledger_client *inner;
    enum err e = transport_open(conf, &inner);
    if (e != ERR_OK)
        return e;
    e = ledger_client_guard(inner, out_client);
    if (e != ERR_OK) {
        ledger_client_close(inner);
        return e;
    }
    inner->io->on_lost = ledger_guard_suspect;
    inner->io->lost_ctx = *out_client;
    return ERR_OK;
}
