#include "base/str.h"

enum err str_parse_u64(struct str s, uint64_t *out_value)
{
    if (s.n == 0 || (s.p[0] == '0' && s.n > 1))
        return ERR_SYNTAX;
    uint64_t value = 0;
    bool over = false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';
        if (digit > 9)
            return ERR_SYNTAX;
        over |= __builtin_mul_overflow(value, (uint64_t)10, &value);
        over |= __builtin_add_overflow(value, (uint64_t)digit, &value);
    }
    if (over)
        return ERR_RANGE;
    *out_value = value;
    return ERR_OK;
}

enum err str_parse_i64(struct str s, int64_t *out_value)
{
    bool negative = s.n > 0 && s.p[0] == '-';
    uint64_t value;
    enum err e = str_parse_u64(negative ? str_of(s.p + 1, s.n - 1) : s, &value);
    if (e != ERR_OK)
        return e;
    if (negative && value == 0)
        return ERR_SYNTAX;
    if (value > (uint64_t)INT64_MAX + negative)
        return ERR_RANGE;
    *out_value = negative ? (int64_t)(0 - value) : (int64_t)value;
    return ERR_OK;
}

struct unit {
    struct str name;
    uint64_t factor;
};

static const struct unit duration_units[] = {
    {STR_INIT("d"), 86400000}, {STR_INIT("h"), 3600000}, {STR_INIT("m"), 60000},
    {STR_INIT("s"), 1000},     {STR_INIT("ms"), 1},
};

static const struct unit size_units[] = {
    {STR_INIT("TiB"), 1ull << 40},
    {STR_INIT("GiB"), 1ull << 30},
    {STR_INIT("MiB"), 1ull << 20},
    {STR_INIT("KiB"), 1ull << 10},
    {STR_INIT(""), 1},
};

static enum err parse_with_unit(struct str s, const struct unit *units, size_t count, uint64_t *out)
{
    size_t digits = 0;
    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9')
        digits++;
    uint64_t value;
    enum err e = str_parse_u64(str_of(s.p, digits), &value);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < count; i++) {
        if (!str_eq(units[i].name, str_of(s.p + digits, s.n - digits)))
            continue;
        return __builtin_mul_overflow(value, units[i].factor, out) ? ERR_RANGE : ERR_OK;
    }
    return ERR_SYNTAX;
}

enum err str_parse_duration_ms(struct str s, int64_t *out_ms)
{
    uint64_t ms = 0;
    if (!str_eq(s, STR("0"))) {
        enum err e =
            parse_with_unit(s, duration_units, sizeof duration_units / sizeof duration_units[0], &ms);
        if (e != ERR_OK)
            return e;
    }
    if (ms > INT64_MAX / 1000000) /* it must also fit as nanoseconds */
        return ERR_RANGE;
    *out_ms = (int64_t)ms;
    return ERR_OK;
}

enum err str_parse_size(struct str s, uint64_t *out_bytes)
{
    uint64_t bytes;
    enum err e = parse_with_unit(s, size_units, sizeof size_units / sizeof size_units[0], &bytes);
    if (e == ERR_OK)
        *out_bytes = bytes;
    return e;
}

/* Two digits at a time, from the last one. */
size_t str_format_u64(uint64_t value, char *out)
{
    static const char pairs[] = "0001020304050607080910111213141516171819"
                                "2021222324252627282930313233343536373839"
                                "4041424344454647484950515253545556575859"
                                "6061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    char room[20], *at = room + sizeof room;
    for (; value >= 10000; value /= 10000) { /* four digits at a time: dividing 64 bits is what costs */
        unsigned four = (unsigned)(value % 10000);
        memcpy(at -= 2, pairs + 2 * (four % 100), 2);
        memcpy(at -= 2, pairs + 2 * (four / 100), 2);
    }
    if (value >= 100) {
        memcpy(at -= 2, pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10)
        memcpy(at -= 2, pairs + 2 * value, 2);
    else
        *--at = (char)('0' + (char)value);
    size_t n = (size_t)(room + sizeof room - at);
    memcpy(out, at, n);
    out[n] = '\0';
    return n;
}

static size_t format_with_unit(uint64_t value, const struct unit *units, size_t count, char *out)
{
    size_t i = 0;
    while (i < count - 1 && (value == 0 || value % units[i].factor != 0))
        i++;
    size_t n = str_format_u64(value / units[i].factor, out);
    memcpy(out + n, units[i].name.p, units[i].name.n + 1);
    return n + units[i].name.n;
}

size_t str_format_duration_ms(int64_t ms, char *out)
{
    return format_with_unit(ms > 0 ? (uint64_t)ms : 0, duration_units,
                            sizeof duration_units / sizeof duration_units[0], out);
}

size_t str_format_size(uint64_t bytes, char *out)
{
    return format_with_unit(bytes, size_units, sizeof size_units / sizeof size_units[0], out);
}

/* Length of the UTF-8 sequence at p (n bytes left), or 0 when it is not well-formed. Table 3-7 of the
 * Unicode standard. */
static size_t utf8_sequence(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t length = p[0] >= 0xc2 && p[0] <= 0xdf   ? 2
                    : (p[0] & 0xf0) == 0xe0        ? 3
                    : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                                   : 0;
    if (length == 0 || length > n)
        return 0;
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool str_utf8_valid(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        if (s.n - i >= 8) { /* most text is ASCII: eight at a time */
            uint64_t w;
            memcpy(&w, p + i, sizeof w);
            if (!(w & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        size_t length = utf8_sequence(p + i, s.n - i);
        if (length == 0)
            return false;
        i += length;
    }
    return true;
}

bool str_match_tail(struct str pattern, struct str s)
{
    if (pattern.n && pattern.p[pattern.n - 1] == '*')
        return str_starts(s, str_of(pattern.p, pattern.n - 1));
    return str_eq(pattern, s);
}

struct str str_cut(struct str s, char sep, struct str *out_head)
{
    const char *at = s.n ? memchr(s.p, sep, s.n) : NULL;
    if (!at) {
        *out_head = s;
        return (struct str){NULL, 0};
    }
    size_t head = (size_t)(at - s.p);
    *out_head = str_of(s.p, head);
    return str_of(at + 1, s.n - head - 1);
}

struct str str_trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = str_of(s.p + 1, s.n - 1);
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool str_is_account(struct str s)
{
    if (s.n < 1 || s.n > 128)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!is_alnum(s.p[i]) && (s.p[i] == '\0' || !strchr(":/._-", s.p[i])))
            return false;
    return true;
}

bool str_is_asset(struct str s)
{
    if (s.n < 1 || s.n > 32 || !is_alnum(s.p[0]))
        return false;
    for (size_t i = 1; i < s.n; i++)
        if (!is_alnum(s.p[i]) && (s.p[i] == '\0' || !strchr("._-", s.p[i])))
            return false;
    return true;
}
