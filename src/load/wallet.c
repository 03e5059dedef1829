#include "load/wallet.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/siphash.h"

enum { DEPTH_MAX = 32, IN_MAX = 32768, OUT_MAX = DEPTH_MAX * 1024, KEPT = 8 };

static const int64_t ms_ns = 1000000, reopen_ns = 50000000;

enum kind { PAY, REPEAT, THIEF, BALANCE };

struct under_way {
    enum kind kind;
    uint64_t nonce;
    int64_t since_ns;
};

struct conn {
    int fd; /* -1: cut; opened again at not_before_ns */
    unsigned index;
    int64_t not_before_ns;
    uint64_t acked, next;                  /* nonces */
    uint64_t kept_nonce[KEPT], kept[KEPT]; /* hashes of receipts, to compare repetitions with */
    bool idle;                             /* in the list of those without a request */
    bool rewinding; /* something was refused: what is under way is waited for, then asked again */
    size_t n_way, first_way;
    struct under_way way[DEPTH_MAX];
    size_t in_n, out_n, out_at;
    char in[IN_MAX], out[OUT_MAX];
};

struct load {
    const struct load_wallet_spec *spec;
    struct load_wallet_result *r;
    struct conn *conns;
    size_t *idle, n_idle;
    int epoll;
    bool ending;
    unsigned n_cut; /* connections without a descriptor */
    struct rng rng;
    char common[8192];
};

/* ---- connections ---- */

