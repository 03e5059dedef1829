/*
 * A disk that hangs, and a memory that is full: what a shard in trouble refuses, what it still takes, and that the others never
 * notice. The service runs in this process on a disk of its own whose writes to one shard's segments wait at a gate.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "raw_http.h"
#include "rt/bcast.h"
#include "rt/chan.h"
#include "rt/deadline.h"
#include "services/mailbox/mailbox.h"
#include "waiting.h"

enum {
    LATE = 32,
    ENOUGH = 24, /* of them, for the breaker to judge: twenty */
    PATIENCE_MS = 30000,
    GATED_MAX = 64
};

/* ---- the disk ---- */

static struct store_disk_ops gated_ops;
static const struct store_disk_ops *plain_ops;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool gate_closed, making_stopped, no_space;
static int writes_left = -1; /* of groups, to the gated files, before one fails; -1: none does */
static struct store_file *gated[GATED_MAX];
static size_t gated_n;

static enum err open_noting(struct store_disk *d, const char *path, unsigned flags, struct store_file **out)
{
    enum err e = plain_ops->open(d, path, flags, out);
    if (e == ERR_OK && strstr(path, "/s00/") && strstr(path, ".seg") && (flags & STORE_WRITE)) {
        pthread_mutex_lock(&gate);
        assert_true(gated_n < GATED_MAX);
        gated[gated_n++] = *out;
        pthread_mutex_unlock(&gate);
    }
    return e;
}

static enum err close_noting(struct store_file *f)
{
    pthread_mutex_lock(&gate);
    for (size_t i = 0; i < gated_n; i++)
        if (gated[i] == f)
            gated[i] = gated[--gated_n];
    pthread_mutex_unlock(&gate);
    return plain_ops->close(f);
}

static enum err pwrite_at_the_gate(struct store_file *f, const void *p, size_t n, uint64_t at)
{
    bool mine = false;
    pthread_mutex_lock(&gate);
    for (size_t i = 0; i < gated_n; i++)
        mine = mine || gated[i] == f;
    while (mine && gate_closed)
        pthread_cond_wait(&gate_moved, &gate);
    bool group = mine && n > 4 && memcmp(p, "RLF1", 4) == 0, fails = group && writes_left == 0;
    if (group && writes_left > 0)
        writes_left--;
    pthread_mutex_unlock(&gate);
    return fails ? ERR_IO : plain_ops->pwrite(f, p, n, at);
}

/* Where a new segment is made. */
static enum err allocate_at_the_gate(struct store_file *f, uint64_t bytes)
{
    pthread_mutex_lock(&gate);
    while (making_stopped)
        pthread_cond_wait(&gate_moved, &gate);
    bool full = no_space;
    pthread_mutex_unlock(&gate);
    return full ? ERR_NO_SPACE : plain_ops->allocate(f, bytes);
}

static void move_gate(bool closed)
{
    pthread_mutex_lock(&gate);
    gate_closed = closed;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate);
}

static void stop_making(bool stopped)
{
    pthread_mutex_lock(&gate);
    making_stopped = stopped;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate);
}

static void fill_disk(bool full)
{
    pthread_mutex_lock(&gate);
    no_space = full;
    pthread_mutex_unlock(&gate);
}

static void let_writes(int n)
{
    pthread_mutex_lock(&gate);
    writes_left = n;
    pthread_mutex_unlock(&gate);
}

/* ---- the clock of the shards: the real one, and what was added to it; event loops have theirs ---- */

static _Atomic int64_t later_ms;

static int64_t later_mono(void *ctx)
{
    (void)ctx;
    return clock_mono_ns(clock_real()) + atomic_load(&later_ms) * 1000000;
}

static int64_t later_wall(void *ctx)
{
    (void)ctx;
    return clock_wall_ms(clock_real()) + atomic_load(&later_ms);
}

static const struct clock later = {later_mono, later_wall, NULL};
static struct svc_def with_clock;

static enum err open_with_clock(struct svc *s, void **out_state)
{
    enum err e = mailbox_svc.hooks.open(s, out_state);
    struct mailbox *mb = *out_state;
    if (mb)
        mb->clock = &later;
    return e;
}

/* ---- the service ---- */

struct rig {
    struct svc_data *data;
    struct store_disk *disk;
    struct svc *s;
    struct buf token;
    const char *bearer; /* its text; threads share it */
    char topic[2][32];  /* one of each shard */
};

static void topic_of(uint16_t shard, char out[32])
{
    for (int k = 0;; k++) {
        struct sha256 h;
        snprintf(out, 32, "topic/%d", k);
        mailbox_topic_hash(str_from_c(out), &h);
        if (mailbox_bucket(&h) % 2 == shard)
            return;
    }
}

