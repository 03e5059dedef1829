/*
 * A bell: how a task sleeps on several queues at once. Whoever fills one of them rings; the task notes the bell, looks
 * at all its queues, and sleeps only while nobody has rung since it noted it.
 *
 * Threads     ring from any thread; note and wait by the one task.
 */
#ifndef RON_RT_BELL_H
#define RON_RT_BELL_H

#include "rt/stop.h"
#include "rt/word.h"

struct rt_bell {
    struct rt_word word; /* counts by 2: bit 0 is the word's own */
};

static inline void rt_bell_init(struct rt_bell *b)
{
    rt_word_init(&b->word, 0);
}

static inline void rt_bell_ring(void *bell)
{
    struct rt_bell *b = bell;
    /* release: what was queued is seen by who notes the bell; pairs with the acquire in note */
    if (os_a64_add(&b->word.v, 2, memory_order_acq_rel) & RT_WORD_WAITED)
        rt_word_wake(&b->word, 1);
}

static inline uint64_t rt_bell_note(const struct rt_bell *b)
{
    return rt_word_load(&b->word);
}

/* ERR_OK: it rang (or may have); ERR_TIMEOUT; ERR_CANCELED: the task is told to end at once. */
NODISCARD static inline enum err rt_bell_wait(struct rt_bell *b, uint64_t noted,
                                              struct deadline by) RT_BLOCKS;
static inline enum err rt_bell_wait(struct rt_bell *b, uint64_t noted, struct deadline by)
{
    return rt_word_wait(&b->word, noted, ~(uint64_t)RT_WORD_WAITED, by, RT_STOP_HARD);
}

/* The same for a task that has nothing to finish: ERR_CANCELED also when it is asked to stop softly, as in rt_task_sleep(). */
NODISCARD static inline enum err rt_bell_doze(struct rt_bell *b, uint64_t noted,
                                              struct deadline by) RT_BLOCKS;
static inline enum err rt_bell_doze(struct rt_bell *b, uint64_t noted, struct deadline by)
{
    return rt_word_wait(&b->word, noted, ~(uint64_t)RT_WORD_WAITED, by, RT_STOP_ANY);
}

#endif
