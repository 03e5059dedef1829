/*
 * Another number of shards against sends, with the real channel and the real presence: callers that looked at the routing before, in
 * the middle of, or after the change (tasks/change.c). Every send is answered once; one that was accepted is in the shard that owns its
 * bucket, and in no other; one that was refused is accepted when it is repeated, and is one message.
 *
 * A shard's state is what the worker has in memory while the shard is here, and is freed when it goes: whoever touched it then would
 * fail the run. What is on disk is read and written only while the state is not there.
 */
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "services/mailbox/presence.h"

enum { CALLERS = 2, SHARDS = 2, GROWN = 1 /* the shard that gets the bucket */ };

struct state {
    unsigned keys;
};

struct lane {
    unsigned no;
    struct rt_chan *work;
    struct mailbox_presence presence;
    struct state *state; /* NULL: not here */
    unsigned disk;       /* keys that are durable */
};

struct job {
    unsigned key;
    struct os_a32 answers;
    bool accepted;
};

struct box {
    struct lane lanes[SHARDS];
    struct os_a32 rebalancing, routing; /* routing of the one bucket there is */
    struct job jobs[CALLERS];
};

static struct box box;

static void answer(struct job *j, bool accepted)
{
    j->accepted = accepted;
    CHECK(os_a32_add(&j->answers, 1, memory_order_relaxed) == 0);
}

/* ---- the worker ---- */

static void arrive(struct lane *l)
{
    l->state = os_alloc(sizeof *l->state);
    CHECK(l->state);
    l->state->keys = l->disk;
    mailbox_presence_arrived(&l->presence);
}

static void depart(struct lane *l)
{
    CHECK(mailbox_presence_unread(&l->presence));
    l->disk = l->state->keys;
    os_free(l->state);
    l->state = NULL;
    mailbox_presence_left(&l->presence);
}

/* As worker.c and handover.c: whoever comes to a shard that is not here, or does not own the bucket, is refused. */
static void turn(struct lane *l)
{
    void *jobs[CALLERS];
    size_t n = 0;
    if (rt_chan_try_recv_batch(l->work, jobs, CALLERS, &n) != ERR_OK)
        return;
    bool here = mailbox_presence_is_here(&l->presence);
    for (size_t i = 0; i < n; i++) {
        struct job *j = jobs[i];
        bool owned = os_a32_load(&box.routing, memory_order_relaxed) == l->no;
        if (here && !owned)
            model_cover(2); /* it came by the old routing, after the change */
        if (here && owned)
            l->state->keys |= 1u << j->key;
        answer(j, here && owned);
    }
}

static void turns(void)
{
    for (unsigned i = 0; i < SHARDS; i++)
        turn(&box.lanes[i]);
}

/* ---- the door, as submit.c ---- */

static void submit(struct job *j)
{
    struct lane *l = &box.lanes[os_a32_load(&box.routing, memory_order_relaxed)];
    if (os_a32_load(&box.rebalancing, memory_order_relaxed)) {
        model_cover(1);
        answer(j, false);
        return;
    }
    CHECK(rt_chan_try_send(l->work, j) == ERR_OK); /* there is a place for everyone */
}

static void caller(void *arg)
{
    submit(arg);
}

/* ---- the change ---- */

static void change(void)
{
    os_a32_store(&box.rebalancing, 1, memory_order_seq_cst);
    turns(); /* what was taken in before is worked off; a late one is met below */
    CHECK(mailbox_presence_leave(&box.lanes[0].presence));
    turns();
    depart(&box.lanes[0]);
    turns();
    box.lanes[GROWN].disk |= box.lanes[0].disk;
    box.lanes[0].disk = 0;
    os_a32_store(&box.routing, GROWN, memory_order_relaxed);
    turns();
    for (unsigned i = 0; i < SHARDS; i++) {
        mailbox_presence_claim(&box.lanes[i].presence);
        arrive(&box.lanes[i]);
    }
    os_a32_store(&box.rebalancing, 0, memory_order_seq_cst);
    turns();
}

static void sends_meet_a_change_of_the_number_of_shards(void)
{
    struct os_thread callers[CALLERS];
    memset(&box, 0, sizeof box);
    for (unsigned i = 0; i < SHARDS; i++) {
        struct lane *l = &box.lanes[i];
        l->no = i;
        l->work = rt_chan_create(
            &(struct rt_chan_spec){.name = "work_tx", .capacity = 2 * CALLERS, .policy = RT_REJECT});
        CHECK(l->work);
        mailbox_presence_begin_away(&l->presence);
    }
    mailbox_presence_claim(&box.lanes[0].presence);
    arrive(&box.lanes[0]);
    for (unsigned i = 0; i < CALLERS; i++) {
        box.jobs[i].key = i;
        CHECK(os_thread_start(&callers[i], "caller", caller, &box.jobs[i]) == ERR_OK);
    }
    change();
    for (unsigned i = 0; i < CALLERS; i++)
        os_thread_join(&callers[i]);
    turns();
    unsigned accepted = 0;
    for (unsigned i = 0; i < CALLERS; i++) {
        CHECK(os_a32_load(&box.jobs[i].answers, memory_order_relaxed) == 1);
        accepted |= box.jobs[i].accepted ? 1u << i : 0;
    }
    /* Nothing that was accepted is lost, nothing that was refused is there, and nothing is where nobody would find it. */
    CHECK(box.lanes[GROWN].state->keys == accepted && box.lanes[0].state->keys == 0);
    if (accepted)
        model_cover(0);
    for (unsigned i = 0; i < CALLERS; i++) {
        struct job again = {.key = i};
        submit(&again);
        turns();
        CHECK(again.accepted);
    }
    CHECK(box.lanes[GROWN].state->keys == (1u << CALLERS) - 1 && box.lanes[0].state->keys == 0);
    for (unsigned i = 0; i < SHARDS; i++) {
        CHECK(mailbox_presence_leave(&box.lanes[i].presence));
        depart(&box.lanes[i]);
        rt_chan_destroy(box.lanes[i].work, NULL, NULL);
    }
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "sends_meet_a_change_of_the_number_of_shards",
         .body = sends_meet_a_change_of_the_number_of_shards,
         .preemptions = 3,
         .covers = 3},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
