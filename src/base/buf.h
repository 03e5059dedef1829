/*
 * Growable byte buffer with a hard maximum and a sticky error: write everything, look once at the end.
 *
 * Ownership   The buffer owns its bytes until buf_take; buf_init_fixed borrows the caller's storage
 * instead. Threads     One at a time. Memory      Doubles with realloc up to max; a fixed buffer never
 * allocates. After an error nothing more is written and b.err says ERR_TOO_LARGE (max reached) or
 * ERR_NO_MEMORY; the bytes before it stay.
 */
#ifndef RON_BASE_BUF_H
#define RON_BASE_BUF_H

#include <stdarg.h>

#include "base/bytes.h"
#include "base/err.h"

struct buf {
    uint8_t *p;
    size_t n, cap, max;
    enum err err;
    bool fixed;
};

void buf_init(struct buf *b, size_t max);
void buf_init_fixed(struct buf *b, void *storage, size_t n);
void buf_fini(struct buf *b);
void buf_reset(struct buf *b); /* empty, error cleared, memory kept */

void buf_put(struct buf *b, const void *p, size_t n);
void buf_putc(struct buf *b, char c);
void buf_puts(struct buf *b, const char *c_string);
void buf_put_str(struct buf *b, struct str s);
void buf_put_bytes(struct buf *b, struct bytes bytes);
void buf_put_u64(struct buf *b, uint64_t decimal);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* Room for n more bytes at the end, or NULL with the error set; buf_commit says how many were used. */
uint8_t *buf_make_room(struct buf *b, size_t n);
static inline uint8_t *buf_reserve(struct buf *b, size_t n)
{
    return b->p && n <= b->cap - b->n && b->err == ERR_OK ? b->p + b->n : buf_make_room(b, n);
}
void buf_commit(struct buf *b, size_t n);

void buf_truncate(struct buf *b, size_t n); /* n <= b->n */
void buf_consume(struct buf *b, size_t n);  /* drops the first n bytes, moving the rest */

struct bytes buf_bytes(const struct buf *b);
struct str buf_str(const struct buf *b);
const char *buf_cstr(struct buf *b); /* terminated view; "" after an error in an empty buffer */
uint8_t *buf_take(struct buf *b,
                  size_t *out_n); /* the caller frees; the buffer is empty again. Not for fixed ones. */

#endif
