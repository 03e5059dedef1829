#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"

enum { BUF_FIRST_BYTES = 256 };

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_init_fixed(struct buf *b, void *storage, size_t n)
{
    *b = (struct buf){.p = storage, .cap = n, .max = n, .fixed = true};
}

void buf_fini(struct buf *b)
{
    if (!b->fixed)
        free(b->p);
    *b = (struct buf){.max = b->fixed ? 0 : b->max};
}

void buf_reset(struct buf *b)
{
    b->n = 0;
    b->err = ERR_OK;
}

static bool buf_grow(struct buf *b, size_t need)
{
    if (need > b->max || b->fixed) {
        b->err = ERR_TOO_LARGE;
        return false;
    }
    size_t cap = b->cap ? b->cap : BUF_FIRST_BYTES;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
    if (cap > b->max)
        cap = b->max;
    uint8_t *p = realloc(b->p, cap);
    if (!p) {
        b->err = ERR_NO_MEMORY;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

uint8_t *buf_make_room(struct buf *b, size_t n)
{
    if (b->err != ERR_OK)
        return NULL;
    if (n > SIZE_MAX - b->n) {
        b->err = ERR_TOO_LARGE;
        return NULL;
    }
    if (b->n + n > b->cap && !buf_grow(b, b->n + n))
        return NULL;
    return b->p ? b->p + b->n : (buf_grow(b, 1) ? b->p : NULL);
}

void buf_commit(struct buf *b, size_t n)
{
    CHECK(n <= b->cap - b->n);
    b->n += n;
}

void buf_put(struct buf *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    uint8_t *at = buf_reserve(b, n);
    if (!at)
        return;
    memcpy(at, p, n);
    b->n += n;
}

void buf_putc(struct buf *b, char c)
{
    if (b->n < b->cap && b->err == ERR_OK)
        b->p[b->n++] = (uint8_t)c;
    else
        buf_put(b, &c, 1);
}

void buf_puts(struct buf *b, const char *c_string)
{
    buf_put(b, c_string, strlen(c_string));
}

void buf_put_str(struct buf *b, struct str s)
{
    buf_put(b, s.p, s.n);
}

void buf_put_bytes(struct buf *b, struct bytes bytes)
{
    buf_put(b, bytes.p, bytes.n);
}

void buf_put_u64(struct buf *b, uint64_t decimal)
{
    char text[STR_NUMBER_CHARS];
    buf_put(b, text, str_format_u64(decimal, text));
}

void buf_vprintf(struct buf *b, const char *format, va_list args)
{
    if (b->err != ERR_OK)
        return;
    va_list again;
    va_copy(again, args);
    size_t room = b->cap - b->n;
    int n = vsnprintf(room ? (char *)b->p + b->n : NULL, room, format, args);
    CHECK(n >= 0);
    if ((size_t)n >= room) {
        /* vsnprintf also writes a terminator, which does not count against max: print aside when only it is
         * over. */
        char *text = malloc((size_t)n + 1);
        if (!text) {
            b->err = ERR_NO_MEMORY;
        } else {
            vsnprintf(text, (size_t)n + 1, format, again);
            buf_put(b, text, (size_t)n);
            free(text);
        }
    } else {
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

void buf_truncate(struct buf *b, size_t n)
{
    CHECK(n <= b->n);
    b->n = n;
}

void buf_consume(struct buf *b, size_t n)
{
    CHECK(n <= b->n);
    if (n == 0)
        return;
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

struct bytes buf_bytes(const struct buf *b)
{
    return (struct bytes){b->p, b->n};
}

struct str buf_str(const struct buf *b)
{
    return (struct str){(const char *)b->p, b->n};
}

const char *buf_cstr(struct buf *b)
{
    if (b->n == b->cap) {
        /* The terminator is not content: it may go one byte over max, but not into a fixed buffer's
         * neighbour. */
        if (b->fixed) {
            CHECK(b->cap > 0);
            b->n--;
            b->err = ERR_TOO_LARGE;
        } else {
            uint8_t *p = realloc(b->p, b->n + 1);
            if (!p) {
                b->err = ERR_NO_MEMORY;
                return "";
            }
            b->p = p; /* cap stays: the extra byte is only ever the terminator's */
        }
    }
    b->p[b->n] = '\0';
    return (const char *)b->p;
}

uint8_t *buf_take(struct buf *b, size_t *out_n)
{
    CHECK(!b->fixed);
    uint8_t *p = b->p;
    *out_n = b->n;
    *b = (struct buf){.max = b->max};
    return p;
}
