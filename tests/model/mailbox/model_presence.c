/*
 * A shard that comes, is read from, and goes: who reads from it never finds it gone, and one whose epoch ends while it is coming
 * does not stay.
 */
#include "base/check.h"
#include "model.h"
#include "services/mailbox/presence.h"

struct state {
    struct os_a32 alive;
};

struct rig {
    struct mailbox_presence presence;
    struct state *state; /* the worker's; read by who has pinned it */
};

static void build(struct rig *g)
{
    g->state = os_alloc(sizeof *g->state);
    CHECK(g->state);
    os_a32_store(&g->state->alive, 1, memory_order_relaxed);
}

/* The worker's part of a departure; false: later. */
static bool depart(struct rig *g)
{
    if (!mailbox_presence_unread(&g->presence))
        return false;
    os_free(g->state);
    g->state = NULL;
    mailbox_presence_left(&g->presence);
    return true;
}

static void read_it(void *arg)
{
    struct rig *g = arg;
    if (!mailbox_presence_pin(&g->presence)) {
        model_cover(1);
        return;
    }
    model_cover(0);
    CHECK(g->state &&
          os_a32_load(&g->state->alive, memory_order_relaxed) == 1); /* freed memory fails the run, too */
    mailbox_presence_unpin(&g->presence);
}

static void lose_it(void *arg)
{
    struct rig *g = arg;
    if (mailbox_presence_lose(&g->presence))
        model_cover(0);
    else
        model_cover(1);
}

static void leave_it(void *arg)
{
    struct rig *g = arg;
    CHECK(mailbox_presence_leave(&g->presence));
}

static void start(struct os_thread *t, void (*fn)(void *), struct rig *g)
{
    CHECK(os_thread_start(t, "t", fn, g) == ERR_OK);
}

static void readers_and_a_departure(void)
{
    struct rig g = {.state = NULL};
    struct os_thread keeper, readers[2];
    build(&g); /* it is here */
    start(&keeper, leave_it, &g);
    start(&readers[0], read_it, &g);
    start(&readers[1], read_it, &g);
    bool gone = mailbox_presence_stage(&g.presence) == MAILBOX_GOING && depart(&g);
    os_thread_join(&keeper);
    gone = gone || depart(&g);
    os_thread_join(&readers[0]);
    os_thread_join(&readers[1]);
    CHECK(gone || depart(&g));
    CHECK(mailbox_presence_stage(&g.presence) == MAILBOX_AWAY);
}

static void an_epoch_that_ends_while_the_shard_comes(void)
{
    struct rig g = {.state = NULL};
    struct os_thread keeper;
    mailbox_presence_begin_away(&g.presence);
    mailbox_presence_claim(&g.presence);
    start(&keeper, lose_it, &g);
    build(&g);
    if (!mailbox_presence_is_lost(&g.presence))
        mailbox_presence_arrived(&g.presence);
    else
        CHECK(depart(&g));
    os_thread_join(&keeper);
    /* Whoever saw whom: it does not stay here, lost. */
    CHECK(mailbox_presence_stage(&g.presence) != MAILBOX_HERE);
    if (mailbox_presence_stage(&g.presence) == MAILBOX_GOING)
        CHECK(depart(&g));
    mailbox_presence_forget_loss(&g.presence);
    mailbox_presence_claim(&g.presence);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {"readers_and_a_departure", readers_and_a_departure, .covers = 2},
        {"an_epoch_that_ends_while_the_shard_comes", an_epoch_that_ends_while_the_shard_comes, .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
