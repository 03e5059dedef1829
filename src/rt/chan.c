/*
 * A ring of slots between two words.
 *
 *     tail word   position of the next item to come  | CLOSED | ARMED | WAITED
 *     head word   position of the next item to leave | CLOSED |       | WAITED
 *     slot        the item, and one bit that says in which lap of the ring it was written: even or odd
 *
 * Positions only grow; item p lives in slot p mod ring size; head <= tail <= head + capacity.
 *
 *   send      claim positions: one compare-and-swap moves the tail, fails when it is CLOSED, and returns whether
 *             receivers sleep (WAITED) or an event loop wants to hear (ARMED). Write the items. Wake whom the swap
 *             told of.
 *   receive   read items from the slots that are written in this lap, then take them: one compare-and-swap moves the
 *             head and returns whether senders sleep. When it fails somebody else took them; what was read is
 *             forgotten.
 *
 * One atomic read-modify-write each, per item or per batch. Sender and receiver share no word but the slots: a sender
 * looks at the head only when the room it knows of (`room_until`) is used up, a receiver at the tail only when the
 * next slot is not written yet.
 *
 * Sleeping    A receiver sleeps only while tail == head. One that goes to sleep after a position was claimed is told
 *             so by its own RMW on the tail (word.h) and instead spins for the few instructions until the slot is
 *             written; one that slept before is woken by the claimer. So the claim need not be the last act.
 * Closing     CLOSED in the tail ends claiming: "closed and head == tail" is the end, not a guess. CLOSED in the head
 *             only ends the sleep of senders, who wait for that word to change.
 * Dropping    Pushers of a drop-oldest channel take turns (`turn`), so that one that made room also gets it; closing
 *             takes its turn too. The oldest is taken as a receiver would, from the head with which it was full.
 *
 * Memory order
 *   slot        release in slot_write()  pairs with the acquire in slot_read(): what the item points to is there
 *   head        release in head_move()   pairs with the acquire in chan_room(): the slot has been read
 *   room_until  release in chan_room()   pairs with its own acquire: passes the previous line on to other senders
 *   tail        relaxed; it hands out positions, the slots publish what is in them
 *   sleeping    see word.h: position, closing and sleeping are bits of one word
 */
#include "rt/chan.h"

#include "base/check.h"
#include "base/rng.h"
#include "rt/os.h"
#include "rt/stop.h"
#include "rt/word.h"

#define ARMED  2u /* a receive saw the channel empty, and on_ready has not been called since */
#define CLOSED 4u
#define STEP   8u /* one position */

#define STATE (~(uint64_t)(RT_WORD_WAITED | ARMED)) /* what a sleeper waits to see change */

/* Item by item, each swap waits for the cache line of the slot before it: ask for lines early. Batches need not. */
enum { SLOTS_AHEAD = 2 * OS_CACHE_LINE / sizeof(uint64_t) };

enum { CHAN_MAGIC = 0x6e616863 };

#define WRITTEN ((uint64_t)1 << 63) /* user space has no such addresses */

/* What the threads at one end share; the other end stays away from its cache line. */
struct chan_end {
    struct rt_word word;
    struct os_count looks;  /* how often to look before sleeping; a guess that learns */
    struct os_count blinks; /* waits that slept without a look, since looking was of no use */
} __attribute__((aligned(OS_CACHE_LINE)));

struct rt_chan {
    uint32_t magic;
    struct rt_chan_spec spec;
    unsigned ring_bits; /* the ring is a power of two, the capacity need not be */
    struct os_a64 *slots;
    struct os_mutex turn; /* one pusher at a time (RT_DROP_OLDEST); guards retry_rng (RT_RETRY_ONCE) */
    struct rng retry_rng;
    struct os_count rejected, dropped;

    struct chan_end tail;
    struct os_a64 room_until; /* claims below this position need not look at the head */
    struct os_count high_water;

    struct chan_end head;
};

