/*
 * What happens in a service, told to whoever listens: server-sent events over one broadcast.
 *
 * Ownership   A stream belongs to the feed from svc_feed_follow until it ends; its request is answered by that.
 * Threads     svc_feed_tell from any thread, never waiting; one task of the service writes to the streams (svc_feed_tick).
 * Memory      A ring of the last events; at most eight streams. Costs nothing while nobody listens.
 * Order       Every listener sees the same order; who does not keep up loses the oldest and is told how many.
 */
#ifndef RON_SVC_FEED_H
#define RON_SVC_FEED_H

#include "net/http_server.h"
#include "obs/log.h"
#include "obs/metrics.h"

struct svc_feed;

struct svc_feed_spec {
    const char *service; /* events are called service.name */
    const char *queue;   /* the broadcast, as the topology names it */
    unsigned lock_rank;  /* of "streams", as the topology says */
    struct svc *svc;     /* listeners are operators of it, for as long as their tokens are good */
    struct obs_counter *lagged;
    struct obs_log *log;
};

NODISCARD enum err svc_feed_create(const struct svc_feed_spec *spec, struct svc_feed **out);
void svc_feed_destroy(struct svc_feed *f); /* NULL is fine; every stream has ended */

bool svc_feed_is_heard(const struct svc_feed *f); /* by anybody; NULL: no */
/* name: [a-z_.]; json: an object, copied. f may be NULL: nobody listens yet. */
void svc_feed_tell(struct svc_feed *f, const char *name, const char *json_fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Begins the stream. False: there are too many; the request is still the caller's. */
bool svc_feed_follow(struct svc_feed *f, struct net_req *rq);
/* Writes what came since the last call; ten times a second is meant. last: the streams end. */
void svc_feed_tick(struct svc_feed *f, bool last);

#endif
