/*
 * The lexical half of json_read.h: white space, strings, numbers, literals, and skipping a whole value.
 * Used only by json_scan.c and json_read.c. Every function moves in->p behind what it read, or reports and
 * returns an error.
 */
#ifndef RON_BASE_JSON_SCAN_H
#define RON_BASE_JSON_SCAN_H

#include "base/json_read.h"

/* Where we are, for the path in an error: a member name, or an index when name.p is NULL. */
struct json_frame {
    const struct json_frame *up;
    struct str name;
    size_t index;
};

struct json_in {
    const uint8_t *start, *p, *end;
    struct arena *arena;
    struct json_error *error;
    const struct json_frame *frame;
    unsigned depth;
    bool lax;
};

/* The names of one object seen so far, to find a duplicate: a short list, then a hash set. */
enum { JSON_NAMES_SHORT = 16 };
struct json_names {
    struct str first[JSON_NAMES_SHORT];
    size_t n;
    struct str *set; /* open addressing, in the arena */
    size_t set_slots;
};

/* Not all of it: the list is written before it is read. */
static inline void json__names_init(struct json_names *names)
{
    names->n = names->set_slots = 0;
    names->set = NULL;
}

enum err json__fail(struct json_in *in, enum json_reason reason); /* at in->p, under in->frame */
void json__space(struct json_in *in);
int json__peek(struct json_in *in);                 /* after white space; -1 at the end */
bool json__take(struct json_in *in, char c);        /* when it is next after white space */
NODISCARD enum err json__enter(struct json_in *in); /* one level deeper; the bracket is already taken */
NODISCARD enum err json__string(struct json_in *in,
                                struct str *out); /* at the quote; copied into the arena */
NODISCARD enum err json__name(struct json_in *in,
                              struct str *out); /* member name and colon; may point into the body */
NODISCARD enum err json__number(struct json_in *in, struct str *out, bool *out_integer); /* as written */
NODISCARD enum err json__bool(struct json_in *in, bool *out);
NODISCARD enum err json__skip(struct json_in *in); /* any value */
NODISCARD enum err json__names_add(struct json_in *in, struct json_names *names,
                                   struct str name); /* JSON_DUPLICATE */
/* Between members or items: true when another follows, false at `close` (which is taken). *first says none
 * came yet. */
NODISCARD enum err json__next(struct json_in *in, char close, bool *first, bool *out_more);

#endif
