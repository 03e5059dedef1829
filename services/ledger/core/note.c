#include "services/ledger/core/note.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/str.h"

enum { KEY_ID = 4, ALG_ED25519 = 1 };

static const char dash[] = "\xe2\x80\x94 "; /* em dash, blank */

struct ledger_signer {
    struct ed25519_key *key;
    uint8_t public[ED25519_PUBLIC_BYTES], key_id[KEY_ID];
    size_t origin_len;
    char origin[NOTE_ORIGIN_MAX + 1];
};

bool ledger_note_origin_ok(struct str origin)
{
    if (origin.n == 0 || origin.n > NOTE_ORIGIN_MAX)
        return false;
    for (size_t i = 0; i < origin.n; i++)
        if (origin.p[i] <= ' ' || origin.p[i] == '+' || (unsigned char)origin.p[i] >= 0x7f)
            return false;
    return true;
}

static void key_id_of(struct str origin, const uint8_t public[ED25519_PUBLIC_BYTES], uint8_t out[KEY_ID])
{
    static const uint8_t middle[2] = {'\n', ALG_ED25519};
    struct bytes parts[] = {bytes_of_str(origin), {middle, 2}, {public, ED25519_PUBLIC_BYTES}};
    struct sha256 h;
    sha256_of_parts(parts, 3, &h);
    memcpy(out, h.b, KEY_ID);
}

struct ledger_signer *ledger_signer_create(struct str origin, const uint8_t seed[ED25519_SEED_BYTES])
{
    CHECK(ledger_note_origin_ok(origin));
    struct ledger_signer *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->key = ed25519_key_from_seed(seed);
    if (s->key == NULL) {
        free(s);
        return NULL;
    }
    ed25519_public(s->key, s->public);
    memcpy(s->origin, origin.p, origin.n);
    s->origin_len = origin.n;
    key_id_of(origin, s->public, s->key_id);
    return s;
}

void ledger_signer_destroy(struct ledger_signer *s)
{
    if (s == NULL)
        return;
    ed25519_key_destroy(s->key);
    free(s);
}

struct str ledger_signer_origin(const struct ledger_signer *s)
{
    return (struct str){s->origin, s->origin_len};
}

static size_t key_text(const char *prefix, struct str origin, const uint8_t id[KEY_ID], const uint8_t *key,
                       char *out, size_t max)
{
    uint8_t tagged[1 + 32];
    char id_hex[2 * KEY_ID + 1], text[64];
    tagged[0] = ALG_ED25519;
    memcpy(tagged + 1, key, 32);
    hex_encode(id, KEY_ID, id_hex);
    base64_encode(tagged, sizeof tagged, text);
    int n = snprintf(out, max, "%s%.*s+%s+%s", prefix, STR_ARG(origin), id_hex, text);
    explicit_bzero(tagged, sizeof tagged);
    explicit_bzero(text, sizeof text);
    CHECK(n > 0 && (size_t)n < max);
    return (size_t)n;
}

size_t ledger_signer_vkey(const struct ledger_signer *s, char out[NOTE_VKEY_MAX])
{
    return key_text("", ledger_signer_origin(s), s->key_id, s->public, out, NOTE_VKEY_MAX);
}

size_t ledger_signer_secret(struct str origin, const uint8_t seed[ED25519_SEED_BYTES],
                            char out[NOTE_VKEY_MAX + 16])
{
    struct ledger_signer *s = ledger_signer_create(origin, seed);
    CHECK(s != NULL);
    size_t n = key_text("PRIVATE+KEY+", origin, s->key_id, seed, out, NOTE_VKEY_MAX + 16);
    ledger_signer_destroy(s);
    return n;
}

/* <origin>+<key id>+<base64 of 33 bytes>: both kinds of key text end like this. */
static enum err key_split(struct str text, struct str *out_origin, uint8_t out_id[KEY_ID],
                          uint8_t out_key[32])
{
    struct str origin, id, rest = str_cut(text, '+', &origin);
    rest = str_cut(rest, '+', &id);
    uint8_t tagged[33];
    size_t n;
    if (rest.p == NULL || !ledger_note_origin_ok(origin) || hex_decode(id, out_id, KEY_ID) != ERR_OK ||
        base64_decode(rest, tagged, sizeof tagged, &n) != ERR_OK || n != sizeof tagged ||
        tagged[0] != ALG_ED25519)
        return ERR_SYNTAX;
    memcpy(out_key, tagged + 1, 32);
    explicit_bzero(tagged, sizeof tagged);
    *out_origin = origin;
    return ERR_OK;
}

