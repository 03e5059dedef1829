/*
 * A stream of commit groups kept in PostgreSQL: one row per group, and one lease row that says who may write.
 *
 *   ron_lease  stream, epoch, holder, url, expires (the database's clock), identity
 *   ron_frame  stream, group_no, epoch, first_seq, n_entries, prev_root, new_root, body
 *
 * Fencing     A row is inserted by a statement that also demands that the lease still carries the writer's epoch, and locks the
 *             lease row FOR SHARE until the commit is on the quorum. Raising the epoch updates that row: it waits for an insert
 *             under way, and an insert that comes later finds no row to insert. So when a take-over returns, the old writer
 *             has added its last row, and it can be seen.
 * Chaining    The same statement demands that the row before has our prev_root. A fork cannot be stored.
 * Barrier     Commits reach the standbys in order: when an update of the lease row is on the quorum, so is everything that was
 *             committed before it.
 *
 * Ownership   Callers own the connection; a stream's name is borrowed.
 * Threads     One at a time per connection.
 */
#ifndef RON_STORE_PG_STREAM_H
#define RON_STORE_PG_STREAM_H

#include "base/buf.h"
#include "store/frame.h"
#include "store/pg.h"

enum { STORE_LEASE_NAME_MAX = 64, STORE_LEASE_URL_MAX = 256, STORE_LEASE_IDENTITY_MAX = 1024 };

struct store_lease {
    uint64_t epoch; /* 0: nobody has written yet */
    char holder[STORE_LEASE_NAME_MAX + 1], url[STORE_LEASE_URL_MAX + 1];
    int64_t left_ms; /* by the database's clock; not positive: it has run out */
    char identity[STORE_LEASE_IDENTITY_MAX + 1];
};

/* A lease as one of many, in the order of their streams. */
typedef void store_pg_lease_fn(void *ctx, const char *stream, const struct store_lease *lease);

struct store_pg_head {
    uint64_t group_no, next_seq; /* 0 and 1 when there is none */
    uint64_t epoch;
    struct sha256 root;
};

/* A connection prepared for the calls below. */
NODISCARD enum err store_pg_stream_create(const char *dsn, const char *application, unsigned quorum,
                                          struct store_pg **out);

/* Makes the lease row with this identity unless there is one, and reads what is there. */
NODISCARD enum err store_pg_lease_found(struct store_pg *p, const char *stream, const char *identity,
                                        struct deadline by, struct store_lease *out) RT_BLOCKS;
NODISCARD enum err store_pg_lease_read(struct store_pg *p, const char *stream, struct deadline by,
                                       struct store_lease *out) RT_BLOCKS; /* ERR_NOT_FOUND */
/*
 * Raises the epoch when the lease has run out, is already this holder's, or `anyway`. When it returns ERR_OK every row of
 * earlier epochs that will ever exist can be read. ERR_LOCKED: somebody else holds it.
 */
NODISCARD enum err store_pg_lease_take(struct store_pg *p, const char *stream, const char *holder,
                                       const char *url, int64_t lease_ms, bool anyway, struct deadline by,
                                       uint64_t *out_epoch) RT_BLOCKS;
/* Every lease whose stream begins with `prefix`. */
NODISCARD enum err store_pg_leases(struct store_pg *p, const char *prefix, struct deadline by,
                                   store_pg_lease_fn *fn, void *ctx) RT_BLOCKS;
/* ERR_FENCED: another epoch. lease_ms 0 gives it back. Also the barrier: what was committed before is on the quorum now. */
NODISCARD enum err store_pg_lease_renew(struct store_pg *p, const char *stream, uint64_t epoch,
                                        int64_t lease_ms, struct deadline by) RT_BLOCKS;
/* The barrier alone; leaves the lease as it is. */
NODISCARD enum err store_pg_barrier(struct store_pg *p, const char *stream, uint64_t epoch,
                                    struct deadline by) RT_BLOCKS;

NODISCARD enum err store_pg_stream_head(struct store_pg *p, const char *stream, struct deadline by,
                                        struct store_pg_head *out) RT_BLOCKS;
