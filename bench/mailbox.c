/*
 * Load for the mailbox's peers, on the mill that also turns `ron bench mailbox`: both sides are asked the same way.
 *
 *     bench.mailbox MODE PORT SECONDS CONNECTIONS BATCH
 *
 * Modes: beanstalk-put, beanstalk-cycle, redis-xadd (pipeline BATCH), nats (JetStream publish, window BATCH per connection). The
 * payload is that of our own messages: 256 bytes with a number in them. Prints one JSON object.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "load/mailbox.h"
#include "load/mill.h"

enum { PAYLOAD = LOAD_MAILBOX_PAYLOAD };

struct slot {
    int step;
    unsigned long job;
    unsigned outstanding;
};

static struct slot slots[LOAD_MILL_CONNS_MAX * LOAD_MILL_INFLIGHT_MAX];
static uint64_t session, counter;
static unsigned batch;

static void put_payload(struct buf *out)
{
    uint8_t p[PAYLOAD];
    load_mailbox_payload(session, ++counter, p);
    buf_put(out, p, PAYLOAD);
    buf_puts(out, "\r\n");
}

/* Answers that are lines, perhaps with a body of so many bytes behind them. */
static enum err whole_line(struct bytes in, size_t *out_line)
{
    const uint8_t *end = memmem(in.p, in.n, "\r\n", 2);
    if (end == NULL)
        return ERR_EMPTY;
    *out_line = (size_t)(end - in.p) + 2;
    return ERR_OK;
}

static enum err with_body(struct bytes in, size_t line, size_t body, struct load_answer *out)
{
    if (in.n < line + body + 2)
        return ERR_EMPTY;
    *out =
        (struct load_answer){.used = line + body + 2, .status = 200, .body = bytes_of(in.p, line + body)};
    return ERR_OK;
}

/* ---- beanstalkd ---- */

static bool only_put;

static uint64_t beanstalk_ask(void *app, unsigned slot, bool fresh, bool first, struct buf *out)
{
    struct slot *s = &slots[slot];
    (void)app;
    (void)first;
    if (fresh)
        s->step = 0;
    if (s->step == 0) {
        buf_printf(out, "put 0 0 60 %d\r\n", PAYLOAD);
        put_payload(out);
    } else if (s->step == 1) {
        buf_puts(out, "reserve\r\n");
    } else {
        buf_printf(out, "delete %lu\r\n", s->job);
    }
    return 1;
}

static enum err beanstalk_parse(struct bytes in, struct load_answer *out)
{
    size_t line;
    unsigned long id, len;
    enum err e = whole_line(in, &line);
    if (e != ERR_OK)
        return e;
    if (sscanf((const char *)in.p, "RESERVED %lu %lu", &id, &len) == 2)
        return with_body(in, line, len, out);
    *out = (struct load_answer){.used = line, .status = 200, .body = bytes_of(in.p, line)};
    return ERR_OK;
}

static enum load_verdict beanstalk_answered(void *app, unsigned slot, const struct load_answer *a)
{
    static const char *const good[] = {"INSERTED", "RESERVED", "DELETED"};
    struct slot *s = &slots[slot];
    (void)app;
    if (memcmp(a->body.p, good[s->step], strlen(good[s->step])) != 0)
        return LOAD_FAILED;
    if (s->step == 1 && sscanf((const char *)a->body.p, "RESERVED %lu", &s->job) != 1)
        return LOAD_FAILED;
    if (only_put || s->step == 2)
        return LOAD_DONE;
    s->step++;
    return LOAD_STEP;
}

/* ---- Redis ---- */

static uint64_t redis_ask(void *app, unsigned slot, bool fresh, bool first, struct buf *out)
{
    (void)app;
    (void)fresh;
    (void)first;
    for (unsigned i = 0; i < batch; i++) {
        buf_printf(out, "*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\np\r\n$%d\r\n", PAYLOAD);
        put_payload(out);
    }
    slots[slot].outstanding = batch;
    return batch;
}

static enum err redis_parse(struct bytes in, struct load_answer *out)
{
    size_t line;
    enum err e = whole_line(in, &line);
    if (e != ERR_OK)
        return e;
    if (in.p[0] == '$')
        return with_body(in, line, strtoul((const char *)in.p + 1, NULL, 10), out);
    *out = (struct load_answer){.used = line, .status = 500};
    return ERR_OK;
}

static enum load_verdict redis_answered(void *app, unsigned slot, const struct load_answer *a)
{
    (void)app;
    if (a->status != 200)
        return LOAD_FAILED;
    return --slots[slot].outstanding == 0 ? LOAD_DONE : LOAD_MORE;
}

