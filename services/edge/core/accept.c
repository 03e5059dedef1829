#include "services/edge/core/accept.h"

#include <strings.h>

#include "base/str.h"

static bool is_token(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c && strchr("!#$%&'*+-.^_`|~", c))))
            return false;
    }
    return s.n > 0;
}

static bool is_word(struct str s, const char *word)
{
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}

/* 0 to 1000, or -1: "0", "0.25", "1.000" and nothing looser (RFC 9110 §12.4.2). */
static int weight(struct str s)
{
    if (s.n == 0 || s.n > 5 || (s.p[0] != '0' && s.p[0] != '1') || (s.n > 1 && s.p[1] != '.'))
        return -1;
    int v = 0, unit = 100;
    for (size_t i = 2; i < s.n; i++, unit /= 10) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return -1;
        v += (s.p[i] - '0') * unit;
    }
    if (s.p[0] == '1')
        return v ? -1 : 1000;
    return v;
}

bool edge_accepts(struct str header, enum edge_coding coding)
{
    const char *name = edge_coding_name(coding);
    int named = -1, star = -1;
    if (!*name)
        return true;
    if (!header.p || header.n > EDGE_ACCEPT_MAX)
        return false;
    for (struct str rest = header; rest.p;) {
        struct str item, what, param;
        rest = str_cut(rest, ',', &item);
        item = str_trim(item);
        if (item.n == 0)
            continue;
        param = str_cut(item, ';', &what);
        what = str_trim(what);
        int q = 1000;
        if (param.p) {
            param = str_trim(param);
            if (param.n < 2 || (param.p[0] != 'q' && param.p[0] != 'Q') || param.p[1] != '=')
                return false;
            q = weight(str_of(param.p + 2, param.n - 2));
        }
        if (q < 0 || !is_token(what))
            return false;
        if (is_word(what, name) || (coding == EDGE_CODING_GZIP && is_word(what, "x-gzip")))
            named = q;
        else if (is_word(what, "*"))
            star = q;
    }
    return named >= 0 ? named > 0 : star > 0;
}

struct edge_prefer edge_prefer_parse(struct str prefer)
{
    struct edge_prefer p = {0};
    struct str item, name;
    for (struct str rest = prefer; rest.p;) {
        uint64_t v;
        rest = str_cut(rest, ',', &item);
        struct str value = str_cut(str_trim(item), '=', &name);
        if (is_word(str_trim(name), "respond-async") && !value.p)
            p.async = true;
        else if (is_word(str_trim(name), "wait") && value.p && str_parse_u64(str_trim(value), &v) == ERR_OK)
            p.wait_s = v > EDGE_PREFER_WAIT_MAX ? EDGE_PREFER_WAIT_MAX : (unsigned)v;
    }
    return p;
}

bool edge_wants_digest(struct str want)
{
    struct str item, name;
    for (struct str rest = want; rest.p;) {
        rest = str_cut(rest, ',', &item);
        struct str value = str_cut(str_trim(item), '=', &name);
        if (is_word(str_trim(name), "sha-256"))
            return !(value.p && str_eq_c(str_trim(value), "0"));
    }
    return false;
}
