/*
 * The claim of a key, the requests that wait for it, its deadline, its settlement and shutdown, with the real key store,
 * channel and bell: every request is answered exactly once, at most one operation is sent per key, what was told
 * "never sent" is never sent, and nobody sleeps through the end.
 */
#include <stdlib.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/bell.h"
#include "services/wallet/core/idem.h"

enum phase { QUEUED, SENT, SETTLED, CANCELED };

struct job;

struct ticket {
    struct ticket *next;
    struct job *job;
    bool linked;
    struct os_a32 answers;
    enum err told;
};

struct job {
    enum phase phase;
    struct ticket *tickets;
    bool sent;
};

struct rig {
    struct rt_lock lock; /* guards idem, phases and tickets */
    struct wallet_idem idem;
    struct wallet_idem_name name;
    struct rt_chan *work;
    struct rt_bell bell;
    struct os_a32 commits;
    struct job jobs[2];
    struct ticket tickets[2];
};

static struct rig *rig_open(size_t capacity)
{
    struct rig *r = calloc(1, sizeof *r);
    CHECK(r);
    rt_lock_init(&r->lock, "idem", 40);
    CHECK(wallet_idem_init(&r->idem, 100000) == ERR_OK);
    r->name = (struct wallet_idem_name){{1, 2}, {3, 4}};
    rt_bell_init(&r->bell);
    r->work = rt_chan_create(&(struct rt_chan_spec){.name = "work_tx",
                                                    .capacity = capacity,
                                                    .policy = RT_REJECT,
                                                    .on_ready = rt_bell_ring,
                                                    .on_ready_arg = &r->bell});
    CHECK(r->work);
    return r;
}

static void rig_close(struct rig *r)
{
    rt_chan_destroy(r->work, NULL, NULL);
    wallet_idem_fini(&r->idem);
    rt_word_fini(&r->bell.word);
    rt_lock_fini(&r->lock);
    free(r);
}

static void answer(struct ticket *t, enum err told)
{
    t->told = told;
    CHECK(os_a32_add(&t->answers, 1, memory_order_acq_rel) == 0); /* exactly one answer */
}

static struct ticket *take_tickets(struct job *j)
{
    struct ticket *all = j->tickets;
    for (struct ticket *t = all; t; t = t->next)
        t->linked = false;
    j->tickets = NULL;
    return all;
}

static void settle(struct rig *r, struct job *j, enum err told)
{
    struct wallet_sides sides = {0};
    rt_lock_take(&r->lock);
    CHECK(j->phase == QUEUED || j->phase == SENT);
    j->phase = SETTLED;
    struct ticket *all = take_tickets(j);
    if (told == ERR_OK)
        wallet_idem_done(&r->idem, &r->name, j, STR("receipt"), STR(""), &sides, 1);
    else
        wallet_idem_drop(&r->idem, &r->name, j);
    rt_lock_release(&r->lock);
    while (all) {
        struct ticket *next = all->next;
        answer(all, told);
        all = next;
    }
}

struct client {
    struct rig *r;
    int i;
};

/* The listener: claim and queue, or join, or answer at once. */
static void request(void *arg)
{
    struct client *c = arg;
    struct rig *r = c->r;
    struct job *j = &r->jobs[c->i];
    struct ticket *t = &r->tickets[c->i];
    enum wallet_claim claim;
    struct wallet_idem_entry *e = NULL;
    rt_lock_take(&r->lock);
    CHECK(wallet_idem_claim(&r->idem, &r->name, j, &claim, &e) == ERR_OK);
    struct job *owner = claim == WALLET_CLAIM_OWNER || claim == WALLET_CLAIM_OPEN ? e->owner : NULL;
    if (owner) {
        t->job = owner;
        t->linked = true;
        t->next = owner->tickets;
        owner->tickets = t;
        owner->phase = claim == WALLET_CLAIM_OWNER ? QUEUED : owner->phase;
    }
    rt_lock_release(&r->lock);
    if (claim == WALLET_CLAIM_DONE) {
        model_cover(0);
        answer(t, ERR_OK);
    } else if (claim == WALLET_CLAIM_OPEN)
        model_cover(1);
    else if (rt_chan_try_send(r->work, j) != ERR_OK)
        settle(r, j, ERR_BUSY);
}

/* The worker: freeze under the lock, send, settle. */
static void carry_out(struct rig *r, struct job *j)
{
    rt_lock_take(&r->lock);
    bool gone = j->phase == CANCELED;
    if (!gone)
        j->phase = SENT;
    rt_lock_release(&r->lock);
    if (gone)
        return;
    j->sent = true;
    CHECK(os_a32_add(&r->commits, 1, memory_order_acq_rel) == 0); /* one operation per key */
    settle(r, j, ERR_OK);
}

