/* What a unit does, or why it does not: the ledger's rules over maps. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "mem_ledger_internal.h"

uint64_t mem_ledger__now_ms(const struct mem_ledger *f)
{
    struct timespec ts;
    if (f->clock)
        return (uint64_t)clock_wall_ms(f->clock);
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct mem_row *mem_ledger__row(struct mem_ledger *f, struct str account, struct str asset)
{
    char name[200];
    int n = snprintf(name, sizeof name, "%.*s|%.*s", STR_ARG(account), STR_ARG(asset));
    struct mem_row *r = map_get(&f->rows, bytes_of(name, (size_t)n));
    if (!r) {
        r = calloc(1, sizeof *r);
        memcpy(r->name, name, (size_t)n + 1);
        CHECK(map_add(&f->rows, bytes_of(r->name, (size_t)n), r) == ERR_OK);
    }
    return r;
}

struct mem_lane *mem_ledger__lane(struct mem_ledger *f, struct str account, unsigned lane)
{
    char name[200];
    int n = snprintf(name, sizeof name, "%.*s#%u", STR_ARG(account), lane);
    struct mem_lane *l = map_get(&f->lanes, bytes_of(name, (size_t)n));
    if (!l) {
        l = calloc(1, sizeof *l);
        memcpy(l->name, name, (size_t)n + 1);
        CHECK(map_add(&f->lanes, bytes_of(l->name, (size_t)n), l) == ERR_OK);
    }
    return l;
}

static void reject(struct ledger_result *r, enum err e, char *details, const char *member,
                   const char *value)
{
    r->status = LEDGER_REJECTED;
    r->reason = e;
    r->retryable = err_retryable(e);
    int n = member ? snprintf(details, 128, "{\"%s\":\"%s\"}", member, value) : 0;
    r->details = str_of(details, (size_t)n);
}

/* Checks one entry against the state; the caller applies when all pass (units of the wallet touch each row once). */
static enum err check(struct mem_ledger *f, const struct ledger_entry *e, struct ledger_result *r,
                      char *details)
{
    char number[24];
    if (map_get(&f->entries, bytes_of_str(e->id))) {
        reject(r, ERR_ID_EXISTS, details, NULL, NULL);
        return r->reason;
    }
    if (e->nonce) {
        struct mem_lane *l = mem_ledger__lane(f, e->account, (unsigned)(e->nonce >> 48));
        uint64_t last = l->last & ((UINT64_C(1) << 48) - 1), got = e->nonce & ((UINT64_C(1) << 48) - 1);
        if (got != last + 1) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)l->last);
            reject(r, got <= last ? ERR_NONCE_CONFLICT : ERR_NONCE_GAP, details, "last", number);
            return r->reason;
        }
    }
    if (e->kind == LEDGER_TRANSFER || e->kind == LEDGER_BURN || e->kind == LEDGER_HOLD) {
        if (money_cmp(mem_ledger__row(f, e->account, e->asset)->available, e->amount) < 0) {
            reject(r, ERR_INSUFFICIENT_FUNDS, details, NULL, NULL);
            return r->reason;
        }
    }
    if (e->kind == LEDGER_HOLD && e->hold_until_ms && e->hold_until_ms <= mem_ledger__now_ms(f)) {
        reject(r, ERR_BAD_HOLD_UNTIL, details, NULL, NULL);
        return r->reason;
    }
    if (e->kind == LEDGER_CAPTURE || e->kind == LEDGER_RELEASE) {
        struct mem_hold *h = map_get(&f->holds, bytes_of_str(e->ref_id));
        if (!h)
            reject(r, ERR_REF_NOT_FOUND, details, NULL, NULL);
        else if (money_is_zero(h->remaining))
            reject(r, ERR_HOLD_CLOSED, details, "why", "spent");
        else if (h->entry->hold_until_ms <= mem_ledger__now_ms(f))
            reject(r, ERR_HOLD_CLOSED, details, "why", "expired");
        else if (money_cmp(h->remaining, e->amount) < 0)
            reject(r, ERR_AMOUNT_EXCEEDS, details, NULL, NULL);
        else
            return ERR_OK;
        return r->reason;
    }
    return ERR_OK;
}

void mem_ledger__move(struct money *from, struct money *to, struct money amount)
{
    if (from)
        CHECK(money_sub(*from, amount, from) == ERR_OK);
    if (to)
        CHECK(money_add(*to, amount, to) == ERR_OK);
}

