/*
 * Live fills: one per name at a time, however many ask for it.
 *
 * Ownership   The table owns its fills; a fill in the queue or with a worker is `running` and only that side frees it (through
 *             edge_fill_end). A waiter lies in its request's arena and is answered exactly once: by the end of the fill, by
 *             `respond-async`, or by shutdown. Deadlines of requests are the server's: it answers 503 itself.
 * Threads     Everything from any thread; `fills` guards the table and every member of a fill that is marked (t).
 */
#ifndef RON_EDGE_FILLS_H
#define RON_EDGE_FILLS_H

#include "obs/span.h"
#include "rt/breaker.h"
#include "services/edge/core/fill_state.h"
#include "services/edge/core/retry.h"
#include "services/edge/serve.h"
#include "services/edge/store.h"

enum { EDGE_NEGATIVE_MAX = 4096, EDGE_ORIGINS_MAX = 128, EDGE_RECENT = 64 };

/* How a fill ended, or why a request cannot be served. */
struct edge_outcome {
    enum err err;
    enum edge_reason reason;
    const char *detail;
    unsigned retry_s;
    bool down;    /* the origin did not answer, or said that it cannot: what a breaker counts */
    bool unasked; /* nor did anybody ask it: says nothing about it */
};

struct edge_waiter {
    struct edge_waiter *next;
    struct net_req *rq;
    int64_t async_at_ns; /* answer 202 then; 0: never */
    const char *name;    /* what a 202 calls it, in the request's arena; NULL: nothing */
};

struct edge_fill {
    char *name; /* as in the store, with the query where the route keeps it */
    struct str path, query;
    const struct edge_route *route;
    struct rt_breaker *breaker;
    enum edge_fill_state state;  /* (t) */
    struct edge_waiter *waiters; /* (t) */
    unsigned waiting;            /* (t) */
    bool promised;               /* (t) a 202 was given out */
    bool given_up;               /* (t) it is not in the table any more */
    bool handed_back;
    bool written; /* its object was: hashed a moment ago, it need not be again */
    bool has_stale;
    bool retagged;         /* the origin speaks of another version than of the one we have */
    struct edge_hit stale; /* what the store has, when it is out of date */
    bool has_digest;
    struct sha256 digest; /* from the manifest, or what was asked for */
    bool nameless;        /* only the object is wanted; name is its key in the table */
    int64_t queued_ns;
    unsigned tries;
    _Atomic uint64_t bytes;
    char corr_id[130];
    struct obs_span span;
};

struct edge_recent {
    char name[128], origin[64];
    const char *result, *reason;
    uint64_t bytes;
    unsigned tries;
    int64_t ms, at_ms;
};

struct edge_negative;

struct edge_origin_state {
    char label[EDGE_LABEL];
    struct rt_breaker breaker;
    struct obs_counter *attempts, *success, *joined, *bytes;
    struct obs_gauge *open;
    enum rt_breaker_state told; /* what the log said last; the metrics task's */
    struct obs_hist *latency;
};

struct edge_fills {
    struct edge *e;
    struct rt_lock lock;
    struct map by_name;                     /* (t) -> struct edge_fill */
    struct map negatives;                   /* (t) -> struct edge_negative */
    struct edge_recent recent[EDGE_RECENT]; /* (t) */
    size_t recent_n;
    struct edge_origin_state *origins; /* (t) grows only; entries never move */
    size_t origins_n;
    double per_s; /* (t) fills ended a second, smoothed */
    int64_t ended_ns;
};

NODISCARD enum err edge_fills_create(struct edge *e, struct edge_fills **out);
void edge_fills_configure(struct edge *e); /* after the configuration was read again */
void edge_fills_destroy(struct edge_fills *f);

/* From a handler: joins, starts, or answers. stale: what to serve when the origin fails, or NULL. */
void edge_fill_ask(struct edge *e, struct net_req *rq, struct str name, struct str path, struct str query,
                   const struct edge_route *route, const struct edge_hit *stale);

/* The same for an object asked for by its digest, which only peers can have. */
void edge_fill_ask_object(struct edge *e, struct net_req *rq, const struct sha256 *digest);

/* From a worker. */
struct rt_breaker *edge_fill_breaker(struct edge *e, const char *label); /* of an origin or peer */
struct edge_origin_state *edge_fill_origin(struct edge *e, const struct edge_fill *f);
void edge_fill_to(struct edge *e, struct edge_fill *f, enum edge_fill_state state);
bool edge_fill_wanted(struct edge *e, struct edge_fill *f); /* somebody waits, or was promised an answer */
/* True: nobody does, and it is out of the table: whoever comes now begins another. It has only to be ended. */
bool edge_fill_give_up(struct edge *e, struct edge_fill *f);
/* Ends it: out of the table, breaker told, negative remembered, everybody answered, freed. */
void edge_fill_end(struct edge *e, struct edge_fill *f, const struct edge_outcome *o) RT_BLOCKS;
/* Back into the queue after its worker failed; a second time, or when it is full, it ends with 503. */
void edge_fill_hand_back(struct edge *e, struct edge_fill *f) RT_BLOCKS;
/* 202 to those who asked for it and waited long enough. */
void edge_fills_tick(struct edge *e);
unsigned edge_fills_retry_s(struct edge *e);

/* Serves what the store has under this name; a reader opens it if nobody did before. */
void edge_serve_hit(struct edge *e, struct net_req *rq, const struct edge_hit *hit, enum edge_from from,
                    bool may_block) RT_UNCHECKED;

#endif
