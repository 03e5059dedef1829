/*
 * States in the word: EMPTY -> SENDING -> FULL, or EMPTY -> ABANDONED.
 *
 * The slot dies as soon as its owner has the value, which can be while the sender is still waking it up. So the
 * sender publishes FULL inside the word's mutex (rt_word_publish) and the owner passes through that mutex before
 * it returns (rt_word_settle): by then the sender has let go.
 */
#include "rt/oneshot.h"

#include "base/check.h"
#include "rt/os.h"
#include "rt/stop.h"

#define EMPTY     0u
#define SENDING   2u
#define FULL      4u
#define ABANDONED 6u
#define STATE     6u

void rt_oneshot_init(struct rt_oneshot *o)
{
    rt_word_init(&o->state, EMPTY);
    o->value = NULL;
}

void rt_oneshot_fini(struct rt_oneshot *o)
{
    rt_word_fini(&o->state);
}

/* EMPTY -> `to`, keeping WAITED; false when it is not EMPTY any more. */
static bool oneshot_claim(struct rt_oneshot *o, uint64_t to, uint64_t *out_word)
{
    uint64_t word = rt_word_load(&o->state);
    while ((word & STATE) == EMPTY) {
        if (os_a64_cas(&o->state.v, &word, word | to, memory_order_acq_rel))
            return true;
    }
    *out_word = word;
    return false;
}

enum err rt_oneshot_send(struct rt_oneshot *o, void *value)
{
    rt_lock_check_none("answering");
    uint64_t word;
    if (!oneshot_claim(o, SENDING, &word))
        return (word & STATE) == ABANDONED ? ERR_CLOSED : ERR_EXISTS;
    o->value = value;
    rt_word_publish(&o->state, FULL - SENDING);
    return ERR_OK;
}

/* The value is there; once the sender has let go, the slot is the owner's alone. */
static void *oneshot_take(struct rt_oneshot *o)
{
    rt_word_settle(&o->state);
    return o->value;
}

enum err rt_oneshot_recv(struct rt_oneshot *o, struct deadline by, void **out_value)
{
    for (;;) {
        uint64_t word = rt_word_load(&o->state); /* pairs with the release in rt_word_publish() */
        CHECK((word & STATE) != ABANDONED);
        if ((word & STATE) == FULL) {
            *out_value = oneshot_take(o);
            return ERR_OK;
        }
        enum err e = rt_word_wait(&o->state, word, FULL, by, RT_STOP_HARD);
        if (e != ERR_OK)
            return e;
    }
}

bool rt_oneshot_abandon(struct rt_oneshot *o, void **out_value)
{
    uint64_t word;
    if (oneshot_claim(o, ABANDONED, &word))
        return false;
    while ((word & STATE) == SENDING)
        word = os_a64_spin(&o->state.v, word);
    *out_value = oneshot_take(o);
    return true;
}
