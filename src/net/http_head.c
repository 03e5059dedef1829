/* What a request's head asks of the server, before any handler: route, name in the logs, trace, client behind a proxy, deadline. */
#include "net/http_internal.h"

#include "base/check.h"
#include "base/str.h"
#include "base/uuid.h"
#include "net/sock.h"
#include "rt/deadline.h"

static struct str known_value(const struct net_req *rq, enum net_http_known k)
{
    uint8_t i = rq->head.known[k];
    return i ? net_http_text(rq->text, rq->head.fields[i - 1].value) : (struct str){NULL, 0};
}

static bool visible(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= 0x20 || s.p[i] >= 0x7f)
            return false;
    return true;
}

static void corr_read(struct net_req *rq)
{
    struct str given = rq->text ? known_value(rq, NET_HTTP_CORR_ID) : (struct str){NULL, 0};
    if (given.n >= 1 && given.n <= NET_CORR_MAX && visible(given)) {
        rq->corr_id = given;
        return;
    }
    uint8_t random[10];
    uint64_t a = rng_u64(&rq->w->rng), b = rng_u64(&rq->w->rng);
    memcpy(random, &a, 8);
    memcpy(random + 8, &b, 2);
    struct uuid u = uuid_v7(net_loop_wall_ms(rq->w->loop), random);
    uuid_format(&u, rq->corr);
    rq->corr_id = (struct str){rq->corr, UUID_CHARS - 1};
}

/* W3C trace context, version 00 layout: "00-<32 hex>-<16 hex>-<2 hex>", ids not all zero. */
static bool traceparent_ok(struct str s)
{
    if (s.n < 55 || (s.n > 55 && s.p[55] != '-'))
        return false;
    bool trace = false, span = false;
    for (size_t i = 0; i < 55; i++) {
        char c = s.p[i];
        if (i == 2 || i == 35 || i == 52) {
            if (c != '-')
                return false;
            continue;
        }
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        trace = trace || (i > 2 && i < 35 && c != '0');
        span = span || (i > 35 && i < 52 && c != '0');
    }
    bool version = !(s.p[0] == 'f' && s.p[1] == 'f') && (s.n == 55 || s.p[0] != '0' || s.p[1] != '0');
    return trace && span && version;
}

/* "2.5", "2s", "250ms" in nanoseconds; false: unreadable. */
static bool timeout_parse(struct str s, int64_t *out_ns)
{
    int64_t unit = 1000000000;
    if (str_ends(s, STR("ms"))) {
        unit = 1000000;
        s.n -= 2;
    } else if (str_ends(s, STR("s"))) {
        s.n -= 1;
    }
    int64_t value = 0, scale = 1;
    size_t digits = 0;
    bool fraction = false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '.' && !fraction && digits > 0 && i + 1 < s.n) {
            fraction = true;
            continue;
        }
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (++digits > 9)
            return false;
        value = value * 10 + (s.p[i] - '0');
        scale *= fraction ? 10 : 1;
    }
    if (digits == 0)
        return false;
    *out_ns = (int64_t)((__int128)value * unit / scale);
    return true;
}

static int64_t caller_deadline(const struct net_req *rq)
{
    int64_t by = OS_NEVER, now_ns = net_loop_now_ns(rq->w->loop), limit;
    struct str s = known_value(rq, NET_HTTP_REQUEST_TIMEOUT);
    if (s.p && timeout_parse(s, &limit))
        by = rq->started_ns + limit;
    s = known_value(rq, NET_HTTP_DEADLINE);
    uint64_t wall;
    if (s.p && str_parse_u64(s, &wall) == ERR_OK && wall < (uint64_t)1 << 52) {
        int64_t left_ms = (int64_t)wall - net_loop_wall_ms(rq->w->loop);
        if (left_ms < 1000000000 && now_ns + left_ms * 1000000 < by)
            by = now_ns + left_ms * 1000000;
    }
    return by;
}

static void deadline_read(struct net_req *rq)
{
    const struct net_route *route = rq->match.leaf ? rq->match.leaf->route : NULL;
    int64_t ms, asked = caller_deadline(rq);
    if (route && (route->flags & NET_NO_DEADLINE)) {
        rq->deadline_ns = OS_NEVER;
    } else {
        ms = route && route->timeout_ms ? route->timeout_ms : rq->w->limits.request_timeout_ms;
        rq->deadline_ns = rq->started_ns + ms * 1000000;
    }
    if (asked < rq->deadline_ns)
        rq->deadline_ns = asked;
}

static bool trusted(const struct net_limits *l, const uint8_t addr[16])
{
    return net_cidr_any(l->trusted_proxies, l->trusted_proxies_count, addr);
}

/* Behind trusted proxies the client is the right-most address that none of them owns. */
static void forwarded_read(struct net_req *rq)
{
    const struct net_limits *l = &rq->w->limits;
    if (l->trusted_proxies_count == 0 || !trusted(l, rq->peer.addr))
        return;
    struct str s = known_value(rq, NET_HTTP_FORWARDED_FOR);
    while (s.p && s.n) {
        const char *comma = memrchr(s.p, ',', s.n);
        struct str one = str_trim(comma ? (struct str){comma + 1, (size_t)(s.p + s.n - comma - 1)} : s);
        uint8_t addr[16];
        if (net_addr_parse(one, addr) != ERR_OK)
            return;
        memcpy(rq->peer.addr, addr, sizeof addr);
        rq->peer.port = 0;
        if (!comma || !trusted(l, addr))
            return;
        s.n = (size_t)(comma - s.p);
    }
}

/* Copies the head, for handlers may keep the request long after the input buffer is gone, and finds who answers it. */
static void learn(struct net_req *rq, const char *text)
{
    size_t n = rq->head.head_bytes;
    char *kept = net_req__keep(rq, n);
    memcpy(kept, text, n);
    net_router_find(rq->w->s->router, net_http_text(kept, rq->head.method),
                    net_http_text(kept, rq->head.path), &rq->match);
    rq->known_n = n;
    rq->memo.as_of = 0;
}

/* Reads what the server itself acts on. text NULL: there is no readable head, e.g. it was refused. */
void net_req__read_head(struct net_req *rq, const char *text)
{
    if (text) {
        if (!rq->known_n)
            learn(rq, text);
        rq->text = rq->kept;
        rq->method = net_http_text(rq->text, rq->head.method);
        rq->is_head = str_eq(rq->method, STR("HEAD"));
        rq->http10 = rq->head.minor == 0;
        rq->want_keep = rq->head.keep_alive;
        struct str tp = known_value(rq, NET_HTTP_TRACEPARENT);
        if (tp.p && traceparent_ok(tp))
            rq->traceparent = tp;
        if (rq->head.known[NET_HTTP_FORWARDED_FOR])
            forwarded_read(rq);
        deadline_read(rq);
    }
    corr_read(rq);
}

struct deadline net_req_caller_deadline(const struct net_req *rq)
{
    return deadline_at_ns(caller_deadline(rq));
}
