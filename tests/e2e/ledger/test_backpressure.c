/*
 * Every queue of the ledger filled to the brim: who hears what, how soon, and which counter says so. One stage is stopped by the
 * gate clock (or by a closure that waits), the queue before it is filled, one more comes; then the stage goes on and everything
 * that was taken in is answered.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ledger_rig.h"
#include "services/ledger/service.h"
#include "services/ledger/stream.h"
#include "waiting.h"

static struct ledger_rig rig;
static struct rig_client direct;

static struct ledger *engine(void)
{
    return ((struct ledger_service *)svc_state(rig.svc))->l;
}

/* A test that failed must not stop the others. */
static int reopen(void **state)
{
    (void)state;
    gate_open();
    return 0;
}

static void open_rig(bool amnesia, const char *const *flags, size_t n)
{
    ledger_rig_open_at(&rig, amnesia, flags, n, gate_clock());
    rig_client_open(&rig, RIG_DIRECT, &direct);
}

static void close_rig(void)
{
    rig_client_close(&direct);
    assert_int_equal(ledger_rig_stop(&rig), 0);
    ledger_rig_close(&rig);
}

/* ---- calls that are left waiting ---- */

struct pending {
    _Atomic bool done;
    enum ledger_outcome outcome;
    enum err err;
    enum ledger_status status;
    uint64_t seq;
};

static void on_done(void *ctx, const struct ledger_ingest_reply *r)
{
    struct pending *p = ctx;
    p->outcome = r->a.outcome;
    p->err = r->a.err;
    if (r->n_results == 1) {
        p->status = r->results[0].status;
        p->seq = r->results[0].seq_start;
    }
    atomic_store(&p->done, true);
}

static void send_one(struct pending *p, int n)
{
    char name[32];
    struct rig_unit u;
    snprintf(name, sizeof name, "bp-%d", n);
    rig_mint(&u, name, "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    atomic_store(&p->done, false);
    ledger_client_ingest(direct.c, &rq, deadline_in_ms(30000), on_done, p);
}

static void await_done(struct pending *p)
{
    AWAIT(atomic_load(&p->done));
}

static void await_committed(struct pending *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        await_done(&p[i]);
        assert_int_equal(p[i].outcome, LEDGER_ANSWERED);
        assert_int_equal(p[i].status, LEDGER_COMMITTED);
    }
}

static void await_depth(struct rt_chan *ch, size_t n)
{
    AWAIT(rt_chan_depth(ch) == n);
}

/* One more over HTTP: 429 with Retry-After and the queue's name, at once. */
static void one_more_is_refused_by(const char *queue, int n)
{
    char body[256], want[64];
    struct buf b;
    buf_init(&b, 65536);
    snprintf(body, sizeof body,
             "{\"units\":[{\"idem_id\":\"t:bp-%d\",\"entries\":[{\"id\":\"e-bp-%d\",\"ts\":1760000000000,"
             "\"kind\":\"mint\",\"account\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1\"}]}]}",
             n, n);
    struct deadline soon = deadline_in_ms(20000);
    assert_int_equal(ledger_rig_http(&rig, "POST", "/v1/ingest", body, &b), 429);
    assert_false(deadline_passed(soon));
    snprintf(want, sizeof want, "\"queue\":\"%s\"", queue);
    assert_non_null(strstr(buf_cstr(&b), want));
    assert_non_null(strstr(buf_cstr(&b), "\"code\":\"busy\""));
    buf_fini(&b);
    snprintf(want, sizeof want, "q=\"%s\"", queue);
    assert_true(ledger_rig_metric(&rig, "busy_rejections_total", want) >= 1);
    assert_true(ledger_rig_metric(&rig, "rejected_total", "reason=\"busy\"") >= 1);
}

/* The gauge is set now and then. */
static void await_told_depth(const char *queue, double n)
{
    char label[64];
    snprintf(label, sizeof label, "q=\"%s\"", queue);
    AWAIT(ledger_rig_metric(&rig, "queue_depth", label) == n);
}

/* ---- the pipeline ---- */

