/*
 * Load truth: many clients with duplicate keys, duplicate nonces and pipelined nonces over lanes, over a ledger that
 * refuses, loses requests, loses answers and garbles them, while workers are made to fail. In the end: no double spend,
 * no stuck account, every 200 is found again with the same bytes, and the books balance.
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

#include "base/check.h"
#include "rt/supervisor.h"
#include "wallet_rig.h"

enum { ACCOUNTS = 6, LANES = 3, CLIENTS = 12, OPS = 40 };

static struct wallet_rig rig;

struct client {
    pthread_t thread;
    int index;
    uint64_t seed;
    int ok, refused, pending, odd;
    struct {
        char key[32], body[256], receipt[1600];
    } done[OPS];
    int n_done;
};

static struct client clients[CLIENTS];

/* The next counter of each lane, shared: clients pipeline them, and sometimes take the same one twice. */
static pthread_mutex_t lane_lock = PTHREAD_MUTEX_INITIALIZER;
static int lane_next[ACCOUNTS][LANES];

static int take_nonce(struct rng *r, int account, int lane)
{
    pthread_mutex_lock(&lane_lock);
    int n = rng_below(r, 10) == 0 && lane_next[account][lane] > 1 ? lane_next[account][lane] - 1
                                                                  : lane_next[account][lane]++;
    pthread_mutex_unlock(&lane_lock);
    return n;
}

/* Repeats one request until it is settled; conflicts above the expected nonce are tried again. */
RT_UNCHECKED static int settle(const char *key, const char *body, struct rig_answer *a)
{
    struct deadline by = deadline_in_ms(15000);
    char member[256];
    for (;;) {
        rig_call(&rig, "POST", "/v1/transfer", key, NULL, body, a);
        bool retry = a->status == 503 || a->status == 429 || a->status < 0 ||
                     (a->status == 409 && strcmp(rig_member(a, "retryable", member), "true") == 0);
        if (!retry || deadline_passed(by))
            return a->status;
    }
}

RT_UNCHECKED static void *run_client(void *arg)
{
    struct client *c = arg;
    struct rig_answer *a = malloc(sizeof *a);
    struct rng r;
    rng_seed(&r, c->seed);
    for (int i = 0; i < OPS; i++) {
        int from = (int)rng_below(&r, ACCOUNTS),
            to = (from + 1 + (int)rng_below(&r, ACCOUNTS - 1)) % ACCOUNTS;
        int lane = (int)rng_below(&r, LANES);
        char key[32], body[256];
        /* One in five shares its key and its body with another client. */
        bool shared = rng_below(&r, 5) == 0 && c->n_done > 0;
        if (shared) {
            int k = (int)rng_below(&r, (uint64_t)c->n_done);
            strcpy(key, c->done[k].key);
            strcpy(body, c->done[k].body);
        } else {
            snprintf(key, sizeof key, "k-%d-%d", c->index, i);
            snprintf(body, sizeof body,
                     "{\"from\":\"acct:%d\",\"to\":\"acct:%d\",\"asset\":\"ron\",\"amount\":\"%d\","
                     "\"nonce\":%d,\"lane\":%d}",
                     from, to, 1 + (int)rng_below(&r, 50), take_nonce(&r, from, lane), lane);
        }
        int status = settle(key, body, a);
        if (status == 200) {
            c->ok++;
            strcpy(c->done[c->n_done].key, key);
            strcpy(c->done[c->n_done].body, body);
            strcpy(c->done[c->n_done++].receipt, a->body);
        } else if (status == 409)
            c->refused++;
        else if (status == 503 || status == 429)
            c->pending++;
        else {
            c->odd++;
            print_error("odd: %d %s\n", status, a->body);
        }
    }
    free(a);
    return NULL;
}

static _Atomic bool stop_drills;

RT_UNCHECKED static void *run_drills(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5 && !stop_drills; i++) { /* one more in a minute would escalate, as it should */
        double restarts = rig_metric(&rig, "service_restarts_total", "worker");
        (void)!rt_supervisor_fail(svc_supervisor(rig.svc), "worker-0");
        while (!stop_drills && rig_metric(&rig, "service_restarts_total", "worker") <= restarts)
            ; /* it is back after its pause: again */
    }
    return NULL;
}

