/* main() of a model program: which models, how deep, and what is printed about them. */
#include "exploration.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int replay(const struct model *m, const char *schedule)
{
    struct model_result r;
    model__search_begin(m, MODEL_REDUCED, &r);
    ex.replay = schedule;
    ex.trace = true;
    model__run_once();
    printf("%s: %s\n", m->name, ex.end == RUN_FAILED ? r.why : "ended well");
    return ex.end == RUN_FAILED;
}

static bool report(const struct model *m, const struct model_result *r)
{
    unsigned wanted = m->covers ? (1u << m->covers) - 1 : 0;
    bool covered = (r->covered & wanted) == wanted;
    double rate = r->seconds > 0 ? (double)(r->runs + r->cut) / r->seconds : 0;
    printf("%-40s %9" PRIu64 " runs %9" PRIu64 " cut  %4u steps  %7.2f s  %9.0f/s  %s\n", m->name, r->runs,
           r->cut, r->steps_max, r->seconds, rate,
           r->failed     ? "FAILED"
           : !covered    ? "UNCOVERED"
           : r->complete ? (m->preemptions ? "bounded" : "exhaustive")
                         : "stopped");
    if (r->failed)
        printf("  %s\n  --model %s --replay %s\n", r->why, m->name, r->schedule);
    if (!covered && !r->failed)
        printf("  places reached %x, wanted %x\n", r->covered, wanted);
    return !r->failed && covered;
}

/* Goes on without the bound on preemptions, as far as the time allows. */
static bool explore_deep(struct model m, double limit_seconds)
{
    static struct model_result r;
    m.preemptions = 0;
    ex.stop_at = model__seconds() + limit_seconds;
    model_explore(&m, MODEL_REDUCED, 0, NULL, &r);
    ex.stop_at = 0;
    return report(&m, &r);
}

int model_main(int argc, char **argv, const struct model *models, size_t n)
{
    const char *only = NULL, *schedule = NULL;
    bool expect_failure = false;
    uint64_t runs_max = 0;
    const char *deep = getenv("RON_MODEL_SECONDS");
    double deep_seconds = deep ? strtod(deep, NULL) : 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--expect-failure") == 0)
            expect_failure = true;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc)
            schedule = argv[++i];
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs_max = strtoull(argv[++i], NULL, 10);
        else {
            fprintf(stderr, "usage: %s [--model NAME] [--replay SCHEDULE] [--runs N] [--expect-failure]\n",
                    argv[0]);
            return 2;
        }
    }
    bool good = true, ran = false;
    for (size_t i = 0; i < n; i++) {
        if (only && strcmp(only, models[i].name) != 0)
            continue;
        ran = true;
        if (schedule)
            return replay(&models[i], schedule);
        static struct model_result r;
        model_explore(&models[i], MODEL_REDUCED, runs_max, NULL, &r);
        good = report(&models[i], &r) && good;
        if (good && deep_seconds > 0 && models[i].preemptions > 0)
            good = explore_deep(models[i], deep_seconds);
        if (expect_failure && !good)
            break;
    }
    if (!ran) {
        fprintf(stderr, "no such model\n");
        return 2;
    }
    return good == expect_failure;
}
