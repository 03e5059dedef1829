/*
 * One connection to PostgreSQL on which every call has a deadline.
 *
 * libpq's blocking calls wait as long as the network lets them; a server that is stopped, or a cable that is cut, would hold
 * the committer for minutes. Here everything is the non-blocking interface and poll(): connecting (host by host, since libpq's
 * own walk over a list of hosts has no time-out when it is not blocking), sending, receiving. Statements are prepared once per
 * connection and run in pipeline mode, each its own transaction.
 *
 * A connection is only used when the server keeps what it acknowledges: see store_pg_connect.
 *
 * Ownership   A result belongs to the caller (PQclear). The text of store_pg_why() lives until the next call.
 * Threads     One at a time per connection.
 * Memory      libpq allocates per statement; nothing else does.
 */
#ifndef RON_STORE_PG_H
#define RON_STORE_PG_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct store_pg;

/* Prepared on every new connection, in this order; a call names one by its place. */
struct store_pg_statement {
    const char *name, *sql;
};

struct store_pg_config {
    const char *dsn;         /* libpq keywords or URI; several hosts allowed */
    const char *application; /* shown in pg_stat_activity */
    unsigned quorum;         /* at least so many standbys must acknowledge a commit; 0: do not ask */
    const char *schema;      /* run once per connection before preparing; NULL: nothing */
    const struct store_pg_statement *statements;
    size_t n_statements;
};

/* No I/O. ERR_SYNTAX: the DSN cannot be read. */
NODISCARD enum err store_pg_create(const struct store_pg_config *cfg, struct store_pg **out);
void store_pg_destroy(struct store_pg *p);

/*
 * Finds the host that takes writes and checks what it promises: version 15 or later, fsync and full_page_writes on,
 * synchronous_commit on, synchronous_standby_names ANY k of a list with k >= quorum. ERR_UNAVAILABLE: it does not, store_pg_why
 * says which. ERR_REFUSED, ERR_TIMEOUT: nobody was reached. Does nothing when connected.
 */
NODISCARD enum err store_pg_connect(struct store_pg *p, struct deadline by) RT_BLOCKS;
bool store_pg_connected(const struct store_pg *p);
void store_pg_drop(struct store_pg *p);             /* whatever is under way there is now unknown */
const char *store_pg_why(const struct store_pg *p); /* one sentence about the last failure */

/* One parameter; text when `text`, else binary. */
struct store_pg_param {
    const void *p;
    int n;
    bool text;
};
static inline struct store_pg_param store_pg_text(const char *s, size_t n)
{
    return (struct store_pg_param){s, (int)n, true};
}
static inline struct store_pg_param store_pg_bytes(const void *p, size_t n)
{
    return (struct store_pg_param){p, (int)n, false};
}
/* Eight bytes of storage for a number, which must live until the send. */
struct store_pg_int {
    uint8_t b[8];
};
static inline struct store_pg_param store_pg_int8(struct store_pg_int *at, int64_t v)
{
    be64_put(at->b, (uint64_t)v);
    return (struct store_pg_param){at->b, 8, false};
}

/*
 * Sends statement `which` as a transaction of its own and returns without waiting for the answer (it may wait for room in the
 * socket). Any failure drops the connection.
 */
NODISCARD enum err store_pg_send(struct store_pg *p, size_t which, const struct store_pg_param *v, int n,
                                 struct deadline by) RT_BLOCKS;
/*
 * Waits for the answer: it is durable as promised when this returns ERR_OK. ERR_EXISTS: a unique key is taken (definite).
 * ERR_CONFLICT: the server refused it (definite; store_pg_why). ERR_DISCONNECTED, ERR_TIMEOUT, ERR_CANCELED: unknown, and the
 * connection is dropped.
 */
NODISCARD enum err store_pg_finish(struct store_pg *p, struct deadline by, PGresult **out) RT_BLOCKS;
/* Both. */
NODISCARD enum err store_pg_call(struct store_pg *p, size_t which, const struct store_pg_param *v, int n,
                                 struct deadline by, PGresult **out) RT_BLOCKS;

/* Binary columns of a result. */
int64_t store_pg_get_int8(const PGresult *r, int row, int column);
struct bytes store_pg_get_bytes(const PGresult *r, int row, int column);
/* Rows touched by an INSERT or UPDATE. */
uint64_t store_pg_affected(PGresult *r);

/* Whether synchronous_standby_names waits for k of a list; *out_k its k. For tests. */
bool store_pg_sync_names_ok(const char *names, unsigned *out_k);

#endif
