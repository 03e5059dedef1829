/*
 * Answers of a provider (kms, policy, wallet) about a job of three units with four entries, of which a byte says which are decided
 * already. What is no answer changes nothing; an answer decides about exactly what was asked, and nothing is allowed that it does not
 * allow: there are as many units without a verdict left as it has runs of "allow" for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/ledger.h"
#include "services/ledger/verdicts.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { UNITS = 3 };
static const uint32_t entries[UNITS] = {1, 2, 1};

static size_t occurrences(struct bytes in, const char *word)
{
    size_t n = 0, len = strlen(word);
    for (size_t i = 0; i + len <= in.n; i++)
        n += memcmp(in.p + i, word, len) == 0;
    return n;
}

static struct ledger *engine(void)
{
    static struct ledger *l;
    if (l == NULL) {
        l = calloc(1, sizeof *l);
        CHECK(l != NULL && ledger_jobs_init(&l->jobs, 8) == ERR_OK);
    }
    return l;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct core_entry e[2];
    struct ledger_job_unit units[UNITS];
    if (n == 0)
        return 0;
    bool per_entry = p[0] & 1;
    struct bytes answer = bytes_of(p + 1, n - 1);
    struct ledger_job *job = ledger_job_take(&engine()->jobs, engine());
    CHECK(job != NULL);
    size_t due = 0, asked = 0, left = 0, rejected = 0, denied = 0;
    memset(units, 0, sizeof units);
    for (unsigned i = 0; i < UNITS; i++) {
        units[i].u = (struct core_unit){STR("x"), {NULL, 0}, 0, e, entries[i]};
        units[i].verdict = p[0] >> (1 + i) & 1 ? VERDICT_DUPLICATE : VERDICT_NONE;
        due += ledger_verdict_due(&units[i]);
        asked += !ledger_verdict_due(&units[i]) ? 0 : per_entry ? entries[i] : 1;
    }
    job->units = units;
    job->n_units = UNITS;
    enum err err = ledger_verdicts_read(job, per_entry, answer, asked, &denied);
    CHECK(err == ERR_OK || err == ERR_UNAVAILABLE || err == ERR_UNAUTHENTICATED);
    for (unsigned i = 0; i < UNITS; i++) {
        bool was_due = !(p[0] >> (1 + i) & 1);
        left += ledger_verdict_due(&units[i]);
        rejected += units[i].verdict == VERDICT_REJECTED;
        CHECK(was_due || units[i].verdict == VERDICT_DUPLICATE);
        if (units[i].verdict == VERDICT_REJECTED)
            CHECK(units[i].reject.reason == (per_entry ? ERR_FORBIDDEN : ERR_POLICY_DENIED) &&
                  units[i].reject.why != NULL && units[i].reject.why[0] != 0 &&
                  units[i].reject.entry < entries[i] && units[i].reject.has_entry == per_entry);
    }
    CHECK(err == ERR_OK ? left + denied == due && rejected == denied : left == due && rejected == 0);
    /* The word may also stand in a string, so it is a bound from above. */
    if (err == ERR_OK)
        CHECK(left <= occurrences(answer, "true"));
    if (err == ERR_UNAUTHENTICATED)
        CHECK(occurrences(answer, "401") > 0);
    job->n_units = 0;
    ledger_job_free(job);
    return 0;
}
