/*
 * What counting costs on a hot path: nanoseconds per update, alone and with four threads on the same series.
 *
 *   bench.metrics            (the bar: a histogram observation within 20 ns)
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "obs/metrics.h"

enum { ROUNDS = 5000000, THREADS = 4 };

static const struct obs_metric_def table[] = {
    {OBS_COUNTER, "bench_total", "Counted.", "q=a|b", NULL},
    {OBS_HISTOGRAM, "bench_seconds", "Observed.", "", OBS_SECONDS},
    {OBS_COUNTER, "bench_http_total", "Answers.", "route,method,status", NULL},
};

struct work {
    struct obs_family **f;
    int what;
    double ns;
};

static void *update(void *arg)
{
    struct work *w = arg;
    struct obs_counter *c = obs_counter_nth(w->f[0], 1);
    struct obs_hist *h = obs_hist(w->f[1]);
    int64_t start = clock_mono_ns(clock_real());
    for (int i = 0; i < ROUNDS; i++)
        switch (w->what) {
        case 0:
            obs_counter_inc(c);
            break;
        case 1:
            obs_hist_observe(h, (i & 1023) * 0.0001);
            break;
        default:
            obs_counter_inc(OBS_COUNTER_OF(w->f[2], "/v1/transfer", "POST", i & 1 ? "200" : "429"));
        }
    w->ns = (double)(clock_mono_ns(clock_real()) - start) / ROUNDS;
    return NULL;
}

int main(void)
{
    static const char *const names[] = {"counter add", "histogram observe",
                                        "look-up of three labels and add"};
    struct obs_metrics *reg;
    struct obs_family *f[3];
    CHECK(obs_metrics_create("bench", &reg) == ERR_OK && obs_metrics_add(reg, table, 3, f) == ERR_OK);
    for (int what = 0; what < 3; what++) {
        struct work alone = {f, what, 0}, w[THREADS];
        pthread_t t[THREADS];
        double worst = 0;
        update(&alone);
        for (int i = 0; i < THREADS; i++) {
            w[i] = (struct work){f, what, 0};
            CHECK(pthread_create(&t[i], NULL, update, &w[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(t[i], NULL);
            worst = w[i].ns > worst ? w[i].ns : worst;
        }
        printf("%-34s %6.1f ns alone   %6.1f ns (wall) with %d threads\n", names[what], alone.ns, worst,
               THREADS);
    }
    obs_metrics_destroy(reg);
    return 0;
}
