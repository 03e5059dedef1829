/*
 * The data directory: ron-data/ with keys/, run/, operator.token and one folder per service.
 *
 * Opening it creates what is missing (directories 0700, files 0600), refuses what others could read, and locks it:
 * `ron up` alone (SVC_DATA_WHOLE), or services one by one beside each other (SVC_DATA_SHARED). With amnesia nothing
 * is created: keys are taken from the directory when it has some, else made in memory.
 *
 * Ownership   The caller owns the handle and closes it after every service that uses it.
 * Threads     open and close from one thread; the rest from any.
 */
#ifndef RON_SVC_DATA_H
#define RON_SVC_DATA_H

#include <stdbool.h>

#include "auth/keyring.h"
#include "base/buf.h"
#include "base/err.h"

enum svc_data_use { SVC_DATA_WHOLE, SVC_DATA_SHARED };

struct svc_data;

/* On failure *out_why (if not NULL) is a sentence for a person; valid until the next call. */
NODISCARD enum err svc_data_open(const char *root, bool amnesia, enum svc_data_use use,
                                 struct svc_data **out_data, const char **out_why);
void svc_data_close(struct svc_data *d); /* NULL is fine */

/* ERR_LOCKED: another process runs this service on it. Until close; with amnesia there is nothing to claim. */
NODISCARD enum err svc_data_claim(struct svc_data *d, const char *service);

const char *svc_data_path(const struct svc_data *d); /* as given: ron-data */
bool svc_data_amnesia(const struct svc_data *d);
/* NULL unless the keys are in memory (amnesia without a key file). */
struct auth_keyring *svc_data_keyring(const struct svc_data *d);
const char *svc_data_key_file(const struct svc_data *d);        /* NULL when svc_data_keyring is not */
const char *svc_data_revocation_file(const struct svc_data *d); /* may not exist */

/* The operator's token, which covers everything; appended to *out. */
NODISCARD enum err svc_data_operator_token(const struct svc_data *d, struct buf *out);
/* The token `service` presents to the ledger (keys/<service>-ledger.token); appended to *out. */
NODISCARD enum err svc_data_ledger_token(const struct svc_data *d, const char *service, struct buf *out);

#endif
