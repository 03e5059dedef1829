/* Calls that are refused, lost, or answered when it is too late. */
#include <stdlib.h>

#include "mem_ledger_internal.h"

enum mem_fault mem_ledger__draw(struct mem_ledger *f, enum mem_fault *fault, int *n)
{
    if (f->chaos) {
        static const enum mem_fault some[] = {MEM_REFUSE, MEM_LOSE_BEFORE, MEM_LOSE_AFTER, MEM_GARBLE};
        return rng_below(&f->rng, 100) < 30 ? some[rng_below(&f->rng, 4)] : MEM_OK;
    }
    if (*n == 0)
        return MEM_OK;
    if (*n > 0)
        --*n;
    return *fault;
}

static void stall(struct mem_ledger *f, enum mem_call call, void *fn, void *ctx, struct deadline by)
{
    struct mem_stalled *s = malloc(sizeof *s);
    *s = (struct mem_stalled){.next = f->stalled, .by = by, .call = call, .fn = fn, .ctx = ctx};
    f->stalled = s;
    pthread_cond_signal(&f->c);
}

static const struct ledger_answer lost = {.outcome = LEDGER_UNKNOWN, .err = ERR_TIMEOUT};

static void answer_lost(enum mem_call call, void *fn, void *ctx, const struct ledger_answer *a)
{
    switch (call) {
    case MEM_CALL_INGEST:
        ((ledger_ingest_fn *)fn)(ctx, &(struct ledger_ingest_reply){.a = *a});
        break;
    case MEM_CALL_UNIT:
        ((ledger_unit_fn *)fn)(ctx, &(struct ledger_unit_reply){.a = *a});
        break;
    case MEM_CALL_ACCOUNT:
        ((ledger_account_fn *)fn)(ctx, &(struct ledger_account_reply){.a = *a});
        break;
    case MEM_CALL_ENTRIES:
        ((ledger_entries_fn *)fn)(ctx, &(struct ledger_entries_reply){.a = *a});
        break;
    case MEM_CALL_ROOTS:
        ((ledger_roots_fn *)fn)(ctx, &(struct ledger_roots_reply){.a = *a});
        break;
    case MEM_CALL_PROOF:
        ((ledger_proof_fn *)fn)(ctx, &(struct ledger_proof_reply){.a = *a});
        break;
    case MEM_CALL_HEAD:
        ((ledger_head_fn *)fn)(ctx, &(struct ledger_head_reply){.a = *a});
    }
}

/* f->m held: one whose time is up, off the list; and when the next one is due. */
static struct mem_stalled *take_due(struct mem_ledger *f, int64_t now_ns, int64_t *out_next_ns)
{
    *out_next_ns = INT64_MAX;
    for (struct mem_stalled **at = &f->stalled; *at; at = &(*at)->next) {
        struct mem_stalled *s = *at;
        if (s->by.at_ns <= now_ns) {
            *at = s->next;
            return s;
        }
        if (s->by.at_ns < *out_next_ns)
            *out_next_ns = s->by.at_ns;
    }
    return NULL;
}

/* f->m held; released meanwhile. */
static void answer_due(struct mem_ledger *f, struct mem_stalled *s)
{
    pthread_mutex_unlock(&f->m);
    answer_lost(s->call, s->fn, s->ctx, &lost);
    free(s);
    pthread_mutex_lock(&f->m);
}

void mem_ledger_due(struct mem_ledger *f)
{
    struct mem_stalled *due;
    int64_t next;
    pthread_mutex_lock(&f->m);
    while ((due = take_due(f, clock_mono_ns(f->clock), &next)))
        answer_due(f, due);
    pthread_mutex_unlock(&f->m);
}

void *mem_ledger__run_stalled(void *arg)
{
    struct mem_ledger *f = arg;
    pthread_mutex_lock(&f->m);
    while (!f->stop || f->stalled) {
        int64_t next = INT64_MAX;
        struct mem_stalled *due = NULL;
        if (!f->clock || f->stop)
            due = take_due(f, f->stop ? INT64_MAX : os_now_ns(), &next);
        if (due)
            answer_due(f, due);
        else if (next == INT64_MAX)
            pthread_cond_wait(&f->c, &f->m);
        else {
            struct timespec ts = {next / 1000000000, next % 1000000000};
            pthread_cond_timedwait(&f->c, &f->m, &ts);
        }
    }
    pthread_mutex_unlock(&f->m);
    return NULL;
}

bool mem_ledger__spoiled(struct mem_ledger *f, enum mem_fault fault, enum mem_call call, void *fn,
                         void *ctx, struct deadline by)
{
    struct ledger_answer a = lost;
    if (fault == MEM_OK || fault == MEM_GARBLE || fault == MEM_OTHERS)
        return false;
    if (fault == MEM_STALL || fault == MEM_STALL_AFTER) {
        stall(f, call, fn, ctx, by);
        pthread_mutex_unlock(&f->m);
        return true;
    }
    if (fault == MEM_REFUSE)
        a = (struct ledger_answer){.outcome = LEDGER_REFUSED,
                                   .err = ERR_BUSY,
                                   .status = 429,
                                   .code = STR("busy"),
                                   .retry_after_s = f->retry_after_s};
    if (fault == MEM_DOWN)
        a = (struct ledger_answer){.outcome = LEDGER_REFUSED, .err = ERR_REFUSED};
    if (fault == MEM_NOT_WRITER)
        a = (struct ledger_answer){
            .outcome = LEDGER_REFUSED, .err = ERR_NOT_WRITER, .status = 503, .code = STR("not_writer")};
    if (fault == MEM_SAFE_MODE)
        a = (struct ledger_answer){
            .outcome = LEDGER_REFUSED, .err = ERR_SAFE_MODE, .status = 503, .code = STR("safe_mode")};
    if (fault == MEM_BAD_REQUEST)
        a = (struct ledger_answer){
            .outcome = LEDGER_REFUSED, .err = ERR_BAD_REQUEST, .status = 400, .code = STR("bad_request")};
    pthread_mutex_unlock(&f->m);
    answer_lost(call, fn, ctx, &a);
    return true;
}
