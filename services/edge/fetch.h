/*
 * One GET to an origin: https with everything verified, to a public address, within bounds of time and size, the body
 * hashed while it is written to a temporary file.
 *
 * Threads     A client belongs to one worker. edge_fetch waits; it ends early when the worker's task is cancelled.
 */
#ifndef RON_EDGE_FETCH_H
#define RON_EDGE_FETCH_H

#include "services/edge/core/upstream.h"
#include "services/edge/store.h"

struct edge_client;

struct edge_client *edge_client_create(struct edge *e);
void edge_client_destroy(struct edge_client *c);
/* What it fetched last is stored, or gone: with amnesia others may have the memory. */
void edge_client_let_go(struct edge_client *c);

struct edge_get {
    const char *url;
    const char *const *headers; /* NULL-terminated lines */
    int64_t timeout_ms;
    uint64_t max_bytes;
    struct store_file *to; /* 200: the body goes here */
    _Atomic uint64_t *progress;
};

enum edge_got {
    EDGE_GOT_ANSWER,
    EDGE_GOT_TIMEOUT,
    EDGE_GOT_FAILED,    /* no connection, TLS, protocol */
    EDGE_GOT_SHORT,     /* it ended before the length that was declared */
    EDGE_GOT_FORBIDDEN, /* an address it must not connect to */
    EDGE_GOT_TOO_LARGE,
    EDGE_GOT_DISK,
    EDGE_GOT_MEMORY, /* amnesia: more than a quarter of its bytes, or all that is being fetched more than they are */
    EDGE_GOT_CANCELED,
};

enum edge_got edge_fetch(struct edge_client *c, const struct edge_get *get, struct rt_task *self,
                         struct edge_answer *out) RT_BLOCKS;

#endif