static bool conn_open(struct load *l, struct conn *c)
{
    const struct load_addr *a = &l->spec->addr;
    int one = 1;
    c->fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(c->fd >= 0);
    c->not_before_ns = load_now_ns() + reopen_ns;
    if (connect(c->fd, (const struct sockaddr *)&a->at, a->at_n) != 0) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    if (a->at.ss_family != AF_UNIX)
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
    c->n_way = 0;
    l->n_cut++;
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

static void rest(struct load *l, struct conn *c)
{
    if (!c->idle)
        l->idle[l->n_idle++] = c->index;
    c->idle = true;
}

/* ---- requests ---- */

static void ask(struct load *l, struct conn *c, enum kind kind, uint64_t nonce, int64_t since_ns)
{
    const struct load_wallet_spec *s = l->spec;
    char body[400];
    unsigned payer = s->first_payer + c->index % s->payers, lane = c->index / s->payers;
    if (c->out_at == c->out_n)
        c->out_at = c->out_n = 0;
    size_t room = sizeof c->out - c->out_n;
    int n;
    if (kind == BALANCE)
        n = snprintf(c->out + c->out_n, room, "GET /v1/balance?account=%s%u&asset=%s HTTP/1.1\r\n%s\r\n",
                     s->payer_head, payer, s->asset, l->common);
    else {
        int body_n =
            snprintf(body, sizeof body,
                     "{\"from\":\"%s%u\",\"to\":\"acct:shop-%u\",\"asset\":\"%s\",\"amount\":\"1\","
                     "\"nonce\":%llu,\"lane\":%u}",
                     s->payer_head, payer, c->index % 97, s->asset, (unsigned long long)nonce, lane);
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
    const struct load_wallet_spec *s = l->spec;
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
        ask_next(l, c, load_now_ns());
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
    struct load_wallet_result *r = l->r;
    uint64_t print = siphash13(siphash_process_key(), body.p, body.n);
    r->ok++;
    r->replayed += says(head, "Idempotency-Replayed: true");
    load_times_note(&r->good, load_now_ns() - w->since_ns);
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
    struct load_wallet_result *r = l->r;
    struct under_way w = c->way[c->first_way];
    c->first_way = (c->first_way + 1) % DEPTH_MAX;
    c->n_way--;
    if (status == 200) {
        good(l, c, &w, head, body);
        return;
    }
    load_times_note(&r->refused, load_now_ns() - w.since_ns);
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

/* Whole responses at the front of what came in. False: the server closes after this one, or speaks no HTTP that we know. */
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
        if (!length || c->n_way == 0) {
            odd(l, head, str_of("", 0));
            return false;
        }
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
    ssize_t n = recv(c->fd, c->in + c->in_n, sizeof c->in - c->in_n, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        conn_cut(l, c);
        return;
    }
    c->in_n += (size_t)n;
    bool busy = c->n_way > 0;
    if (!take_answers(l, c) || c->in_n == sizeof c->in) {
        c->n_way = 0; /* told so: nothing behind it was read */
        conn_cut(l, c);
        return;
    }
    if (l->spec->rate > 0) {
        if (c->rewinding)
            c->rewinding = false, c->next = c->acked + 1;
        if (busy && c->n_way == 0)
            rest(l, c);
    } else
        fill(l, c);
}

/* A strand whose connection was cut goes on over a new one, with what it was not answered. */
static void reopen(struct load *l)
{
    int64_t now = load_now_ns();
    for (unsigned i = 0; l->n_cut > 0 && i < l->spec->conns; i++) {
        struct conn *c = &l->conns[i];
        if (c->fd >= 0 || c->not_before_ns > now || !conn_open(l, c))
            continue;
        l->n_cut--;
        if (l->spec->rate > 0)
            rest(l, c);
        else
            fill(l, c);
    }
}

static void arrivals(struct load *l, int64_t began, uint64_t *arrived)
{
    const struct load_wallet_spec *s = l->spec;
    int64_t now = load_now_ns();
    uint64_t due = (uint64_t)((double)(now - began) / 1e9 * s->rate);
    for (; *arrived < due; ++*arrived) {
        struct conn *c = NULL;
        while (l->n_idle && !c) {
            c = &l->conns[l->idle[--l->n_idle]];
            c->idle = false;
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

/* Waits until something is heard or due, to the microsecond: what the load overslept would count as the server's time. */
static int await(const struct load *l, int64_t began, uint64_t arrived, struct epoll_event *events, int max)
{
    int64_t ns = 20 * ms_ns;
    if (l->spec->rate > 0 && !l->ending && l->n_idle > 0)
        ns = began + (int64_t)((double)(arrived + 1) / l->spec->rate * 1e9) - load_now_ns();
    ns = ns < 0 ? 0 : ns > 20 * ms_ns ? 20 * ms_ns : ns;
    return epoll_pwait2(l->epoll, events, max, &(struct timespec){.tv_nsec = ns}, NULL);
}

static bool all_quiet(const struct load *l)
{
    for (unsigned i = 0; i < l->spec->conns; i++)
        if (l->conns[i].fd >= 0 && l->conns[i].n_way)
            return false;
    return true;
}

enum err load_wallet_run(const struct load_wallet_spec *spec, struct load_wallet_result *out)
{
    struct load l = {.spec = spec, .r = out};
    struct epoll_event events[256];
    uint64_t arrived = 0;
    enum err e = ERR_OK;
    memset(out, 0, sizeof *out);
    CHECK(spec->conns && spec->payers && spec->depth <= DEPTH_MAX);
    rng_seed(&l.rng, 42);
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* else every wait is up to 50 us too long */
    snprintf(l.common, sizeof l.common, "Host: 127.0.0.1\r\nAuthorization: Bearer %s\r\n", spec->token);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.conns = calloc(spec->conns, sizeof *l.conns);
    l.idle = calloc(spec->conns, sizeof *l.idle);
    out->acked = calloc(spec->conns, sizeof *out->acked);
    CHECK(l.epoll >= 0 && l.conns && l.idle && out->acked);
    for (unsigned i = 0; i < spec->conns; i++) {
        l.conns[i].index = i;
        l.conns[i].fd = -1;
        if (conn_open(&l, &l.conns[i]))
            rest(&l, &l.conns[i]);
        else
            l.n_cut++;
    }
    if (l.n_cut == spec->conns) {
        e = ERR_REFUSED;
        goto out;
    }
    int64_t began = load_now_ns(), end = began + spec->ms * 1000000, give_up = end + INT64_C(10000000000);
    if (spec->rate == 0)
        for (unsigned i = 0; i < spec->conns; i++)
            fill(&l, &l.conns[i]);
    for (;;) {
        int64_t now = load_now_ns();
        if (!l.ending && (now >= end || (spec->stop && atomic_load(spec->stop)))) {
            l.ending = true;
            out->seconds = (double)(now - began) / 1e9;
        }
        if (l.ending && (all_quiet(&l) || now > give_up))
            break;
        int n = await(&l, began, arrived, events, 256);
        for (int i = 0; i < n; i++)
            if (((struct conn *)events[i].data.ptr)->fd >= 0)
                readable(&l, events[i].data.ptr);
        if (!l.ending)
            reopen(&l);
        if (spec->rate > 0 && !l.ending)
            arrivals(&l, began, &arrived);
    }
    for (unsigned i = 0; i < spec->conns; i++) {
        out->acked[i] = l.conns[i].acked;
        if (l.conns[i].fd >= 0)
            close(l.conns[i].fd);
    }
out:
    close(l.epoll);
    free(l.conns);
    free(l.idle);
    return e;
}
