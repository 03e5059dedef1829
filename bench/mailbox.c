/*
 * Load for the mailbox and its peers: one thread, many connections, one request (or batch) at a time on each.
 *
 *     bench.mailbox MODE PORT SECONDS CONNECTIONS BATCH [TOKEN_FILE] [TOPICS]
 *
 * Modes: ron-send, ron-cycle (HTTP), ron-oap (send, BATCH per request), ron-recv (receive and ack what waits), beanstalk-put,
 * beanstalk-cycle, redis-xadd (pipeline BATCH), nats (JetStream publish, window BATCH per connection). Keys, ids and payloads vary
 * as a real client's would: 256 bytes with a counter in them. Prints one JSON object.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/bytes.h"

enum { PAYLOAD = 256, IN_MAX = 1 << 20, OUT_MAX = 1 << 20, SAMPLES_MAX = 4000000 };

struct conn {
    int fd, id, step;
    uint8_t *out, *in;
    size_t out_n, out_at, in_n;
    char msg_id[40];
    unsigned long job;
    int64_t sent_ns;
    unsigned outstanding;
    bool greeted;
};

struct mode {
    const char *name;
    void (*greet)(struct conn *c);
    void (*make)(struct conn *c);
    /* Bytes of one complete answer at p, 0 = not yet; *done = messages it finished; negative done = error. */
    size_t (*parse)(struct conn *c, const uint8_t *p, size_t n, long *done);
};

static char token[8192];
static uint64_t counter, session;
static unsigned batch = 1, topics = 1;
static bool draining; /* ron-recv: every connection goes over the topics in turn */
static float *samples;
static size_t samples_n;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void put(struct conn *c, const void *p, size_t n)
{
    if (OUT_MAX - c->out_n < n)
        abort();
    memcpy(c->out + c->out_n, p, n);
    c->out_n += n;
}

__attribute__((format(printf, 2, 3))) static void say(struct conn *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    c->out_n += (size_t)vsnprintf((char *)c->out + c->out_n, OUT_MAX - c->out_n, fmt, ap);
    va_end(ap);
}

static void payload(uint8_t out[PAYLOAD])
{
    memset(out, 'x', PAYLOAD);
    snprintf((char *)out, 40, "%016llx%016llx", (unsigned long long)session, (unsigned long long)++counter);
    out[32] = 'x';
}

static const char *topic(void)
{
    static char name[32];
    snprintf(name, sizeof name, "bench/%u", topics > 1 ? (unsigned)(counter % topics) : 0);
    return name;
}

/* ---- ours, HTTP ---- */

static void http(struct conn *c, const char *path, const char *body, size_t n)
{
    say(c, "POST %s HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n", path,
        token, n);
    put(c, body, n);
}

static void ron_send(struct conn *c)
{
    uint8_t p[PAYLOAD];
    char b64[400], body[1024];
    payload(p);
    base64_encode(p, PAYLOAD, b64);
    int n =
        snprintf(body, sizeof body, "{\"topic\":\"%s\",\"idem_key\":\"%llx-%llu\",\"payload_b64\":\"%s\"}",
                 topic(), (unsigned long long)session, (unsigned long long)counter, b64);
    http(c, "/v1/send", body, (size_t)n);
}

static void ron_receive(struct conn *c)
{
    char body[128];
    if (draining && topics > 1)
        snprintf(c->msg_id, sizeof c->msg_id, "bench/%u", (unsigned)(counter++ % topics));
    int n = snprintf(body, sizeof body, "{\"topic\":\"%s\",\"max_messages\":1,\"visibility_ms\":60000}",
                     topics > 1 ? c->msg_id : "bench/0");
    http(c, "/v1/recv", body, (size_t)n);
}

static void ron_ack(struct conn *c)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/ack/%s", c->msg_id);
    http(c, path, "", 0);
}

static void ron_cycle(struct conn *c)
{
    if (c->step == 0) {
        ron_send(c);
        if (topics > 1)
            snprintf(c->msg_id, sizeof c->msg_id, "%s", topic());
    } else if (c->step == 1) {
        ron_receive(c);
    } else {
        ron_ack(c);
    }
}

