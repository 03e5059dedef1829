/*
 * Version 1 is a sequence of packets `LLLLkey value\n`, LLLL being four lower-case hex digits that count
 * the whole packet:
 *
 *     location L | identifier I | (cid C | (vid V | cl L)?)* | signature S(32 bytes)
 *
 * Version 2 is the byte 2, then fields `type varint, length varint, bytes` in sections that end with type
 * 0:
 *
 *     02 | (1 location)? (2 identifier) 0 | ((1 location)? (2 identifier) (4 vid)? 0)* | 0 | (6 signature)
 *
 * Valid is what has exactly this shape, nothing after it, and every part within the bounds of the header.
 * A caveat with a vid is a third-party caveat; it is counted and otherwise passed over.
 */
#include "auth/macaroon.h"

#include <macaroons.h>
#include <openssl/crypto.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"

/* The library asserts that parts are shorter than this. Ours are, by far. */
_Static_assert((int)AUTH_CAVEAT_MAX < (int)MACAROON_MAX_STRLEN, "guards the library's assertion");
_Static_assert((int)AUTH_RAW_MAX < (int)MACAROON_MAX_STRLEN, "guards the library's assertion");

struct reader {
    const uint8_t *p;
    size_t n, at;
};

/* ---- version 1 ---- */

struct packet {
    struct str key, value;
};

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static bool packet_next(struct reader *r, struct packet *out)
{
    size_t len = 0;
    if (r->n - r->at < 4)
        return false;
    const uint8_t *p = r->p + r->at;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return false;
        len = len * 16 + (size_t)d;
    }
    if (len < 6 || len > r->n - r->at || p[len - 1] != '\n')
        return false;
    const uint8_t *space = memchr(p + 4, ' ', len - 5);
    if (space == NULL)
        return false;
    out->key = (struct str){(const char *)p + 4, (size_t)(space - (p + 4))};
    out->value = (struct str){(const char *)space + 1, (size_t)(p + len - 1 - (space + 1))};
    r->at += len;
    return true;
}

static enum err add_caveat_view(struct auth_macaroon *m, struct str text)
{
    if (text.n == 0)
        return ERR_SYNTAX;
    if (text.n > AUTH_CAVEAT_MAX || m->ncaveats == AUTH_CAVEATS_MAX)
        return ERR_TOO_LARGE;
    m->caveats[m->ncaveats++] = text;
    return ERR_OK;
}

static enum err check_head(const struct auth_macaroon *m)
{
    if (m->kid.n == 0)
        return ERR_SYNTAX;
    if (m->kid.n > AUTH_KID_MAX || m->location.n > AUTH_LOCATION_MAX)
        return ERR_TOO_LARGE;
    return ERR_OK;
}

static bool packet_named(struct reader *r, const char *key, struct packet *out)
{
    return packet_next(r, out) && str_eq(out->key, str_from_c(key));
}

static enum err decode_v1(struct auth_macaroon *m)
{
    struct reader r = {m->raw, m->raw_n, 0};
    struct packet p;
    if (!packet_named(&r, "location", &p))
        return ERR_SYNTAX;
    m->location = p.value;
    if (!packet_named(&r, "identifier", &p))
        return ERR_SYNTAX;
    m->kid = p.value;
    enum err e = check_head(m);
    if (e != ERR_OK)
        return e;

    bool cid_open = false; /* a vid may follow */
    bool vid_open = false; /* a cl may follow */
    while (packet_next(&r, &p)) {
        if (str_eq(p.key, STR("cid"))) {
            e = add_caveat_view(m, p.value);
            if (e != ERR_OK)
                return e;
            cid_open = true;
            vid_open = false;
        } else if (str_eq(p.key, STR("vid")) && cid_open) {
            m->ncaveats--;
            m->nthird_party++;
            cid_open = false;
            vid_open = true;
        } else if (str_eq(p.key, STR("cl")) && vid_open) {
            vid_open = false;
        } else if (str_eq(p.key, STR("signature"))) {
            if (p.value.n != AUTH_SIG_BYTES || r.at != r.n)
                return ERR_SYNTAX;
            memcpy(m->sig, p.value.p, AUTH_SIG_BYTES);
            return ERR_OK;
        } else {
            return ERR_SYNTAX;
        }
    }
    return ERR_SYNTAX;
}