/* One item at a time is worth its own copy of these paths, with the loops gone. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static uint64_t position(uint64_t word)
{
    return word / STEP;
}

static struct os_a64 *chan_slot(const struct rt_chan *ch, uint64_t at)
{
    return &ch->slots[at & (((uint64_t)1 << ch->ring_bits) - 1)];
}

/* WRITTEN as it is once item `at` is in its slot; before, it is as the lap before left it. */
static uint64_t written_mark(const struct rt_chan *ch, uint64_t at)
{
    return (at >> ch->ring_bits) & 1 ? 0 : WRITTEN;
}

/*
 * The first position that is not free, as far as needed to send n items from `tail` on: what is known is good enough
 * while it leaves room and rules out a new high-water mark; otherwise the head is read.
 */
ALWAYS_INLINE uint64_t chan_room(struct rt_chan *ch, uint64_t tail, uint64_t n)
{
    uint64_t until = os_a64_load(&ch->room_until, memory_order_acquire);
    if (tail + n + ch->spec.capacity > until + os_count_get(&ch->high_water)) {
        until = position(rt_word_load(&ch->head.word)) + ch->spec.capacity;
        os_a64_store(&ch->room_until, until, memory_order_release);
    }
    return until;
}

/* Claims up to n positions. ERR_BUSY: not even one. *out_word is the tail word as it was. */
ALWAYS_INLINE enum err chan_claim(struct rt_chan *ch, uint64_t n, uint64_t *out_n, uint64_t *out_word)
{
    uint64_t word = os_a64_load(&ch->tail.word.v, memory_order_relaxed);
    for (;;) {
        if (word & CLOSED)
            return ERR_CLOSED;
        uint64_t tail = position(word);
        uint64_t until = chan_room(ch, tail, n);
        if (tail >= until)
            return ERR_BUSY;
        uint64_t count = n < until - tail ? n : until - tail;
        if (os_a64_cas(&ch->tail.word.v, &word, word + count * STEP, memory_order_relaxed)) {
            os_count_max(&ch->high_water, tail + count + ch->spec.capacity - until);
            *out_n = count;
            *out_word = word;
            return ERR_OK;
        }
    }
}

static void slot_write(struct rt_chan *ch, uint64_t at, void *item)
{
    os_a64_store(chan_slot(ch, at), (uint64_t)(uintptr_t)item | written_mark(ch, at), memory_order_release);
}

/* Reads item `at`. False: its slot is not written yet (or, for a stale position, written again). */
static bool slot_read(const struct rt_chan *ch, uint64_t at, uint64_t *out_slot, void **out_item)
{
    uint64_t slot = os_a64_load(chan_slot(ch, at), memory_order_acquire);
    *out_slot = slot;
    if ((slot & WRITTEN) != written_mark(ch, at))
        return false;
    *out_item = (void *)(uintptr_t)(slot & ~WRITTEN);
    return true;
}

/* Tells the receivers, or the event loop, that n items came; `claimed` is the tail word as the claim found it. */
static void chan_tell_receivers(struct rt_chan *ch, uint64_t claimed, uint64_t n)
{
    if (claimed & RT_WORD_WAITED)
        rt_word_wake(&ch->tail.word, n);
    /* only one of several senders finds the bit and calls */
    if ((claimed & ARMED) && (os_a64_and(&ch->tail.word.v, ~(uint64_t)ARMED, memory_order_relaxed) & ARMED))
        ch->spec.on_ready(ch->spec.on_ready_arg);
}

/* Puts as many of n items as fit. ERR_BUSY: none did. */
ALWAYS_INLINE enum err chan_put(struct rt_chan *ch, void *const *items, size_t n, size_t *out_n)
{
    uint64_t count, claimed;
    enum err e = chan_claim(ch, n, &count, &claimed);
    if (e != ERR_OK)
        return e;
    if (n == 1)
        os_will_write(chan_slot(ch, position(claimed) + SLOTS_AHEAD));
    uintptr_t bits = 0;
    for (uint64_t i = 0; i < count; i++) {
        slot_write(ch, position(claimed) + i, items[i]);
        bits |= (uintptr_t)items[i];
    }
    CHECK((bits & WRITTEN) == 0); /* once per batch: inside the loop it doubled the cost */
    chan_tell_receivers(ch, claimed, count);
    *out_n = count;
    return ERR_OK;
}