RT_BLOCKS
static void rig_open(struct rig *r, bool gated_disk, const char *const *flags, size_t n)
{
    const char *why;
    memset(r, 0, sizeof *r);
    atomic_store(&later_ms, 0);
    let_writes(-1);
    fill_disk(false);
    move_gate(false);
    assert_int_equal(svc_data_open("unused", true, SVC_DATA_WHOLE, &r->data, &why), ERR_OK);
    if (gated_disk) {
        assert_int_equal(store_disk_memory(0, &r->disk), ERR_OK);
        plain_ops = r->disk->ops;
        gated_ops = *plain_ops;
        gated_ops.open = open_noting;
        gated_ops.close = close_noting;
        gated_ops.pwrite = pwrite_at_the_gate;
        gated_ops.allocate = allocate_at_the_gate;
        r->disk->ops = &gated_ops;
    }
    struct svc_options opt = {
        .data = r->data, .flags = flags, .flag_count = n, .quiet = true, .disk = r->disk};
    with_clock = mailbox_svc;
    with_clock.hooks.open = open_with_clock;
    if (svc_open(&with_clock, &opt, &r->s) != ERR_OK || svc_start(r->s) != ERR_OK)
        fail_msg("%s", svc_last_error());
    buf_init(&r->token, 8192);
    assert_int_equal(svc_data_operator_token(r->data, &r->token), ERR_OK);
    r->bearer = buf_cstr(&r->token);
    topic_of(0, r->topic[0]);
    topic_of(1, r->topic[1]);
}

RT_BLOCKS
static void rig_drained_close(struct rig *r)
{
    svc_close(r->s);
    if (r->disk)
        store_disk_destroy(r->disk);
    svc_data_close(r->data);
    buf_fini(&r->token);
}

RT_BLOCKS
static void rig_close(struct rig *r)
{
    assert_int_equal(svc_drain(r->s), 0);
    rig_drained_close(r);
}

static void request(struct rig *r, const char *path, const char *body, char *out, size_t cap)
{
    int n =
        snprintf(out, cap,
                 "POST %s HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n%s",
                 path, r->bearer, strlen(body), body);
    assert_true(n > 0 && (size_t)n < cap);
}

static void send_body(const char *topic, const char *key, char out[256])
{
    snprintf(out, 256, "{\"topic\":\"%s\",\"idem_key\":\"%s\",\"payload_b64\":\"aGVsbG8=\"}", topic, key);
}

/* One send; the problem's reason, or "" */
static int try_send(struct rig *r, int shard, const char *key, char reason[32])
{
    char body[256], text[8192];
    struct raw_response a;
    send_body(r->topic[shard], key, body);
    request(r, "/v1/send", body, text, sizeof text);
    raw_once((uint16_t)svc_port(r->s), text, &a);
    const char *at = a.body ? strstr(a.body, "\"reason\":\"") : NULL;
    reason[0] = 0;
    if (at)
        sscanf(at + 10, "%31[a-z_]", reason);
    int status = a.status;
    raw_free(&a);
    return status;
}

/* Sends (a fresh key each time) until the answer is this one. */
static void await_send(struct rig *r, int shard, int status, const char *reason)
{
    static int n;
    char key[32], why[32];
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    int got;
    do {
        snprintf(key, sizeof key, "await-%d", n++);
        got = try_send(r, shard, key, why);
        if (got == status && strcmp(why, reason) == 0)
            return;
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* not faster than a caller would */
    } while (!deadline_passed(by));
    fail_msg("wanted %d %s, got %d %s", status, reason, got, why);
}

/* A list does not wait for the shard that hangs: it lacks it, and says so. */
static void list_topics_without_the_first(struct rig *r)
{
    char text[8192];
    struct raw_response a;
    snprintf(text, sizeof text, "GET /v1/topics HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer %s\r\n\r\n",
             r->bearer);
    raw_once((uint16_t)svc_port(r->s), text, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, r->topic[1]));
    assert_null(strstr(a.body, r->topic[0]));
    assert_non_null(strstr(a.body, "\"missing\":[{\"shard\":0,\"code\":\"unavailable\""));
    raw_free(&a);
}

/* ---- tests ---- */

