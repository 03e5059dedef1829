/*
 * One contract, every transport: the same suite runs against http, oap (each over TCP and a Unix socket) and direct, on a real
 * ledger; then what only a wire can do to a caller: nobody there, a cut, silence, a second server on the old address.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "ledger_rig.h"

static struct ledger_rig rig;
static struct rig_client client;

static int open_ledger(void **state)
{
    (void)state;
    ledger_rig_open(&rig, true, NULL, 0);
    return 0;
}

static int close_ledger(void **state)
{
    (void)state;
    ledger_rig_close(&rig);
    return 0;
}

static const char *own(char out[64], const char *what, enum rig_transport t)
{
    snprintf(out, 64, "%s%d", what, (int)t);
    return out;
}

static void
a_unit_is_committed_and_the_same_again_is_a_duplicate_with_the_first_result(enum rig_transport t)
{
    char name[64], account[64];
    struct rig_unit u;
    struct rig_reply first, again;
    rig_mint(&u, own(name, "dup", t), own(account, "acct:dup", t), 1000);
    u.u.meta = bytes_of("hello", 5);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1, .balances = true, .proof = true};
    rig_ingest(&client, &rq, 5000, &first);
    assert_int_equal(first.outcome, LEDGER_ANSWERED);
    assert_int_equal(first.err, ERR_OK);
    assert_int_equal(first.n, 1);
    assert_int_equal(first.v[0].status, LEDGER_COMMITTED);
    assert_string_equal(first.v[0].idem_id, u.idem);
    assert_int_equal(first.v[0].seq_start, first.v[0].seq_end);
    assert_true(first.v[0].tree_size >= first.v[0].seq_end);
    assert_int_equal(first.v[0].n_leaf_hashes, 1);
    assert_int_equal(first.v[0].n_balances, 1);
    assert_int_equal((uint64_t)first.v[0].available0.units, 1000);
    assert_int_equal(first.v[0].n_proofs, 1);
    assert_true(strstr(first.v[0].checkpoint, "\n\n") != NULL);

    rig_ingest(&client, &rq, 5000, &again);
    assert_int_equal(again.outcome, LEDGER_ANSWERED);
    assert_int_equal(again.v[0].status, LEDGER_DUPLICATE);
    assert_int_equal(again.v[0].seq_start, first.v[0].seq_start);
    assert_int_equal(again.v[0].tree_size, first.v[0].tree_size);
    assert_memory_equal(&again.v[0].root, &first.v[0].root, 32);
    assert_memory_equal(&again.v[0].leaf0, &first.v[0].leaf0, 32);
    assert_string_equal(again.v[0].id0, u.id);
    assert_string_equal(again.v[0].checkpoint, first.v[0].checkpoint);
}

static void each_unit_of_a_request_has_its_result_in_order(enum rig_transport t)
{
    char name[64], account[64], pay[64], much[64];
    struct rig_unit u[3];
    struct rig_reply a;
    own(account, "acct:mix", t);
    rig_mint(&u[0], own(name, "mix", t), account, 100);
    rig_pay(&u[1], own(pay, "mixp", t), account, "acct:shop", 30, 1);
    rig_pay(&u[2], own(much, "mixq", t), account, "acct:shop", 9999, 2);
    struct ledger_unit units[3] = {u[0].u, u[1].u, u[2].u};
    struct ledger_ingest rq = {.units = units, .n_units = 3, .balances = true};
    rig_ingest(&client, &rq, 5000, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_int_equal(a.status, t == RIG_DIRECT ? 200 : 207);
    assert_int_equal(a.n, 3);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    assert_int_equal(a.v[1].status, LEDGER_COMMITTED);
    assert_int_equal(a.v[1].seq_start, a.v[0].seq_end + 1);
    assert_int_equal(a.v[1].n_balances, 2);
    assert_int_equal(a.v[2].status, LEDGER_REJECTED);
    assert_int_equal(a.v[2].reason, ERR_INSUFFICIENT_FUNDS);
    assert_false(a.v[2].retryable);
    assert_non_null(strstr(a.v[2].details, "\"available\":\"70\""));
}

/* The whole request is refused for one reason: still an answer, with a result for the unit. */
static void a_request_refused_for_one_reason_is_answered_with_the_reason(enum rig_transport t)
{
    char name[64], account[64];
    struct rig_unit u;
    struct rig_reply a;
    rig_pay(&u, own(name, "gap", t), own(account, "acct:none", t), "acct:shop", 1, 7);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, 5000, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.v[0].status, LEDGER_REJECTED);
    assert_int_equal(a.v[0].reason, ERR_NONCE_GAP);
    assert_true(a.v[0].retryable);
    assert_non_null(strstr(a.v[0].details, "\"got\":\"7\""));
}