RT_BLOCKS
static void worker(void *arg)
{
    struct rig *r = arg;
    for (;;) {
        uint64_t noted = rt_bell_note(&r->bell);
        void *item;
        enum err e = rt_chan_try_recv(r->work, &item);
        if (e == ERR_OK)
            carry_out(r, item);
        else if (e == ERR_CLOSED)
            return;
        else
            CHECK(rt_bell_wait(&r->bell, noted, deadline_never()) == ERR_OK);
    }
}

/* The deadline of the first request: cancels what was not sent, else leaves with "pending". */
static void deadline_of_first(void *arg)
{
    struct rig *r = arg;
    struct ticket *t = &r->tickets[0], *all = NULL;
    enum err told = ERR_TIMEOUT;
    rt_lock_take(&r->lock);
    if (!t->linked) {
        rt_lock_release(&r->lock);
        return;
    }
    struct job *j = t->job;
    if (j->phase == QUEUED && j == &r->jobs[0]) {
        j->phase = CANCELED;
        wallet_idem_drop(&r->idem, &r->name, j);
        all = take_tickets(j);
    } else {
        struct ticket **at = &j->tickets;
        while (*at != t)
            at = &(*at)->next;
        *at = t->next;
        t->next = NULL;
        t->linked = false;
        told = ERR_OUTCOME_PENDING;
        all = t;
    }
    rt_lock_release(&r->lock);
    while (all) {
        struct ticket *next = all->next;
        answer(all, told);
        all = next;
    }
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

static void check_end(struct rig *r)
{
    uint32_t commits = os_a32_load(&r->commits, memory_order_acquire);
    CHECK(commits <= 1);
    for (int i = 0; i < 2; i++) {
        struct ticket *t = &r->tickets[i];
        CHECK(os_a32_load(&t->answers, memory_order_acquire) == 1);
        CHECK(t->told != ERR_OK || commits == 1);
        if (t->told == ERR_TIMEOUT && t->job) /* told "never sent": and it was not */
            CHECK(!t->job->sent);
    }
    CHECK(r->idem.open == 0); /* no key is stuck */
}

/* Two requests with one key at any moment of each other. */
RT_BLOCKS
static void one_key_two_requests_and_a_worker(void)
{
    struct rig *r = rig_open(2);
    struct client c[2] = {{r, 0}, {r, 1}};
    struct os_thread clients[2], w;
    start(&w, "worker", worker, r);
    start(&clients[0], "http-0", request, &c[0]);
    start(&clients[1], "http-1", request, &c[1]);
    os_thread_join(&clients[0]);
    os_thread_join(&clients[1]);
    rt_chan_close(r->work);
    os_thread_join(&w);
    check_end(r);
    rig_close(r);
}

RT_BLOCKS
static void shutdown_while_a_key_is_claimed(void)
{
    struct rig *r = rig_open(1);
    struct client c[2] = {{r, 0}, {r, 1}};
    struct os_thread client, w;
    start(&w, "worker", worker, r);
    start(&client, "http-0", request, &c[0]);
    rt_chan_close(r->work);
    request(&c[1]);
    os_thread_join(&client);
    os_thread_join(&w);
    check_end(r);
    model_cover(os_a32_load(&r->commits, memory_order_acquire) ? 0 : 1);
    rig_close(r);
}

RT_BLOCKS
static void a_deadline_races_with_the_sending(void)
{
    struct rig *r = rig_open(2);
    struct client c[2] = {{r, 0}, {r, 1}};
    struct os_thread w, late, second;
    request(&c[0]);
    start(&w, "worker", worker, r);
    start(&late, "deadline", deadline_of_first, r);
    start(&second, "http-1", request, &c[1]);
    os_thread_join(&late);
    os_thread_join(&second);
    rt_chan_close(r->work);
    os_thread_join(&w);
    check_end(r);
    model_cover(r->tickets[0].told == ERR_OK ? 2 : r->tickets[0].told == ERR_TIMEOUT ? 3 : 4);
    rig_close(r);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "one_key_two_requests_and_a_worker",
         .body = one_key_two_requests_and_a_worker,
         .preemptions = 2,
         .covers = 2},
        {.name = "shutdown_while_a_key_is_claimed",
         .body = shutdown_while_a_key_is_claimed,
         .preemptions = 3,
         .covers = 2},
        {.name = "a_deadline_races_with_the_sending",
         .body = a_deadline_races_with_the_sending,
         .preemptions = 3,
         .covers = 5},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
