/*
 * A ring between two words.
 *
 *     tail word   position of the next item to come  | CLOSED | ARMED | LOCKED | WAITED
 *     head word   position of the next item to leave | CLOSED |       | LOCKED | WAITED
 *
 * Positions only grow; item p lives in slot p mod ring size; head <= tail <= head + capacity. A sender
 *
 *   1. takes the tail side: sets LOCKED by compare-and-swap (which also tells it whether the channel is closed),
 *   2. copies items into the free slots,
 *   3. publishes: one addition moves the position, drops LOCKED, and returns whether receivers sleep (WAITED) or
 *      an event loop wants to hear (ARMED).
 *
 * Receivers do the same on the head side; what they free is published to sleeping senders. One sender and one
 * receiver never touch the same word except to refresh what they know of the other's position, which each side
 * keeps in `seen` and renews only when it runs out. With batches all of this is paid once per batch.
 *
 * A side is held for a few dozen instructions and never while waiting. Order: tail before head; only
 * rt_chan_push_drop_oldest() holds both. The tail's CLOSED is set while leaving that side, so whoever sees it knows
 * that no sender is inside and that the tail is final: "closed and head == tail" is the end, not a guess. The
 * head's CLOSED only ends the sleep of senders, who wait for that word to change.
 *
 * Memory order
 *   LOCKED    acquire in side_take()          pairs with the release in side_leave() of the previous holder
 *   tail      release in side_leave(tail)     pairs with rt_word_load(tail) in chan_items(): slots are written
 *   head      release in side_leave(head)     pairs with rt_word_load(head) in chan_room(): slots were read
 *   sleeping  see word.h; the position, the closing and the sleeping are bits of one word
 */
#include "rt/chan.h"

#include "base/check.h"
#include "base/rng.h"
#include "rt/os.h"
#include "rt/stop.h"
#include "rt/word.h"

#define LOCKED 2u
#define ARMED  4u /* a receive saw the channel empty, and on_ready has not been called since */
#define CLOSED 8u
#define STEP   16u /* one position */

#define STATE (~(uint64_t)(RT_WORD_WAITED | LOCKED | ARMED)) /* what a sleeper waits to see change */

enum { CHAN_MAGIC = 0x6e616863 };

struct chan_side {
    struct rt_word word;
    uint64_t seen;         /* a position that the other side has reached at least; guarded by LOCKED */
    struct os_count polls; /* how often to look before sleeping; a guess */
} __attribute__((aligned(OS_CACHE_LINE)));

struct rt_chan {
    uint32_t magic;
    struct rt_chan_spec spec;
    uint64_t mask; /* ring size - 1; the ring is a power of two, the capacity need not be */
    void **slots;
    struct os_count rejected;

    struct chan_side tail;
    struct os_count high_water; /* written under tail's LOCKED */
    struct rng retry_rng;       /* guarded by tail's LOCKED */

    struct chan_side head;
    struct os_count dropped; /* written under head's LOCKED */
};

static uint64_t position(uint64_t word)
{
    return word / STEP;
}

/* Takes one side; returns its word as it was, without LOCKED. */
static uint64_t side_take(struct chan_side *s)
{
    uint64_t word = os_a64_load(&s->word.v, memory_order_relaxed);
    for (;;) {
        if (word & LOCKED)
            word = os_a64_spin(&s->word.v, word);
        else if (os_a64_cas(&s->word.v, &word, word | LOCKED, memory_order_acquire))
            return word;
    }
}

/* Leaves it, adding `change`: positions (multiples of STEP) or CLOSED. Returns the word as it was. */
static uint64_t side_leave(struct chan_side *s, uint64_t change)
{
    return os_a64_add(&s->word.v, change - LOCKED, memory_order_release);
}

/* Tells the receivers, or the event loop, that `n` items came; `before` is what side_leave() returned. */
static void chan_tell_receivers(struct rt_chan *ch, uint64_t before, uint64_t n)
{
    if (before & RT_WORD_WAITED)
        rt_word_wake(&ch->tail.word, n);
    /* acq_rel: pairs with chan_arm(); only one of several senders finds the bit and calls */
    if ((before & ARMED) && (os_a64_and(&ch->tail.word.v, ~(uint64_t)ARMED, memory_order_acq_rel) & ARMED))
        ch->spec.on_ready(ch->spec.on_ready_arg);
}

