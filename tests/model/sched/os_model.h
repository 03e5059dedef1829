/*
 * rt/os.h as the deterministic scheduler offers it: the same names, each a scheduling point. Included by rt/os.h
 * under RON_MODEL only; see explore.c for how interleavings are chosen.
 *
 * Atomics are sequentially consistent here whatever order is named: the checker explores interleavings, not weak
 * memory. What an order is for is argued at each place and watched by ThreadSanitizer.
 */
#ifndef RON_TESTS_MODEL_SCHED_OS_MODEL_H
#define RON_TESTS_MODEL_SCHED_OS_MODEL_H

struct os_mutex {
    uint32_t owner; /* thread number + 1; 0: free */
    uint32_t dead;  /* after fini */
};

struct os_thread {
    unsigned id;
};

struct os_a32 {
    uint32_t v;
};

struct os_a64 {
    uint64_t v;
};

void *os_alloc(size_t bytes);
void os_free(void *p);
int64_t os_now_ns(void);
unsigned os_cpus(void); /* a model that asks says how many */
NODISCARD enum err os_thread_start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg);
void os_thread_join(struct os_thread *t);
void os_thread_forget(struct os_thread *t);

#define OS_SELF_BYTES 128
void *os_self(void);

bool os_sleep_on(struct os_a32 *word, uint32_t expected, int64_t by_ns);
void os_wake_one(struct os_a32 *word);

void os_mutex_init(struct os_mutex *m);
void os_mutex_fini(struct os_mutex *m);
void os_mutex_lock(struct os_mutex *m);
void os_mutex_unlock(struct os_mutex *m);

/* Looking before sleeping adds no interleaving that sleeping does not have: none in the model. */
#define OS_LOOKS_MAX         0
#define OS_LOOK_AGAIN        UINT64_MAX /* never: a look is no step of the model */
#define OS_LOOK_PAUSES_ONE   0
#define OS_LOOK_PAUSES_BATCH 0
static inline void os_pause(void)
{
}
static inline void os_yield(void)
{
}
static inline void os_will_write(const void *p)
{
    (void)p;
}
static inline void os_will_read(const void *p)
{
    (void)p;
}

uint32_t os_a32_load(const struct os_a32 *a, memory_order mo);
void os_a32_store(struct os_a32 *a, uint32_t v, memory_order mo);
uint32_t os_a32_swap(struct os_a32 *a, uint32_t v, memory_order mo);
uint32_t os_a32_add(struct os_a32 *a, uint32_t v, memory_order mo);
uint32_t os_a32_or(struct os_a32 *a, uint32_t v, memory_order mo);
bool os_a32_cas(struct os_a32 *a, uint32_t *expected, uint32_t v, memory_order mo);
uint64_t os_a64_load(const struct os_a64 *a, memory_order mo);
void os_a64_store(struct os_a64 *a, uint64_t v, memory_order mo);
uint64_t os_a64_add(struct os_a64 *a, uint64_t v, memory_order mo);
uint64_t os_a64_or(struct os_a64 *a, uint64_t v, memory_order mo);
uint64_t os_a64_and(struct os_a64 *a, uint64_t v, memory_order mo);
bool os_a64_cas(struct os_a64 *a, uint64_t *expected, uint64_t v, memory_order mo);
uint32_t os_a32_spin(const struct os_a32 *a, uint32_t seen);
uint64_t os_a64_spin(const struct os_a64 *a, uint64_t seen);

#endif
