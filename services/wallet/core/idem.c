#include "services/wallet/core/idem.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hex.h"

enum { ENTRY_OVERHEAD = 2 * 40 + 16 }; /* two map slots and the allocator's share */

struct key128 wallet_txid_key(struct str txid)
{
    uint8_t raw[16];
    CHECK(wallet_is_txid(txid));
    CHECK(hex_decode(str_of(txid.p + 3, 32), raw, sizeof raw) == ERR_OK);
    return key128_of(raw);
}

struct wallet_idem_name wallet_idem_name(const char *idem_id, const char *txid)
{
    uint8_t raw[16];
    CHECK(hex_decode(str_of(idem_id + 2, 32), raw, sizeof raw) == ERR_OK);
    return (struct wallet_idem_name){key128_of(raw), wallet_txid_key(str_from_c(txid))};
}

/* A member of the receipt that begins at `at`; where the next one does. */
static size_t place(struct str written, size_t at, const char *name, struct str value, uint16_t *out_at,
                    uint16_t *out_n)
{
    if (!value.n)
        return at;
    at += strlen(name);
    CHECK(at + value.n < written.n && memcmp(written.p + at, value.p, value.n) == 0);
    *out_at = (uint16_t)at;
    *out_n = (uint16_t)value.n;
    return at + value.n + 1; /* the closing quote */
}

/* Its first members are always these, and none of their values needs an escape. */
void wallet_sides_of(const struct wallet_receipt *r, struct str written, struct wallet_sides *out)
{
    size_t at = strlen("{\"txid\":\"\",\"op\":\"\"") + strlen(r->txid) + strlen(wallet_kind_name(r->kind));
    *out = (struct wallet_sides){.kind = r->kind, .amount = r->amount};
    at = place(written, at, ",\"from\":\"", r->from, &out->from, &out->from_n);
    at = place(written, at, ",\"to\":\"", r->to, &out->to, &out->to_n);
    place(written, at, ",\"asset\":\"", r->asset, &out->asset, &out->asset_n);
}

enum err wallet_idem_init(struct wallet_idem *s, size_t bytes_max)
{
    *s = (struct wallet_idem){.bytes_max = bytes_max};
    enum err e = map128_init(&s->by_key, 64);
    return e == ERR_OK ? map128_init(&s->by_txid, 64) : e;
}

void wallet_idem_fini(struct wallet_idem *s)
{
    size_t at = 0;
    void *entry;
    while (map128_next(&s->by_key, &at, NULL, &entry))
        free(entry);
    map128_fini(&s->by_key);
    map128_fini(&s->by_txid);
}

static size_t cost(const struct wallet_idem_entry *e)
{
    return sizeof *e + e->n + e->asked_n + ENTRY_OVERHEAD;
}

