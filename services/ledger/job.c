#include "services/ledger/job.h"

#include <stdlib.h>
#include <string.h>

#include "auth/cap.h"
#include "base/check.h"

enum {
    RANK_JOBS = 31,
    RANK_PENDING = 32,
    ARENA_CHUNK = 512 << 10, /* a batch of 256; pages that a small job does not touch cost nothing */
    ARENA_MAX = 24 << 20,    /* 1024 entries of the largest kind, several times over */
};

enum err ledger_jobs_init(struct ledger_jobs *js, uint32_t max)
{
    memset(js, 0, sizeof *js);
    js->max = max;
    js->pending = calloc(JOBS_BUCKETS, sizeof(struct ledger_job_unit *));
    if (js->pending == NULL)
        return ERR_NO_MEMORY;
    rt_lock_init(&js->lock, "job_pool", RANK_JOBS);
    for (size_t i = 0; i < sizeof js->stripes / sizeof js->stripes[0]; i++)
        rt_lock_init(&js->stripes[i], "pending_stripe", RANK_PENDING);
    return ERR_OK;
}

void ledger_jobs_fini(struct ledger_jobs *js)
{
    if (js->pending == NULL)
        return;
    for (struct ledger_job *job = js->free, *next; job != NULL; job = next) {
        next = job->next;
        arena_fini(&job->arena);
        free(job);
    }
    free(js->pending);
    rt_lock_fini(&js->lock);
    for (size_t i = 0; i < sizeof js->stripes / sizeof js->stripes[0]; i++)
        rt_lock_fini(&js->stripes[i]);
    js->pending = NULL;
}

struct ledger_job *ledger_job_take(struct ledger_jobs *js, struct ledger *l)
{
    rt_lock_take(&js->lock);
    struct ledger_job *job = js->free;
    bool may_make = job == NULL && js->made < js->max;
    if (job != NULL)
        js->free = job->next;
    else if (may_make)
        js->made++;
    rt_lock_release(&js->lock);
    if (job == NULL && may_make) {
        job = calloc(1, sizeof *job);
        CHECK(job != NULL);
        arena_init(&job->arena, ARENA_CHUNK, ARENA_MAX);
    }
    if (job == NULL)
        return NULL;
    struct arena arena = job->arena;
    memset(job, 0, sizeof *job);
    job->arena = arena;
    job->magic = LEDGER_JOB_MAGIC;
    job->ledger = l;
    return job;
}

static struct ledger_job_unit **bucket_of(struct ledger_jobs *js, struct core_key key)
{
    return &js->pending[key.w[0] >> 32 & (JOBS_BUCKETS - 1)];
}

static struct rt_lock *stripe_of(struct ledger_jobs *js, struct core_key key)
{
    return &js->stripes[key.w[0] >> 32 & 15];
}

void ledger_job_pend(struct ledger_jobs *js, struct ledger_job *job)
{
    for (uint32_t i = 0; i < job->n_units; i++) {
        struct ledger_job_unit *u = &job->units[i];
        struct rt_lock *lock = stripe_of(js, u->p.idem_key);
        struct ledger_job_unit **b = bucket_of(js, u->p.idem_key);
        rt_lock_take(lock);
        u->pending_next = *b;
        *b = u;
        u->pending = true;
        rt_lock_release(lock);
    }
}

void ledger_job_unpend(struct ledger_jobs *js, struct ledger_job *job)
{
    for (uint32_t i = 0; i < job->n_units; i++) {
        struct ledger_job_unit *u = &job->units[i];
        if (!u->pending)
            continue;
        struct rt_lock *lock = stripe_of(js, u->p.idem_key);
        rt_lock_take(lock);
        struct ledger_job_unit **at = bucket_of(js, u->p.idem_key);
        while (*at != u)
            at = &(*at)->pending_next;
        *at = u->pending_next;
        u->pending = false;
        rt_lock_release(lock);
    }
}

bool ledger_jobs_is_pending(struct ledger_jobs *js, struct core_key key)
{
    struct rt_lock *lock = stripe_of(js, key);
    bool found = false;
    rt_lock_take(lock);
    for (struct ledger_job_unit *u = *bucket_of(js, key); u != NULL && !found; u = u->pending_next)
        found = core_key_eq(u->p.idem_key, key);
    rt_lock_release(lock);
    return found;
}

void ledger_job_refuse(struct ledger_job *job, enum err err, const char *key, const char *why)
{
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    CHECK(job->new_entries == 0);
    job->err = err;
    job->why_key = key;
    job->why = why;
}