/* ---- version 2 ---- */

enum field { FIELD_EOS = 0, FIELD_LOCATION = 1, FIELD_ID = 2, FIELD_VID = 4, FIELD_SIGNATURE = 6 };

static bool varint_next(struct reader *r, size_t *out)
{
    size_t v = 0;
    /* Nothing in a token needs more than two groups of seven bits. */
    for (unsigned shift = 0; shift <= 14 && r->at < r->n; shift += 7) {
        uint8_t c = r->p[r->at++];
        v |= (size_t)(c & 0x7f) << shift;
        if ((c & 0x80) == 0) {
            *out = v;
            return c != 0 || shift == 0; /* one number, one spelling */
        }
    }
    return false;
}

static bool field_next(struct reader *r, size_t *out_type, struct str *out_value)
{
    size_t type, len = 0;
    if (!varint_next(r, &type))
        return false;
    if (type != FIELD_EOS && (!varint_next(r, &len) || len > r->n - r->at))
        return false;
    *out_type = type;
    *out_value = (struct str){(const char *)r->p + r->at, len};
    r->at += len;
    return true;
}

struct section {
    struct str location, id;
    bool has_id, has_vid;
};

/* One section up to and with its end mark; fields rise strictly, so each occurs once. An empty one has no
 * id. */
static bool section_next(struct reader *r, struct section *out)
{
    *out = (struct section){.location = STR("")};
    size_t last = 0;
    for (;;) {
        size_t type;
        struct str value;
        if (!field_next(r, &type, &value))
            return false;
        if (type == FIELD_EOS)
            return out->has_id || last == 0;
        if (type <= last)
            return false;
        last = type;
        if (type == FIELD_LOCATION) {
            out->location = value;
        } else if (type == FIELD_ID) {
            out->id = value;
            out->has_id = true;
        } else if (type == FIELD_VID) {
            out->has_vid = true;
        } else {
            return false;
        }
    }
}

static enum err decode_v2(struct auth_macaroon *m)
{
    struct reader r = {m->raw, m->raw_n, 1};
    struct section s;
    if (!section_next(&r, &s) || !s.has_id || s.has_vid)
        return ERR_SYNTAX;
    m->location = s.location;
    m->kid = s.id;
    enum err e = check_head(m);
    if (e != ERR_OK)
        return e;
    for (;;) {
        if (!section_next(&r, &s))
            return ERR_SYNTAX;
        if (!s.has_id)
            break;
        if (s.has_vid) {
            m->nthird_party++;
            continue;
        }
        e = add_caveat_view(m, s.id);
        if (e != ERR_OK)
            return e;
    }
    size_t type;
    struct str sig;
    if (!field_next(&r, &type, &sig) || type != FIELD_SIGNATURE || sig.n != AUTH_SIG_BYTES || r.at != r.n)
        return ERR_SYNTAX;
    memcpy(m->sig, sig.p, AUTH_SIG_BYTES);
    return ERR_OK;
}

/* ---- both ---- */

/* Either base64 alphabet, padding optional: the tools in use differ in exactly these two points. */
static enum err text_to_raw(struct str token, struct auth_macaroon *out)
{
    char url[AUTH_TOKEN_MAX];
    if (token.n > AUTH_TOKEN_MAX)
        return ERR_TOO_LARGE;
    size_t n = token.n;
    for (int i = 0; i < 2 && n > 0 && token.p[n - 1] == '='; i++)
        n--;
    if (n != token.n && token.n % 4 != 0)
        return ERR_SYNTAX;
    for (size_t i = 0; i < n; i++)
        url[i] = (char)(token.p[i] == '+' ? '-' : token.p[i] == '/' ? '_' : token.p[i]);
    enum err e = base64url_decode((struct str){url, n}, out->raw, sizeof out->raw, &out->raw_n);
    OPENSSL_cleanse(url, n);
    return e;
}

