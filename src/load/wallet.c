#include "wallet_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/siphash.h"

enum { DEPTH_MAX = 32, IN_MAX = 32768, OUT_MAX = DEPTH_MAX * 1024, KEPT = 8 };

enum kind { PAY, REPEAT, THIEF, BALANCE };

struct under_way {
    enum kind kind;
    uint64_t nonce;
    int64_t since_ns;
};

struct conn {
    int fd;
    unsigned index;
    uint64_t acked, next;                  /* nonces */
    uint64_t kept_nonce[KEPT], kept[KEPT]; /* hashes of receipts, to compare repetitions with */
    bool rewinding; /* something was refused: what is under way is waited for, then asked again */
    size_t n_way, first_way;
    struct under_way way[DEPTH_MAX];
    size_t in_n, out_n, out_at;
    char in[IN_MAX], out[OUT_MAX];
};

struct load {
    const struct wallet_load_spec *spec;
    struct wallet_load_result *r;
    struct conn *conns;
    size_t *idle, n_idle;
    int epoll;
    bool ending;
    struct rng rng;
    char common[8192];
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void note(struct wallet_load_times *t, int64_t ns)
{
    double us = (double)ns / 1000;
    int at = us <= 1 ? 0 : (int)(log2(us) * 32);
    t->bucket[at < WALLET_LOAD_BUCKETS ? at : WALLET_LOAD_BUCKETS - 1]++;
    t->n++;
}

double wallet_load_ms(const struct wallet_load_times *t, double q)
{
    uint64_t left = (uint64_t)((double)t->n * q);
    for (int i = 0; i < WALLET_LOAD_BUCKETS; i++) {
        if (t->bucket[i] > left)
            return exp2((i + 1) / 32.0) / 1000;
        left -= t->bucket[i];
    }
    return 0;
}

/* ---- connections ---- */

static bool conn_open(struct load *l, struct conn *c)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(l->spec->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(c->fd >= 0);
    if (connect(c->fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->in_n = c->out_n = c->out_at = c->n_way = c->first_way = 0;
    c->rewinding = false;
    c->next = c->acked + 1;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    CHECK(epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e) == 0);
    return true;
}

static void conn_cut(struct load *l, struct conn *c)
{
    l->r->cut += c->n_way > 0;
    close(c->fd);
    c->fd = -1;
    if (!l->ending && conn_open(l, c) && l->spec->rate > 0)
        l->idle[l->n_idle++] = c->index;
}

static void conn_flush(struct load *l, struct conn *c)
{
    while (c->fd >= 0 && c->out_at < c->out_n) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_n - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno != EAGAIN)
                conn_cut(l, c);
            return; /* a small request always fits: EAGAIN means the server reads no more, the answer will free it */
        }
        c->out_at += (size_t)n;
    }
    c->out_n = c->out_at = 0;
}

/* ---- requests ---- */

static void ask(struct load *l, struct conn *c, enum kind kind, uint64_t nonce, int64_t since_ns)
{
    const struct wallet_load_spec *s = l->spec;
    char body[256];
    unsigned payer = s->first_payer + c->index % s->payers, lane = c->index / s->payers;
    if (c->out_at == c->out_n)
        c->out_at = c->out_n = 0;
    size_t room = sizeof c->out - c->out_n;
    int n;
    if (kind == BALANCE)
        n = snprintf(c->out + c->out_n, room,
                     "GET /v1/balance?account=acct:payer-%u&asset=ron HTTP/1.1\r\n%s\r\n", payer,
                     l->common);
    else {
        int body_n = snprintf(
            body, sizeof body,
            "{\"from\":\"acct:payer-%u\",\"to\":\"acct:shop-%u\",\"asset\":\"ron\",\"amount\":\"1\","
            "\"nonce\":%llu,\"lane\":%u}",
            payer, c->index % 97, (unsigned long long)nonce, lane);
        n = snprintf(c->out + c->out_n, room,
                     "POST /v1/transfer HTTP/1.1\r\n%sContent-Type: application/json\r\nIdempotency-Key: "
                     "%s%s-%u-%llu\r\nContent-Length: %d\r\n\r\n%s",
                     l->common, kind == THIEF ? "thief-" : "", s->run, c->index, (unsigned long long)nonce,
                     body_n, body);
    }
    CHECK(n > 0 && (size_t)n < room);
    c->out_n += (size_t)n;
    c->way[(c->first_way + c->n_way++) % DEPTH_MAX] = (struct under_way){kind, nonce, since_ns};
    l->r->sent++;
}

