/*
 * One unit of a frame: its entries are applied to the books by the rules a client was promised, and its fingerprint and leaves are
 * recomputed.
 */
#include "ron/verify/check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/money.h"
#include "base/str.h"

struct entry {
    const char *account, *to, *asset, *id, *kind, *ref;
    verify_u128 amount;
    uint64_t ts, nonce, until;
};

static const char *member(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s == NULL ? "" : s;
}

static bool amount_of(const json_t *o, const char *name, verify_u128 *out)
{
    struct money m;
    const char *s = json_string_value(json_object_get(o, name));
    if (s == NULL || money_parse(str_from_c(s), &m) != ERR_OK)
        return false;
    *out = m.units;
    return true;
}

static struct verify_item *row(struct verify *c, const char *account, const char *asset)
{
    char key[200];
    int n = snprintf(key, sizeof key, "%s", account) + 1;
    n += snprintf(key + n, sizeof key - (size_t)n, "%s", asset);
    struct verify_item *i = verify_need(&c->rows, key, (size_t)n);
    snprintf(i->account, sizeof i->account, "%s", account);
    snprintf(i->asset, sizeof i->asset, "%s", asset);
    return i;
}

static bool nonce_ok(struct verify *c, const struct entry *e)
{
    char key[200];
    int n = snprintf(key, sizeof key, "%s", e->account) + 1;
    key[n++] = (char)(e->nonce >> 56);
    key[n++] = (char)(e->nonce >> 48);
    struct verify_item *lane = verify_need(&c->lanes, key, (size_t)n);
    uint64_t counter = e->nonce & 0xffffffffffffu;
    if (counter != (uint64_t)lane->a + 1)
        return verify_wrong(c, "nonce is not the next of its lane");
    lane->a = counter;
    return true;
}

static bool take(struct verify *c, struct verify_item *r, verify_u128 amount)
{
    if (r->a < amount)
        return verify_wrong(c, "debit without funds");
    r->a -= amount;
    return true;
}

static bool give(struct verify *c, struct verify_item *r, verify_u128 amount)
{
    if (r->a + amount < amount)
        return verify_wrong(c, "balance overflows");
    r->a += amount;
    return true;
}

static bool from_hold(struct verify *c, const struct entry *e, uint64_t seq, uint64_t ms)
{
    struct verify_item *h = verify_find(&c->holds, e->ref, strlen(e->ref));
    if (h == NULL || h->a == 0 || strcmp(h->account, e->account) != 0 || strcmp(h->asset, e->asset) != 0 ||
        h->a < e->amount)
        return verify_wrong(c, "draws on no open hold, or too much");
    bool expire = strcmp(e->kind, "expire") == 0;
    char id[40];
    snprintf(id, sizeof id, "_expire:%llu", (unsigned long long)h->seq);
    if (expire && (h->b == 0 || h->b > ms || h->a != e->amount || strcmp(id, e->id) != 0))
        return verify_wrong(c, "expires a hold too early or in part");
    struct verify_item *r = row(c, e->account, e->asset);
    h->a -= e->amount;
    r->b -= e->amount;
    r->seq = seq;
    struct verify_item *to = strcmp(e->kind, "capture") == 0 ? row(c, e->to, e->asset) : r;
    to->seq = seq;
    return give(c, to, e->amount);
}

static bool reverse(struct verify *c, const struct entry *e, uint64_t seq)
{
    struct verify_item *t = verify_find(&c->ids, e->ref, strlen(e->ref));
    if (t == NULL || t->kind != 't' || strcmp(t->account, e->account) != 0 || strcmp(t->to, e->to) != 0 ||
        strcmp(t->asset, e->asset) != 0)
        return verify_wrong(c, "reverses what is no such transfer");
    uint8_t key[8];
    be64_put(key, t->seq);
    struct verify_item *r = verify_need(&c->reversals, (const char *)key, 8);
    if (e->amount > t->amount - r->a)
        return verify_wrong(c, "reverses more than was transferred");
    r->a += e->amount;
    struct verify_item *from = row(c, e->to, e->asset), *to = row(c, e->account, e->asset);
    from->seq = to->seq = seq;
    return take(c, from, e->amount) && give(c, to, e->amount);
}