static void a_full_ingress_queue_answers_429_and_keeps_what_it_has(void **state)
{
    (void)state;
    const char *flags[] = {"queues.ingress=4", "concurrency.prevalidators=1"};
    struct pending p[6];
    open_rig(true, flags, 2);
    gate_close("prevalidator");
    send_one(&p[0], 0); /* the worker takes it and stands still */
    gate_await(1);
    for (int i = 1; i <= 4; i++)
        send_one(&p[i], i);
    assert_int_equal(rt_chan_depth(engine()->ingress), 4);
    one_more_is_refused_by("ingress", 5);
    send_one(&p[5], 5); /* the same through the other door */
    assert_true(atomic_load(&p[5].done));
    assert_int_equal(p[5].outcome, LEDGER_REFUSED);
    assert_int_equal(p[5].err, ERR_BUSY);
    assert_int_equal((int)ledger_rig_metric(&rig, "busy_rejections_total", "q=\"ingress\""), 2);
    await_told_depth("ingress", 4);
    gate_open();
    await_committed(p, 5);
    send_one(&p[5], 5);
    await_committed(&p[5], 1);
    close_rig();
}

/* It also looks at the clock before it waits for work: then the bait stays in the queue, and we try again. Returns the head. */
static uint64_t stop_the_sequencer_with_a_job(struct pending *p)
{
    for (int bait = 1000;; bait++) {
        uint64_t head = ledger_head_seq(engine());
        gate_close("sequencer");
        send_one(p, bait);
        gate_await(1);
        AWAIT(engine()->round.n == 1 || rt_chan_depth(engine()->preval) == 1);
        if (engine()->round.n == 1)
            return head;
        gate_open();
        await_committed(p, 1);
    }
}

static void a_full_preval_queue_drops_the_oldest_and_tells_its_caller_at_once(void **state)
{
    (void)state;
    const char *flags[] = {"queues.prevalidator=3", "concurrency.prevalidators=1"};
    struct pending p[6];
    open_rig(true, flags, 2);
    uint64_t before = stop_the_sequencer_with_a_job(&p[0]);
    for (int i = 1; i <= 3; i++) {
        send_one(&p[i], i);
        await_depth(engine()->preval, (size_t)i); /* one after the other: 1 is the oldest */
    }
    send_one(&p[4], 4);
    await_done(&p[1]); /* while the sequencer still stands */
    assert_int_equal(p[1].outcome, LEDGER_REFUSED);
    assert_int_equal(p[1].err, ERR_BUSY);
    send_one(&p[5], 5);
    await_done(&p[2]);
    assert_int_equal(p[2].err, ERR_BUSY);
    for (int i = 0; i < 6; i++)
        assert_int_equal(atomic_load(&p[i].done), i == 1 || i == 2);
    assert_int_equal(rt_chan_depth(engine()->preval), 3);
    assert_int_equal((int)ledger_rig_metric(&rig, "drops_total", "q=\"preval\""), 2);
    await_told_depth("preval", 3);
    gate_open();
    await_committed(&p[3], 3);
    await_committed(&p[0], 1);
    assert_int_equal(ledger_head_seq(engine()), before + 4); /* what was dropped took no seq */
    close_rig();
}

