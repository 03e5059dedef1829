/*
 * The three questions a ledger may ask elsewhere: may this bearer (kms), does policy allow it (policy), has it been spent (wallet).
 *
 * `local` (the default) asks nobody: macaroon, policy file, and the sequencer's own judgement. `http` sends the question to a
 * service and takes its verdicts. A job that waits for one is parked with the provider task; prevalidators never wait for it.
 *
 *   prevalidator ── ask ──▶ provider task: breaker → try → (time-out, 5xx: retry with back-off) ── verdicts ──▶ goes on ──▶ preval_tx
 *
 * A 4xx denies and is not retried. A call that has used up its tries opens the breaker; while it is open, jobs are refused at
 * once. Nothing was sequenced in any of these cases.
 *
 * Ownership   A parked job belongs to the provider task until it is passed on or answered.
 * Threads     ask, configure, drill and report from any thread; the rest on the provider task.
 * Memory      At most LEDGER_PARKED_MAX jobs at once; a call lives in its job's arena.
 */
#ifndef RON_LEDGER_PROVIDERS_H
#define RON_LEDGER_PROVIDERS_H

#include "base/json_write.h"
#include "services/ledger/ledger.h"

enum ledger_provider {
    PROVIDER_KMS,
    PROVIDER_POLICY,
    PROVIDER_WALLET,
    PROVIDER_COUNT,
    PROVIDER_NONE = PROVIDER_COUNT
};
enum ledger_drill { DRILL_OFF, DRILL_TIMEOUT, DRILL_5XX, DRILL_DENY };
enum { LEDGER_PARKED_MAX = 64 };

struct ledger_provider_settings {
    bool http;
    char url[512]; /* https://…, unix:/path, or http:// to this machine */
    int64_t timeout_ms, max_backoff_ms;
    unsigned max_retries;
};

struct ledger_providers_settings {
    struct ledger_provider_settings of[PROVIDER_COUNT];
    unsigned failures, half_open_successes;
    int64_t open_ms;
};

struct ledger_providers;
struct rt_task;

NODISCARD enum err ledger_providers_create(struct ledger *l, const struct ledger_providers_settings *set,
                                           struct ledger_providers **out);
void ledger_providers_destroy(struct ledger_providers *p); /* NULL is fine; the task has ended */
void ledger_providers_configure(struct ledger_providers *p, const struct ledger_providers_settings *set);

bool ledger_provider_is_http(const struct ledger_providers *p, enum ledger_provider which);
/* Whether this question goes elsewhere now (or is played by a drill). */
bool ledger_provider_asked(const struct ledger_providers *p, enum ledger_provider which);
/* Parks a job that asks. ERR_BUSY: too many are parked; it stays the caller's. */
NODISCARD enum err ledger_providers_park(struct ledger_providers *p, struct ledger_job *job);
size_t ledger_providers_parked(const struct ledger_providers *p);

/* 0 closed, 1 half-open, 2 open, as the gauge. */
int ledger_provider_breaker(struct ledger_providers *p, enum ledger_provider which);
void ledger_provider_drill(struct ledger_providers *p, enum ledger_provider which, enum ledger_drill mode);
void ledger_providers_report(struct ledger_providers *p, struct json_w *w);
const char *ledger_provider_name(enum ledger_provider which);
enum ledger_provider ledger_provider_from(struct str name); /* PROVIDER_NONE when unknown */

/* The task's turn: waits for answers up to wait_ms, then hands each job whose question is settled to `settled` (job->err says
 * whether it was refused). */
void ledger_providers_turn(struct ledger_providers *p, int wait_ms,
                           void (*settled)(void *ctx, struct ledger_job *job), void *ctx) RT_BLOCKS;
void ledger_providers_wake(struct ledger_providers *p);

#endif