static bool apply(struct verify *c, const struct entry *e, uint64_t seq, uint64_t unit_end, uint64_t ms)
{
    struct verify_item *s = verify_need(&c->supply, e->asset, strlen(e->asset));
    struct verify_item *r = NULL;
    bool needs_nonce =
        strcmp(e->kind, "burn") == 0 || strcmp(e->kind, "transfer") == 0 || strcmp(e->kind, "hold") == 0;
    if (needs_nonce != (e->nonce != 0) || (needs_nonce && !nonce_ok(c, e)))
        return verify_wrong(c, "nonce where none belongs, or none where one does");
    if (strcmp(e->kind, "mint") == 0) {
        r = row(c, e->account, e->asset);
        r->seq = unit_end;
        if (s->a + e->amount < e->amount)
            return verify_wrong(c, "supply overflows");
        s->a += e->amount;
        return give(c, r, e->amount);
    }
    if (strcmp(e->kind, "burn") == 0) {
        r = row(c, e->account, e->asset);
        r->seq = unit_end;
        s->b += e->amount;
        return take(c, r, e->amount);
    }
    if (strcmp(e->kind, "transfer") == 0) {
        struct verify_item *to = row(c, e->to, e->asset);
        r = row(c, e->account, e->asset);
        r->seq = to->seq = unit_end;
        return take(c, r, e->amount) && give(c, to, e->amount);
    }
    if (strcmp(e->kind, "hold") == 0) {
        r = row(c, e->account, e->asset);
        r->seq = unit_end;
        if (!take(c, r, e->amount))
            return false;
        r->b += e->amount;
        struct verify_item *h = verify_need(&c->holds, e->id, strlen(e->id));
        h->a = e->amount;
        h->b = e->until;
        h->seq = seq;
        snprintf(h->account, sizeof h->account, "%s", e->account);
        snprintf(h->asset, sizeof h->asset, "%s", e->asset);
        return true;
    }
    if (strcmp(e->kind, "capture") == 0 || strcmp(e->kind, "release") == 0 ||
        strcmp(e->kind, "expire") == 0)
        return from_hold(c, e, unit_end, ms);
    if (strcmp(e->kind, "reverse") == 0)
        return reverse(c, e, unit_end);
    return verify_wrong(c, "unknown kind");
}

/* Canonical again: jansson's sorted compact dump must give the same bytes. */
static bool canonical(const json_t *o, struct str leaf)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    bool same = text != NULL && strlen(text) == leaf.n && memcmp(text, leaf.p, leaf.n) == 0;
    free(text);
    return same;
}

static bool add_fp(json_t *list, const json_t *leaf)
{
    static const char *const members[] = {"account", "amount", "asset",  "hold_until",
                                          "kind",    "nonce",  "ref_id", "to"};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        json_t *v = json_object_get(leaf, members[i]);
        if (v != NULL)
            json_object_set(o, members[i], v);
    }
    return json_array_append_new(list, o) == 0;
}

static bool dump_hash(json_t *o, struct sha256 *out)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(o);
    if (text == NULL)
        return false;
    sha256_of(text, strlen(text), out);
    free(text);
    return true;
}

enum { UNIT_HEADER = 52 };

struct unit {
    uint32_t len, n, idem_n, kid_n, meta_n, flags;
    const uint8_t *p;
    const char *idem, *kid, *meta;
    const uint8_t *leaves;
};

/* One leaf as it stands in the journal. */
struct leaf {
    struct str text;
    json_t *o; /* e's strings point into it */
    struct entry e;
    struct sha256 unit; /* the unit it says it is of */
};