static void apply(struct mem_ledger *f, const struct ledger_entry *e)
{
    struct mem_row *a = mem_ledger__row(f, e->account, e->asset);
    switch (e->kind) {
    case LEDGER_MINT:
        mem_ledger__move(NULL, &a->available, e->amount);
        mem_ledger__move(NULL, &f->issued, e->amount);
        break;
    case LEDGER_BURN:
        mem_ledger__move(&a->available, &f->burned, e->amount);
        break;
    case LEDGER_TRANSFER:
        mem_ledger__move(&a->available, &mem_ledger__row(f, e->to, e->asset)->available, e->amount);
        break;
    case LEDGER_HOLD: {
        struct mem_hold *h = calloc(1, sizeof *h);
        h->entry = e;
        h->remaining = e->amount;
        CHECK(map_add(&f->holds, bytes_of_str(e->id), h) == ERR_OK);
        mem_ledger__move(&a->available, &a->held, e->amount);
        break;
    }
    case LEDGER_CAPTURE:
    case LEDGER_RELEASE: {
        struct mem_hold *h = map_get(&f->holds, bytes_of_str(e->ref_id));
        mem_ledger__move(&h->remaining, NULL, e->amount);
        mem_ledger__move(&a->held,
                         e->kind == LEDGER_CAPTURE ? &mem_ledger__row(f, e->to, e->asset)->available
                                                   : &a->available,
                         e->amount);
        break;
    }
    case LEDGER_KIND_NONE:
    case LEDGER_REVERSE:
    case LEDGER_EXPIRE:
    case LEDGER_KIND_COUNT:
        UNREACHABLE();
    }
    if (e->nonce)
        mem_ledger__lane(f, e->account, (unsigned)(e->nonce >> 48))->last = e->nonce;
}

static struct str dup(struct mem_unit *u, struct str s)
{
    struct str out = {NULL, 0};
    CHECK(arena_str(&u->arena, s, &out));
    return out;
}

/* Everything but ids, ts and meta, as the ledger's fingerprint. */
static struct str fingerprint(struct arena *a, const struct ledger_unit *in)
{
    struct buf b;
    struct str out;
    buf_init(&b, 1 << 16);
    for (size_t i = 0; i < in->n_entries; i++) {
        const struct ledger_entry *e = &in->entries[i];
        char amount[MONEY_CHARS];
        money_format(e->amount, amount);
        buf_printf(&b, "%d|%.*s|%.*s|%.*s|%s|%llu|%.*s|%llu;", (int)e->kind, STR_ARG(e->account),
                   STR_ARG(e->to), STR_ARG(e->asset), amount, (unsigned long long)e->nonce,
                   STR_ARG(e->ref_id), (unsigned long long)e->hold_until_ms);
    }
    CHECK(arena_str(a, buf_str(&b), &out));
    buf_fini(&b);
    return out;
}

static void record(struct mem_ledger *f, const struct ledger_unit *in, struct mem_unit *u)
{
    u->entries = arena_array(&u->arena, in->n_entries, sizeof *u->entries);
    for (size_t i = 0; i < in->n_entries; i++) {
        struct ledger_entry e = in->entries[i];
        e.id = dup(u, e.id);
        e.account = dup(u, e.account);
        e.to = dup(u, e.to);
        e.asset = dup(u, e.asset);
        e.ref_id = dup(u, e.ref_id);
        u->entries[i] = e;
        f->head++;
        struct bytes parts[] = {bytes_of(f->root.b, 32), bytes_of_str(e.id)};
        sha256_of_parts(parts, 2, &f->root);
        if (f->n_seq == f->cap_seq) {
            f->cap_seq = f->cap_seq ? f->cap_seq * 2 : 1024;
            f->by_seq = realloc(f->by_seq, f->cap_seq * sizeof *f->by_seq);
        }
        f->by_seq[f->n_seq++] = u;
        CHECK(map_add(&f->entries, bytes_of_str(u->entries[i].id), u) == ERR_OK);
        apply(f, &u->entries[i]);
    }
    f->n_units++;
    struct str meta = dup(u, str_of_bytes(in->meta));
    u->ledger_ms = mem_ledger__now_ms(f);
    u->result = (struct ledger_result){.idem_id = dup(u, in->idem_id),
                                       .status = LEDGER_COMMITTED,
                                       .seq_start = f->head - in->n_entries + 1,
                                       .seq_end = f->head,
                                       .tree_size = f->head,
                                       .root = f->root,
                                       .ledger_ms = u->ledger_ms,
                                       .entries = u->entries,
                                       .n_entries = in->n_entries,
                                       .meta = bytes_of_str(meta),
                                       .envelope = STR("{}")};
    CHECK(map_add(&f->units, bytes_of_str(u->result.idem_id), u) == ERR_OK);
}

void mem_ledger__judge(struct mem_ledger *f, const struct ledger_unit *in, struct ledger_result *r,
                       char *details, struct mem_unit **out_new)
{
    struct mem_unit *known = map_get(&f->units, bytes_of_str(in->idem_id));
    *r = (struct ledger_result){.idem_id = in->idem_id};
    struct mem_unit *u = calloc(1, sizeof *u);
    arena_init(&u->arena, 1024, 1 << 20);
    struct str fp = fingerprint(&u->arena, in);
    enum err e = ERR_OK;
    if (known && str_eq(known->fp, fp)) {
        *r = known->result;
        r->status = LEDGER_DUPLICATE;
        r->entries = NULL;
        r->n_entries = 0;
    } else if (known)
        reject(r, ERR_CONFLICT, details, NULL, NULL);
    else if (in->not_after_ms && mem_ledger__now_ms(f) > in->not_after_ms)
        reject(r, ERR_EXPIRED, details, NULL, NULL);
    else {
        for (size_t i = 0; i < in->n_entries && e == ERR_OK; i++)
            e = check(f, &in->entries[i], r, details);
        if (e == ERR_OK) {
            record(f, in, u);
            u->fp = fp;
            *r = u->result;
            *out_new = u;
            return;
        }
    }
    arena_fini(&u->arena);
    free(u);
}