/* The head moves from *word by n, unless somebody else moved it: false, and *word is what it is now. */
static bool head_move(struct rt_chan *ch, uint64_t *word, uint64_t n)
{
    return os_a64_cas(&ch->head.word.v, word, *word + n * STEP, memory_order_release);
}

/* Takes up to `max` items. ERR_EMPTY and ERR_CLOSED: none; *out_tail is then the tail word with which it was empty. */
ALWAYS_INLINE enum err chan_take(struct rt_chan *ch, void **items, size_t max, size_t *out_n,
                                 uint64_t *out_tail)
{
    uint64_t word = os_a64_load(&ch->head.word.v, memory_order_relaxed);
    for (;;) {
        uint64_t head = position(word), n = 0, slot = 0;
        if (max == 1)
            os_will_read(chan_slot(ch, head + SLOTS_AHEAD));
        while (n < max && slot_read(ch, head + n, &slot, &items[n]))
            n++;
        if (n > 0) {
            if (!head_move(ch, &word, n))
                continue;
            if (word & RT_WORD_WAITED)
                rt_word_wake(&ch->head.word, n);
            *out_n = n;
            return ERR_OK;
        }
        uint64_t tail = rt_word_load(&ch->tail.word);
        if (position(tail) == head) {
            *out_tail = tail;
            return tail & CLOSED ? ERR_CLOSED : ERR_EMPTY;
        }
        uint64_t before = word;
        word = os_a64_load(&ch->head.word.v, memory_order_relaxed);
        if (word == before) /* nobody took it: its sender has claimed it and is about to write */
            os_a64_spin(chan_slot(ch, head), slot);
    }
}

