/*
 * The loop's one iteration: wait for descriptors, run their functions, run posted messages, fire due
 * timers, run the batch-end functions, wake whom it has work for. The clock is read after the wait and again before every
 * further descriptor: one that waited behind others, or behind another thread on this core, did not begin when they did.
 */
#include "net/loop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "net/post.h"
#include "rt/task.h"

/* What an iteration read is answered at its end, so a long one makes the first of it wait. */
enum { LOOP_EVENTS = 64, BEAT_MS = 250, CORK_LOOPS = 16, ENDS = 64, HELD_EVENTS = 32 };

struct net_loop {
    int epoll_fd, wake_fd;
    const struct clock *clock;
    int64_t now_ns;
    _Atomic int64_t wall_ms; /* read in tasks too, where a handler goes on; it orders nothing */
    struct heap timers;
    struct net_batch *batches;
    bool ending; /* the batch-end functions of this iteration have begun to run */
    bool again;  /* and left something for the next */
    int held;    /* events since somebody was first named to be woken */
    struct net_fd wake;
    struct net_post post;
    atomic_bool stop;
    struct {
        void (*fn)(void *arg);
        void *arg;
    } ends[ENDS];
    size_t n_ends;
    int event_at, event_count;
    struct epoll_event events[LOOP_EVENTS];
};

static _Thread_local struct net_loop *current;

/* Messages of this thread that are held back, newest first, for up to CORK_LOOPS loops; others are posted at once. */
struct corked {
    struct net_loop *loop;
    struct net_msg *newest, *oldest;
};
static _Thread_local struct {
    unsigned depth;
    struct corked v[CORK_LOOPS];
} cork;

struct net_loop *net_loop_current(void)
{
    return current;
}

static bool timer_less(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, const struct net_timer, node)->at_ns <
           heap_entry(b, const struct net_timer, node)->at_ns;
}

/* Edge-triggered, so the counter need not be read: every write is a new event. */
static void woken(struct net_fd *nf, uint32_t events)
{
    (void)nf;
    (void)events;
}

static void loop_time(struct net_loop *loop)
{
    loop->now_ns = clock_mono_ns(loop->clock);
    atomic_store_explicit(&loop->wall_ms, clock_wall_ms(loop->clock), memory_order_relaxed);
}

enum err net_loop_create(const struct clock *clock, struct net_loop **out_loop)
{
    struct net_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return ERR_NO_MEMORY;
    loop->clock = clock ? clock : clock_real();
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum err e = loop->epoll_fd < 0 || loop->wake_fd < 0 ? err_from_errno(errno) : ERR_OK;
    if (e == ERR_OK)
        e = heap_init(&loop->timers, 64, SIZE_MAX / sizeof(void *) / 2, timer_less);
    if (e == ERR_OK) {
        loop->wake = (struct net_fd){.fd = loop->wake_fd, .fn = woken};
        e = net_loop_add(loop, &loop->wake, EPOLLIN | EPOLLET);
    }
    if (e != ERR_OK) {
        net_loop_destroy(loop);
        return e;
    }
    loop_time(loop);
    *out_loop = loop;
    return ERR_OK;
}

void net_loop_destroy(struct net_loop *loop)
{
    if (!loop)
        return;
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    heap_fini(&loop->timers);
    free(loop);
}

int64_t net_loop_now_ns(const struct net_loop *loop)
{
    return loop->now_ns;
}

int64_t net_loop_wall_ms(const struct net_loop *loop)
{
    return atomic_load_explicit(&loop->wall_ms, memory_order_relaxed);
}

const struct clock *net_loop_clock(const struct net_loop *loop)
{
    return loop->clock;
}

enum err net_loop_add(struct net_loop *loop, struct net_fd *nf, uint32_t epoll_events)
{
    struct epoll_event ev = {.events = epoll_events, .data.ptr = nf};
    CHECK(!nf->in_loop);
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, nf->fd, &ev) != 0)
        return err_from_errno(errno);
    nf->in_loop = 1;
    return ERR_OK;
}

