#include "services/ledger/core/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/core/merkle.h"

size_t ledger_record_bound(const struct core_unit *u, const struct core_caller *who)
{
    /* Per leaf: fixed text and numbers, and texts of which ids may double by escaping. */
    size_t n = RECORD_HEADER + u->idem_id.n + who->kid.n + u->meta.n + CANON_TUPLE_ID;
    for (uint32_t i = 0; i < u->n; i++) {
        const struct core_entry *e = &u->entries[i];
        n += 2 + 360 + e->account.n + e->to.n + e->asset.n + 2 * (e->id.n + e->ref_id.n);
    }
    return n;
}

static bool keys_repeat(const struct core_prepared_entry *e, uint32_t n)
{
    if (n < 2)
        return false;
    if (n <= 16) {
        for (uint32_t i = 1; i < n; i++)
            for (uint32_t j = 0; j < i; j++)
                if (core_key_eq(e[i].id_key, e[j].id_key))
                    return true;
        return false;
    }
    /* Keys are uniform: an open-addressing set of indices, twice as large as needed. */
    uint16_t set[4 * CORE_UNIT_ENTRIES_MAX];
    uint32_t mask = 4 * CORE_UNIT_ENTRIES_MAX - 1;
    memset(set, 0, sizeof set);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)e[i].id_key.w[0] & mask;
        for (; set[at] != 0; at = (at + 1) & mask)
            if (core_key_eq(e[set[at] - 1].id_key, e[i].id_key))
                return true;
        set[at] = (uint16_t)(i + 1);
    }
    return false;
}

static uint8_t *put_bytes(uint8_t *p, const char *text, size_t n)
{
    if (n != 0)
        memcpy(p, text, n);
    return p + n;
}

static void unit_hash(const struct core_unit *u, const struct core_caller *who, const struct sha256 *fp,
                      struct sha256 *out)
{
    char envelope[CANON_ENVELOPE_MAX];
    size_t n = ledger_canon_envelope(u, who, fp, envelope);
    sha256_of(envelope, n, out);
}

/*
 * Building goes in waves over a few units: all fingerprints, then all envelopes (which hold them), then all leaves (which hold the
 * envelope's hash) and keys. Within a wave no hash waits for another, so they are computed side by side (sha256_of_many).
 */
enum { WAVE = 8 };

struct wave {
    struct sha256_job jobs[WAVE];
    uint32_t n;
};

static void wave_add(struct wave *w, const void *p, size_t n, struct sha256 *out)
{
    w->jobs[w->n++] = (struct sha256_job){bytes_of(p, n), out};
}

static void wave_run(struct wave *w)
{
    sha256_of_many(w->jobs, w->n);
    w->n = 0;
}

static void build_fingerprints(const struct core_build *v, uint32_t n)
{
    struct wave w = {.n = 0};
    char text[WAVE][CANON_FP_TEXT_MAX];
    for (uint32_t i = 0; i < n; i++)
        if (v[i].u->n == 1)
            wave_add(&w, text[i], ledger_canon_fp_text(v[i].u, text[i]), &v[i].out->fp);
        else
            ledger_canon_fp(v[i].u, &v[i].out->fp); /* of any length: as a stream */
    wave_run(&w);
}

static void build_envelopes(const struct core_build *v, uint32_t n, const struct core_caller *who)
{
    struct wave w = {.n = 0};
    char text[WAVE][CANON_ENVELOPE_MAX];
    for (uint32_t i = 0; i < n; i++)
        wave_add(&w, text[i], ledger_canon_envelope(v[i].u, who, &v[i].out->fp, text[i]), &v[i].out->unit);
    wave_run(&w);
}

/* Leaves wait here with 0x00, the leaf's domain separator, where the low byte of the length comes: one pass hashes both. */
struct leaves {
    struct wave w;
    uint8_t *at[WAVE];
};

static void leaves_run(struct leaves *l)
{
    uint32_t n = l->w.n;
    wave_run(&l->w);
    for (uint32_t i = 0; i < n; i++)
        be16_put(l->at[i], (uint16_t)(l->w.jobs[i].message.n - 1));
}

static uint8_t *leaf_add(struct leaves *l, const struct core_entry *e, const struct core_prepared *out,
                         struct core_prepared_entry *pe, uint8_t *p)
{
    size_t n = ledger_canon_leaf(e, &out->unit, (char *)p + 2);
    p[1] = 0;
    pe->leaf_at = (uint32_t)(p + 2 - out->record);
    pe->leaf_len = (uint16_t)n;
    l->at[l->w.n] = p;
    wave_add(&l->w, p + 1, 1 + n, &pe->leaf_hash);
    if (l->w.n == WAVE)
        leaves_run(l);
    return p + 2 + n;
}

struct keys {
    struct wave w;
    uint8_t text[WAVE][CANON_KEY_TEXT];
    struct sha256 hash[WAVE];
    struct core_key *to[WAVE];
};

static void keys_run(struct keys *k)
{
    uint32_t n = k->w.n;
    wave_run(&k->w);
    for (uint32_t i = 0; i < n; i++)
        *k->to[i] = ledger_canon_key_of(&k->hash[i]);
}

