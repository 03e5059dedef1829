/*
 * What the kernel leaves room for: an event loop that receives a request and sends an answer it has ready, and does nothing else.
 * No parsing, no limits, no time: not a server, but no server on epoll can cost less. bench/rows/http, edge and mailbox show it beside
 * their peers and ours.
 *
 *   bench.bare                       prints its port; ends when its input ends
 *   bench.bare answer FILE           answers with what is in FILE, from memory
 *   bench.bare answer FILE HEAD      the same with sendfile, but for the first HEAD bytes
 *   bench.bare journal FILE          sends and receives of a mailbox wait until they are in FILE
 *
 * What a mailbox is asked is answered with something as long as its answer. A journal adds what nobody can leave out who answers when
 * it is durable: a write with O_DIRECT|O_DSYNC of as many bytes as the mailbox's records have. A second thread writes, so that
 * receiving goes on meanwhile; what came during one write goes into the next.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

enum {
    EVENTS = 64,
    REQUEST_MAX = 4096,
    ANSWER_MAX = 2048,
    GROUP_MAX = 1024, /* more than there are connections */
    SECTOR = 4096,
    FRAME_BYTES = 144, /* of a group without records */
    SEND_BYTES = 488,  /* 256 B of payload, and what the mailbox's journal has around it */
    RECEIVE_BYTES = 40,
    FILE_BYTES = 32 * 1024 * 1024, /* written over and over: no blocks are allocated */
};

enum what { OTHER, SEND, RECEIVE, ACK, WHATS };

static struct answer {
    char *p;
    size_t n, in_memory;  /* all of it; from p, and the rest from the file */
    size_t journal_bytes; /* 0: it waits for nothing */
} answers[WHATS];
static int answer_file = -1;

struct waiting {
    int fd;
    enum what what;
};

struct group {
    struct waiting v[GROUP_MAX];
    size_t n;
};

static struct journal {
    int fd, done; /* -1: there is none; told when a group is durable */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct group next, durable;
    bool end;
    uint8_t *bytes;
    off_t at;
} journal = {.fd = -1, .done = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};

#define HASH  "sha256:df60d38678347140169678e1e5effafeb40c9542f1ff446a00b233a78cc09701"
#define ID    "0199d996-c5e8-709d-8000-000000000001"
#define STAMP "2026-11-16T00:00:00.000Z"

static void make(enum what what, const char *type, const char *body, size_t journal_bytes)
{
    struct answer *a = &answers[what];
    a->p = malloc(ANSWER_MAX);
    CHECK(a->p != NULL);
    int n = snprintf(a->p, ANSWER_MAX,
                     "HTTP/1.1 200 OK\r\nDate: Mon, 16 Nov 2026 00:00:00 GMT\r\n"
                     "X-Corr-ID: 01a1e581-be90-7a50-afdc-7b0de329fef9\r\nContent-Type: "
                     "%s\r\nContent-Length: %zu\r\n\r\n%s",
                     type, strlen(body), body);
    CHECK(n > 0 && n < ANSWER_MAX);
    a->n = a->in_memory = (size_t)n;
    a->journal_bytes = journal_bytes;
}

static void make_answers(void)
{
    static const char json[] = "application/json";
    char payload[345], body[1500];
    memset(payload, 'A', sizeof payload - 1);
    payload[sizeof payload - 1] = 0;
    int n = snprintf(
        body, sizeof body,
        "{\"messages\":[{\"msg_id\":\"" ID "\",\"topic\":\"bench/0\",\"topic_seq\":1000000,\"ts\":\"" STAMP
        "\",\"idem_key\":\"1a2b3c4d5e6f70-1000000\",\"payload_b64\":\"%s\",\"payload_hash\":\"" HASH
        "\",\"attrs\":{},\"corr_id\":\"" ID "\",\"shard\":0,\"attempt\":1,\"lease_ms\":30000,"
        "\"chain_prev\":\"" HASH "\",\"hash_chain\":\"" HASH "\"}],\"more\":true}",
        payload);
    CHECK(n > 0 && (size_t)n < sizeof body);
    make(OTHER, "text/plain", "ok\n", 0);
    make(SEND, json,
         "{\"msg_id\":\"" ID "\",\"topic_seq\":1000000,\"ts\":\"" STAMP
         "\",\"duplicate\":false,\"hash_chain\":\"" HASH "\"}",
         SEND_BYTES);
    make(RECEIVE, json, body, RECEIVE_BYTES);
    make(ACK, json, "{\"ok\":true}", 0);
}

