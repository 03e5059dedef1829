/*
 * Long histories of clients, origins of every kind, reloads and a drain, against a second telling of the rules: a store, refusals that
 * are remembered, breakers, a queue of two, fills that are joined, promised, handed back, wanted by nobody, and stale objects that
 * stand in. After every step every client was told exactly what the second telling says, once. A history is one thread's, so that it
 * is known what is to be told; what happens at the same time is model_fill.c's.
 *
 * SEEDS histories (2,000) from SEED (1) on; make drill-edge plays 100,000.
 */
#include <stdio.h>

#include "base/rng.h"
#include "world.h"

enum { ALL_ANSWERS = 7, NAMES = 5, ORIGINS = 2, CAPACITY = 2, WORKERS = 2, STEPS = 60, CLIENTS = STEPS };

struct told {
    enum answer how;
    enum err why;
};

struct stored {
    bool there;
    uint8_t version;
    int64_t valid_until_ms; /* 0: for ever */
};

/* What the second telling knows of a fill under way. */
struct flight {
    bool there, promised, handed_back, has_stale;
    int64_t stale_until_ms; /* when what it is to replace expired */
    struct {
        int client;
        int64_t async_at_ns; /* 0: never */
    } waiting[CLIENTS];
    int waiting_n;
};

struct door { /* a breaker */
    enum { SHUT_NOT, SHUT, AJAR } state;
    unsigned row;
    bool probing;
    int64_t until_ns;
};

static struct story {
    struct edge e;
    struct edge_route route[ORIGINS];
    struct rng rng;
    struct edge_fill *held[WORKERS]; /* by a worker */
    int held_name[WORKERS];
    struct request rq[CLIENTS];
    int clients;
    /* the second telling */
    struct told told[CLIENTS];
    struct stored store[NAMES];
    struct flight flight[NAMES];
    int queue[CAPACITY], queue_n;
    struct {
        int64_t until_ns;
        enum err err;
    } no[NAMES];
    struct door door[ORIGINS];
    bool draining;
    int step;
} st;

static const char *const names[NAMES] = {"n0", "n1", "n2", "n3", "n4"};

static uint64_t below(uint64_t n)
{
    return rng_below(&st.rng, n);
}

static int origin_of_name(int name)
{
    return name % ORIGINS;
}

static int64_t now_ns(void)
{
    return edge_now_ns(&st.e);
}

/* ---- the store both tellings share: nobody doubts it here ---- */

static bool find(struct str name, struct edge_hit *out)
{
    const struct stored *s = &st.store[name.p[1] - '0'];
    if (!s->there)
        return false;
    *out = (struct edge_hit){.size = 1, .digest = {{s->version}}, .valid_until_ms = s->valid_until_ms};
    return true;
}

static bool fresh(const struct stored *s)
{
    return s->there && (s->valid_until_ms == 0 || edge_now_ms(&st.e) < s->valid_until_ms);
}

/* ---- the second telling ---- */

static void tell(int client, enum answer how, enum err why)
{
    CHECK(st.told[client].how == UNANSWERED);
    st.told[client] = (struct told){how, why};
}

static void tell_no(int client, enum err err, bool has_stale, int64_t stale_until_ms)
{
    bool stale = has_stale && edge_now_ms(&st.e) < stale_until_ms + world.config.fill_stale;
    if (stale && err != ERR_NOT_FOUND && err != ERR_DRAINING)
        tell(client, SERVED, ERR_OK);
    else
        tell(client, REFUSED, err);
}

/* It is ajar once somebody looked: until then what comes late from before it was shut is not heard. */
static void door_seen(struct door *d)
{
    if (d->state == SHUT && now_ns() >= d->until_ns) {
        d->state = AJAR;
        d->probing = false;
    }
}

static bool door_opens(struct door *d)
{
    door_seen(d);
    if (d->state == SHUT || (d->state == AJAR && d->probing))
        return false;
    d->probing = d->state == AJAR;
    return true;
}

enum heard { WELL, DOWN, NOTHING };

