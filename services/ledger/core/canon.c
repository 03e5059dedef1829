#include "services/ledger/core/canon.h"

#include <string.h>

#include "base/check.h"

#define PUT(p, lit) (memcpy((p), (lit), sizeof(lit) - 1), (p) + sizeof(lit) - 1)

static const char hex_digits[] = "0123456789abcdef";

static char *put_hex(char *p, const uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *p++ = hex_digits[b[i] >> 4];
        *p++ = hex_digits[b[i] & 15];
    }
    return p;
}

static char *put_raw(char *p, struct str s)
{
    if (s.n != 0)
        memcpy(p, s.p, s.n);
    return p + s.n;
}

static char *put_escaped(char *p, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '"' || c == '\\')
            *p++ = '\\';
        *p++ = c;
    }
    return p;
}

static char *put_u64(char *p, uint64_t v)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    while (n > 0)
        *p++ = digits[--n];
    return p;
}

static char *put_money(char *p, struct money m)
{
    if (m.units <= UINT64_MAX)
        return put_u64(p, (uint64_t)m.units);
    char digits[40];
    size_t n = 0;
    for (unsigned __int128 v = m.units; v != 0; v /= 10)
        digits[n++] = (char)('0' + (int)(v % 10));
    while (n > 0)
        *p++ = digits[--n];
    return p;
}

static char *put_hash(char *p, const struct sha256 *h)
{
    p = PUT(p, "\"sha256:");
    p = put_hex(p, h->b, sizeof h->b);
    *p++ = '"';
    return p;
}

static size_t key_text(uint8_t tag, struct str s, uint8_t out[CANON_KEY_TEXT])
{
    CHECK(s.n <= CORE_ID_MAX);
    out[0] = tag;
    if (s.n != 0)
        memcpy(out + 1, s.p, s.n);
    return 1 + s.n;
}

struct core_key ledger_canon_key_of(const struct sha256 *h)
{
    struct core_key k;
    memcpy(&k, h->b, sizeof k);
    return k;
}

static struct core_key key_of(const uint8_t *text, size_t n)
{
    struct sha256 h;
    sha256_of(text, n, &h);
    return ledger_canon_key_of(&h);
}

size_t ledger_canon_idem_text(struct str idem_id, uint8_t out[CANON_KEY_TEXT])
{
    return key_text(1, idem_id, out);
}

size_t ledger_canon_id_text(struct str id, uint8_t out[CANON_KEY_TEXT])
{
    return key_text(2, id, out);
}

struct core_key ledger_canon_idem_key(struct str idem_id)
{
    uint8_t text[CANON_KEY_TEXT];
    return key_of(text, ledger_canon_idem_text(idem_id, text));
}

struct core_key ledger_canon_id_key(struct str id)
{
    uint8_t text[CANON_KEY_TEXT];
    return key_of(text, ledger_canon_id_text(id, text));
}

void ledger_canon_tuple_id(const struct core_unit *u, char out[CANON_TUPLE_ID])
{
    struct sha256_ctx c;
    struct sha256 h;
    char text[CORE_ACCOUNT_MAX + 80];
    sha256_init(&c);
    for (uint32_t i = 0; i < u->n; i++) {
        const struct core_entry *e = &u->entries[i];
        char *p = text;
        *p++ = i == 0 ? '[' : ',';
        p = PUT(p, "[\"");
        p = put_raw(p, e->account);
        p = PUT(p, "\",\"");
        p = put_money(p, e->amount);
        p = PUT(p, "\",\"");
        p = put_u64(p, e->nonce);
        p = PUT(p, "\"]");
        sha256_update(&c, text, (size_t)(p - text));
    }
    sha256_update(&c, "]", 1);
    sha256_final(&c, &h);
    put_hex(PUT(out, "_t:"), h.b, sizeof h.b);
}

/* account … asset, then hold_until: what fingerprint and leaf have in common before "id". */
static char *put_front(char *p, const struct core_entry *e)
{
    p = PUT(p, "{\"account\":\"");
    p = put_raw(p, e->account);
    p = PUT(p, "\",\"amount\":\"");
    p = put_money(p, e->amount);
    p = PUT(p, "\",\"asset\":\"");
    p = put_raw(p, e->asset);
    *p++ = '"';
    if (e->hold_until != 0) {
        p = PUT(p, ",\"hold_until\":");
        p = put_u64(p, e->hold_until);
    }
    return p;
}

