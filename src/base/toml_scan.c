/*
 * Strings, numbers and dates of TOML 1.0. A scalar without quotes is first taken as one word, then the word is tried as
 * each of the types it could be; so an error can quote the place where the word begins.
 */
#include "base/toml_scan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

enum err toml__fail(struct toml_in *in, const char *at, const char *format, ...)
{
    in->error->line = in->line;
    in->error->column = at >= in->line_start ? (unsigned)(at - in->line_start) + 1 : 1;
    va_list args;
    va_start(args, format);
    vsnprintf(in->error->text, sizeof in->error->text, format, args);
    va_end(args);
    return ERR_SYNTAX;
}

enum err toml__full(struct toml_in *in)
{
    (void)toml__fail(in, in->p, "the document is too large");
    return ERR_TOO_LARGE;
}

int toml__peek(const struct toml_in *in)
{
    return in->p < in->end ? (unsigned char)*in->p : -1;
}

static bool next_is(const struct toml_in *in, struct str s)
{
    return (size_t)(in->end - in->p) >= s.n && memcmp(in->p, s.p, s.n) == 0;
}

void toml__blanks(struct toml_in *in)
{
    while (in->p < in->end && (*in->p == ' ' || *in->p == '\t'))
        in->p++;
}

bool toml__at_newline(const struct toml_in *in)
{
    return next_is(in, STR("\n")) || next_is(in, STR("\r\n"));
}

void toml__newline(struct toml_in *in)
{
    in->p += *in->p == '\r' ? 2 : 1;
    in->line++;
    in->line_start = in->p;
}

static bool is_control(int c)
{
    return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7f;
}

enum err toml__comment(struct toml_in *in)
{
    while (in->p < in->end && !toml__at_newline(in)) {
        if (is_control(toml__peek(in)))
            return toml__fail(in, in->p, "control character in a comment");
        in->p++;
    }
    return ERR_OK;
}

enum err toml__line_end(struct toml_in *in)
{
    toml__blanks(in);
    if (toml__peek(in) == '#') {
        enum err e = toml__comment(in);
        if (e != ERR_OK)
            return e;
    }
    if (in->p == in->end)
        return ERR_OK;
    if (!toml__at_newline(in))
        return toml__fail(in, in->p, "expected the end of the line");
    toml__newline(in);
    return ERR_OK;
}

enum err toml__space_lines(struct toml_in *in)
{
    for (;;) {
        toml__blanks(in);
        if (toml__peek(in) == '#') {
            enum err e = toml__comment(in);
            if (e != ERR_OK)
                return e;
        }
        if (!toml__at_newline(in))
            return ERR_OK;
        toml__newline(in);
    }
}

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

enum err toml__key(struct toml_in *in, struct str *out)
{
    if (toml__peek(in) == '"' || toml__peek(in) == '\'') {
        if (next_is(in, STR("\"\"\"")) || next_is(in, STR("'''")))
            return toml__fail(in, in->p, "a key cannot be a multi-line string");
        return toml__string(in, out);
    }
    const char *from = in->p;
    while (is_bare(toml__peek(in)))
        in->p++;
    if (in->p == from)
        return toml__fail(in, in->p, "expected a key");
    return arena_str(in->arena, str_of(from, (size_t)(in->p - from)), out) ? ERR_OK : toml__full(in);
}

/* ---- strings ---- */

static size_t utf8_put(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[n] | code);
    return n;
}

