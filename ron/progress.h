/*
 * A line on stderr that says how far long work is, on a terminal only: elsewhere, and with --json, nothing is said. It is drawn over
 * itself at most ten times a second and wiped at the end, so that what a command prints stays alone.
 */
#ifndef RON_PROGRESS_H
#define RON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "ron/cmd.h"

struct progress {
    const char *what; /* "reading usage.csv" */
    int64_t shown_ns;
    bool on;
};

void progress_begin(struct progress *p, const struct cmd_ctx *ctx, const char *what);
/* `of` 0: nobody knows how much there is; then what is done is shown. Cheap enough for every few thousand rows. */
void progress_step(struct progress *p, uint64_t done, uint64_t of);
void progress_clear(struct progress *p); /* before something else is said meanwhile */
void progress_end(struct progress *p);

#endif
