#include "svc/feed.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "rt/bcast.h"
#include "svc/svc.h"

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
    struct svc_hearing hearing;
    struct event *held; /* taken off the bus, and there was no room for it; NULL: none */
    uint64_t lost;      /* events that passed by, and it was not told yet */
    unsigned quiet;     /* ticks since anything was written */
};

struct svc_feed {
    struct svc_feed_spec spec;
    struct rt_bcast *bus;
    struct rt_lock lock; /* guards the rest */
    struct stream *streams;
    size_t n;
    bool ended; /* the last tick is over: nobody would write to a stream, nor end it */
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

enum err svc_feed_create(const struct svc_feed_spec *spec, struct svc_feed **out)
{
    struct svc_feed *f = calloc(1, sizeof *f);
    if (!f)
        return ERR_NO_MEMORY;
    f->spec = *spec;
    rt_lock_init(&f->lock, "streams", spec->lock_rank);
    f->bus = rt_bcast_create(&(struct rt_bcast_spec){
        .name = spec->queue, .capacity = CAPACITY, .ref = event_ref, .unref = event_unref});
    if (!f->bus) {
        svc_feed_destroy(f);
        return ERR_NO_MEMORY;
    }
    *out = f;
    return ERR_OK;
}

void svc_feed_destroy(struct svc_feed *f)
{
    if (!f)
        return;
    if (f->bus)
        rt_bcast_destroy(f->bus);
    rt_lock_fini(&f->lock);
    free(f);
}

bool svc_feed_is_heard(const struct svc_feed *f)
{
    return f && rt_bcast_stats(f->bus).subscribers > 0;
}

void svc_feed_tell(struct svc_feed *f, const char *name, const char *json_fmt, ...)
{
    if (!svc_feed_is_heard(f))
        return;
    struct event *item = malloc(sizeof *item + EVENT_MAX);
    if (!item)
        return;
    int n = snprintf(item->text, EVENT_MAX, "event: %s.%s\ndata: ", f->spec.service, name);
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
    rt_bcast_publish(f->bus, item);
}

static void stream_end(struct stream *s)
{
    rt_bcast_unsubscribe(s->sub);
    if (s->held)
        event_unref(s->held);
    net_stream_end(s->rq);
    free(s);
}

bool svc_feed_follow(struct svc_feed *f, struct net_req *rq)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    rt_lock_take(&f->lock);
    bool room = f->n < STREAMS_MAX;
    if (room)
        f->n++;
    rt_lock_release(&f->lock);
    s->rq = rq;
    s->hearing = svc_hearing_begin(f->spec.svc, net_req_peer(rq), svc_bearer(rq));
    s->sub = room ? rt_bcast_subscribe(f->bus, NULL, NULL) : NULL;
    if (!s->sub) {
        free(s);
        if (room) {
            rt_lock_take(&f->lock);
            f->n--;
            rt_lock_release(&f->lock);
        }
        return false;
    }
    net_stream_begin(rq, 200, &(struct net_headers){.type = "text/event-stream"});
    rt_lock_take(&f->lock);
    bool late = f->ended;
    if (late) {
        f->n--;
    } else {
        s->next = f->streams;
        f->streams = s;
    }
    rt_lock_release(&f->lock);
    if (late) /* it came in while the drain began */
        stream_end(s);
    return true;
}

static bool tell(struct stream *s, struct bytes text)
{
    s->quiet = 0;
    return net_stream_write(s->rq, text) != ERR_BUSY;
}

/* The event in hand, which is older than any gap. False: there is no room. */
static bool deliver(struct stream *s)
{
    struct event *v = s->held;
    if (v && !tell(s, bytes_of(v->text, v->n)))
        return false;
    s->held = NULL;
    if (v)
        event_unref(v);
    return true;
}

static bool tell_lost(const struct svc_feed *f, struct stream *s)
{
    char text[96];
    int n = snprintf(text, sizeof text, "event: %s.lagged\ndata: {\"lost\":%llu}\n\n", f->spec.service,
                     (unsigned long long)s->lost);
    if (!tell(s, bytes_of(text, (size_t)n)))
        return false;
    s->lost = 0;
    return true;
}

/* What there is for one listener, as far as its buffer has room: the rest waits on the bus, where the oldest make way for
 * new ones. The number of events it lost. */
static uint64_t pump(const struct svc_feed *f, struct stream *s)
{
    rt_bcast_note_lost(s->sub); /* also while nothing can be taken */
    uint64_t lost = rt_bcast_take_lost(s->sub);
    s->lost += lost;
    while (deliver(s) && !(s->lost && !tell_lost(f, s))) {
        void *item;
        enum err err = rt_bcast_try_recv(s->sub, &item);
        if (err == ERR_LAGGED) {
            uint64_t gone = rt_bcast_take_lost(s->sub);
            lost += gone;
            s->lost += gone;
        } else if (err == ERR_OK)
            s->held = item;
        else
            break;
    }
    return lost;
}

/* False: its token has ended, and it was told. */
static bool goes_on(const struct svc_feed *f, struct stream *s)
{
    char text[96];
    if (svc_hearing_goes_on(f->spec.svc, &s->hearing, "admin"))
        return true;
    int n = snprintf(text, sizeof text, "event: %s.end\ndata: {\"code\":\"unauthenticated\"}\n\n",
                     f->spec.service);
    (void)tell(s, bytes_of(text, (size_t)n)); /* a client that does not read does not miss it */
    return false;
}

/* The list is this task's while it writes: only it removes. */
void svc_feed_tick(struct svc_feed *f, bool last)
{
    struct stream *keep = NULL;
    uint64_t lost = 0;
    size_t gone = 0;
    rt_lock_take(&f->lock);
    f->ended = last;
    struct stream *all = f->streams;
    f->streams = NULL;
    rt_lock_release(&f->lock);
    for (struct stream *s = all, *next; s; s = next) {
        next = s->next;
        s->quiet++;
        bool on = goes_on(f, s);
        if (on)
            lost += pump(f, s);
        if (on && s->quiet > BEAT_TICKS)
            (void)tell(s, bytes_of(":\n\n", 3)); /* finds out who has left */
        if (last || !on || net_req_gone(s->rq)) {
            stream_end(s);
            gone++;
            continue;
        }
        s->next = keep;
        keep = s;
    }
    rt_lock_take(&f->lock);
    while (keep) {
        struct stream *next = keep->next;
        keep->next = f->streams;
        f->streams = keep;
        keep = next;
    }
    f->n -= gone;
    rt_lock_release(&f->lock);
    if (lost) {
        obs_counter_add(f->spec.lagged, lost);
        obs_log(f->spec.log, OBS_WARN, "events_lagged", OBS_U64("lost", lost), OBS_END);
    }
}
