/*
 * Who may come in: a token bucket for everybody, one per client, and counts of requests in flight.
 *
 * Buckets are kept as the one instant at which they would be full again (GCRA), so a bucket is one atomic word and no
 * timer refills it. Clients live in a table of 16,384 slots, eight to a set; the one whose bucket has been full the
 * longest gives way to a newcomer, never one with requests in flight. A set full of busy clients lets a newcomer in on the
 * limits for everybody alone.
 *
 * Threads     Any. Lock-free. Counts are exact; which client a slot belongs to may be confused for the length of one
 *             replacement.
 */
#ifndef RON_NET_ADMISSION_H
#define RON_NET_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct net_admission;
struct net_admission_slot;

struct net_admission_limits {
    double rate, rate_per_peer; /* per second; 0: none */
    size_t inflight, inflight_per_peer;
    double burst; /* of `rate`; 0: a second's worth */
};

struct net_admission_permit {
    struct net_admission *from; /* NULL: none is held */
    struct net_admission_slot *slot;
};

NODISCARD enum err net_admission_create(struct net_admission **out);
void net_admission_destroy(struct net_admission *a);

struct net_admission_refusal {
    unsigned wait_s;
    bool own; /* a limit of this client alone, not of all together */
};

/* One request of `peer` at now_ns: the rates (its own, then everybody's), then the counts in the same order. ERR_RATE_LIMITED
 * or ERR_BUSY with *out_why; else a permit that must be given back. */
NODISCARD enum err net_admission_enter(struct net_admission *a, const struct net_admission_limits *limits,
                                       const uint8_t peer[16], int64_t now_ns,
                                       struct net_admission_permit *out_permit,
                                       struct net_admission_refusal *out_why);
void net_admission_leave(struct net_admission_permit *permit); /* none held: nothing happens */
size_t net_admission_inflight(const struct net_admission *a);

#endif
