/* The signing key, and the connection to a ledger in another process. */
#ifndef RON_REWARDER_KEYS_H
#define RON_REWARDER_KEYS_H

#include "services/rewarder/rewarder.h"

/* Reads the PEM file, or makes it (0600). "auto": keys/rewarder.ed25519. Amnesia makes a key in memory. */
NODISCARD enum err rewarder_keys_open(struct rewarder *r, const char *path) RT_BLOCKS;
/* The same from a given disk; without `make` ERR_NOT_FOUND when there is none. */
NODISCARD enum err rewarder_keys_load(struct rewarder *r, struct store_disk *disk, const char *path,
                                      bool make) RT_BLOCKS;
void rewarder_keys_close(struct rewarder *r);

NODISCARD enum err rewarder_ledger_open(const char *url, const char *token, struct ledger_client **out);
NODISCARD enum err rewarder_ledger_add_task(struct svc *s, struct ledger_client *client);

#endif
