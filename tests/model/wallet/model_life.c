/*
 * The life of an operation on the wallet's own code, from the claim of its key to its answer: two listeners, the worker, the
 * resolver and a ledger in any order of each other. Each request is answered exactly once; a nonce and a key are spent at most
 * once; what is told "never sent" never was; a late answer and the resolver do not both settle; a worker's successor goes on with
 * its chains; nobody sleeps through shutdown.
 */
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "outside.h"

struct listener {
    struct world *x;
    int i;
    bool runs_out;
};

RT_BLOCKS
static void listen_one(void *arg)
{
    struct listener *l = arg;
    world_http(&l->x->rq[l->i], &l->x->w, l->runs_out);
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

/* Closed in the order of the drain: listeners are done, then workers, then the ledger. */
RT_BLOCKS
static void end(struct world *x, struct os_thread *workers, struct os_thread *resolver,
                struct os_thread *ledger)
{
    for (unsigned i = 0; i < x->w.n_workers; i++)
        rt_chan_close(x->workers[i].work);
    for (unsigned i = 0; i < x->w.n_workers; i++)
        os_thread_join(&workers[i]);
    if (resolver) {
        rt_chan_close(x->w.resolver.doubt);
        os_thread_join(resolver);
    }
    rt_chan_close(x->calls);
    if (ledger)
        os_thread_join(ledger);
}

static unsigned receipts(const struct world *x, int n)
{
    unsigned k = 0;
    for (int i = 0; i < n; i++) {
        CHECK(x->rq[i].answers == 1);
        k += x->rq[i].told == ERR_OK;
    }
    return k;
}

RT_BLOCKS
static void one_nonce_under_two_keys_is_spent_once(void)
{
    struct world *x = world_open(1, 2);
    struct os_thread http[2], worker;
    struct listener l[2] = {{x, 0, false}, {x, 1, false}};
    x->at_once = true;
    world_request(x, 0, "acct:a", "k0", 1);
    world_request(x, 1, "acct:a", "k1", 1);
    start(&worker, "worker", world_worker, &x->workers[0]);
    start(&http[0], "http-0", listen_one, &l[0]);
    start(&http[1], "http-1", listen_one, &l[1]);
    os_thread_join(&http[0]);
    os_thread_join(&http[1]);
    end(x, &worker, NULL, NULL);
    CHECK(receipts(x, 2) == 1 && x->commits == 1);
    int loser = x->rq[0].told == ERR_OK;
    CHECK(x->rq[loser].told == ERR_NONCE_CONFLICT);
    model_cover((unsigned)loser);
    world_close(x);
}

RT_BLOCKS
static void one_key_twice_is_one_commit_and_the_same_bytes(void)
{
    struct world *x = world_open(1, 2);
    struct os_thread http[2], worker;
    struct listener l[2] = {{x, 0, false}, {x, 1, false}};
    x->at_once = true;
    world_request(x, 0, "acct:a", "k", 1);
    world_request(x, 1, "acct:a", "k", 1);
    start(&worker, "worker", world_worker, &x->workers[0]);
    start(&http[0], "http-0", listen_one, &l[0]);
    start(&http[1], "http-1", listen_one, &l[1]);
    os_thread_join(&http[0]);
    os_thread_join(&http[1]);
    end(x, &worker, NULL, NULL);
    CHECK(receipts(x, 2) == 2 && x->commits == 1 && x->n_calls == 1);
    CHECK(strcmp(x->rq[0].body, x->rq[1].body) == 0);
    CHECK(x->rq[0].replayed != x->rq[1].replayed);
    model_cover(x->rq[0].replayed);
    world_close(x);
}

RT_BLOCKS
static void time_runs_out_at_any_moment(void)
{
    struct world *x = world_open(1, 2);
    struct os_thread http, worker, ledger;
    struct listener l = {x, 0, true};
    world_request(x, 0, "acct:a", "k", 1);
    start(&ledger, "ledger", world_ledger, x);
    start(&worker, "worker", world_worker, &x->workers[0]);
    start(&http, "http", listen_one, &l);
    os_thread_join(&http);
    end(x, &worker, NULL, &ledger);
    enum err told = x->rq[0].told;
    CHECK(x->rq[0].answers == 1);
    CHECK(told == ERR_OK || told == ERR_TIMEOUT || told == ERR_OUTCOME_PENDING);
    CHECK(told != ERR_TIMEOUT || x->n_calls == 0); /* never sent */
    CHECK(told != ERR_OK || x->commits == 1);
    model_cover(told == ERR_OK ? 0 : told == ERR_TIMEOUT ? 1 : 2);
    world_close(x);
}

/* The answer is lost; the request arrives at any moment, or never; the resolver looks. */
RT_BLOCKS
static void a_lost_answer(enum fate fate, bool runs_out, unsigned early_looks)
{
    struct world *x = world_open(1, 2);
    struct os_thread http, worker, resolver, ledger;
    struct listener l = {x, 0, runs_out};
    x->fate[0] = fate;
    x->early_looks = early_looks;
    world_request(x, 0, "acct:a", "k", 1);
    start(&ledger, "ledger", world_ledger, x);
    start(&resolver, "resolver", world_resolver, x);
    start(&worker, "worker", world_worker, &x->workers[0]);
    start(&http, "http", listen_one, &l);
    os_thread_join(&http);
    end(x, &worker, &resolver, &ledger);
    enum err told = x->rq[0].told;
    CHECK(x->rq[0].answers == 1);
    CHECK(told != ERR_OK || x->commits == 1);          /* no receipt without a commit */
    CHECK(told != ERR_UNAVAILABLE || x->commits == 0); /* "was not carried out, and will not be" */
    CHECK(told != ERR_TIMEOUT || x->n_calls == 0);
    CHECK(fate == LOST_AFTER || x->commits == 0);
    CHECK(!early_looks || told == ERR_OK); /* it has arrived until the next look */
    model_cover(told == ERR_UNAVAILABLE || early_looks ? 0 : told == ERR_TIMEOUT ? 2 : 1);
    world_close(x);
}

RT_BLOCKS
static void a_late_arrival_races_with_the_resolver(void)
{
    a_lost_answer(LOST_AFTER, false, 0);
}

RT_BLOCKS
static void a_look_that_comes_too_early_settles_nothing(void)
{
    a_lost_answer(LOST_AFTER, false, 1);
}

RT_BLOCKS
static void a_lost_request_and_a_client_that_leaves(void)
{
    a_lost_answer(LOST_BEFORE, true, 0);
}

/* The worker fails with its chain full and its request out; the next one takes over what lies outside the thread. */
struct shift {
    struct wallet_worker *k;
    unsigned turns;
};

RT_BLOCKS
static void worker_that_fails(void *arg)
{
    struct shift *s = arg;
    for (unsigned i = 0; i < s->turns; i++)
        (void)wallet_worker_step(s->k);
}

RT_BLOCKS
static void a_worker_takes_over_the_chains_of_one_that_failed(void)
{
    struct world *x = world_open(1, 2);
    struct os_thread http[2], worker;
    struct listener l[2] = {{x, 0, false}, {x, 1, false}};
    struct shift shift = {&x->workers[0], 1};
    x->at_once = true;
    world_request(x, 0, "acct:a", "k0", 1);
    world_request(x, 1, "acct:a", "k1", 2);
    start(&http[0], "http-0", listen_one, &l[0]);
    start(&http[1], "http-1", listen_one, &l[1]);
    start(&worker, "worker", worker_that_fails, &shift);
    os_thread_join(&worker);
    model_cover(x->workers[0].chains.out ? 0 : 1);
    start(&worker, "worker-again", world_worker, &x->workers[0]);
    os_thread_join(&http[0]);
    os_thread_join(&http[1]);
    end(x, &worker, NULL, NULL);
    /* Nonce 2 may have come first: a gap, and refused. Never both refused, never one twice. */
    CHECK(x->rq[0].answers == 1 && x->rq[1].answers == 1);
    CHECK(receipts(x, 2) == x->commits && x->commits >= 1);
    world_close(x);
}

/* Two producers, queues of two, two consumers, and the end at any moment. */
RT_BLOCKS
static void shutdown_with_two_producers_and_two_consumers(void)
{
    static const char *const accounts[] = {"acct:a", "acct:b", "acct:c", "acct:d", "acct:e"};
    struct world *x = world_open(2, 2);
    struct os_thread http[2], workers[2];
    struct listener l[2] = {{x, 0, false}, {x, 1, false}};
    const char *other = NULL; /* of the second worker */
    for (size_t i = 1; i < 5 && !other; i++)
        if (wallet_slot(str_from_c(accounts[i])) % 2 != wallet_slot(STR("acct:a")) % 2)
            other = accounts[i];
    CHECK(other);
    x->at_once = true;
    world_request(x, 0, "acct:a", "k0", 1);
    world_request(x, 1, other, "k1", 1);
    start(&workers[0], "worker-0", world_worker, &x->workers[0]);
    start(&workers[1], "worker-1", world_worker, &x->workers[1]);
    start(&http[0], "http-0", listen_one, &l[0]);
    start(&http[1], "http-1", listen_one, &l[1]);
    rt_chan_close(x->workers[0].work);
    rt_chan_close(x->workers[1].work);
    os_thread_join(&http[0]);
    os_thread_join(&http[1]);
    end(x, workers, NULL, NULL);
    /* The double has one nonce for all accounts: the second commit is a conflict, and told so. */
    unsigned ok = receipts(x, 2);
    CHECK(ok == x->commits);
    for (int i = 0; i < 2; i++)
        CHECK(x->rq[i].told == ERR_OK || x->rq[i].told == ERR_DRAINING ||
              x->rq[i].told == ERR_NONCE_CONFLICT);
    model_cover(x->rq[0].told == ERR_DRAINING || x->rq[1].told == ERR_DRAINING ? 1 : 0);
    world_close(x);
}

int main(int argc, char **argv)
{
#define M(fn, p, c)                                                                                        \
    {                                                                                                      \
        .name = #fn, .body = fn, .preemptions = p, .covers = c                                             \
    }
    const struct model models[] = {
        M(one_nonce_under_two_keys_is_spent_once, 1, 2),
        M(one_key_twice_is_one_commit_and_the_same_bytes, 1, 2),
        M(time_runs_out_at_any_moment, 1, 3),
        M(a_late_arrival_races_with_the_resolver, MODEL_PREEMPTIONS_NONE, 2),
        M(a_look_that_comes_too_early_settles_nothing, MODEL_PREEMPTIONS_NONE, 1),
        M(a_lost_request_and_a_client_that_leaves, 1, 3),
        M(a_worker_takes_over_the_chains_of_one_that_failed, 1, 2),
        M(shutdown_with_two_producers_and_two_consumers, 1, 2),
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