RT_BLOCKS
static void a_shard_that_hangs_in_a_write_is_left_alone_and_its_breaker_opens_and_closes(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "bind=127.0.0.1:0",           "ready_shards=2",    "uds=", "http.threads=1",
        "storage.segment_bytes=4MiB", "request_timeout=3s"};
    static struct raw_conn late[LATE];
    struct rig r;
    char body[256], text[8192], why[32];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    assert_int_equal(try_send(&r, 0, "before", why), 200);
    assert_int_equal(try_send(&r, 1, "before", why), 200);

    for (int i = 0; i < LATE; i++)
        raw_connect(&late[i], (uint16_t)svc_port(r.s));
    move_gate(true);
    for (int i = 0; i < LATE; i++) { /* taken while nobody knows yet that the disk hangs */
        char key[32];
        snprintf(key, sizeof key, "late-%d", i);
        send_body(r.topic[0], key, body);
        request(&r, "/v1/send", body, text, sizeof text);
        raw_puts(&late[i], text);
    }
    AWAIT(atomic_load(&mb->lanes[0].jobs) >= ENOUGH);
    await_send(&r, 0, 503, "stalled");
    assert_int_equal(try_send(&r, 1, "meanwhile", why), 200); /* shards never wait for one another */
    list_topics_without_the_first(&r);
    int64_t since = atomic_load(&mb->lanes[0].busy_since_ns);
    assert_true(since != 0);
    /* What came before the stall was noticed has waited too long as well, for the breaker and for those who asked. */
    AWAIT(clock_mono_ns(mb->clock) - since > 2 * INT64_C(1000000) * (MAILBOX_STALL_MS + 100));

    move_gate(false);
    for (int i = 0; i < LATE; i++) { /* every one of them is answered, late */
        struct raw_response a;
        raw_read(&late[i], false, &a);
        assert_true(a.status == 200 || a.status == 503);
        raw_free(&a);
        raw_close(&late[i]);
    }
    await_send(&r, 0, 503, "breaker");
    AWAIT(obs_counter_value(OBS_COUNTER_OF(mb->m[MAILBOX_M_io_timeouts], "send")) >= ENOUGH);
    assert_int_equal(try_send(&r, 1, "unconcerned", why), 200); /* there is a breaker per shard */
    await_send(&r, 0, 200, "");                                 /* half open, three probes, closed */
    for (int i = 0; i < 8; i++) {
        char key[32];
        snprintf(key, sizeof key, "after-%d", i);
        assert_int_equal(try_send(&r, 0, key, why), 200);
    }
    rig_close(&r);
}

/* The reprocessor serves the operators of all shards: one that does not answer gets its ten seconds, and the others go on. */
RT_BLOCKS
static void an_operator_of_a_shard_that_hangs_holds_the_others_up_for_ten_seconds_at_most(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "bind=127.0.0.1:0",           "ready_shards=2",    "uds=", "http.threads=1",
        "storage.segment_bytes=4MiB", "request_timeout=3s"};
    static struct raw_conn late, hung;
    struct rig r;
    struct raw_response a;
    char body[256], text[8192], why[32];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    assert_int_equal(try_send(&r, 0, "before", why), 200);
    assert_int_equal(try_send(&r, 1, "before", why), 200);
    raw_connect(&late, (uint16_t)svc_port(r.s));
    raw_connect(&hung, (uint16_t)svc_port(r.s));
    move_gate(true);
    send_body(r.topic[0], "late", body);
    request(&r, "/v1/send", body, text, sizeof text);
    raw_puts(&late, text);
    AWAIT(atomic_load(&mb->lanes[0].busy_since_ns) != 0);
    snprintf(body, sizeof body, "{\"topic\":\"%s\",\"all\":true}", r.topic[0]);
    request(&r, "/v1/dlq/purge", body, text, sizeof text);
    raw_puts(&hung, text);
    AWAIT(atomic_load(&mb->lanes[0].jobs) >= 2); /* it waits for the shard */
    snprintf(body, sizeof body, "{\"topic\":\"%s\",\"all\":true}", r.topic[1]);
    request(&r, "/v1/dlq/purge", body, text, sizeof text);
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    int status;
    do {
        raw_once((uint16_t)svc_port(r.s), text, &a);
        status = a.status;
        raw_free(&a);
    } while (status != 200 && !deadline_passed(by));
    assert_int_equal(status, 200);
    assert_true(atomic_load(&mb->lanes[0].busy_since_ns) != 0); /* it still hangs */
    move_gate(false);
    raw_read(&late, false, &a);
    raw_free(&a);
    raw_close(&late);
    raw_read(&hung, false, &a);
    assert_int_equal(a.status, 503);
    raw_free(&a);
    raw_close(&hung);
    rig_close(&r);
}

/* Nearly full is not yet worth a word; nearly full for five seconds is. */
RT_BLOCKS
static void a_queue_that_stays_nearly_full_degrades_the_service_after_five_seconds(void **state)
{
    (void)state;
    enum { PLACES = 16, MOST = PLACES - PLACES / 16 };
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2",    "uds=",
                                        "http.threads=1",   "shard_capacity=16", "topic_share=100"};
    static struct raw_conn late[MOST];
    struct rig r;
    char body[256], text[8192], why[32];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    const struct obs_health *h = svc_health(r.s);
    assert_int_equal(try_send(&r, 0, "before", why), 200);
    AWAIT(obs_health_ok(h, mb->cause_saturated));
    move_gate(true);
    int64_t began = clock_mono_ns(mb->clock);
    for (int i = 0; i < MOST; i++) {
        char key[32];
        snprintf(key, sizeof key, "late-%d", i);
        send_body(r.topic[0], key, body);
        request(&r, "/v1/send", body, text, sizeof text);
        raw_connect(&late[i], (uint16_t)svc_port(r.s));
        raw_puts(&late[i], text);
    }
    AWAIT(!obs_health_ok(h, mb->cause_saturated));
    assert_true(clock_mono_ns(mb->clock) - began >= (int64_t)MAILBOX_CROWDED_MS * 1000000);
    move_gate(false);
    for (int i = 0; i < MOST; i++) {
        struct raw_response a;
        raw_read(&late[i], false, &a);
        raw_free(&a);
        raw_close(&late[i]);
    }
    AWAIT(obs_health_ok(h, mb->cause_saturated));
    rig_close(&r);
}

