/*
 * The keys that sign capabilities, and the list of tokens that no longer count.
 *
 * Key file: one line `kid key not_after` each, blank lines and lines that start with # are skipped. kid is
 * 1-64 of [A-Za-z0-9._-], key 64-128 lower-case hex digits, not_after RFC 3339. Several keys live side by
 * side; taking a line out revokes every token made with it. The file must be a regular file that only its
 * owner may touch (0600 or less).
 *
 * Revocation file: one token id per line, 64 lower-case hex digits (`ron cap inspect` shows it), anything
 * after a blank is a remark. A token id names identifier and caveats, not the text: revoking a token also
 * revokes what was narrowed from it, and writing the same token in another form does not help its holder.
 *
 * Ownership   Both are immutable and reference counted once loaded; the last unref wipes and frees.
 * Threads     Any thread.
 * Memory      Loading allocates and is bounded: AUTH_KEYS_MAX keys, AUTH_REVOKED_MAX ids.
 */
#ifndef RON_AUTH_KEYRING_H
#define RON_AUTH_KEYRING_H

#include <stddef.h>
#include <stdint.h>

#include "auth/macaroon.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/sha256.h"

enum {
    AUTH_KEY_BYTES_MIN = 32,
    AUTH_KEY_BYTES_MAX = 64,
    AUTH_KEYS_MAX = 256,
    AUTH_REVOKED_MAX = 100000,
};

struct auth_key {
    char kid[AUTH_KID_MAX + 1];
    uint8_t key[AUTH_KEY_BYTES_MAX];
    size_t key_n;
    int64_t not_after_ms;
};

/* Where loading stopped; line 0 is the file as a whole. */
struct auth_file_error {
    unsigned line;
    const char *reason;
};

struct auth_keyring;

/* ERR_PERMISSION (others may read it), ERR_NOT_FOUND, ERR_SYNTAX, ERR_TOO_LARGE, ERR_EMPTY, ERR_IO.
 * out_where may be NULL. */
NODISCARD enum err auth_keyring_load(const char *path, struct auth_keyring **out,
                                     struct auth_file_error *out_where);
/* One fresh random key in memory, for amnesia and tests. */
NODISCARD enum err auth_keyring_generate(const char *kid, int64_t not_after_ms, struct auth_keyring **out);
/* Writes a key file with one fresh random key unless there is one; ERR_OK either way. Never overwrites. */
NODISCARD enum err auth_keyring_ensure_file(const char *path, const char *kid, int64_t not_after_ms);

struct auth_keyring *auth_keyring_ref(struct auth_keyring *k);
void auth_keyring_unref(struct auth_keyring *k); /* NULL is fine */
const struct auth_key *auth_keyring_find(const struct auth_keyring *k,
                                         struct str kid);                 /* NULL when it is not there */
const struct auth_key *auth_keyring_newest(const struct auth_keyring *k); /* the one that lives longest */
size_t auth_keyring_count(const struct auth_keyring *k);
const struct auth_key *auth_keyring_at(const struct auth_keyring *k, size_t i);

struct auth_revoked;

/* ERR_NOT_FOUND: there is no such file, so nobody is revoked unless somebody was before. */
NODISCARD enum err auth_revoked_load(const char *path, struct auth_revoked **out,
                                     struct auth_file_error *out_where);
struct auth_revoked *auth_revoked_ref(struct auth_revoked *r);
void auth_revoked_unref(struct auth_revoked *r); /* NULL is fine */
bool auth_revoked_has(const struct auth_revoked *r, const struct sha256 *token_id);
size_t auth_revoked_count(const struct auth_revoked *r);

#endif