static void a_malformed_request_is_refused_definitely(enum rig_transport t)
{
    char name[64];
    struct rig_unit u;
    struct rig_reply a;
    rig_mint(&u, own(name, "bad", t), "not an account", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, 5000, &a);
    assert_int_equal(a.outcome, LEDGER_REFUSED);
    assert_int_equal(a.err, ERR_BAD_REQUEST);
    assert_int_equal(a.status, 400);
    assert_int_equal(a.n, 0);
}

static void a_unit_is_found_by_its_idem_id_and_a_missing_one_tells_ledger_time(enum rig_transport t)
{
    char name[64], account[64];
    struct rig_unit u;
    struct rig_reply a;
    rig_mint(&u, own(name, "unit", t), own(account, "acct:unit", t), 5);
    u.u.meta = bytes_of("meta!", 5);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, 5000, &a);
    uint64_t seq = a.v[0].seq_start;
    rig_unit(&client, u.idem, 0, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_true(a.found);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    assert_int_equal(a.v[0].seq_start, seq);
    assert_int_equal(a.v[0].n_entries, 1);
    assert_string_equal(a.v[0].id0, u.id);
    assert_string_equal(a.v[0].meta, "meta!");
    rig_unit(&client, "t:no such unit", 0, &a);
    assert_int_equal(a.outcome, LEDGER_REFUSED); /* a blank is in no id */
    rig_unit(&client, "t:no-such-unit", 0, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_int_equal(a.err, ERR_OK);
    assert_false(a.found);
    assert_true(a.ledger_ms > 1700000000000);
}

static void
an_account_shows_balances_and_nonces_and_refuses_a_seq_that_is_still_to_come(enum rig_transport t)
{
    char name[64], account[64], pay[64];
    struct rig_unit u[2];
    struct rig_reply a;
    own(account, "acct:read", t);
    rig_mint(&u[0], own(name, "readm", t), account, 90);
    rig_pay(&u[1], own(pay, "readp", t), account, "acct:shop", 40, (uint64_t)3 << 48 | 1);
    struct ledger_unit units[2] = {u[0].u, u[1].u};
    struct ledger_ingest rq = {.units = units, .n_units = 2};
    rig_ingest(&client, &rq, 5000, &a);
    uint64_t seq = a.v[1].seq_end;
    rig_account(&client, account, seq, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_int_equal(a.n, 1);
    assert_int_equal((uint64_t)a.available.units, 50);
    assert_int_equal(a.n_lanes, 1);
    assert_int_equal(a.last_nonce, (uint64_t)3 << 48 | 1);
    assert_true(a.seq >= seq);
    rig_account(&client, "acct:nobody", 0, &a);
    assert_int_equal(a.outcome, LEDGER_ANSWERED);
    assert_int_equal(a.n, 0);
    rig_account(&client, account, 1000000, &a);
    assert_int_equal(a.outcome, LEDGER_REFUSED);
    assert_int_equal(a.err, ERR_BEHIND);
}

static void entries_are_read_one_by_one_and_in_a_row(enum rig_transport t)
{
    char name[64], account[64], hold[64];
    struct rig_unit u[2];
    struct rig_reply a, b;
    own(account, "acct:ent", t);
    rig_mint(&u[0], own(name, "entm", t), account, 90);
    rig_pay(&u[1], own(hold, "enth", t), account, "", 25, 1);
    u[1].e.kind = LEDGER_HOLD;
    struct ledger_unit units[2] = {u[0].u, u[1].u};
    struct ledger_ingest rq = {.units = units, .n_units = 2};
    rig_ingest(&client, &rq, 5000, &a);
    uint64_t seq = a.v[1].seq_start;
    rig_entry(&client, u[1].id, &b);
    assert_int_equal(b.outcome, LEDGER_ANSWERED);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.seq, seq);
    assert_true(b.open);
    assert_int_equal((uint64_t)b.held.units, 25);
    assert_string_equal(b.v[0].idem_id, u[1].idem);
    assert_memory_equal(&b.hash, &a.v[1].leaf0, 32);
    assert_non_null(strstr(b.leaf, "\"kind\":\"hold\""));
    rig_entries(&client, seq - 1, 1, &b);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.seq, seq - 1);
    assert_int_equal(b.next, seq);
    rig_entries(&client, seq, 1000, &b);
    assert_int_equal(b.outcome, LEDGER_ANSWERED);
    assert_int_equal(b.next, 0);
    rig_entry(&client, "e-none", &b);
    assert_int_equal(b.outcome, LEDGER_REFUSED);
    assert_int_equal(b.err, ERR_NOT_FOUND);
}

