/*
 * Signed checkpoints (C2SP tlog-checkpoint, signed-note): the text a third party keeps.
 *
 *   origin LF size LF base64(root) LF LF "— " origin " " base64(key id ‖ Ed25519 signature of the lines before the empty one) LF
 *
 * key id = SHA-256(origin ‖ 0x0A ‖ 0x01 ‖ public key)[0..4]; vkey = origin+<key id hex>+base64(0x01 ‖ public key).
 * Ed25519 is deterministic, so one size and root have one note.
 *
 * Ownership   A signer owns its key and wipes it on destroy. Texts go to the caller's buffer.
 * Threads     A signer may sign from several threads at once.
 */
#ifndef RON_LEDGER_CORE_NOTE_H
#define RON_LEDGER_CORE_NOTE_H

#include "base/ed25519.h"
#include "base/sha256.h"

enum { NOTE_ORIGIN_MAX = 200, NOTE_MAX = 2 * NOTE_ORIGIN_MAX + 256, NOTE_VKEY_MAX = NOTE_ORIGIN_MAX + 64 };

struct ledger_signer;

bool ledger_note_origin_ok(struct str origin); /* 1..200 visible characters, no '+' */

/* NULL without memory. */
struct ledger_signer *ledger_signer_create(struct str origin, const uint8_t seed[ED25519_SEED_BYTES]);
void ledger_signer_destroy(struct ledger_signer *s);
struct str ledger_signer_origin(const struct ledger_signer *s);
size_t ledger_signer_vkey(const struct ledger_signer *s, char out[NOTE_VKEY_MAX]); /* terminated */

/* The key file: PRIVATE+KEY+<origin>+<key id hex>+<base64(0x01 ‖ seed)>. */
size_t ledger_signer_secret(struct str origin, const uint8_t seed[ED25519_SEED_BYTES],
                            char out[NOTE_VKEY_MAX + 16]);
NODISCARD enum err ledger_signer_open(struct str secret,
                                      struct ledger_signer **out_signer); /* ERR_SYNTAX */

NODISCARD enum err ledger_note_sign(const struct ledger_signer *s, uint64_t size, const struct sha256 *root,
                                    char out[NOTE_MAX], size_t *out_n);

struct ledger_note {
    struct str origin;
    uint64_t size;
    struct sha256 root;
};

/* Opens a note with a vkey: ERR_SYNTAX, or ERR_UNAUTHENTICATED when no signature of that key is good. */
NODISCARD enum err ledger_note_open(struct str note, struct str vkey, struct ledger_note *out_note);

#endif
