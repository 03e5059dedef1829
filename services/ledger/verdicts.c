#include "services/ledger/verdicts.h"

#include "base/json_read.h"

struct verdict {
    bool allow;
    struct str why;
    uint64_t status;
};

static const struct json_field verdict_fields[] = {
    JSON_REQ(struct verdict, allow, JSON_KIND_BOOL),
    JSON_DEF(struct verdict, why, JSON_KIND_STR, .max = 200),
    JSON_DEF(struct verdict, status, JSON_KIND_U64, .max = 599),
    JSON_END,
};

struct verdicts {
    struct json_list verdicts;
};

static const struct json_field verdicts_fields[] = {
    JSON_REQ(struct verdicts, verdicts, JSON_KIND_OBJ_LIST, .fields = verdict_fields,
             .item_bytes = sizeof(struct verdict), .max = CORE_UNIT_ENTRIES_MAX),
    JSON_END,
};

bool ledger_verdict_due(const struct ledger_job_unit *u)
{
    return u->verdict == VERDICT_NONE;
}

static void deny(struct ledger_job_unit *u, bool per_entry, uint32_t entry, const char *why)
{
    u->verdict = VERDICT_REJECTED;
    u->reject = (struct ledger_reject){.reason = per_entry ? ERR_FORBIDDEN : ERR_POLICY_DENIED,
                                       .why = why == NULL || why[0] == 0 ? "denied" : why,
                                       .entry = entry,
                                       .has_entry = per_entry};
}

size_t ledger_verdicts_deny(struct ledger_job *job, bool per_entry, const char *why)
{
    size_t denied = 0;
    for (uint32_t i = 0; i < job->n_units; i++)
        if (ledger_verdict_due(&job->units[i])) {
            deny(&job->units[i], per_entry, 0, why);
            denied++;
        }
    return denied;
}

/* The first of a unit's that does not allow it. */
static const struct verdict *denial(const struct verdict *v, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (!v[k].allow)
            return &v[k];
    return NULL;
}

enum err ledger_verdicts_read(struct ledger_job *job, bool per_entry, struct bytes answer, size_t n,
                              size_t *out_denied)
{
    struct verdicts in;
    struct json_error bad;
    if (json_read_dto(answer, verdicts_fields, &in, &job->arena, &bad) != ERR_OK || in.verdicts.n != n)
        return ERR_UNAVAILABLE;
    const struct verdict *v = in.verdicts.items;
    for (size_t i = 0; i < n; i++)
        if (!v[i].allow && v[i].status == 401)
            return ERR_UNAUTHENTICATED;
    size_t denied = 0;
    for (uint32_t i = 0; i < job->n_units; i++) {
        struct ledger_job_unit *u = &job->units[i];
        if (!ledger_verdict_due(u))
            continue;
        uint32_t asked = per_entry ? u->u.n : 1;
        const struct verdict *no = denial(v, asked);
        if (no != NULL) {
            deny(u, per_entry, (uint32_t)(no - v), arena_strdup(&job->arena, no->why));
            denied++;
        }
        v += asked;
    }
    *out_denied = denied;
    return ERR_OK;
}
