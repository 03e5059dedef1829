#include "auth/caveat.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "base/time_fmt.h"

enum { RATE_MAX = 1000000, NAME_MAX_BYTES = 64 };

/* ---- lists ---- */

/* Takes the item before the next comma off the list; false when nothing is left. */
static bool item_next(struct str *rest, struct str *out_item)
{
    if (rest->p == NULL)
        return false;
    *rest = str_cut(*rest, ',', out_item);
    return true;
}

static bool word_char(char c)
{
    return c > 0x20 && c < 0x7f && c != ',' && c != '*';
}

static bool is_pattern(struct str s)
{
    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!word_char(s.p[i]) && !(s.p[i] == '*' && i == s.n - 1))
            return false;
    return true;
}

static bool is_name(struct str s)
{
    return s.n <= NAME_MAX_BYTES && is_pattern(s) && s.p[s.n - 1] != '*';
}

static bool is_pattern_list(struct str list)
{
    struct str item;
    while (item_next(&list, &item))
        if (!is_pattern(item))
            return false;
    return true;
}

/* Asked for every caveat of every request, and an operator's lists are long: one pass, nothing is cut out first. */
bool auth_list_covers(struct str list, struct str value)
{
    const char *at = list.p, *end = list.p + list.n;
    if (value.n == 0)
        return false;
    while (at < end) {
        size_t same = 0;
        while (at < end && same < value.n && *at == value.p[same] && *at != ',' && *at != '*') {
            at++;
            same++;
        }
        if (at < end && *at == '*') /* by the grammar it ends its pattern */
            return true;
        if (same == value.n && (at == end || *at == ','))
            return true;
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        if (!comma)
            return false;
        at = comma + 1;
    }
    return false;
}

bool auth_list_spells(struct str list, struct str value)
{
    struct str item;
    while (item_next(&list, &item))
        if (str_eq(item, value))
            return true;
    return false;
}

bool auth_list_next(struct str list, struct str from, struct str *out)
{
    struct str item;
    bool found = false;
    while (item_next(&list, &item)) {
        bool wild = item.n > 0 && item.p[item.n - 1] == '*';
        item.n -= wild;
        if (wild && str_starts(from, item))
            item = from;
        if (str_cmp(item, from) < 0 || (found && str_cmp(item, *out) >= 0))
            continue;
        *out = item;
        found = true;
    }
    return found;
}

/* ---- addresses ---- */

struct cidr {
    uint8_t addr[16];
    size_t bytes; /* 4 or 16 */
    unsigned prefix_bits;
};

static bool host_bits_clear(const struct cidr *c)
{
    for (unsigned bit = c->prefix_bits; bit < c->bytes * 8; bit++)
        if (c->addr[bit / 8] & (0x80 >> (bit % 8)))
            return false;
    return true;
}

static bool cidr_parse(struct str s, struct cidr *out)
{
    char text[INET6_ADDRSTRLEN];
    struct str addr;
    struct str prefix = str_cut(s, '/', &addr);
    if (addr.n == 0 || addr.n >= sizeof text)
        return false;
    memcpy(text, addr.p, addr.n);
    text[addr.n] = 0;
    if (memchr(text, 0, addr.n) != NULL)
        return false;
    if (inet_pton(AF_INET, text, out->addr) == 1)
        out->bytes = 4;
    else if (inet_pton(AF_INET6, text, out->addr) == 1)
        out->bytes = 16;
    else
        return false;
    uint64_t bits = out->bytes * 8;
    if (prefix.p != NULL && (str_parse_u64(prefix, &bits) != ERR_OK || bits > out->bytes * 8))
        return false;
    out->prefix_bits = (unsigned)bits;
    return host_bits_clear(out);
}

static bool is_cidr_list(struct str list)
{
    struct str item;
    struct cidr c;
    while (item_next(&list, &item))
        if (!cidr_parse(item, &c))
            return false;
    return true;
}

