#include "services/wallet/tasks/ledger_words.h"

#include <string.h>

#include "base/check.h"

void wallet_words_entry(const struct wallet_entry *e, struct ledger_entry *out)
{
    *out = (struct ledger_entry){.id = e->id,
                                 .ts_ms = (uint64_t)e->ts_ms,
                                 .kind = (enum ledger_kind)e->kind,
                                 .account = e->account,
                                 .to = e->to,
                                 .asset = e->asset,
                                 .amount = e->amount,
                                 .nonce = e->nonce,
                                 .ref_id = e->ref_id,
                                 .hold_until_ms = (uint64_t)e->hold_until_ms};
}

/* `"last":"281474976710657"` or `"last":7` in a details object. Accounts cannot hold a quote, so a match is the member. */
static bool detail_u64(struct str details, const char *member, uint64_t *out)
{
    const char *at = details.n ? memmem(details.p, details.n, member, strlen(member)) : NULL;
    if (!at)
        return false;
    const char *end = details.p + details.n;
    uint64_t v = 0;
    at += strlen(member);
    if (at < end && *at == '"')
        at++;
    if (at >= end || *at < '0' || *at > '9')
        return false;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(*at - '0'), &v))
            return false;
    *out = v;
    return true;
}

void wallet_words_ingest(struct wallet_said *said, const struct ledger_answer *a,
                         const struct ledger_result *r)
{
    static const char expired[] = "\"why\":\"expired\"";
    *said =
        (struct wallet_said){.outcome = a->outcome, .reason = a->err, .retry_after_s = a->retry_after_s};
    if (!r) {
        if (a->outcome ==
            LEDGER_ANSWERED) /* complete, and yet not one result per unit, its own: we do not know */
            said->outcome = LEDGER_UNKNOWN;
        return;
    }
    said->status = r->status;
    said->reason = r->status == LEDGER_REJECTED ? r->reason : ERR_OK;
    said->seq_start = r->seq_start;
    said->seq_end = r->seq_end;
    said->tree_size = r->tree_size;
    said->root = r->root;
    said->has_last = detail_u64(r->details, "\"last\":", &said->last);
    said->hold_expired = r->details.n && memmem(r->details.p, r->details.n, expired, sizeof expired - 1);
}

struct wallet_verdict wallet_words_verdict(const struct wallet_said *said, size_t n_entries)
{
    if (said->outcome == LEDGER_UNKNOWN)
        return (struct wallet_verdict){.kind = WALLET_V_UNKNOWN};
    if (said->outcome == LEDGER_REFUSED)
        return wallet_verdict_of(said->reason == ERR_CONFLICT ? ERR_INTERNAL : said->reason, false);
    switch (said->status) {
    case LEDGER_COMMITTED:
        if (said->seq_start == 0 || said->seq_end - said->seq_start + 1 != n_entries)
            return (struct wallet_verdict){.kind = WALLET_V_UNKNOWN};
        return (struct wallet_verdict){.kind = WALLET_V_COMMIT};
    case LEDGER_DUPLICATE:
        return (struct wallet_verdict){.kind = WALLET_V_LOOK_UP};
    case LEDGER_REJECTED:
        return wallet_verdict_of(said->reason, said->hold_expired);
    case LEDGER_PENDING:
    case LEDGER_STATUS_NONE:
        break;
    }
    return (struct wallet_verdict){.kind = WALLET_V_UNKNOWN};
}

enum err wallet_words_rebuild(const struct ledger_result *r, struct wallet_rebuilt *out)
{
    struct wallet_entry entries[WALLET_UNIT_ENTRIES_MAX];
    if (r->n_entries < 1 || r->n_entries > WALLET_UNIT_ENTRIES_MAX ||
        r->seq_end - r->seq_start + 1 != r->n_entries)
        return ERR_CORRUPT;
    for (size_t i = 0; i < r->n_entries; i++) {
        const struct ledger_entry *e = &r->entries[i];
        if (e->kind < LEDGER_MINT || e->kind > LEDGER_RELEASE || e->ts_ms > INT64_MAX ||
            e->hold_until_ms > INT64_MAX)
            return ERR_CORRUPT;
        entries[i] = (struct wallet_entry){.kind = (enum wallet_entry_kind)e->kind,
                                           .id = e->id,
                                           .account = e->account,
                                           .to = e->to,
                                           .asset = e->asset,
                                           .ref_id = e->ref_id,
                                           .amount = e->amount,
                                           .nonce = e->nonce,
                                           .ts_ms = (int64_t)e->ts_ms,
                                           .hold_until_ms = (int64_t)e->hold_until_ms};
    }
    return wallet_unit_rebuild(r->idem_id, entries, r->n_entries, r->meta, r->seq_start, &r->root,
                               r->tree_size, out);
}

void wallet_words_touched(struct wallet *w, const struct wallet_job *j)
{
    const struct str receipt = str_of(j->answer.body, j->answer.body_n);
    uint64_t seq = j->said.seq_end;
    uint64_t acked = atomic_load_explicit(&w->acked_seq, memory_order_relaxed);
    wallet_touch(w, wallet_side(receipt, j->sides.from, j->sides.from_n), seq);
    wallet_touch(w, wallet_side(receipt, j->sides.to, j->sides.to_n), seq);
    while (acked < seq && !atomic_compare_exchange_weak_explicit(
                              &w->acked_seq, &acked, seq, memory_order_release, memory_order_relaxed))
        ;
}
