/* One value of the configuration: from text, from TOML, its range, and back to text. Used only by conf*.c. */
#ifndef RON_BASE_CONF_VALUE_H
#define RON_BASE_CONF_VALUE_H

#include "base/arena.h"
#include "base/conf.h"
#include "base/toml.h"

enum conf_from { CONF_FROM_DEFAULT, CONF_FROM_ADJUST, CONF_FROM_FILE, CONF_FROM_ENV, CONF_FROM_FLAG };

struct conf_origin {
    enum conf_from from;
    unsigned line;
};

struct conf {
    const struct conf_table *table;
    struct arena arena;
    void *values;
    struct conf_origin *origins; /* one per key */
    const char *file_name;
};

enum { CONF_WHY_CHARS = 200 };

/* The columns of a def arrive as written, perhaps with quotes around them. */
struct str conf__literal(const char *column);
struct str conf__default(const struct conf_table *t, const struct conf_key *k);

/* Parse and check the range; the slot is written only on ERR_OK. why gets the reason, without place and key. */
NODISCARD enum err conf__parse_text(struct arena *a, const struct conf_key *k, struct str text, void *slot,
                                    char why[CONF_WHY_CHARS]);
NODISCARD enum err conf__parse_toml(struct arena *a, const struct conf_key *k, const struct toml_value *v,
                                    void *slot, char why[CONF_WHY_CHARS]);
void conf__format(const struct conf_key *k, const void *slot, struct buf *out); /* as TOML, secrets too */
void conf__format_range(const struct conf_key *k, struct buf *out); /* "1..65536", "a|b|c", "" */
const char *conf__type_name(enum conf_type t);

#endif
