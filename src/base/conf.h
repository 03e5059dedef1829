/*
 * Configuration from one table. A service lists its keys in config.def:
 *
 *   CONF(max_conns, "max_conns", U64, 1024, 1, 65536, CONF_RELOAD, "connections open at once")
 *   CONF(read_timeout_ms, "read_timeout", DURATION, "5s", "10ms", "5m", CONF_RELOAD, "whole request read within")
 *   CONF(fsync_mode, "journal.fsync", ENUM, "data", "data|full|off", , CONF_FIXED, "how a group is flushed")
 *   #include "svc/common_config.def"
 *
 * (id, "section.key", type, default, min, max, flags, help). Default, min and max are written bare or quoted; empty means
 * none. For STRING min..max is the length, for lists the count; for ENUM the min column holds the words.
 *
 *   type       member                 TOML                 environment, flag
 *   BOOL       bool                   true                 true | false
 *   U64 I64    uint64_t int64_t       42                   42
 *   DURATION   int64_t (ms)           "250ms" "5s"         5s
 *   SIZE       uint64_t (bytes)       "64KiB" or 65536     64KiB
 *   FLOAT      double                 0.5 or 1             0.5
 *   STRING     const char * (not NULL) "text"              text
 *   ENUM       int (index of the word) "data"              data
 *   INT_LIST   struct conf_ints       [1, 2]               1,2
 *   STR_LIST   struct conf_strs       ["a", "b"]           a,b
 *   MONEY      struct money           "1000" or 1000       1000
 *
 * From the def come the struct, the table and the documents:
 *
 *   struct ledger_config {
 *   #define CONF CONF_AS_MEMBER
 *   #include "services/ledger/config.def"
 *   #undef CONF
 *   };
 *
 *   #define CONF_STRUCT struct ledger_config
 *   static const struct conf_key keys[] = {
 *   #define CONF CONF_AS_KEY
 *   #include "services/ledger/config.def"
 *   #undef CONF
 *   };
 *   const struct conf_table ledger_conf = {.service = "ledger", .keys = keys, .keys_n = sizeof keys / sizeof keys[0],
 *                                          .config_bytes = sizeof(struct ledger_config), .adjust = ledger_conf_adjust};
 *
 * Precedence: flag > RON_<SERVICE>_<SECTION>_<KEY> > file > default. Anything unknown, mistyped or out of range is an
 * error that names the place, the key and the range.
 *
 * Ownership   A struct conf is one immutable snapshot; it owns the strings its values point to.
 * Threads     A snapshot may be read from any thread.
 * Memory      One arena per snapshot. conf reads no file and no environment itself: the caller brings both.
 */
#ifndef RON_BASE_CONF_H
#define RON_BASE_CONF_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/money.h"

enum conf_type {
    CONF_BOOL,
    CONF_U64,
    CONF_I64,
    CONF_DURATION,
    CONF_SIZE,
    CONF_FLOAT,
    CONF_STRING,
    CONF_ENUM,
    CONF_INT_LIST,
    CONF_STR_LIST,
    CONF_MONEY,
};

enum conf_flags {
    CONF_FIXED = 0,  /* needs a restart */
    CONF_RELOAD = 1, /* may change while running */
    CONF_SECRET = 2, /* never printed */
};

struct conf_ints {
    const int64_t *v;
    size_t n;
};

struct conf_strs {
    const char *const *v;
    size_t n;
};

typedef bool conf_member_BOOL;
typedef uint64_t conf_member_U64;
typedef int64_t conf_member_I64;
typedef int64_t conf_member_DURATION;
typedef uint64_t conf_member_SIZE;
typedef double conf_member_FLOAT;
typedef const char *conf_member_STRING;
typedef int conf_member_ENUM;
typedef struct conf_ints conf_member_INT_LIST;
typedef struct conf_strs conf_member_STR_LIST;
typedef struct money conf_member_MONEY;