static void key_add(struct keys *k, size_t (*text_of)(struct str, uint8_t *), struct str id,
                    struct core_key *out)
{
    uint32_t i = k->w.n;
    k->to[i] = out;
    wave_add(&k->w, k->text[i], text_of(id, k->text[i]), &k->hash[i]);
    if (k->w.n == WAVE)
        keys_run(k);
}

static void keys_add_entry(struct keys *k, const struct core_entry *e, struct core_prepared_entry *pe)
{
    key_add(k, ledger_canon_id_text, e->id, &pe->id_key);
    if (e->ref_id.n != 0)
        key_add(k, ledger_canon_id_text, e->ref_id, &pe->ref_key);
    else
        pe->ref_key = (struct core_key){{0, 0}};
}

static void build_record(const struct core_build *b, const struct core_caller *who, bool own,
                         struct leaves *leaves, struct keys *keys)
{
    const struct core_unit *u = b->u;
    struct core_prepared *out = b->out;
    uint8_t *r = out->record;
    le16_put(r + 4, (uint16_t)u->n);
    r[6] = (uint8_t)u->idem_id.n;
    r[7] = (uint8_t)who->kid.n;
    le16_put(r + 8, (uint16_t)u->meta.n);
    le16_put(r + 10, own ? RECORD_OWN : 0);
    memcpy(r + 12, who->cap, CANON_CAP);
    memcpy(r + 20, out->fp.b, 32);
    uint8_t *p = put_bytes(r + RECORD_HEADER, u->idem_id.p, u->idem_id.n);
    p = put_bytes(p, who->kid.p, who->kid.n);
    p = put_bytes(p, u->meta.p, u->meta.n);
    key_add(keys, ledger_canon_idem_text, u->idem_id, &out->idem_key);
    for (uint32_t i = 0; i < u->n; i++) {
        p = leaf_add(leaves, &u->entries[i], out, &out->entries[i], p);
        keys_add_entry(keys, &u->entries[i], &out->entries[i]);
    }
    out->len = (uint32_t)(p - r);
    le32_put(r, out->len);
    out->hashed = false;
}

void ledger_record_build_many(const struct core_build *v, uint32_t n, const struct core_caller *who,
                              bool own, uint8_t *record)
{
    CHECK(who->kid.n <= CORE_KID_MAX);
    for (uint32_t done = 0; done < n;) {
        uint32_t some = n - done < WAVE ? n - done : WAVE;
        struct leaves leaves = {.w.n = 0};
        struct keys keys = {.w.n = 0};
        for (uint32_t i = done; i < done + some; i++) {
            const struct core_unit *u = v[i].u;
            CHECK(u->idem_id.n >= 1 && u->idem_id.n <= CORE_ID_MAX);
            CHECK(u->n >= 1 && u->n <= CORE_UNIT_ENTRIES_MAX && u->meta.n <= CORE_META_TEXT_MAX);
        }
        build_fingerprints(v + done, some);
        build_envelopes(v + done, some, who);
        for (uint32_t i = done; i < done + some; i++) {
            v[i].out->record = record;
            build_record(&v[i], who, own, &leaves, &keys);
            record += v[i].out->len;
        }
        leaves_run(&leaves);
        keys_run(&keys);
        for (uint32_t i = done; i < done + some; i++)
            v[i].out->id_twice = keys_repeat(v[i].out->entries, v[i].u->n);
        done += some;
    }
}

void ledger_record_build(const struct core_unit *u, const struct core_caller *who, bool own,
                         struct core_prepared *out)
{
    ledger_record_build_many(&(struct core_build){u, out}, 1, who, own, out->record);
}

bool ledger_record_next_leaf(struct bytes *bundle, struct str *out_leaf)
{
    if (bundle->n < 2)
        return false;
    size_t n = be16_get(bundle->p);
    if (n > bundle->n - 2)
        return false;
    *out_leaf = (struct str){(const char *)bundle->p + 2, n};
    bundle->p += 2 + n;
    bundle->n -= 2 + n;
    return true;
}

enum err ledger_record_parse(struct bytes b, struct core_record *out_record)
{
    struct core_record r;
    if (b.n < RECORD_HEADER)
        return ERR_CORRUPT;
    r.len = le32_get(b.p);
    r.n = le16_get(b.p + 4);
    size_t idem = b.p[6], kid = b.p[7], meta = le16_get(b.p + 8);
    r.flags = le16_get(b.p + 10);
    if (r.len > b.n || r.n == 0 || r.n > CORE_UNIT_ENTRIES_MAX || idem == 0 || idem > CORE_ID_MAX ||
        kid > CORE_KID_MAX || meta > CORE_META_TEXT_MAX || (r.flags & ~RECORD_OWN) != 0 ||
        r.len < RECORD_HEADER + idem + kid + meta)
        return ERR_CORRUPT;
    memcpy(r.cap, b.p + 12, CANON_CAP);
    memcpy(r.fp.b, b.p + 20, 32);
    const char *p = (const char *)b.p + RECORD_HEADER;
    r.idem_id = (struct str){p, idem};
    r.kid = (struct str){p + idem, kid};
    r.meta = (struct str){p + idem + kid, meta};
    r.bundle =
        (struct bytes){(const uint8_t *)p + idem + kid + meta, r.len - RECORD_HEADER - idem - kid - meta};
    struct bytes rest = r.bundle;
    struct str leaf;
    for (unsigned i = 0; i < r.n; i++)
        if (!ledger_record_next_leaf(&rest, &leaf) || leaf.n == 0 || leaf.n > CORE_LEAF_MAX)
            return ERR_CORRUPT;
    if (rest.n != 0)
        return ERR_CORRUPT;
    *out_record = r;
    return ERR_OK;
}

