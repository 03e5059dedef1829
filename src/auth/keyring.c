#include "auth/keyring.h"

#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/secret_file.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/time_fmt.h"

enum {
    KEYRING_MAGIC = 0x6b65796e,
    REVOKED_MAGIC = 0x7265766b,
    KEY_FILE_MAX = 64 * 1024,
    REVOKED_FILE_MAX = 16 * 1024 * 1024,
};

struct auth_keyring {
    uint32_t magic;
    atomic_uint refs; /* acq_rel with itself: the last unref sees everything the others did */
    size_t n;
    struct auth_key keys[];
};

struct auth_revoked {
    uint32_t magic;
    atomic_uint refs; /* as above */
    size_t n;
    struct sha256 ids[]; /* sorted */
};

/* ---- lines ---- */

struct lines {
    struct str rest;
    unsigned number;
};

/* The next line that says something. A last line without its newline counts. */
static bool line_next(struct lines *l, struct str *out)
{
    while (l->rest.p != NULL && l->rest.n > 0) {
        struct str line;
        l->rest = str_cut(l->rest, '\n', &line);
        l->number++;
        line = str_trim(line);
        if (line.n > 0 && line.p[0] != '#') {
            *out = line;
            return true;
        }
    }
    return false;
}

static enum err where(struct auth_file_error *out, unsigned line, const char *reason, enum err e)
{
    if (out != NULL)
        *out = (struct auth_file_error){line, reason};
    return e;
}

static const char *whole_file_reason(enum err e)
{
    if (e == ERR_PERMISSION)
        return "must be a regular file that only its owner can read (chmod 600)";
    if (e == ERR_TOO_LARGE)
        return "is too large";
    if (e == ERR_NOT_FOUND)
        return "does not exist";
    return "cannot be read";
}

/* ---- keys ---- */

static bool is_kid(struct str s)
{
    if (s.n == 0 || s.n > AUTH_KID_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                  c == '_' || c == '-';
        if (!ok)
            return false;
    }
    return true;
}

/* NULL, or what is wrong with the line. */
static const char *key_parse(struct str line, struct auth_key *out)
{
    struct str kid, key;
    struct str rest = str_cut(line, ' ', &kid);
    struct str not_after = str_cut(rest, ' ', &key);
    if (rest.p == NULL || not_after.p == NULL)
        return "is not `kid key not_after`";
    if (!is_kid(kid))
        return "has a bad key id";
    out->key_n = key.n / 2;
    if (out->key_n < AUTH_KEY_BYTES_MIN || out->key_n > AUTH_KEY_BYTES_MAX ||
        hex_decode(key, out->key, out->key_n) != ERR_OK)
        return "has a key that is not 64 to 128 lower-case hex digits";
    if (time_parse_ms(str_trim(not_after), &out->not_after_ms) != ERR_OK)
        return "has a bad not_after";
    memcpy(out->kid, kid.p, kid.n);
    out->kid[kid.n] = 0;
    return NULL;
}

static struct auth_keyring *keyring_alloc(size_t keys)
{
    struct auth_keyring *k = calloc(1, sizeof *k + keys * sizeof k->keys[0]);
    if (k != NULL) {
        k->magic = KEYRING_MAGIC;
        atomic_init(&k->refs, 1);
    }
    return k;
}

static enum err keyring_parse(struct str text, struct auth_keyring **out, struct auth_file_error *out_where)
{
    struct auth_keyring *k = keyring_alloc(AUTH_KEYS_MAX);
    if (k == NULL)
        return ERR_NO_MEMORY;
    struct lines l = {text, 0};
    struct str line;
    const char *wrong = NULL;
    while (wrong == NULL && line_next(&l, &line)) {
        if (k->n == AUTH_KEYS_MAX) {
            wrong = "is one key too many";
            break;
        }
        struct auth_key *key = &k->keys[k->n];
        wrong = key_parse(line, key);
        if (wrong == NULL && auth_keyring_find(k, str_from_c(key->kid)) != NULL)
            wrong = "repeats a key id";
        if (wrong == NULL)
            k->n++;
    }
    if (wrong == NULL && k->n > 0) {
        *out = k;
        return ERR_OK;
    }
    /* The key that failed lies behind the counted ones: wipe the whole block. */
    k->n = AUTH_KEYS_MAX;
    auth_keyring_unref(k);
    if (wrong != NULL)
        return where(out_where, l.number, wrong, ERR_SYNTAX);
    return where(out_where, 0, "holds no key", ERR_EMPTY);
}

enum err auth_keyring_load(const char *path, struct auth_keyring **out, struct auth_file_error *out_where)
{
    struct auth_secret text;
    enum err e = auth_secret_file_read(path, KEY_FILE_MAX, true, &text);
    if (e != ERR_OK)
        return where(out_where, 0, whole_file_reason(e), e);
    e = keyring_parse((struct str){text.p, text.n}, out, out_where);
    auth_secret_free(&text);
    return e;
}

enum err auth_keyring_generate(const char *kid, int64_t not_after_ms, struct auth_keyring **out)
{
    if (!is_kid(str_from_c(kid)))
        return ERR_RANGE;
    struct auth_keyring *k = keyring_alloc(1);
    if (k == NULL)
        return ERR_NO_MEMORY;
    k->n = 1;
    strcpy(k->keys[0].kid, kid);
    k->keys[0].key_n = AUTH_KEY_BYTES_MIN;
    k->keys[0].not_after_ms = not_after_ms;
    rng_secure(k->keys[0].key, AUTH_KEY_BYTES_MIN);
    *out = k;
    return ERR_OK;
}