struct conf_key {
    const char *name; /* "section.key" */
    enum conf_type type;
    size_t offset;
    const char *default_text, *min_text, *max_text;
    unsigned flags;
    const char *help;
};

#define CONF_AS_MEMBER(id, key, type, def, min, max, flags, help) conf_member_##type id;
/* Two steps, so that a def may name its default by a macro. */
#define CONF_AS_KEY(id, key, type, def, min, max, flags, help)                                             \
    CONF_AS_KEY_(id, key, type, def, min, max, flags, help)
#define CONF_AS_KEY_(id, key, type, def, min, max, flags, help)                                            \
    {key, CONF_##type, offsetof(CONF_STRUCT, id), #def, #min, #max, flags, help},

/* Another default for a key of a shared def, e.g. the port in `bind`. */
struct conf_default {
    const char *name, *text;
};

struct conf;

struct conf_error {
    char key[96];   /* "ledger.max_conns", "" when none */
    unsigned line;  /* of the file, 0 when not from it */
    char text[320]; /* the whole sentence, with place, key and range */
};

struct conf_table {
    const char *service; /* the table of the file, the prefix of the environment */
    const struct conf_key *keys;
    size_t keys_n;
    size_t config_bytes;
    const struct conf_default *defaults; /* ends with {NULL, NULL}; may be NULL */
    /*
     * Runs on the filled struct before it becomes a snapshot: fills in what depends on the machine or on other keys
     * (where conf_is_default says nobody set it) and refuses impossible combinations with conf_refuse. May be NULL.
     */
    enum err (*adjust)(struct conf *c, void *config, struct conf_error *out_err);
};

struct conf_sources {
    const char *file_name; /* for messages; NULL: no file */
    struct str file_text;
    const char *const *env; /* "NAME=value", NULL-terminated; NULL: none */
    const char *const
        *flags; /* "--section.key=value" (the dashes may be missing; a bare BOOL flag means true) */
    size_t flags_n;
    const char *const
        *sections; /* top-level names the file may hold besides ours, NULL-terminated; NULL: any */
};

/* ERR_BAD_REQUEST with *out_err filled; ERR_NO_MEMORY. */
NODISCARD enum err conf_load(const struct conf_table *t, const struct conf_sources *from,
                             struct conf **out_conf, struct conf_error *out_err);
void conf_destroy(struct conf *c);
const void *conf_values(const struct conf *c); /* the service's struct */

/*
 * A new snapshot beside the old one, all or nothing: ERR_BAD_REQUEST when it is invalid, ERR_CONFLICT when a key changed
 * that needs a restart (named in the error). The old one stays as it is and stays the caller's.
 */
NODISCARD enum err conf_reload(const struct conf *old, const struct conf_sources *from,
                               struct conf **out_conf, struct conf_error *out_err);
/* What changed, one "key: old -> new" per line, secrets as ***; returns the number of changed keys. */
size_t conf_diff(const struct conf *old, const struct conf *new, struct buf *out);

/* By name; CHECKs that the key exists. */
bool conf_is_default(const struct conf *c, const char *name);
void conf_format_source(const struct conf *c, const char *name,
                        struct buf *out); /* "default", "ron.toml:12", "env X", "flag" */
void conf_format_value(const struct conf *c, const char *name,
                       struct buf *out); /* as TOML; secrets as "***" */
/* For adjust: fills the error and returns ERR_BAD_REQUEST. */
NODISCARD enum err conf_refuse(const struct conf *c, const char *name, struct conf_error *out_err,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Documents. */
void conf_print(const struct conf *c, struct buf *out); /* effective file, where each value came from */
void conf_example(const struct conf_table *t, struct buf *out); /* TOML with every default as a comment */
void conf_markdown(const struct conf_table *t,
                   struct buf *out); /* | key | type | default | range | reload | help | */
void conf_env_name(const struct conf_table *t, const char *name,
                   struct buf *out); /* RON_LEDGER_HTTP_THREADS */

#endif
