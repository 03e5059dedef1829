/*
 * A client that sends exactly the bytes it is told to and reads responses by their framing. Every wait ends after
 * RAW_PATIENCE_MS: a server that should have answered makes the test fail instead of hang.
 */
#ifndef RON_TESTS_RAW_HTTP_H
#define RON_TESTS_RAW_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAW_PATIENCE_MS = 30000 };

struct raw_conn {
    int fd;
    void *ssl; /* SSL *, or NULL */
    char *buf;
    size_t n, cap;
    bool eof;
};

struct raw_response {
    int status;
    char *head; /* with the empty line, terminated */
    char *body; /* de-chunked, terminated */
    size_t body_n;
    bool complete; /* false: the connection ended inside */
};

void raw_connect(struct raw_conn *c, uint16_t port);
void raw_connect_small(struct raw_conn *c, uint16_t port,
                       int buffer); /* with a receive buffer of that size */
void raw_connect_unix(struct raw_conn *c, const char *path);
void raw_close(struct raw_conn *c);
void raw_send(struct raw_conn *c, const void *p, size_t n);
void raw_puts(struct raw_conn *c, const char *text);
bool raw_try_send(struct raw_conn *c, const void *p, size_t n); /* false: the peer is gone */
/* The next response; `head_only` for answers to HEAD. status 0: the connection ended before one began. */
void raw_read(struct raw_conn *c, bool head_only, struct raw_response *out);
void raw_head(struct raw_conn *c,
              struct raw_response *out); /* only the head; the body is left in the connection */
bool raw_more(struct raw_conn *c);       /* one read into buf; false at EOF */
bool raw_at_eof(struct raw_conn *c);     /* waits for the peer to close; false: it sent something */
const char *raw_header(const struct raw_response *r, const char *name, char *out,
                       size_t cap); /* NULL: none */
void raw_free(struct raw_response *r);
/* One request on a fresh connection. */
void raw_once(uint16_t port, const char *request, struct raw_response *out);

#endif
