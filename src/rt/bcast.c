/*
 * The ring holds the last `capacity` items under one mutex; the number published so far is a word to wait on:
 * count | CLOSED | WAITED. A cursor is the number of the next item its subscriber wants; when that is older than
 * the ring, the difference is what it lost.
 */
#include "rt/bcast.h"

#include "base/check.h"
#include "rt/os.h"
#include "rt/stop.h"
#include "rt/word.h"

#define CLOSED 2u
#define STEP   4u /* one item */

enum { BCAST_MAGIC = 0x74736362, SUB_MAGIC = 0x62757362 };

struct rt_bcast {
    uint32_t magic;
    struct rt_bcast_spec spec;
    struct os_mutex m; /* guards ring, subs and their cursors; the count moves under it */
    void **ring;       /* item i in i % capacity */
    struct rt_bcast_sub *subs;
    size_t subs_n;
    struct rt_word count;
    struct os_count lagged;
};

struct rt_bcast_sub {
    uint32_t magic;
    struct rt_bcast *b;
    struct rt_bcast_sub *next, **prev;
    uint64_t cursor, lost;
    void (*on_ready)(void *arg);
    void *arg;
    bool armed; /* saw ERR_EMPTY, was not told since */
};

struct rt_bcast *rt_bcast_create(const struct rt_bcast_spec *spec)
{
    CHECK(spec->name != NULL && (spec->ref == NULL) == (spec->unref == NULL));
    CHECK(spec->capacity >= 1 && spec->capacity <= RT_BCAST_CAPACITY_MAX);
    struct rt_bcast *b = os_alloc(sizeof *b);
    if (!b)
        return NULL;
    b->ring = os_alloc(spec->capacity * sizeof *b->ring);
    if (!b->ring) {
        os_free(b);
        return NULL;
    }
    b->magic = BCAST_MAGIC;
    b->spec = *spec;
    os_mutex_init(&b->m);
    rt_word_init(&b->count, 0);
    return b;
}

static void bcast_unref(struct rt_bcast *b, void *item)
{
    if (item && b->spec.unref)
        b->spec.unref(item);
}

void rt_bcast_destroy(struct rt_bcast *b)
{
    CHECK_MAGIC(b, BCAST_MAGIC);
    CHECK(b->subs == NULL);
    for (size_t i = 0; i < b->spec.capacity; i++)
        bcast_unref(b, b->ring[i]);
    rt_word_fini(&b->count);
    os_mutex_fini(&b->m);
    b->magic = 0;
    os_free(b->ring);
    os_free(b);
}

/* Under b->m. */
static void bcast_tell_hooks(struct rt_bcast *b)
{
    for (struct rt_bcast_sub *s = b->subs; s; s = s->next) {
        if (s->armed) {
            s->armed = false;
            s->on_ready(s->arg);
        }
    }
}

void rt_bcast_publish(struct rt_bcast *b, void *item)
{
    CHECK_MAGIC(b, BCAST_MAGIC);
    CHECK(item != NULL);
    rt_lock_check_none("publishing");
    void *gone = item;
    uint64_t before = 0;
    os_mutex_lock(&b->m);
    uint64_t word = rt_word_load(&b->count);
    if (!(word & CLOSED)) {
        void **slot = &b->ring[word / STEP % b->spec.capacity];
        gone = *slot;
        *slot = item;
        before =
            os_a64_add(&b->count.v, STEP, memory_order_release); /* pairs with rt_word_load() in recv */
        bcast_tell_hooks(b);
    }
    os_mutex_unlock(&b->m);
    if (before & RT_WORD_WAITED)
        rt_word_wake(&b->count, UINT64_MAX);
    bcast_unref(b, gone);
}

void rt_bcast_close(struct rt_bcast *b)
{
    CHECK_MAGIC(b, BCAST_MAGIC);
    os_mutex_lock(&b->m);
    uint64_t before = os_a64_or(&b->count.v, CLOSED, memory_order_release);
    bcast_tell_hooks(b);
    os_mutex_unlock(&b->m);
    if (before & RT_WORD_WAITED)
        rt_word_wake(&b->count, UINT64_MAX);
}

