/*
 * Group commit: 64 writers, each waiting for its own record, against what the device can flush at all. The writers live
 * on one loop, as connections do: it sends a new record for each that was answered.
 *
 *   bench.journal [directory] [seconds] [buffered]
 *
 * First the raw rate: one page at a time into a preallocated file, each durable before the next. Then the journal: one
 * committer takes what is waiting, appends it as one group and answers. A group is one flush, so records per second can
 * reach flushes per second times records per group; the last line says how much of that is reached (the bar is 0.80).
 *
 * One idle-priority thread per core keeps the processors awake throughout: where they sleep between flushes, the raw
 * loop measures how long waking up takes instead of the device. The raw rate is taken before and after, the better counts.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "rt/chan.h"
#include "store/journal.h"

enum { WRITERS = 64, RECORD = 256, SEGMENT = 64 << 20 };

struct job {
    uint8_t record[RECORD];
};

struct bench {
    struct store_journal *j;
    struct rt_chan *queue, *answers;
    double seconds;
    uint64_t answered, groups;
};

static double now_s(void)
{
    return (double)clock_mono_ns(clock_real()) / 1e9;
}

static _Atomic bool awake = true; /* relaxed */

static void *stay_awake(void *arg)
{
    struct sched_param lowest = {0};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &lowest);
    while (atomic_load_explicit(&awake, memory_order_relaxed))
        ;
    return arg;
}

RT_BLOCKS
static void *loop(void *arg)
{
    struct bench *b = arg;
    static struct job jobs[WRITERS];
    void *items[WRITERS];
    size_t n = WRITERS, sent, waiting = 0;
    for (size_t i = 0; i < WRITERS; i++) {
        memset(jobs[i].record, 'r', RECORD);
        items[i] = &jobs[i];
    }
    double end = now_s() + b->seconds;
    do {
        if (now_s() < end) {
            CHECK(rt_chan_try_send_batch(b->queue, items, n, &sent) == ERR_OK && sent == n);
            waiting += n;
        }
        CHECK(rt_chan_recv_batch(b->answers, items, WRITERS, deadline_in_ms(10000), &n) == ERR_OK);
        waiting -= n;
        b->answered += n;
    } while (waiting > 0);
    rt_chan_close(b->queue);
    return NULL;
}

RT_BLOCKS
static void *committer(void *arg)
{
    struct bench *b = arg;
    void *items[WRITERS];
    struct bytes parts[WRITERS];
    size_t n;
    while (rt_chan_recv_batch(b->queue, items, WRITERS, deadline_in_ms(10000), &n) == ERR_OK) {
        struct store_head h;
        struct store_pos pos;
        for (size_t i = 0; i < n; i++)
            parts[i] = bytes_of(((struct job *)items[i])->record, RECORD);
        store_journal_head(b->j, &h);
        struct store_frame f = {.group_no = h.last_group + 1, .first_seq = h.next_seq, .prev_root = h.root};
        f.count = (uint32_t)n;
        sha256_of(h.root.b, 32, &f.new_root);
        enum err e;
        while ((e = store_journal_append(b->j, &f, parts, n, &pos)) == ERR_NO_SPACE)
            sched_yield(); /* the keeper is behind */
        CHECK(e == ERR_OK);
        b->groups++;
        size_t sent;
        CHECK(rt_chan_try_send_batch(b->answers, items, n, &sent) == ERR_OK && sent == n);
    }
    return NULL;
}

RT_BLOCKS
static void *keeper(void *arg)
{
    struct bench *b = arg;
    while (!store_journal_failed(b->j)) {
        if (store_journal_wants_spare(b->j))
            (void)!store_journal_prepare_spare(b->j);
        usleep(20000);
    }
    return NULL;
}