static void roots_proofs_and_head_agree_with_each_other(enum rig_transport t)
{
    char name[64];
    struct rig_unit u;
    struct rig_reply a, head, roots, proof;
    rig_mint(&u, own(name, "root", t), "acct:root", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, 5000, &a);
    rig_head(&client, 5000, &head);
    assert_int_equal(head.outcome, LEDGER_ANSWERED);
    assert_true(head.ready);
    assert_int_equal(head.seq, a.v[0].tree_size);
    assert_memory_equal(&head.root, &a.v[0].root, 32);
    assert_true(head.group_no > 0);
    assert_true(head.ledger_ms > 1700000000000);
    rig_roots(&client, head.seq - 1, 10, &roots);
    assert_int_equal(roots.n, 1);
    assert_int_equal(roots.seq, head.seq);
    assert_int_equal(roots.next, head.seq);
    assert_int_equal(roots.group_no, head.group_no);
    assert_memory_equal(&roots.root, &head.root, 32);
    rig_proof(&client, 1, 0, &proof);
    assert_int_equal(proof.outcome, LEDGER_ANSWERED);
    assert_int_equal(proof.size, head.seq);
    assert_memory_equal(&proof.root, &head.root, 32);
    assert_true(head.seq == 1 || proof.n_path > 0);
    assert_non_null(strstr(proof.leaf, "\n\n"));
    rig_consistency(&client, 1, head.seq, &proof);
    assert_int_equal(proof.outcome, LEDGER_ANSWERED);
    assert_int_equal(proof.seq, 1);
    assert_int_equal(proof.size, head.seq);
    assert_memory_equal(&proof.root, &head.root, 32);
    rig_proof(&client, 1, head.seq + 1000, &proof);
    assert_int_equal(proof.outcome, LEDGER_REFUSED);
    assert_int_equal(proof.err, ERR_NOT_FOUND);
}

/* ---- feed ---- */

struct feed_seen {
    pthread_mutex_t mutex;
    bool open, ended;
    uint64_t seq;
    unsigned commits;
    char account[130];
};

static void feed_open(void *ctx)
{
    struct feed_seen *s = ctx;
    pthread_mutex_lock(&s->mutex);
    s->open = true;
    pthread_mutex_unlock(&s->mutex);
}

static void feed_commit(void *ctx, const struct ledger_commit_event *ev)
{
    struct feed_seen *s = ctx;
    pthread_mutex_lock(&s->mutex);
    s->commits++;
    s->seq = ev->seq_end;
    if (ev->n_accounts != 0)
        snprintf(s->account, sizeof s->account, "%.*s", STR_ARG(ev->accounts[0]));
    pthread_mutex_unlock(&s->mutex);
}

static void feed_end(void *ctx, enum err why)
{
    (void)why;
    struct feed_seen *s = ctx;
    pthread_mutex_lock(&s->mutex);
    s->ended = true;
    pthread_mutex_unlock(&s->mutex);
}

static const struct ledger_feed_sink sink = {feed_open, feed_commit, feed_end};