enum err auth_macaroon_decode(struct str token, struct auth_macaroon *out)
{
    out->version = 0;
    out->ncaveats = 0;
    out->nthird_party = 0;
    out->raw_n = 0;
    enum err e = text_to_raw(token, out);
    if (e != ERR_OK)
        return e == ERR_TOO_LARGE ? e : ERR_SYNTAX;
    if (out->raw_n == 0)
        return ERR_SYNTAX;
    out->version = out->raw[0] == 2 ? 2 : 1;
    return out->version == 2 ? decode_v2(out) : decode_v1(out);
}

static void put_packet(struct buf *b, const char *key, struct str value)
{
    char head[5];
    size_t len = 4 + strlen(key) + 1 + value.n + 1;
    CHECK(len <= 0xffff);
    for (int i = 3; i >= 0; i--, len >>= 4)
        head[i] = "0123456789abcdef"[len & 15];
    head[4] = 0;
    buf_puts(b, head);
    buf_puts(b, key);
    buf_putc(b, ' ');
    buf_put(b, value.p, value.n);
    buf_putc(b, '\n');
}

static void put_v1(const struct auth_macaroon *m, struct buf *b)
{
    put_packet(b, "location", m->location);
    put_packet(b, "identifier", m->kid);
    for (size_t i = 0; i < m->ncaveats; i++)
        put_packet(b, "cid", m->caveats[i]);
    put_packet(b, "signature", (struct str){(const char *)m->sig, AUTH_SIG_BYTES});
}

enum err auth_macaroon_encode(const struct auth_macaroon *m, struct buf *out)
{
    if (m->nthird_party > 0)
        return ERR_UNPROCESSABLE;
    /* Fixed storage: a buffer that grows would leave copies of the signature behind in freed memory. */
    uint8_t raw_bytes[AUTH_RAW_MAX];
    char text[AUTH_TOKEN_MAX + 1];
    struct buf raw;
    buf_init_fixed(&raw, raw_bytes, sizeof raw_bytes);
    put_v1(m, &raw);
    enum err e = raw.err;
    if (e == ERR_OK) {
        size_t n = base64url_encode(raw.p, raw.n, text);
        buf_put(out, text, n);
        OPENSSL_cleanse(text, n);
        e = out->err;
    }
    OPENSSL_cleanse(raw_bytes, sizeof raw_bytes);
    return e;
}

static enum err from_library(enum macaroon_returncode rc)
{
    return rc == MACAROON_OUT_OF_MEMORY ? ERR_NO_MEMORY : ERR_UNAUTHENTICATED;
}

/* The library's view of m, made from the canonical text. */
static enum err to_library(const struct auth_macaroon *m, struct macaroon **out)
{
    char storage[AUTH_TOKEN_MAX + 1];
    enum macaroon_returncode rc = MACAROON_INVALID;
    struct buf text;
    buf_init_fixed(&text, storage, sizeof storage);
    enum err e = auth_macaroon_encode(m, &text);
    if (e == ERR_OK) {
        buf_putc(&text, 0);
        e = text.err;
    }
    if (e == ERR_OK) {
        struct macaroon *lib = macaroon_deserialize(storage, &rc);
        if (lib == NULL)
            e = from_library(rc);
        else
            *out = lib;
    }
    OPENSSL_cleanse(storage, sizeof storage);
    return e;
}

struct walk {
    const struct auth_macaroon *m;
    size_t at;
};

/* The chain is what is verified here; whether a caveat holds is judged later, on every request. */
static int same_caveat(void *arg, const unsigned char *text, size_t n)
{
    struct walk *w = arg;
    if (w->at >= w->m->ncaveats)
        return -1;
    struct str want = w->m->caveats[w->at++];
    return str_eq(want, (struct str){(const char *)text, n}) ? 0 : -1;
}

