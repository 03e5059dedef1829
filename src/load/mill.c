#include "load/mill.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

enum { READ_BYTES = 1 << 18, EVENTS = 256, NONE = -1 };
static const int64_t ms_ns = 1000000, second_ns = 1000000000;
static const int64_t again_ns = 5000000, reopen_ns = 50000000;

enum slot_state {
    IDLE,
    WAITING,
    LATER,
    SPENT
}; /* LATER: to be asked again at not_before_ns; SPENT: nothing more to ask */

struct slot {
    enum slot_state state;
    int next; /* of those that wait on the same connection, oldest first */
    int64_t since_ns, not_before_ns;
    uint64_t count;
};

struct conn {
    int fd; /* -1: to be opened at not_before_ns */
    size_t addr;
    bool connecting, wants_out, asked; /* asked: not the first request any more */
    int first, last;                   /* slots that wait */
    int64_t heard_ns, not_before_ns;
    struct buf in, out;
    size_t out_at;
};

struct mill {
    const struct load_mill_spec *spec;
    struct load_mill_result *r;
    struct conn *conns;
    struct slot *slots;
    unsigned n_slots, n_later, n_closed, n_waiting, n_spent;
    size_t addr;          /* where to go at the moment */
    size_t answered;      /* who answered last */
    uint64_t turned;      /* how often another address was tried */
    int epoll, schedstat; /* schedstat: of this thread; -1 without a rate */
    int64_t stood_ns, last_done_stood_ns;
    bool ending, dry, reached;
    int64_t now_ns, began_ns, last_done_ns, due_ns;
    uint64_t asked;
    unsigned turn; /* where the search for a free slot begins */
};

int64_t load_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * second_ns + t.tv_nsec;
}

static unsigned conn_of(const struct mill *m, unsigned slot)
{
    return slot % m->spec->conns;
}

/* ---- who waits on a connection, in the order of asking ---- */

static void line_up(struct mill *m, struct conn *c, unsigned slot)
{
    struct slot *s = &m->slots[slot];
    s->state = WAITING;
    s->next = NONE;
    if (c->first == NONE) {
        c->first = (int)slot;
        c->heard_ns = m->now_ns;
    } else {
        m->slots[c->last].next = (int)slot;
    }
    c->last = (int)slot;
    m->n_waiting++;
}

static void step_out(struct mill *m, struct conn *c, unsigned slot)
{
    int before = NONE;
    for (int i = c->first; i != (int)slot; i = m->slots[i].next) {
        CHECK(i != NONE);
        before = i;
    }
    int next = m->slots[slot].next;
    if (before == NONE)
        c->first = next;
    else
        m->slots[before].next = next;
    if (c->last == (int)slot)
        c->last = before;
    m->n_waiting--;
}

static void ask_later(struct mill *m, unsigned slot, int64_t at_ns)
{
    m->slots[slot].state = LATER;
    m->slots[slot].not_before_ns = at_ns;
    m->n_later++;
}

/* ---- connections ---- */

static void watch(struct mill *m, struct conn *c, int how)
{
    bool out = c->connecting || c->out_at < c->out.n;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0U), .data.ptr = c};
    if (how == EPOLL_CTL_ADD || out != c->wants_out)
        CHECK(epoll_ctl(m->epoll, how, c->fd, &e) == 0);
    c->wants_out = out;
}

/* Everybody who waits asks again; the next attempt is a little later, and elsewhere if there is an elsewhere. */
static void conn_lose(struct mill *m, struct conn *c)
{
    if (c->first != NONE)
        m->r->cut++;
    for (int i = c->first; i != NONE;) {
        int next = m->slots[i].next;
        m->n_waiting--;
        ask_later(m, (unsigned)i, m->now_ns);
        i = next;
    }
    c->first = c->last = NONE;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    m->n_closed++;
    if (c->addr == m->addr && m->spec->n_addrs > 1) {
        m->addr = (m->addr + 1) % m->spec->n_addrs;
        m->turned++;
    }
    c->not_before_ns = m->now_ns + reopen_ns;
}

static void conn_greet(struct mill *m, struct conn *c)
{
    c->connecting = false;
    c->heard_ns = m->now_ns;
    m->reached = true;
    if (m->spec->wire->greet != NULL)
        m->spec->wire->greet(m->spec->app, (unsigned)(c - m->conns), &c->out);
}