void net_loop_change(struct net_loop *loop, struct net_fd *nf, uint32_t epoll_events)
{
    struct epoll_event ev = {.events = epoll_events, .data.ptr = nf};
    CHECK(nf->in_loop);
    CHECK(epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, nf->fd, &ev) == 0);
}

static void removed(struct net_loop *loop, struct net_fd *nf)
{
    nf->in_loop = 0;
    for (int i = loop->event_at + 1; i < loop->event_count; i++)
        if (loop->events[i].data.ptr == nf)
            loop->events[i].data.ptr = NULL;
}

void net_loop_remove(struct net_loop *loop, struct net_fd *nf)
{
    if (!nf->in_loop)
        return;
    CHECK(epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, nf->fd, NULL) == 0);
    removed(loop, nf);
}

void net_loop_remove_closed(struct net_loop *loop, struct net_fd *nf)
{
    if (!nf->in_loop)
        return;
    /* Closed: the kernel has taken it out. Its number may be somebody else's by now, who is not in this epoll. */
    CHECK(epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, nf->fd, NULL) == 0 || errno == EBADF || errno == ENOENT);
    removed(loop, nf);
}

void net_timer_set(struct net_loop *loop, struct net_timer *t, int64_t at_ns)
{
    t->at_ns = at_ns;
    if (net_timer_armed(t))
        heap_fix(&loop->timers, &t->node);
    else
        CHECK(heap_push(&loop->timers, &t->node) ==
              ERR_OK); /* a few bytes per connection, at its creation */
}

void net_timer_cancel(struct net_loop *loop, struct net_timer *t)
{
    if (net_timer_armed(t))
        heap_remove(&loop->timers, &t->node);
}

static void ring(struct net_loop *loop)
{
    uint64_t one = 1;
    ssize_t n = write(loop->wake_fd, &one, sizeof one);
    (void)n; /* fails only when the counter is full, and then the loop wakes anyway */
}

void net_loop_wake(struct net_loop *loop)
{
    if (net_post_rouse(&loop->post))
        ring(loop);
}

static void push(struct net_loop *loop, struct net_msg *newest, struct net_msg *oldest)
{
    if (net_post_push(&loop->post, newest, oldest))
        ring(loop);
}

void net_loop_post(struct net_loop *loop, struct net_msg *m)
{
    struct corked *k = NULL;
    for (size_t i = 0; cork.depth > 0 && i < CORK_LOOPS && !k; i++)
        if (cork.v[i].loop == loop || !cork.v[i].loop)
            k = &cork.v[i];
    if (!k) {
        push(loop, m, m);
        return;
    }
    if (!k->loop) {
        *k = (struct corked){loop, m, m};
        return;
    }
    m->next = k->newest;
    k->newest = m;
}

void net_loop_cork(void)
{
    cork.depth++;
}

void net_loop_uncork(void)
{
    CHECK(cork.depth > 0);
    if (--cork.depth > 0)
        return;
    for (size_t i = 0; i < CORK_LOOPS && cork.v[i].loop; i++) {
        struct corked k = cork.v[i];
        cork.v[i].loop = NULL;
        push(k.loop, k.newest, k.oldest);
    }
}

void net_loop_stop(struct net_loop *loop)
{
    atomic_store(&loop->stop, true);
    net_loop_wake(loop);
}

void net_loop_at_batch_end(struct net_loop *loop, struct net_batch *b)
{
    b->next = loop->batches;
    loop->batches = b;
}

void net_loop_forget_batch(struct net_loop *loop, struct net_batch *b)
{
    for (struct net_batch **at = &loop->batches; *at; at = &(*at)->next)
        if (*at == b) {
            *at = b->next;
            return;
        }
}

void net_loop_again(struct net_loop *loop)
{
    if (loop->ending)
        loop->again = true;
}

void net_loop_at_end(void (*fn)(void *arg), void *arg)
{
    struct net_loop *loop = current;
    for (size_t i = 0; loop && i < loop->n_ends; i++)
        if (loop->ends[i].fn == fn && loop->ends[i].arg == arg)
            return;
    if (!loop || loop->n_ends == ENDS) {
        fn(arg);
        return;
    }
    loop->ends[loop->n_ends].fn = fn;
    loop->ends[loop->n_ends++].arg = arg;
}

