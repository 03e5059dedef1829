/*
 * The value sits under a mutex; its version is a word to wait on: version | CLOSED | WAITED.
 * The word moves inside the mutex, so a reader's value and version belong together.
 */
#include "rt/watch.h"

#include "base/check.h"
#include "rt/os.h"
#include "rt/stop.h"
#include "rt/word.h"

#define CLOSED 2u
#define STEP   4u /* one version */

enum { WATCH_MAGIC = 0x68637477 };

struct rt_watch {
    uint32_t magic;
    struct rt_watch_spec spec;
    struct os_mutex m; /* guards value */
    void *value;
    struct rt_word version;
};

struct rt_watch *rt_watch_create(const struct rt_watch_spec *spec)
{
    CHECK(spec->name != NULL && (spec->ref == NULL) == (spec->unref == NULL));
    struct rt_watch *w = os_alloc(sizeof *w);
    if (!w)
        return NULL;
    w->magic = WATCH_MAGIC;
    w->spec = *spec;
    w->value = spec->initial;
    os_mutex_init(&w->m);
    rt_word_init(&w->version, STEP);
    return w;
}

void rt_watch_destroy(struct rt_watch *w)
{
    CHECK_MAGIC(w, WATCH_MAGIC);
    if (w->spec.unref && w->value)
        w->spec.unref(w->value);
    rt_word_fini(&w->version);
    os_mutex_fini(&w->m);
    w->magic = 0;
    os_free(w);
}

void rt_watch_publish(struct rt_watch *w, void *value)
{
    CHECK_MAGIC(w, WATCH_MAGIC);
    rt_lock_check_none("publishing");
    os_mutex_lock(&w->m);
    void *old = w->value;
    w->value = value;
    /* release: pairs with rt_watch_version() and the waiters' acquire */
    uint64_t before = os_a64_add(&w->version.v, STEP, memory_order_release);
    os_mutex_unlock(&w->m);
    if (before & RT_WORD_WAITED)
        rt_word_wake(&w->version, UINT64_MAX);
    if (w->spec.unref && old)
        w->spec.unref(old);
}

/* The value with a reference, and the word it belongs to. */
static void *watch_read(struct rt_watch *w, uint64_t *out_word)
{
    CHECK_MAGIC(w, WATCH_MAGIC);
    os_mutex_lock(&w->m);
    void *value = w->value;
    if (w->spec.ref && value)
        w->spec.ref(value);
    *out_word = rt_word_load(&w->version);
    os_mutex_unlock(&w->m);
    return value;
}

void *rt_watch_get(struct rt_watch *w, uint64_t *out_version)
{
    uint64_t word;
    void *value = watch_read(w, &word);
    if (out_version)
        *out_version = word / STEP;
    return value;
}

uint64_t rt_watch_version(const struct rt_watch *w)
{
    return rt_word_load(&w->version) / STEP;
}

enum err rt_watch_wait(struct rt_watch *w, uint64_t seen, struct deadline by, void **out_value,
                       uint64_t *out_version)
{
    CHECK_MAGIC(w, WATCH_MAGIC);
    if (rt_stop_asked(RT_STOP_ANY))
        return ERR_CANCELED;
    for (;;) {
        uint64_t word = rt_word_load(&w->version);
        if (word / STEP != seen) {
            *out_value = rt_watch_get(w, out_version);
            return ERR_OK;
        }
        if (word & CLOSED)
            return ERR_CLOSED;
        enum err e = rt_word_wait(&w->version, word, ~(uint64_t)0, by, RT_STOP_ANY);
        if (e != ERR_OK)
            return e;
    }
}

void rt_watch_close(struct rt_watch *w)
{
    CHECK_MAGIC(w, WATCH_MAGIC);
    if (os_a64_or(&w->version.v, CLOSED, memory_order_release) & RT_WORD_WAITED)
        rt_word_wake(&w->version, UINT64_MAX);
}