static size_t http_answer(const uint8_t *p, size_t n, int *status, const uint8_t **body, size_t *body_n)
{
    const uint8_t *end = memmem(p, n, "\r\n\r\n", 4);
    if (!end)
        return 0;
    const uint8_t *cl = memmem(p, (size_t)(end - p), "Content-Length: ", 16);
    size_t head = (size_t)(end - p) + 4, len = cl ? strtoul((const char *)cl + 16, NULL, 10) : 0;
    if (n < head + len)
        return 0;
    *status = atoi((const char *)p + 9);
    *body = p + head;
    *body_n = len;
    return head + len;
}

static size_t ron_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    int status;
    const uint8_t *body;
    size_t body_n, used = http_answer(p, n, &status, &body, &body_n);
    (void)c;
    if (used)
        *done = status == 200 ? 1 : -1;
    return used;
}

static size_t ron_cycle_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    int status;
    const uint8_t *body;
    size_t body_n, used = http_answer(p, n, &status, &body, &body_n);
    if (!used)
        return 0;
    *done = status == 200 ? 0 : -1;
    if (c->step == 1) {
        const uint8_t *id = memmem(body, body_n, "\"msg_id\":\"", 10);
        if (!id)
            return used; /* somebody else was faster: ask again */
        memcpy(c->msg_id, id + 10, 36);
        c->msg_id[36] = 0;
    } else if (c->step == 2 && status == 200) {
        *done = 1;
    }
    c->step = (c->step + 1) % 3;
    return used;
}

static void ron_drain(struct conn *c)
{
    if (c->step == 1)
        ron_receive(c);
    else
        ron_ack(c);
}

static size_t ron_drain_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    size_t used = ron_cycle_answer(c, p, n, done);
    if (used && c->step == 0)
        c->step = 1;
    return used;
}

/* ---- ours, OAP ---- */

static size_t varint(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    do {
        p[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (p[n++] & 0x80);
    return n;
}

static size_t pb_bytes(uint8_t *p, unsigned field, const void *v, size_t n)
{
    size_t at = varint(p, field << 3 | 2);
    at += varint(p + at, n);
    memcpy(p + at, v, n);
    return at + n;
}

static void ron_oap(struct conn *c)
{
    static uint8_t body[1 << 20], one[1024];
    size_t n = 0, cap = c->greeted ? 0 : strlen(token);
    uint8_t head[38] = {0};
    for (unsigned i = 0; i < batch; i++) {
        uint8_t p[PAYLOAD];
        char key[64];
        payload(p);
        int k = snprintf(key, sizeof key, "%llx-%llu", (unsigned long long)session,
                         (unsigned long long)counter);
        const char *t = topic();
        size_t m = pb_bytes(one, 1, t, strlen(t));
        m += pb_bytes(one + m, 2, key, (size_t)k);
        m += pb_bytes(one + m, 3, p, PAYLOAD);
        n += pb_bytes(body + n, 1, one, m);
    }
    be32_put(head, (uint32_t)(38 + cap + n));
    be16_put(head + 4, 1);
    be16_put(head + 6, 1 | 8 | 16);
    be16_put(head + 8, 1);
    be16_put(head + 10, 0x0201);
    be16_put(head + 28, (uint16_t)cap);
    be64_put(head + 30, ++c->job);
    put(c, head, 38);
    put(c, token, cap);
    put(c, body, n);
    c->greeted = true;
}

static size_t oap_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    (void)c;
    if (n < 38 || n < be32_get(p))
        return 0;
    *done = be16_get(p + 8) == 200 ? (long)batch : -1;
    /* each result begins 0x0a len 0x08 status: 0xc8 0x01 is 200 */
    if (*done > 0 && memcmp(p + 38 + 2, "\x08\xc8\x01", 3) != 0 &&
        memcmp(p + 38 + 3, "\x08\xc8\x01", 3) != 0)
        *done = -1;
    return be32_get(p);
}

/* ---- beanstalkd ---- */

static void beanstalk(struct conn *c)
{
    uint8_t p[PAYLOAD];
    if (c->step == 0) {
        payload(p);
        say(c, "put 0 0 60 %d\r\n", PAYLOAD);
        put(c, p, PAYLOAD);
        put(c, "\r\n", 2);
    } else if (c->step == 1) {
        say(c, "reserve\r\n");
    } else {
        say(c, "delete %lu\r\n", c->job);
    }
}

static size_t beanstalk_put_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    const uint8_t *end = memmem(p, n, "\r\n", 2);
    (void)c;
    if (!end)
        return 0;
    *done = memcmp(p, "INSERTED", 8) == 0 ? 1 : -1;
    return (size_t)(end - p) + 2;
}

