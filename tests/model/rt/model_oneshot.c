/* One-shot: one answer, one owner of it, and a slot that may die the moment it was answered. */
#include "base/check.h"
#include "model.h"
#include "rt/oneshot.h"
#include "rt/os.h"

static int answer_a, answer_b;

struct call {
    struct rt_oneshot slot;
    struct os_a32 kept; /* answers that stayed with their sender */
};

static void send_a(void *arg)
{
    struct rt_oneshot *o = arg;
    CHECK(rt_oneshot_send(o, &answer_a) == ERR_OK);
}

/* The waiter frees the slot as soon as it has the answer, while the sender may still be waking it. */
RT_BLOCKS
static void slot_is_free_after_the_answer(void)
{
    struct rt_oneshot *o = os_alloc(sizeof *o);
    struct os_thread t;
    void *value = NULL;
    rt_oneshot_init(o);
    CHECK(os_thread_start(&t, "sender", send_a, o) == ERR_OK);
    CHECK(rt_oneshot_recv(o, deadline_never(), &value) == ERR_OK);
    CHECK(value == &answer_a);
    rt_oneshot_fini(o);
    os_free(o);
    os_thread_join(&t);
}

/* The same, but the wait may time out first; then the waiter gives up, or finds that it was answered after all. */
RT_BLOCKS
static void slot_is_free_after_giving_up_or_the_answer(void)
{
    struct rt_oneshot *o = os_alloc(sizeof *o);
    struct os_thread t;
    void *value = NULL;
    rt_oneshot_init(o);
    CHECK(os_thread_start(&t, "sender", send_a, o) == ERR_OK);
    enum err e = rt_oneshot_recv(o, deadline_at_ns(2000000000), &value);
    if (e == ERR_TIMEOUT) {
        model_cover(0);
        e = rt_oneshot_recv(o, deadline_never(), &value); /* the sender of this model always answers */
    }
    CHECK(e == ERR_OK && value == &answer_a);
    model_cover(1);
    rt_oneshot_fini(o);
    os_free(o);
    os_thread_join(&t);
}

static void send_maybe(void *arg)
{
    struct call *c = arg;
    enum err e = rt_oneshot_send(&c->slot, &answer_b);
    if (e == ERR_OK)
        return;
    CHECK(e == ERR_CLOSED);
    os_a32_add(&c->kept, 1, memory_order_relaxed);
}

/* The answer came after all: the slot is the waiter's, who frees it while the sender may still be inside. */
static void slot_is_free_after_giving_up_too_late(void)
{
    struct call *c = os_alloc(sizeof *c);
    struct os_thread t;
    void *value = NULL;
    rt_oneshot_init(&c->slot);
    CHECK(os_thread_start(&t, "sender", send_maybe, c) == ERR_OK);
    bool mine = rt_oneshot_abandon(&c->slot, &value);
    model_cover(mine);
    if (!mine)
        os_thread_join(&t); /* a late sender still needs it */
    rt_oneshot_fini(&c->slot);
    os_free(c);
    if (mine)
        os_thread_join(&t);
}

static void answer_has_exactly_one_owner(void)
{
    struct call c = {0};
    struct os_thread t;
    void *value = NULL;
    rt_oneshot_init(&c.slot);
    CHECK(os_thread_start(&t, "sender", send_maybe, &c) == ERR_OK);
    bool mine = rt_oneshot_abandon(&c.slot, &value);
    os_thread_join(&t);
    CHECK(mine == (value == &answer_b));
    CHECK(os_a32_load(&c.kept, memory_order_relaxed) == (mine ? 0 : 1));
    model_cover(mine);
    rt_oneshot_fini(&c.slot);
}

static void send_racing(void *arg)
{
    struct call *c = arg;
    enum err e = rt_oneshot_send(&c->slot, &answer_b);
    CHECK(e == ERR_OK || e == ERR_EXISTS);
    if (e != ERR_OK)
        os_a32_add(&c->kept, 1, memory_order_relaxed);
}

RT_BLOCKS
static void first_of_two_senders_wins(void)
{
    struct call c = {0};
    struct os_thread t[2];
    void *value = NULL;
    rt_oneshot_init(&c.slot);
    for (int i = 0; i < 2; i++)
        CHECK(os_thread_start(&t[i], "sender", send_racing, &c) == ERR_OK);
    CHECK(rt_oneshot_recv(&c.slot, deadline_never(), &value) == ERR_OK);
    for (int i = 0; i < 2; i++)
        os_thread_join(&t[i]);
    CHECK(value == &answer_b && os_a32_load(&c.kept, memory_order_relaxed) == 1);
    rt_oneshot_fini(&c.slot);
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "slot_is_free_after_the_answer", .body = slot_is_free_after_the_answer},
        {.name = "slot_is_free_after_giving_up_or_the_answer",
         .body = slot_is_free_after_giving_up_or_the_answer,
         .timeouts = 1,
         .covers = 2},
        {.name = "slot_is_free_after_giving_up_too_late",
         .body = slot_is_free_after_giving_up_too_late,
         .covers = 2},
        {.name = "answer_has_exactly_one_owner", .body = answer_has_exactly_one_owner, .covers = 2},
        {.name = "first_of_two_senders_wins", .body = first_of_two_senders_wins},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
