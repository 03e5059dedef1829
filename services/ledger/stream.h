/*
 * A subscriber to commits or roots, whatever it hangs on: an SSE response, an OAP request, a callback in this process. The
 * roots publisher owns it from submit to end and feeds it from the group table: history and live are one path.
 *
 * Threads     The publisher only, except `gone`, which the door sets when its client leaves.
 */
#ifndef RON_LEDGER_STREAM_H
#define RON_LEDGER_STREAM_H

#include "services/ledger/service.h"

struct ledger_stream_event {
    uint64_t seq_start, seq_end, tree_size, group_no, ledger_ms;
    struct sha256 root;
    const struct str *accounts; /* sorted, unique; only for commit streams */
    size_t n_accounts;
};

struct ledger_stream_ops {
    enum err (*send)(struct ledger_stream *st,
                     const struct ledger_stream_event *ev); /* ERR_BUSY: later; ERR_CLOSED: end it */
    enum err (*idle)(struct ledger_stream *st);             /* every 15 s without events */
    void (*lagged)(struct ledger_stream *st, uint64_t next_since);
    void (*end)(struct ledger_stream *st); /* the last call; frees */
    bool (*gone)(struct ledger_stream *st);
};

struct ledger_stream {
    const struct ledger_stream_ops *ops;
    bool commits;        /* with accounts; else roots */
    uint64_t since;      /* everything up to here was sent */
    uint64_t next_group; /* index of the next group row */
    bool caught_up;
    int64_t last_ns;
    struct ledger_stream *next;
};

#endif
