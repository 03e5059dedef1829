#include "services/edge/core/name.h"

#include <strings.h>

#include "base/str.h"
#include "services/edge/core/record.h"

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool edge_name_ok(struct str name)
{
    if (name.n == 0 || name.n > EDGE_NAME_MAX || !str_utf8_valid(name))
        return false;
    size_t begin = 0;
    for (size_t i = 0; i <= name.n; i++) {
        unsigned char c = i < name.n ? (unsigned char)name.p[i] : '/';
        if (c < 0x20 || c == 0x7f || c == '\\')
            return false;
        if (c != '/')
            continue;
        size_t n = i - begin;
        if (n == 0 || (n == 1 && name.p[begin] == '.') ||
            (n == 2 && name.p[begin] == '.' && name.p[begin + 1] == '.'))
            return false;
        begin = i + 1;
    }
    return true;
}

enum err edge_name_decode(struct str raw, char *out, struct str *out_name)
{
    size_t n = 0;
    for (size_t i = 0; i < raw.n; i++) {
        char c = raw.p[i];
        if (c == '%') {
            int high = i + 2 < raw.n ? hex_digit(raw.p[i + 1]) : -1,
                low = i + 2 < raw.n ? hex_digit(raw.p[i + 2]) : -1;
            if (high < 0 || low < 0)
                return ERR_SYNTAX;
            c = (char)(high * 16 + low);
            if (c == '/' || c == 0)
                return ERR_SYNTAX;
            i += 2;
        }
        out[n++] = c;
    }
    if (!edge_name_ok(str_of(out, n)))
        return ERR_SYNTAX;
    *out_name = str_of(out, n);
    return ERR_OK;
}

bool edge_pack_name_ok(struct str s)
{
    if (s.n == 0 || s.n > EDGE_PACK_NAME_MAX || !alnum(s.p[0]))
        return false;
    for (size_t i = 1; i < s.n; i++)
        if (!alnum(s.p[i]) && s.p[i] != '.' && s.p[i] != '_' && s.p[i] != '-')
            return false;
    return true;
}

static const struct {
    const char *ext, *mime;
} mimes[] = {
    {"html", "text/html; charset=utf-8"},
    {"htm", "text/html; charset=utf-8"},
    {"txt", "text/plain"},
    {"md", "text/markdown; charset=utf-8"},
    {"css", "text/css; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"js", "text/javascript; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"geojson", "application/geo+json"},
    {"map", "application/json"},
    {"xml", "application/xml"},
    {"pdf", "application/pdf"},
    {"wasm", "application/wasm"},
    {"zip", "application/zip"},
    {"gz", "application/gzip"},
    {"pbf", "application/x-protobuf"},
    {"mvt", "application/vnd.mapbox-vector-tile"},
    {"pmtiles", "application/vnd.pmtiles"},
    {"png", "image/png"},
    {"jpg", "image/jpeg"},
    {"jpeg", "image/jpeg"},
    {"gif", "image/gif"},
    {"webp", "image/webp"},
    {"avif", "image/avif"},
    {"svg", "image/svg+xml"},
    {"ico", "image/x-icon"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    {"ttf", "font/ttf"},
    {"otf", "font/otf"},
    {"mp3", "audio/mpeg"},
    {"ogg", "audio/ogg"},
    {"mp4", "video/mp4"},
    {"webm", "video/webm"},
};

const char *edge_mime_of(struct str name)
{
    size_t at = name.n;
    while (at && name.p[at - 1] != '.' && name.p[at - 1] != '/')
        at--;
    struct str ext = at && name.p[at - 1] == '.' ? str_of(name.p + at, name.n - at) : STR("");
    for (size_t i = 0; ext.n && i < sizeof mimes / sizeof *mimes; i++)
        if (ext.n == strlen(mimes[i].ext) && strncasecmp(ext.p, mimes[i].ext, ext.n) == 0)
            return mimes[i].mime;
    return "application/octet-stream";
}

static bool token_char(char c)
{
    return alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

bool edge_mime_ok(struct str mime)
{
    size_t i = 0, parts[2] = {0, 0};
    if (mime.n > EDGE_MIME_MAX)
        return false;
    for (int part = 0; part < 2; part++) {
        while (i < mime.n && token_char(mime.p[i])) {
            i++;
            parts[part]++;
        }
        if (part == 0 && (i == mime.n || mime.p[i++] != '/'))
            return false;
    }
    if (!parts[0] || !parts[1])
        return false;
    while (i < mime.n && (mime.p[i] == ' ' || mime.p[i] == '\t'))
        i++;
    if (i < mime.n && mime.p[i] != ';')
        return false;
    for (; i < mime.n; i++)
        if ((unsigned char)mime.p[i] < 0x20 || (unsigned char)mime.p[i] >= 0x7f)
            return false;
    return true;
}

/* ---- URLs ---- */

static bool host_chars_ok(struct str host)
{
    if (host.n == 0 || host.n > 253)
        return false;
    bool v6 = host.p[0] == '[';
    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];
        if (v6 ? !(hex_digit(c) >= 0 || c == ':' || c == '.' || (c == '[' && i == 0) ||
                   (c == ']' && i + 1 == host.n))
               : !(alnum(c) || c == '.' || c == '-'))
            return false;
    }
    return !v6 || (host.n > 3 && host.p[host.n - 1] == ']');
}

