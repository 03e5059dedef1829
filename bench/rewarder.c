/*
 * One epoch computed, conserved and committed (all phases of the allocation; rows in memory, as mapped).
 * usage: bench.rewarder ROWS THREADS ROUNDING POOL SALTED [split]     prints one JSON object; `split` stops before the tree
 *        bench.rewarder ROWS parse     a shuffled NDJSON snapshot read, sorted and hashed; the same lines by the reader of rows alone
 *                                      (reader_s) and by jansson
 *
 * cpu_s is the CPU time of all threads, path_s that of the critical path: the parts of each phase, at the CPU time each took
 * while all threads ran, dealt out in order to whichever of as many idle cores is free first, and what closes the phase. Their
 * quotient is what more cores bring; on a busy machine the clock would say what others leave.
 */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/buf.h"
#include "base/rng.h"
#include "services/rewarder/core/calc.h"
#include "services/rewarder/core/snapshot.h"

struct crew {
    struct rewarder_calc *calc;
    enum rewarder_phase phase;
    atomic_ullong next;
    double *part_cpu; /* of each part, written by who ran it */
};

struct member {
    struct crew *crew;
    double cpu;
};

static double cpu_total, cpu_path, phase_path[REWARDER_PHASES];

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double thread_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *parts(void *arg)
{
    struct member *m = arg;
    struct crew *w = m->crew;
    double began = thread_cpu();
    uint64_t n = rewarder_calc_parts(w->calc, w->phase);
    for (uint64_t i; (i = atomic_fetch_add(&w->next, 1)) < n;) {
        double at = thread_cpu();
        if (rewarder_calc_part(w->calc, w->phase, i) != ERR_OK)
            abort();
        w->part_cpu[i] = thread_cpu() - at;
    }
    m->cpu = thread_cpu() - began;
    return NULL;
}

/* When the last part ends if each goes to the core that is free first. */
static double dealt_out(const double *part, uint64_t n, unsigned cores)
{
    double busy[16] = {0}, last = 0;
    for (uint64_t i = 0; i < n; i++) {
        unsigned first = 0;
        for (unsigned k = 1; k < cores; k++)
            first = busy[k] < busy[first] ? k : first;
        busy[first] += part[i];
        last = busy[first] > last ? busy[first] : last;
    }
    return last;
}

static void run_phase(struct rewarder_calc *calc, enum rewarder_phase phase, unsigned threads)
{
    uint64_t n = rewarder_calc_parts(calc, phase);
    struct crew w = {calc, phase, 0, calloc(n + 1, sizeof(double))};
    struct member m[16];
    pthread_t t[16];
    for (unsigned i = 0; i < threads; i++)
        m[i] = (struct member){&w, 0};
    for (unsigned i = 1; i < threads; i++)
        if (pthread_create(&t[i], NULL, parts, &m[i]))
            abort();
    parts(&m[0]);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(t[i], NULL);
    double began = thread_cpu();
    if (rewarder_calc_close(calc, phase) != ERR_OK)
        abort();
    double close = thread_cpu() - began;
    for (unsigned i = 0; i < threads; i++)
        cpu_total += m[i].cpu;
    phase_path[phase] = dealt_out(w.part_cpu, n, threads) + close;
    cpu_total += close;
    cpu_path += phase_path[phase];
    free(w.part_cpu);
}

static long rss_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* Canonical rows directly, so that the peak memory is that of the computation. */
static uint8_t *make_rows(uint64_t count, bool salted, struct rewarder_rows *out)
{
    static const struct str dims[] = {STR_INIT("bytes_served"), STR_INIT("bytes_stored"),
                                      STR_INIT("uptime_seconds")};
    static const uint8_t salt[16] = {1, 2, 3};
    struct rng g;
    struct rewarder_rows head = {
        .tenant = STR_INIT("default"), .epoch = STR_INIT("e"), .dim_count = 3, .count = count};
    memcpy(head.dims, dims, sizeof dims);
    if (salted)
        head.salt = (struct bytes){salt, sizeof salt};
    uint8_t *p = malloc(REWARDER_ROWS_HEADER_MAX + count * 40);
    size_t at = rewarder_rows_header(&head, p);
    rng_seed(&g, 1);
    for (uint64_t i = 0; i < count; i++) {
        p[at] = (uint8_t)sprintf((char *)p + at + 1, "acct:%09llu", (unsigned long long)i);
        at += 1u + p[at];
        be64_put(p + at, rng_below(&g, 1000000000));
        be64_put(p + at + 8, rng_below(&g, 1000000000));
        be64_put(p + at + 16, rng_below(&g, 604800));
        at += 24;
    }
    if (rewarder_rows_open((struct bytes){p, at}, out) != ERR_OK)
        abort();
    return p;
}

