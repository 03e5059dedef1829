/*
 * The protobuf wire format, read and written in place: for messages so frequent that objects in between would cost more than
 * the work they describe. Everything else uses the generated code.
 *
 *   field    varint key = number << 3 | type, then by type: 0 varint, 1 eight bytes, 2 varint length and bytes, 5 four bytes
 *
 * Reading     A loop over wire_next(), a switch over wire_key(). What is not known is skipped, as the format asks; `bad` says
 *             that the bytes were no message. Bytes are borrowed views into the input.
 * Writing     Pointers move forward; the caller has made room (the _size functions say how much). Like the generated code of
 *             proto3, a number 0 is not written; whether empty bytes are is the caller's choice.
 * Threads     Pure functions.
 */
#ifndef RON_BASE_WIRE_H
#define RON_BASE_WIRE_H

#include "base/bytes.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire {
    const uint8_t *p, *end;
    bool bad;
};

struct wire_field {
    uint32_t key;      /* as wire_key() makes it */
    uint64_t number;   /* of varints */
    struct bytes text; /* of bytes */
};

static inline struct wire wire_of(struct bytes b)
{
    return (struct wire){b.p, b.p + b.n, false};
}

#define wire_key(member, type) ((uint32_t)(member) << 3 | (uint32_t)(type))

static inline uint32_t wire_member(uint32_t key)
{
    return key >> 3;
}

static inline bool wire_varint(struct wire *w, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        uint8_t b = *w->p++;
        if (shift == 63 && b > 1)
            return false; /* more than 64 bits */
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* Keys and lengths have 32 bits, and, as in the generated code, no more bytes than that takes. */
static inline bool wire_short(struct wire *w, uint64_t *out)
{
    const uint8_t *from = w->p;
    return wire_varint(w, out) && w->p - from <= 5 && *out <= UINT32_MAX;
}

static inline bool wire_skip(struct wire *w, uint64_t n)
{
    if (n > (uint64_t)(w->end - w->p))
        return false;
    w->p += n;
    return true;
}

static inline bool wire_value(struct wire *w, struct wire_field *f)
{
    switch (f->key & 7) {
    case WIRE_VARINT:
        return wire_varint(w, &f->number);
    case WIRE_BYTES: {
        uint64_t n;
        if (!wire_short(w, &n) || !wire_skip(w, n))
            return false;
        f->text = bytes_of(w->p - n, (size_t)n);
        return true;
    }
    case WIRE_FIXED64:
        return wire_skip(w, 8);
    case WIRE_FIXED32:
        return wire_skip(w, 4);
    default: /* groups are gone from the format */
        return false;
    }
}

/* The next field; false at the end, or with `bad` set. */
static inline bool wire_next(struct wire *w, struct wire_field *out)
{
    uint64_t key;
    if (w->p == w->end || w->bad)
        return false;
    if (!wire_short(w, &key) || key >> 3 == 0) {
        w->bad = true;
        return false;
    }
    out->key = (uint32_t)key;
    w->bad = !wire_value(w, out);
    return !w->bad;
}

static inline size_t wire_varint_size(uint64_t v)
{
    return (size_t)(9 * (64 - __builtin_clzll(v | 1)) + 64) / 64; /* ceil(bits / 7) for 1..64 bits */
}

static inline uint8_t *wire_put_varint(uint8_t *p, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

/* Members up to 15, whose key is one byte. */
static inline size_t wire_number_size(uint64_t v)
{
    return v == 0 ? 0 : 1 + wire_varint_size(v);
}

static inline size_t wire_bytes_size(size_t n)
{
    return 1 + wire_varint_size(n) + n;
}

static inline uint8_t *wire_put_number(uint8_t *p, unsigned member, uint64_t v)
{
    if (v == 0)
        return p;
    *p++ = (uint8_t)wire_key(member, WIRE_VARINT);
    return wire_put_varint(p, v);
}

/* Key and length; the n bytes follow. */
static inline uint8_t *wire_put_head(uint8_t *p, unsigned member, size_t n)
{
    *p++ = (uint8_t)wire_key(member, WIRE_BYTES);
    return wire_put_varint(p, n);
}

static inline uint8_t *wire_put_bytes(uint8_t *p, unsigned member, const void *from, size_t n)
{
    p = wire_put_head(p, member, n);
    if (n > 0)
        memcpy(p, from, n);
    return p + n;
}

#endif