struct rt_chan *rt_chan_create(const struct rt_chan_spec *spec)
{
    CHECK(spec->name != NULL);
    CHECK(spec->capacity >= 1 && spec->capacity <= RT_CHAN_CAPACITY_MAX);
    CHECK(spec->policy <= RT_RETRY_ONCE);
    struct rt_chan *ch = os_alloc(sizeof *ch);
    if (!ch)
        return NULL;
    while ((size_t)1 << ch->ring_bits < spec->capacity)
        ch->ring_bits++;
    ch->slots = os_alloc(((size_t)1 << ch->ring_bits) * sizeof *ch->slots);
    if (!ch->slots) {
        os_free(ch);
        return NULL;
    }
    ch->magic = CHAN_MAGIC;
    ch->spec = *spec;
    if (ch->spec.retry_max_ms == 0) {
        ch->spec.retry_min_ms = 50;
        ch->spec.retry_max_ms = 150;
    }
    rng_seed(&ch->retry_rng, spec->seed);
    os_mutex_init(&ch->turn);
    os_a64_store(&ch->room_until, spec->capacity, memory_order_relaxed);
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
    os_mutex_fini(&ch->turn);
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

/*
 * Who never saw anything come goes to sleep at once: whoever is to send may be waiting for this very core. But now and then it
 * looks as long as it can, else two ends that only meet asleep would never find out that they need not.
 */
static uint64_t end_looks(struct chan_end *end, uint64_t usual)
{
    if (usual > 0)
        return usual;
    uint64_t blinks = os_count_get(&end->blinks) + 1;
    os_count_set(&end->blinks, blinks);
    /* NOLINTNEXTLINE(bugprone-branch-clone): takes any two numbers from macros for the same */
    return blinks % OS_LOOK_AGAIN == 0 ? OS_LOOKS_MAX : 0;
}

/* Waits for the word to change: looks a while before it sleeps, the longer if that helped the last time. */
RT_BLOCKS
static enum err end_wait(struct chan_end *end, uint64_t seen, size_t batch, struct deadline by)
{
    uint64_t usual = os_count_get(&end->looks), looks = end_looks(end, usual);
    /* NOLINTNEXTLINE(bugprone-branch-clone) */
    int pauses = batch == 1 ? OS_LOOK_PAUSES_ONE : OS_LOOK_PAUSES_BATCH;
    for (uint64_t i = 0; i < looks; i++) {
        for (int k = 0; k < pauses; k++)
            os_pause();
        if ((rt_word_load(&end->word) ^ seen) & STATE) {
            os_count_set(&end->looks, OS_LOOKS_MAX);
            return ERR_OK;
        }
    }
    os_count_set(&end->looks, usual / 2);
    return rt_word_wait(&end->word, seen, STATE, by, RT_STOP_HARD);
}

/* Sends all of n items, waiting for room until `by`; *sent grows as they go. */
RT_BLOCKS
static enum err chan_send_wait(struct rt_chan *ch, void *const *items, size_t n, struct deadline by,
                               size_t *sent)
{
    for (;;) {
        size_t some = 0;
        enum err e = chan_put(ch, items + *sent, n - *sent, &some);
        *sent += some;
        if (*sent == n || (e != ERR_OK && e != ERR_BUSY))
            return e;
        /* Full? Then once more with the head in hand: what happens to it from now on, room or the end, ends the wait. */
        uint64_t head = rt_word_load(&ch->head.word);
        e = chan_put(ch, items + *sent, n - *sent, &some);
        if (e == ERR_BUSY)
            e = end_wait(&ch->head, head, n, by);
        else if (e == ERR_OK)
            *sent += some;
        if (e != ERR_OK || *sent == n)
            return e;
    }
}

/* The back-off is spent waiting for room, so that the retry happens as soon as it can succeed. */
RT_BLOCKS
static enum err chan_send_retry(struct rt_chan *ch, void *item, struct deadline by)
{
    size_t n = 0;
    enum err e = chan_put(ch, &item, 1, &n);
    if (e != ERR_BUSY)
        return e;
    os_mutex_lock(&ch->turn);
    int64_t backoff_ms = rng_between(&ch->retry_rng, ch->spec.retry_min_ms, ch->spec.retry_max_ms);
    os_mutex_unlock(&ch->turn);
    e = chan_send_wait(ch, &item, 1, deadline_min(by, deadline_in_ms(backoff_ms)), &n);
    if (e != ERR_TIMEOUT)
        return e;
    os_count_add(&ch->rejected, 1);
    return ERR_BUSY;
}

enum err rt_chan_send_batch(struct rt_chan *ch, void *const *items, size_t n, struct deadline by,
                            size_t *out_n)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(ch->spec.policy == RT_WAIT && n > 0);
    rt_lock_check_none("sending");
    size_t sent = 0;
    enum err e = chan_send_wait(ch, items, n, by, &sent);
    *out_n = sent;
    return e;
}