static void run_ends(struct net_loop *loop)
{
    size_t n = loop->n_ends;
    loop->n_ends = 0;
    for (size_t i = 0; i < n; i++)
        loop->ends[i].fn(loop->ends[i].arg);
}

/*
 * Whoever is woken runs against us where there are fewer cores than tasks. So as long as descriptors are ready, they are read
 * first; but not many, so that a flush can begin while the rest is read.
 */
static void end_or_hold(struct net_loop *loop, int came)
{
    loop->held += loop->n_ends > 0 ? came : 0;
    if (came > 0 && loop->held < HELD_EVENTS)
        return;
    loop->held = 0;
    run_ends(loop);
}

void net_loop_forget(struct net_loop *loop, struct net_msg *m)
{
    for (struct net_msg *at = net_post_take(&loop->post), *next; at; at = next) {
        next = at->next;
        if (at != m)
            push(loop, at, at);
    }
}

bool net_loop_has_mail(const struct net_loop *loop)
{
    return net_post_has_some(&loop->post);
}

static int wait_for(struct net_loop *loop, int wait_ms)
{
    if (loop->again || loop->n_ends > 0) { /* somebody waits to be woken: only look */
        loop->again = false;
        return 0;
    }
    struct heap_node *top = heap_top(&loop->timers);
    if (top) {
        int64_t left = heap_entry(top, struct net_timer, node)->at_ns - clock_mono_ns(loop->clock);
        int64_t ms = left <= 0 ? 0 : (left + 999999) / 1000000;
        if (wait_ms < 0 || ms < wait_ms)
            wait_ms = ms > 60000 ? 60000 : (int)ms;
    }
    return wait_ms;
}

static void run_messages(struct net_loop *loop)
{
    for (struct net_msg *m = net_post_take(&loop->post), *next; m; m = next) {
        next = m->next; /* the function may post it again, or free it */
        m->fn(m);
    }
}

static void run_timers(struct net_loop *loop)
{
    for (struct heap_node *top = heap_top(&loop->timers); top; top = heap_top(&loop->timers)) {
        struct net_timer *t = heap_entry(top, struct net_timer, node);
        if (t->at_ns > loop->now_ns)
            return;
        heap_remove(&loop->timers, top);
        t->fn(t);
    }
}

void net_loop_once(struct net_loop *loop, int wait_ms)
{
    struct net_loop *outer = current;
    current = loop;
    wait_ms = wait_for(loop, wait_ms);
    if (wait_ms != 0 && (!net_post_asleep(&loop->post) || atomic_load(&loop->stop)))
        wait_ms = 0;
    int n = epoll_wait(loop->epoll_fd, loop->events, LOOP_EVENTS, wait_ms);
    net_post_awake(&loop->post);
    CHECK(n >= 0 || errno == EINTR);
    loop_time(loop);
    loop->event_count = n > 0 ? n : 0;
    for (loop->event_at = 0; loop->event_at < loop->event_count; loop->event_at++) {
        struct epoll_event *ev = &loop->events[loop->event_at];
        struct net_fd *nf = ev->data.ptr;
        if (!nf)
            continue;
        if (loop->event_at > 0)
            loop->now_ns = clock_mono_ns(loop->clock);
        nf->fn(nf, ev->events);
    }
    int came = loop->event_count;
    loop->event_count = 0;
    run_messages(loop);
    run_timers(loop);
    loop->ending = true;
    for (struct net_batch *b = loop->batches; b; b = b->next)
        b->fn(b);
    end_or_hold(loop, came);
    loop->ending = false;
    current = outer;
}

enum err net_loop_run(struct net_loop *loop, struct rt_task *self)
{
    enum err e = ERR_OK;
    while (!atomic_load_explicit(&loop->stop, memory_order_acquire)) {
        if (self && rt_task_stopping(self)) {
            e = rt_task_canceled(self) ? ERR_CANCELED : ERR_OK;
            break;
        }
        net_loop_once(loop, self ? BEAT_MS : -1);
        if (self)
            rt_task_beat(self);
    }
    run_ends(loop); /* nobody sleeps on what came last */
    return e;
}
