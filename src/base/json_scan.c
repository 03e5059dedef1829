/*
 * RFC 8259, strictly. Strings are first measured sixteen or eight bytes at a time up to the closing quote, noting
 * whether they hold a backslash or a byte over 0x7f; only those that do are decoded or checked as UTF-8.
 */
#include "base/json_scan.h"

#include "base/json_plain.h"
#include "base/siphash.h"
#include "base/str.h"

static bool path_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_-:/.", c));
}

/* Writes the path of the frames, outermost first; returns the length, cut to what fits. */
static size_t path_write(const struct json_frame *f, char *out, size_t room)
{
    if (!f)
        return 0;
    size_t n = path_write(f->up, out, room);
    char part[72];
    size_t part_n = 0;
    if (f->name.p) {
        if (n)
            part[part_n++] = '.';
        for (size_t i = 0; i < f->name.n && i < 64; i++) {
            part[part_n++] = f->name.p[i];
            if (!path_plain(f->name.p[i]))
                part[part_n - 1] = '?';
        }
    } else {
        part[part_n++] = '[';
        part_n += str_format_u64(f->index, part + part_n);
        part[part_n++] = ']';
    }
    if (n + part_n > room)
        part_n = room - n;
    memcpy(out + n, part, part_n);
    return n + part_n;
}

enum err json__fail(struct json_in *in, enum json_reason reason)
{
    in->error->reason = reason;
    in->error->offset = (size_t)(in->p - in->start);
    size_t n = path_write(in->frame, in->error->path, JSON_PATH_CHARS - 1);
    in->error->path[n] = '\0';
    return reason == JSON_MEMORY ? ERR_TOO_LARGE : ERR_BAD_REQUEST;
}

void json__space(struct json_in *in)
{
    while (in->p < in->end && (*in->p == ' ' || *in->p == '\n' || *in->p == '\r' || *in->p == '\t'))
        in->p++;
}

int json__peek(struct json_in *in)
{
    json__space(in);
    return in->p < in->end ? *in->p : -1;
}

bool json__take(struct json_in *in, char c)
{
    if (json__peek(in) != (unsigned char)c)
        return false;
    in->p++;
    return true;
}

enum err json__enter(struct json_in *in)
{
    if (in->depth >= JSON_DEPTH_MAX)
        return json__fail(in, JSON_DEPTH);
    in->depth++;
    return ERR_OK;
}