/* \uXXXX or \UXXXXXXXX; in->p stands behind the letter. */
static enum err unicode_escape(struct toml_in *in, int digits, char *out, size_t *n)
{
    const char *from = in->p;
    uint32_t code = 0;
    for (int i = 0; i < digits; i++, in->p++) {
        int c = toml__peek(in);
        int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (v < 0)
            return toml__fail(in, from, "expected %d hexadecimal digits", digits);
        code = code << 4 | (uint32_t)v;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return toml__fail(in, from, "not a Unicode scalar value");
    *n += utf8_put(code, out + *n);
    return ERR_OK;
}

/* in->p stands behind the backslash. Results are never longer than their escapes. */
static enum err escape(struct toml_in *in, char *out, size_t *n)
{
    static const char letters[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    int c = toml__peek(in);
    const char *at = c > 0 ? strchr(letters, c) : NULL;
    if (at) {
        in->p++;
        out[(*n)++] = values[at - letters];
        return ERR_OK;
    }
    if (c != 'u' && c != 'U')
        return toml__fail(in, in->p, "unknown escape");
    in->p++;
    return unicode_escape(in, c == 'u' ? 4 : 8, out, n);
}

/* A backslash at the end of a line: it and all white space up to the next character vanish. False: it was none. */
static bool line_continuation(struct toml_in *in)
{
    const char *before = in->p;
    toml__blanks(in);
    if (!toml__at_newline(in)) {
        in->p = before;
        return false;
    }
    while (toml__at_newline(in)) {
        toml__newline(in);
        toml__blanks(in);
    }
    return true;
}

/* Room for the decoded text: what is left of the document bounds it, but a short look ahead is much tighter. */
static char *string_room(struct toml_in *in, char quote, bool multi)
{
    const char *p = in->p;
    int run = 0;
    for (; p < in->end && run < (multi ? 3 : 1); p++) {
        if (!multi && *p == '\n')
            break;
        if (quote == '"' && *p == '\\' && p + 1 < in->end) {
            p++;
            run = 0;
        } else {
            run = *p == quote ? run + 1 : 0;
        }
    }
    return arena_alloc(in->arena, (size_t)(p - in->p) + 4);
}

static enum err single_line(struct toml_in *in, char quote, struct str *out)
{
    const char *open = in->p++;
    char *text = string_room(in, quote, false);
    if (!text)
        return toml__full(in);
    size_t n = 0;
    for (;;) {
        int c = toml__peek(in);
        if (c < 0 || c == '\n' || c == '\r')
            return toml__fail(in, open, "string is not closed");
        if (is_control(c))
            return toml__fail(in, in->p, "control character in a string");
        in->p++;
        if (c == quote)
            break;
        if (c == '\\' && quote == '"') {
            enum err e = escape(in, text, &n);
            if (e != ERR_OK)
                return e;
        } else {
            text[n++] = (char)c;
        }
    }
    text[n] = '\0';
    *out = str_of(text, n);
    return ERR_OK;
}

/* At a quote inside a multi-line string: three end it; one or two more before the end belong to the text. */
static bool multi_line_end(struct toml_in *in, char quote, char *text, size_t *n)
{
    size_t run = 0;
    while (run < 5 && in->p + run < in->end && in->p[run] == quote)
        run++;
    in->p += run;
    size_t kept = run >= 3 ? run - 3 : run;
    memset(text + *n, quote, kept);
    *n += kept;
    return run >= 3;
}

static enum err multi_line(struct toml_in *in, char quote, struct str *out)
{
    const struct toml_in open = *in;
    in->p += 3;
    if (toml__at_newline(in))
        toml__newline(in);
    char *text = string_room(in, quote, true);
    if (!text)
        return toml__full(in);
    size_t n = 0;
    for (;;) {
        int c = toml__peek(in);
        if (c < 0) {
            in->line = open.line;
            in->line_start = open.line_start;
            return toml__fail(in, open.p, "string is not closed");
        }
        if (toml__at_newline(in)) {
            toml__newline(in);
            text[n++] = '\n';
        } else if (is_control(c)) {
            return toml__fail(in, in->p, "control character in a string");
        } else if (c == quote) {
            if (multi_line_end(in, quote, text, &n))
                break;
        } else if (c == '\\' && quote == '"') {
            in->p++;
            enum err e = line_continuation(in) ? ERR_OK : escape(in, text, &n);
            if (e != ERR_OK)
                return e;
        } else {
            text[n++] = *in->p++;
        }
    }
    text[n] = '\0';
    *out = str_of(text, n);
    return ERR_OK;
}

enum err toml__string(struct toml_in *in, struct str *out)
{
    char quote = *in->p;
    if (next_is(in, quote == '"' ? STR("\"\"\"") : STR("'''")))
        return multi_line(in, quote, out);
    return single_line(in, quote, out);
}

/* ---- dates and times ---- */

static bool two_digits(struct str s, size_t at, int *out)
{
    if (at + 2 > s.n || s.p[at] < '0' || s.p[at] > '9' || s.p[at + 1] < '0' || s.p[at + 1] > '9')
        return false;
    *out = (s.p[at] - '0') * 10 + (s.p[at + 1] - '0');
    return true;
}

static bool char_at(struct str s, size_t at, const char *allowed)
{
    return at < s.n && s.p[at] && strchr(allowed, s.p[at]);
}

static bool date_ok(struct str s)
{
    int century, year, month, day;
    if (s.n != 10 || !two_digits(s, 0, &century) || !two_digits(s, 2, &year) || !char_at(s, 4, "-") ||
        !two_digits(s, 5, &month) || !char_at(s, 7, "-") || !two_digits(s, 8, &day))
        return false;
    year += century * 100;
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1] + (month == 2 && leap);
}

/* hh:mm:ss[.fraction] at the start of s; the length, or 0. */
static size_t time_length(struct str s)
{
    int hour, minute, second;
    if (!two_digits(s, 0, &hour) || !char_at(s, 2, ":") || !two_digits(s, 3, &minute) ||
        !char_at(s, 5, ":") || !two_digits(s, 6, &second) || hour > 23 || minute > 59 || second > 59)
        return 0;
    size_t n = 8;
    if (!char_at(s, n, "."))
        return n;
    size_t digits = 0;
    while (char_at(s, n + 1 + digits, "0123456789"))
        digits++;
    return digits ? n + 1 + digits : 0;
}

static bool offset_ok(struct str s)
{
    if (s.n == 1)
        return char_at(s, 0, "Zz");
    int hour, minute;
    return s.n == 6 && char_at(s, 0, "+-") && two_digits(s, 1, &hour) && char_at(s, 3, ":") &&
           two_digits(s, 4, &minute) && hour <= 23 && minute <= 59;
}

static bool as_datetime(struct str word, enum toml_type *out_type)
{
    if (char_at(word, 2, ":")) {
        *out_type = TOML_LOCAL_TIME;
        return time_length(word) == word.n;
    }
    if (word.n < 10 || !date_ok(str_of(word.p, 10)))
        return false;
    *out_type = TOML_LOCAL_DATE;
    if (word.n == 10)
        return true;
    if (!char_at(word, 10, "Tt "))
        return false;
    struct str rest = str_of(word.p + 11, word.n - 11);
    size_t n = time_length(rest);
    if (n == 0)
        return false;
    *out_type = n == rest.n ? TOML_LOCAL_DATETIME : TOML_OFFSET_DATETIME;
    return n == rest.n || offset_ok(str_of(rest.p + n, rest.n - n));
}

static bool looks_like_datetime(struct str word)
{
    int ignored;
    return char_at(word, 2, ":") ||
           (char_at(word, 4, "-") && two_digits(word, 0, &ignored) && two_digits(word, 2, &ignored));
}

/* ---- numbers ---- */

/* Copies the digits of a run like 1_000 (each '_' between digits); the length used, or 0. */
static size_t digit_run(struct str s, const char *alphabet, char *out, size_t *out_n)
{
    size_t i = 0;
    bool digit_before = false;
    for (; i < s.n; i++) {
        if (char_at(s, i, alphabet)) {
            out[(*out_n)++] = s.p[i];
            digit_before = true;
        } else if (s.p[i] == '_' && digit_before && char_at(s, i + 1, alphabet)) {
            digit_before = false;
        } else {
            break;
        }
    }
    return i;
}

static bool as_radix(struct str word, int64_t *out)
{
    if (word.n < 3 || word.p[0] != '0' || !char_at(word, 1, "xob"))
        return false;
    char radix = word.p[1], digits[80];
    const char *alphabet = radix == 'x' ? "0123456789abcdefABCDEF" : radix == 'o' ? "01234567" : "01";
    struct str rest = str_of(word.p + 2, word.n - 2);
    size_t n = 0;
    if (rest.n >= sizeof digits || digit_run(rest, alphabet, digits, &n) != rest.n || n == 0)
        return false;
    digits[n] = '\0';
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned base = radix == 'x' ? 16 : radix == 'o' ? 8 : 2;
        char c = digits[i];
        unsigned digit = c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 32) - 'a') + 10;
        if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    if (value > INT64_MAX)
        return false;
    *out = (int64_t)value;
    return true;
}