static void a_feed_opens_without_news_tells_commits_and_stops_for_good(enum rig_transport t)
{
    char name[64], account[64];
    struct rig_unit u;
    struct rig_reply a;
    struct feed_seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct deadline by = deadline_in_ms(30000);
    rig_head(&client, 5000, &a);
    struct ledger_feed *f = ledger_client_feed(client.c, a.seq, &sink, &seen);
    assert_non_null(f);
    for (bool open = false; !open;) {
        pthread_mutex_lock(&seen.mutex);
        open = seen.open;
        pthread_mutex_unlock(&seen.mutex);
        assert_false(deadline_passed(by));
    }
    rig_mint(&u, own(name, "feed", t), own(account, "acct:feed", t), 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, 5000, &a);
    for (uint64_t seq = 0; seq < a.v[0].seq_end;) {
        pthread_mutex_lock(&seen.mutex);
        seq = seen.seq;
        pthread_mutex_unlock(&seen.mutex);
        assert_false(deadline_passed(by));
    }
    assert_string_equal(seen.account, account);
    ledger_client_feed_stop(client.c, f);
    assert_false(seen.ended);
    unsigned before = seen.commits;
    rig_mint(&u, own(name, "feed2-", t), account, 1);
    rig_ingest(&client, &rq, 5000, &a);
    assert_int_equal(seen.commits, before);
}

static void many_calls_at_once_are_all_answered(enum rig_transport t);

struct crowd {
    pthread_mutex_t mutex;
    unsigned committed, others;
};

static void crowd_done(void *ctx, const struct ledger_ingest_reply *r)
{
    struct crowd *c = ctx;
    pthread_mutex_lock(&c->mutex);
    if (r->a.outcome == LEDGER_ANSWERED && r->n_results == 1 && r->results[0].status == LEDGER_COMMITTED)
        c->committed++;
    else
        c->others++;
    pthread_mutex_unlock(&c->mutex);
}

static void many_calls_at_once_are_all_answered(enum rig_transport t)
{
    enum { MANY = 60 };
    struct crowd c = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct deadline by = deadline_in_ms(30000);
    for (int i = 0; i < MANY; i++) {
        char name[64];
        struct rig_unit u;
        snprintf(name, sizeof name, "crowd%d-%d", (int)t, i);
        rig_mint(&u, name, "acct:crowd", 1);
        struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
        ledger_client_ingest(client.c, &rq, deadline_in_ms(30000), crowd_done, &c);
    }
    for (unsigned n = 0; n < MANY;) {
        pthread_mutex_lock(&c.mutex);
        n = c.committed + c.others;
        pthread_mutex_unlock(&c.mutex);
        assert_false(deadline_passed(by));
    }
    assert_int_equal(c.others, 0);
}

static void on_every_transport(void (*fn)(enum rig_transport))
{
    for (enum rig_transport t = 0; t < RIG_TRANSPORTS; t++) {
        print_message("           over %s\n", rig_transport_name(t));
        rig_client_open(&rig, t, &client);
        fn(t);
        rig_client_close(&client);
    }
}

#define EVERY(name)                                                                                        \
    static void over_all__##name(void **state)                                                             \
    {                                                                                                      \
        (void)state;                                                                                       \
        on_every_transport(name);                                                                          \
    }
EVERY(a_unit_is_committed_and_the_same_again_is_a_duplicate_with_the_first_result)
EVERY(each_unit_of_a_request_has_its_result_in_order)
EVERY(a_request_refused_for_one_reason_is_answered_with_the_reason)
EVERY(a_malformed_request_is_refused_definitely)
EVERY(a_unit_is_found_by_its_idem_id_and_a_missing_one_tells_ledger_time)
EVERY(an_account_shows_balances_and_nonces_and_refuses_a_seq_that_is_still_to_come)
EVERY(entries_are_read_one_by_one_and_in_a_row)
EVERY(roots_proofs_and_head_agree_with_each_other)
EVERY(a_feed_opens_without_news_tells_commits_and_stops_for_good)
EVERY(many_calls_at_once_are_all_answered)

/* ---- what only a wire does ---- */