static void conn_open(struct mill *m, struct conn *c)
{
    const struct load_addr *a = &m->spec->addrs[m->addr];
    int one = 1;
    buf_reset(&c->in);
    buf_reset(&c->out);
    c->out_at = 0;
    c->asked = false;
    c->addr = m->addr;
    c->heard_ns = m->now_ns;
    m->n_closed--;
    c->fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(c->fd >= 0);
    if (a->at.ss_family != AF_UNIX)
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->connecting = true;
    if (connect(c->fd, (const struct sockaddr *)&a->at, a->at_n) == 0)
        conn_greet(m, c);
    else if (errno != EINPROGRESS) {
        conn_lose(m, c);
        return;
    }
    watch(m, c, EPOLL_CTL_ADD);
}

static void conn_flush(struct mill *m, struct conn *c)
{
    while (c->fd >= 0 && !c->connecting && c->out_at < c->out.n) {
        ssize_t n = send(c->fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            conn_lose(m, c);
            return;
        }
        c->out_at += (size_t)n;
    }
    if (c->out_at == c->out.n) {
        buf_reset(&c->out);
        c->out_at = 0;
    }
    if (c->fd >= 0)
        watch(m, c, EPOLL_CTL_MOD);
}

/* ---- asking ---- */

/* False: there is nothing more to ask, or nobody to ask. The bytes leave with the next flush of the connection. */
static bool put_request(struct mill *m, unsigned slot, bool fresh)
{
    struct conn *c = &m->conns[conn_of(m, slot)];
    struct slot *s = &m->slots[slot];
    if (c->fd < 0 || c->connecting)
        return false;
    uint64_t n = m->spec->wire->ask(m->spec->app, slot, fresh, !c->asked, &c->out);
    if (n == 0)
        return false;
    CHECK(c->out.err == ERR_OK);
    c->asked = true;
    s->count = n;
    line_up(m, c, slot);
    return true;
}

static bool may_begin(const struct mill *m)
{
    return !m->ending && !m->dry;
}

static bool begin(struct mill *m, unsigned slot, int64_t since_ns)
{
    struct slot *s = &m->slots[slot];
    const struct conn *c = &m->conns[conn_of(m, slot)];
    if (c->fd < 0 || c->connecting)
        return false;
    s->since_ns = since_ns;
    if (!put_request(m, slot, true)) {
        s->state = SPENT;
        m->n_spent++;
        m->dry = m->n_spent == m->n_slots;
        return false;
    }
    m->asked += s->count;
    if (m->spec->count_max > 0 && m->asked >= m->spec->count_max)
        m->dry = true;
    return true;
}

/* Closed loop: every free slot of a connection asks. */
static void fill(struct mill *m, unsigned conn)
{
    if (m->spec->rate == 0)
        for (unsigned s = conn; s < m->n_slots && may_begin(m); s += m->spec->conns)
            if (m->slots[s].state == IDLE)
                (void)begin(m, s, m->now_ns);
    conn_flush(m, &m->conns[conn]);
}

/* Open loop: what is due finds a free slot, or waits for one. */
static void arrivals(struct mill *m)
{
    int64_t every_ns = (int64_t)((double)second_ns / m->spec->rate);
    for (unsigned tried = 0; m->due_ns <= m->now_ns && tried < m->n_slots && may_begin(m); tried++) {
        unsigned slot = m->turn;
        m->turn = (m->turn + 1) % m->n_slots;
        if (m->slots[slot].state != IDLE || !begin(m, slot, m->due_ns))
            continue;
        conn_flush(m, &m->conns[conn_of(m, slot)]);
        m->due_ns += every_ns;
        tried = 0;
    }
}

static void ask_again(struct mill *m)
{
    if (m->n_later == 0)
        return;
    for (unsigned i = 0; i < m->n_slots; i++) {
        struct slot *s = &m->slots[i];
        if (s->state != LATER || s->not_before_ns > m->now_ns || !put_request(m, i, false))
            continue;
        m->n_later--;
        m->r->again++;
        conn_flush(m, &m->conns[conn_of(m, i)]);
    }
}

static void reopen(struct mill *m)
{
    for (unsigned i = 0; m->n_closed > 0 && i < m->spec->conns; i++)
        if (m->conns[i].fd < 0 && m->conns[i].not_before_ns <= m->now_ns) {
            conn_open(m, &m->conns[i]);
            if (m->conns[i].fd >= 0 && !m->conns[i].connecting)
                fill(m, i);
        }
}

/* ---- answers ---- */

/* Since the last answer. */
static void note_gap(struct mill *m)
{
    int64_t gap = m->now_ns - m->last_done_ns, silence = gap - (m->stood_ns - m->last_done_stood_ns);
    if (gap > m->r->longest_gap_ns)
        m->r->longest_gap_ns = gap;
    if (m->schedstat >= 0 && silence > m->r->longest_silence_ns)
        m->r->longest_silence_ns = silence;
}

