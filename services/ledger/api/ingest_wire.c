#include "services/ledger/api/ingest_wire.h"

#include "base/base64.h"
#include "base/check.h"
#include "base/wire.h"

/* Members of the messages in proto/ron/ledger.proto. */
enum { REQUEST_UNITS = 1, REQUEST_BALANCES, REQUEST_PROOF, REQUEST_CORR_ID, REQUEST_TRACEPARENT };
enum { UNIT_IDEM_ID = 1, UNIT_ENTRIES, UNIT_META, UNIT_NOT_AFTER };
enum {
    ENTRY_ID = 1,
    ENTRY_TS,
    ENTRY_KIND,
    ENTRY_ACCOUNT,
    ENTRY_TO,
    ENTRY_ASSET,
    ENTRY_AMOUNT,
    ENTRY_AMOUNT_HI,
    ENTRY_NONCE,
    ENTRY_REF_ID,
    ENTRY_HOLD_UNTIL
};
enum {
    RESULT_IDEM_ID = 1,
    RESULT_STATUS,
    RESULT_SEQ_START,
    RESULT_SEQ_END,
    RESULT_TREE_SIZE,
    RESULT_ROOT,
    RESULT_LEAF_HASHES
};
enum { RESPONSE_RESULTS = 1, STATUS_COMMITTED = 1 };

static enum err malformed(struct ledger_job *job)
{
    job->why_key = "reason";
    job->why = "not an IngestRequest";
    return ERR_BAD_REQUEST;
}

static enum err wrong(struct ledger_job *job, const char *member)
{
    job->why_key = "member";
    job->why = member;
    return ERR_BAD_REQUEST;
}

static enum err fault(struct ledger_job *job, uint32_t unit, uint32_t entry, const char *member,
                      const char *reason)
{
    job->fault = (struct core_fault){entry, member, reason};
    job->fault_unit = unit;
    job->has_fault = true;
    return ERR_BAD_REQUEST;
}

/* How many units and entries there are, so that each gets one array. False: no message. */
static bool count(struct bytes body, size_t *out_units, size_t *out_entries)
{
    struct wire w = wire_of(body);
    struct wire_field f;
    size_t units = 0, entries = 0;
    while (wire_next(&w, &f)) {
        if (f.key != wire_key(REQUEST_UNITS, WIRE_BYTES))
            continue;
        units++;
        struct wire u = wire_of(f.text);
        while (wire_next(&u, &f))
            entries += f.key == wire_key(UNIT_ENTRIES, WIRE_BYTES);
        if (u.bad)
            return false;
    }
    *out_units = units;
    *out_entries = entries;
    return !w.bad;
}

static bool entry_get(struct bytes in, struct core_entry *e, uint64_t *out_kind)
{
    struct wire w = wire_of(in);
    struct wire_field f;
    uint64_t lo = 0, hi = 0, kind = 0;
    while (wire_next(&w, &f)) {
        switch (f.key) {
        case wire_key(ENTRY_ID, WIRE_BYTES):
            e->id = str_of_bytes(f.text);
            break;
        case wire_key(ENTRY_TS, WIRE_VARINT):
            e->ts = f.number;
            break;
        case wire_key(ENTRY_KIND, WIRE_VARINT):
            kind = f.number;
            break;
        case wire_key(ENTRY_ACCOUNT, WIRE_BYTES):
            e->account = str_of_bytes(f.text);
            break;
        case wire_key(ENTRY_TO, WIRE_BYTES):
            e->to = str_of_bytes(f.text);
            break;
        case wire_key(ENTRY_ASSET, WIRE_BYTES):
            e->asset = str_of_bytes(f.text);
            break;
        case wire_key(ENTRY_AMOUNT, WIRE_VARINT):
            lo = f.number;
            break;
        case wire_key(ENTRY_AMOUNT_HI, WIRE_VARINT):
            hi = f.number;
            break;
        case wire_key(ENTRY_NONCE, WIRE_VARINT):
            e->nonce = f.number;
            break;
        case wire_key(ENTRY_REF_ID, WIRE_BYTES):
            e->ref_id = str_of_bytes(f.text);
            break;
        case wire_key(ENTRY_HOLD_UNTIL, WIRE_VARINT):
            e->hold_until = f.number;
            break;
        default:
            w.bad = wire_member(f.key) <= ENTRY_HOLD_UNTIL; /* a known member of another type */
            break;
        }
    }
    e->amount.units = (unsigned __int128)hi << 64 | lo;
    *out_kind = kind;
    return !w.bad;
}

static enum err meta_get(struct ledger_job *job, uint32_t at, struct bytes meta, struct core_unit *u)
{
    if (meta.n == 0)
        return ERR_OK;
    char *text = meta.n > CORE_META_MAX ? NULL : arena_alloc(&job->arena, CORE_META_TEXT_MAX + 4);
    if (text == NULL)
        return fault(job, at, 0, "meta", "length");
    u->meta = str_of(text, base64_encode(meta.p, meta.n, text));
    return ERR_OK;
}