struct decimal {
    char *text; /* without underscores, terminated */
    size_t n;
    bool integer;
};

/* [+-] digits [. digits] [e [+-] digits], no leading zeros in front. */
static bool as_decimal(struct str word, struct decimal *d)
{
    static const char ten[] = "0123456789";
    size_t i = 0, n = 0;
    if (char_at(word, 0, "+-"))
        d->text[n++] = word.p[i++];
    size_t first = n;
    size_t used = digit_run(str_of(word.p + i, word.n - i), ten, d->text, &n);
    if (used == 0 || (d->text[first] == '0' && n - first > 1))
        return false;
    i += used;
    d->integer = true;
    if (char_at(word, i, ".")) {
        d->integer = false;
        d->text[n++] = word.p[i++];
        used = digit_run(str_of(word.p + i, word.n - i), ten, d->text, &n);
        if (used == 0)
            return false;
        i += used;
    }
    if (char_at(word, i, "eE")) {
        d->integer = false;
        d->text[n++] = word.p[i++];
        if (char_at(word, i, "+-"))
            d->text[n++] = word.p[i++];
        used = digit_run(str_of(word.p + i, word.n - i), ten, d->text, &n);
        if (used == 0)
            return false;
        i += used;
    }
    d->text[n] = '\0';
    d->n = n;
    return i == word.n;
}