static void door_hears(struct door *d, enum heard heard)
{
    if (heard == WELL) {
        d->row = 0;
        if (d->state == AJAR)
            d->state = SHUT_NOT;
        return;
    }
    bool slam = heard == DOWN &&
                (d->state == AJAR || (d->state == SHUT_NOT && ++d->row >= world.config.breaker_failures));
    d->probing = false;
    if (slam) {
        d->state = SHUT;
        d->until_ns = now_ns() + world.config.breaker_open * 1000000;
    }
}

static void wait_for(struct flight *f, int client, int64_t async_at_ns)
{
    f->waiting[f->waiting_n].client = client;
    f->waiting[f->waiting_n++].async_at_ns = async_at_ns;
}

static void expect_ask(int name, int client, int64_t async_at_ns)
{
    struct stored *s = &st.store[name];
    struct flight *f = &st.flight[name];
    struct door *door = &st.door[origin_of_name(name)];
    if (fresh(s))
        tell(client, SERVED, ERR_OK);
    else if (st.no[name].until_ns > now_ns())
        tell_no(client, st.no[name].err, s->there, s->valid_until_ms);
    else if (f->there)
        wait_for(f, client, async_at_ns);
    else if (!door_opens(door))
        tell_no(client, ERR_UPSTREAM_UNAVAILABLE, s->there, s->valid_until_ms);
    else if (st.draining || st.queue_n == CAPACITY) {
        door_hears(door, NOTHING);
        tell_no(client, st.draining ? ERR_DRAINING : ERR_BUSY, s->there, s->valid_until_ms);
    } else {
        *f = (struct flight){.there = true, .has_stale = s->there, .stale_until_ms = s->valid_until_ms};
        wait_for(f, client, async_at_ns);
        st.queue[st.queue_n++] = name;
    }
}

static void expect_end(int name, enum err err, enum heard heard)
{
    struct flight *f = &st.flight[name];
    door_hears(&st.door[origin_of_name(name)], heard);
    int64_t ms = err == ERR_NOT_FOUND ? world.config.fill_negative_ttl : 1000;
    if (err != ERR_OK && err != ERR_DRAINING && err != ERR_CANCELED && ms) {
        st.no[name].until_ns = now_ns() + ms * 1000000;
        st.no[name].err = err;
    }
    for (int i = 0; i < f->waiting_n; i++) {
        int client = f->waiting[i].client;
        if (err == ERR_OK)
            tell(client, SERVED, ERR_OK);
        else
            tell_no(client, err, f->has_stale, f->stale_until_ms);
    }
    f->there = false;
}

static void expect_tick(void)
{
    for (int n = 0; n < NAMES; n++) {
        struct flight *f = &st.flight[n];
        int left = 0;
        for (int i = 0; f->there && i < f->waiting_n; i++)
            if (f->waiting[i].async_at_ns && f->waiting[i].async_at_ns <= now_ns()) {
                tell(f->waiting[i].client, PROMISED, ERR_OK);
                f->promised = true;
            } else
                f->waiting[left++] = f->waiting[i];
        f->waiting_n = left;
    }
    for (int i = 0; i < ORIGINS; i++)
        door_seen(&st.door[i]);
}

static bool wanted(const struct flight *f)
{
    bool any = f->promised;
    for (int i = 0; i < f->waiting_n; i++)
        any = any || !st.rq[f->waiting[i].client].gone;
    return any;
}

/* ---- steps: first it is said what is to happen, then it happens ---- */

static void ask(void)
{
    static const char *const prefer[] = {NULL, NULL, "respond-async", "respond-async, wait=1",
                                         "respond-async, wait=4"};
    static const int wait_s[] = {-1, -1, 0, 1, 4};
    int name = (int)below(NAMES), client = st.clients++;
    size_t how = below(5);
    struct request *r = &st.rq[client];
    struct edge_hit hit;
    *r = (struct request){.prefer = prefer[how]};
    arena_init(&r->arena, 256, 4096);
    expect_ask(name, client, wait_s[how] < 0 ? 0 : now_ns() + (int64_t)wait_s[how] * 1000000000);
    struct str text = str_from_c(names[name]);
    bool found = find(text, &hit);
    struct net_req *rq = (struct net_req *)(void *)r;
    if (fresh(&st.store[name])) /* as api/assets.c does */
        edge_serve_hit(&st.e, rq, &hit, EDGE_FROM_CAS, false);
    else
        edge_fill_ask(&st.e, rq, text, text, (struct str){NULL, 0}, &st.route[origin_of_name(name)],
                      found ? &hit : NULL);
}