static char *put_back(char *p, const struct core_entry *e)
{
    p = PUT(p, ",\"kind\":\"");
    const char *kind = ledger_kind_text(e->kind);
    p = put_raw(p, (struct str){kind, strlen(kind)});
    *p++ = '"';
    if (e->nonce != 0) {
        p = PUT(p, ",\"nonce\":\"");
        p = put_u64(p, e->nonce);
        *p++ = '"';
    }
    if (e->ref_id.n != 0) {
        p = PUT(p, ",\"ref_id\":\"");
        p = put_escaped(p, e->ref_id);
        *p++ = '"';
    }
    if (e->to.n != 0) {
        p = PUT(p, ",\"to\":\"");
        p = put_raw(p, e->to);
        *p++ = '"';
    }
    return p;
}

static char *put_tail_of_fp(char *p, struct str idem_id)
{
    p = PUT(p, "],\"idem_id\":\"");
    p = put_escaped(p, idem_id);
    return PUT(p, "\"}");
}

size_t ledger_canon_fp_text(const struct core_unit *u, char out[CANON_FP_TEXT_MAX])
{
    CHECK(u->n == 1);
    char *p = PUT(out, "{\"entries\":[");
    p = put_back(put_front(p, &u->entries[0]), &u->entries[0]);
    *p++ = '}';
    p = put_tail_of_fp(p, u->idem_id);
    CHECK((size_t)(p - out) <= CANON_FP_TEXT_MAX);
    return (size_t)(p - out);
}

void ledger_canon_fp(const struct core_unit *u, struct sha256 *out_fp)
{
    char text[CANON_FP_TEXT_MAX];
    if (u->n == 1) { /* the common case in one pass over one buffer */
        sha256_of(text, ledger_canon_fp_text(u, text), out_fp);
        return;
    }
    struct sha256_ctx c;
    sha256_init(&c);
    sha256_update(&c, "{\"entries\":[", 12);
    for (uint32_t i = 0; i < u->n; i++) {
        char *p = text;
        if (i > 0)
            *p++ = ',';
        p = put_back(put_front(p, &u->entries[i]), &u->entries[i]);
        *p++ = '}';
        sha256_update(&c, text, (size_t)(p - text));
    }
    char *p = put_tail_of_fp(text, u->idem_id);
    sha256_update(&c, text, (size_t)(p - text));
    sha256_final(&c, out_fp);
}

size_t ledger_canon_envelope(const struct core_unit *u, const struct core_caller *who,
                             const struct sha256 *fp, char out[CANON_ENVELOPE_MAX])
{
    char *p = out;
    *p++ = '{';
    if (who->kid.n != 0) {
        p = PUT(p, "\"cap\":\"");
        p = put_hex(p, who->cap, CANON_CAP);
        p = PUT(p, "\",");
    }
    p = PUT(p, "\"fp\":");
    p = put_hash(p, fp);
    p = PUT(p, ",\"idem_id\":\"");
    p = put_escaped(p, u->idem_id);
    *p++ = '"';
    if (who->kid.n != 0) {
        p = PUT(p, ",\"kid\":\"");
        p = put_escaped(p, who->kid);
        *p++ = '"';
    }
    if (u->meta.n != 0) {
        p = PUT(p, ",\"meta\":\"");
        p = put_raw(p, u->meta);
        *p++ = '"';
    }
    p = PUT(p, ",\"n\":");
    p = put_u64(p, u->n);
    *p++ = '}';
    CHECK((size_t)(p - out) <= CANON_ENVELOPE_MAX);
    return (size_t)(p - out);
}

size_t ledger_canon_leaf(const struct core_entry *e, const struct sha256 *unit, char out[CORE_LEAF_MAX])
{
    char *p = put_front(out, e);
    p = PUT(p, ",\"id\":\"");
    p = put_escaped(p, e->id);
    *p++ = '"';
    p = put_back(p, e);
    p = PUT(p, ",\"ts\":");
    p = put_u64(p, e->ts);
    p = PUT(p, ",\"unit\":");
    p = put_hash(p, unit);
    p = PUT(p, ",\"v\":1}");
    CHECK((size_t)(p - out) <= CORE_LEAF_MAX);
    return (size_t)(p - out);
}