static void chan_tell_senders(struct rt_chan *ch, uint64_t before, uint64_t n)
{
    if (before & RT_WORD_WAITED)
        rt_word_wake(&ch->head.word, n);
}

/*
 * Free slots before `tail`. With the tail side taken. The known head is good enough while it leaves room for n and
 * rules out a new high-water mark; otherwise the true one is read.
 */
static uint64_t chan_room(struct rt_chan *ch, uint64_t tail, uint64_t n)
{
    uint64_t high = os_count_get(&ch->high_water);
    if (tail + n - ch->tail.seen > high) {
        ch->tail.seen = position(rt_word_load(&ch->head.word));
        uint64_t depth = tail + n - ch->tail.seen;
        if (depth > ch->spec.capacity)
            depth = ch->spec.capacity;
        if (depth > high)
            os_count_set(&ch->high_water, depth);
    }
    return ch->spec.capacity - (tail - ch->tail.seen);
}

/* Items behind `head`, with the head side taken; *out_tail is the tail word as last read, or 0. */
static uint64_t chan_items(struct rt_chan *ch, uint64_t head, uint64_t want, uint64_t *out_tail)
{
    if (ch->head.seen - head < want) {
        *out_tail = rt_word_load(&ch->tail.word);
        ch->head.seen = position(*out_tail);
    }
    return ch->head.seen - head;
}

/* Puts as many of n items as fit. ERR_BUSY: none did. */
static enum err chan_put(struct rt_chan *ch, void *const *items, size_t n, size_t *out_n)
{
    uint64_t word = side_take(&ch->tail);
    if (word & CLOSED) {
        side_leave(&ch->tail, 0);
        return ERR_CLOSED;
    }
    uint64_t tail = position(word);
    uint64_t room = chan_room(ch, tail, n);
    uint64_t count = n < room ? n : room;
    for (uint64_t i = 0; i < count; i++)
        ch->slots[(tail + i) & ch->mask] = items[i];
    uint64_t before = side_leave(&ch->tail, count * STEP);
    if (count == 0)
        return ERR_BUSY;
    chan_tell_receivers(ch, before, count);
    *out_n = count;
    return ERR_OK;
}

/* Takes up to `max` items. ERR_EMPTY: none; *out_tail is then the tail word with which it was empty. */
static enum err chan_take(struct rt_chan *ch, void **items, size_t max, size_t *out_n, uint64_t *out_tail)
{
    uint64_t head = position(side_take(&ch->head));
    uint64_t tail = 0;
    uint64_t there = chan_items(ch, head, max, &tail);
    uint64_t count = max < there ? max : there;
    for (uint64_t i = 0; i < count; i++)
        items[i] = ch->slots[(head + i) & ch->mask];
    uint64_t before = side_leave(&ch->head, count * STEP);
    if (count > 0) {
        chan_tell_senders(ch, before, count);
        *out_n = count;
        return ERR_OK;
    }
    *out_tail = tail;
    return tail & CLOSED ? ERR_CLOSED : ERR_EMPTY;
}

struct rt_chan *rt_chan_create(const struct rt_chan_spec *spec)
{
    CHECK(spec->name != NULL);
    CHECK(spec->capacity >= 1 && spec->capacity <= RT_CHAN_CAPACITY_MAX);
    CHECK(spec->policy <= RT_RETRY_ONCE);
    struct rt_chan *ch = os_alloc(sizeof *ch);
    if (!ch)
        return NULL;
    uint64_t ring = 1;
    while (ring < spec->capacity)
        ring *= 2;
    ch->slots = os_alloc(ring * sizeof *ch->slots);
    if (!ch->slots) {
        os_free(ch);
        return NULL;
    }
    ch->magic = CHAN_MAGIC;
    ch->spec = *spec;
    ch->mask = ring - 1;
    if (ch->spec.retry_max_ms == 0) {
        ch->spec.retry_min_ms = 50;
        ch->spec.retry_max_ms = 150;
    }
    rng_seed(&ch->retry_rng, spec->seed);
    rt_word_init(&ch->tail.word, spec->on_ready ? ARMED : 0);
    rt_word_init(&ch->head.word, 0);
    return ch;
}