/* The scanner goes on telling a shard that something is due; one tick is enough, what comes after it meets a full queue. */
RT_BLOCKS
static void a_tick_that_finds_its_queue_full_is_counted_and_costs_nothing(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0",
                                        "ready_shards=2",
                                        "uds=",
                                        "http.threads=1",
                                        "shard_capacity=4",
                                        "scanner.min_wake=10ms",
                                        "storage.segment_bytes=4MiB",
                                        "request_timeout=5s"};
    struct rig r;
    struct raw_conn hung;
    struct raw_response a;
    char body[256], text[8192], key[32];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    struct mailbox_lane *l = &mb->lanes[0];
    struct obs_counter *full = obs_counter(mb->m[MAILBOX_M_requeue_backoff]);
    assert_int_equal(obs_counter_value(full), 0);
    for (int round = 0;; round++) { /* again, should the message have become due before the disk hangs */
        snprintf(body, sizeof body,
                 "{\"topic\":\"%s\",\"idem_key\":\"due-%d\",\"payload_b64\":\"\",\"delay_ms\":1000}",
                 r.topic[0], round);
        request(&r, "/v1/send", body, text, sizeof text);
        raw_once((uint16_t)svc_port(r.s), text, &a);
        assert_int_equal(a.status, 200);
        raw_free(&a);
        raw_connect(&hung, (uint16_t)svc_port(r.s));
        move_gate(true);
        snprintf(key, sizeof key, "hung-%d", round);
        send_body(r.topic[0], key, body);
        request(&r, "/v1/send", body, text, sizeof text);
        raw_puts(&hung, text);
        AWAIT(atomic_load(&l->busy_since_ns) != 0);
        if (atomic_load(&l->next_due_us) != INT64_MAX)
            break;
        move_gate(false);
        raw_read(&hung, false, &a);
        raw_free(&a);
        raw_close(&hung);
    }
    AWAIT(obs_counter_value(full) >= 2);
    assert_int_equal(rt_chan_depth(l->requeue), 1);
    assert_true(obs_counter_value(OBS_COUNTER_OF(mb->m[MAILBOX_M_backoff_retries], "requeue")) >= 2);
    move_gate(false);
    raw_read(&hung, false, &a);
    raw_free(&a);
    raw_close(&hung);
    AWAIT(atomic_load(&l->count[MAILBOX_READY]) >= 2 && rt_chan_depth(l->requeue) == 0);
    rig_close(&r);
}

RT_BLOCKS
static void events_that_a_slow_listener_lost_are_counted_one_by_one(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2", "uds=", "http.threads=1"};
    enum { EVENTS = 1024, LOST = 76 };
    struct rig r;
    char why[32];
    void *note;
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    assert_int_equal(try_send(&r, 0, "first", why), 200);
    AWAIT(obs_gauge_value(OBS_GAUGE_OF(mb->m[MAILBOX_M_topics], "0")) >= 1); /* the exporter is at work */
    assert_int_equal(obs_counter_value(obs_counter(mb->m[MAILBOX_M_bus_lagged])), 0);
    struct rt_bcast_sub *slow = rt_bcast_subscribe(mb->events, NULL, NULL);
    assert_non_null(slow);
    for (int i = 0; i < EVENTS + LOST; i++)
        mailbox_tell(mb, 0, &(struct mailbox_event){.kind = MAILBOX_EV_REPROCESS_DONE});
    assert_int_equal(rt_bcast_try_recv(slow, &note), ERR_LAGGED);
    assert_int_equal(rt_bcast_take_lost(slow), LOST);
    AWAIT(obs_counter_value(obs_counter(mb->m[MAILBOX_M_bus_lagged])) == LOST);
    AWAIT(obs_counter_value(OBS_COUNTER_OF(mb->m[MAILBOX_M_queue_dropped], "events_tx")) == LOST);
    rt_bcast_unsubscribe(slow);
    rig_close(&r);
}

struct sender {
    struct rig *r;
    atomic_int answered, refused; /* refused: the last status that was not 200 */
};

enum { LARGE_SENDS = 64 }; /* of 300 kB: more than the segments that are there, of 4 MiB */

static void *send_large(void *arg)
{
    enum { CHARS = 400000, LINE = CHARS + 8192, TEXT = 2 * LINE };
    struct sender *s = arg;
    char *body = malloc(LINE), *text = malloc(TEXT);
    assert_true(body && text);
    for (int i = 0; i < LARGE_SENDS; i++) {
        struct raw_response a;
        int n = snprintf(body, LINE, "{\"topic\":\"%s\",\"idem_key\":\"large-%d\",\"payload_b64\":\"",
                         s->r->topic[0], i);
        memset(body + n, 'A', CHARS);
        strcpy(body + n + CHARS, "\"}");
        request(s->r, "/v1/send", body, text, TEXT);
        raw_once((uint16_t)svc_port(s->r->s), text, &a);
        if (a.status != 200)
            atomic_store(&s->refused, a.status);
        atomic_fetch_add(&s->answered, 1);
        raw_free(&a);
    }
    free(body);
    free(text);
    return NULL;
}