static void lru_remove(struct wallet_idem *s, struct wallet_idem_entry *e)
{
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void lru_push(struct wallet_idem *s, struct wallet_idem_entry *e)
{
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static void used(struct wallet_idem *s, struct wallet_idem_entry *e)
{
    if (s->newest == e)
        return;
    lru_remove(s, e);
    lru_push(s, e);
}

static void forget(struct wallet_idem *s, struct wallet_idem_entry *e)
{
    CHECK(map128_remove(&s->by_key, e->name.key) == e);
    CHECK(map128_remove(&s->by_txid, e->name.txid) == e);
    if (!e->owner) {
        lru_remove(s, e);
        s->bytes -= cost(e);
    } else
        s->open--;
    free(e);
}

enum wallet_claim wallet_idem_look(struct wallet_idem *s, const struct wallet_idem_name *name,
                                   struct wallet_idem_entry **out_entry)
{
    struct wallet_idem_entry *e = map128_get(&s->by_key, name->key);
    if (!e)
        return WALLET_CLAIM_ABSENT;
    if (e->name.txid.lo != name->txid.lo || e->name.txid.hi != name->txid.hi)
        return WALLET_CLAIM_OTHER;
    *out_entry = e;
    if (e->owner)
        return WALLET_CLAIM_OPEN;
    used(s, e);
    return WALLET_CLAIM_DONE;
}

static enum err add(struct wallet_idem *s, struct wallet_idem_entry *e)
{
    enum err err = map128_add(&s->by_key, e->name.key, e);
    if (err == ERR_OK && (err = map128_add(&s->by_txid, e->name.txid, e)) != ERR_OK)
        map128_remove(&s->by_key, e->name.key);
    return err;
}

enum err wallet_idem_claim(struct wallet_idem *s, const struct wallet_idem_name *name, void *owner,
                           enum wallet_claim *out_claim, struct wallet_idem_entry **out_entry)
{
    enum wallet_claim claim = wallet_idem_look(s, name, out_entry);
    if (claim == WALLET_CLAIM_ABSENT) {
        struct wallet_idem_entry *e = calloc(1, sizeof *e);
        if (!e)
            return ERR_NO_MEMORY;
        e->name = *name;
        e->owner = owner;
        if (add(s, e) != ERR_OK) {
            free(e);
            return ERR_NO_MEMORY;
        }
        s->open++;
        *out_entry = e;
        claim = WALLET_CLAIM_OWNER;
    }
    *out_claim = claim;
    return ERR_OK;
}

/* NULL without memory. */
static struct wallet_idem_entry *done_new(const struct wallet_idem_name *name, struct str receipt,
                                          struct str asked, const struct wallet_sides *sides,
                                          int64_t now_ns)
{
    CHECK(receipt.n <= UINT16_MAX && asked.n <= UINT16_MAX);
    struct wallet_idem_entry *e = malloc(sizeof *e + receipt.n + asked.n);
    if (!e)
        return NULL;
    *e = (struct wallet_idem_entry){.name = *name,
                                    .done_ns = now_ns,
                                    .sides = *sides,
                                    .n = (uint16_t)receipt.n,
                                    .asked_n = (uint16_t)asked.n};
    memcpy(e->receipt, receipt.p, receipt.n);
    if (asked.n)
        memcpy(e->receipt + receipt.n, asked.p, asked.n);
    return e;
}

/* It is in the maps: it counts from now on, and pushes others out. */
static void done_counts(struct wallet_idem *s, struct wallet_idem_entry *e)
{
    lru_push(s, e);
    s->bytes += cost(e);
    while (s->bytes > s->bytes_max && s->oldest) {
        s->evicted_bytes++;
        forget(s, s->oldest);
    }
}

static struct wallet_idem_entry *owned(struct wallet_idem *s, const struct wallet_idem_name *name,
                                       const void *owner)
{
    struct wallet_idem_entry *e = map128_get(&s->by_key, name->key);
    CHECK(e && owner && e->owner == owner);
    return e;
}

void wallet_idem_done(struct wallet_idem *s, const struct wallet_idem_name *name, const void *owner,
                      struct str receipt, struct str asked, const struct wallet_sides *sides,
                      int64_t now_ns)
{
    struct wallet_idem_entry *e = done_new(name, receipt, asked, sides, now_ns), *open;
    void *by_key, *by_txid;
    if (!e) {
        forget(s, owned(s, name, owner));
        return;
    }
    /* In the place of the open one: nothing grows, nothing can fail. */
    CHECK(map128_put(&s->by_key, e->name.key, e, &by_key) == ERR_OK && by_key);
    open = by_key;
    CHECK(owner && open->owner == owner);
    CHECK(map128_put(&s->by_txid, e->name.txid, e, &by_txid) == ERR_OK && by_txid == open);
    s->open--;
    free(open);
    done_counts(s, e);
}

struct wallet_idem_entry *wallet_idem_again(struct wallet_idem *s, struct key128 key, enum wallet_kind kind,
                                            struct str asked, bool *out_absent)
{
    struct wallet_idem_entry *e = map128_get(&s->by_key, key);
    *out_absent = !e;
    if (!e || e->owner || !e->asked_n || e->sides.kind != kind || !str_eq(wallet_idem_asked(e), asked))
        return NULL;
    used(s, e);
    return e;
}

void wallet_idem_drop(struct wallet_idem *s, const struct wallet_idem_name *name, const void *owner)
{
    forget(s, owned(s, name, owner));
}

void wallet_idem_learn(struct wallet_idem *s, const struct wallet_idem_name *name, struct str receipt,
                       const struct wallet_sides *sides, int64_t now_ns)
{
    if (map128_get(&s->by_key, name->key))
        return;
    struct wallet_idem_entry *e = done_new(name, receipt, str_of(NULL, 0), sides, now_ns);
    if (!e)
        return;
    if (add(s, e) == ERR_OK)
        done_counts(s, e);
    else
        free(e);
}

struct wallet_idem_entry *wallet_idem_find_tx(struct wallet_idem *s, struct key128 txid)
{
    return map128_get(&s->by_txid, txid);
}

size_t wallet_idem_expire(struct wallet_idem *s, int64_t before_ns, size_t max)
{
    size_t n = 0;
    for (struct wallet_idem_entry *e = s->oldest, *next; e && n < max; e = next) {
        next = e->newer;
        if (e->done_ns >= before_ns)
            break; /* used later than everything before it; what is older is met again when it reaches the end */
        s->evicted_ttl++;
        n++;
        forget(s, e);
    }
    return n;
}

size_t wallet_idem_count(const struct wallet_idem *s)
{
    return map128_count(&s->by_key);
}