/*
 * Reading back. The members stand in one fixed order, so the reader walks along the writer: a literal, a value, the next
 * literal. What it accepts it would also write: numbers without leading zeros, escapes only where needed.
 */
struct reader {
    const char *p, *end;
    char *scratch;
    bool bad;
};

static bool take(struct reader *r, const char *lit, size_t n)
{
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, lit, n) != 0)
        return false;
    r->p += n;
    return true;
}
#define TAKE(r, lit) take((r), (lit), sizeof(lit) - 1)
#define MUST(r, lit) ((void)(TAKE(r, lit) || ((r)->bad = true)))

static struct str take_text(struct reader *r)
{
    const char *start = r->p;
    char *copy = r->scratch;
    bool escaped = false;
    while (r->p < r->end && *r->p != '"') {
        if (*r->p == '\\') {
            escaped = true;
            r->p++;
            if (r->p == r->end || (*r->p != '"' && *r->p != '\\')) {
                r->bad = true;
                return (struct str){start, 0};
            }
        }
        *copy++ = *r->p++;
    }
    if (!TAKE(r, "\""))
        r->bad = true;
    if (!escaped)
        return (struct str){start, r->bad ? 0 : (size_t)(r->p - 1 - start)};
    struct str s = {r->scratch, (size_t)(copy - r->scratch)};
    r->scratch = copy;
    return s;
}

static unsigned __int128 take_number(struct reader *r, unsigned __int128 max)
{
    const char *start = r->p;
    unsigned __int128 v = 0;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        unsigned digit = (unsigned)(*r->p++ - '0');
        if (v > (max - digit) / 10) {
            r->bad = true;
            return 0;
        }
        v = v * 10 + digit;
    }
    if (r->p == start || (*start == '0' && r->p - start > 1))
        r->bad = true;
    return v;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void take_hash(struct reader *r, struct sha256 *out)
{
    MUST(r, "\"sha256:");
    if (r->bad || r->end - r->p < 65 || r->p[64] != '"') {
        r->bad = true;
        return;
    }
    for (size_t i = 0; i < 32; i++) {
        int hi = hex_value(r->p[2 * i]), lo = hex_value(r->p[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            r->bad = true;
            return;
        }
        out->b[i] = (uint8_t)(hi << 4 | lo);
    }
    r->p += 65;
}

enum err ledger_canon_leaf_parse(struct str leaf, char *scratch, struct core_entry *out_entry,
                                 struct sha256 *out_unit)
{
    struct core_entry e = {0};
    struct sha256 unit = {{0}};
    if (leaf.n > CORE_LEAF_MAX)
        return ERR_CORRUPT;
    struct reader r = {leaf.p, leaf.p + leaf.n, scratch, false};
    MUST(&r, "{\"account\":\"");
    e.account = take_text(&r);
    MUST(&r, ",\"amount\":\"");
    e.amount.units = take_number(&r, ~(unsigned __int128)0);
    MUST(&r, "\",\"asset\":\"");
    e.asset = take_text(&r);
    if (TAKE(&r, ",\"hold_until\":")) {
        e.hold_until = (uint64_t)take_number(&r, CORE_TS_MAX);
        r.bad = r.bad || e.hold_until == 0;
    }
    MUST(&r, ",\"id\":\"");
    e.id = take_text(&r);
    MUST(&r, ",\"kind\":\"");
    e.kind = ledger_kind_parse(take_text(&r));
    if (TAKE(&r, ",\"nonce\":\"")) {
        e.nonce = (uint64_t)take_number(&r, UINT64_MAX);
        MUST(&r, "\"");
        r.bad = r.bad || e.nonce == 0;
    }
    if (TAKE(&r, ",\"ref_id\":\"")) {
        e.ref_id = take_text(&r);
        r.bad = r.bad || e.ref_id.n == 0;
    }
    if (TAKE(&r, ",\"to\":\"")) {
        e.to = take_text(&r);
        r.bad = r.bad || e.to.n == 0;
    }
    MUST(&r, ",\"ts\":");
    e.ts = (uint64_t)take_number(&r, CORE_TS_MAX);
    MUST(&r, ",\"unit\":");
    take_hash(&r, &unit);
    MUST(&r, ",\"v\":1}");
    if (r.bad || r.p != r.end || e.kind == CORE_KIND_NONE)
        return ERR_CORRUPT;
    *out_entry = e;
    *out_unit = unit;
    return ERR_OK;
}
