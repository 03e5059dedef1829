/*
 * Files that hold secrets: whole reads with a bound, writes that never show a half, both refusing open
 * permissions.
 *
 * Ownership   The caller frees what auth_secret_file_read hands out, through auth_secret_free.
 * Threads     Any; these touch the disk and may wait for it.
 */
#ifndef RON_AUTH_SECRET_FILE_H
#define RON_AUTH_SECRET_FILE_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/err.h"

struct auth_secret {
    char *p;
    size_t n;
};

/* private_only: ERR_PERMISSION when group or others have any right, or the owner is neither us nor root, and we are not
 * root. */
NODISCARD enum err auth_secret_file_read(const char *path, size_t max, bool private_only,
                                         struct auth_secret *out);
/* Creates with mode 0600; ERR_EXISTS when something is there. Durable when it returns ERR_OK. */
NODISCARD enum err auth_secret_file_create(const char *path, struct str text);
/* The same, replacing what is there atomically. */
NODISCARD enum err auth_secret_file_replace(const char *path, struct str text);
void auth_secret_free(struct auth_secret *s); /* wipes first */

/* For a file that auth_secret_file_read refused with ERR_PERMISSION: what is wrong with it and what to do, as the rest of a
 * sentence that begins with the file's name. */
enum { AUTH_SECRET_ADVICE_MAX = 4608 };
const char *auth_secret_file_advice(const char *path, char out[AUTH_SECRET_ADVICE_MAX]);

#endif