static void count_done(struct mill *m, const struct conn *c, const struct slot *s)
{
    struct load_mill_result *r = m->r;
    note_gap(m);
    m->last_done_ns = m->now_ns;
    m->last_done_stood_ns = m->stood_ns;
    r->moved += r->done_in_all > 0 && c->addr != m->answered;
    m->answered = c->addr;
    r->done_in_all += s->count;
    if (!m->ending) {
        r->requests++;
        r->done += s->count;
    }
    load_times_note(&r->times, m->now_ns - s->since_ns);
}

/* False: the connection is to be left. */
static bool judge(struct mill *m, struct conn *c, unsigned slot, enum load_verdict v)
{
    struct slot *s = &m->slots[slot];
    if (v == LOAD_MORE)
        return true;
    step_out(m, c, slot);
    s->state = IDLE;
    switch (v) {
    case LOAD_DONE:
        count_done(m, c, s);
        return true;
    case LOAD_FAILED:
        m->r->failed++;
        return true;
    case LOAD_STEP:
        if (!put_request(m, slot, false))
            ask_later(m, slot, m->now_ns);
        return true;
    case LOAD_AGAIN:
        ask_later(m, slot, m->now_ns + again_ns);
        return true;
    case LOAD_ELSEWHERE:
        ask_later(m, slot, m->now_ns + again_ns);
        return false;
    case LOAD_MORE:
        break;
    }
    UNREACHABLE();
}

/* Whole answers at the front of what came in. False: the connection is of no use any more. */
static bool take_answers(struct mill *m, struct conn *c)
{
    size_t at = 0;
    bool good = true;
    while (good && at < c->in.n) {
        struct load_answer a = {.used = 0};
        enum err e = m->spec->wire->parse(bytes_of(c->in.p + at, c->in.n - at), &a);
        if (e == ERR_EMPTY)
            break;
        int slot = e != ERR_OK || a.noise ? NONE : m->spec->wire->by_slot ? (int)a.slot : c->first;
        if (e == ERR_OK && a.noise) {
            at += a.used;
            continue;
        }
        if (slot == NONE || (unsigned)slot >= m->n_slots || m->slots[slot].state != WAITING ||
            conn_of(m, (unsigned)slot) != (unsigned)(c - m->conns))
            good = false; /* broken, or an answer to nobody */
        else
            good = judge(m, c, (unsigned)slot, m->spec->wire->answered(m->spec->app, (unsigned)slot, &a));
        at += a.used;
    }
    buf_consume(&c->in, at);
    return good;
}

static void readable(struct mill *m, struct conn *c)
{
    uint8_t *p = buf_reserve(&c->in, READ_BYTES);
    ssize_t n = p == NULL ? -1 : recv(c->fd, p, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && p != NULL && errno == EAGAIN)
        return;
    if (n <= 0) {
        conn_lose(m, c);
        return;
    }
    buf_commit(&c->in, (size_t)n);
    c->heard_ns = m->now_ns;
    if (take_answers(m, c))
        fill(m, (unsigned)(c - m->conns));
    else
        conn_lose(m, c);
}

static void happened(struct mill *m, struct conn *c, uint32_t events)
{
    if (c->fd < 0)
        return;
    if (c->connecting) {
        int error = 0;
        socklen_t n = sizeof error;
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0) {
            conn_lose(m, c);
            return;
        }
        if (!(events & EPOLLOUT))
            return;
        conn_greet(m, c);
        fill(m, (unsigned)(c - m->conns));
        return;
    }
    if (events & EPOLLOUT)
        conn_flush(m, c);
    if (c->fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        readable(m, c);
}

static void leave_silent_ones(struct mill *m, int64_t timeout_ns)
{
    for (unsigned i = 0; i < m->spec->conns; i++) {
        struct conn *c = &m->conns[i];
        if (c->fd >= 0 && (c->connecting || c->first != NONE) && m->now_ns - c->heard_ns > timeout_ns)
            conn_lose(m, c);
    }
}

/* ---- the run ---- */

static bool over(const struct mill *m, int64_t until_ns)
{
    return m->now_ns >= until_ns || (m->dry && m->n_waiting + m->n_later == 0) ||
           (m->spec->stop != NULL && atomic_load(m->spec->stop));
}

/* How long nothing is due. At a rate we sleep until the next moment: who spins on a core that is not its own uses up its turn, and then waits
 * for all others. */
static int64_t sleep_ns(const struct mill *m)
{
    if (m->n_later > 0 || m->n_closed > 0)
        return ms_ns;
    if (m->spec->awake)
        return 0;
    if (m->spec->rate > 0 && may_begin(m) && m->n_waiting + m->n_spent < m->n_slots)
        return m->due_ns > m->now_ns ? m->due_ns - m->now_ns : 0;
    return 20 * ms_ns;
}