static int listen_somewhere(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

/* A server that takes one request and closes without a word, or (silent) keeps the line open. */
struct rude {
    int fd;
    bool silent;
    pthread_t thread;
};

static void *rude_run(void *arg)
{
    struct rude *r = arg;
    char bytes[4096];
    int peer = accept(r->fd, NULL, NULL);
    ssize_t n = peer < 0 ? -1 : recv(peer, bytes, sizeof bytes, 0);
    while (r->silent && n > 0)
        n = recv(peer, bytes, sizeof bytes, 0);
    if (peer >= 0)
        close(peer);
    return NULL;
}

static const char *const schemes[] = {"http", "oap"};

static void open_to(const char *scheme, uint16_t port)
{
    char url[64];
    snprintf(url, sizeof url, "%s://127.0.0.1:%u", scheme, port);
    rig_client_open_url(url, "token", 4, &client);
}

static void try_ingest(int64_t ms, struct rig_reply *a)
{
    struct rig_unit u;
    rig_mint(&u, "wire", "acct:wire", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&client, &rq, ms, a);
}

static void nobody_there_is_a_definite_refusal_at_once_and_stays_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint16_t port = 0;
        struct rig_reply a;
        close(listen_somewhere(&port));
        open_to(schemes[i], port);
        for (int k = 0; k < 3; k++) {
            try_ingest(20000, &a);
            assert_int_equal(a.outcome, LEDGER_REFUSED);
            assert_int_equal(a.err, ERR_REFUSED);
            assert_true(a.took_ms < 15000);
        }
        rig_head(&client, 20000, &a);
        assert_int_equal(a.outcome, LEDGER_REFUSED);
        rig_client_close(&client);
    }
}

static void a_connection_cut_after_the_request_left_is_an_unknown_outcome_for_writes_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int write = 0; write < 2; write++) {
            uint16_t port = 0;
            struct rig_reply a;
            struct rude r = {.fd = listen_somewhere(&port)};
            assert_int_equal(pthread_create(&r.thread, NULL, rude_run, &r), 0);
            open_to(schemes[i], port);
            if (write)
                try_ingest(20000, &a);
            else
                rig_head(&client, 20000, &a);
            assert_int_equal(a.outcome, write ? LEDGER_UNKNOWN : LEDGER_REFUSED);
            assert_int_not_equal(a.err, ERR_OK);
            assert_int_equal(a.status, 0);
            rig_client_close(&client);
            assert_int_equal(pthread_join(r.thread, NULL), 0);
            close(r.fd);
        }
}

static void silence_until_the_deadline_is_an_unknown_outcome_for_writes_only(void **state)
{
    enum { SILENCE_MS = 1000 }; /* a busy machine has sent it by then */
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int write = 0; write < 2; write++) {
            uint16_t port = 0;
            struct rig_reply a;
            struct rude r = {.fd = listen_somewhere(&port), .silent = true};
            assert_int_equal(pthread_create(&r.thread, NULL, rude_run, &r), 0);
            open_to(schemes[i], port);
            if (write)
                try_ingest(SILENCE_MS, &a);
            else
                rig_head(&client, SILENCE_MS, &a);
            assert_int_equal(a.outcome, write ? LEDGER_UNKNOWN : LEDGER_REFUSED);
            assert_int_equal(a.err, ERR_TIMEOUT);
            assert_true(a.took_ms >= SILENCE_MS - 1);
            rig_client_close(&client);
            assert_int_equal(pthread_join(r.thread, NULL), 0);
            close(r.fd);
        }
}

static void what_is_outstanding_at_the_close_is_answered_as_unknown(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint16_t port = 0;
        struct rude r = {.fd = listen_somewhere(&port), .silent = true};
        struct crowd c = {.mutex = PTHREAD_MUTEX_INITIALIZER};
        struct rig_unit u;
        assert_int_equal(pthread_create(&r.thread, NULL, rude_run, &r), 0);
        open_to(schemes[i], port);
        rig_mint(&u, "closing", "acct:wire", 1);
        struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
        ledger_client_ingest(client.c, &rq, deadline_in_ms(60000), crowd_done, &c);
        rig_client_close(&client);
        assert_int_equal(c.committed, 0);
        assert_int_equal(c.others, 1);
        shutdown(r.fd, SHUT_RDWR);
        assert_int_equal(pthread_join(r.thread, NULL), 0);
        close(r.fd);
    }
}

