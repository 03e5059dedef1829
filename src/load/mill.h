/*
 * The mill: slots over connections over addresses.
 *
 *   slot         one request after the other; `inflight` of them share a connection
 *   connection   goes to the address that all use at the moment; one that is cut, silent for timeout_ms, or told to go elsewhere is
 *                opened again, at the next address if nobody has turned there yet
 *   rate 0       closed loop: a slot asks again when it is answered
 *   rate r       open loop: r requests a second are due whatever comes back; one that finds no free slot waits, and its wait counts
 *   awake        between answers it looks again and never sleeps: whoever sends to a sleeper pays for waking it, and is what is measured
 *
 * It ends when `ms` are over, when `count_max` things were asked for, or when the wire has nothing more to ask; then what is under
 * way is waited for, for patience_ms at most. Latency is from the first time a request was asked (or due) to its last answer,
 * repetitions and changes of address included.
 *
 * Ownership   The spec and what it points to is borrowed until load_mill_run returns.
 * Threads     load_mill_run in one thread; `stop` may be set by another, or by a signal.
 * Memory      Two growing buffers a connection, bounded by LOAD_MILL_BYTES_MAX each.
 */
#ifndef RON_LOAD_MILL_H
#define RON_LOAD_MILL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "load/addr.h"
#include "load/times.h"

enum { LOAD_MILL_CONNS_MAX = 1024, LOAD_MILL_INFLIGHT_MAX = 1024, LOAD_MILL_BYTES_MAX = 64 << 20 };

/* One whole answer. */
struct load_answer {
    size_t used; /* bytes of the stream */
    int status;  /* as in HTTP, or whatever the wire makes of it */
    struct bytes body;
    uint64_t slot; /* of wires that say by_slot */
    bool noise;    /* belongs to no request: skip it */
};

enum load_verdict {
    LOAD_DONE,      /* that was it */
    LOAD_FAILED,    /* refused for good; counted, not repeated */
    LOAD_STEP,      /* on to the next step of the same thing, at once */
    LOAD_MORE,      /* more answers to the same request will come */
    LOAD_AGAIN,     /* not now: the same request again, a little later */
    LOAD_ELSEWHERE, /* not here: the same request again, at another address */
};

struct load_wire {
    /* First bytes on a new connection; may be NULL. */
    void (*greet)(void *app, unsigned conn, struct buf *out);
    /* Appends the request of `slot`; fresh: its next one, else the one under way. How many things it asks for; 0: nothing more. */
    uint64_t (*ask)(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out);
    /* ERR_EMPTY: not whole yet; ERR_SYNTAX: the connection is of no use any more. */
    enum err (*parse)(struct bytes in, struct load_answer *out);
    enum load_verdict (*answered)(void *app, unsigned slot, const struct load_answer *a);
    bool by_slot; /* answers say whose they are; else they come in the order of the requests */
};

struct load_mill_spec {
    const struct load_wire *wire;
    void *app;
    const struct load_addr *addrs;
    size_t n_addrs, first_addr;
    unsigned conns, inflight;
    double rate;
    bool awake; /* on a core of its own */
    int64_t ms;
    uint64_t count_max;              /* 0: no bound but the time */
    int64_t timeout_ms, patience_ms; /* 0: 10 s each */
    atomic_bool *stop;               /* may be NULL */
    /* Once a second, with what was answered since the last time; may be NULL. */
    void (*each_second)(void *app, double at_s, uint64_t done, const struct load_addr *where);
};

struct load_mill_result {
    double seconds;          /* the load itself, without the wait at the end */
    uint64_t requests, done; /* answered in that time: requests, and things in them */
    uint64_t done_in_all, failed, again;
    uint64_t cut;   /* connections lost with something under way, or silent for too long */
    uint64_t moved; /* how often another address answered than the time before */
    uint64_t unanswered;
    size_t last_addr;           /* who answered last */
    int64_t idle_ns;            /* awake: in how much of `seconds` nothing had come */
    int64_t longest_gap_ns;     /* longest time without an answer that counts */
    int64_t longest_silence_ns; /* the same less what we stood in line for a core; 0 without a rate */
    struct load_times times;
};

/* ERR_REFUSED: nobody could be reached at any address from the beginning. ERR_NO_MEMORY. */
NODISCARD enum err load_mill_run(const struct load_mill_spec *spec, struct load_mill_result *out);

int64_t load_now_ns(void);

#endif
