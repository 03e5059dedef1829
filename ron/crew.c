#include "ron/crew.h"

#include "rt/os.h"

enum { THREADS_MAX = 64 };

struct crew {
    struct os_a64
        next; /* the first part nobody has taken. Relaxed: what a part wrote is handed over by the join */
    uint64_t parts;
    crew_part *part;
    void *arg;
};

static void work(void *arg)
{
    struct crew *c = arg;
    for (uint64_t i; (i = os_a64_add(&c->next, 1, memory_order_relaxed)) < c->parts;)
        c->part(c->arg, i);
}

void crew_run(unsigned threads, uint64_t parts, crew_part *part, void *arg)
{
    struct crew c = {.parts = parts, .part = part, .arg = arg};
    struct os_thread t[THREADS_MAX];
    unsigned started = 0;
    os_a64_store(&c.next, 0, memory_order_relaxed);
    while (started + 1 < threads && started + 1 < parts && started < THREADS_MAX &&
           os_thread_start(&t[started], "crew", work, &c) == ERR_OK)
        started++;
    work(&c);
    while (started)
        os_thread_join(&t[--started]);
}