static bool leaf_members(struct leaf *l)
{
    const json_t *o = l->o;
    const char *nonce = member(o, "nonce");
    l->e = (struct entry){member(o, "account"),
                          member(o, "to"),
                          member(o, "asset"),
                          member(o, "id"),
                          member(o, "kind"),
                          member(o, "ref_id"),
                          0,
                          (uint64_t)json_integer_value(json_object_get(o, "ts")),
                          0,
                          (uint64_t)json_integer_value(json_object_get(o, "hold_until"))};
    return amount_of(o, "amount", &l->e.amount) && l->e.amount != 0 &&
           sha256_parse(str_from_c(member(o, "unit")), &l->unit) == ERR_OK &&
           (nonce[0] == 0 || str_parse_u64(str_from_c(nonce), &l->e.nonce) == ERR_OK) &&
           strlen(l->e.account) <= 128 && strlen(l->e.to) <= 128 && strlen(l->e.asset) <= 32;
}

/* False: it was said, and there is nothing to free. */
static bool leaf_read(struct verify *c, struct str text, struct leaf *out)
{
    json_error_t why;
    struct leaf l = {.text = text, .o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &why)};
    bool canon = l.o != NULL && json_is_object(l.o) && canonical(l.o, text) &&
                 json_integer_value(json_object_get(l.o, "v")) == 1;
    if (!canon || !leaf_members(&l)) {
        json_decref(l.o);
        return verify_wrong(c, canon ? "leaf has a malformed member" : "leaf is not canonical");
    }
    *out = l;
    return true;
}

/* An id is in the log once; a reversal looks up what it was. */
static bool note_id(struct verify *c, const struct entry *e, uint64_t seq)
{
    if (verify_find(&c->ids, e->id, strlen(e->id)) != NULL)
        return verify_wrong(c, "id is in the log twice");
    struct verify_item *id = verify_need(&c->ids, e->id, strlen(e->id));
    id->seq = seq;
    id->kind = strcmp(e->kind, "transfer") == 0 ? 't' : 'o';
    id->amount = e->amount;
    snprintf(id->account, sizeof id->account, "%s", e->account);
    snprintf(id->to, sizeof id->to, "%s", e->to);
    snprintf(id->asset, sizeof id->asset, "%s", e->asset);
    return true;
}

/* Into the tree, and against the hash the ledger keeps beside its journal. */
static bool grow_tree(struct verify *c, struct str leaf, struct sha256 *out_hash)
{
    struct sha256_ctx h;
    struct sha256 hash, stored;
    sha256_init(&h);
    sha256_update(&h, "\0", 1);
    sha256_update(&h, leaf.p, leaf.n);
    sha256_final(&h, &hash);
    if (c->tree0 != NULL && fread(stored.b, 1, 32, c->tree0) == 32 && !sha256_eq(&stored, &hash)) {
        snprintf(c->at_file, sizeof c->at_file, "tree/00");
        c->at_byte = c->tree.n * 32;
        return verify_wrong(c, "stored leaf hash differs from the journal");
    }
    verify_tree_add(&c->tree, hash);
    *out_hash = hash;
    return true;
}

/* One entry: its leaf, its id, its effect on the books, its place in the tree. unit_end: the last seq of its unit. */
static bool unit_entry(struct verify *c, const struct unit *u, const struct leaf *l, uint64_t unit_end,
                       uint64_t ms)
{
    uint64_t seq = c->tree.n + 1;
    struct sha256 hash;
    if (!note_id(c, &l->e, seq) || !apply(c, &l->e, seq, unit_end, ms) || !grow_tree(c, l->text, &hash))
        return false;
    if (c->fn != NULL)
        c->fn(c->ctx, seq, l->text, &hash, str_of(u->idem, u->idem_n), str_of(u->kid, u->kid_n), ms);
    return true;
}