enum err ledger_signer_open(struct str secret, struct ledger_signer **out_signer)
{
    const struct str prefix = STR_INIT("PRIVATE+KEY+");
    if (!str_starts(secret, prefix))
        return ERR_SYNTAX;
    while (secret.n > 0 && secret.p[secret.n - 1] == '\n')
        secret.n--;
    struct str origin;
    uint8_t id[KEY_ID], seed[32];
    enum err err = key_split(str_of(secret.p + prefix.n, secret.n - prefix.n), &origin, id, seed);
    if (err != ERR_OK)
        return err;
    struct ledger_signer *s = ledger_signer_create(origin, seed);
    explicit_bzero(seed, sizeof seed);
    if (s == NULL)
        return ERR_NO_MEMORY;
    if (memcmp(s->key_id, id, KEY_ID) != 0) {
        ledger_signer_destroy(s);
        return ERR_SYNTAX;
    }
    *out_signer = s;
    return ERR_OK;
}

enum err ledger_note_sign(const struct ledger_signer *s, uint64_t size, const struct sha256 *root,
                          char out[NOTE_MAX], size_t *out_n)
{
    char root_text[64], sig_text[128];
    uint8_t tagged[KEY_ID + ED25519_SIGNATURE_BYTES];
    base64_encode(root->b, 32, root_text);
    int body = snprintf(out, NOTE_MAX, "%s\n%llu\n%s\n", s->origin, (unsigned long long)size, root_text);
    CHECK(body > 0 && body < NOTE_MAX);
    memcpy(tagged, s->key_id, KEY_ID);
    enum err err = ed25519_sign(s->key, bytes_of(out, (size_t)body), tagged + KEY_ID);
    if (err != ERR_OK)
        return err;
    base64_encode(tagged, sizeof tagged, sig_text);
    int tail = snprintf(out + body, NOTE_MAX - (size_t)body, "\n%s%s %s\n", dash, s->origin, sig_text);
    CHECK(tail > 0 && (size_t)(body + tail) < NOTE_MAX);
    *out_n = (size_t)(body + tail);
    return ERR_OK;
}

static enum err body_parse(struct str body, struct ledger_note *out)
{
    struct str origin, size, root, rest = str_cut(body, '\n', &origin);
    struct ledger_note n;
    size_t len;
    rest = str_cut(rest, '\n', &size);
    str_cut(rest, '\n', &root);
    if (rest.p == NULL || str_parse_u64(size, &n.size) != ERR_OK ||
        base64_decode(root, n.root.b, 32, &len) != ERR_OK || len != 32)
        return ERR_SYNTAX;
    n.origin = origin;
    *out = n;
    return ERR_OK;
}

/* One signature line of our key: "— origin base64". */
static bool line_is_good(struct str line, struct str origin, const uint8_t id[KEY_ID],
                         const struct ed25519_key *key, struct str body)
{
    struct str name;
    if (!str_starts(line, str_from_c(dash)))
        return false;
    struct str text = str_cut(str_of(line.p + 4, line.n - 4), ' ', &name);
    uint8_t tagged[KEY_ID + ED25519_SIGNATURE_BYTES];
    size_t n;
    if (text.p == NULL || !str_eq(name, origin) ||
        base64_decode(text, tagged, sizeof tagged, &n) != ERR_OK || n != sizeof tagged ||
        memcmp(tagged, id, KEY_ID) != 0)
        return false;
    return ed25519_verify(key, bytes_of_str(body), tagged + KEY_ID) == ERR_OK;
}

enum err ledger_note_open(struct str note, struct str vkey, struct ledger_note *out_note)
{
    struct str origin;
    uint8_t id[KEY_ID], public[32], expect[KEY_ID];
    struct ledger_note parsed;
    enum err err = key_split(vkey, &origin, id, public);
    if (err != ERR_OK)
        return err;
    key_id_of(origin, public, expect);
    const char *blank = note.n < 2 ? NULL : memmem(note.p, note.n, "\n\n", 2);
    if (memcmp(id, expect, KEY_ID) != 0 || blank == NULL || note.p[note.n - 1] != '\n')
        return ERR_SYNTAX;
    struct str body = str_of(note.p, (size_t)(blank + 1 - note.p));
    struct str lines = str_of(blank + 2, note.n - body.n - 1);
    err = body_parse(body, &parsed);
    if (err != ERR_OK)
        return err;
    if (!str_eq(parsed.origin, origin))
        return ERR_UNAUTHENTICATED;
    struct ed25519_key *key = ed25519_key_from_public(public);
    if (key == NULL)
        return ERR_NO_MEMORY;
    bool good = false;
    while (!good && lines.n > 0) {
        struct str line;
        lines = str_cut(lines, '\n', &line);
        good = line_is_good(line, origin, id, key, body);
    }
    ed25519_key_destroy(key);
    if (!good)
        return ERR_UNAUTHENTICATED;
    *out_note = parsed;
    return ERR_OK;
}