/* Accounts in no order: each a step of a walk that meets every number below count once. */
static void write_snapshot(uint64_t count, struct buf *b)
{
    struct rng g;
    uint64_t step = count / 2 + 1;
    while (step % 2 == 0 || step % 5 == 0)
        step++;
    rng_seed(&g, 1);
    buf_init(b, (size_t)4 << 30);
    buf_printf(b,
               "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e\",\"dims\":[\"bytes_served\","
               "\"bytes_stored\",\"uptime_seconds\"],\"count\":%llu}\n",
               (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        buf_printf(b, "[\"acct:%09llu\",%llu,%llu,%llu]\n", (unsigned long long)(i * step % count),
                   (unsigned long long)rng_below(&g, 1000000000),
                   (unsigned long long)rng_below(&g, 1000000000),
                   (unsigned long long)rng_below(&g, 604800));
}

static double by_jansson(struct bytes text)
{
    const char *p = (const char *)text.p, *end = p + text.n, *line;
    double began = thread_cpu();
    for (; p < end; p = line + 1) {
        json_error_t why;
        line = memchr(p, '\n', (size_t)(end - p));
        json_t *row = json_loadb(p, (size_t)(line - p), JSON_REJECT_DUPLICATES, &why);
        if (!row)
            abort();
        json_decref(row);
    }
    return thread_cpu() - began;
}

/* What jansson is compared with: both turn lines into values, and neither keeps them. */
static double by_reader(struct bytes text)
{
    const uint8_t *p = text.p, *end = p + text.n;
    uint8_t account[REWARDER_ACCOUNT_MAX];
    uint64_t usage[3], sum = 0;
    size_t n;
    double began = thread_cpu();
    for (; p < end; p++) { /* over the newline */
        if (rewarder_row_read(&p, end, 3, false, account, &n, usage))
            abort();
        sum += usage[0] + usage[1] + usage[2] + account[n - 1];
    }
    double took = thread_cpu() - began;
    if (sum == 0)
        abort();
    return took;
}

/* The count must be a power of ten: the walk is written for that. */
static int parse(uint64_t count)
{
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why;
    struct buf text;
    write_snapshot(count, &text);
    double began = thread_cpu();
    if (text.err != ERR_OK ||
        rewarder_snapshot_parse(buf_bytes(&text), REWARDER_NDJSON, count, &s, &why) != ERR_OK)
        return 1;
    double ours = thread_cpu() - began;
    rewarder_snapshot_fini(&s);
    const uint8_t *rows = memchr(text.p, '\n', text.n);
    struct bytes lines = bytes_of(rows + 1, text.n - (size_t)(rows + 1 - text.p));
    double reader = by_reader(lines), jansson = by_jansson(lines);
    printf("{\"cpu_s\": %.4f, \"reader_s\": %.4f, \"jansson_s\": %.4f}\n", ours, reader, jansson);
    buf_fini(&text);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[2], "parse"))
        return parse(strtoull(argv[1], NULL, 10));
    if (argc < 6)
        return 2;
    uint64_t count = strtoull(argv[1], NULL, 10);
    unsigned threads = (unsigned)atoi(argv[2]), index;
    bool split_only = argc > 6 && !strcmp(argv[6], "split");
    struct rewarder_rows rows;
    struct rewarder_policy *policy;
    struct rewarder_calc *calc;
    const char *member;
    struct buf text;
    uint8_t *bytes = make_rows(count, atoi(argv[5]) != 0, &rows);
    buf_init(&text, 4096);
    buf_printf(
        &text,
        "{\"v\":1,\"id\":\"p\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\",\"dust_account\":"
        "\"pool:dust\","
        "\"pool\":\"%s\",\"rounding\":\"%s\",\"weights\":[{\"dim\":\"bytes_served\",\"num\":1,\"den\":4},"
        "{\"dim\":\"bytes_stored\",\"num\":1,\"den\":1},{\"dim\":\"uptime_seconds\",\"num\":1,\"den\":1}]}",
        argv[4], argv[3]);
    if (rewarder_policy_create(buf_bytes(&text), &policy, &member) != ERR_OK)
        return 2;
    long before = rss_kib();
    double t0 = seconds(), c0 = thread_cpu();
    if (rewarder_calc_create(&rows, policy, policy->pool, 65536, &calc, &index) != ERR_OK)
        return 1;
    cpu_total = cpu_path = thread_cpu() - c0;
    enum rewarder_phase last = split_only ? REWARDER_AMOUNTS : REWARDER_COMMIT;
    for (enum rewarder_phase ph = REWARDER_SCORES; ph <= last; ph++)
        run_phase(calc, ph, threads);
    double took = seconds() - t0;
    printf("{\"seconds\": %.4f, \"per_s\": %.0f, \"cpu_s\": %.4f, \"path_s\": %.4f, \"phases\": {", took,
           (double)count / took, cpu_total, cpu_path);
    for (enum rewarder_phase ph = REWARDER_SCORES; ph <= last; ph++)
        printf("%s\"%s\": %.4f", ph ? ", " : "", rewarder_phase_name(ph), phase_path[ph]);
    printf("}, \"bytes_per_row\": %.1f, \"with_rows\": %.1f}\n",
           (double)(rss_kib() - before) * 1024 / (double)count,
           (double)(rss_kib() - before) * 1024 / (double)count + (double)rows.all.n / (double)count);
    rewarder_calc_destroy(calc);
    rewarder_policy_destroy(policy);
    buf_fini(&text);
    free(bytes);
    return 0;
}
