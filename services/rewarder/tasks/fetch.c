#include "base/buf.h"
#include "net/http_client.h"
#include "services/rewarder/tasks/worker.h"

enum { CONNECT_MS = 2000, STALL_MS = 5000 };

struct fetch {
    struct buf *body;
    int status;
    enum err err;
    unsigned tries;
};

static void tried(void *arg, bool success)
{
    (void)success;
    ((struct fetch *)arg)->tries++;
}

static void fetched(void *arg, enum err e, const struct net_http_response *r)
{
    struct fetch *f = arg;
    f->err = e;
    if (e != ERR_OK)
        return;
    f->status = r->status;
    buf_put_bytes(f->body, r->body);
}

enum err rewarder_worker_fetch(const char *url, const char *const *headers, struct deadline by, size_t max,
                               struct rewarder_fetched *out, struct buf *out_body)
{
    struct fetch f = {.body = out_body, .err = ERR_UNAVAILABLE};
    struct net_http_request rq = {.url = url,
                                  .headers = headers,
                                  .by = by,
                                  .connect_ms = CONNECT_MS,
                                  .stall_ms = STALL_MS,
                                  .response_max = max,
                                  .retry = {.tries = 3,
                                            .backoff_min_ms = 100,
                                            .backoff_max_ms = 250,
                                            .on_later = true,
                                            .on_sent = true},
                                  .gate = {.result = tried, .ctx = &f}};
    enum err e = net_http_once(&rq, NULL, fetched, &f);
    if (e == ERR_OK)
        e = f.err;
    if (e == ERR_OK)
        e = out_body->err;
    *out = (struct rewarder_fetched){.status = f.status, .again = f.tries > 1 ? f.tries - 1 : 0};
    return e;
}