/* Durable writes per second of `bytes` each, one after the other. */
RT_BLOCKS
static double raw_rate(const char *dir, size_t bytes, double seconds, bool direct)
{
    char path[STORE_PATH_MAX];
    struct store_file *f;
    snprintf(path, sizeof path, "%s/raw", dir);
    unsigned flags = STORE_WRITE | STORE_CREATE | (direct ? STORE_DIRECT | STORE_DSYNC : 0);
    if (store_file_open(store_disk_real(), path, flags, &f)) {
        direct = false;
        CHECK(store_file_open(store_disk_real(), path, STORE_WRITE | STORE_CREATE, &f) == ERR_OK);
    }
    CHECK(store_file_allocate(f, SEGMENT) == ERR_OK);
    CHECK(store_file_sync(f) == ERR_OK);
    uint8_t *page = aligned_alloc(STORE_PAGE, bytes);
    memset(page, 'w', bytes);
    uint64_t n = 0, at = 0;
    double start = now_s();
    while (now_s() - start < seconds) {
        CHECK(store_file_pwrite(f, page, bytes, at) == ERR_OK);
        CHECK(direct || store_file_sync(f) == ERR_OK);
        at = (at + bytes) % (SEGMENT - bytes) / STORE_PAGE * STORE_PAGE;
        n++;
    }
    double rate = (double)n / (now_s() - start);
    store_file_close(f);
    unlink(path);
    free(page);
    return rate;
}

RT_BLOCKS
static void run(struct bench *b)
{
    pthread_t l, c, k;
    CHECK(store_journal_prepare_spare(b->j) == ERR_OK);
    double start = now_s();
    CHECK(pthread_create(&k, NULL, keeper, b) == 0 && pthread_create(&c, NULL, committer, b) == 0 &&
          pthread_create(&l, NULL, loop, b) == 0);
    pthread_join(l, NULL);
    pthread_join(c, NULL);
    b->seconds = now_s() - start;
    store_journal_fail(b->j);
    pthread_join(k, NULL);
}

RT_BLOCKS
int main(int argc, char **argv)
{
    char dir[256], command[300];
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    bool direct = argc <= 3;
    snprintf(dir, sizeof dir, "%s/ron-bench-XXXXXX", argc > 1 ? argv[1] : "/var/tmp");
    CHECK(mkdtemp(dir));
    struct store_journal_config cfg = {
        .disk = store_disk_real(),
        .dir = dir,
        .layout = {.align = STORE_PAGE, .segment_bytes = SEGMENT},
        .epoch = 1,
        .frame_bytes_max = 1 << 20,
        .direct = direct,
        .clock = clock_real(),
    };
    struct bench b = {.seconds = seconds};
    pthread_t spin[64];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < cores && i < 64; i++)
        CHECK(pthread_create(&spin[i], NULL, stay_awake, NULL) == 0);
    double raw_before = raw_rate(dir, 3 * STORE_PAGE, seconds / 2, direct);
    struct store_journal_report report;
    struct store_journal_stats stats;
    CHECK(store_journal_open(&cfg, NULL, NULL, &report, &b.j) == ERR_OK);
    b.queue =
        rt_chan_create(&(struct rt_chan_spec){.name = "commit", .capacity = WRITERS, .policy = RT_WAIT});
    b.answers =
        rt_chan_create(&(struct rt_chan_spec){.name = "answers", .capacity = WRITERS, .policy = RT_WAIT});
    CHECK(b.queue && b.answers);
    run(&b);
    store_journal_stats(b.j, &stats);
    double groups_s = (double)b.groups / b.seconds, size = (double)b.answered / (double)b.groups;
    uint64_t frame = stats.bytes / stats.frames / STORE_PAGE * STORE_PAGE;
    double raw = raw_rate(dir, frame ? frame : STORE_PAGE, seconds / 2, direct);
    if (raw < raw_before)
        raw = raw_before;
    atomic_store_explicit(&awake, false, memory_order_relaxed);
    for (long i = 0; i < cores && i < 64; i++)
        pthread_join(spin[i], NULL);
    printf("raw flush rate      %10.0f /s   (%llu bytes, %s)\n", raw, (unsigned long long)frame,
           stats.direct ? "O_DIRECT|O_DSYNC" : "pwrite+fdatasync");
    printf("group commits       %10.0f /s   %.1f records each\n", groups_s, size);
    printf("records acknowledged%10.0f /s   %d writers of %d bytes\n", (double)b.answered / b.seconds,
           WRITERS, RECORD);
    printf("of raw x group size %10.2f\n", (double)b.answered / b.seconds / (raw * size));
    rt_chan_destroy(b.queue, NULL, NULL);
    rt_chan_destroy(b.answers, NULL, NULL);
    store_journal_close(b.j);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0;
}
