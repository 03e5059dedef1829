/*
 * Load for the ledger over OAP: C connections × F requests in flight × U one-transfer units per request, fresh ids and nonces.
 * One thread, one poll loop; requests are written by hand so that the generator stays far below the server's cost.
 *
 *   bench.ledger --uds PATH --token FILE [--conns 8] [--inflight 4] [--units 256] [--accounts 10000] [--seconds 5] [--hot]
 *                [--rate N] [--entries N] [--per-unit 1]
 *
 * Prints one JSON line: entries and requests per second, latency of requests, errors. --hot debits one account, one lane per slot.
 * --rate sends that many requests per second, whatever the answers do, and counts latency from the moment a request was due.
 * --per-unit makes units of so many transfers, as a payout has them. --entries ends after so many transfers instead of after a time. Accounts are minted first and count as `minted`.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "net/oap.h"

enum { PATIENCE_MS = 10000, CONNS_MAX = 256, INFLIGHT_MAX = 64, SAMPLES = 1 << 20 };

struct conn {
    int fd;
    struct buf in, out;
    size_t out_at;
    bool started;
};

struct slot {
    unsigned conn;
    int64_t sent_ns;
    uint64_t turn; /* which of its accounts is next */
    bool busy;
};

static struct {
    const char *uds;
    char token[8192];
    unsigned conns, inflight, units, per_unit, accounts, seconds, rate, entries;
    bool hot;
} opt = {.conns = 8, .inflight = 4, .units = 256, .per_unit = 1, .accounts = 10000, .seconds = 5};