static void a_full_commit_queue_refuses_before_a_seq_is_given_and_readiness_says_so(void **state)
{
    (void)state;
    const char *flags[] = {"queues.commit=2"};
    struct pending p[4];
    struct obs_health_view view;
    struct deadline by = deadline_in_ms(30000);
    open_rig(true, flags, 1);
    gate_close("committer");
    send_one(&p[0], 0);
    gate_await(1);
    for (int i = 1; i <= 2; i++) {
        send_one(&p[i], i);
        await_depth(engine()->commit, (size_t)i);
    }
    one_more_is_refused_by("commit", 3);
    await_told_depth("commit", 2);
    do {
        obs_health_read(svc_health(rig.svc), &view);
        assert_false(deadline_passed(by));
    } while (view.ready);
    struct buf b;
    buf_init(&b, 65536);
    assert_int_equal(ledger_rig_http(&rig, "GET", "/readyz", NULL, &b), 503);
    assert_non_null(strstr(buf_cstr(&b), "\"backpressure_ok\":false"));
    buf_fini(&b);
    gate_open();
    await_committed(p, 3);
    send_one(&p[3], 3);
    await_committed(&p[3], 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(p[i].seq, i + 1); /* no seq was lost to the refusal */
    close_rig();
}

/* ---- drains that run out of time ---- */

static void *drain_it(void *code) RT_UNCHECKED;
static void *drain_it(void *code)
{
    *(int *)code = svc_drain(rig.svc);
    return NULL;
}

/* A stage looks at the clock also when it has passed a job on: then the bait stays in its queue, and we try again. */
static void stop_with_a_job(const char *stage, struct rt_chan *queue, struct pending *p)
{
    for (int bait = 1000;; bait++) {
        uint64_t sent = rt_chan_stats(queue).sent;
        gate_close(stage);
        send_one(p, bait);
        gate_await(1);
        AWAIT(rt_chan_stats(queue).sent != sent);
        if (rt_chan_depth(queue) == 0)
            return;
        gate_open();
        await_committed(p, 1);
    }
}

/*
 * One stage stands still with the first job in its hands and n - 1 in the queue before it, until the drain has no time left and
 * cancels it. Everybody is answered.
 */
static void drain_without_time(const char *stage, const char *limit, struct rt_chan *(*queue)(void),
                               struct pending *p, int n)
{
    int code = 0;
    pthread_t drain;
    const char *flags[] = {limit, "concurrency.prevalidators=1"};
    open_rig(true, flags, 2);
    send_one(&p[0], 100); /* the stage has been awake: now it comes to the gate by itself */
    await_committed(p, 1);
    stop_with_a_job(stage, queue(), &p[0]);
    for (int i = 1; i < n; i++)
        send_one(&p[i], i);
    await_depth(queue(), (size_t)n - 1);
    gate_open_to_canceled();
    assert_int_equal(pthread_create(&drain, NULL, drain_it, &code), 0);
    for (int i = 0; i < n; i++)
        await_done(&p[i]);
    pthread_join(drain, NULL);
    assert_int_equal(code, 1); /* something was aborted, and the exit code says so */
    gate_open();
    rig_client_close(&direct);
    ledger_rig_close(&rig);
}

static struct rt_chan *ingress_tx(void)
{
    return engine()->ingress;
}

static struct rt_chan *commit_tx(void)
{
    return engine()->commit;
}

static void what_no_prevalidator_took_in_time_is_answered_as_draining(void **state)
{
    (void)state;
    struct pending p[3];
    drain_without_time("prevalidator", "shutdown.drain_ms=1", ingress_tx, p, 3);
    if (p[0].err !=
        ERR_OK) /* it was in hand; whether the sequencer still takes it is a matter of luck: its time is over too */
        assert_int_equal(p[0].err, ERR_DRAINING);
    for (int i = 1; i < 3; i++)
        assert_int_equal(p[i].err, ERR_DRAINING);
}

static void what_was_sequenced_and_not_written_in_time_is_answered_as_safe_mode(void **state)
{
    (void)state;
    struct pending p[3];
    drain_without_time("committer", "shutdown.commit_ms=1", commit_tx, p, 3);
    await_committed(p, 1); /* the group that was being written is finished */
    for (int i = 1; i < 3; i++)
        assert_int_equal(p[i].err, ERR_SAFE_MODE);
}

static void too_many_frozen_generations_refuse_before_a_seq_is_given(void **state)
{
    (void)state;
    const char *flags[] = {"checkpoint.entries=1024"};
    enum { PER = 256, MAX = 40 };
    struct rig_unit *u = calloc(PER, sizeof *u);
    struct ledger_unit units[PER];
    struct rig_reply a;
    uint64_t committed = 0;
    bool refused = false;
    open_rig(false, flags, 1);
    gate_close("checkpointer");
    gate_await(1);
    for (int round = 0; round < MAX && !refused; round++) {
        for (int i = 0; i < PER; i++) {
            char name[32];
            snprintf(name, sizeof name, "gen-%d-%d", round, i);
            rig_mint(&u[i], name, "acct:alice", 1);
            units[i] = u[i].u;
        }
        struct ledger_ingest rq = {.units = units, .n_units = PER};
        rig_ingest(&direct, &rq, 10000, &a);
        refused = a.outcome == LEDGER_REFUSED;
        committed += refused ? 0 : PER;
    }
    assert_true(refused);
    assert_int_equal(a.err, ERR_BUSY);
    assert_true(committed >= 3 * 1024); /* three frozen, one open */
    assert_int_equal(ledger_head_seq(engine()), committed);
    assert_true(ledger_rig_metric(&rig, "busy_rejections_total", "q=\"checkpoint\"") >= 1);
    gate_open();
    struct deadline by =
        deadline_in_ms(120000); /* real flushes of a real disk, which others may keep busy */
    do {                        /* as soon as a generation is on disk there is room again */
        struct ledger_ingest rq = {.units = units, .n_units = PER};
        rig_ingest(&direct, &rq, 10000, &a);
        assert_false(deadline_passed(by));
    } while (a.outcome != LEDGER_ANSWERED);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    free(u);
    close_rig();
}

static void without_a_free_job_a_request_is_refused_as_inflight(void **state)
{
    (void)state;
    struct ledger_job *held = NULL, *job;
    struct pending p;
    open_rig(true, NULL, 0);
    while ((job = ledger_job_take(&engine()->jobs, engine())) != NULL) {
        job->next = held;
        held = job;
    }
    one_more_is_refused_by("inflight", 0);
    send_one(&p, 0);
    assert_true(atomic_load(&p.done));
    assert_int_equal(p.err, ERR_BUSY);
    assert_int_equal((int)ledger_rig_metric(&rig, "busy_rejections_total", "q=\"inflight\""), 2);
    assert_int_equal((int)ledger_rig_metric(&rig, "rejected_total", "reason=\"busy\""), 2);
    for (struct ledger_job *next; held != NULL; held = next) {
        next = held->next;
        ledger_job_free(held);
    }
    send_one(&p, 0);
    await_committed(&p, 1);
    close_rig();
}

/* ---- out of memory ---- */

/* The next request gets this job: its arena takes so many bytes and no more, as if the process had none left. */
static void the_next_job_has_memory_for(size_t bytes)
{
    struct ledger_job *job = ledger_job_take(&engine()->jobs, engine());
    assert_non_null(job);
    arena_fini(&job->arena);
    arena_init(&job->arena, bytes, bytes);
    ledger_job_free(job);
}

static void a_prevalidator_without_memory_answers_its_job_and_is_started_again(void **state)
{
    (void)state;
    enum { DECODED = 2048, WHOLE = 24 << 20 }; /* what it says fits, what the journal is to say does not */
    const char *flags[] = {"concurrency.prevalidators=1"};
    struct pending p;
    open_rig(true, flags, 1);
    for (int i = 0; i < 2; i++) {
        char body[256];
        struct buf b;
        buf_init(&b, 65536);
        snprintf(
            body, sizeof body,
            "{\"units\":[{\"idem_id\":\"t:oom-%d\",\"entries\":[{\"id\":\"e-oom-%d\",\"ts\":1760000000000,"
            "\"kind\":\"mint\",\"account\":\"acct:alice\",\"asset\":\"ron\",\"amount\":\"1\"}]}]}",
            i, i);
        the_next_job_has_memory_for(DECODED);
        assert_int_equal(ledger_rig_http(&rig, "POST", "/v1/ingest", body, &b), 503);
        assert_non_null(strstr(buf_cstr(&b), "\"code\":\"unavailable\""));
        assert_non_null(strstr(buf_cstr(&b), "\"task\":\"prevalidator\""));
        buf_fini(&b);
        ledger_rig_await_metric(&rig, "service_restarts_total", "task=\"prevalidator\"", i + 1);
        the_next_job_has_memory_for(WHOLE);
        assert_int_equal(ledger_rig_http(&rig, "POST", "/v1/ingest", body, NULL),
                         200); /* the only worker is back */
        send_one(&p, i);
        await_committed(&p, 1);
        assert_int_equal(p.seq, 2 * i + 2); /* what failed took no seq */
    }
    assert_int_equal(ledger_safe_cause(engine()), CAUSE_NONE);
    close_rig();
}

/* ---- the hung flush ---- */

enum { DOORS = 3 };

/* A unit through that door, whose outcome nobody can tell in so much time. */
static void mint_in_vain(int door, struct rig_client *c, int64_t ms, struct rig_unit *u,
                         struct rig_reply *a)
{
    static const enum rig_transport doors[DOORS] = {RIG_HTTP, RIG_OAP, RIG_DIRECT};
    char name[32];
    rig_client_open(&rig, doors[door], c);
    snprintf(name, sizeof name, "hung-%d", door);
    rig_mint(u, name, "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u->u, .n_units = 1};
    rig_ingest(c, &rq, ms, a);
    assert_int_equal(a->outcome, LEDGER_UNKNOWN);
}

static void a_flush_that_hangs_is_answered_as_outcome_unknown_on_every_transport(void **state)
{
    (void)state;
    const char *flags[] = {"timeouts.request_ms=200", "timeouts.commit_wait_ms=200"};
    struct rig_client c[DOORS];
    struct rig_reply a;
    char name[32];
    open_rig(true, flags, 2);
    gate_close("committer");
    for (int i = 0; i < DOORS; i++) {
        struct rig_unit u;
        mint_in_vain(i, &c[i], 20000, &u, &a);
        assert_int_equal(a.err, ERR_OUTCOME_UNKNOWN);
        assert_int_equal(a.status, 503);
        assert_true(a.took_ms >= 190 && a.took_ms < 15000);
        rig_unit(&c[i], u.idem, 0, &a); /* in somebody's hands */
        assert_true(a.found);
        assert_int_equal(a.v[0].status, LEDGER_PENDING);
    }
    gate_open();
    for (int i = 0; i < DOORS; i++) {
        snprintf(name, sizeof name, "t:hung-%d", i);
        rig_unit(&c[i], name, 5000, &a);
        assert_true(a.found);
        assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
        rig_client_close(&c[i]);
    }
    close_rig();
}

static void a_caller_whose_own_time_is_up_is_told_so_on_every_transport(void **state)
{
    (void)state;
    struct rig_client c[DOORS];
    struct rig_reply a;
    open_rig(true, NULL, 0);
    gate_close("committer");
    for (int i = 0; i < DOORS; i++) {
        struct rig_unit u;
        mint_in_vain(i, &c[i], 200, &u, &a);
        assert_int_equal(a.err, ERR_TIMEOUT);
    }
    gate_open();
    for (int i = 0; i < DOORS; i++)
        rig_client_close(&c[i]);
    close_rig();
}

/* ---- readers, admin, streams ---- */

struct blocker {
    struct ledger_read read;
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    bool *go;
    _Atomic unsigned *running;
};

static void block(struct ledger_service *s, struct ledger_read *r)
{
    (void)s;
    struct blocker *b = (struct blocker *)r;
    atomic_fetch_add(b->running, 1);
    pthread_mutex_lock(b->mutex);
    while (!*b->go)
        pthread_cond_wait(b->cond, b->mutex);
    pthread_mutex_unlock(b->mutex);
    atomic_fetch_add(b->running, 1);
}

/* Fills `ch` behind one that waits, runs `check`, lets them all go. */
static void fill(struct rt_chan *ch, unsigned capacity, void (*check)(void))
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    bool go = false;
    _Atomic unsigned running = 0;
    struct blocker *v = calloc(capacity + 1, sizeof *v);
    for (unsigned i = 0; i <= capacity; i++)
        v[i] = (struct blocker){{block, NULL}, &mutex, &cond, &go, &running};
    assert_int_equal(rt_chan_try_send(ch, &v[0].read), ERR_OK);
    AWAIT(atomic_load(&running) != 0);
    for (unsigned i = 1; i <= capacity; i++)
        assert_int_equal(rt_chan_try_send(ch, &v[i].read), ERR_OK);
    check();
    pthread_mutex_lock(&mutex);
    go = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    AWAIT(atomic_load(&running) == 2 * (capacity + 1));
    free(v);
}

static void reads_are_refused(void)
{
    static const enum rig_transport doors[] = {RIG_HTTP, RIG_OAP, RIG_DIRECT};
    for (size_t i = 0; i < 3; i++) {
        struct rig_client c;
        struct rig_reply a;
        rig_client_open(&rig, doors[i], &c);
        rig_unit(&c, "t:x", 0, &a);
        assert_int_equal(a.outcome, LEDGER_REFUSED);
        assert_int_equal(a.err, ERR_BUSY);
        assert_int_equal(a.status, 429);
        assert_true(a.retry_after_s >= 1);
        rig_account(&c, "acct:alice", 0, &a); /* what is in memory is still served */
        assert_int_equal(a.outcome, LEDGER_ANSWERED);
        rig_client_close(&c);
    }
    assert_int_equal((int)ledger_rig_metric(&rig, "busy_rejections_total", "q=\"read\""), 3);
}

static void a_full_read_queue_answers_429_at_every_door(void **state)
{
    (void)state;
    const char *flags[] = {"concurrency.readers=1"};
    struct rig_reply a;
    open_rig(true, flags, 1);
    fill(engine()->read, 512, reads_are_refused);
    rig_unit(&direct, "t:x", 0, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    close_rig();
}

static void admin_is_refused(void)
{
    assert_int_equal(ledger_rig_http(&rig, "GET", "/admin/recovery", NULL, NULL), 429);
    assert_int_equal((int)ledger_rig_metric(&rig, "busy_rejections_total", "q=\"admin\""), 1);
}

static void a_full_admin_queue_answers_429(void **state)
{
    (void)state;
    open_rig(true, NULL, 0);
    fill(engine()->admin, 16, admin_is_refused);
    assert_int_equal(ledger_rig_http(&rig, "GET", "/admin/recovery", NULL, NULL), 200);
    close_rig();
}

static void more_subscribers_than_allowed_are_refused(void **state)
{
    (void)state;
    const char *flags[] = {"limits.max_subscribers=2"};
    open_rig(true, flags, 1);
    struct ledger_feed *a = ledger_client_feed(direct.c, 0, &rig_deaf_sink, NULL);
    struct ledger_feed *b = ledger_client_feed(direct.c, 0, &rig_deaf_sink, NULL);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(ledger_client_feed(direct.c, 0, &rig_deaf_sink, NULL));
    assert_int_equal(ledger_rig_http(&rig, "GET", "/v1/events", NULL, NULL), 429);
    assert_int_equal(ledger_rig_http(&rig, "GET", "/v1/roots/stream", NULL, NULL), 429);
    assert_int_equal((int)ledger_rig_metric(&rig, "busy_rejections_total", "q=\"stream\""), 3);
    ledger_client_feed_stop(direct.c, a);
    a = ledger_client_feed(direct.c, 0, &rig_deaf_sink, NULL);
    assert_non_null(a);
    ledger_client_feed_stop(direct.c, a);
    ledger_client_feed_stop(direct.c, b);
    close_rig();
}

/* A stream that listens until it has caught up, and then never has room. */
struct slow {
    struct ledger_stream st;
    _Atomic bool lagged, ended;
    _Atomic unsigned events;
    uint64_t next_since;
};

static enum err slow_send(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    (void)ev;
    struct slow *s = (struct slow *)st;
    return atomic_fetch_add(&s->events, 1) == 0 ? ERR_OK : ERR_BUSY;
}
static enum err slow_idle(struct ledger_stream *st)
{
    (void)st;
    return ERR_OK;
}
static void slow_lagged(struct ledger_stream *st, uint64_t next_since)
{
    struct slow *s = (struct slow *)st;
    s->next_since = next_since;
    atomic_store(&s->lagged, true);
}
static void slow_end(struct ledger_stream *st)
{
    atomic_store(&((struct slow *)st)->ended, true);
}
static bool slow_gone(struct ledger_stream *st)
{
    (void)st;
    return false;
}
static const struct ledger_stream_ops slow_ops = {slow_send, slow_idle, slow_lagged, slow_end, slow_gone};

static void a_subscriber_1024_groups_behind_is_cut_and_told_where_to_resume(void **state)
{
    (void)state;
    struct slow s = {.st = {.ops = &slow_ops, .commits = true}};
    struct pending p;
    struct deadline by = deadline_in_ms(30000);
    open_rig(true, NULL, 0);
    assert_int_equal(ledger_stream_submit(svc_state(rig.svc), &s.st), ERR_OK);
    int n = 0;
    for (; n < 1 || atomic_load(&s.events) == 0; n += n == 0) {
        if (n == 0) {
            send_one(&p, n);
            await_committed(&p, 1);
        }
        assert_false(deadline_passed(by));
    }
    for (; !atomic_load(&s.ended); n++) {
        send_one(&p, n);
        await_committed(&p, 1);
        assert_true(n < 3000);
    }
    assert_true(atomic_load(&s.lagged));
    assert_int_equal(s.next_since, 1);
    assert_true(n > 1024);
    assert_int_equal((int)ledger_rig_metric(&rig, "bus_lagged_total", "bus=\"events\""), 1);
    ledger_rig_await_metric(&rig, "roots_published_total", "", (double)n - 1);
    close_rig();
}

static void an_answer_that_was_waited_for_in_vain_is_owed_until_it_comes(void **state)
{
    (void)state;
    static const enum rig_transport doors[DOORS] = {RIG_HTTP, RIG_OAP, RIG_DIRECT};
    static const size_t owing[DOORS] = {0, 1, 1}; /* over HTTP the connection is closed instead */
    struct rig_client c[DOORS];
    struct rig_reply a;
    char name[32];
    open_rig(true, NULL, 0);
    gate_close("committer");
    for (int i = 0; i < DOORS; i++) {
        struct rig_unit u;
        rig_client_open(&rig, doors[i], &c[i]);
        assert_int_equal(ledger_client_owing(c[i].c), 0);
        snprintf(name, sizeof name, "owed-%d", i);
        rig_mint(&u, name, "acct:alice", 1);
        rig_ingest(&c[i], &(struct ledger_ingest){.units = &u.u, .n_units = 1}, 500, &a);
        assert_int_equal(a.outcome, LEDGER_UNKNOWN);
        assert_int_equal(ledger_client_owing(c[i].c), owing[i]);
    }
    gate_open();
    for (int i = 0; i < DOORS; i++) {
        AWAIT(ledger_client_owing(c[i].c) == 0);
        rig_client_close(&c[i]);
    }
    close_rig();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_full_ingress_queue_answers_429_and_keeps_what_it_has, reopen),
        cmocka_unit_test_teardown(a_full_preval_queue_drops_the_oldest_and_tells_its_caller_at_once,
                                  reopen),
        cmocka_unit_test_teardown(a_full_commit_queue_refuses_before_a_seq_is_given_and_readiness_says_so,
                                  reopen),
        cmocka_unit_test_teardown(what_no_prevalidator_took_in_time_is_answered_as_draining, reopen),
        cmocka_unit_test_teardown(what_was_sequenced_and_not_written_in_time_is_answered_as_safe_mode,
                                  reopen),
        cmocka_unit_test_teardown(too_many_frozen_generations_refuse_before_a_seq_is_given, reopen),
        cmocka_unit_test_teardown(without_a_free_job_a_request_is_refused_as_inflight, reopen),
        cmocka_unit_test_teardown(a_prevalidator_without_memory_answers_its_job_and_is_started_again,
                                  reopen),
        cmocka_unit_test_teardown(a_flush_that_hangs_is_answered_as_outcome_unknown_on_every_transport,
                                  reopen),
        cmocka_unit_test_teardown(a_caller_whose_own_time_is_up_is_told_so_on_every_transport, reopen),
        cmocka_unit_test_teardown(an_answer_that_was_waited_for_in_vain_is_owed_until_it_comes, reopen),
        cmocka_unit_test_teardown(a_full_read_queue_answers_429_at_every_door, reopen),
        cmocka_unit_test_teardown(a_full_admin_queue_answers_429, reopen),
        cmocka_unit_test_teardown(more_subscribers_than_allowed_are_refused, reopen),
        cmocka_unit_test_teardown(a_subscriber_1024_groups_behind_is_cut_and_told_where_to_resume, reopen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
