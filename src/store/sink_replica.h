/*
 * The replicated sink: a tee of the local journal and a stream in PostgreSQL (pg_stream.h). A group is durable when its frame
 * is on the local disk and its row on a quorum of servers. The row is sent first, the frame is written while it travels.
 *
 * Unknown     A connection that breaks under a commit says nothing about it. The sink connects again (to whoever is primary
 *             now), makes the lease row pass through the quorum, and looks whether the row is there; if not, it sends it again,
 *             which the key (stream, group) makes harmless. It goes on so until it knows, is fenced, or is cancelled.
 * Fenced      Another epoch, or another root before ours: ERR_FENCED, now and for ever. The local frame stays where it is; it
 *             was not acknowledged, and opening sets it aside (store_journal_set_aside).
 *
 * One half    When the local journal refuses a frame the row may be there all the same. The append fails, nothing is acknowledged, and
 *             the connection is given up, so that the row's answer is nobody's. A local journal that failed for good takes nothing
 *             more; one that was merely full (ERR_NO_SPACE) may be tried again: with the same group the row is found and counts,
 *             with another one under the same number the sink is fenced, and opening takes the row. The reverse, a frame without its
 *             row, ends in Unknown or Fenced. So an acknowledged group is in both places, and one that is in one place only was never
 *             acknowledged.
 *
 * Ownership   The sink owns the local sink and the connection it is given.
 * Threads     As any sink. store_sink_replica_epoch is called by the writer's thread, or while it rests.
 */
#ifndef RON_STORE_SINK_REPLICA_H
#define RON_STORE_SINK_REPLICA_H

#include "store/pg_stream.h"
#include "store/sink.h"

struct store_sink_replica_config {
    struct store_sink *local;
    struct store_pg *pg;
    const char *stream;
    int64_t timeout_ms; /* of one attempt: connect, insert, look */

    /* All may be NULL. */
    struct obs_hist *append_seconds; /* the row: from sending it to knowing */
    struct obs_counter *rows_total, *bytes_total, *resolved_total, *fenced_total;
    struct obs_gauge *connected;
};

NODISCARD enum err store_sink_replica(const struct store_sink_replica_config *cfg, struct store_sink **out);

/* The epoch to write with; 0 (as created): appending is ERR_FENCED. Never lower than before. */
void store_sink_replica_epoch(struct store_sink *s, uint64_t epoch);
/* Why it is fenced or waits; a sentence. Writer's thread. */
const char *store_sink_replica_why(const struct store_sink *s);
/* Whether a row is waiting for a server that does not answer. Any thread. */
bool store_sink_replica_stuck(const struct store_sink *s);
struct store_sink *store_sink_replica_local(struct store_sink *s);

#endif