static void ask_next(struct load *l, struct conn *c, int64_t since_ns)
{
    const struct wallet_load_spec *s = l->spec;
    uint64_t die = rng_below(&l->rng, 100);
    if (s->balances)
        ask(l, c, BALANCE, 0, since_ns);
    else if (c->acked && die < s->repeat_pct)
        ask(l, c, REPEAT, c->acked - rng_below(&l->rng, c->acked < KEPT ? c->acked : KEPT), since_ns);
    else if (c->acked && die < s->repeat_pct + s->thief_pct)
        ask(l, c, THIEF, c->acked, since_ns);
    else
        ask(l, c, PAY, c->next++, since_ns);
}

static void fill(struct load *l, struct conn *c)
{
    unsigned depth = l->spec->depth ? l->spec->depth : 1;
    if (c->rewinding && c->n_way == 0) {
        c->rewinding = false;
        c->next = c->acked + 1;
    }
    while (c->fd >= 0 && !c->rewinding && !l->ending && c->n_way < depth)
        ask_next(l, c, now_ns());
    conn_flush(l, c);
}

/* ---- answers ---- */

static void odd(struct load *l, struct str head, struct str body)
{
    l->r->other++;
    if (!*l->r->first_odd)
        snprintf(l->r->first_odd, sizeof l->r->first_odd, "%.*s %.*s", (int)(head.n < 15 ? head.n : 15),
                 head.p, (int)(body.n < 400 ? body.n : 400), body.p);
}

static bool says(struct str text, const char *what)
{
    return memmem(text.p, text.n, what, strlen(what)) != NULL;
}

static void good(struct load *l, struct conn *c, const struct under_way *w, struct str head,
                 struct str body)
{
    struct wallet_load_result *r = l->r;
    uint64_t print = siphash13(siphash_process_key(), body.p, body.n);
    r->ok++;
    r->replayed += says(head, "Idempotency-Replayed: true");
    note(&r->good, now_ns() - w->since_ns);
    if (w->kind == BALANCE)
        return;
    size_t at = w->nonce % KEPT;
    if (w->kind == THIEF)
        r->wrong++;
    else if (w->kind == REPEAT)
        r->wrong += c->kept_nonce[at] == w->nonce && c->kept[at] != print;
    else if (w->nonce == c->acked + 1) {
        c->acked = w->nonce;
        c->kept_nonce[at] = w->nonce;
        c->kept[at] = print;
    } /* else: the one before it is pending or was cut, and is asked for again first */
}

static void answered(struct load *l, struct conn *c, int status, struct str head, struct str body)
{
    struct wallet_load_result *r = l->r;
    struct under_way w = c->way[c->first_way];
    c->first_way = (c->first_way + 1) % DEPTH_MAX;
    c->n_way--;
    if (status == 200) {
        good(l, c, &w, head, body);
        return;
    }
    note(&r->refused, now_ns() - w.since_ns);
    c->rewinding |= w.kind == PAY;
    if (status == 429 || status == 503)
        r->no_retry_after += !says(head, "\r\nRetry-After: ");
    if (status == 429)
        r->busy++;
    else if (says(body, "\"outcome_pending\""))
        r->pending++;
    else if (says(body, "\"draining\""))
        r->draining++;
    else if (status == 503)
        r->unavailable++;
    else if (status == 409 && says(body, "\"nonce_conflict\""))
        r->conflict++;
    else
        odd(l, head, body);
}

/* Whole responses at the front of what came in. False: the server closes after this one. */
static bool take_answers(struct load *l, struct conn *c)
{
    size_t at = 0;
    bool keep = true;
    while (keep) {
        struct str left = str_of(c->in + at, c->in_n - at);
        const char *end = memmem(left.p, left.n, "\r\n\r\n", 4);
        if (!end)
            break;
        struct str head = str_of(left.p, (size_t)(end - left.p) + 4);
        const char *length = memmem(head.p, head.n, "\r\nContent-Length: ", 18);
        CHECK(length && c->n_way > 0);
        size_t body_n = strtoul(length + 18, NULL, 10);
        if (left.n < head.n + body_n)
            break;
        answered(l, c, atoi(head.p + 9), head, str_of(head.p + head.n, body_n));
        keep = !says(head, "\r\nConnection: close");
        at += head.n + body_n;
    }
    memmove(c->in, c->in + at, c->in_n - at);
    c->in_n -= at;
    return keep;
}

