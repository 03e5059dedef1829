#include "rt/task.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "rt/self.h"
#include "rt/task_internal.h"

struct rt_task *rt_task__create(const struct rt_task_spec *spec, unsigned index, struct rt_word *ended_word)
{
    CHECK(spec->name != NULL && spec->run != NULL);
    struct rt_task *t = os_alloc(sizeof *t);
    if (!t)
        return NULL;
    t->magic = RT_TASK_MAGIC;
    t->spec = *spec;
    if (!t->spec.kind)
        t->spec.kind = spec->name;
    t->index = index;
    t->ended_word = ended_word;
    if (spec->count > 1)
        snprintf(t->name, sizeof t->name, "%s-%u", spec->name, index);
    else
        snprintf(t->name, sizeof t->name, "%s", spec->name);
    rt_stop_init(&t->stop);
    rt_word_init(&t->nap, 0);
    return t;
}

void rt_task__destroy(struct rt_task *t)
{
    CHECK_MAGIC(t, RT_TASK_MAGIC);
    rt_word_fini(&t->nap);
    rt_stop_fini(&t->stop);
    t->magic = 0;
    os_free(t);
}

/* The thread. Its last act is to tell the supervisor, which then joins it. */
static void task_main(void *arg)
{
    struct rt_task *t = arg;
    struct rt_self *self = rt_self();
    self->task = t;
    self->stop = &t->stop;
    t->result = t->spec.run(t, t->spec.arg);
    rt_lock_check_none("ending a task");
    struct rt_word *word = t->ended_word;
    os_a32_store(&t->ended, 1, memory_order_release); /* pairs with the acquire in sup_reap() */
    if (os_a64_add(&word->v, RT_SUPERVISOR_EVENT, memory_order_release) & RT_WORD_WAITED)
        rt_word_wake(word, UINT64_MAX);
}

enum err rt_task__start(struct rt_task *t)
{
    os_a32_store(&t->ended, 0, memory_order_relaxed);
    os_a32_store(&t->stop.flags, 0, memory_order_relaxed);
    t->failing = false;
    t->started_ns = os_now_ns();
    t->stop.beats = t->spec.heartbeat_ms > 0;
    os_count_set(&t->stop.beat_ns, (uint64_t)t->started_ns);
    return os_thread_start(&t->thread, t->name, task_main, t);
}

int64_t rt_task__silent_ns(const struct rt_task *t, int64_t now_ns)
{
    if (t->spec.heartbeat_ms == 0 || os_count_get(&t->stop.asleep))
        return 0;
    int64_t beat_ns = (int64_t)os_count_get(&t->stop.beat_ns);
    return now_ns > beat_ns ? now_ns - beat_ns : 0;
}

struct rt_task *rt_task_current(void)
{
    return rt_self()->task;
}

const char *rt_task_name(const struct rt_task *t)
{
    return t->name;
}

unsigned rt_task_index(const struct rt_task *t)
{
    return t->index;
}

void rt_task_beat(struct rt_task *self)
{
    os_count_set(&self->stop.beat_ns, (uint64_t)os_now_ns());
}

bool rt_task_stopping(const struct rt_task *self)
{
    return os_a32_load(&self->stop.flags, memory_order_acquire) != 0;
}

bool rt_task_canceled(const struct rt_task *self)
{
    return (os_a32_load(&self->stop.flags, memory_order_acquire) & RT_STOP_HARD) != 0;
}

RT_BLOCKS
static enum err task_nap(struct rt_task *self, struct deadline by, unsigned ended_by)
{
    CHECK_MAGIC(self, RT_TASK_MAGIC);
    CHECK(self == rt_task_current());
    enum err e = rt_word_wait(&self->nap, 0, ~(uint64_t)0, by, ended_by);
    CHECK(e != ERR_OK);
    return e == ERR_TIMEOUT ? ERR_OK : e;
}

enum err rt_task_sleep(struct rt_task *self, struct deadline by)
{
    return task_nap(self, by, RT_STOP_ANY);
}

enum err rt_task_pause(struct rt_task *self, struct deadline by)
{
    return task_nap(self, by, RT_STOP_HARD);
}
