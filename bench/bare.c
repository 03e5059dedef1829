/*
 * What the kernel leaves room for: an event loop that receives a request and sends an answer it has ready, and does nothing else.
 * No parsing, no limits, no time: not a server, but no server on epoll can cost less. bench/rows/http shows it beside nginx and ours.
 *
 *   bench.bare      prints its port; ends when its input ends
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

enum { EVENTS = 64, REQUEST_MAX = 4096 };

static const char answer[] = "HTTP/1.1 200 OK\r\n"
                             "Date: Mon, 16 Nov 2026 00:00:00 GMT\r\n"
                             "X-Corr-ID: 01a1e581-be90-7a50-afdc-7b0de329fef9\r\n"
                             "Content-Type: text/plain\r\n"
                             "Content-Length: 3\r\n"
                             "\r\n"
                             "ok\n";

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

/* wrk sends a request at once and waits for its answer, so one receive is one request. */
static void serve(int fd)
{
    char request[REQUEST_MAX];
    ssize_t n = recv(fd, request, sizeof request, 0);
    if (n <= 0 || send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
        close(fd);
}

int main(void)
{
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