static size_t beanstalk_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    const uint8_t *end = memmem(p, n, "\r\n", 2);
    if (!end)
        return 0;
    size_t line = (size_t)(end - p) + 2;
    unsigned long id, len;
    *done = 0;
    if (c->step == 1) {
        if (sscanf((const char *)p, "RESERVED %lu %lu", &id, &len) != 2) {
            *done = -1;
            return line;
        }
        if (n < line + len + 2)
            return 0;
        c->job = id;
        line += len + 2;
    } else if (c->step == 2) {
        *done = memcmp(p, "DELETED", 7) == 0 ? 1 : -1;
    }
    c->step = (c->step + 1) % 3;
    return line;
}

/* ---- Redis ---- */

static void redis(struct conn *c)
{
    for (unsigned i = 0; i < batch; i++) {
        uint8_t p[PAYLOAD];
        payload(p);
        say(c, "*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\np\r\n$%d\r\n", PAYLOAD);
        put(c, p, PAYLOAD);
        put(c, "\r\n", 2);
    }
    c->outstanding = batch;
}

static size_t redis_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    const uint8_t *end = memmem(p, n, "\r\n", 2);
    if (!end)
        return 0;
    if (*p != '$') {
        *done = -1;
        return (size_t)(end - p) + 2;
    }
    size_t len = strtoul((const char *)p + 1, NULL, 10), all = (size_t)(end - p) + 2 + len + 2;
    if (n < all)
        return 0;
    *done = --c->outstanding == 0 ? (long)batch : 0;
    c->step = c->outstanding ? 9 : 0; /* 9: more answers of this batch to come */
    return all;
}

/* ---- NATS ---- */

static void nats_greet(struct conn *c)
{
    say(c, "CONNECT {\"verbose\":false}\r\nSUB _INBOX.%d.* 1\r\n", c->id);
    if (c->id == 0) {
        const char *make =
            "{\"name\":\"BENCH\",\"subjects\":[\"bench.*\"],\"storage\":\"file\",\"num_replicas\":1}";
        say(c, "PUB $JS.API.STREAM.CREATE.BENCH _INBOX.none.x %zu\r\n%s\r\n", strlen(make), make);
    }
}

static void nats_one(struct conn *c)
{
    uint8_t p[PAYLOAD];
    payload(p);
    say(c, "PUB bench.%d _INBOX.%d.a %d\r\n", c->id, c->id, PAYLOAD);
    put(c, p, PAYLOAD);
    put(c, "\r\n", 2);
}

static void nats(struct conn *c)
{
    while (c->outstanding < batch) {
        nats_one(c);
        c->outstanding++;
    }
}

static size_t nats_answer(struct conn *c, const uint8_t *p, size_t n, long *done)
{
    const uint8_t *end = memmem(p, n, "\r\n", 2);
    if (!end)
        return 0;
    size_t line = (size_t)(end - p) + 2;
    *done = 0;
    c->step = 9;
    if (memcmp(p, "MSG ", 4) == 0) {
        const uint8_t *last = end;
        while (last[-1] != ' ')
            last--;
        size_t len = strtoul((const char *)last, NULL, 10);
        if (n < line + len + 2)
            return 0;
        *done = memmem(p + line, len, "\"error\"", 7) ? -1 : 1;
        c->outstanding--;
        if (c->outstanding < batch / 2)
            c->step = 0;
        return line + len + 2;
    }
    if (memcmp(p, "-ERR", 4) == 0)
        *done = -1;
    return line;
}

static const struct mode modes[] = {
    {"ron-send", NULL, ron_send, ron_answer},
    {"ron-cycle", NULL, ron_cycle, ron_cycle_answer},
    {"ron-recv", NULL, ron_drain, ron_drain_answer},
    {"ron-oap", NULL, ron_oap, oap_answer},
    {"beanstalk-put", NULL, beanstalk, beanstalk_put_answer},
    {"beanstalk-cycle", NULL, beanstalk, beanstalk_answer},
    {"redis-xadd", NULL, redis, redis_answer},
    {"nats", nats_greet, nats, nats_answer},
};

