/*
 * Group commit: 64 writers, each waiting for its own record, against what the device can flush at all. The writers live
 * on two loops, as connections do: a loop sends a new record for each that was answered.
 *
 *   bench.journal [directory] [seconds] [buffered]
 *
 * Raw rate: a frame's worth of bytes at a time into a preallocated file, each durable before the next. Journal: one
 * committer takes what is waiting, appends it as one group and answers. A group is one flush, so records per second can
 * reach flushes per second times records per group; the last line says how much of that is reached (the bar is 0.80).
 * A group takes at most half of the writers: the other half gets ready while the device works, instead of everybody
 * waiting for everybody.
 *
 * The two take turns in short slices and the median slice counts, so that somebody else's disk traffic hits both. On a
 * busy machine even that is noise; the line "device busy" is not: the share of the time in which a flush was under way.
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

enum {
    WRITERS = 64,
    RECORD = 256,
    SEGMENT = 64 << 20,
    SLICES = 15,
    FRAME = 12288,
    LOOPS = 2,
    GROUP_MAX = WRITERS / 2
};

struct bench {
    struct store_journal *j;
    struct store_file *raw;
    bool direct;
    uint8_t *page;
    uint64_t raw_at;
    struct rt_chan *queue, *answers[LOOPS];
    double seconds;   /* of a slice */
    double journal_s; /* all slices together */
    double before_s;  /* in flushes before the first slice */
    struct obs_metrics *reg;
    struct obs_hist *flush;
    _Atomic uint64_t answered, groups; /* of the current slice; relaxed */
};

struct record {
    unsigned loop;
    uint8_t bytes[RECORD];
};

struct loop {
    struct bench *b;
    unsigned no;
};

static double now_s(void)
{
    return (double)clock_mono_ns(clock_real()) / 1e9;
}

RT_BLOCKS
static void append(struct bench *b, const struct bytes *parts, size_t n)
{
    struct store_head h;
    struct store_pos pos;
    store_journal_head(b->j, &h);
    struct store_frame f = {.group_no = h.last_group + 1, .first_seq = h.next_seq, .prev_root = h.root};
    f.count = (uint32_t)n;
    sha256_of(h.root.b, 32, &f.new_root);
    enum err e;
    while ((e = store_journal_append(b->j, &f, parts, n, &pos)) == ERR_NO_SPACE)
        sched_yield(); /* the keeper is behind */
    CHECK(e == ERR_OK);
}

RT_BLOCKS
static void answer(struct bench *b, void **items, size_t n)
{
    void *mine[WRITERS];
    for (unsigned l = 0; l < LOOPS; l++) {
        size_t m = 0, sent;
        for (size_t i = 0; i < n; i++)
            if (((struct record *)items[i])->loop == l)
                mine[m++] = items[i];
        if (m)
            CHECK(rt_chan_try_send_batch(b->answers[l], mine, m, &sent) == ERR_OK && sent == m);
    }
}