static bool decimal_integer(const struct decimal *d, int64_t *out)
{
    struct str s = str_of(d->text, d->n);
    if (s.p[0] == '+' || str_eq(s, STR("-0")))
        s = str_of(s.p + 1, s.n - 1);
    return str_parse_i64(s, out) == ERR_OK;
}

static bool as_special_float(struct str word, double *out)
{
    bool negative = word.n && word.p[0] == '-';
    if (char_at(word, 0, "+-"))
        word = str_of(word.p + 1, word.n - 1);
    if (str_eq(word, STR("inf")))
        *out = negative ? -INFINITY : INFINITY;
    else if (str_eq(word, STR("nan")))
        *out = negative ? -NAN : NAN;
    else
        return false;
    return true;
}

/* ---- the word ---- */

static bool is_word(int c)
{
    return is_bare(c) || c == '+' || c == '.' || c == ':';
}

static struct str take_word(struct toml_in *in)
{
    const char *from = in->p;
    while (is_word(toml__peek(in)))
        in->p++;
    /* A date and a time may be joined by one space. */
    if (in->p - from == 10 && from[4] == '-' && in->end - in->p >= 4 && in->p[0] == ' ' &&
        in->p[1] >= '0' && in->p[1] <= '9' && in->p[3] == ':') {
        in->p++;
        while (is_word(toml__peek(in)))
            in->p++;
    }
    return str_of(from, (size_t)(in->p - from));
}

static enum err number(struct toml_in *in, struct str word, struct toml_value *out)
{
    if (as_radix(word, &out->integer)) {
        out->type = TOML_INTEGER;
        return ERR_OK;
    }
    struct decimal d = {.text = arena_alloc(in->arena, word.n + 1)};
    if (!d.text)
        return toml__full(in);
    if (!as_decimal(word, &d))
        return toml__fail(in, word.p, "not a value: strings need quotes, numbers no leading zeros");
    if (!d.integer) {
        out->type = TOML_FLOAT;
        out->real = strtod(d.text, NULL);
        return ERR_OK;
    }
    out->type = TOML_INTEGER;
    if (!decimal_integer(&d, &out->integer))
        return toml__fail(in, word.p, "integer does not fit 64 bits");
    return ERR_OK;
}

enum err toml__scalar(struct toml_in *in, struct toml_value *out)
{
    struct str word = take_word(in);
    if (word.n == 0)
        return toml__fail(in, in->p, "expected a value");
    if (str_eq(word, STR("true")) || str_eq(word, STR("false"))) {
        out->type = TOML_BOOL;
        out->boolean = word.n == 4;
        return ERR_OK;
    }
    if (as_special_float(word, &out->real)) {
        out->type = TOML_FLOAT;
        return ERR_OK;
    }
    if (!looks_like_datetime(word))
        return number(in, word, out);
    if (!as_datetime(word, &out->type))
        return toml__fail(in, word.p, "not a date or time");
    return arena_str(in->arena, word, &out->string) ? ERR_OK : toml__full(in);
}