RT_UNCHECKED static void play(uint64_t seed, bool chaos, bool drills)
{
    struct rig_answer *a = malloc(sizeof *a);
    pthread_t drill;
    char key[32];
    static const char *const flags[] = {"--workers=2", "--request_timeout=2s"};
    memset(clients, 0, sizeof clients);
    print_message("seed %llu\n", (unsigned long long)seed);
    wallet_rig_open(&rig, flags, 2);
    for (int i = 0; i < ACCOUNTS; i++) {
        snprintf(key, sizeof key, "fund-%d", i);
        rig_post(&rig, "/v1/issue", key, a, "{\"to\":\"acct:%d\",\"asset\":\"ron\",\"amount\":\"10000\"}",
                 i);
        assert_int_equal(a->status, 200);
        for (int l = 0; l < LANES; l++)
            lane_next[i][l] = 1;
    }
    if (chaos)
        mem_ledger_chaos(rig.ledger, seed);
    stop_drills = false;
    if (drills)
        pthread_create(&drill, NULL, run_drills, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].index = i;
        clients[i].seed = seed + (uint64_t)i;
        pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
    }
    int ok = 0, odd = 0;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        ok += clients[i].ok;
        odd += clients[i].odd;
    }
    stop_drills = true;
    if (drills)
        pthread_join(drill, NULL);
    mem_ledger_chaos(rig.ledger, 0);
    assert_int_equal(odd, 0);
    assert_true(ok > CLIENTS * OPS / 4);
    assert_true(mem_ledger_conserves(rig.ledger));

    /* Each 200 is found again, and is one unit: the number of distinct keys that were answered is not more than units. */
    for (int i = 0; i < CLIENTS; i++)
        for (int k = 0; k < clients[i].n_done; k++) {
            int status = settle(clients[i].done[k].key, clients[i].done[k].body, a);
            assert_int_equal(status, 200);
            assert_string_equal(a->body, clients[i].done[k].receipt);
        }
    /* No account is stuck: the next nonce of every lane goes through. */
    for (int i = 0; i < ACCOUNTS; i++)
        for (int l = 0; l < LANES; l++) {
            char body[256], account[16];
            snprintf(account, sizeof account, "acct:%d", i);
            snprintf(key, sizeof key, "after-%d-%d", i, l);
            snprintf(body, sizeof body,
                     "{\"from\":\"%s\",\"to\":\"acct:end\",\"asset\":\"ron\",\"amount\":\"1\",\"nonce\":%"
                     "llu,\"lane\":%d}",
                     account, (unsigned long long)mem_ledger_last(rig.ledger, account, (unsigned)l) + 1, l);
            assert_int_equal(settle(key, body, a), 200);
        }
    assert_true(mem_ledger_conserves(rig.ledger));
    if (drills)
        assert_true(rig_metric(&rig, "service_restarts_total", "worker") > 0);
    assert_true(rig_metric(&rig, "tasks_leaked_total", "") == 0);
    assert_int_equal(wallet_rig_stop(&rig), 0);
    wallet_rig_close(&rig);
    free(a);
}

static uint64_t seed_of(void)
{
    const char *given = getenv("WALLET_SEED");
    return given ? strtoull(given, NULL, 10) : rng_secure_u64() % 1000000 + 1;
}

static void duplicates_and_pipelines_over_a_good_ledger(void **state)
{
    (void)state;
    play(seed_of(), false, false);
}

static void the_same_over_a_ledger_that_loses_refuses_and_garbles(void **state)
{
    (void)state;
    play(seed_of(), true, false);
}

static void the_same_while_a_worker_fails_again_and_again(void **state)
{
    (void)state;
    play(seed_of(), true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplicates_and_pipelines_over_a_good_ledger),
        cmocka_unit_test(the_same_over_a_ledger_that_loses_refuses_and_garbles),
        cmocka_unit_test(the_same_while_a_worker_fails_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
