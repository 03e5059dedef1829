/*
 * Traces out, once a second: as many spans to a request as fit, over one connection that stays. A collector that is away
 * costs what is lost meanwhile, never a wait of anybody else.
 */
#include "net/http_client.h"
#include "svc/internal.h"
#include "svc/version.h"

enum {
    POST_BYTES = 512 * 1024, /* a request is full when it holds this much */
    POST_BYTES_MAX = 2 * POST_BYTES,
    POST_MS = 1000
};

static void posted(void *arg, enum err e, const struct net_http_response *r)
{
    *(bool *)arg = e == ERR_OK && r->status < 300;
}

/* False: nothing was waiting. */
static bool next_request(struct svc *s)
{
    struct buf *body = &s->export_body;
    struct obs_span span;
    struct json_w w;
    if (obs_tracer_take(s->tracer, &span, 1) == 0)
        return false;
    buf_reset(body);
    obs_otlp_begin(&w, s->def->title, SVC_VERSION, body);
    do
        obs_otlp_span(&w, &span);
    while (body->n < POST_BYTES && obs_tracer_take(s->tracer, &span, 1) == 1);
    obs_otlp_end(&w);
    return body->err == ERR_OK;
}

void svc_export_traces(struct svc *s)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    const char *endpoint = svc_common(s)->otlp_endpoint;
    if (!*endpoint || (!s->collector && net_http_session_open(NULL, &s->collector) != ERR_OK))
        return;
    if (!s->export_body.max)
        buf_init(&s->export_body, POST_BYTES_MAX);
    for (bool more = true; more && next_request(s);) {
        bool ok = false;
        struct net_http_request rq = {.method = "POST",
                                      .url = endpoint,
                                      .headers = headers,
                                      .body = buf_bytes(&s->export_body),
                                      .by = deadline_in_ms(POST_MS)};
        /* Traces may be lost: the next second brings others. So it does for those that ended meanwhile, a request for each few of
         * them would cost more than they do. */
        more = net_http_session_send(s->collector, &rq, posted, &ok) == ERR_OK && ok &&
               s->export_body.n >= POST_BYTES;
    }
}