/* ---- the loop ---- */

static int dial(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        perror("connect");
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void flush(struct conn *c)
{
    while (c->out_at < c->out_n) {
        ssize_t n = write(c->fd, c->out + c->out_at, c->out_n - c->out_at);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            perror("write");
            exit(1);
        }
        c->out_at += (size_t)n;
    }
    c->out_at = c->out_n = 0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double q)
{
    return samples_n ? (double)samples[(size_t)((double)(samples_n - 1) * q)] : 0;
}

int main(int argc, char **argv)
{
    const struct mode *m = NULL;
    if (argc < 6) {
        fprintf(stderr, "usage: bench.mailbox MODE PORT SECONDS CONNECTIONS BATCH [TOKEN_FILE] [TOPICS]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, argv[1]) == 0)
            m = &modes[i];
    int port = atoi(argv[2]), n = atoi(argv[4]);
    double seconds = atof(argv[3]);
    batch = (unsigned)atoi(argv[5]);
    if (argc > 6 && *argv[6]) {
        FILE *f = fopen(argv[6], "r");
        if (!f || fscanf(f, "%8191s", token) != 1)
            return perror("token"), 1;
        fclose(f);
    }
    topics = argc > 7 ? (unsigned)atoi(argv[7]) : 1;
    draining = strcmp(argv[1], "ron-recv") == 0;
    session = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    struct conn *conns = calloc((size_t)n, sizeof *conns);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    int ep = epoll_create1(0);
    if (!m || n < 1 || !conns || !samples || ep < 0)
        return 2;
    for (int i = 0; i < n; i++) {
        struct conn *c = &conns[i];
        *c = (struct conn){.fd = dial(port), .id = i, .in = malloc(IN_MAX), .out = malloc(OUT_MAX)};
        c->step = strcmp(m->name, "ron-recv") == 0;
        if (m->greet)
            m->greet(c);
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
    }
    for (int i = 0; i < n; i++) {
        flush(&conns[i]);
        if (m->greet)
            usleep(i == 0 ? 200000 : 0); /* the stream exists before anybody publishes */
    }
    int64_t began = now_ns(), end = began + (int64_t)(seconds * 1e9), t = began;
    for (int i = 0; i < n; i++) {
        conns[i].sent_ns = began;
        m->make(&conns[i]);
        flush(&conns[i]);
    }
    uint64_t done = 0, errors = 0;
    while (t < end) {
        struct epoll_event ev[64];
        int k = epoll_wait(ep, ev, 64, 50);
        t = now_ns();
        for (int i = 0; i < k; i++) {
            struct conn *c = ev[i].data.ptr;
            ssize_t got = read(c->fd, c->in + c->in_n, IN_MAX - c->in_n);
            if (got == 0 || (got < 0 && errno != EAGAIN)) {
                fprintf(stderr, "connection lost\n");
                return 1;
            }
            c->in_n += got > 0 ? (size_t)got : 0;
            size_t at = 0, used;
            bool next = false;
            long finished;
            while ((used = m->parse(c, c->in + at, c->in_n - at, &finished)) > 0) {
                at += used;
                if (finished < 0)
                    errors++;
                else
                    done += (uint64_t)finished;
                if (c->step != 9)
                    next = true;
                if (finished > 0 && samples_n < SAMPLES_MAX)
                    samples[samples_n++] = (float)(t - c->sent_ns) / 1e6f;
                if (c->in_n == at)
                    break;
            }
            memmove(c->in, c->in + at, c->in_n - at);
            c->in_n -= at;
            if (next) {
                if (c->step == 0 || strcmp(m->name, "ron-recv") == 0)
                    c->sent_ns = t;
                m->make(c);
                flush(c);
            }
        }
        for (int i = 0; i < n; i++)
            if (conns[i].out_n)
                flush(&conns[i]);
    }
    double took = (double)(now_ns() - began) / 1e9;
    qsort(samples, samples_n, sizeof *samples, by_value);
    printf("{\"mode\":\"%s\",\"per_s\":%.1f,\"done\":%llu,\"errors\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,"
           "\"p999_ms\":%.3f}\n",
           m->name, (double)done / took, (unsigned long long)done, (unsigned long long)errors,
           quantile(0.5), quantile(0.99), quantile(0.999));
    return 0;
}