static bool unit_entries(struct verify *c, const struct unit *u, uint64_t ms, json_t *fp_list,
                         struct sha256 *out_named)
{
    const uint8_t *p = u->leaves, *end = u->p + u->len;
    uint64_t unit_end = c->tree.n + u->n;
    for (uint32_t i = 0; i < u->n; i++) {
        struct leaf l;
        if (end - p < 2 || end - p - 2 < be16_get(p))
            return verify_wrong(c, "leaf does not fit its unit");
        c->at_byte += i == 0 ? (uint64_t)(u->leaves - u->p) : 0;
        if (!leaf_read(c, str_of((const char *)p + 2, be16_get(p)), &l))
            return false;
        p += 2 + l.text.n;
        if (i == 0)
            *out_named = l.unit;
        bool same = sha256_eq(&l.unit, out_named) && add_fp(fp_list, l.o);
        bool ok =
            same ? unit_entry(c, u, &l, unit_end, ms) : verify_wrong(c, "leaves name different units");
        json_decref(l.o);
        if (!ok)
            return false;
    }
    return p == end || verify_wrong(c, "unit is longer than its leaves");
}

static bool unit_decode(const uint8_t *p, size_t left, struct unit *out)
{
    struct unit u = {.p = p,
                     .len = le32_get(p),
                     .n = le16_get(p + 4),
                     .idem_n = p[6],
                     .kid_n = p[7],
                     .meta_n = le16_get(p + 8),
                     .flags = le16_get(p + 10)};
    if (u.len > left || u.n == 0 || u.n > 1024 || u.idem_n == 0 || u.idem_n > 128 || u.kid_n > 64 ||
        u.flags > 1 || UNIT_HEADER + u.idem_n + u.kid_n + u.meta_n > u.len)
        return false;
    u.idem = (const char *)p + UNIT_HEADER;
    u.kid = u.idem + u.idem_n;
    u.meta = u.kid + u.kid_n;
    u.leaves = (const uint8_t *)u.meta + u.meta_n;
    *out = u;
    return true;
}

/* What the leaves' member `unit` is the hash of. */
static bool envelope_hash(const struct unit *u, const struct sha256 *fp, struct sha256 *out)
{
    json_t *env = json_object();
    char text[SHA256_TEXT_CHARS], cap[17];
    sha256_format(fp, text);
    hex_encode(u->p + 12, 8, cap);
    if (u->kid_n != 0) {
        json_object_set_new(env, "cap", json_string(cap));
        json_object_set_new(env, "kid", json_stringn(u->kid, u->kid_n));
    }
    json_object_set_new(env, "fp", json_string(text));
    json_object_set_new(env, "idem_id", json_stringn(u->idem, u->idem_n));
    if (u->meta_n != 0)
        json_object_set_new(env, "meta", json_stringn(u->meta, u->meta_n));
    json_object_set_new(env, "n", json_integer(u->n));
    return dump_hash(env, out);
}

bool verify_unit(struct verify *c, const uint8_t *p, size_t left, uint64_t ms, uint32_t *out_len)
{
    struct unit u;
    struct sha256 named, fp, unit;
    if (left < UNIT_HEADER)
        return verify_wrong(c, "unit record is cut");
    if (!unit_decode(p, left, &u))
        return verify_wrong(c, "unit record is malformed");
    if (verify_find(&c->units, u.idem, u.idem_n) != NULL)
        return verify_wrong(c, "unit is in the log twice");
    verify_need(&c->units, u.idem, u.idem_n);
    json_t *list = json_array(), *fp_obj = json_object();
    json_object_set_new(fp_obj, "entries", list);
    json_object_set_new(fp_obj, "idem_id", json_stringn(u.idem, u.idem_n));
    if (!unit_entries(c, &u, ms, list, &named)) {
        json_decref(fp_obj);
        return false;
    }
    if (!dump_hash(fp_obj, &fp) || memcmp(fp.b, p + 20, 32) != 0)
        return verify_wrong(c, "fingerprint differs");
    if (!envelope_hash(&u, &fp, &unit) || !sha256_eq(&unit, &named))
        return verify_wrong(c, "envelope differs from the leaves' unit");
    *out_len = u.len;
    return true;
}