static bool port_ok(struct str port)
{
    uint64_t v;
    return str_parse_u64(port, &v) == ERR_OK && v >= 1 && v <= 65535;
}

/* host[:port] */
static bool split_host(struct str s, struct str *host, struct str *port)
{
    size_t at = s.n;
    if (s.n && s.p[0] == '[') {
        const char *end = memchr(s.p, ']', s.n);
        if (!end)
            return false;
        at = (size_t)(end - s.p) + 1;
    } else {
        const char *colon = s.n ? memchr(s.p, ':', s.n) : NULL;
        if (colon)
            at = (size_t)(colon - s.p);
    }
    *host = str_of(s.p, at);
    *port = at < s.n ? str_of(s.p + at + 1, s.n - at - 1) : STR("");
    return host_chars_ok(*host) && (at == s.n || (s.p[at] == ':' && port_ok(*port)));
}

bool edge_host_ok(struct str host)
{
    struct str h, p;
    return split_host(host, &h, &p);
}

static bool path_chars_ok(struct str path)
{
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c <= 0x20 || c >= 0x7f || c == '\\' || c == '#' || c == '"' || c == '<' || c == '>')
            return false;
    }
    return true;
}

enum err edge_url_parse(struct str url, struct edge_origin *out)
{
    struct edge_origin o = {0};
    if (url.n > EDGE_URL_MAX)
        return ERR_SYNTAX;
    if (url.n >= 8 && strncasecmp(url.p, "https://", 8) == 0)
        o.scheme = str_of(url.p, 5);
    else if (url.n >= 7 && strncasecmp(url.p, "http://", 7) == 0)
        o.scheme = str_of(url.p, 4);
    else
        return ERR_SYNTAX;
    size_t begin = o.scheme.n + 3, at = begin;
    while (at < url.n && url.p[at] != '/' && url.p[at] != '?' && url.p[at] != '#')
        at++;
    o.host_port = str_of(url.p + begin, at - begin);
    o.path = at < url.n ? str_of(url.p + at, url.n - at) : STR("/");
    if (!split_host(o.host_port, &o.host, &o.port) || o.path.p[0] != '/' || !path_chars_ok(o.path))
        return ERR_SYNTAX;
    *out = o;
    return ERR_OK;
}

static bool dot_segment(struct str path)
{
    struct str seg, rest = path;
    while (rest.p) {
        rest = str_cut(rest, '/', &seg);
        size_t dots = 0, n = seg.n;
        for (size_t i = 0; i < n; i++) {
            if (seg.p[i] == '.')
                dots++;
            else if (i + 2 < n && seg.p[i] == '%' && seg.p[i + 1] == '2' &&
                     (seg.p[i + 2] == 'e' || seg.p[i + 2] == 'E')) {
                dots++;
                i += 2;
            } else {
                dots = 3;
                break;
            }
        }
        if (dots == 1 || dots == 2)
            return true;
    }
    return false;
}

static struct str without_query(struct str path)
{
    struct str head;
    str_cut(path, '?', &head);
    return head;
}