static struct conn conns[CONNS_MAX];
static struct slot slots[CONNS_MAX * INFLIGHT_MAX];
static uint64_t *nonces;
static uint64_t next_id, sent_entries, done_entries, done_requests, failed, run_id;
static uint32_t *latency_us, n_latency;
static unsigned n_slots;
static int first_error;
static bool complained;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* protobuf by hand: varint, text field, number field */
static uint8_t *varint(uint8_t *p, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

static uint8_t *text(uint8_t *p, unsigned field, const char *s, size_t n)
{
    *p++ = (uint8_t)(field << 3 | 2);
    p = varint(p, n);
    memcpy(p, s, n);
    return p + n;
}

static uint8_t *number(uint8_t *p, unsigned field, uint64_t v)
{
    *p++ = (uint8_t)(field << 3);
    return varint(p, v);
}

/* Numbers as text: printf would cost more than the server's whole work on an entry. */
static char *digits(char *p, uint64_t v, unsigned base)
{
    char back[24];
    size_t n = 0;
    do {
        back[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v != 0);
    while (n > 0)
        *p++ = back[--n];
    return p;
}

static char id_head[32], idem_head[32], account_head[32]; /* fresh ones for every run */

static void heads_make(void)
{
    snprintf(id_head, sizeof id_head, "e%llx-", (unsigned long long)run_id);
    snprintf(idem_head, sizeof idem_head, "b:%llx-", (unsigned long long)run_id);
    snprintf(account_head, sizeof account_head,
             "acct:%06llx:", (unsigned long long)(run_id >> 10 & 0xffffff));
}

static uint8_t *named(uint8_t *p, unsigned field, const char *head, uint64_t v)
{
    char out[64];
    size_t n = strlen(head);
    memcpy(out, head, n);
    return text(p, field, out, (size_t)(digits(out + n, v, 10) - out));
}

/* Field 2 of a unit. */
static uint8_t *put_entry(uint8_t *p, unsigned kind, uint64_t from, uint64_t to, uint64_t amount,
                          uint64_t nonce)
{
    uint8_t entry[256];
    uint64_t n = next_id++;
    uint8_t *e = named(entry, 1, id_head, n);
    e = number(e, 2, 1760000000000 + n);
    e = number(e, 3, kind);
    e = named(e, 4, account_head, from);
    if (kind == 3)
        e = named(e, 5, account_head, to);
    e = text(e, 6, "ron", 3);
    e = number(e, 7, amount);
    if (nonce != 0)
        e = number(e, 9, nonce);
    return text(p, 2, (char *)entry, (size_t)(e - entry));
}

/* A unit of the entries that were put into [entries, end). */
static uint8_t *put_unit(uint8_t *p, const uint8_t *entries, const uint8_t *end)
{
    uint8_t idem[80];
    size_t idem_n = (size_t)(named(idem, 1, idem_head, next_id) - idem), n = (size_t)(end - entries);
    *p++ = 1 << 3 | 2;
    p = varint(p, idem_n + n);
    memcpy(p, idem, idem_n);
    memcpy(p + idem_n, entries, n);
    return p + idem_n + n;
}

static uint8_t *unit(uint8_t *p, unsigned kind, uint64_t from, uint64_t to, uint64_t amount, uint64_t nonce)
{
    uint8_t entry[300];
    return put_unit(p, entry, put_entry(entry, kind, from, to, amount, nonce));
}

static void frame(struct conn *c, uint64_t corr, const uint8_t *payload, size_t n)
{
    struct net_oap_head head = {.ver = 1,
                                .flags = NET_OAP_REQ | NET_OAP_START | NET_OAP_END,
                                .code = 1,
                                .app = NET_OAP_LEDGER,
                                .corr = corr};
    struct str cap = {NULL, 0};
    if (!c->started) {
        cap = str_from_c(opt.token);
        c->started = true;
    }
    net_oap_put(&c->out, &head, bytes_of_str(cap), bytes_of(payload, n));
}

static void flush(struct conn *c)
{
    while (c->out_at < c->out.n) {
        ssize_t n = write(c->fd, c->out.p + c->out_at, c->out.n - c->out_at);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            die("write");
        c->out_at += (size_t)n;
    }
    buf_reset(&c->out);
    c->out_at = 0;
}

static void send_slot(unsigned i, int64_t due_ns)
{
    static uint8_t payload[1 << 20];
    struct slot *s = &slots[i];
    static uint8_t entries[1 << 20];
    uint8_t *p = payload, *e = entries;
    for (unsigned k = 0; k < opt.units * opt.per_unit; k++) {
        uint64_t from, nonce, to;
        if (opt.hot) {
            from = 0;
            nonce = (uint64_t)i << 48 | ++nonces[i];
            to = 1 + next_id * 7919 % (opt.accounts - 1); /* every payee as often, whatever the slots */
        } else { /* every slot has its own accounts, so that their nonces stay in order */
            uint64_t mine = opt.accounts / n_slots;
            from = i + n_slots * (s->turn++ * 7919 % mine);
            nonce = ++nonces[from];
            to = (from + 1 + s->turn * 104729) % opt.accounts;
            if (to == from)
                to = (to + 1) % opt.accounts;
        }
        e = put_entry(e, 3, from, to, 1, nonce);
        if ((k + 1) % opt.per_unit == 0) {
            p = put_unit(p, entries, e);
            e = entries;
        }
    }
    s->sent_ns = due_ns;
    sent_entries += (uint64_t)opt.units * opt.per_unit;
    s->busy = true;
    frame(&conns[s->conn], i, payload, (size_t)(p - payload));
    flush(&conns[s->conn]);
}

static void connect_all(void)
{
    for (unsigned i = 0; i < opt.conns; i++) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        snprintf(a.sun_path, sizeof a.sun_path, "%s", opt.uds);
        conns[i].fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (conns[i].fd < 0 || connect(conns[i].fd, (struct sockaddr *)&a, sizeof a) != 0)
            die(opt.uds);
        fcntl(conns[i].fd, F_SETFL, O_NONBLOCK);
        buf_init(&conns[i].in, 64 << 20);
        buf_init(&conns[i].out, 64 << 20);
    }
}

typedef void answer_fn(uint64_t corr, unsigned status);

static void receive(struct conn *c, answer_fn *fn)
{
    for (;;) {
        uint8_t *p = buf_reserve(&c->in, 1 << 18);
        ssize_t n = read(c->fd, p, 1 << 18);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0)
            die("the server closed");
        buf_commit(&c->in, (size_t)n);
        if (n < (1 << 18))
            break;
    }
    size_t at = 0;
    struct net_oap_frame f;
    size_t used;
    const char *why;
    while (net_oap_next(bytes_of(c->in.p + at, c->in.n - at), NET_OAP_FRAME_MAX, &f, &used, &why) ==
           ERR_OK) {
        at += used;
        if (f.head.code >= 400 && !complained) {
            struct net_oap_problem_view v;
            complained = true;
            if (net_oap_problem_get(f.payload, &v) == ERR_OK)
                fprintf(stderr, "%u %.*s %.*s\n", f.head.code, STR_ARG(v.code), STR_ARG(v.details_json));
        }
        if (f.head.flags & NET_OAP_END)
            fn(f.head.corr, f.head.code);
    }
    buf_consume(&c->in, at);
}

