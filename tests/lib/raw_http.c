#include "raw_http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void patience(int fd)
{
    struct timeval tv = {.tv_sec = RAW_PATIENCE_MS / 1000};
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void raw_connect(struct raw_conn *c, uint16_t port)
{
    raw_connect_small(c, port, 0);
}

void raw_connect_small(struct raw_conn *c, uint16_t port, int buffer)
{
    *c = (struct raw_conn){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(c->fd >= 0);
    patience(c->fd);
    if (buffer)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
}

void raw_connect_unix(struct raw_conn *c, const char *path)
{
    *c = (struct raw_conn){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(c->fd >= 0);
    patience(c->fd);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof a.sun_path);
    memcpy(a.sun_path, path, strlen(path));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
}

void raw_close(struct raw_conn *c)
{
    SSL_free(c->ssl);
    if (c->fd >= 0)
        close(c->fd);
    free(c->buf);
    *c = (struct raw_conn){.fd = -1};
}

bool raw_try_send(struct raw_conn *c, const void *p, size_t n)
{
    const char *at = p;
    while (n > 0) {
        ssize_t r = c->ssl ? SSL_write(c->ssl, at, (int)n) : send(c->fd, at, n, MSG_NOSIGNAL);
        if (r <= 0)
            return false;
        at += r;
        n -= (size_t)r;
    }
    return true;
}

void raw_send(struct raw_conn *c, const void *p, size_t n)
{
    assert_true(raw_try_send(c, p, n));
}

void raw_puts(struct raw_conn *c, const char *text)
{
    raw_send(c, text, strlen(text));
}

bool raw_more(struct raw_conn *c)
{
    if (c->eof)
        return false;
    if (c->cap - c->n < 65536) {
        c->cap = c->n + 131072;
        c->buf = realloc(c->buf, c->cap);
        assert_non_null(c->buf);
    }
    size_t room = c->cap - c->n - 1;
    ssize_t r = c->ssl ? SSL_read(c->ssl, c->buf + c->n, (int)room) : recv(c->fd, c->buf + c->n, room, 0);
    if (r < 0 && !c->ssl && errno != ECONNRESET)
        fail_msg("no answer within the test's patience (errno %d)", errno);
    if (r <= 0) {
        c->eof = true;
        return false;
    }
    c->n += (size_t)r;
    c->buf[c->n] = 0;
    return true;
}

bool raw_at_eof(struct raw_conn *c)
{
    while (c->n == 0 && raw_more(c))
        ;
    return c->n == 0;
}

static void used(struct raw_conn *c, size_t n)
{
    memmove(c->buf, c->buf + n, c->n - n + 1);
    c->n -= n;
}

static char *copy(const char *p, size_t n)
{
    char *s = malloc(n + 1);
    assert_non_null(s);
    memcpy(s, p, n);
    s[n] = 0;
    return s;
}

void raw_head(struct raw_conn *c, struct raw_response *out)
{
    *out = (struct raw_response){0};
    const char *end = NULL;
    while (!(end = c->n ? memmem(c->buf, c->n, "\r\n\r\n", 4) : NULL))
        if (!raw_more(c))
            break;
    if (!end)
        return;
    size_t n = (size_t)(end - c->buf) + 4;
    out->head = copy(c->buf, n);
    assert_int_equal(strncmp(out->head, "HTTP/1.1 ", 9), 0);
    out->status = atoi(out->head + 9);
    used(c, n);
}

const char *raw_header(const struct raw_response *r, const char *name, char *out, size_t cap)
{
    size_t len = strlen(name);
    for (const char *line = strstr(r->head, "\r\n"); line && line[2] && line[2] != '\r';
         line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, len) != 0 || line[2 + len] != ':')
            continue;
        const char *v = line + 3 + len;
        while (*v == ' ')
            v++;
        size_t n = (size_t)(strstr(v, "\r\n") - v);
        assert_true(n < cap);
        memcpy(out, v, n);
        out[n] = 0;
        return out;
    }
    return NULL;
}

static bool need(struct raw_conn *c, size_t n)
{
    while (c->n < n)
        if (!raw_more(c))
            return false;
    return true;
}

static void add(struct raw_response *r, const char *p, size_t n)
{
    r->body = realloc(r->body, r->body_n + n + 1);
    assert_non_null(r->body);
    memcpy(r->body + r->body_n, p, n);
    r->body_n += n;
    r->body[r->body_n] = 0;
}

static void read_chunks(struct raw_conn *c, struct raw_response *out)
{
    for (;;) {
        char *end;
        while (!(end = c->n ? memmem(c->buf, c->n, "\r\n", 2) : NULL))
            if (!raw_more(c))
                return;
        size_t size = strtoul(c->buf, NULL, 16), skip = (size_t)(end - c->buf) + 2;
        if (!need(c, skip + size + 2))
            return;
        add(out, c->buf + skip, size);
        used(c, skip + size + 2);
        if (size == 0) {
            out->complete = true;
            return;
        }
    }
}

void raw_read(struct raw_conn *c, bool head_only, struct raw_response *out)
{
    char v[64];
    raw_head(c, out);
    if (!out->status)
        return;
    add(out, "", 0);
    if (head_only || out->status == 204 || out->status == 304 || out->status < 200) {
        out->complete = true;
    } else if (raw_header(out, "Transfer-Encoding", v, sizeof v)) {
        read_chunks(c, out);
    } else if (raw_header(out, "Content-Length", v, sizeof v)) {
        size_t n = strtoul(v, NULL, 10);
        out->complete = need(c, n);
        size_t have = c->n < n ? c->n : n;
        if (have) {
            add(out, c->buf, have);
            used(c, have);
        }
    } else {
        while (raw_more(c))
            ;
        if (c->n)
            add(out, c->buf, c->n);
        c->n = 0;
        out->complete = true;
    }
}

void raw_free(struct raw_response *r)
{
    free(r->head);
    free(r->body);
    *r = (struct raw_response){0};
}

void raw_once(uint16_t port, const char *request, struct raw_response *out)
{
    struct raw_conn c;
    raw_connect(&c, port);
    raw_puts(&c, request);
    raw_read(&c, strncmp(request, "HEAD ", 5) == 0, out);
    raw_close(&c);
}