struct rt_bcast_sub *rt_bcast_subscribe(struct rt_bcast *b, void (*on_ready)(void *arg), void *arg)
{
    CHECK_MAGIC(b, BCAST_MAGIC);
    struct rt_bcast_sub *s = os_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->magic = SUB_MAGIC;
    s->b = b;
    s->on_ready = on_ready;
    s->arg = arg;
    s->armed = on_ready != NULL;
    os_mutex_lock(&b->m);
    s->cursor = rt_word_load(&b->count) / STEP;
    s->next = b->subs;
    s->prev = &b->subs;
    if (s->next)
        s->next->prev = &s->next;
    b->subs = s;
    b->subs_n++;
    os_mutex_unlock(&b->m);
    return s;
}

void rt_bcast_unsubscribe(struct rt_bcast_sub *s)
{
    CHECK_MAGIC(s, SUB_MAGIC);
    struct rt_bcast *b = s->b;
    os_mutex_lock(&b->m);
    *s->prev = s->next;
    if (s->next)
        s->next->prev = s->prev;
    b->subs_n--;
    os_mutex_unlock(&b->m);
    s->magic = 0;
    os_free(s);
}

/* Under b->m: moves past what was overwritten. */
static bool sub_skip(struct rt_bcast_sub *s, uint64_t count)
{
    struct rt_bcast *b = s->b;
    if (count - s->cursor <= b->spec.capacity)
        return false;
    uint64_t lost = count - s->cursor - b->spec.capacity;
    s->cursor += lost;
    s->lost += lost;
    os_count_add(&b->lagged, lost);
    return true;
}

/* Under b->m. */
static enum err sub_next(struct rt_bcast_sub *s, uint64_t word, void **out_item)
{
    struct rt_bcast *b = s->b;
    uint64_t count = word / STEP;
    if (s->cursor == count) {
        s->armed = s->on_ready != NULL;
        return word & CLOSED ? ERR_CLOSED : ERR_EMPTY;
    }
    if (sub_skip(s, count))
        return ERR_LAGGED;
    void *item = b->ring[s->cursor++ % b->spec.capacity];
    if (b->spec.ref)
        b->spec.ref(item);
    *out_item = item;
    return ERR_OK;
}

static enum err sub_try(struct rt_bcast_sub *s, void **out_item, uint64_t *out_word)
{
    CHECK_MAGIC(s, SUB_MAGIC);
    os_mutex_lock(&s->b->m);
    *out_word = rt_word_load(&s->b->count);
    enum err e = sub_next(s, *out_word, out_item);
    os_mutex_unlock(&s->b->m);
    return e;
}

enum err rt_bcast_try_recv(struct rt_bcast_sub *s, void **out_item)
{
    uint64_t word;
    return sub_try(s, out_item, &word);
}

enum err rt_bcast_recv(struct rt_bcast_sub *s, struct deadline by, void **out_item)
{
    if (rt_stop_asked(RT_STOP_HARD))
        return ERR_CANCELED;
    for (;;) {
        uint64_t word;
        enum err e = sub_try(s, out_item, &word);
        if (e != ERR_EMPTY)
            return e;
        e = rt_word_wait(&s->b->count, word, ~(uint64_t)0, by, RT_STOP_ANY);
        if (e != ERR_OK)
            return e;
    }
}

void rt_bcast_note_lost(struct rt_bcast_sub *s)
{
    CHECK_MAGIC(s, SUB_MAGIC);
    os_mutex_lock(&s->b->m);
    (void)sub_skip(s, rt_word_load(&s->b->count) / STEP);
    os_mutex_unlock(&s->b->m);
}

uint64_t rt_bcast_take_lost(struct rt_bcast_sub *s)
{
    CHECK_MAGIC(s, SUB_MAGIC);
    uint64_t lost = s->lost; /* only the subscriber's own thread writes it */
    s->lost = 0;
    return lost;
}

struct rt_bcast_stats rt_bcast_stats(struct rt_bcast *b)
{
    CHECK_MAGIC(b, BCAST_MAGIC);
    os_mutex_lock(&b->m);
    size_t subs_n = b->subs_n;
    os_mutex_unlock(&b->m);
    return (struct rt_bcast_stats){
        .capacity = b->spec.capacity,
        .subscribers = subs_n,
        .published = rt_word_load(&b->count) / STEP,
        .lagged = os_count_get(&b->lagged),
    };
}