/* in->p stands behind the opening quote. Finds the closing one; the text between is *out, as written. */
static enum err measure(struct json_in *in, struct str *out, bool *out_escaped)
{
    const uint8_t *p = in->p, *from = p;
    bool escaped = false, ascii = true;
    for (;;) {
        p = json_plain_end(p, in->end);
        if (p == in->end || *p < 0x20) {
            in->p = p;
            return json__fail(in, JSON_SYNTAX);
        }
        if (*p == '"')
            break;
        if (*p == '\\') {
            escaped = true;
            if (++p == in->end) {
                in->p = p;
                return json__fail(in, JSON_SYNTAX);
            }
        } else if (*p >= 0x80) {
            ascii = false;
        }
        p++;
    }
    *out = str_of((const char *)from, (size_t)(p - from));
    if (!ascii && !str_utf8_valid(*out))
        return json__fail(in, JSON_SYNTAX);
    in->p = p + 1;
    *out_escaped = escaped;
    return ERR_OK;
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* \uXXXX at p (behind the u), perhaps a pair; returns the characters used behind the 'u', 0 when wrong. */
static size_t decode_u(const char *p, size_t n, uint32_t *out_code)
{
    int unit = n >= 4 ? hex4(p) : -1;
    if (unit <= 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return 0;
    if (unit < 0xd800 || unit > 0xdbff) {
        *out_code = (uint32_t)unit;
        return 4;
    }
    int low = n >= 10 && p[4] == '\\' && p[5] == 'u' ? hex4(p + 6) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *out_code = 0x10000 + (((uint32_t)unit - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    return 10;
}

static size_t utf8_put(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Decodes the escapes of raw into out (raw.n bytes are enough: no escape grows). False when one is wrong.
 */
static bool unescape(struct str raw, char *out, size_t *out_n)
{
    size_t n = 0;
    for (size_t i = 0; i < raw.n; i++) {
        if (raw.p[i] != '\\') {
            out[n++] = raw.p[i];
            continue;
        }
        static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        char c = raw.p[++i]; /* measure() saw to it that one follows */
        const char *at = c ? strchr(letters, c) : NULL;
        if (at) {
            out[n++] = values[at - letters];
            continue;
        }
        uint32_t code;
        size_t used = c == 'u' ? decode_u(raw.p + i + 1, raw.n - i - 1, &code) : 0;
        if (used == 0)
            return false;
        i += used;
        n += utf8_put(code, out + n);
    }
    *out_n = n;
    return true;
}

static enum err string_decode(struct json_in *in, struct str raw, struct str *out)
{
    char *text = arena_alloc(in->arena, raw.n + 1);
    if (!text)
        return json__fail(in, JSON_MEMORY);
    size_t n;
    if (!unescape(raw, text, &n))
        return json__fail(in, JSON_SYNTAX);
    text[n] = '\0';
    *out = str_of(text, n);
    return ERR_OK;
}

enum err json__string(struct json_in *in, struct str *out)
{
    if (!json__take(in, '"'))
        return json__fail(in, JSON_TYPE);
    struct str raw;
    bool escaped = false;
    enum err e = measure(in, &raw, &escaped);
    if (e != ERR_OK)
        return e;
    if (escaped)
        return string_decode(in, raw, out);
    return arena_str(in->arena, raw, out) ? ERR_OK : json__fail(in, JSON_MEMORY);
}

enum err json__name(struct json_in *in, struct str *out)
{
    if (!json__take(in, '"'))
        return json__fail(in, JSON_SYNTAX);
    bool escaped = false;
    enum err e = measure(in, out, &escaped);
    if (e == ERR_OK && escaped)
        e = string_decode(in, *out, out);
    if (e == ERR_OK && !json__take(in, ':'))
        e = json__fail(in, JSON_SYNTAX);
    return e;
}

static bool digits(struct json_in *in)
{
    const uint8_t *from = in->p;
    while (in->p < in->end && *in->p >= '0' && *in->p <= '9')
        in->p++;
    return in->p > from;
}

enum err json__number(struct json_in *in, struct str *out, bool *out_integer)
{
    int c = json__peek(in);
    if (c != '-' && (c < '0' || c > '9'))
        return json__fail(in, JSON_TYPE);
    const uint8_t *from = in->p;
    bool integer = true;
    if (c == '-')
        in->p++;
    bool zero = in->p < in->end && *in->p == '0';
    const uint8_t *whole = in->p;
    if (!digits(in) || (zero && in->p > whole + 1))
        return json__fail(in, JSON_SYNTAX);
    if (in->p < in->end && *in->p == '.') {
        integer = false;
        in->p++;
        if (!digits(in))
            return json__fail(in, JSON_SYNTAX);
    }
    if (in->p < in->end && (*in->p == 'e' || *in->p == 'E')) {
        integer = false;
        in->p++;
        if (in->p < in->end && (*in->p == '+' || *in->p == '-'))
            in->p++;
        if (!digits(in))
            return json__fail(in, JSON_SYNTAX);
    }
    *out = str_of((const char *)from, (size_t)(in->p - from));
    *out_integer = integer;
    return ERR_OK;
}

static bool literal(struct json_in *in, struct str word)
{
    if ((size_t)(in->end - in->p) < word.n || memcmp(in->p, word.p, word.n) != 0)
        return false;
    in->p += word.n;
    return true;
}

enum err json__bool(struct json_in *in, bool *out)
{
    int c = json__peek(in);
    if (c != 't' && c != 'f')
        return json__fail(in, JSON_TYPE);
    if (!literal(in, c == 't' ? STR("true") : STR("false")))
        return json__fail(in, JSON_SYNTAX);
    *out = c == 't';
    return ERR_OK;
}

enum err json__next(struct json_in *in, char close, bool *first, bool *out_more)
{
    if (json__take(in, close)) {
        in->depth--;
        *out_more = false;
        return ERR_OK;
    }
    if (!*first && !json__take(in, ','))
        return json__fail(in, JSON_SYNTAX);
    *first = false;
    *out_more = true;
    return ERR_OK;
}

static enum err names_grow(struct json_in *in, struct json_names *names)
{
    size_t slots = names->set_slots ? names->set_slots * 4 : (size_t)4 * JSON_NAMES_SHORT;
    struct str *set = arena_array(in->arena, slots, sizeof *set);
    if (!set)
        return json__fail(in, JSON_MEMORY);
    struct str *from = names->set ? names->set : names->first;
    size_t from_n = names->set ? names->set_slots : names->n;
    for (size_t i = 0; i < from_n; i++) {
        if (!from[i].p)
            continue;
        size_t at = (size_t)siphash13(siphash_process_key(), from[i].p, from[i].n) & (slots - 1);
        while (set[at].p)
            at = (at + 1) & (slots - 1);
        set[at] = from[i];
    }
    names->set = set;
    names->set_slots = slots;
    return ERR_OK;
}

enum err json__names_add(struct json_in *in, struct json_names *names, struct str name)
{
    if (names->n < JSON_NAMES_SHORT) {
        for (size_t i = 0; i < names->n; i++)
            if (str_eq(names->first[i], name))
                return json__fail(in, JSON_DUPLICATE);
        names->first[names->n++] = name;
        return ERR_OK;
    }
    if (names->n + 1 > names->set_slots / 2) {
        enum err e = names_grow(in, names);
        if (e != ERR_OK)
            return e;
    }
    size_t at = (size_t)siphash13(siphash_process_key(), name.p, name.n) & (names->set_slots - 1);
    for (; names->set[at].p; at = (at + 1) & (names->set_slots - 1))
        if (str_eq(names->set[at], name))
            return json__fail(in, JSON_DUPLICATE);
    names->set[at] = name;
    names->n++;
    return ERR_OK;
}

static enum err skip_object(struct json_in *in)
{
    in->p++;
    enum err e = json__enter(in);
    const struct json_frame *up = in->frame;
    struct json_names names;
    json__names_init(&names);
    struct json_frame frame = {.up = up};
    for (bool first = true, more = true; e == ERR_OK;) {
        e = json__next(in, '}', &first, &more);
        if (e != ERR_OK || !more)
            return e;
        e = json__name(in, &frame.name);
        if (e != ERR_OK)
            return e;
        in->frame = &frame;
        e = json__names_add(in, &names, frame.name);
        if (e == ERR_OK)
            e = json__skip(in);
        in->frame = up;
    }
    return e;
}

static enum err skip_array(struct json_in *in)
{
    in->p++;
    enum err e = json__enter(in);
    const struct json_frame *up = in->frame;
    struct json_frame frame = {.up = up};
    for (bool first = true, more = true; e == ERR_OK; frame.index++) {
        e = json__next(in, ']', &first, &more);
        if (e != ERR_OK || !more)
            return e;
        in->frame = &frame;
        e = json__skip(in);
        in->frame = up;
    }
    return e;
}

static enum err skip_string(struct json_in *in)
{
    in->p++;
    struct str raw;
    bool escaped = false;
    enum err e = measure(in, &raw, &escaped);
    if (e != ERR_OK || !escaped)
        return e;
    char small[256];
    if (raw.n > sizeof small)
        return string_decode(in, raw, &raw);
    size_t n;
    return unescape(raw, small, &n) ? ERR_OK : json__fail(in, JSON_SYNTAX);
}

enum err json__skip(struct json_in *in)
{
    struct str text;
    bool flag;
    switch (json__peek(in)) {
    case '{':
        return skip_object(in);
    case '[':
        return skip_array(in);
    case '"':
        return skip_string(in);
    case 't':
    case 'f':
        return json__bool(in, &flag);
    case 'n':
        return literal(in, STR("null")) ? ERR_OK : json__fail(in, JSON_SYNTAX);
    default: {
        int c = json__peek(in);
        if (c != '-' && (c < '0' || c > '9'))
            return json__fail(in, JSON_SYNTAX);
        return json__number(in, &text, &flag);
    }
    }
}