/* The oldest row there is: its number, and what it continues. group_no 0 when there is none. */
NODISCARD enum err store_pg_stream_first(struct store_pg *p, const char *stream, struct deadline by,
                                         struct store_pg_head *out) RT_BLOCKS;
/* Takes rows up to and with `last_group` away, while the epoch is ours. The newest row must stay: the next one follows it. */
NODISCARD enum err store_pg_trim(struct store_pg *p, const char *stream, uint64_t epoch,
                                 uint64_t last_group, struct deadline by) RT_BLOCKS;
/* One row's root and epoch. ERR_NOT_FOUND. */
NODISCARD enum err store_pg_frame_root(struct store_pg *p, const char *stream, uint64_t group_no,
                                       struct deadline by, struct sha256 *out_root,
                                       uint64_t *out_epoch) RT_BLOCKS;

/*
 * How a journal's end compares with the stream. A writer has at most one group under way, so only the last frame of a journal can be
 * one that was never acknowledged; whoever finds more missing has met a PostgreSQL that lost a quorum's word, or another history.
 *
 *   SAME     our last group is there, with our root (or we have none): what follows it may be read
 *   ORPHAN   our last frame is not there, but the one before it is: it was never acknowledged. Also when the row is another epoch's:
 *            clients sent the same units again, and the next writer's group has the same root, but not the same time
 *   STALE    our last group is older than the oldest row: nothing can be compared, and nothing of ours is needed
 *   DIFFERS  more than that: out_group and out_root say where PostgreSQL ends
 */
enum store_pg_verdict { STORE_PG_SAME, STORE_PG_ORPHAN, STORE_PG_STALE, STORE_PG_DIFFERS };
struct store_pg_ours {
    uint64_t last_group; /* 0: nothing */
    struct sha256 root, prev_root;
    uint64_t epoch;    /* of the last group; 0: not compared */
    bool acknowledged; /* the last group surely was: it can be no orphan */
};
struct store_pg_compared {
    enum store_pg_verdict verdict;
    bool missing; /* DIFFERS: our last group is not there at all */
    uint64_t group_no;
    struct sha256 root; /* PostgreSQL's, to be named */
};
NODISCARD enum err store_pg_compare(struct store_pg *p, const char *stream,
                                    const struct store_pg_ours *ours, struct deadline by,
                                    struct store_pg_compared *out) RT_BLOCKS;

/*
 * Rows from `from_group` on, at most `max` of them and about 8 MiB, in order. f->payload is valid during the call. ERR_CORRUPT
 * when a row's bytes are not what was written. *out_n: how many fn was given; *out_rest: there may be more already.
 */
typedef enum err store_pg_frame_fn(void *ctx, const struct store_frame *f);
NODISCARD enum err store_pg_frames(struct store_pg *p, const char *stream, uint64_t from_group,
                                   unsigned max, struct deadline by, store_pg_frame_fn *fn, void *ctx,
                                   unsigned *out_n, bool *out_rest) RT_BLOCKS;

/* The body column: f's numbers that have no column of their own, and the payload, packed when that makes it smaller. */
NODISCARD enum err store_pg_body_encode(const struct store_frame *f, const struct bytes *parts,
                                        size_t n_parts, struct buf *scratch, struct buf *out);
/* f->ms, count2 and payload, which points into in or scratch. ERR_CORRUPT. */
NODISCARD enum err store_pg_body_decode(struct bytes in, struct buf *scratch, struct store_frame *f);

/* Sends the insert of f (with f->epoch) and returns; store_pg_append_finish says what became of it. */
NODISCARD enum err store_pg_append_send(struct store_pg *p, const char *stream, const struct store_frame *f,
                                        struct bytes body, struct deadline by) RT_BLOCKS;
/* ERR_OK: on the quorum. ERR_FENCED: not inserted, the epoch or the root before is not ours. Else as store_pg_finish. */
NODISCARD enum err store_pg_append_finish(struct store_pg *p, struct deadline by) RT_BLOCKS;

#endif