RT_BLOCKS
static void *committer(void *arg)
{
    struct bench *b = arg;
    void *items[WRITERS];
    struct bytes parts[WRITERS];
    size_t n;
    while (rt_chan_recv_batch(b->queue, items, GROUP_MAX, deadline_in_ms(60000), &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            parts[i] = bytes_of(((struct record *)items[i])->bytes, RECORD);
        append(b, parts, n);
        atomic_fetch_add_explicit(&b->groups, 1, memory_order_relaxed);
        answer(b, items, n);
    }
    return NULL;
}

RT_BLOCKS
static void *keeper(void *arg)
{
    struct bench *b = arg;
    while (!store_journal_failed(b->j)) {
        if (store_journal_wants_spare(b->j) && store_journal_prepare_spare(b->j))
            return NULL;
        usleep(20000);
    }
    return NULL;
}

/* Half of the writers for the length of a slice, and until the last of them is answered. */
RT_BLOCKS
static void *loop_run(void *arg)
{
    struct loop *l = arg;
    struct bench *b = l->b;
    struct record records[WRITERS / LOOPS];
    void *items[WRITERS / LOOPS];
    size_t n = WRITERS / LOOPS, sent, waiting = 0;
    for (size_t i = 0; i < n; i++) {
        memset(records[i].bytes, 'r', RECORD);
        records[i].loop = l->no;
        items[i] = &records[i];
    }
    double end = now_s() + b->seconds;
    for (;;) {
        if (now_s() < end) {
            CHECK(rt_chan_try_send_batch(b->queue, items, n, &sent) == ERR_OK && sent == n);
            waiting += n;
        }
        if (waiting == 0)
            return NULL;
        CHECK(rt_chan_recv_batch(b->answers[l->no], items, WRITERS / LOOPS, deadline_in_ms(60000), &n) ==
              ERR_OK);
        waiting -= n;
        atomic_fetch_add_explicit(&b->answered, n, memory_order_relaxed);
    }
}

/* Records per second. */
RT_BLOCKS
static double journal_slice(struct bench *b, double seconds)
{
    pthread_t t[LOOPS];
    struct loop l[LOOPS];
    b->seconds = seconds;
    b->answered = b->groups = 0;
    double start = now_s();
    for (unsigned i = 0; i < LOOPS; i++) {
        l[i] = (struct loop){b, i};
        CHECK(pthread_create(&t[i], NULL, loop_run, &l[i]) == 0);
    }
    for (unsigned i = 0; i < LOOPS; i++)
        pthread_join(t[i], NULL);
    double took = now_s() - start;
    CHECK(took >= seconds); /* else what is measured is how loops begin and end */
    b->journal_s += took;
    return (double)b->answered / took;
}

/* Durable writes per second, one after the other. */
RT_BLOCKS
static double raw_slice(struct bench *b, double seconds)
{
    uint64_t n = 0;
    double start = now_s();
    while (now_s() - start < seconds) {
        CHECK(store_file_pwrite(b->raw, b->page, FRAME, b->raw_at) == ERR_OK);
        CHECK(b->direct || store_file_sync(b->raw) == ERR_OK);
        b->raw_at = b->raw_at + 2 * FRAME > SEGMENT ? 0 : b->raw_at + FRAME;
        n++;
    }
    return (double)n / (now_s() - start);
}

RT_BLOCKS
static void open_both(struct bench *b, const char *dir, bool direct)
{
    static const struct obs_metric_def def = {OBS_HISTOGRAM, "flush_seconds", "Write and flush.", "",
                                              OBS_SECONDS};
    char path[STORE_PATH_MAX];
    struct obs_family *f;
    CHECK(obs_metrics_create("bench", &b->reg) == ERR_OK && obs_metrics_add(b->reg, &def, 1, &f) == ERR_OK);
    b->flush = obs_hist(f);
    struct store_journal_report report;
    struct store_journal_stats stats;
    struct store_journal_config cfg = {
        .disk = store_disk_real(),
        .dir = dir,
        .layout = {.align = STORE_PAGE, .segment_bytes = SEGMENT},
        .epoch = 1,
        .frame_bytes_max = 1 << 20,
        .direct = direct,
        .clock = clock_real(),
        .flush_seconds = b->flush,
    };
    CHECK(store_journal_open(&cfg, NULL, NULL, &report, &b->j) == ERR_OK);
    CHECK(store_journal_prepare_spare(b->j) == ERR_OK);
    append(b, &(struct bytes){(const uint8_t *)"warm", 4}, 1);
    CHECK(store_journal_prepare_spare(b->j) == ERR_OK);
    store_journal_stats(b->j, &stats);
    b->direct = stats.direct;
    snprintf(path, sizeof path, "%s/raw", dir);
    unsigned flags = STORE_WRITE | STORE_CREATE | (b->direct ? STORE_DIRECT | STORE_DSYNC : 0u);
    CHECK(store_file_open(cfg.disk, path, flags, &b->raw) == ERR_OK);
    CHECK(store_file_allocate(b->raw, SEGMENT) == ERR_OK && store_file_sync(b->raw) == ERR_OK);
    b->page = aligned_alloc(STORE_PAGE, FRAME);
    memset(b->page, 'w', FRAME);
    b->queue =
        rt_chan_create(&(struct rt_chan_spec){.name = "commit", .capacity = WRITERS, .policy = RT_WAIT});
    CHECK(b->queue && b->page);
    for (unsigned i = 0; i < LOOPS; i++) {
        b->answers[i] = rt_chan_create(
            &(struct rt_chan_spec){.name = "answers", .capacity = WRITERS, .policy = RT_WAIT});
        CHECK(b->answers[i]);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v)
{
    qsort(v, SLICES, sizeof *v, by_value);
    return v[SLICES / 2];
}

RT_BLOCKS
static void run(struct bench *b, double seconds)
{
    double raw[SLICES], records[SLICES], size[SLICES], ratio[SLICES];
    pthread_t c, k;
    b->before_s = obs_hist_sum(b->flush);
    CHECK(pthread_create(&k, NULL, keeper, b) == 0 && pthread_create(&c, NULL, committer, b) == 0);
    for (int i = 0; i < SLICES; i++) {
        raw[i] = raw_slice(b, seconds / SLICES / 2);
        records[i] = journal_slice(b, seconds / SLICES / 2);
        size[i] = (double)b->answered / (double)b->groups;
        ratio[i] = records[i] / (raw[i] * size[i]);
    }
    rt_chan_close(b->queue);
    pthread_join(c, NULL);
    store_journal_fail(b->j);
    pthread_join(k, NULL);
    printf("raw flush rate       %9.0f /s  of %d bytes, %s\n", median(raw), FRAME,
           b->direct ? "O_DIRECT|O_DSYNC" : "pwrite+fdatasync");
    printf("records acknowledged %9.0f /s  %d writers of %d bytes, %.1f per group\n", median(records),
           WRITERS, RECORD, median(size));
    printf("device busy          %9.2f\n", (obs_hist_sum(b->flush) - b->before_s) / b->journal_s);
    double middle = median(ratio); /* sorts */
    printf("of raw x group size  %9.2f     (worst slice %.2f, best %.2f)\n", middle, ratio[0],
           ratio[SLICES - 1]);
}

RT_BLOCKS
int main(int argc, char **argv)
{
    char dir[256], command[300];
    struct bench b = {0};
    snprintf(dir, sizeof dir, "%s/ron-bench-XXXXXX", argc > 1 ? argv[1] : "/var/tmp");
    CHECK(mkdtemp(dir));
    open_both(&b, dir, argc <= 3);
    run(&b, argc > 2 ? atof(argv[2]) : 6);
    rt_chan_destroy(b.queue, NULL, NULL);
    for (unsigned i = 0; i < LOOPS; i++)
        rt_chan_destroy(b.answers[i], NULL, NULL);
    store_journal_close(b.j);
    store_file_close(b.raw);
    obs_metrics_destroy(b.reg);
    free(b.page);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0;
}