static void poll_once(answer_fn *fn, int timeout_ms)
{
    struct pollfd p[CONNS_MAX];
    for (unsigned i = 0; i < opt.conns; i++)
        p[i] = (struct pollfd){conns[i].fd, (short)(POLLIN | (conns[i].out.n > 0 ? POLLOUT : 0)), 0};
    if (poll(p, opt.conns, timeout_ms) == 0 && timeout_ms == PATIENCE_MS)
        die("no answer for ten seconds");
    for (unsigned i = 0; i < opt.conns; i++) {
        if (p[i].revents & POLLOUT)
            flush(&conns[i]);
        if (p[i].revents & POLLIN)
            receive(&conns[i], fn);
    }
}

static uint64_t minted;
static void on_mint(uint64_t corr, unsigned status)
{
    (void)corr;
    if (status != 200) {
        fprintf(stderr, "mint answered %u\n", status);
        exit(1);
    }
    minted++;
}

static void mint_all(void)
{
    static uint8_t payload[1 << 20];
    uint64_t sent = 0, n = opt.hot ? 1 : opt.accounts;
    for (uint64_t a = 0; a < n;) {
        uint8_t *p = payload;
        for (unsigned k = 0; k < 256 && a < n; k++, a++)
            p = unit(p, 1, a, 0, UINT64_C(1) << 40, 0);
        frame(&conns[0], sent++, payload, (size_t)(p - payload));
        flush(&conns[0]);
        while (sent - minted >= 8)
            poll_once(on_mint, PATIENCE_MS);
    }
    while (minted < sent)
        poll_once(on_mint, PATIENCE_MS);
}

static bool over;
static void on_answer(uint64_t corr, unsigned status)
{
    struct slot *s = &slots[corr];
    s->busy = false;
    if (status != 200) {
        failed++;
        first_error = (int)status;
    } else {
        done_requests++;
        done_entries += (uint64_t)opt.units * opt.per_unit;
    }
    if (n_latency < SAMPLES)
        latency_us[n_latency++] = (uint32_t)((now_ns() - s->sent_ns) / 1000);
    if (!over && opt.rate == 0)
        send_slot((unsigned)corr, now_ns());
}

/* Closed loop: every slot sends again when it is answered. */
static void run_closed(int64_t until_ns)
{
    for (unsigned i = 0; i < n_slots; i++)
        send_slot(i, now_ns());
    while (opt.entries == 0 ? now_ns() < until_ns : sent_entries < opt.entries)
        poll_once(on_answer, PATIENCE_MS);
}

