/*
 * What the kernel leaves room for: an event loop that receives a request and sends an answer it has ready, and does nothing else.
 * No parsing, no limits, no time: not a server, but no server on epoll can cost less. bench/rows/http and bench/rows/edge show it
 * beside their peers and ours.
 *
 *   bench.bare                 prints its port; ends when its input ends
 *   bench.bare FILE            answers with what is in FILE, from memory
 *   bench.bare FILE HEAD       the same with sendfile, but for the first HEAD bytes
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

enum { EVENTS = 64, REQUEST_MAX = 4096 };

static const char hello[] = "HTTP/1.1 200 OK\r\n"
                            "Date: Mon, 16 Nov 2026 00:00:00 GMT\r\n"
                            "X-Corr-ID: 01a1e581-be90-7a50-afdc-7b0de329fef9\r\n"
                            "Content-Type: text/plain\r\n"
                            "Content-Length: 3\r\n"
                            "\r\n"
                            "ok\n";

static struct {
    const char *p;
    size_t n;    /* all of it */
    size_t sent; /* from p; the rest from the file */
    int file;
} answer = {hello, sizeof hello - 1, sizeof hello - 1, -1};

static void take_answer(const char *path, const char *head)
{
    struct stat st;
    answer.file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(answer.file >= 0 && fstat(answer.file, &st) == 0);
    answer.n = (size_t)st.st_size;
    char *all = malloc(answer.n);
    CHECK(all && pread(answer.file, all, answer.n, 0) == (ssize_t)answer.n);
    answer.p = all;
    answer.sent = head ? strtoul(head, NULL, 10) : answer.n;
    CHECK(answer.sent <= answer.n);
}

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

/* All of it: a socket without room is waited for. */
static bool give(int fd)
{
    for (size_t at = 0; at < answer.n;) {
        off_t off = (off_t)at;
        ssize_t n = at < answer.sent ? send(fd, answer.p + at, answer.sent - at,
                                            MSG_NOSIGNAL | (answer.sent < answer.n ? MSG_MORE : 0))
                                     : sendfile(fd, answer.file, &off, answer.n - at);
        if (n > 0)
            at += (size_t)n;
        else if (errno != EAGAIN || poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000) != 1)
            return false;
    }
    return true;
}

/* wrk sends a request at once and waits for its answer, so one receive is one request. */
static void serve(int fd)
{
    char request[REQUEST_MAX];
    ssize_t n = recv(fd, request, sizeof request, 0);
    if (n <= 0 || !give(fd))
        close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        take_answer(argv[1], argc > 2 ? argv[2] : NULL);
    int epoll = epoll_create1(0), listener = listen_anywhere();
    CHECK(epoll >= 0);
    watch(epoll, listener, EPOLLIN);
    watch(epoll, STDIN_FILENO, EPOLLIN);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == STDIN_FILENO)
                return 0;
            if (events[i].data.fd == listener)
                accept_all(epoll, listener);
            else
                serve(events[i].data.fd);
        }
    }
}