/* A segment that is not there yet is not a full disk: who sends waits for it. */
RT_BLOCKS
static void sends_wait_for_the_next_segment_while_it_is_made(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "bind=127.0.0.1:0",           "ready_shards=2",    "uds=", "http.threads=1",
        "storage.segment_bytes=4MiB", "request_timeout=1m"};
    struct rig r;
    char why[32];
    pthread_t thread;
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    struct sender s = {.r = &r};
    assert_int_equal(try_send(&r, 0, "before", why), 200);
    stop_making(true);
    assert_int_equal(pthread_create(&thread, NULL, send_large, &s), 0);
    AWAIT(atomic_load(&s.answered) == LARGE_SENDS || atomic_load(&mb->lanes[0].awaits_segment));
    assert_true(atomic_load(&s.answered) < LARGE_SENDS);
    assert_int_equal(try_send(&r, 1, "meanwhile", why), 200); /* the other shard has room */
    assert_false(atomic_load(&mb->lanes[0].disk_full));
    stop_making(false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&s.refused), 0);
    rig_close(&r);
}

enum { LEASES = 512, LEASE_BATCH = 256 };

struct settler {
    struct rig *r;
    char ids[LEASES][37];
    int n;
    atomic_int acked, refused; /* refused: the last status that was not 200 */
};

static void lease_many(struct settler *s)
{
    enum { ROOM = LEASE_BATCH * 1024 };
    char body[256], text[8192], why[32];
    for (int i = 0; i < LEASES; i++) {
        snprintf(body, sizeof body, "lease-%d", i);
        assert_int_equal(try_send(s->r, 0, body, why), 200);
    }
    while (s->n < LEASES) {
        struct raw_response a;
        snprintf(body, sizeof body, "{\"topic\":\"%s\",\"visibility_ms\":600000,\"max_messages\":%d}",
                 s->r->topic[0], LEASE_BATCH);
        request(s->r, "/v1/recv", body, text, sizeof text);
        raw_once((uint16_t)svc_port(s->r->s), text, &a);
        assert_int_equal(a.status, 200);
        for (const char *at = a.body; (at = strstr(at, "\"msg_id\":\"")) != NULL; s->n++) {
            assert_true(s->n < LEASES);
            snprintf(s->ids[s->n], 37, "%.36s", at += 10);
        }
        raw_free(&a);
    }
}

/* One by one: each makes a frame of its own, until not even that has room. */
static void *ack_all(void *arg)
{
    struct settler *s = arg;
    char path[64], text[8192];
    for (int i = 0; i < s->n; i++) {
        struct raw_response a;
        snprintf(path, sizeof path, "/v1/ack/%s", s->ids[i]);
        request(s->r, path, "", text, sizeof text);
        raw_once((uint16_t)svc_port(s->r->s), text, &a);
        if (a.status != 200)
            atomic_store(&s->refused, a.status);
        atomic_fetch_add(&s->acked, 1);
        raw_free(&a);
    }
    return NULL;
}

/* As with several nodes: an ack is answered when it is written. While there is no room for it, it waits; the shard has not failed. */
RT_BLOCKS
static void settlements_that_must_be_written_wait_for_the_next_segment(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "bind=127.0.0.1:0",           "ready_shards=2",    "uds=", "http.threads=1",
        "storage.segment_bytes=4MiB", "request_timeout=1m"};
    struct rig r;
    pthread_t sending, settling;
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    struct mailbox_lane *l = &mb->lanes[0];
    struct sender s = {.r = &r};
    struct settler *k = calloc(1, sizeof *k);
    assert_non_null(k);
    k->r = &r;
    mb->settles_flushed = true;
    lease_many(k);
    stop_making(true);
    assert_int_equal(pthread_create(&sending, NULL, send_large, &s), 0);
    AWAIT(atomic_load(&l->awaits_segment));
    assert_int_equal(pthread_create(&settling, NULL, ack_all, k), 0);
    AWAIT(atomic_load(&l->readonly) || atomic_load(&k->acked) == LEASES ||
          !store_journal_fits(l->log.journal, 1));
    assert_true(atomic_load(&k->acked) < LEASES);
    AWAIT(atomic_load(&l->readonly) ||
          atomic_load(&l->jobs) >= 2); /* a send, and an ack for which there is no room */
    assert_false(atomic_load(&l->readonly));
    stop_making(false);
    assert_int_equal(pthread_join(settling, NULL), 0);
    assert_int_equal(pthread_join(sending, NULL), 0);
    assert_int_equal(atomic_load(&k->refused), 0);
    assert_int_equal(atomic_load(&s.refused), 0);
    assert_false(atomic_load(&l->readonly));
    free(k);
    rig_close(&r);
}

