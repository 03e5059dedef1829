#include "services/ledger/core/entry.h"

#include <string.h>

#include "base/check.h"

struct kind_row {
    const char *text;
    bool nonce, to, ref, until;
};

static const struct kind_row kinds[CORE_KIND_COUNT] = {
    [CORE_KIND_NONE] = {"none", false, false, false, false},
#define KIND(name, number, text, nonce, to, ref, until) [CORE_##name] = {text, nonce, to, ref, until},
    CORE_KINDS
#undef KIND
};

const char *ledger_kind_text(enum core_kind k)
{
    CHECK((unsigned)k < CORE_KIND_COUNT);
    return kinds[k].text;
}

enum core_kind ledger_kind_parse(struct str text)
{
    for (unsigned k = 1; k < CORE_KIND_COUNT; k++)
        if (text.n == strlen(kinds[k].text) && memcmp(text.p, kinds[k].text, text.n) == 0)
            return (enum core_kind)k;
    return CORE_KIND_NONE;
}

/* One table instead of comparisons: account and asset text is checked for every entry that comes in. */
enum { IS_VISIBLE = 1, IS_ACCOUNT = 2, IS_ASSET = 4, IS_ALNUM = 8 };

static uint8_t class_of(unsigned char c)
{
    bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    bool asset = alnum || c == '.' || c == '_' || c == '-';
    bool account = asset || c == ':' || c == '/';
    bool visible = c >= 0x21 && c <= 0x7e;
    return (uint8_t)((visible ? IS_VISIBLE : 0) | (account ? IS_ACCOUNT : 0) | (asset ? IS_ASSET : 0) |
                     (alnum ? IS_ALNUM : 0));
}

static uint8_t classes[256];

__attribute__((constructor)) static void classes_fill(void)
{
    for (unsigned c = 0; c < 256; c++)
        classes[c] = class_of((unsigned char)c);
}

static bool all_in(struct str s, size_t max, uint8_t class)
{
    if (s.n == 0 || s.n > max)
        return false;
    uint8_t seen = class;
    for (size_t i = 0; i < s.n; i++)
        seen &= classes[(unsigned char)s.p[i]];
    return (seen & class) != 0;
}

bool ledger_id_ok(struct str s)
{
    return all_in(s, CORE_ID_MAX, IS_VISIBLE);
}

bool ledger_account_ok(struct str s)
{
    return all_in(s, CORE_ACCOUNT_MAX, IS_ACCOUNT);
}

bool ledger_asset_ok(struct str s)
{
    return all_in(s, CORE_ASSET_MAX, IS_ASSET) && (classes[(unsigned char)s.p[0]] & IS_ALNUM);
}

static bool text_eq(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

static enum err fault(struct core_fault *out, const char *member, const char *reason)
{
    out->member = member;
    out->reason = reason;
    return ERR_BAD_REQUEST;
}

static enum err id_check(struct str s, bool own, const char *member, struct core_fault *out)
{
    if (s.n == 0)
        return fault(out, member, "missing");
    if (s.n > CORE_ID_MAX)
        return fault(out, member, "length");
    if (!ledger_id_ok(s))
        return fault(out, member, "pattern");
    if (s.p[0] == '_' && !own)
        return fault(out, member, "reserved");
    return ERR_OK;
}

static enum err entry_check(const struct core_entry *e, bool own, struct core_fault *out)
{
    enum err err = id_check(e->id, own, "id", out);
    if (err != ERR_OK)
        return err;
    if (e->kind == CORE_KIND_NONE || e->kind >= CORE_KIND_COUNT || (e->kind == CORE_EXPIRE && !own))
        return fault(out, "kind", "unknown");
    const struct kind_row *k = &kinds[e->kind];
    if (e->ts > CORE_TS_MAX)
        return fault(out, "ts", "range");
    if (!ledger_account_ok(e->account))
        return fault(out, "account", e->account.n == 0 ? "missing" : "pattern");
    if (!ledger_asset_ok(e->asset))
        return fault(out, "asset", e->asset.n == 0 ? "missing" : "pattern");
    if (e->amount.units == 0)
        return fault(out, "amount", "range");
    if (!k->to && e->to.n != 0)
        return fault(out, "to", "not_allowed");
    if (k->to && !ledger_account_ok(e->to))
        return fault(out, "to", e->to.n == 0 ? "missing" : "pattern");
    if (k->to && text_eq(e->to, e->account))
        return fault(out, "to", "same_account");
    if (!k->nonce && e->nonce != 0)
        return fault(out, "nonce", "not_allowed");
    if (k->nonce && (e->nonce & CORE_COUNTER_MASK) == 0)
        return fault(out, "nonce", e->nonce == 0 ? "missing" : "range");
    if (!k->ref && e->ref_id.n != 0)
        return fault(out, "ref_id", "not_allowed");
    if (k->ref && (err = id_check(e->ref_id, own, "ref_id", out)) != ERR_OK)
        return err;
    if (!k->until && e->hold_until != 0)
        return fault(out, "hold_until", "not_allowed");
    if (e->hold_until > CORE_TS_MAX)
        return fault(out, "hold_until", "range");
    return ERR_OK;
}

enum err ledger_unit_check(const struct core_unit *u, bool own, struct core_fault *out_fault)
{
    struct core_fault f = {0, NULL, NULL};
    enum err err = ERR_OK;
    if (u->n == 0)
        err = fault(&f, "entries", "missing");
    else if (u->n > CORE_UNIT_ENTRIES_MAX)
        err = fault(&f, "entries", "too_many");
    else if (u->idem_id.n != 0)
        err = id_check(u->idem_id, own, "idem_id", &f);
    if (err == ERR_OK && u->meta.n > CORE_META_TEXT_MAX)
        err = fault(&f, "meta", "length");
    for (uint32_t i = 0; err == ERR_OK && i < u->n; i++) {
        f.entry = i;
        err = entry_check(&u->entries[i], own, &f);
        if (err == ERR_OK && u->idem_id.n == 0 && u->entries[i].nonce == 0)
            err = fault(&f, "idem_id", "missing");
    }
    if (err != ERR_OK)
        *out_fault = f;
    return err;
}