void rt_chan_destroy(struct rt_chan *ch, void (*give_back)(void *item, void *arg), void *arg)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    rt_chan_close(ch);
    void *item;
    size_t n;
    uint64_t tail;
    while (chan_take(ch, &item, 1, &n, &tail) == ERR_OK) {
        CHECK(give_back != NULL);
        give_back(item, arg);
    }
    rt_word_fini(&ch->tail.word);
    rt_word_fini(&ch->head.word);
    ch->magic = 0;
    os_free(ch->slots);
    os_free(ch);
}

enum err rt_chan_try_send_batch(struct rt_chan *ch, void *const *items, size_t n, size_t *out_n)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(ch->spec.policy != RT_DROP_OLDEST && n > 0);
    rt_lock_check_none("sending");
    enum err e = chan_put(ch, items, n, out_n);
    if (e == ERR_BUSY)
        os_count_add(&ch->rejected, 1);
    return e;
}

enum err rt_chan_try_send(struct rt_chan *ch, void *item)
{
    CHECK(item != NULL);
    size_t n;
    return rt_chan_try_send_batch(ch, &item, 1, &n);
}

/* Looks a while before it sleeps; how long depends on whether that helped the last time. */
RT_BLOCKS
static enum err side_wait(struct chan_side *s, uint64_t seen, struct deadline by)
{
    uint64_t polls = os_count_get(&s->polls);
    for (uint64_t i = 0; i < polls; i++) {
        os_pause();
        if ((rt_word_load(&s->word) ^ seen) & STATE) {
            os_count_set(&s->polls, OS_POLLS_MAX);
            return ERR_OK;
        }
    }
    os_count_set(&s->polls, polls / 2 + OS_POLLS_MIN);
    return rt_word_wait(&s->word, seen, STATE, by, RT_STOP_HARD);
}

/* Sends, waiting for room until `by`. */
RT_BLOCKS
static enum err chan_send_wait(struct rt_chan *ch, void *item, struct deadline by)
{
    for (;;) {
        /* before chan_put(): what happens to the word after this, room or the end, ends the wait */
        uint64_t head = rt_word_load(&ch->head.word);
        size_t n;
        enum err e = chan_put(ch, &item, 1, &n);
        if (e != ERR_BUSY)
            return e;
        e = side_wait(&ch->head, head, by);
        if (e != ERR_OK)
            return e;
    }
}

/* The back-off is spent waiting for room, so that the retry happens as soon as it can succeed. */
RT_BLOCKS
static enum err chan_send_retry(struct rt_chan *ch, void *item, struct deadline by)
{
    size_t n;
    enum err e = chan_put(ch, &item, 1, &n);
    if (e != ERR_BUSY)
        return e;
    side_take(&ch->tail); /* guards the generator */
    int64_t backoff_ms = rng_between(&ch->retry_rng, ch->spec.retry_min_ms, ch->spec.retry_max_ms);
    side_leave(&ch->tail, 0);
    e = chan_send_wait(ch, item, deadline_min(by, deadline_in_ms(backoff_ms)));
    if (e != ERR_TIMEOUT)
        return e;
    os_count_add(&ch->rejected, 1);
    return ERR_BUSY;
}

enum err rt_chan_send(struct rt_chan *ch, void *item, struct deadline by)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(item != NULL);
    rt_lock_check_none("sending");
    switch (ch->spec.policy) {
    case RT_WAIT:
        return chan_send_wait(ch, item, by);
    case RT_RETRY_ONCE:
        return chan_send_retry(ch, item, by);
    case RT_REJECT:
        return rt_chan_try_send(ch, item);
    case RT_DROP_OLDEST:
    case RT_LAST_WINS:
    case RT_LAG:
        break;
    }
    UNREACHABLE();
}