enum err rt_chan_send(struct rt_chan *ch, void *item, struct deadline by)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(item != NULL);
    rt_lock_check_none("sending");
    size_t sent = 0;
    switch (ch->spec.policy) {
    case RT_WAIT:
        if (chan_put(ch, &item, 1, &sent) == ERR_OK)
            return ERR_OK;
        return chan_send_wait(ch, &item, 1, by, &sent);
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

/* In turn. The oldest item if the channel is still full, else NULL: a receiver was faster. */
static void *chan_drop(struct rt_chan *ch)
{
    uint64_t tail = position(os_a64_load(&ch->tail.word.v, memory_order_relaxed)); /* our turn: it stays */
    uint64_t word = os_a64_load(&ch->head.word.v, memory_order_relaxed);
    uint64_t slot;
    void *oldest = NULL;
    if (tail - position(word) < ch->spec.capacity)
        return NULL;
    if (!slot_read(ch, position(word), &slot, &oldest) || !head_move(ch, &word, 1))
        return NULL;
    os_count_add(&ch->dropped, 1);
    return oldest;
}

enum err rt_chan_push_drop_oldest_batch(struct rt_chan *ch, void *const *items, size_t n, void **dropped,
                                        size_t *out_dropped)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(n > 0 && ch->spec.policy == RT_DROP_OLDEST);
    rt_lock_check_none("sending");
    size_t put = 0, gone = 0, some = 0;
    os_mutex_lock(&ch->turn);
    enum err e = chan_put(ch, items, n, &some);
    while (e != ERR_CLOSED && put + some < n) {
        put += some;
        some = 0;
        if (e == ERR_BUSY) {
            CHECK(gone < n); /* who made room gets it: it is our turn */
            dropped[gone] = chan_drop(ch);
            gone += dropped[gone] != NULL;
        }
        e = chan_put(ch, items + put, n - put, &some);
        CHECK(e != ERR_CLOSED); /* closing waits for its turn */
    }
    os_mutex_unlock(&ch->turn);
    if (e == ERR_OK)
        *out_dropped = gone;
    return e;
}

enum err rt_chan_push_drop_oldest(struct rt_chan *ch, void *item, void **out_dropped)
{
    CHECK(item != NULL);
    void *dropped = NULL;
    size_t n;
    enum err e = rt_chan_push_drop_oldest_batch(ch, &item, 1, &dropped, &n);
    if (e == ERR_OK)
        *out_dropped = dropped;
    return e;
}

/* Asks for on_ready. False: something came (or the end) meanwhile, so the caller must look again. */
static bool chan_arm(struct rt_chan *ch, uint64_t seen)
{
    /* acquire: pairs with rt_chan_close(); either the sender's claim sees ARMED or we see the claim */
    return ((os_a64_or(&ch->tail.word.v, ARMED, memory_order_acquire) ^ seen) & STATE) == 0;
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
    void *item; /* what is read may yet be lost to another receiver: *out_item stays as it is */
    size_t n;
    enum err e = rt_chan_try_recv_batch(ch, &item, 1, &n);
    if (e == ERR_OK)
        *out_item = item;
    return e;
}

/* Nothing was there when it was tried: waits for it. */
RT_BLOCKS
static enum err chan_recv_wait(struct rt_chan *ch, void **items, size_t max, struct deadline by,
                               size_t *out_n)
{
    for (;;) {
        uint64_t tail;
        enum err e = chan_take(ch, items, max, out_n, &tail);
        if (e != ERR_EMPTY)
            return e;
        e = end_wait(&ch->tail, tail, max, by);
        if (e != ERR_OK)
            return e;
    }
}

enum err rt_chan_recv_batch(struct rt_chan *ch, void **items, size_t max, struct deadline by, size_t *out_n)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    CHECK(max > 0);
    rt_lock_check_none("receiving");
    if (rt_stop_asked(RT_STOP_HARD))
        return ERR_CANCELED;
    return chan_recv_wait(ch, items, max, by, out_n);
}

enum err rt_chan_recv(struct rt_chan *ch, struct deadline by, void **out_item)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    rt_lock_check_none("receiving");
    if (rt_stop_asked(RT_STOP_HARD))
        return ERR_CANCELED;
    void *item;
    size_t n;
    uint64_t tail;
    enum err e = chan_take(ch, &item, 1, &n, &tail);
    if (e == ERR_EMPTY)
        e = chan_recv_wait(ch, &item, 1, by, &n);
    if (e == ERR_OK)
        *out_item = item;
    return e;
}

void rt_chan_close(struct rt_chan *ch)
{
    CHECK_MAGIC(ch, CHAN_MAGIC);
    os_mutex_lock(&ch->turn); /* not between a drop and the push that it was for */
    uint64_t before = os_a64_or(&ch->tail.word.v, CLOSED, memory_order_release);
    os_mutex_unlock(&ch->turn);
    if (before & CLOSED)
        return;
    /* after the tail's: a sender that sees this one also finds the tail closed */
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
