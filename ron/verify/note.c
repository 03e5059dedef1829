/* Signed notes, and the proof files that end in one. */
#include "ron/verify/check.h"

#include <string.h>

#include "base/base64.h"
#include "base/ed25519.h"
#include "base/hex.h"
#include "base/str.h"

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

static const char *blank_line(struct str note)
{
    return note.n < 3 ? NULL : memmem(note.p, note.n, "\n\n", 2);
}

enum err verify_note_read(struct str note, struct str *out_origin, uint64_t *out_size,
                          struct sha256 *out_root)
{
    struct str origin, size_text, root_text;
    struct sha256 root;
    uint64_t size = 0;
    size_t n;
    const char *blank = blank_line(note);
    if (blank == NULL)
        return ERR_SYNTAX;
    struct str rest = str_cut(str_of(note.p, (size_t)(blank + 1 - note.p)), '\n', &origin);
    rest = str_cut(rest, '\n', &size_text);
    str_cut(rest, '\n', &root_text);
    if (origin.n == 0 || str_parse_u64(size_text, &size) != ERR_OK ||
        base64_decode(root_text, root.b, 32, &n) != ERR_OK || n != 32)
        return ERR_SYNTAX;
    *out_origin = origin;
    *out_size = size;
    *out_root = root;
    return ERR_OK;
}

enum err verify_note(struct str note, struct str vkey, uint64_t *out_size, struct sha256 *out_root)
{
    struct str origin, line, body_origin;
    struct sha256 root;
    uint8_t id[4], key[32], sig[68];
    uint64_t size = 0;
    size_t n;
    if (!key_parts(vkey, &origin, id, key) ||
        verify_note_read(note, &body_origin, &size, &root) != ERR_OK || !str_eq(body_origin, origin))
        return ERR_SYNTAX;
    const char *blank = blank_line(note);
    struct str body = str_of(note.p, (size_t)(blank + 1 - note.p));
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
    if (err == ERR_OK) {
        *out_size = size;
        *out_root = root;
    }
    return err;
}

enum err ledger_verify_proof(struct str proof, struct str vkey, uint64_t *out_index, uint64_t *out_size)
{
    struct str line, rest = str_cut(proof, '\n', &line), extra = {NULL, 0};
    struct sha256 hash, root, path[96];
    size_t n = 0, got;
    uint8_t leaf[2048];
    uint64_t index = 0, size = 0;
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
    enum err err = rest.p == NULL ? ERR_SYNTAX : verify_note(rest, vkey, &size, &root);
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
            verify_node(&path[i], &hash, &hash);
            for (; !(fn & 1) && fn != 0; fn >>= 1)
                sn >>= 1;
        } else {
            verify_node(&hash, &path[i], &hash);
        }
    }
    if (sn != 0 || !sha256_eq(&hash, &root))
        return ERR_CORRUPT;
    *out_index = index;
    *out_size = size;
    return ERR_OK;
}
