/* The lexical half of toml.h: characters, keys, strings, numbers, dates. Used only by toml_scan.c and toml.c. */
#ifndef RON_BASE_TOML_SCAN_H
#define RON_BASE_TOML_SCAN_H

#include "base/toml.h"

struct toml_in {
    const char *p, *end, *line_start;
    unsigned line, depth;
    struct arena *arena;
    struct toml_error *error;
};

/* Fills the error with the place of `at` and returns ERR_SYNTAX. */
enum err toml__fail(struct toml_in *in, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum err toml__full(struct toml_in *in); /* the arena is full: ERR_TOO_LARGE */

int toml__peek(const struct toml_in *in); /* -1 at the end */
void toml__blanks(struct toml_in *in);    /* spaces and tabs */
bool toml__at_newline(const struct toml_in *in);
void toml__newline(struct toml_in *in);               /* takes LF or CRLF, which must be next */
NODISCARD enum err toml__comment(struct toml_in *in); /* at '#': up to the end of the line */
NODISCARD enum err
toml__line_end(struct toml_in *in); /* blanks, perhaps a comment, then newline or the end */
NODISCARD enum err
toml__space_lines(struct toml_in *in); /* blanks, comments and newlines, as inside an array */

NODISCARD enum err toml__key(struct toml_in *in, struct str *out); /* one part: bare or quoted */
NODISCARD enum err toml__string(struct toml_in *in,
                                struct str *out); /* any of the four kinds, at its quote */
NODISCARD enum err toml__scalar(struct toml_in *in,
                                struct toml_value *out); /* bool, number, date or time */

#endif
