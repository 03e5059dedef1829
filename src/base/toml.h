/*
 * Strict TOML 1.0 (https://toml.io/en/v1.0.0) into a tree.
 *
 * Ownership   Everything lives in the arena; the text may go after the call.
 * Threads     Pure but for the arena.
 * Order       Entries of a table come in the order of their first appearance.
 */
#ifndef RON_BASE_TOML_H
#define RON_BASE_TOML_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

enum toml_type {
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOL,
    TOML_OFFSET_DATETIME, /* dates and times are checked and kept as text */
    TOML_LOCAL_DATETIME,
    TOML_LOCAL_DATE,
    TOML_LOCAL_TIME,
    TOML_ARRAY,
    TOML_TABLE,
};

struct toml_value;
struct toml_entry;

struct toml_table {
    struct toml_entry *first, *last;
    size_t n;
    int how; /* toml.c's: how it came about, and so what may still be added */
};

struct toml_array {
    struct toml_value *items;
    size_t n;
    size_t cap;
    bool of_tables; /* made with [[name]] */
};

struct toml_value {
    enum toml_type type;
    unsigned line, column; /* where it stands, from 1 */
    union {
        struct str string; /* also dates and times */
        int64_t integer;
        double real;
        bool boolean;
        struct toml_array array;
        struct toml_table table;
    };
};

struct toml_entry {
    struct toml_entry *next;
    struct str key;
    struct toml_value value;
    unsigned line; /* of the key */
};

struct toml_error {
    unsigned line, column;
    char text[160];
};

enum { TOML_DEPTH_MAX = 64 };

/* ERR_SYNTAX with *out_err filled, or ERR_TOO_LARGE when the arena is full. The root is of type TOML_TABLE. */
NODISCARD enum err toml_parse(struct str text, struct arena *arena, struct toml_value **out_root,
                              struct toml_error *out_err);
const struct toml_entry *toml_find(const struct toml_table *t,
                                   struct str key); /* one level; NULL when absent */
const char *toml_type_name(enum toml_type t);       /* "string", "integer", ... */

#endif
