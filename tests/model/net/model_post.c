/*
 * Threads that post to a loop while it looks, goes to sleep and wakes: no order of their steps leaves a message with a loop that sleeps,
 * and each sender's messages come out in its order.
 */
#include "base/check.h"
#include "model.h"
#include "net/post.h"

enum { SENDERS = 2, LETTERS = 2 };

struct letter {
    struct net_msg msg;
    unsigned from, number;
};

struct house {
    struct net_post post;
    struct os_a32
        rung; /* the eventfd: edge-triggered, so what counts is whether it was written since the last look */
    uint32_t heard;
    struct letter letters[SENDERS][LETTERS];
    unsigned next[SENDERS], got;
};

static void ring(struct house *h)
{
    os_a32_add(&h->rung, 1, memory_order_relaxed);
    os_wake_one(&h->rung);
}

static void one_by_one(void *arg)
{
    struct house *h = arg;
    for (unsigned i = 0; i < LETTERS; i++)
        if (net_post_push(&h->post, &h->letters[0][i].msg, &h->letters[0][i].msg))
            ring(h);
}

/* As net_loop_uncork() does. */
static void all_at_once(void *arg)
{
    struct house *h = arg;
    for (unsigned i = 1; i < LETTERS; i++)
        h->letters[1][i].msg.next = &h->letters[1][i - 1].msg;
    if (net_post_push(&h->post, &h->letters[1][LETTERS - 1].msg, &h->letters[1][0].msg))
        ring(h);
}

/* epoll_wait: without `may_sleep` it only hears what has rung. */
static void listen(struct house *h, bool may_sleep)
{
    while (may_sleep && os_a32_load(&h->rung, memory_order_relaxed) == h->heard)
        os_sleep_on(&h->rung, h->heard, OS_NEVER);
    h->heard = os_a32_load(&h->rung, memory_order_relaxed);
}

/* net_loop_once(). */
static void iteration(struct house *h)
{
    bool nothing = net_post_asleep(&h->post);
    if (nothing)
        model_cover(h->got == 0 ? 0 : 1);
    listen(h, nothing);
    net_post_awake(&h->post);
    for (struct net_msg *m = net_post_take(&h->post), *next; m; m = next) {
        next = m->next;
        struct letter *l = (struct letter *)(void *)m;
        CHECK(l->number == h->next[l->from]++);
        h->got++;
    }
}

static void run_house(unsigned senders_n)
{
    static void (*const senders[SENDERS])(void *) = {one_by_one, all_at_once};
    struct house *h = os_alloc(sizeof *h);
    struct os_thread threads[SENDERS];
    CHECK(h != NULL);
    for (unsigned s = 0; s < senders_n; s++) {
        for (unsigned i = 0; i < LETTERS; i++)
            h->letters[s][i] = (struct letter){.from = s, .number = i};
        CHECK(os_thread_start(&threads[s], "sender", senders[s], h) == ERR_OK);
    }
    while (h->got < senders_n * LETTERS)
        iteration(h);
    for (unsigned s = 0; s < senders_n; s++)
        os_thread_join(&threads[s]);
    CHECK(net_post_take(&h->post) == NULL);
    os_free(h);
}

static void no_message_of_one_sender_is_slept_on(void)
{
    run_house(1);
}

static void no_message_of_two_senders_is_slept_on(void)
{
    run_house(2);
}

/* Two senders without a bound are 31 million schedules: RON_MODEL_SECONDS=600. */
int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "no_message_of_one_sender_is_slept_on",
         .body = no_message_of_one_sender_is_slept_on,
         .covers = 2},
        {.name = "no_message_of_two_senders_is_slept_on",
         .body = no_message_of_two_senders_is_slept_on,
         .preemptions = 3,
         .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof models[0]);
}