static void take(int worker) RT_BLOCKS
{
    void *item;
    if (st.held[worker])
        return;
    enum err err = rt_chan_try_recv(st.e.work, &item);
    CHECK((err == ERR_OK) == (st.queue_n > 0));
    if (err != ERR_OK)
        return;
    struct edge_fill *f = item;
    int name = st.queue[0];
    st.queue[0] = st.queue[--st.queue_n]; /* of two */
    CHECK(strcmp(f->name, names[name]) == 0);
    CHECK(edge_fill_wanted(&st.e, f) == wanted(&st.flight[name]));
    if (!wanted(&st.flight[name])) {
        expect_end(name, ERR_CANCELED, NOTHING);
        edge_fill_end(&st.e, f, &(struct edge_outcome){.err = ERR_CANCELED, .reason = EDGE_R_NONE});
        return;
    }
    edge_fill_to(&st.e, f, EDGE_FILL_FETCHING);
    st.held[worker] = f;
    st.held_name[worker] = name;
}

static void hand_back(struct edge_fill *f, int name) RT_BLOCKS
{
    struct flight *r = &st.flight[name];
    if (!r->handed_back && !st.draining && st.queue_n < CAPACITY) {
        r->handed_back = true;
        st.queue[st.queue_n++] = name;
    } else
        expect_end(name, st.draining ? ERR_DRAINING : ERR_UNAVAILABLE, NOTHING);
    edge_fill_hand_back(&st.e, f);
}

static void finish(int worker) RT_BLOCKS
{
    static const struct {
        enum err err;
        enum heard heard;
    } ends[] = {{ERR_OK, WELL},
                {ERR_OK, WELL},
                {ERR_OK, WELL},
                {ERR_NOT_FOUND, WELL},
                {ERR_UPSTREAM_UNAVAILABLE, DOWN},
                {ERR_UPSTREAM_UNAVAILABLE, DOWN},
                {ERR_UPSTREAM, DOWN},
                {ERR_UPSTREAM, NOTHING},
                {ERR_UPSTREAM_INVALID, NOTHING},
                {ERR_NOT_ALLOWED, NOTHING},
                {ERR_UNAVAILABLE, NOTHING}};
    struct edge_fill *f = st.held[worker];
    int name = st.held_name[worker];
    if (!f)
        return;
    st.held[worker] = NULL;
    if (below(8) == 0) {
        hand_back(f, name);
        return;
    }
    size_t how = below(sizeof ends / sizeof *ends);
    struct stored *s = &st.store[name];
    if (ends[how].err == ERR_OK)
        *s = (struct stored){true, (uint8_t)(s->version + below(2)),
                             below(2) ? 0 : edge_now_ms(&st.e) + (int64_t)below(3000)};
    else if (ends[how].err == ERR_NOT_FOUND)
        s->there = false;
    if (ends[how].err == ERR_OK || (ends[how].err == ERR_NOT_FOUND && f->has_stale))
        edge_fill_to(&st.e, f, EDGE_FILL_COMMITTING);
    expect_end(name, ends[how].err, ends[how].heard);
    edge_fill_end(&st.e, f,
                  &(struct edge_outcome){
                      .err = ends[how].err, .reason = EDGE_R_UPSTREAM, .down = ends[how].heard == DOWN});
}

static void pass_time(void)
{
    static const int64_t ms[] = {1, 100, 1000, 6000};
    world.skipped_ns += ms[below(4)] * 1000000;
    expect_tick();
    edge_fills_tick(&st.e);
}

static void reload(void)
{
    world.config.breaker_failures = 1 + below(4);
    world.config.breaker_open = below(2) ? 1000 : 5000;
    world.config.fill_negative_ttl = below(2) ? 0 : 5000;
    world.config.fill_stale = below(2) ? 0 : 86400000;
    edge_fills_configure(&st.e);
}

