#include "services/edge/core/upstream.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

static void copy_text(char *to, size_t n, struct str s)
{
    size_t len = s.n < n - 1 ? s.n : n - 1;
    memcpy(to, s.p, len);
    to[len] = 0;
}

static bool is_name(struct str s, const char *name)
{
    return s.n == strlen(name) && strncasecmp(s.p, name, s.n) == 0;
}

static bool has_word(struct str list, const char *word)
{
    struct str item;
    for (struct str rest = list; rest.p;) {
        rest = str_cut(rest, ',', &item);
        struct str name;
        str_cut(str_trim(item), '=', &name);
        if (is_name(str_trim(name), word))
            return true;
    }
    return false;
}

static struct str last_word(struct str list)
{
    struct str item = {NULL, 0};
    for (struct str rest = list; rest.p;)
        rest = str_cut(rest, ',', &item);
    return str_trim(item);
}

void edge_upstream_line(struct edge_answer *a, struct str line)
{
    struct str name, value;
    while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
        line.n--;
    if (a->headed)
        return;
    if (line.n == 0) {
        a->headed = a->in_head && !a->interim;
        a->in_head = false;
        return;
    }
    if (!a->in_head && str_starts(line, STR("HTTP/"))) {
        struct str version, code = str_cut(line, ' ', &version);
        *a = (struct edge_answer){
            .declared = -1, .in_head = true, .interim = str_starts(str_trim(code), STR("1"))};
        return;
    }
    value = str_cut(line, ':', &name);
    if (!value.p)
        return;
    value = str_trim(value);
    if (is_name(name, "etag")) {
        copy_text(a->etag, sizeof a->etag, value);
        a->etag_seen = value.n <= EDGE_ETAG_MAX;
    } else if (is_name(name, "content-type"))
        copy_text(a->type, sizeof a->type, value);
    else if (is_name(name, "location"))
        copy_text(a->location, value.n < sizeof a->location ? sizeof a->location : 1, value);
    else if (is_name(name, "content-encoding"))
        a->coded = a->coded || !is_name(value, "identity");
    else if (is_name(name, "cache-control"))
        a->no_store = a->no_store || has_word(value, "no-store") || has_word(value, "private");
    else if (is_name(name, "content-length")) {
        uint64_t v;
        while (value.n > 1 && value.p[0] == '0')
            value = str_of(value.p + 1, value.n - 1);
        bool good = str_parse_u64(value, &v) == ERR_OK && v <= INT64_MAX;
        a->unclear = a->unclear || !good || (a->declared >= 0 && (uint64_t)a->declared != v);
        a->declared = good ? (int64_t)v : -1;
    } else if (is_name(name, "transfer-encoding"))
        a->chunked =
            is_name(last_word(value), "chunked"); /* any other leaves the end to the connection's */
}
