#include <stdlib.h>

#include "base/check.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/tasks/job.h"

#define ITEM_MAGIC    0x4954454du
#define OUTCOME_MAGIC 0x4f555443u

enum { SMALL_FILE_MAX = 1 << 20 };

struct rewarder_item *rewarder_item_create(enum rewarder_kind kind, struct net_req *rq)
{
    struct rewarder_item *it = calloc(1, sizeof *it);
    if (!it)
        return NULL;
    it->magic = ITEM_MAGIC;
    it->kind = kind;
    it->rq = rq;
    it->by = deadline_never();
    return it;
}

void rewarder_item_destroy(struct rewarder *r, struct rewarder_item *it)
{
    CHECK_MAGIC(it, ITEM_MAGIC);
    CHECK(!it->rq); /* answered, or handed on */
    if (it->kind == REWARDER_HELP)
        rewarder_job_unref(it->job);
    if (it->charged)
        atomic_fetch_sub_explicit(&r->memory_used, it->charged, memory_order_relaxed);
    rewarder_run_unref(it->run);
    rewarder_policy_unref(it->policy);
    rewarder_policy_unref(it->candidate);
    it->magic = 0;
    free(it);
}

struct rewarder_outcome *rewarder_outcome_create(enum rewarder_outcome_kind kind, struct rewarder_run *run)
{
    struct rewarder_outcome *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->magic = OUTCOME_MAGIC;
    o->kind = kind;
    o->run = run ? rewarder_run_ref(run) : NULL;
    buf_init(&o->manifest, SMALL_FILE_MAX);
    buf_init(&o->commitment, SMALL_FILE_MAX);
    buf_init(&o->line, SMALL_FILE_MAX);
    buf_init(&o->settlement, (size_t)1 << 30);
    return o;
}

void rewarder_outcome_forget_files(struct rewarder_outcome *o)
{
    free(o->payouts);
    free(o->tree);
    o->payouts = o->tree = NULL;
    o->payouts_n = o->tree_n = 0;
}

void rewarder_outcome_destroy(struct rewarder *r, struct rewarder_outcome *o)
{
    (void)r;
    CHECK_MAGIC(o, OUTCOME_MAGIC);
    CHECK(!o->rq);
    if (o->receipt)
        rewarder_receipt_give(o->receipt, false);
    rewarder_run_unref(o->run);
    rewarder_shadow_unref(o->shadow);
    buf_fini(&o->manifest);
    buf_fini(&o->commitment);
    buf_fini(&o->line);
    buf_fini(&o->settlement);
    rewarder_outcome_forget_files(o);
    free(o->rows);
    o->magic = 0;
    free(o);
}
