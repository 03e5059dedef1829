#include "auth/mint.h"

#include <openssl/crypto.h>
#include <string.h>

#include "auth/secret_file.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/str.h"

/* Appends every caveat; *out_bad says which one could not be read. */
static enum err append_all(struct auth_macaroon *m, const struct str *caveats, size_t n,
                           unsigned *out_kinds, size_t *out_bad)
{
    unsigned kinds = 0;
    for (size_t i = 0; i < n; i++) {
        struct auth_caveat c;
        enum err e = auth_caveat_parse(caveats[i], &c);
        if (e == ERR_OK)
            e = auth_macaroon_append(m, caveats[i]);
        if (e != ERR_OK) {
            *out_bad = i;
            return e;
        }
        kinds |= AUTH_BIT(c.kind);
    }
    *out_kinds = kinds;
    return ERR_OK;
}

static enum err grants_first(const struct str *caveats, size_t n, struct str *out, size_t *out_bad)
{
    size_t at = 0;
    for (int rest = 0; rest < 2; rest++)
        for (size_t i = 0; i < n; i++) {
            struct auth_caveat c;
            enum err e = auth_caveat_parse(caveats[i], &c);
            if (e != ERR_OK) {
                *out_bad = i;
                return e;
            }
            if ((c.kind == AUTH_CV_OP || c.kind == AUTH_CV_TENANT) == !rest)
                out[at++] = caveats[i];
        }
    return ERR_OK;
}

enum err auth_mint(const struct auth_keyring *k, struct str kid, const struct str *caveats, size_t n,
                   struct buf *out_token, size_t *out_bad)
{
    const struct auth_key *key = kid.n > 0 ? auth_keyring_find(k, kid) : auth_keyring_newest(k);
    size_t bad = n;
    unsigned kinds = 0;
    struct str sorted[AUTH_CAVEATS_MAX];
    if (key == NULL)
        return ERR_NOT_FOUND;
    struct auth_macaroon m;
    enum err e = auth_macaroon_create(STR(AUTH_LOCATION), (struct bytes){key->key, key->key_n},
                                      str_from_c(key->kid), &m);
    if (e == ERR_OK)
        e = n <= AUTH_CAVEATS_MAX ? grants_first(caveats, n, sorted, &bad) : ERR_UNPROCESSABLE;
    if (e == ERR_OK)
        e = append_all(&m, sorted, n, &kinds, &bad);
    if (e == ERR_OK && (kinds & AUTH_NEEDED) != AUTH_NEEDED)
        e = ERR_UNPROCESSABLE;
    if (e == ERR_OK)
        e = auth_macaroon_encode(&m, out_token);
    auth_macaroon_wipe(&m);
    if (e != ERR_OK && out_bad != NULL)
        *out_bad = bad;
    return e;
}

enum err auth_narrow(struct str token, const struct str *caveats, size_t n, struct buf *out_token,
                     size_t *out_bad)
{
    struct auth_macaroon m;
    size_t bad = n;
    unsigned kinds;
    enum err e = auth_macaroon_decode(token, &m);
    if (e == ERR_OK)
        e = append_all(&m, caveats, n, &kinds, &bad);
    if (e == ERR_OK)
        e = auth_macaroon_encode(&m, out_token);
    auth_macaroon_wipe(&m);
    if (e != ERR_OK && out_bad != NULL)
        *out_bad = bad;
    return e;
}

void auth_token_id_start(struct str kid, struct sha256 *out)
{
    static const char tag[] = "ron/auth/token/v1"; /* its zero byte is part of it */
    struct bytes parts[] = {{(const uint8_t *)tag, sizeof tag}, bytes_of_str(kid)};
    sha256_of_parts(parts, 2, out);
}

void auth_token_id_add(struct sha256 *id, struct str caveat)
{
    struct bytes parts[] = {{id->b, sizeof id->b}, bytes_of_str(caveat)};
    struct sha256 next;
    sha256_of_parts(parts, 2, &next);
    *id = next;
}

enum err auth_inspect(struct str token, struct auth_token_info *out)
{
    enum err e = auth_macaroon_decode(token, &out->m);
    if (e != ERR_OK)
        return e;
    auth_token_id_start(out->m.kid, &out->id);
    for (size_t i = 0; i < out->m.ncaveats; i++) {
        struct str text = out->m.caveats[i];
        auth_token_id_add(&out->id, text);
        if (auth_caveat_parse(text, &out->caveats[i]) != ERR_OK)
            out->caveats[i] = (struct auth_caveat){.kind = AUTH_CV_UNKNOWN, .text = text};
    }
    struct sha256 hash;
    sha256_of(token.p, token.n, &hash);
    hex_encode(hash.b, sizeof out->ref / 2, out->ref);
    return ERR_OK;
}

/* ---- token files ---- */

enum err auth_token_file_read(const char *path, struct buf *out_token)
{
    struct auth_secret s;
    enum err e = auth_secret_file_read(path, AUTH_TOKEN_MAX + 2, true, &s);
    if (e != ERR_OK)
        return e;
    struct str text = {s.p, s.n};
    while (text.n > 0 && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == '\r'))
        text.n--;
    if (text.n == 0 || memchr(text.p, '\n', text.n) != NULL) {
        e = ERR_SYNTAX;
    } else {
        buf_put(out_token, text.p, text.n);
        e = out_token->err;
    }
    auth_secret_free(&s);
    return e;
}

static bool token_is_good(struct str token, const struct auth_keyring *k, int64_t now_ms)
{
    struct auth_token_info info;
    bool good = false;
    if (auth_inspect(token, &info) == ERR_OK) {
        const struct auth_key *key = auth_keyring_find(k, info.m.kid);
        good = key != NULL && key->not_after_ms > now_ms &&
               auth_macaroon_verify(&info.m, (struct bytes){key->key, key->key_n}) == ERR_OK;
        unsigned kinds = 0;
        bool granted = false;
        for (size_t i = 0; i < info.m.ncaveats; i++) {
            if (info.caveats[i].kind == AUTH_CV_EXP && info.caveats[i].at_ms <= now_ms)
                good = false;
            granted =
                granted || (info.caveats[i].kind == AUTH_CV_OP && (kinds & AUTH_NEEDED) != AUTH_NEEDED);
            kinds |= AUTH_BIT(info.caveats[i].kind);
        }
        good = good && (granted || !(kinds & AUTH_BIT(AUTH_CV_OP)));
    }
    auth_macaroon_wipe(&info.m);
    return good;
}

enum err auth_token_file_ensure(const char *path, const struct auth_keyring *k, const struct str *caveats,
                                size_t n, int64_t now_ms)
{
    char storage[AUTH_TOKEN_MAX + 2];
    struct buf text;
    buf_init_fixed(&text, storage, sizeof storage);
    enum err e = auth_token_file_read(path, &text);
    if (e == ERR_OK && token_is_good(buf_str(&text), k, now_ms))
        goto out;
    if (e == ERR_PERMISSION)
        goto out;
    buf_reset(&text);
    e = auth_mint(k, (struct str){NULL, 0}, caveats, n, &text, NULL);
    if (e == ERR_OK) {
        buf_putc(&text, '\n');
        e = text.err == ERR_OK ? auth_secret_file_replace(path, buf_str(&text)) : text.err;
    }
out:
    OPENSSL_cleanse(storage, sizeof storage);
    return e;
}