/* 127.a.b.c: a name may begin like one. */
static bool loopback_literal(struct str host)
{
    struct str part, rest = host;
    uint64_t v;
    size_t parts = 0;
    bool numbers = true;
    for (; rest.p && numbers; parts++) {
        rest = str_cut(rest, '.', &part);
        numbers = str_parse_u64(part, &v) == ERR_OK && v <= 255 && (parts > 0 || v == 127);
    }
    return str_eq_c(host, "[::1]") || (numbers && parts == 4);
}

enum err edge_origin_parse(struct str url, bool allow_loopback_http, struct edge_origin *out)
{
    struct edge_origin o;
    enum err e = edge_url_parse(url, &o);
    if (e != ERR_OK)
        return e;
    if (memchr(o.path.p, '?', o.path.n) || url.p[url.n - 1] != '/' || dot_segment(o.path))
        return ERR_SYNTAX;
    if (o.scheme.n == 4 && !(allow_loopback_http && loopback_literal(o.host)))
        return ERR_SYNTAX;
    *out = o;
    return ERR_OK;
}

static struct str port_of(const struct edge_origin *o)
{
    return o->port.n ? o->port : o->scheme.n == 5 ? STR("443") : STR("80");
}

bool edge_url_below(struct str url, const struct edge_origin *origin)
{
    struct edge_origin u;
    if (edge_url_parse(url, &u) != ERR_OK || u.scheme.n != origin->scheme.n || u.host.n != origin->host.n)
        return false;
    struct str path = without_query(u.path);
    return strncasecmp(u.host.p, origin->host.p, u.host.n) == 0 && str_eq(port_of(&u), port_of(origin)) &&
           str_starts(path, origin->path) && !dot_segment(path);
}

/* "word:" before anything else: an absolute URI, whatever kind (RFC 3986 §4.2), and no path of ours. */
static bool has_scheme(struct str s)
{
    size_t n = 0;
    while (n < s.n && (alnum(s.p[n]) || s.p[n] == '+' || s.p[n] == '-' || s.p[n] == '.'))
        n++;
    return n && n < s.n && s.p[n] == ':';
}

enum err edge_url_resolve(struct str base, struct str location, struct buf *out)
{
    struct edge_origin b, check;
    if (edge_url_parse(base, &b) != ERR_OK || location.n == 0)
        return ERR_SYNTAX;
    struct str fragment_free;
    str_cut(location, '#', &fragment_free);
    size_t at = out->n;
    if (edge_url_parse(fragment_free, &check) == ERR_OK)
        buf_put_str(out, fragment_free);
    else if (has_scheme(fragment_free))
        return ERR_SYNTAX;
    else if (str_starts(fragment_free, STR("//"))) {
        buf_put_str(out, b.scheme);
        buf_putc(out, ':');
        buf_put_str(out, fragment_free);
    } else {
        buf_put_str(out, b.scheme);
        buf_puts(out, "://");
        buf_put_str(out, b.host_port);
        if (fragment_free.n == 0 || fragment_free.p[0] != '/') {
            struct str path = without_query(b.path);
            size_t n = path.n;
            bool query = fragment_free.n && fragment_free.p[0] == '?';
            while (!query && n && path.p[n - 1] != '/')
                n--;
            buf_put(out, path.p, n);
        }
        buf_put_str(out, fragment_free);
    }
    if (out->err != ERR_OK)
        return out->err;
    struct str made = str_of((const char *)out->p + at, out->n - at);
    return edge_url_parse(made, &check);
}

void edge_url_write(struct str origin, struct str rest, struct str query, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    buf_put_str(out, origin);
    for (size_t i = 0; i < rest.n; i++) {
        char c = rest.p[i];
        if (alnum(c) || strchr("-._~/!$&'()*+,;=:@", c)) {
            buf_putc(out, c);
            continue;
        }
        buf_putc(out, '%');
        buf_putc(out, digits[(unsigned char)c >> 4]);
        buf_putc(out, digits[(unsigned char)c & 15]);
    }
    if (query.p) {
        buf_putc(out, '?');
        buf_put_str(out, query);
    }
}

int edge_route_find(const struct str *prefixes, size_t n, struct str name)
{
    int best = -1;
    for (size_t i = 0; i < n; i++)
        if (str_starts(name, prefixes[i]) && name.n > prefixes[i].n &&
            (best < 0 || prefixes[i].n > prefixes[best].n))
            best = (int)i;
    return best;
}