enum err rt_chan_push_drop_oldest(struct rt_chan *ch, void *item, void **out_dropped)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(item != NULL && ch->spec.policy == RT_DROP_OLDEST);
    rt_lock_check_none("sending");
    uint64_t word = side_take(&ch->tail);
    if (word & CLOSED) {
        side_leave(&ch->tail, 0);
        return ERR_CLOSED;
    }
    uint64_t tail = position(word);
    void *dropped = NULL;
    if (chan_room(ch, tail, 1) == 0) {
        uint64_t head = position(side_take(&ch->head));
        uint64_t gone = 0;
        if (tail - head == ch->spec.capacity) { /* no receiver made room since chan_room() looked */
            dropped = ch->slots[head & ch->mask];
            os_count_add(&ch->dropped, 1);
            gone = 1;
        }
        ch->tail.seen = head + gone;
        ch->head.seen = tail;               /* the head may have passed what receivers knew */
        side_leave(&ch->head, gone * STEP); /* nobody sleeps for room in a channel that always has some */
    }
    ch->slots[tail & ch->mask] = item;
    chan_tell_receivers(ch, side_leave(&ch->tail, STEP), 1);
    *out_dropped = dropped;
    return ERR_OK;
}

/* Asks for on_ready. False: something came (or the end) meanwhile, so the caller must look again. */
static bool chan_arm(struct rt_chan *ch, uint64_t seen)
{
    /* acq_rel: pairs with side_leave(tail); either the sender sees ARMED or we see its item */
    return ((os_a64_or(&ch->tail.word.v, ARMED, memory_order_acq_rel) ^ seen) & STATE) == 0;
}

enum err rt_chan_try_recv_batch(struct rt_chan *ch, void **items, size_t max, size_t *out_n)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(max > 0);
    for (;;) {
        uint64_t tail;
        enum err e = chan_take(ch, items, max, out_n, &tail);
        if (e != ERR_EMPTY || !ch->spec.on_ready || chan_arm(ch, tail))
            return e;
    }
}

enum err rt_chan_try_recv(struct rt_chan *ch, void **out_item)
{
    size_t n;
    return rt_chan_try_recv_batch(ch, out_item, 1, &n);
}

enum err rt_chan_recv_batch(struct rt_chan *ch, void **items, size_t max, struct deadline by, size_t *out_n)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(max > 0);
    rt_lock_check_none("receiving");
    if (rt_stop_asked(RT_STOP_HARD))
        return ERR_CANCELED;
    for (;;) {
        uint64_t tail;
        enum err e = chan_take(ch, items, max, out_n, &tail);
        if (e != ERR_EMPTY)
            return e;
        e = side_wait(&ch->tail, tail, by);
        if (e != ERR_OK)
            return e;
    }
}

enum err rt_chan_recv(struct rt_chan *ch, struct deadline by, void **out_item)
{
    size_t n;
    return rt_chan_recv_batch(ch, out_item, 1, by, &n);
}

void rt_chan_close(struct rt_chan *ch)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    if (side_take(&ch->tail) & CLOSED) {
        side_leave(&ch->tail, 0);
        return;
    }
    side_leave(&ch->tail, CLOSED);
    /* after the tail's: a sender that sees this one (chan_send_wait) also finds the tail closed (chan_put) */
    os_a64_or(&ch->head.word.v, CLOSED, memory_order_release);
    rt_word_wake(&ch->tail.word, UINT64_MAX);
    rt_word_wake(&ch->head.word, UINT64_MAX);
    if (ch->spec.on_ready)
        ch->spec.on_ready(ch->spec.on_ready_arg);
}

bool rt_chan_is_closed(const struct rt_chan *ch)
{
    return (rt_word_load(&ch->tail.word) & CLOSED) != 0;
}

size_t rt_chan_depth(const struct rt_chan *ch)
{
    /* head first: the tail read later cannot be behind it */
    uint64_t head = position(rt_word_load(&ch->head.word));
    uint64_t depth = position(rt_word_load(&ch->tail.word)) - head;
    return depth < ch->spec.capacity ? depth : ch->spec.capacity;
}

const char *rt_chan_name(const struct rt_chan *ch)
{
    return ch->spec.name;
}

const char *rt_chan_label(const struct rt_chan *ch)
{
    return ch->spec.label;
}

struct rt_chan_stats rt_chan_stats(const struct rt_chan *ch)
{
    uint64_t dropped = os_count_get(&ch->dropped); /* before head: never more dropped than have left */
    return (struct rt_chan_stats){
        .depth = rt_chan_depth(ch),
        .capacity = ch->spec.capacity,
        .high_water = os_count_get(&ch->high_water),
        .sent = position(rt_word_load(&ch->tail.word)),
        .received = position(rt_word_load(&ch->head.word)) - dropped,
        .rejected = os_count_get(&ch->rejected),
        .dropped = dropped,
    };
}
