/*
 * A ledger in one file: a tar (ustar) inside zstd, with the superblock, the journal up to a durable group end, the signed note of
 * that head, and SHA256SUMS of all of it last. `tar --zstd -tf` lists it, `sha256sum -c` checks it.
 *
 * It may also hold what is derived from the journal: groups, tree/, index/, state/, ckpt/. Only names that a ledger has are read
 * back, and only as plain files.
 *
 * Threads     One.
 */
#ifndef RON_LEDGER_ARCHIVE_H
#define RON_LEDGER_ARCHIVE_H

#include <stdint.h>

#include "base/err.h"

struct ledger_archive_report {
    uint64_t files, bytes; /* inside */
    char why[200];         /* a sentence, when it failed */
};

/* Packs `dir` (as POST /admin/snapshot leaves it) into the new file `path`; it appears only when it is whole and flushed. */
NODISCARD enum err ledger_archive_pack(const char *dir, const char *path,
                                       struct ledger_archive_report *out);

/* Unpacks into `dir`, which must exist and be empty. Every file must be listed in SHA256SUMS and match: ERR_CORRUPT otherwise,
 * ERR_EXISTS when the directory is not empty. What was unpacked stays for the caller to remove. */
NODISCARD enum err ledger_archive_unpack(const char *path, const char *dir,
                                         struct ledger_archive_report *out);

#endif