static void readable(struct load *l, struct conn *c)
{
    CHECK(c->in_n < sizeof c->in);
    ssize_t n = recv(c->fd, c->in + c->in_n, sizeof c->in - c->in_n, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        conn_cut(l, c);
        return;
    }
    c->in_n += (size_t)n;
    bool busy = c->n_way > 0;
    if (!take_answers(l, c)) {
        c->n_way = 0; /* told so: nothing behind it was read */
        conn_cut(l, c);
        return;
    }
    if (l->spec->rate > 0) {
        if (c->rewinding)
            c->rewinding = false, c->next = c->acked + 1;
        if (busy && c->n_way == 0)
            l->idle[l->n_idle++] = c->index;
    } else
        fill(l, c);
}

static void arrivals(struct load *l, int64_t began, uint64_t *arrived)
{
    const struct wallet_load_spec *s = l->spec;
    int64_t now = now_ns();
    uint64_t due = (uint64_t)((double)(now - began) / 1e9 * s->rate);
    for (; *arrived < due; ++*arrived) {
        struct conn *c = NULL;
        while (l->n_idle && !c) {
            c = &l->conns[l->idle[--l->n_idle]];
            if (c->fd < 0)
                c = NULL;
        }
        if (!c) {
            l->r->unsent += due - *arrived;
            *arrived = due;
            return;
        }
        ask_next(l, c, began + (int64_t)((double)*arrived / s->rate * 1e9));
        conn_flush(l, c);
    }
}

static bool all_quiet(const struct load *l)
{
    for (unsigned i = 0; i < l->spec->conns; i++)
        if (l->conns[i].fd >= 0 && l->conns[i].n_way)
            return false;
    return true;
}

void wallet_load_run(const struct wallet_load_spec *spec, struct wallet_load_result *out)
{
    struct load l = {.spec = spec, .r = out};
    struct epoll_event events[256];
    uint64_t arrived = 0;
    memset(out, 0, sizeof *out);
    CHECK(spec->conns && spec->payers && spec->depth <= DEPTH_MAX);
    rng_seed(&l.rng, 42);
    snprintf(l.common, sizeof l.common, "Host: 127.0.0.1\r\nAuthorization: Bearer %s\r\n", spec->token);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.conns = calloc(spec->conns, sizeof *l.conns);
    l.idle = calloc((size_t)spec->conns * 2, sizeof *l.idle);
    out->acked = calloc(spec->conns, sizeof *out->acked);
    CHECK(l.epoll >= 0 && l.conns && l.idle && out->acked);
    for (unsigned i = 0; i < spec->conns; i++) {
        l.conns[i].index = i;
        CHECK(conn_open(&l, &l.conns[i]));
        l.idle[l.n_idle++] = i;
    }
    int64_t began = now_ns(), end = began + spec->ms * 1000000, give_up = end + INT64_C(10000000000);
    if (spec->rate == 0)
        for (unsigned i = 0; i < spec->conns; i++)
            fill(&l, &l.conns[i]);
    for (;;) {
        int64_t now = now_ns();
        if (!l.ending && (now >= end || (spec->stop && atomic_load(spec->stop)))) {
            l.ending = true;
            out->seconds = (double)(now - began) / 1e9;
        }
        if (l.ending && (all_quiet(&l) || now > give_up))
            break;
        int n = epoll_wait(l.epoll, events, 256, spec->rate > 0 ? 1 : 20);
        for (int i = 0; i < n; i++)
            if (((struct conn *)events[i].data.ptr)->fd >= 0)
                readable(&l, events[i].data.ptr);
        if (spec->rate > 0 && !l.ending)
            arrivals(&l, began, &arrived);
    }
    for (unsigned i = 0; i < spec->conns; i++) {
        out->acked[i] = l.conns[i].acked;
        if (l.conns[i].fd >= 0)
            close(l.conns[i].fd);
    }
    close(l.epoll);
    free(l.conns);
    free(l.idle);
}