/* Receives and acks until nothing is left; how many there were. */
static int empty_topic(struct rig *r, const char *topic)
{
    char body[256], text[8192];
    int n = 0;
    for (;;) {
        struct raw_response a;
        snprintf(body, sizeof body, "{\"topic\":\"%s\",\"max_messages\":1}", topic);
        request(r, "/v1/recv", body, text, sizeof text);
        raw_once((uint16_t)svc_port(r->s), text, &a);
        assert_int_equal(a.status, 200);
        const char *id = strstr(a.body, "\"msg_id\":\"");
        char path[64];
        if (id)
            snprintf(path, sizeof path, "/v1/ack/%.36s", id + 10);
        raw_free(&a);
        if (!id)
            return n;
        request(r, path, "", text, sizeof text);
        raw_once((uint16_t)svc_port(r->s), text, &a);
        assert_int_equal(a.status, 200);
        raw_free(&a);
        n++;
    }
}

RT_BLOCKS
static void fill_and_empty(const char *const *flags, size_t flags_n, int64_t bound)
{
    enum { CHARS = 400000, LINE = CHARS + 8192, TEXT = 2 * LINE };
    struct rig r;
    char *body = malloc(LINE), *text = malloc(TEXT);
    assert_true(body && text);
    rig_open(&r, false, flags, flags_n);
    int accepted = 0;
    bool quota = false;
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (!quota) {
        struct raw_response a;
        assert_false(deadline_passed(by));
        int n = snprintf(body, LINE, "{\"topic\":\"%s\",\"idem_key\":\"fill-%d\",\"payload_b64\":\"",
                         r.topic[0], accepted);
        memset(body + n, 'A', CHARS);
        strcpy(body + n + CHARS, "\"}");
        request(&r, "/v1/send", body, text, TEXT);
        raw_once((uint16_t)svc_port(r.s), text, &a);
        if (a.status == 200) {
            accepted++;
            assert_true((int64_t)accepted * (CHARS / 4 * 3) < bound);
        } else { /* or the rebalancer was the first to see that there is no room for a segment */
            quota = a.status == 429 && strstr(a.body, "\"disk_quota\"") != NULL;
            assert_true(quota || (a.status == 503 && strstr(a.body, "\"disk_full\"")));
        }
        raw_free(&a);
    }
    assert_true((int64_t)accepted * (CHARS / 4 * 3) > bound / 4); /* it is a bound, not a famine */
    int got = empty_topic(&r, r.topic[0]); /* what waits can still be taken and settled */
    assert_int_equal(got, accepted);
    await_send(&r, 0, 200, "");
    rig_close(&r);
    free(body);
    free(text);
}

RT_BLOCKS
static void memory_without_files_is_bounded_and_room_comes_back_by_itself(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0",
                                        "ready_shards=1",
                                        "uds=",
                                        "http.threads=1",
                                        "storage.segment_bytes=4MiB",
                                        "storage.amnesia_bytes=24MiB",
                                        "t_replay=10ms",
                                        "default_visibility=5s"};
    fill_and_empty(flags, sizeof flags / sizeof *flags, INT64_C(24) << 20);
}

/* As it comes: eight shards and segments that together are larger than the memory. One shard is filled, its eighth is the bound. */
RT_BLOCKS
static void memory_for_many_shards_is_divided_so_that_none_stays_full(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0",
                                        "ready_shards=8",
                                        "uds=",
                                        "http.threads=1",
                                        "storage.amnesia_bytes=128MiB",
                                        "t_replay=10ms",
                                        "default_visibility=5s"};
    fill_and_empty(flags, sizeof flags / sizeof *flags, INT64_C(16) << 20);
}

/* ---- groups that fill up ---- */

enum { IN_BATCH = 64, BIG_CHARS = 13000, BATCH_BYTES = IN_BATCH * (BIG_CHARS + 128) + 8192 };

/* Sixty-four messages, six hundred kilobytes: two of them do not fit one group. */
static void put_batch(struct rig *r, struct raw_conn *c, const char *prefix, size_t chars)
{
    char *body = malloc(BATCH_BYTES), *text = malloc(BATCH_BYTES + 8192), *p = body;
    assert_true(body && text);
    p += sprintf(p, "{\"messages\":[");
    for (int i = 0; i < IN_BATCH; i++) {
        p += sprintf(p, "%s{\"topic\":\"%s\",\"idem_key\":\"%s-%d\",\"payload_b64\":\"", i ? "," : "",
                     r->topic[0], prefix, i);
        memset(p, 'A', chars);
        p += chars;
        p += sprintf(p, "\"}");
    }
    sprintf(p, "]}");
    request(r, "/v1/send", body, text, BATCH_BYTES + 8192);
    raw_puts(c, text);
    free(body);
    free(text);
}

