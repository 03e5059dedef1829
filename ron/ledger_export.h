/*
 * A ledger's entries for somebody who checks them elsewhere, read and verified by ledger_verify(): docs/formats/ledger.md, Export.
 * The first line holds a signed head and what ties the exported entries to it, so that a part proves as much as the whole.
 *
 * Ownership   Everything is borrowed; nothing of it is kept.
 * Threads     One.
 */
#ifndef RON_LEDGER_EXPORT_H
#define RON_LEDGER_EXPORT_H

#include <stdio.h>

#include "ron/ledger_verify.h"

struct ledger_export {
    const char *dir;
    struct str note, vkey; /* vkey may be empty */
    uint64_t from, to;     /* seqs; to = from - 1: nothing but the first line. to <= size of the note */
    uint64_t size;         /* of the note */
    bool bundles;          /* entries as in tlog entry bundles instead of lines */
};

/* As ledger_verify(). It reads the journal twice: the first line needs the whole of it. Errors of `out` are the caller's to look at. */
int ledger_export(const struct ledger_export *x, FILE *out, struct ledger_verify_report *r);

#endif