enum err auth_macaroon_verify(const struct auth_macaroon *m, struct bytes key)
{
    if (m->nthird_party > 0)
        return ERR_UNAUTHENTICATED;
    enum macaroon_returncode rc = MACAROON_OUT_OF_MEMORY;
    struct macaroon *lib = NULL;
    struct macaroon_verifier *v = NULL;
    enum err e = to_library(m, &lib);
    if (e != ERR_OK)
        return e;
    struct walk w = {m, 0};
    v = macaroon_verifier_create();
    if (v == NULL || macaroon_verifier_satisfy_general(v, same_caveat, &w, &rc) != 0 ||
        macaroon_verify(v, lib, key.p, key.n, NULL, 0, &rc) != 0)
        e = from_library(rc);
    else if (w.at != m->ncaveats)
        e = ERR_UNAUTHENTICATED;
    if (v != NULL)
        macaroon_verifier_destroy(v);
    macaroon_destroy(lib);
    return e;
}

static void take_signature(const struct macaroon *lib, uint8_t out[AUTH_SIG_BYTES])
{
    const unsigned char *sig;
    size_t n;
    macaroon_signature(lib, &sig, &n);
    CHECK(n == AUTH_SIG_BYTES);
    memcpy(out, sig, AUTH_SIG_BYTES);
}

/* Copies text behind what raw holds already. */
static bool keep(struct auth_macaroon *m, struct str text, struct str *out)
{
    if (text.n > sizeof m->raw - m->raw_n)
        return false;
    uint8_t *p = m->raw + m->raw_n;
    if (text.n > 0)
        memcpy(p, text.p, text.n);
    m->raw_n += text.n;
    *out = (struct str){(const char *)p, text.n};
    return true;
}

enum err auth_macaroon_create(struct str location, struct bytes key, struct str kid,
                              struct auth_macaroon *out)
{
    if (kid.n == 0 || kid.n > AUTH_KID_MAX || location.n > AUTH_LOCATION_MAX || key.n == 0 ||
        key.n > AUTH_KID_MAX)
        return ERR_RANGE;
    enum macaroon_returncode rc = MACAROON_INVALID;
    struct macaroon *lib = macaroon_create((const unsigned char *)location.p, location.n, key.p, key.n,
                                           (const unsigned char *)kid.p, kid.n, &rc);
    if (lib == NULL)
        return from_library(rc);
    out->version = 1;
    out->ncaveats = 0;
    out->nthird_party = 0;
    out->raw_n = 0;
    bool kept = keep(out, location, &out->location) && keep(out, kid, &out->kid);
    CHECK(kept);
    take_signature(lib, out->sig);
    macaroon_destroy(lib);
    return ERR_OK;
}

enum err auth_macaroon_append(struct auth_macaroon *m, struct str caveat)
{
    if (caveat.n == 0 || caveat.n > AUTH_CAVEAT_MAX)
        return ERR_RANGE;
    if (m->nthird_party > 0)
        return ERR_UNPROCESSABLE;
    if (m->ncaveats == AUTH_CAVEATS_MAX)
        return ERR_TOO_LARGE;
    enum macaroon_returncode rc = MACAROON_INVALID;
    struct macaroon *lib = NULL, *longer = NULL;
    enum err e = to_library(m, &lib);
    if (e != ERR_OK)
        return e;
    struct str kept;
    longer = macaroon_add_first_party_caveat(lib, (const unsigned char *)caveat.p, caveat.n, &rc);
    if (longer == NULL) {
        e = from_library(rc);
    } else if (!keep(m, caveat, &kept)) {
        e = ERR_TOO_LARGE;
    } else {
        m->caveats[m->ncaveats++] = kept;
        take_signature(longer, m->sig);
    }
    if (longer != NULL)
        macaroon_destroy(longer);
    macaroon_destroy(lib);
    return e;
}

void auth_macaroon_wipe(struct auth_macaroon *m)
{
    OPENSSL_cleanse(m, sizeof *m);
}