/* Open loop: requests are due at fixed times; one that finds no free slot waits, and its wait counts. */
static void run_open(int64_t began_ns, int64_t until_ns)
{
    int64_t every_ns = 1000000000 / opt.rate, due_ns = began_ns;
    unsigned next = 0;
    while (now_ns() < until_ns) {
        int64_t now = now_ns();
        unsigned tried = 0;
        for (; due_ns <= now && tried < n_slots; next = (next + 1) % n_slots, tried++)
            if (!slots[next].busy) {
                send_slot(next, due_ns);
                due_ns += every_ns;
                tried = 0;
            }
        poll_once(on_answer, due_ns - now > 2000000 ? 1 : 0);
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double at(double q)
{
    return n_latency == 0 ? 0 : latency_us[(size_t)(q * (n_latency - 1))] / 1000.0;
}

static unsigned option(const char *name, int argc, char **argv, unsigned otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return (unsigned)strtoul(argv[i + 1], NULL, 10);
    return otherwise;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--uds") == 0 && i + 1 < argc)
            opt.uds = argv[i + 1];
        if (strcmp(argv[i], "--hot") == 0)
            opt.hot = true;
        if (strcmp(argv[i], "--token") == 0 && i + 1 < argc) {
            FILE *f = fopen(argv[i + 1], "r");
            if (f == NULL || fgets(opt.token, sizeof opt.token, f) == NULL)
                die(argv[i + 1]);
            opt.token[strcspn(opt.token, "\n")] = 0;
            fclose(f);
        }
    }
    opt.conns = option("--conns", argc, argv, opt.conns);
    opt.inflight = option("--inflight", argc, argv, opt.inflight);
    opt.units = option("--units", argc, argv, opt.units);
    opt.per_unit = option("--per-unit", argc, argv, 1);
    opt.accounts = option("--accounts", argc, argv, opt.accounts);
    opt.seconds = option("--seconds", argc, argv, opt.seconds);
    opt.rate = option("--rate", argc, argv, 0);
    opt.entries = option("--entries", argc, argv, 0);
    if (opt.uds == NULL || opt.conns == 0 || opt.conns > CONNS_MAX || opt.inflight == 0 ||
        opt.inflight > INFLIGHT_MAX || opt.units == 0 || opt.per_unit == 0 ||
        opt.units * opt.per_unit > 4096)
        return fprintf(stderr, "usage: bench.ledger --uds PATH --token FILE [--conns N] [--inflight N] "
                               "[--units N] [--per-unit N] [--accounts N] [--seconds N] [--rate N] "
                               "[--entries N] [--hot]\n"),
               2;
    n_slots = opt.conns * opt.inflight;
    nonces = calloc(opt.accounts + n_slots, sizeof *nonces);
    latency_us = calloc(SAMPLES, sizeof *latency_us);
    run_id = (uint64_t)now_ns();
    heads_make();
    connect_all();
    mint_all();
    for (unsigned i = 0; i < n_slots; i++)
        slots[i].conn = i % opt.conns;
    int64_t began = now_ns(), until = began + (int64_t)opt.seconds * 1000000000;
    if (opt.rate == 0)
        run_closed(until);
    else
        run_open(began, until);
    double took = (double)(now_ns() - began) / 1e9;
    uint64_t entries = done_entries, requests = done_requests;
    over = true;
    for (unsigned i = 0; i < n_slots; i++)
        while (slots[i].busy)
            poll_once(on_answer, PATIENCE_MS);
    qsort(latency_us, n_latency, sizeof *latency_us, by_value);
    printf("{\"entries_per_s\":%.0f,\"requests_per_s\":%.0f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%."
           "3f,\"max_ms\":%.3f,\"errors\":%llu,\"first_error\":%d,\"acknowledged\":%llu,\"minted\":%u,"
           "\"cpu_s\":%.2f}\n",
           (double)entries / took, (double)requests / took, at(0.5), at(0.99), at(0.999), at(1),
           (unsigned long long)failed, first_error, (unsigned long long)done_entries,
           opt.hot ? 1 : opt.accounts, (double)clock() / CLOCKS_PER_SEC);
    return failed == 0 ? 0 : 1;
}