/* Whatever is asked: these bytes. */
static void take_answer(const char *path, const char *head)
{
    struct answer *a = &answers[OTHER];
    struct stat st;
    answer_file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(answer_file >= 0 && fstat(answer_file, &st) == 0);
    free(a->p);
    a->n = (size_t)st.st_size;
    a->p = malloc(a->n);
    CHECK(a->p != NULL && pread(answer_file, a->p, a->n, 0) == (ssize_t)a->n);
    a->in_memory = head ? strtoul(head, NULL, 10) : a->n;
    CHECK(a->in_memory <= a->n);
}

/* ---- durable ---- */

static void open_journal(const char *path)
{
    struct journal *j = &journal;
    j->fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_DSYNC, 0600);
    j->done = eventfd(0, EFD_NONBLOCK);
    j->bytes = aligned_alloc(SECTOR, FILE_BYTES);
    CHECK(j->fd >= 0 && j->done >= 0 && j->bytes != NULL);
    memset(j->bytes, 0, FILE_BYTES);
    CHECK(pwrite(j->fd, j->bytes, FILE_BYTES, 0) == FILE_BYTES);
}

static void write_group(const struct group *g)
{
    struct journal *j = &journal;
    size_t n = FRAME_BYTES;
    for (size_t i = 0; i < g->n; i++)
        n += answers[g->v[i].what].journal_bytes;
    n = (n + SECTOR - 1) / SECTOR * SECTOR;
    if (j->at + (off_t)n > FILE_BYTES)
        j->at = 0;
    CHECK(pwrite(j->fd, j->bytes, n, j->at) == (ssize_t)n);
    j->at += (off_t)n;
}

static void *write_groups(void *arg)
{
    struct journal *j = &journal;
    static struct group g;
    (void)arg;
    for (;;) {
        CHECK(pthread_mutex_lock(&j->lock) == 0);
        while (j->next.n == 0 && !j->end)
            CHECK(pthread_cond_wait(&j->some, &j->lock) == 0);
        g = j->next;
        j->next.n = 0;
        CHECK(pthread_mutex_unlock(&j->lock) == 0);
        if (g.n == 0)
            return NULL;
        write_group(&g);
        CHECK(pthread_mutex_lock(&j->lock) == 0);
        CHECK(j->durable.n + g.n <= GROUP_MAX);
        memcpy(j->durable.v + j->durable.n, g.v, g.n * sizeof g.v[0]);
        j->durable.n += g.n;
        CHECK(pthread_mutex_unlock(&j->lock) == 0);
        CHECK(eventfd_write(j->done, 1) == 0);
    }
}

/* What one iteration of the loop brought goes to the writer together. */
static void hand_over(struct group *g)
{
    struct journal *j = &journal;
    if (g->n == 0)
        return;
    CHECK(pthread_mutex_lock(&j->lock) == 0);
    CHECK(j->next.n + g->n <= GROUP_MAX);
    memcpy(j->next.v + j->next.n, g->v, g->n * sizeof g->v[0]);
    j->next.n += g->n;
    CHECK(pthread_mutex_unlock(&j->lock) == 0);
    CHECK(pthread_cond_signal(&j->some) == 0);
    g->n = 0;
}

/* ---- the loop ---- */