/* ---- NATS ---- */

static void nats_greet(void *app, unsigned conn, struct buf *out)
{
    static const char make[] =
        "{\"name\":\"BENCH\",\"subjects\":[\"bench.*\"],\"storage\":\"file\",\"num_replicas\":1}";
    (void)app;
    buf_printf(out, "CONNECT {\"verbose\":false}\r\nSUB _INBOX.%u.* 1\r\n", conn);
    if (conn == 0) /* its first publications come behind it on the same connection */
        buf_printf(out, "PUB $JS.API.STREAM.CREATE.BENCH _INBOX.none.x %zu\r\n%s\r\n", sizeof make - 1,
                   make);
}

static unsigned nats_conns;

static uint64_t nats_ask(void *app, unsigned slot, bool fresh, bool first, struct buf *out)
{
    unsigned conn = slot % nats_conns;
    (void)app;
    (void)fresh;
    (void)first;
    buf_printf(out, "PUB bench.%u _INBOX.%u.a %d\r\n", conn, conn, PAYLOAD);
    put_payload(out);
    return 1;
}

static enum err nats_parse(struct bytes in, struct load_answer *out)
{
    size_t line;
    enum err e = whole_line(in, &line);
    if (e != ERR_OK)
        return e;
    if (in.n >= 4 && memcmp(in.p, "MSG ", 4) == 0) {
        const uint8_t *last = in.p + line - 2;
        while (last[-1] != ' ')
            last--;
        return with_body(in, line, strtoul((const char *)last, NULL, 10), out);
    }
    *out = (struct load_answer){.used = line, .status = 500, .noise = memcmp(in.p, "-ERR", 4) != 0};
    return ERR_OK;
}

static enum load_verdict nats_answered(void *app, unsigned slot, const struct load_answer *a)
{
    (void)app;
    (void)slot;
    return a->status != 200 || memmem(a->body.p, a->body.n, "\"error\"", 7) ? LOAD_FAILED : LOAD_DONE;
}

static const struct mode {
    const char *name;
    bool window; /* BATCH is how many are under way on a connection */
    struct load_wire wire;
} modes[] = {
    {"beanstalk-put",
     false,
     {.ask = beanstalk_ask, .parse = beanstalk_parse, .answered = beanstalk_answered}},
    {"beanstalk-cycle",
     false,
     {.ask = beanstalk_ask, .parse = beanstalk_parse, .answered = beanstalk_answered}},
    {"redis-xadd", false, {.ask = redis_ask, .parse = redis_parse, .answered = redis_answered}},
    {"nats", true, {.greet = nats_greet, .ask = nats_ask, .parse = nats_parse, .answered = nats_answered}},
};

int main(int argc, char **argv)
{
    const struct mode *m = NULL;
    for (size_t i = 0; argc == 6 && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, argv[1]) == 0)
            m = &modes[i];
    if (m == NULL) {
        fprintf(stderr, "usage: bench.mailbox MODE PORT SECONDS CONNECTIONS BATCH\n");
        return 2;
    }
    struct load_addr addrs[LOAD_ADDRS_MAX];
    size_t n;
    char url[64];
    static struct load_mill_result r;
    only_put = strcmp(m->name, "beanstalk-put") == 0;
    nats_conns = (unsigned)atoi(argv[4]);
    batch = (unsigned)atoi(argv[5]);
    session = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    snprintf(url, sizeof url, "http://127.0.0.1:%d", atoi(argv[2]));
    if (load_addrs_parse(url, addrs, &n) != ERR_OK ||
        load_mill_run(&(struct load_mill_spec){.wire = &m->wire,
                                               .addrs = addrs,
                                               .n_addrs = 1,
                                               .conns = nats_conns,
                                               .inflight = m->window ? batch : 1,
                                               .awake = true,
                                               .ms = (int64_t)(atof(argv[3]) * 1000)},
                      &r) != ERR_OK) {
        fprintf(stderr, "nobody there\n");
        return 1;
    }
    printf("{\"mode\":\"%s\",\"per_s\":%.1f,\"done\":%llu,\"errors\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,"
           "\"p999_ms\":%.3f,\"seconds\":%.3f,\"idle_s\":%.3f}\n",
           m->name, (double)r.done / r.seconds, (unsigned long long)r.done,
           (unsigned long long)(r.failed + r.cut), load_times_ms(&r.times, 0.5),
           load_times_ms(&r.times, 0.99), load_times_ms(&r.times, 0.999), r.seconds,
           (double)r.idle_ns / 1e9);
    return 0;
}