/* `entries` has room for those of this unit. */
static enum err unit_get(struct ledger_job *job, uint32_t at, struct bytes in, struct core_entry *entries)
{
    struct core_unit *u = &job->units[at].u;
    struct wire w = wire_of(in);
    struct wire_field f;
    struct bytes meta = {NULL, 0};
    uint64_t kind;
    u->entries = entries;
    while (wire_next(&w, &f)) {
        switch (f.key) {
        case wire_key(UNIT_IDEM_ID, WIRE_BYTES):
            u->idem_id = str_of_bytes(f.text);
            break;
        case wire_key(UNIT_ENTRIES, WIRE_BYTES):
            if (!entry_get(f.text, &entries[u->n], &kind))
                return malformed(job);
            if (kind >= CORE_KIND_COUNT)
                return fault(job, at, u->n, "kind", "unknown");
            entries[u->n++].kind = (enum core_kind)kind;
            break;
        case wire_key(UNIT_META, WIRE_BYTES):
            meta = f.text;
            break;
        case wire_key(UNIT_NOT_AFTER, WIRE_VARINT):
            u->not_after = f.number;
            break;
        default:
            w.bad = wire_member(f.key) <= UNIT_NOT_AFTER;
            break;
        }
    }
    return w.bad ? malformed(job) : meta_get(job, at, meta, u);
}

void ledger_ingest_origin(struct bytes body, struct str *out_corr_id, struct str *out_traceparent)
{
    struct wire w = wire_of(body);
    struct wire_field f;
    *out_corr_id = *out_traceparent = (struct str){NULL, 0};
    while (wire_next(&w, &f)) {
        if (f.key == wire_key(REQUEST_CORR_ID, WIRE_BYTES))
            *out_corr_id = str_of((const char *)f.text.p, f.text.n);
        else if (f.key == wire_key(REQUEST_TRACEPARENT, WIRE_BYTES))
            *out_traceparent = str_of((const char *)f.text.p, f.text.n);
        else
            return;
    }
}

enum err ledger_ingest_decode(struct ledger_job *job, uint32_t max_entries)
{
    size_t units, total;
    if (!count(job->body, &units, &total))
        return malformed(job);
    if (units > CORE_UNIT_ENTRIES_MAX || total > max_entries)
        return ERR_TOO_LARGE;
    if (units == 0)
        return wrong(job, "units");
    struct core_entry *entries = arena_array(&job->arena, total + 1, sizeof *entries);
    job->units = arena_array(&job->arena, units, sizeof *job->units);
    if (entries == NULL || job->units == NULL)
        return ERR_NO_MEMORY;
    struct wire w = wire_of(job->body);
    struct wire_field f;
    uint32_t n = 0;
    while (wire_next(&w, &f)) {
        enum err err = ERR_OK;
        switch (f.key) {
        case wire_key(REQUEST_UNITS, WIRE_BYTES):
            err = unit_get(job, n, f.text, entries);
            entries += job->units[n++].u.n;
            break;
        case wire_key(REQUEST_BALANCES, WIRE_VARINT):
            job->want_balances = f.number != 0;
            break;
        case wire_key(REQUEST_PROOF, WIRE_VARINT):
            job->want_proof = f.number != 0;
            break;
        default:
            w.bad = wire_member(f.key) <= REQUEST_PROOF;
            break;
        }
        if (err != ERR_OK)
            return err;
    }
    if (w.bad)
        return malformed(job);
    if (job->want_proof && total > 64)
        return wrong(job, "proof");
    CHECK(n == units);
    job->n_units = n;
    job->n_entries = (uint32_t)total;
    return ERR_OK;
}

bool ledger_result_is_plain(const struct ledger_job *job, const struct ledger_job_unit *u)
{
    return u->verdict == VERDICT_COMMITTED && !job->want_balances && !job->want_proof;
}

static size_t plain_size(const struct ledger_job *job, const struct ledger_job_unit *u)
{
    return wire_bytes_size(u->u.idem_id.n) + wire_number_size(STATUS_COMMITTED) + wire_number_size(u->seq) +
           wire_number_size(u->seq + u->n - 1) + wire_number_size(job->tree_size) + wire_bytes_size(32) +
           u->n * wire_bytes_size(32);
}

size_t ledger_result_size(const struct ledger_job *job, const struct ledger_job_unit *u)
{
    return wire_bytes_size(plain_size(job, u));
}

uint8_t *ledger_result_put(uint8_t *p, const struct ledger_job *job, const struct ledger_job_unit *u)
{
    CHECK(ledger_result_is_plain(job, u));
    p = wire_put_head(p, RESPONSE_RESULTS, plain_size(job, u));
    p = wire_put_bytes(p, RESULT_IDEM_ID, u->u.idem_id.p, u->u.idem_id.n);
    p = wire_put_number(p, RESULT_STATUS, STATUS_COMMITTED);
    p = wire_put_number(p, RESULT_SEQ_START, u->seq);
    p = wire_put_number(p, RESULT_SEQ_END, u->seq + u->n - 1);
    p = wire_put_number(p, RESULT_TREE_SIZE, job->tree_size);
    p = wire_put_bytes(p, RESULT_ROOT, job->root.b, 32);
    for (uint32_t i = 0; i < u->n; i++)
        p = wire_put_bytes(p, RESULT_LEAF_HASHES, u->p.entries[i].leaf_hash.b, 32);
    return p;
}