static void a_ledger_that_comes_back_is_found_again_by_the_same_client(void **state)
{
    (void)state;
    for (enum rig_transport t = RIG_HTTP; t < RIG_DIRECT; t++) {
        struct ledger_rig again;
        struct rig_reply a;
        char bind[64];
        ledger_rig_open(&again, true, NULL, 0);
        rig_client_open(&again, t, &client);
        rig_head(&client, 5000, &a);
        assert_int_equal(a.outcome, LEDGER_ANSWERED);
        int port = svc_port(again.svc), oap = svc_oap_port(again.svc);
        (void)ledger_rig_stop(&again);
        rig_head(&client, 5000, &a);
        assert_int_equal(a.outcome, LEDGER_REFUSED);
        snprintf(bind, sizeof bind, "bind=127.0.0.1:%d", port);
        strcpy(again.flags[0], bind);
        snprintf(again.flags[1], sizeof again.flags[1], "oap.bind=127.0.0.1:%d", oap);
        ledger_rig_start(&again);
        struct deadline by = deadline_in_ms(30000);
        do {
            rig_head(&client, 5000, &a);
            assert_false(deadline_passed(by));
        } while (a.outcome != LEDGER_ANSWERED);
        rig_client_close(&client);
        ledger_rig_close(&again);
    }
}

/* Whichever of the two is asked first: the answer is of the one that was there. */
static void what_one_address_says_is_heard_though_another_is_not_there(void **state)
{
    (void)state;
    struct ledger_rig shy;
    ledger_rig_open(&shy, true, NULL, 0);
    assert_int_equal(ledger_rig_http(&shy, "POST", "/admin/safe-mode",
                                     "{\"action\":\"enter\",\"reason\":\"test\"}", NULL),
                     200);
    for (size_t i = 0; i < 2; i++) {
        uint16_t nobody = 0;
        char url[160];
        struct rig_reply a;
        close(listen_somewhere(&nobody));
        int there = i == 0 ? svc_port(shy.svc) : svc_oap_port(shy.svc);
        snprintf(url, sizeof url, "%s://127.0.0.1:%d,%s://127.0.0.1:%u", schemes[i], there, schemes[i],
                 nobody);
        rig_client_open_url(url, shy.token, 4, &client);
        for (int k = 0; k < 4; k++) {
            try_ingest(20000, &a);
            assert_int_equal(a.outcome, LEDGER_REFUSED);
            assert_int_equal(a.err, ERR_SAFE_MODE);
            assert_int_equal(a.status, 503);
        }
        rig_client_close(&client);
    }
    ledger_rig_close(&shy);
}

static void an_address_of_no_known_kind_opens_nothing(void **state)
{
    (void)state;
    const char *const wrong[] = {
        "", "ftp://x", "oap:", "oap://", "oap+unix:", "oap://nowhere", "oap://127.0.0.1", "127.0.0.1:7411"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ledger_client *c = NULL;
        struct ledger_client_conf conf = {.url = wrong[i], .token = "t"};
        assert_int_not_equal(ledger_client_open(&conf, &c), ERR_OK);
        assert_null(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            over_all__a_unit_is_committed_and_the_same_again_is_a_duplicate_with_the_first_result),
        cmocka_unit_test(over_all__each_unit_of_a_request_has_its_result_in_order),
        cmocka_unit_test(over_all__a_request_refused_for_one_reason_is_answered_with_the_reason),
        cmocka_unit_test(over_all__a_malformed_request_is_refused_definitely),
        cmocka_unit_test(over_all__a_unit_is_found_by_its_idem_id_and_a_missing_one_tells_ledger_time),
        cmocka_unit_test(
            over_all__an_account_shows_balances_and_nonces_and_refuses_a_seq_that_is_still_to_come),
        cmocka_unit_test(over_all__entries_are_read_one_by_one_and_in_a_row),
        cmocka_unit_test(over_all__roots_proofs_and_head_agree_with_each_other),
        cmocka_unit_test(over_all__a_feed_opens_without_news_tells_commits_and_stops_for_good),
        cmocka_unit_test(over_all__many_calls_at_once_are_all_answered),
        cmocka_unit_test(nobody_there_is_a_definite_refusal_at_once_and_stays_one),
        cmocka_unit_test(a_connection_cut_after_the_request_left_is_an_unknown_outcome_for_writes_only),
        cmocka_unit_test(silence_until_the_deadline_is_an_unknown_outcome_for_writes_only),
        cmocka_unit_test(what_is_outstanding_at_the_close_is_answered_as_unknown),
        cmocka_unit_test(a_ledger_that_comes_back_is_found_again_by_the_same_client),
        cmocka_unit_test(what_one_address_says_is_heard_though_another_is_not_there),
        cmocka_unit_test(an_address_of_no_known_kind_opens_nothing),
    };
    return cmocka_run_group_tests(tests, open_ledger, close_ledger);
}