static void drain(void)
{
    st.draining = true;
    os_a32_store(&world.draining, 1, memory_order_release);
    rt_chan_close(st.e.work);
}

static void step(void) RT_BLOCKS
{
    switch (below(16)) {
    case 0:
    case 1:
        pass_time();
        break;
    case 2:
    case 3:
    case 4:
        take((int)below(WORKERS));
        break;
    case 5:
    case 6:
    case 7:
        finish((int)below(WORKERS));
        break;
    case 8:
        if (st.clients)
            st.rq[below((uint64_t)st.clients)].gone = true;
        break;
    case 9:
        st.store[below(NAMES)].there = false; /* purged, or evicted */
        break;
    case 10:
        if (below(4) == 0)
            reload();
        break;
    default:
        ask();
    }
}

static void compare(void)
{
    static const char *const words[] = {"nothing", "served", "refused", "promised"};
    for (int i = 0; i < st.clients; i++) {
        const struct told *want = &st.told[i];
        const struct request *got = &st.rq[i];
        if (got->how == want->how && (got->how != REFUSED || got->why == want->why))
            continue;
        fprintf(stderr, "client %d was told %s %s, not %s %s\n", i, words[got->how], err_name(got->why),
                words[want->how], err_name(want->why));
        CHECK(!"as the second telling says");
    }
}

RT_BLOCKS
static void history(uint64_t number)
{
    st = (struct story){.e = {.clock = &world_clock}};
    for (int i = 0; i < ORIGINS; i++)
        st.route[i] = (struct edge_route){.max_age_ms = 1000};
    snprintf(st.route[0].label, sizeof st.route[0].label, "one");
    snprintf(st.route[1].label, sizeof st.route[1].label, "two");
    rng_seed(&st.rng, number);
    world.find = find;
    world.config = (struct edge_config){
        .breaker_failures = 3, .breaker_open = 5000, .fill_negative_ttl = 5000, .fill_stale = 86400000};
    os_a32_store(&world.draining, 0, memory_order_relaxed);
    st.e.work =
        rt_chan_create(&(struct rt_chan_spec){.name = "work", .capacity = CAPACITY, .policy = RT_REJECT});
    CHECK(st.e.work && edge_fills_create(&st.e, &st.e.fills) == ERR_OK);
    int drain_at = (int)below(2 * STEPS); /* or behind the last step */
    for (st.step = 0; st.step < STEPS; st.step++) {
        if (st.step == drain_at)
            drain();
        step();
        compare();
    }
    if (!st.draining)
        drain();
    for (; st.queue_n || st.held[0] || st.held[1]; st.step++) {
        take(0);
        finish((int)below(WORKERS));
        compare();
    }
    CHECK(map_count(&st.e.fills->by_name) == 0);
    for (int i = 0; i < st.clients; i++) {
        CHECK(st.told[i].how != UNANSWERED);
        model_cover((unsigned)st.told[i].how - 1);
        arena_fini(&st.rq[i].arena);
    }
    edge_fills_destroy(st.e.fills);
    rt_chan_destroy(st.e.work, NULL, NULL);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t seed;

RT_BLOCKS
static void story(void)
{
    history(seed);
}

int main(void)
{
    static const struct model m = {.name = "story", .body = story};
    static struct model_result r;
    uint64_t first = number("SEED", 1), n = number("SEEDS", 2000);
    unsigned covered = 0;
    for (seed = first; seed < first + n; seed++) {
        model_explore(&m, MODEL_REDUCED, 1, NULL, &r);
        covered |= r.covered;
        if (r.failed) {
            fprintf(stderr, "SEED=%llu SEEDS=1, step %d: %s\n", (unsigned long long)seed, st.step, r.why);
            return 1;
        }
    }
    printf("%llu histories from %llu on: every client was told what it was to be told\n",
           (unsigned long long)n, (unsigned long long)first);
    return n > 100 && covered != ALL_ANSWERS;
}