static void watch(int epoll, int fd, uint32_t events)
{
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = events, .data.fd = fd}) == 0);
}

static int listen_anywhere(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&any, n) == 0 && listen(fd, 1024) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&any, &n) == 0);
    printf("%u\n", ntohs(any.sin_port));
    fflush(stdout);
    return fd;
}

static void accept_all(int epoll, int listener)
{
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        watch(epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
    }
}

static enum what what_is(const char *request, ssize_t n)
{
    static const char front[] = "POST /v1/";
    if (n < (ssize_t)sizeof front || memcmp(request, front, sizeof front - 1) != 0)
        return OTHER;
    switch (request[sizeof front - 1]) {
    case 's':
        return SEND;
    case 'r':
        return RECEIVE;
    default:
        return ACK;
    }
}

/* All of it: a socket without room is waited for. */
static bool give(int fd, const struct answer *a)
{
    for (size_t at = 0; at < a->n;) {
        off_t off = (off_t)at;
        ssize_t n = at < a->in_memory ? send(fd, a->p + at, a->in_memory - at,
                                             MSG_NOSIGNAL | (a->in_memory < a->n ? MSG_MORE : 0))
                                      : sendfile(fd, answer_file, &off, a->n - at);
        if (n > 0)
            at += (size_t)n;
        else if (errno != EAGAIN || poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000) != 1)
            return false;
    }
    return true;
}

static void answer(int fd, enum what what)
{
    if (!give(fd, &answers[what]))
        close(fd);
}

/* A client sends a request at once and waits for its answer, so one receive is one request. */
static void serve(int fd, struct group *to_write)
{
    char request[REQUEST_MAX];
    ssize_t n = recv(fd, request, sizeof request, 0);
    if (n <= 0) {
        close(fd);
        return;
    }
    enum what what = what_is(request, n);
    if (journal.fd >= 0 && answers[what].journal_bytes > 0)
        to_write->v[to_write->n++] = (struct waiting){fd, what};
    else
        answer(fd, what);
}

static void answer_durable(void)
{
    static struct group g;
    struct journal *j = &journal;
    CHECK(pthread_mutex_lock(&j->lock) == 0);
    g = j->durable;
    j->durable.n = 0;
    CHECK(pthread_mutex_unlock(&j->lock) == 0);
    for (size_t i = 0; i < g.n; i++)
        answer(g.v[i].fd, g.v[i].what);
}

static void serve_until_input_ends(int epoll, int listener)
{
    static struct group to_write;
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == STDIN_FILENO)
                return;
            if (fd == listener)
                accept_all(epoll, listener);
            else if (fd == journal.done)
                answer_durable();
            else
                serve(fd, &to_write);
        }
        hand_over(&to_write);
    }
}

int main(int argc, char **argv)
{
    int epoll = epoll_create1(0);
    pthread_t writer;
    CHECK(epoll >= 0);
    make_answers();
    bool durable = argc > 2 && strcmp(argv[1], "journal") == 0;
    if (argc > 2 && strcmp(argv[1], "answer") == 0)
        take_answer(argv[2], argc > 3 ? argv[3] : NULL);
    if (durable) {
        open_journal(argv[2]);
        watch(epoll, journal.done, EPOLLIN | EPOLLET); /* edge-triggered: it need not be read */
        CHECK(pthread_create(&writer, NULL, write_groups, NULL) == 0);
    }
    int listener = listen_anywhere();
    watch(epoll, listener, EPOLLIN);
    watch(epoll, STDIN_FILENO, EPOLLIN);
    serve_until_input_ends(epoll, listener);
    if (durable) {
        CHECK(pthread_mutex_lock(&journal.lock) == 0);
        journal.end = true;
        CHECK(pthread_mutex_unlock(&journal.lock) == 0);
        CHECK(pthread_cond_signal(&journal.some) == 0 && pthread_join(writer, NULL) == 0);
        unlink(argv[2]);
    }
    return 0;
}
