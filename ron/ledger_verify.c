#include "ron/ledger_verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/base64.h"
#include "base/crc32c.h"
#include "base/ed25519.h"
#include "base/hex.h"
#include "base/money.h"
#include "base/str.h"

typedef unsigned __int128 u128;

/* Everything is kept in chained tables by text: slow, plain, and nothing like the service. */
struct item {
    struct item *next;
    u128 a, b; /* available, held / counter / minted, burned / remaining, until / reversed */
    uint64_t seq;
    char kind, account[130], asset[34], to[130];
    u128 amount;
    size_t key_n;
    char key[];
};

enum { BUCKETS = 1 << 16 };
struct table {
    struct item *v[BUCKETS];
    uint64_t n;
};

struct check {
    struct ledger_verify_report *r;
    const char *dir;
    uint32_t align, segment_bytes;
    uint8_t ledger_id[16];
    struct table rows, lanes, supply, holds, units, ids, reversals;
    struct sha256 front[64]; /* one per 1-bit of the size */
    uint64_t n;
    struct sha256 root;
    uint64_t group, last_ms;
    FILE *tree0;
    FILE *groups;
    ledger_verify_entry_fn *fn;
    void *ctx;
    char at_file[96];
    uint64_t at_byte;
    bool failed;
};

static uint64_t hash_of(const char *p, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static struct item *find(struct table *t, const char *key, size_t n)
{
    struct item *i = t->v[hash_of(key, n) % BUCKETS];
    while (i != NULL && (i->key_n != n || memcmp(i->key, key, n) != 0))
        i = i->next;
    return i;
}

static struct item *need(struct table *t, const char *key, size_t n)
{
    struct item *i = find(t, key, n);
    if (i != NULL)
        return i;
    i = calloc(1, sizeof *i + n + 1);
    if (i == NULL)
        abort();
    memcpy(i->key, key, n);
    i->key_n = n;
    struct item **b = &t->v[hash_of(key, n) % BUCKETS];
    i->next = *b;
    *b = i;
    t->n++;
    return i;
}

static void table_free(struct table *t)
{
    for (size_t b = 0; b < BUCKETS; b++)
        for (struct item *i = t->v[b], *next; i != NULL; i = next) {
            next = i->next;
            free(i);
        }
}

static bool wrong(struct check *c, const char *rule)
{
    if (!c->failed) {
        snprintf(c->r->file, sizeof c->r->file, "%s", c->at_file);
        c->r->byte = c->at_byte;
        snprintf(c->r->rule, sizeof c->r->rule, "%s", rule);
        c->failed = true;
    }
    return false;
}

/* ---- tree ---- */

static void node(const struct sha256 *l, const struct sha256 *r, struct sha256 *out)
{
    struct sha256_ctx c;
    sha256_init(&c);
    sha256_update(&c, "\1", 1);
    sha256_update(&c, l->b, 32);
    sha256_update(&c, r->b, 32);
    sha256_final(&c, out);
}

static void tree_add(struct check *c, struct sha256 h)
{
    unsigned level = 0;
    for (uint64_t n = c->n; n & 1; n >>= 1, level++)
        node(&c->front[level], &h, &h);
    c->front[level] = h;
    c->n++;
}

static void tree_root(const struct check *c, struct sha256 *out)
{
    bool have = false;
    sha256_of("", 0, out);
    for (unsigned level = 0; level < 64; level++)
        if (c->n >> level & 1) {
            if (have)
                node(&c->front[level], out, out);
            else
                *out = c->front[level];
            have = true;
        }
}

/* ---- one entry ---- */

struct entry {
    const char *account, *to, *asset, *id, *kind, *ref;
    u128 amount;
    uint64_t ts, nonce, until;
};

static const char *member(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s == NULL ? "" : s;
}

static bool amount_of(const json_t *o, const char *name, u128 *out)
{
    struct money m;
    const char *s = json_string_value(json_object_get(o, name));
    if (s == NULL || money_parse(str_from_c(s), &m) != ERR_OK)
        return false;
    *out = m.units;
    return true;
}

static struct item *row(struct check *c, const char *account, const char *asset)
{
    char key[200];
    int n = snprintf(key, sizeof key, "%s", account) + 1;
    n += snprintf(key + n, sizeof key - (size_t)n, "%s", asset);
    struct item *i = need(&c->rows, key, (size_t)n);
    snprintf(i->account, sizeof i->account, "%s", account);
    snprintf(i->asset, sizeof i->asset, "%s", asset);
    return i;
}

static bool nonce_ok(struct check *c, const struct entry *e)
{
    char key[200];
    int n = snprintf(key, sizeof key, "%s", e->account) + 1;
    key[n++] = (char)(e->nonce >> 56);
    key[n++] = (char)(e->nonce >> 48);
    struct item *lane = need(&c->lanes, key, (size_t)n);
    uint64_t counter = e->nonce & 0xffffffffffffu;
    if (counter != (uint64_t)lane->a + 1)
        return wrong(c, "nonce is not the next of its lane");
    lane->a = counter;
    return true;
}

static bool take(struct check *c, struct item *r, u128 amount)
{
    if (r->a < amount)
        return wrong(c, "debit without funds");
    r->a -= amount;
    return true;
}

static bool give(struct check *c, struct item *r, u128 amount)
{
    if (r->a + amount < amount)
        return wrong(c, "balance overflows");
    r->a += amount;
    return true;
}

static bool from_hold(struct check *c, const struct entry *e, uint64_t seq, uint64_t ms)
{
    struct item *h = find(&c->holds, e->ref, strlen(e->ref));
    if (h == NULL || h->a == 0 || strcmp(h->account, e->account) != 0 || strcmp(h->asset, e->asset) != 0 ||
        h->a < e->amount)
        return wrong(c, "draws on no open hold, or too much");
    bool expire = strcmp(e->kind, "expire") == 0;
    char id[40];
    snprintf(id, sizeof id, "_expire:%llu", (unsigned long long)h->seq);
    if (expire && (h->b == 0 || h->b > ms || h->a != e->amount || strcmp(id, e->id) != 0))
        return wrong(c, "expires a hold too early or in part");
    struct item *r = row(c, e->account, e->asset);
    h->a -= e->amount;
    r->b -= e->amount;
    r->seq = seq;
    struct item *to = strcmp(e->kind, "capture") == 0 ? row(c, e->to, e->asset) : r;
    to->seq = seq;
    return give(c, to, e->amount);
}

static bool reverse(struct check *c, const struct entry *e, uint64_t seq)
{
    struct item *t = find(&c->ids, e->ref, strlen(e->ref));
    if (t == NULL || t->kind != 't' || strcmp(t->account, e->account) != 0 || strcmp(t->to, e->to) != 0 ||
        strcmp(t->asset, e->asset) != 0)
        return wrong(c, "reverses what is no such transfer");
    uint8_t key[8];
    be64_put(key, t->seq);
    struct item *r = need(&c->reversals, (const char *)key, 8);
    if (e->amount > t->amount - r->a)
        return wrong(c, "reverses more than was transferred");
    r->a += e->amount;
    struct item *from = row(c, e->to, e->asset), *to = row(c, e->account, e->asset);
    from->seq = to->seq = seq;
    return take(c, from, e->amount) && give(c, to, e->amount);
}

static bool apply(struct check *c, const struct entry *e, uint64_t seq, uint64_t unit_end, uint64_t ms)
{
    struct item *s = need(&c->supply, e->asset, strlen(e->asset));
    struct item *r = NULL;
    bool needs_nonce =
        strcmp(e->kind, "burn") == 0 || strcmp(e->kind, "transfer") == 0 || strcmp(e->kind, "hold") == 0;
    if (needs_nonce != (e->nonce != 0) || (needs_nonce && !nonce_ok(c, e)))
        return wrong(c, "nonce where none belongs, or none where one does");
    if (strcmp(e->kind, "mint") == 0) {
        r = row(c, e->account, e->asset);
        r->seq = unit_end;
        if (s->a + e->amount < e->amount)
            return wrong(c, "supply overflows");
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
        struct item *to = row(c, e->to, e->asset);
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
        struct item *h = need(&c->holds, e->id, strlen(e->id));
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
    return wrong(c, "unknown kind");
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

struct unit {
    uint32_t len, n, idem_n, kid_n, meta_n, flags;
    const uint8_t *p;
    const char *idem, *kid, *meta;
    const uint8_t *leaves;
};

static bool unit_entries(struct check *c, const struct unit *u, uint64_t ms, json_t *fp_list,
                         struct sha256 *out_named)
{
    const uint8_t *p = u->leaves, *end = u->p + u->len;
    for (uint32_t i = 0; i < u->n; i++) {
        if (end - p < 2 || end - p - 2 < be16_get(p))
            return wrong(c, "leaf does not fit its unit");
        struct str leaf = str_of((const char *)p + 2, be16_get(p));
        c->at_byte += i == 0 ? (uint64_t)(u->leaves - u->p) : 0;
        p += 2 + leaf.n;
        json_error_t why;
        json_t *o = json_loadb(leaf.p, leaf.n, JSON_REJECT_DUPLICATES, &why);
        struct sha256 hash, named;
        struct entry e = {0};
        bool ok = o != NULL && json_is_object(o) && canonical(o, leaf) &&
                  json_integer_value(json_object_get(o, "v")) == 1;
        if (!ok) {
            json_decref(o);
            return wrong(c, "leaf is not canonical");
        }
        e = (struct entry){member(o, "account"),
                           member(o, "to"),
                           member(o, "asset"),
                           member(o, "id"),
                           member(o, "kind"),
                           member(o, "ref_id"),
                           0,
                           (uint64_t)json_integer_value(json_object_get(o, "ts")),
                           0,
                           (uint64_t)json_integer_value(json_object_get(o, "hold_until"))};
        const char *nonce = member(o, "nonce");
        ok = amount_of(o, "amount", &e.amount) && e.amount != 0 &&
             sha256_parse(str_from_c(member(o, "unit")), &named) == ERR_OK &&
             (nonce[0] == 0 || str_parse_u64(str_from_c(nonce), &e.nonce) == ERR_OK) &&
             strlen(e.account) <= 128 && strlen(e.to) <= 128 && strlen(e.asset) <= 32;
        if (!ok) {
            json_decref(o);
            return wrong(c, "leaf has a malformed member");
        }
        if (i == 0)
            *out_named = named;
        ok = sha256_eq(&named, out_named) && add_fp(fp_list, o);
        uint64_t seq = c->n + 1;
        struct item *id =
            ok && find(&c->ids, e.id, strlen(e.id)) == NULL ? need(&c->ids, e.id, strlen(e.id)) : NULL;
        if (id == NULL) {
            json_decref(o);
            return wrong(c, ok ? "id is in the log twice" : "leaves name different units");
        }
        id->seq = seq;
        id->kind = strcmp(e.kind, "transfer") == 0 ? 't' : 'o';
        id->amount = e.amount;
        snprintf(id->account, sizeof id->account, "%s", e.account);
        snprintf(id->to, sizeof id->to, "%s", e.to);
        snprintf(id->asset, sizeof id->asset, "%s", e.asset);
        struct sha256_ctx h;
        sha256_init(&h);
        sha256_update(&h, "\0", 1);
        sha256_update(&h, leaf.p, leaf.n);
        sha256_final(&h, &hash);
        ok = apply(c, &e, seq, c->n + u->n - i, ms);
        json_decref(o);
        if (!ok)
            return false;
        struct sha256 stored;
        if (c->tree0 != NULL && fread(stored.b, 1, 32, c->tree0) == 32 && !sha256_eq(&stored, &hash)) {
            snprintf(c->at_file, sizeof c->at_file, "tree/00");
            c->at_byte = c->n * 32;
            return wrong(c, "stored leaf hash differs from the journal");
        }
        tree_add(c, hash);
        if (c->fn != NULL)
            c->fn(c->ctx, seq, leaf, &hash, str_of(u->idem, u->idem_n), str_of(u->kid, u->kid_n), ms);
    }
    return p == end || wrong(c, "unit is longer than its leaves");
}

static bool unit_check(struct check *c, const uint8_t *p, size_t left, uint64_t ms, uint32_t *out_len)
{
    struct unit u = {.p = p};
    if (left < 52)
        return wrong(c, "unit record is cut");
    u.len = le32_get(p);
    u.n = le16_get(p + 4);
    u.idem_n = p[6];
    u.kid_n = p[7];
    u.meta_n = le16_get(p + 8);
    u.flags = le16_get(p + 10);
    if (u.len > left || u.n == 0 || u.n > 1024 || u.idem_n == 0 || u.idem_n > 128 || u.kid_n > 64 ||
        u.flags > 1 || 52 + u.idem_n + u.kid_n + u.meta_n > u.len)
        return wrong(c, "unit record is malformed");
    u.idem = (const char *)p + 52;
    u.kid = u.idem + u.idem_n;
    u.meta = u.kid + u.kid_n;
    u.leaves = (const uint8_t *)u.meta + u.meta_n;
    if (find(&c->units, u.idem, u.idem_n) != NULL)
        return wrong(c, "unit is in the log twice");
    need(&c->units, u.idem, u.idem_n);
    json_t *list = json_array(), *fp_obj = json_object(), *env = json_object();
    struct sha256 named, fp, unit;
    json_object_set(fp_obj, "entries", list);
    json_object_set_new(fp_obj, "idem_id", json_stringn(u.idem, u.idem_n));
    if (!unit_entries(c, &u, ms, list, &named)) {
        json_decref(list);
        json_decref(fp_obj);
        json_decref(env);
        return false;
    }
    json_decref(list);
    if (!dump_hash(fp_obj, &fp) || memcmp(fp.b, p + 20, 32) != 0) {
        json_decref(env);
        return wrong(c, "fingerprint differs");
    }
    char text[80], cap[17];
    sha256_format(&fp, text);
    hex_encode(p + 12, 8, cap);
    if (u.kid_n != 0) {
        json_object_set_new(env, "cap", json_string(cap));
        json_object_set_new(env, "kid", json_stringn(u.kid, u.kid_n));
    }
    json_object_set_new(env, "fp", json_string(text));
    json_object_set_new(env, "idem_id", json_stringn(u.idem, u.idem_n));
    if (u.meta_n != 0)
        json_object_set_new(env, "meta", json_stringn(u.meta, u.meta_n));
    json_object_set_new(env, "n", json_integer(u.n));
    if (!dump_hash(env, &unit) || !sha256_eq(&unit, &named))
        return wrong(c, "envelope differs from the leaves' unit");
    *out_len = u.len;
    return true;
}

/* ---- frames and segments ---- */

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static bool frame_valid(const struct check *c, const uint8_t *p, size_t left, uint32_t *out_len)
{
    if (left < 144 || memcmp(p, "RLF1", 4) != 0 || le32_get(p + 120) != crc32c(0, p, 120))
        return false;
    uint32_t len = le32_get(p + 4), payload = le32_get(p + 8);
    if (len % c->align != 0 || len > left || payload > len - 144 || memcmp(p + len - 4, "RLFE", 4) != 0 ||
        le32_get(p + len - 8) != crc32c(0, p, len - 8) || memcmp(p + len - 16, p + 16, 8) != 0)
        return false;
    *out_len = len;
    return true;
}

static bool frame_check(struct check *c, const uint8_t *p, uint64_t offset)
{
    uint64_t group = le64_get(p + 16), first = le64_get(p + 24), ms = le64_get(p + 40), start = c->n,
             units = 0;
    uint32_t payload = le32_get(p + 8);
    if (group != c->group + 1 || first != c->n + 1)
        return wrong(c, "group or seq does not follow");
    if (memcmp(p + 56, c->root.b, 32) != 0)
        return wrong(c, "prev_root is not the root before");
    if (ms < c->last_ms)
        return wrong(c, "ledger time goes back");
    for (uint32_t at = 0; at < payload; units++) {
        uint32_t len = 0;
        c->at_byte = offset + 128 + at;
        if (!unit_check(c, p + 128 + at, payload - at, ms, &len))
            return false;
        at += len;
    }
    c->at_byte = offset;
    if (c->n - start != le32_get(p + 32) || units != le32_get(p + 36))
        return wrong(c, "counts differ");
    tree_root(c, &c->root);
    if (memcmp(p + 88, c->root.b, 32) != 0)
        return wrong(c, "new_root differs from the recomputed one");
    uint8_t g[64];
    if (c->groups != NULL && fread(g, 1, 64, c->groups) == 64 &&
        (le64_get(g) != c->n || le64_get(g + 8) != group || memcmp(g + 32, c->root.b, 32) != 0)) {
        snprintf(c->at_file, sizeof c->at_file, "groups");
        c->at_byte = (group - 1) * 64;
        return wrong(c, "group table differs from the journal");
    }
    c->group = group;
    c->last_ms = ms;
    return true;
}

static uint8_t *slurp(const char *path, size_t *out_n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    size_t n = (size_t)st.st_size, at = 0;
    uint8_t *p = malloc(n + 1);
    while (p != NULL && at < n) {
        ssize_t k = read(fd, p + at, n - at);
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    close(fd);
    *out_n = at;
    return p;
}

static uint8_t *unpack(struct check *c, uint8_t *z, size_t n, size_t *out_n)
{
    uint32_t chunks = n < 60 ? 0 : le32_get(z + 16);
    size_t table = 56 + (size_t)chunks * 4, at = table + 4, size = (size_t)chunks * 65536;
    uint8_t *image = NULL;
    struct sha256 hash;
    if (n >= 60 && memcmp(z, "RONLSGZ1", 8) == 0 && n >= at && size == c->segment_bytes &&
        le32_get(z + table) == crc32c(0, z, table))
        image = calloc(1, size + 1);
    for (uint32_t i = 0; image != NULL && i < chunks; i++) {
        uint32_t len = le32_get(z + 56 + (size_t)i * 4);
        if (len != 0 &&
            (at + len > n || ZSTD_decompress(image + (size_t)i * 65536, 65536, z + at, len) != 65536)) {
            free(image);
            image = NULL;
        }
        at += len;
    }
    if (image != NULL) {
        sha256_of(image, size, &hash);
        if (memcmp(hash.b, z + 24, 32) != 0) {
            free(image);
            image = NULL;
        }
    }
    free(z);
    *out_n = size;
    return image;
}

static bool later_frame(const struct check *c, const uint8_t *p, size_t from, size_t n)
{
    uint32_t len;
    for (size_t at = from; at + 144 <= n; at += c->align)
        if (frame_valid(c, p + at, n - at, &len) && le64_get(p + at + 16) > c->group)
            return true;
    return false;
}

/* One segment; *out_end: nothing more follows. */
static bool segment_check(struct check *c, const uint8_t *p, size_t n, bool last, bool *out_end)
{
    *out_end = false;
    if (n < 4096 || all_zero(p, 4096)) {
        *out_end = last;
        return last || wrong(c, "segment without header between others");
    }
    if (memcmp(p, "RONLSEG1", 8) != 0 || le32_get(p + 104) != crc32c(0, p, 104)) {
        if (last && !later_frame(c, p, 4096, n)) {
            *out_end = true;
            return true;
        }
        return wrong(c, "segment header");
    }
    if (memcmp(p + 32, c->ledger_id, 16) != 0 || le64_get(p + 16) != c->n + 1 ||
        memcmp(p + 64, c->root.b, 32) != 0)
        return wrong(c, "segment does not continue the log");
    size_t at = 4096;
    uint32_t len;
    while (at + 144 <= n && frame_valid(c, p + at, n - at, &len)) {
        c->at_byte = at;
        if (!frame_check(c, p + at, at))
            return false;
        at += len;
    }
    c->at_byte = at;
    if (at < n && !all_zero(p + at, n - at)) {
        if (!last || later_frame(c, p, at, n))
            return wrong(c, "frame is damaged");
        /* A torn tail shows that sectors are missing; anything else is damage. */
        uint32_t frame_len = le32_get(p + at + 4), payload = le32_get(p + at + 8);
        bool header_ok = memcmp(p + at, "RLF1", 4) == 0 &&
                         le32_get(p + at + 120) == crc32c(0, p + at, 120) && frame_len <= n - at &&
                         payload <= frame_len - 144;
        bool missing = !header_ok ? all_zero(p + at, 512) || !later_frame(c, p, at, n)
                                  : all_zero(p + at + frame_len - 16, 16);
        for (size_t s = 0; header_ok && !missing && s + 512 <= 128 + (size_t)payload; s += 512)
            missing = all_zero(p + at + s, 512);
        if (header_ok && !missing)
            return wrong(c, "frame is damaged");
        c->r->torn_bytes = n - at;
    }
    return true;
}

/* ---- state digest: records by type and key ---- */

struct digest_row {
    uint8_t *p;
    size_t n, key;
};

static int by_key(const void *a, const void *b)
{
    const struct digest_row *x = a, *y = b;
    if (x->p[0] != y->p[0])
        return x->p[0] < y->p[0] ? -1 : 1;
    size_t n = x->key < y->key ? x->key : y->key;
    int k = memcmp(x->p + 3, y->p + 3, n);
    return k != 0 ? k : (x->key > y->key) - (x->key < y->key);
}

static void put_row(struct digest_row **v, size_t *n, char type, const char *key, size_t key_n,
                    const uint8_t *value, size_t value_n)
{
    if ((*n & (*n - 1)) == 0 || *n == 0) {
        *v = realloc(*v, (*n == 0 ? 1 : *n * 2) * sizeof **v);
        if (*v == NULL)
            abort();
    }
    struct digest_row r = {malloc(5 + key_n + value_n), 5 + key_n + value_n, key_n};
    if (r.p == NULL)
        abort();
    r.p[0] = (uint8_t)type;
    le16_put(r.p + 1, (uint16_t)key_n);
    memcpy(r.p + 3, key, key_n);
    le16_put(r.p + 3 + key_n, (uint16_t)value_n);
    memcpy(r.p + 5 + key_n, value, value_n);
    (*v)[(*n)++] = r;
}

static void put128(uint8_t *p, u128 v)
{
    le64_put(p, (uint64_t)v);
    le64_put(p + 8, (uint64_t)(v >> 64));
}

static bool finish(struct check *c)
{
    struct digest_row *v = NULL;
    size_t n = 0;
    uint8_t value[400];
    struct table sums = {{0}, 0};
    for (size_t b = 0; b < BUCKETS; b++) {
        for (struct item *i = c->rows.v[b]; i != NULL; i = i->next) {
            put128(value, i->a);
            put128(value + 16, i->b);
            le64_put(value + 32, i->seq);
            put_row(&v, &n, 'A', i->key, i->key_n, value, 40);
            struct item *s = need(&sums, i->asset, strlen(i->asset));
            s->a += i->a + i->b;
            c->r->accounts++;
        }
        for (struct item *i = c->lanes.v[b]; i != NULL; i = i->next) {
            le64_put(value, (uint64_t)i->a);
            if (i->a != 0)
                put_row(&v, &n, 'N', i->key, i->key_n, value, 8);
        }
        for (struct item *i = c->supply.v[b]; i != NULL; i = i->next) {
            put128(value, i->a);
            put128(value + 16, i->b);
            put_row(&v, &n, 'S', i->key, i->key_n, value, 32);
        }
        for (struct item *i = c->holds.v[b]; i != NULL; i = i->next) {
            if (i->a == 0)
                continue;
            size_t an = strlen(i->account), xn = strlen(i->asset);
            le64_put(value, i->seq);
            put128(value + 8, i->a);
            le64_put(value + 24, (uint64_t)i->b);
            value[32] = (uint8_t)an;
            memcpy(value + 33, i->account, an);
            memcpy(value + 33 + an, i->asset, xn);
            put_row(&v, &n, 'H', i->key, i->key_n, value, 33 + an + xn);
            c->r->open_holds++;
        }
        for (struct item *i = c->reversals.v[b]; i != NULL; i = i->next) {
            put128(value, i->a);
            put_row(&v, &n, 'R', i->key, i->key_n, value, 16);
        }
    }
    bool conserved = true;
    for (size_t b = 0; b < BUCKETS; b++)
        for (struct item *i = c->supply.v[b]; i != NULL; i = i->next) {
            struct item *s = find(&sums, i->key, i->key_n);
            conserved = conserved && (s == NULL ? 0 : s->a) == i->a - i->b;
        }
    table_free(&sums);
    struct sha256_ctx h;
    sha256_init(&h);
    if (n > 1)
        qsort(v, n, sizeof *v, by_key);
    for (size_t i = 0; i < n; i++) {
        sha256_update(&h, v[i].p, v[i].n);
        free(v[i].p);
    }
    sha256_final(&h, &c->r->state_digest);
    free(v);
    c->r->seq = c->n;
    c->r->groups = c->group;
    c->r->root = c->root;
    return conserved || wrong(c, "balances do not sum up to the supply");
}

/* ---- note ---- */

static bool key_parts(struct str vkey, struct str *origin, uint8_t id[4], uint8_t key[32])
{
    struct str id_text, rest = str_cut(vkey, '+', origin);
    uint8_t tagged[33];
    size_t n;
    rest = str_cut(rest, '+', &id_text);
    if (rest.p == NULL || hex_decode(id_text, id, 4) != ERR_OK ||
        base64_decode(rest, tagged, 33, &n) != ERR_OK || n != 33 || tagged[0] != 1)
        return false;
    memcpy(key, tagged + 1, 32);
    return true;
}

static enum err note_open(struct str note, struct str vkey, uint64_t *size, struct sha256 *root)
{
    struct str origin, line, body_origin, size_text, root_text;
    uint8_t id[4], key[32], sig[68];
    size_t n;
    const char *blank = note.n < 3 ? NULL : memmem(note.p, note.n, "\n\n", 2);
    if (!key_parts(vkey, &origin, id, key) || blank == NULL)
        return ERR_SYNTAX;
    struct str body = str_of(note.p, (size_t)(blank + 1 - note.p)),
               rest = str_cut(body, '\n', &body_origin);
    rest = str_cut(rest, '\n', &size_text);
    str_cut(rest, '\n', &root_text);
    if (str_parse_u64(size_text, size) != ERR_OK || base64_decode(root_text, root->b, 32, &n) != ERR_OK ||
        n != 32 || !str_eq(body_origin, origin))
        return ERR_SYNTAX;
    struct str lines = str_of(blank + 2, note.n - body.n - 1);
    struct ed25519_key *k = ed25519_key_from_public(key);
    enum err err = ERR_UNAUTHENTICATED;
    while (k != NULL && err != ERR_OK && lines.n > 0) {
        lines = str_cut(lines, '\n', &line);
        struct str name,
            text = line.n > 4 ? str_cut(str_of(line.p + 4, line.n - 4), ' ', &name) : (struct str){NULL, 0};
        if (text.p != NULL && str_eq(name, origin) && base64_decode(text, sig, 68, &n) == ERR_OK &&
            n == 68 && memcmp(sig, id, 4) == 0)
            err = ed25519_verify(k, bytes_of_str(body), sig + 4);
    }
    ed25519_key_destroy(k);
    return err;
}

/* ---- all of it ---- */

static FILE *open_in(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fopen(path, "rb");
}

static uint8_t *segment_read(struct check *c, uint32_t no, size_t *out_n)
{
    char path[1024];
    snprintf(c->at_file, sizeof c->at_file, "journal/%08u.seg", no);
    snprintf(path, sizeof path, "%s/%s", c->dir, c->at_file);
    uint8_t *p = slurp(path, out_n);
    if (p != NULL)
        return p;
    snprintf(c->at_file, sizeof c->at_file, "journal/%08u.segz", no);
    snprintf(path, sizeof path, "%s/%s", c->dir, c->at_file);
    p = slurp(path, out_n);
    if (p == NULL)
        return NULL;
    p = unpack(c, p, *out_n, out_n);
    if (p == NULL)
        wrong(c, "packed segment is damaged");
    return p;
}

static bool exists(const struct check *c, uint32_t no)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/journal/%08u.seg", c->dir, no);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, sizeof path, "%s/journal/%08u.segz", c->dir, no);
    return access(path, F_OK) == 0;
}

int ledger_verify(const char *dir, struct str note, struct str vkey, ledger_verify_entry_fn *fn, void *ctx,
                  struct ledger_verify_report *out)
{
    struct check *c = calloc(1, sizeof *c);
    size_t n = 0;
    char path[1024];
    memset(out, 0, sizeof *out);
    if (c == NULL)
        return 2;
    *c = (struct check){.r = out, .dir = dir, .fn = fn, .ctx = ctx};
    snprintf(path, sizeof path, "%s/SUPERBLOCK", dir);
    uint8_t *sb = slurp(path, &n);
    int code = sb == NULL ? 2 : 0;
    snprintf(c->at_file, sizeof c->at_file, "SUPERBLOCK");
    if (sb != NULL &&
        (n != 4096 || memcmp(sb, "RONLEDG1", 8) != 0 || le32_get(sb + 4092) != crc32c(0, sb, 4092)))
        code = (wrong(c, "superblock"), 1);
    if (code == 0) {
        c->align = le32_get(sb + 12);
        c->segment_bytes = le32_get(sb + 16);
        memcpy(c->ledger_id, sb + 28, 16);
        c->tree0 = open_in(dir, "tree/00");
        c->groups = open_in(dir, "groups");
        sha256_of("", 0, &c->root);
    }
    free(sb);
    uint64_t note_size = 0;
    struct sha256 note_root = {{0}};
    bool have_note = note.n != 0;
    if (code == 0 && have_note && note_open(note, vkey, &note_size, &note_root) != ERR_OK) {
        snprintf(c->at_file, sizeof c->at_file, "checkpoint");
        code = (wrong(c, "the note is not signed by that key"), 1);
    }
    bool end = false;
    for (uint32_t no = 1; code == 0 && !end && exists(c, no); no++) {
        uint8_t *p = segment_read(c, no, &n);
        if (p == NULL) {
            code = c->failed ? 1 : 2;
            break;
        }
        if (!segment_check(c, p, n, !exists(c, no + 1), &end))
            code = 1;
        free(p);
    }
    if (code == 0 && !finish(c))
        code = 1;
    if (code == 0 && have_note &&
        (note_size > c->n || (note_size == c->n && !sha256_eq(&note_root, &c->root)))) {
        snprintf(c->at_file, sizeof c->at_file, "checkpoint");
        code = (wrong(c, "the signed head is not in this journal"), 1);
    }
    if (c->tree0 != NULL)
        fclose(c->tree0);
    if (c->groups != NULL)
        fclose(c->groups);
    table_free(&c->rows);
    table_free(&c->lanes);
    table_free(&c->supply);
    table_free(&c->holds);
    table_free(&c->units);
    table_free(&c->ids);
    table_free(&c->reversals);
    free(c);
    return code;
}

enum err ledger_verify_proof(struct str proof, struct str vkey, uint64_t *out_index, uint64_t *out_size)
{
    struct str line, rest = str_cut(proof, '\n', &line), extra = {NULL, 0};
    struct sha256 hash, root, path[96];
    size_t n = 0, got;
    uint8_t leaf[2048];
    uint64_t index = 0, size;
    if (!str_eq(line, STR("c2sp.org/tlog-proof@v1")))
        return ERR_SYNTAX;
    rest = str_cut(rest, '\n', &line);
    if (str_starts(line, STR("extra "))) {
        extra = str_of(line.p + 6, line.n - 6);
        rest = str_cut(rest, '\n', &line);
    }
    if (!str_starts(line, STR("index ")) || str_parse_u64(str_of(line.p + 6, line.n - 6), &index) != ERR_OK)
        return ERR_SYNTAX;
    for (rest = str_cut(rest, '\n', &line); line.n > 0 && rest.p != NULL; rest = str_cut(rest, '\n', &line))
        if (n == 96 || base64_decode(line, path[n++].b, 32, &got) != ERR_OK || got != 32)
            return ERR_SYNTAX;
    enum err err = rest.p == NULL ? ERR_SYNTAX : note_open(rest, vkey, &size, &root);
    if (err != ERR_OK)
        return err;
    if (extra.p == NULL || base64_decode(extra, leaf + 1, sizeof leaf - 1, &got) != ERR_OK || index >= size)
        return ERR_SYNTAX;
    leaf[0] = 0;
    sha256_of(leaf, got + 1, &hash);
    uint64_t fn = index, sn = size - 1;
    for (size_t i = 0; i < n; i++, fn >>= 1, sn >>= 1) {
        if (sn == 0)
            return ERR_CORRUPT;
        if ((fn & 1) || fn == sn) {
            node(&path[i], &hash, &hash);
            for (; !(fn & 1) && fn != 0; fn >>= 1)
                sn >>= 1;
        } else {
            node(&hash, &path[i], &hash);
        }
    }
    if (sn != 0 || !sha256_eq(&hash, &root))
        return ERR_CORRUPT;
    *out_index = index;
    *out_size = size;
    return ERR_OK;
}