static bool cidr_covers(const struct cidr *c, const uint8_t *addr, size_t bytes)
{
    if (c->bytes != bytes)
        return false;
    unsigned whole = c->prefix_bits / 8, rest = c->prefix_bits % 8;
    if (memcmp(c->addr, addr, whole) != 0)
        return false;
    return rest == 0 || ((c->addr[whole] ^ addr[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

bool auth_ip_list_covers(struct str list, const uint8_t *peer_ip)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (peer_ip == NULL)
        return false;
    bool v4 = memcmp(peer_ip, mapped, sizeof mapped) == 0;
    struct str item;
    struct cidr c;
    while (item_next(&list, &item))
        if (cidr_parse(item, &c) && cidr_covers(&c, v4 ? peer_ip + 12 : peer_ip, v4 ? 4 : 16))
            return true;
    return false;
}

/* ---- the grammar ---- */

enum value { V_NAME, V_LIST, V_CIDRS, V_TIME, V_MONEY, V_COUNT, V_RATE };

static const struct rule {
    const char *name, *op;
    enum auth_cv kind;
    enum value value;
} rules[] = {
    {"aud", "=", AUTH_CV_AUD, V_NAME},
    {"aud", "in", AUTH_CV_AUD, V_LIST},
    {"exp", "<", AUTH_CV_EXP, V_TIME},
    {"nbf", ">", AUTH_CV_NBF, V_TIME},
    {"op", "in", AUTH_CV_OP, V_LIST},
    {"account", "in", AUTH_CV_ACCOUNT, V_LIST},
    {"to", "in", AUTH_CV_TO, V_LIST},
    {"asset", "in", AUTH_CV_ASSET, V_LIST},
    {"max_amount", "<=", AUTH_CV_MAX_AMOUNT, V_MONEY},
    {"daily", "<=", AUTH_CV_DAILY, V_MONEY},
    {"topic", "in", AUTH_CV_TOPIC, V_LIST},
    {"ip", "in", AUTH_CV_IP, V_CIDRS},
    {"bytes", "<=", AUTH_CV_BYTES, V_COUNT},
    {"rate", "<=", AUTH_CV_RATE, V_RATE},
    {"tenant", "=", AUTH_CV_TENANT, V_NAME},
};

static bool parse_rate(struct str s, uint64_t *out_n)
{
    if (!str_ends(s, STR("/s")))
        return false;
    s.n -= 2;
    return str_parse_u64(s, out_n) == ERR_OK && *out_n >= 1 && *out_n <= RATE_MAX;
}

static bool parse_value(enum value how, struct str s, struct auth_caveat *out)
{
    switch (how) {
    case V_NAME:
        out->list = s;
        return is_name(s);
    case V_LIST:
        out->list = s;
        return is_pattern_list(s);
    case V_CIDRS:
        out->list = s;
        return is_cidr_list(s);
    case V_TIME:
        return time_parse_ms(s, &out->at_ms) == ERR_OK;
    case V_MONEY:
        return money_parse(s, &out->amount) == ERR_OK;
    case V_COUNT:
        return str_parse_u64(s, &out->n) == ERR_OK;
    case V_RATE:
        return parse_rate(s, &out->n);
    }
    UNREACHABLE();
}

enum err auth_caveat_parse(struct str text, struct auth_caveat *out)
{
    struct str name, op;
    struct str rest = str_cut(text, ' ', &name);
    if (rest.p == NULL)
        return ERR_SYNTAX;
    struct str value = str_cut(rest, ' ', &op);
    if (value.p == NULL || value.n == 0)
        return ERR_SYNTAX;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct rule *r = &rules[i];
        if (!str_eq_c(name, r->name) || !str_eq_c(op, r->op))
            continue;
        struct auth_caveat c = {.kind = r->kind, .text = text};
        if (!parse_value(r->value, value, &c))
            return ERR_SYNTAX;
        *out = c;
        return ERR_OK;
    }
    return ERR_SYNTAX;
}

const char *auth_cv_name(enum auth_cv kind)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].kind == kind)
            return rules[i].name;
    return "unknown";
}