static int count_in(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

/* A send whose write waits at the gate, and two batches behind it, which the worker then takes at once. */
static void queue_two_batches(struct rig *r, struct raw_conn c[3], int round)
{
    struct mailbox *mb = svc_state(r->s);
    char body[256], text[8192], key[32];
    for (int i = 0; i < 3; i++)
        raw_connect(&c[i], (uint16_t)svc_port(r->s));
    move_gate(true);
    snprintf(key, sizeof key, "first-%d", round);
    send_body(r->topic[0], key, body);
    request(r, "/v1/send", body, text, sizeof text);
    raw_puts(&c[0], text);
    AWAIT(atomic_load(&mb->lanes[0].busy_since_ns) != 0);
    for (unsigned i = 1; i < 3; i++) {
        snprintf(key, sizeof key, "batch-%d-%u", round, i);
        put_batch(r, &c[i], key, BIG_CHARS);
        AWAIT(atomic_load(&mb->lanes[0].jobs) == i + 1);
    }
}

/* The rest of a batch that waits for the next group when this one fails is answered like what was in it; nothing is left to wait for. */
RT_BLOCKS
static void a_batch_that_a_failed_write_cuts_in_two_is_answered(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2", "uds=", "http.threads=1",
                                        "request_timeout=5s"};
    struct rig r;
    struct raw_conn c[3];
    struct raw_response a;
    char why[32];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    assert_int_equal(try_send(&r, 0, "before", why), 200);
    queue_two_batches(&r, c, 0);
    let_writes(1);
    move_gate(false);
    for (int i = 0; i < 3; i++) {
        raw_read(&c[i], false, &a);
        assert_int_equal(a.status, 200);
        assert_int_equal(count_in(a.body, "\"safe_mode\""), i ? IN_BATCH : 0);
        raw_free(&a);
        raw_close(&c[i]);
    }
    let_writes(-1);
    assert_int_equal(try_send(&r, 0, "after", why), 503);
    rig_close(&r);
}

/* With a disk that is full the rest is refused, and what was written of the batch is told as such. */
RT_BLOCKS
static void a_batch_that_a_full_disk_cuts_in_two_is_answered_one_by_one(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "bind=127.0.0.1:0",           "ready_shards=2",    "uds=", "http.threads=1",
        "storage.segment_bytes=4MiB", "request_timeout=5s"};
    struct rig r;
    struct raw_conn c[3];
    char why[32];
    int cut = 0;
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    assert_int_equal(try_send(&r, 0, "before", why), 200);
    fill_disk(true);
    for (int round = 0; !cut; round++) {
        assert_true(round < 20);
        queue_two_batches(&r, c, round);
        move_gate(false);
        for (int i = 0; i < 3; i++) {
            struct raw_response a;
            raw_read(&c[i], false, &a);
            assert_int_equal(a.status, 200);
            int kept = count_in(a.body, "\"duplicate\":false"), full = count_in(a.body, "\"disk_full\"");
            assert_int_equal(kept + full, i ? IN_BATCH : 1);
            cut += kept && full;
            raw_free(&a);
            raw_close(&c[i]);
        }
    }
    AWAIT(atomic_load(&mb->lanes[0].jobs) == 0);
    assert_int_equal(try_send(&r, 0, "before", why), 200); /* it is known: no room is needed for that */
    assert_int_equal(try_send(&r, 0, "after", why), 503);
    assert_string_equal(why, "disk_full");
    fill_disk(false);
    await_send(&r, 0, 200, "");
    rig_close(&r);
}

/* As after a stop of days: the first receive finds more dead letters than a group has room for, and behind them what is fresh. */
RT_BLOCKS
static void any_number_of_messages_that_have_waited_too_long_make_way(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2", "uds=", "http.threads=1",
                                        "retention.ready=1m"};
    enum { BATCHES = 720 };
    struct rig r;
    struct raw_conn c[3];
    struct raw_response a;
    char body[256], text[8192], key[32];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    struct mailbox_lane *l = &mb->lanes[0];
    raw_connect(&c[0], (uint16_t)svc_port(r.s));
    for (int i = 0; i < BATCHES; i++) {
        snprintf(key, sizeof key, "old-%d", i);
        put_batch(&r, &c[0], key, 0);
        raw_read(&c[0], false, &a);
        assert_int_equal(count_in(a.body, "\"duplicate\":false"), IN_BATCH);
        raw_free(&a);
    }
    raw_close(&c[0]);
    for (int i = 0; i < 3; i++)
        raw_connect(&c[i], (uint16_t)svc_port(r.s));
    move_gate(true);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s-%u", i ? "fresh" : "old", i);
        send_body(r.topic[0], key, body);
        if (i == 2)
            snprintf(body, sizeof body, "{\"topic\":\"%s\"}", r.topic[0]);
        request(&r, i == 2 ? "/v1/recv" : "/v1/send", body, text, sizeof text);
        raw_puts(&c[i], text);
        AWAIT(atomic_load(&l->jobs) == i + 1 && atomic_load(&l->busy_since_ns) != 0);
    }
    atomic_fetch_add(&later_ms,
                     120000); /* the worker stands at the gate: the receive is what it does first */
    move_gate(false);
    for (int i = 0; i < 3; i++) {
        raw_read(&c[i], false, &a);
        assert_int_equal(a.status, 200);
        assert_int_equal(count_in(a.body, "\"idem_key\":"), i == 2);
        assert_int_equal(count_in(a.body, "\"idem_key\":\"fresh-1\""), i == 2);
        raw_free(&a);
        raw_close(&c[i]);
    }
    AWAIT(atomic_load(&l->count[MAILBOX_DLQ]) == BATCHES * IN_BATCH + 1);
    rig_close(&r);
}

