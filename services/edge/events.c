#include "services/edge/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "rt/bcast.h"

enum { CAPACITY = 1024, STREAMS_MAX = 8, EVENT_MAX = 1024, BEAT_TICKS = 50 };

struct event {
    _Atomic uint32_t refs;
    size_t n;
    char text[];
};

struct stream {
    struct stream *next;
    struct net_req *rq;
    struct rt_bcast_sub *sub;
    unsigned quiet; /* ticks since anything was written */
};

struct edge_events {
    struct rt_bcast *bus;
    struct rt_lock lock; /* guards streams and n */
    struct stream *streams;
    size_t n;
};

static void event_ref(void *item)
{
    atomic_fetch_add_explicit(&((struct event *)item)->refs, 1, memory_order_relaxed);
}

static void event_unref(void *item)
{
    struct event *v = item;
    if (atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1)
        free(v);
}

enum err edge_events_create(struct edge *e, struct edge_events **out)
{
    struct edge_events *v = calloc(1, sizeof *v);
    (void)e;
    if (!v)
        return ERR_NO_MEMORY;
    rt_lock_init(&v->lock, "streams", 31);
    v->bus = rt_bcast_create(&(struct rt_bcast_spec){
        .name = "events_tx", .capacity = CAPACITY, .ref = event_ref, .unref = event_unref});
    if (!v->bus) {
        edge_events_destroy(v);
        return ERR_NO_MEMORY;
    }
    *out = v;
    return ERR_OK;
}

void edge_events_destroy(struct edge_events *v)
{
    if (!v)
        return;
    if (v->bus)
        rt_bcast_destroy(v->bus);
    rt_lock_fini(&v->lock);
    free(v);
}

void edge_event(struct edge *e, const char *name, const char *json_fmt, ...)
{
    struct edge_events *v = e->events;
    if (!v || rt_bcast_stats(v->bus).subscribers == 0)
        return;
    struct event *item = malloc(sizeof *item + EVENT_MAX);
    if (!item)
        return;
    int n = snprintf(item->text, EVENT_MAX, "event: edge.%s\ndata: ", name);
    va_list args;
    va_start(args, json_fmt);
    int more = vsnprintf(item->text + n, EVENT_MAX - (size_t)n - 3, json_fmt, args);
    va_end(args);
    if (more < 0 || more >= EVENT_MAX - n - 3) {
        free(item); /* half an object is none */
        return;
    }
    n += more;
    item->text[n] = item->text[n + 1] = '\n';
    item->n = (size_t)n + 2;
    atomic_init(&item->refs, 1);
    rt_bcast_publish(v->bus, item);
}

bool edge_events_follow(struct edge *e, struct net_req *rq)
{
    struct edge_events *v = e->events;
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    rt_lock_take(&v->lock);
    bool room = v->n < STREAMS_MAX;
    if (room)
        v->n++;
    rt_lock_release(&v->lock);
    s->rq = rq;
    s->sub = room ? rt_bcast_subscribe(v->bus, NULL, NULL) : NULL;
    if (!s->sub) {
        free(s);
        if (room) {
            rt_lock_take(&v->lock);
            v->n--;
            rt_lock_release(&v->lock);
        }
        return false;
    }
    net_stream_begin(rq, 200, &(struct net_headers){.type = "text/event-stream"});
    rt_lock_take(&v->lock);
    s->next = v->streams;
    v->streams = s;
    rt_lock_release(&v->lock);
    return true;
}

static bool tell(struct stream *s, struct bytes text)
{
    s->quiet = 0;
    return net_stream_write(s->rq, text) != ERR_BUSY;
}

/* Everything there is for one listener; the number of events it lost. */
static uint64_t pump(struct stream *s)
{
    uint64_t lost = 0;
    for (;;) {
        void *item;
        enum err err = rt_bcast_try_recv(s->sub, &item);
        if (err == ERR_LAGGED) {
            char text[64];
            uint64_t gone = rt_bcast_take_lost(s->sub);
            int n = snprintf(text, sizeof text, "event: edge.lagged\ndata: {\"lost\":%llu}\n\n",
                             (unsigned long long)gone);
            lost += gone;
            if (!tell(s, bytes_of(text, (size_t)n)))
                return lost;
            continue;
        }
        if (err != ERR_OK)
            return lost;
        struct event *v = item;
        lost += !tell(s, bytes_of(v->text, v->n)); /* it reads too slowly for its buffer */
        event_unref(v);
    }
}

/* The list is this task's while it writes: only it removes. */
void edge_events_tick(struct edge *e, bool last)
{
    struct edge_events *v = e->events;
    struct stream *keep = NULL;
    uint64_t lost = 0;
    size_t gone = 0;
    rt_lock_take(&v->lock);
    struct stream *all = v->streams;
    v->streams = NULL;
    rt_lock_release(&v->lock);
    for (struct stream *s = all, *next; s; s = next) {
        next = s->next;
        s->quiet++;
        lost += pump(s);
        if (s->quiet > BEAT_TICKS)
            (void)tell(s, bytes_of(":\n\n", 3)); /* finds out who has left */
        if (last || net_req_gone(s->rq)) {
            rt_bcast_unsubscribe(s->sub);
            net_stream_end(s->rq);
            free(s);
            gone++;
            continue;
        }
        s->next = keep;
        keep = s;
    }
    rt_lock_take(&v->lock);
    while (keep) {
        struct stream *next = keep->next;
        keep->next = v->streams;
        v->streams = keep;
        keep = next;
    }
    v->n -= gone;
    rt_lock_release(&v->lock);
    if (lost) {
        obs_counter_add(obs_counter(e->m[EDGE_M_bus_lagged]), lost);
        obs_log(svc_log(e->svc), OBS_WARN, "events_lagged", OBS_U64("lost", lost), OBS_END);
    }
}