/* How long this thread was able to run and did not, since it began. */
static int64_t stood_ns(const struct mill *m)
{
    char text[96];
    long long ran, stood;
    ssize_t n = m->schedstat < 0 ? -1 : pread(m->schedstat, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = 0;
    return sscanf(text, "%lld %lld", &ran, &stood) == 2 ? stood : 0;
}

static void turn(struct mill *m)
{
    struct epoll_event events[EVENTS];
    int64_t rest_ns = sleep_ns(m);
    struct timespec rest = {rest_ns / second_ns, rest_ns % second_ns};
    int n = epoll_pwait2(m->epoll, events, EVENTS, &rest, NULL);
    int64_t now_ns = load_now_ns();
    if (n == 0 && !m->ending)
        m->r->idle_ns += now_ns - m->now_ns;
    m->now_ns = now_ns;
    m->stood_ns = stood_ns(m);
    for (int i = 0; i < n; i++)
        happened(m, events[i].data.ptr, events[i].events);
    reopen(m);
    ask_again(m);
    if (m->spec->rate > 0)
        arrivals(m);
}

static enum err grind(struct mill *m)
{
    const struct load_mill_spec *s = m->spec;
    int64_t timeout_ns = (s->timeout_ms ? s->timeout_ms : 10000) * ms_ns;
    int64_t patience_ns = (s->patience_ms ? s->patience_ms : 10000) * ms_ns;
    int64_t until_ns = m->began_ns + s->ms * ms_ns, second = m->began_ns + second_ns;
    uint64_t told = 0;
    while (!over(m, until_ns)) {
        turn(m);
        leave_silent_ones(m, timeout_ns);
        if (!m->reached && m->turned >= s->n_addrs && s->n_addrs > 1)
            return ERR_REFUSED;
        if (!m->reached && s->n_addrs == 1 && m->n_closed == s->conns)
            return ERR_REFUSED;
        if (m->now_ns >= second) {
            if (s->each_second != NULL)
                s->each_second(s->app, (double)(second - m->began_ns) / 1e9, m->r->done - told,
                               &s->addrs[m->addr]);
            told = m->r->done;
            second += second_ns;
        }
    }
    m->r->seconds = (double)(m->now_ns - m->began_ns) / 1e9;
    m->ending = true;
    int64_t give_up_ns = m->now_ns + patience_ns;
    while (m->n_waiting + m->n_later > 0 && m->now_ns < give_up_ns) {
        turn(m);
        leave_silent_ones(m, timeout_ns);
    }
    if (m->n_waiting + m->n_later > 0)
        note_gap(m);
    m->r->unanswered = m->n_waiting + m->n_later;
    m->r->last_addr = m->answered;
    return ERR_OK;
}

enum err load_mill_run(const struct load_mill_spec *spec, struct load_mill_result *out)
{
    struct mill m = {.spec = spec, .r = out, .n_slots = spec->conns * spec->inflight};
    memset(out, 0, sizeof *out);
    CHECK(spec->conns > 0 && spec->conns <= LOAD_MILL_CONNS_MAX && spec->inflight > 0 &&
          spec->inflight <= LOAD_MILL_INFLIGHT_MAX && spec->n_addrs > 0 &&
          spec->first_addr < spec->n_addrs);
    m.conns = calloc(spec->conns, sizeof *m.conns);
    m.slots = calloc(m.n_slots, sizeof *m.slots);
    m.epoll = epoll_create1(EPOLL_CLOEXEC);
    m.schedstat = spec->rate > 0 ? open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC) : -1;
    enum err e = ERR_NO_MEMORY;
    if (m.conns == NULL || m.slots == NULL || m.epoll < 0)
        goto out;
    m.addr = m.answered = spec->first_addr;
    m.stood_ns = m.last_done_stood_ns = stood_ns(&m);
    m.now_ns = m.began_ns = m.last_done_ns = m.due_ns = load_now_ns();
    m.n_closed = spec->conns;
    for (unsigned i = 0; i < spec->conns; i++) {
        struct conn *c = &m.conns[i];
        c->fd = -1;
        c->first = c->last = NONE;
        buf_init(&c->in, LOAD_MILL_BYTES_MAX);
        buf_init(&c->out, LOAD_MILL_BYTES_MAX);
    }
    reopen(&m);
    e = grind(&m);
    for (unsigned i = 0; i < spec->conns; i++) {
        if (m.conns[i].fd >= 0)
            close(m.conns[i].fd);
        buf_fini(&m.conns[i].in);
        buf_fini(&m.conns[i].out);
    }
out:
    if (m.schedstat >= 0)
        close(m.schedstat);
    if (m.epoll >= 0)
        close(m.epoll);
    free(m.conns);
    free(m.slots);
    return e;
}