static void leaf_and_fingerprint(struct bytes record, const struct core_unit *u,
                                 struct core_prepared_entry *pe, struct sha256 *out_fp)
{
    struct wave w = {.n = 0};
    uint8_t leaf[1 + CORE_LEAF_MAX];
    char text[CANON_FP_TEXT_MAX];
    leaf[0] = 0;
    memcpy(leaf + 1, record.p + pe->leaf_at, pe->leaf_len);
    wave_add(&w, leaf, (size_t)1 + pe->leaf_len, &pe->leaf_hash);
    wave_add(&w, text, ledger_canon_fp_text(u, text), out_fp);
    wave_run(&w);
}

enum err ledger_record_decode(struct bytes b, struct core_entry *entries, char *scratch,
                              struct core_unit *out_unit, struct core_caller *out_who,
                              struct core_prepared *out)
{
    struct core_record r;
    enum err err = ledger_record_parse(b, &r);
    if (err != ERR_OK)
        return err;
    struct core_unit u = {r.idem_id, r.meta, 0, entries, r.n};
    struct core_caller who = {r.kid, {0}};
    memcpy(who.cap, r.cap, CANON_CAP);
    struct bytes rest = r.bundle;
    struct sha256 unit = {{0}}, named;
    struct keys keys = {.w.n = 0};
    key_add(&keys, ledger_canon_idem_text, r.idem_id, &out->idem_key);
    for (uint32_t i = 0; i < r.n; i++) {
        struct str leaf;
        CHECK(ledger_record_next_leaf(&rest, &leaf));
        struct core_prepared_entry *pe = &out->entries[i];
        err = ledger_canon_leaf_parse(leaf, scratch + (size_t)i * CORE_LEAF_MAX, &entries[i], &named);
        if (err != ERR_OK)
            return err;
        if (i == 0)
            unit = named;
        else if (memcmp(unit.b, named.b, 32) != 0)
            return ERR_CORRUPT;
        pe->leaf_at = (uint32_t)((const uint8_t *)leaf.p - b.p);
        pe->leaf_len = (uint16_t)leaf.n;
        if (r.n > 1) /* a single one is hashed beside the fingerprint */
            ledger_merkle_leaf((struct bytes){(const uint8_t *)leaf.p, leaf.n}, &pe->leaf_hash);
        if (entries[i].id.n > CORE_ID_MAX || entries[i].ref_id.n > CORE_ID_MAX)
            return ERR_CORRUPT;
        keys_add_entry(&keys, &entries[i], pe);
    }
    keys_run(&keys);
    bool own = (r.flags & RECORD_OWN) != 0;
    if (own != (r.kid.n == 0) ||
        own != (entries[0].kind == CORE_EXPIRE)) /* the ledger brings only what expires, nameless */
        return ERR_CORRUPT;
    bool derived = r.idem_id.n == CANON_TUPLE_ID && r.idem_id.p[0] == '_' && r.idem_id.p[1] == 't';
    struct core_fault fault;
    if (derived &&
        !own) { /* named after its tuple: check the name, then judge it as it came, without one */
        char id[CANON_TUPLE_ID];
        ledger_canon_tuple_id(&u, id);
        if (memcmp(id, r.idem_id.p, CANON_TUPLE_ID) != 0)
            return ERR_CORRUPT;
        u.idem_id.n = 0;
    }
    if (ledger_unit_check(&u, own, &fault) != ERR_OK)
        return ERR_CORRUPT;
    u.idem_id = r.idem_id;
    struct sha256 fp;
    if (r.n == 1)
        leaf_and_fingerprint(b, &u, &out->entries[0], &fp);
    else
        ledger_canon_fp(&u, &fp);
    unit_hash(&u, &who, &fp, &named);
    if (memcmp(fp.b, r.fp.b, 32) != 0 || memcmp(named.b, unit.b, 32) != 0)
        return ERR_CORRUPT;
    out->fp = fp;
    out->unit = unit;
    out->id_twice = keys_repeat(out->entries, r.n);
    out->hashed = false;
    union { /* the record is only read through it */
        const uint8_t *c;
        uint8_t *m;
    } same = {b.p};
    out->record = same.m;
    out->len = r.len;
    *out_unit = u;
    *out_who = who;
    return ERR_OK;
}