enum err auth_keyring_ensure_file(const char *path, const char *kid, int64_t not_after_ms)
{
    struct auth_keyring *k;
    enum err e = auth_keyring_generate(kid, not_after_ms, &k);
    if (e != ERR_OK)
        return e;
    char hex[2 * AUTH_KEY_BYTES_MIN + 1], when[TIME_FMT_CHARS], text[512];
    hex_encode(k->keys[0].key, AUTH_KEY_BYTES_MIN, hex);
    time_format_ms(not_after_ms, when);
    int n = snprintf(text, sizeof text, "# kid key not_after\n%s %s %s\n", kid, hex, when);
    CHECK(n > 0 && (size_t)n < sizeof text);
    e = auth_secret_file_create(path, (struct str){text, (size_t)n});
    OPENSSL_cleanse(hex, sizeof hex);
    OPENSSL_cleanse(text, sizeof text);
    auth_keyring_unref(k);
    return e == ERR_EXISTS ? ERR_OK : e;
}

struct auth_keyring *auth_keyring_ref(struct auth_keyring *k)
{
    CHECK_MAGIC(k, KEYRING_MAGIC);
    atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
    return k;
}

void auth_keyring_unref(struct auth_keyring *k)
{
    if (k == NULL)
        return;
    CHECK_MAGIC(k, KEYRING_MAGIC);
    if (atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) > 1)
        return;
    OPENSSL_cleanse(k->keys, k->n * sizeof k->keys[0]);
    k->magic = 0;
    free(k);
}

const struct auth_key *auth_keyring_find(const struct auth_keyring *k, struct str kid)
{
    CHECK_MAGIC(k, KEYRING_MAGIC);
    for (size_t i = 0; i < k->n; i++)
        if (str_eq_c(kid, k->keys[i].kid))
            return &k->keys[i];
    return NULL;
}

const struct auth_key *auth_keyring_newest(const struct auth_keyring *k)
{
    CHECK_MAGIC(k, KEYRING_MAGIC);
    CHECK(k->n > 0);
    const struct auth_key *best = &k->keys[0];
    for (size_t i = 1; i < k->n; i++)
        if (k->keys[i].not_after_ms > best->not_after_ms)
            best = &k->keys[i];
    return best;
}

size_t auth_keyring_count(const struct auth_keyring *k)
{
    CHECK_MAGIC(k, KEYRING_MAGIC);
    return k->n;
}

const struct auth_key *auth_keyring_at(const struct auth_keyring *k, size_t i)
{
    CHECK_MAGIC(k, KEYRING_MAGIC);
    CHECK(i < k->n);
    return &k->keys[i];
}

/* ---- revoked tokens ---- */

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct sha256));
}

static struct auth_revoked *revoked_alloc(size_t ids)
{
    struct auth_revoked *r = calloc(1, sizeof *r + ids * sizeof r->ids[0]);
    if (r != NULL) {
        r->magic = REVOKED_MAGIC;
        atomic_init(&r->refs, 1);
    }
    return r;
}

static enum err revoked_parse(struct str text, struct auth_revoked **out, struct auth_file_error *out_where)
{
    struct auth_revoked *r = revoked_alloc(text.n / (SHA256_HEX_CHARS - 1) + 1);
    if (r == NULL)
        return ERR_NO_MEMORY;
    struct lines l = {text, 0};
    struct str line;
    while (line_next(&l, &line)) {
        struct str id;
        (void)str_cut(line, ' ', &id);
        const char *wrong = NULL;
        if (r->n == AUTH_REVOKED_MAX)
            wrong = "is one token too many";
        else if (hex_decode(id, r->ids[r->n].b, sizeof r->ids[0].b) != ERR_OK)
            wrong = "is not a token id of 64 lower-case hex digits";
        if (wrong != NULL) {
            auth_revoked_unref(r);
            return where(out_where, l.number, wrong, ERR_SYNTAX);
        }
        r->n++;
    }
    qsort(r->ids, r->n, sizeof r->ids[0], by_bytes);
    *out = r;
    return ERR_OK;
}

enum err auth_revoked_load(const char *path, struct auth_revoked **out, struct auth_file_error *out_where)
{
    struct auth_secret text = {NULL, 0};
    enum err e = auth_secret_file_read(path, REVOKED_FILE_MAX, false, &text);
    if (e != ERR_OK)
        return where(out_where, 0, whole_file_reason(e), e);
    e = revoked_parse((struct str){text.p, text.n}, out, out_where);
    auth_secret_free(&text);
    return e;
}

struct auth_revoked *auth_revoked_ref(struct auth_revoked *r)
{
    CHECK_MAGIC(r, REVOKED_MAGIC);
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void auth_revoked_unref(struct auth_revoked *r)
{
    if (r == NULL)
        return;
    CHECK_MAGIC(r, REVOKED_MAGIC);
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) > 1)
        return;
    r->magic = 0;
    free(r);
}

bool auth_revoked_has(const struct auth_revoked *r, const struct sha256 *token_id)
{
    CHECK_MAGIC(r, REVOKED_MAGIC);
    return bsearch(token_id, r->ids, r->n, sizeof r->ids[0], by_bytes) != NULL;
}

size_t auth_revoked_count(const struct auth_revoked *r)
{
    CHECK_MAGIC(r, REVOKED_MAGIC);
    return r->n;
}
