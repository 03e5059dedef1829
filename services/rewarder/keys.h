/*
 * The signing key, every public key that ever signed here, and the connection to a ledger in another process.
 *
 * A signature outlives its key: public/<kid>.pem is written and flushed before a key signs anything, and stays when the key
 * is replaced. Replacing the file of the signing key and reloading is a rotation; runs that are sealed from then on carry the
 * new key's id, older ones are verified with the key that is still published.
 *
 * Ownership   Signers are reference-counted; who signs holds one until everything that belongs together is signed.
 * Threads     Any thread; the lock cfg_snapshot guards only the pointer to the current signer and the list.
 */
#ifndef RON_REWARDER_KEYS_H
#define RON_REWARDER_KEYS_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/ed25519.h"
#include "rt/lock.h"
#include "services/rewarder/core/ident.h"
#include "services/rewarder/files.h"

struct ledger_client;
struct svc;

enum { REWARDER_KEYS_MAX = 64, REWARDER_PEM_CHARS = 160 };

struct rewarder_public {
    char kid[REWARDER_KID_LEN + 1], pem[REWARDER_PEM_CHARS];
};

struct rewarder_signer {
    atomic_uint refs; /* relaxed add; release on drop pairs with the acquire before freeing */
    struct ed25519_key *key;
    struct rewarder_public public;
};

struct rewarder_keys {
    struct rt_lock lock; /* cfg_snapshot */
    struct rewarder_signer *current;
    struct rewarder_public known[REWARDER_KEYS_MAX]; /* the current one too; by kid */
    size_t known_n;
};

void rewarder_keys_init(struct rewarder_keys *k);
void rewarder_keys_fini(struct rewarder_keys *k);

/*
 * Reads the PEM file (with `make`: makes it, 0600, when there is none), publishes its public half and makes it the current
 * key. The same key again changes nothing; after a failure the old one stays. ERR_NOT_FOUND, ERR_SYNTAX.
 */
NODISCARD enum err rewarder_keys_use(struct rewarder_keys *k, struct rewarder_files *f,
                                     struct store_disk *disk, const char *path, bool make) RT_BLOCKS;
/* Lists what is published under the files' root; files whose name is not their key's id are left alone. */
NODISCARD enum err rewarder_keys_recover(struct rewarder_keys *k, struct rewarder_files *f) RT_BLOCKS;

struct rewarder_signer *rewarder_keys_signer(struct rewarder_keys *k); /* a reference; NULL: no key yet */
void rewarder_signer_unref(struct rewarder_signer *s);                 /* NULL is fine */
/* Copies of all that are published, the current one first; returns how many. */
size_t rewarder_keys_list(struct rewarder_keys *k, struct rewarder_public out[REWARDER_KEYS_MAX]);

/* Whether a key that is or was published here signed the message. */
bool rewarder_keys_signed(struct rewarder_keys *k, const char *kid, struct bytes message,
                          const uint8_t signature[64]);

#endif