/* So many dead letters, by leases that end. */
static void make_dead(struct rig *r, int batches)
{
    struct mailbox_lane *l = &((struct mailbox *)svc_state(r->s))->lanes[0];
    struct raw_conn c;
    struct raw_response a;
    char body[256], text[8192], key[32];
    raw_connect(&c, (uint16_t)svc_port(r->s));
    for (int i = 0; i < batches; i++) {
        snprintf(key, sizeof key, "dead-%d", i);
        put_batch(r, &c, key, 0);
        raw_read(&c, false, &a);
        assert_int_equal(count_in(a.body, "\"duplicate\":false"), IN_BATCH);
        raw_free(&a);
    }
    snprintf(body, sizeof body, "{\"topic\":\"%s\",\"visibility_ms\":50,\"max_messages\":256}",
             r->topic[0]);
    request(r, "/v1/recv", body, text, sizeof text);
    for (int n = 1; n;) {
        raw_puts(&c, text);
        raw_read(&c, false, &a);
        n = count_in(a.body, "\"idem_key\":");
        raw_free(&a);
    }
    raw_close(&c);
    AWAIT(atomic_load(&l->count[MAILBOX_DLQ]) == (unsigned)batches * IN_BATCH);
}

/* Few that fit among many that do not: half of the time of whoever asks is over, and the page says where to go on. */
RT_BLOCKS
static void a_list_of_dead_letters_that_takes_long_ends_before_its_caller_gives_up(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2", "uds=",
                                        "http.threads=1",   "max_attempts=1", "visibility_ms_min=50ms"};
    struct rig r;
    struct raw_response a;
    char text[8192];
    rig_open(&r, true, flags, sizeof flags / sizeof *flags);
    make_dead(&r, 130); /* more than are looked at in one go */
    snprintf(text, sizeof text,
             "GET /v1/dlq?topic=%s&cause=nack HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer %s\r\n\r\n",
             r.topic[0], r.bearer);
    raw_once((uint16_t)svc_port(r.s), text, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"entries\":[]"));
    assert_null(strstr(a.body, "\"next\""));
    raw_free(&a);
    atomic_fetch_add(&later_ms, 6000); /* as long as it has taken, by the clock of whoever works on it */
    raw_once((uint16_t)svc_port(r.s), text, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"entries\":[]"));
    assert_non_null(strstr(a.body, "\"next\""));
    raw_free(&a);
    rig_close(&r);
}

/* How a round is divided shows in nothing that can be asked for; the workers have it when they have ended. */
RT_BLOCKS
static void a_reload_of_fair_quantum_reaches_every_worker(void **state)
{
    (void)state;
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2", "uds=", "http.threads=1"};
    struct rig r;
    struct buf diff;
    char why[32];
    rig_open(&r, false, flags, sizeof flags / sizeof *flags);
    struct mailbox *mb = svc_state(r.s);
    assert_int_equal(setenv("RON_MAILBOX_FAIR_QUANTUM", "3KiB", 1), 0);
    buf_init(&diff, 1 << 16);
    assert_int_equal(svc_reload(r.s, &diff), ERR_OK);
    buf_fini(&diff);
    assert_int_equal(unsetenv("RON_MAILBOX_FAIR_QUANTUM"), 0);
    for (int shard = 0; shard < 2; shard++)
        assert_int_equal(try_send(&r, shard, "after", why), 200); /* worked on under the new rules */
    assert_int_equal(svc_drain(r.s), 0);
    for (int shard = 0; shard < 2; shard++)
        assert_int_equal(mb->lanes[shard].fair.quantum, 3 << 10);
    rig_drained_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_that_hangs_in_a_write_is_left_alone_and_its_breaker_opens_and_closes),
        cmocka_unit_test(an_operator_of_a_shard_that_hangs_holds_the_others_up_for_ten_seconds_at_most),
        cmocka_unit_test(a_queue_that_stays_nearly_full_degrades_the_service_after_five_seconds),
        cmocka_unit_test(a_tick_that_finds_its_queue_full_is_counted_and_costs_nothing),
        cmocka_unit_test(events_that_a_slow_listener_lost_are_counted_one_by_one),
        cmocka_unit_test(sends_wait_for_the_next_segment_while_it_is_made),
        cmocka_unit_test(settlements_that_must_be_written_wait_for_the_next_segment),
        cmocka_unit_test(memory_without_files_is_bounded_and_room_comes_back_by_itself),
        cmocka_unit_test(memory_for_many_shards_is_divided_so_that_none_stays_full),
        cmocka_unit_test(a_batch_that_a_failed_write_cuts_in_two_is_answered),
        cmocka_unit_test(a_batch_that_a_full_disk_cuts_in_two_is_answered_one_by_one),
        cmocka_unit_test(any_number_of_messages_that_have_waited_too_long_make_way),
        cmocka_unit_test(a_list_of_dead_letters_that_takes_long_ends_before_its_caller_gives_up),
        cmocka_unit_test(a_reload_of_fair_quantum_reaches_every_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
