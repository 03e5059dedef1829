#include "services/rewarder/core/policy.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/money.h"
#include "base/str.h"

enum { CANONICAL_MAX = 64 * 1024 };

static const char *const rounding_names[] = {"floor", "largest_remainder", "webster"};

const char *rewarder_rounding_name(enum rewarder_rounding r)
{
    CHECK((size_t)r < sizeof rounding_names / sizeof *rounding_names);
    return rounding_names[r];
}

static bool json_text(const json_t *v, struct str *out)
{
    if (!json_is_string(v))
        return false;
    *out = (struct str){json_string_value(v), json_string_length(v)};
    return true;
}

static bool read_name(const json_t *v, bool (*ok)(struct str), char *out)
{
    struct str s;
    if (!json_text(v, &s) || !ok(s))
        return false;
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
    return true;
}

static bool read_amount(const json_t *v, wide_u128 *out)
{
    struct str s;
    struct money m;
    if (!json_text(v, &s) || money_parse(s, &m) != ERR_OK)
        return false;
    *out = m.units;
    return true;
}

static bool read_pool(const json_t *v, struct rewarder_policy *p)
{
    struct str s;
    if (json_text(v, &s) && str_eq(s, STR("balance"))) {
        p->pool_is_balance = true;
        return true;
    }
    return read_amount(v, &p->pool);
}

static bool read_rounding(const json_t *v, struct rewarder_policy *p)
{
    for (unsigned i = 0; i < sizeof rounding_names / sizeof *rounding_names; i++) {
        if (json_is_string(v) && !strcmp(json_string_value(v), rounding_names[i])) {
            p->rounding = (enum rewarder_rounding)i;
            return true;
        }
    }
    return false;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static bool read_weight(const json_t *v, struct rewarder_weight *w)
{
    const char *key;
    json_t *m;
    bool dim = false, num = false, den = false;
    if (!json_is_object(v))
        return false;
    json_object_foreach((json_t *)(uintptr_t)v, key, m)
    {
        json_int_t n = json_is_integer(m) ? json_integer_value(m) : -1;
        if (!strcmp(key, "dim"))
            dim = read_name(m, rewarder_is_dim, w->dim);
        else if (!strcmp(key, "num") && n >= 0 && n <= REWARDER_WEIGHT_MAX)
            num = true, w->num = (uint32_t)n;
        else if (!strcmp(key, "den") && n >= 1 && n <= REWARDER_WEIGHT_MAX)
            den = true, w->den = (uint32_t)n;
        else
            return false;
    }
    if (!dim || !num || !den)
        return false;
    uint32_t g = (uint32_t)gcd(w->num, w->den);
    w->num /= g;
    w->den /= g;
    return true;
}

/* Integers in place of the fractions: nothing is rounded before the split. */
static bool weigh(struct rewarder_policy *p)
{
    wide_u128 lcm = 1;
    bool any = false;
    for (unsigned i = 0; i < p->weight_count; i++) {
        uint64_t den = p->weights[i].den;
        if (__builtin_mul_overflow(lcm, (wide_u128)(den / gcd((uint64_t)(lcm % den), den)), &lcm))
            return false; /* then some weight passes 2^64 too */
    }
    for (unsigned i = 0; i < p->weight_count; i++) {
        struct rewarder_weight *w = &p->weights[i];
        wide_u128 whole;
        if (__builtin_mul_overflow(lcm / w->den, (wide_u128)w->num, &whole) || whole > UINT64_MAX)
            return false;
        w->whole = (uint64_t)whole;
        any = any || whole;
    }
    return any;
}

static int by_dim(const void *a, const void *b)
{
    return strcmp(((const struct rewarder_weight *)a)->dim, ((const struct rewarder_weight *)b)->dim);
}

static bool read_weights(const json_t *v, struct rewarder_policy *p)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0 || n > REWARDER_DIMS_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!read_weight(json_array_get(v, i), &p->weights[i]))
            return false;
    p->weight_count = (unsigned)n;
    qsort(p->weights, n, sizeof p->weights[0], by_dim);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(p->weights[i - 1].dim, p->weights[i].dim))
            return false;
    return weigh(p);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool read_tenants(const json_t *v, struct rewarder_policy *p)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0 || n > REWARDER_TENANTS_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!read_name(json_array_get(v, i), rewarder_is_tenant, p->tenants[i]))
            return false;
    p->tenant_count = (unsigned)n;
    qsort(p->tenants, n, sizeof p->tenants[0], by_text);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(p->tenants[i - 1], p->tenants[i]))
            return false;
    return true;
}

/* The members and what reads them; `required` ones have no default. */
enum member { V, ID, ASSET, FUNDING, DUST, POOL, WEIGHTS, MIN, MAX, ROUNDING, TIE, TENANTS, MEMBER_COUNT };
static const struct {
    const char *name;
    bool required;
} members[MEMBER_COUNT] = {
    [V] = {"v", true},
    [ID] = {"id", true},
    [ASSET] = {"asset", true},
    [FUNDING] = {"funding_account", true},
    [DUST] = {"dust_account", true},
    [POOL] = {"pool", true},
    [WEIGHTS] = {"weights", true},
    [MIN] = {"min_payout", false},
    [MAX] = {"max_payout", false},
    [ROUNDING] = {"rounding", true},
    [TIE] = {"tie_break", false},
    [TENANTS] = {"tenants", false},
};

static bool read_member(enum member m, const json_t *v, struct rewarder_policy *p)
{
    switch (m) {
    case V:
        return json_is_integer(v) && json_integer_value(v) == 1;
    case ID:
        return read_name(v, rewarder_is_policy_id, p->id);
    case ASSET:
        return read_name(v, str_is_asset, p->asset);
    case FUNDING:
        return read_name(v, str_is_account, p->funding);
    case DUST:
        return read_name(v, str_is_account, p->dust);
    case POOL:
        return read_pool(v, p);
    case WEIGHTS:
        return read_weights(v, p);
    case MIN:
        return read_amount(v, &p->min_payout) && p->min_payout >= 1;
    case MAX:
        p->has_max = true;
        return read_amount(v, &p->max_payout);
    case ROUNDING:
        return read_rounding(v, p);
    case TIE:
        return json_is_string(v) && !strcmp(json_string_value(v), "account_asc");
    case TENANTS:
        return read_tenants(v, p);
    case MEMBER_COUNT:
        break;
    }
    return false;
}

static bool read_members(const json_t *body, struct rewarder_policy *p, const char **out_member)
{
    bool seen[MEMBER_COUNT] = {false};
    const char *key;
    json_t *v;
    *out_member = "policy";
    if (!json_is_object(body))
        return false;
    json_object_foreach((json_t *)(uintptr_t)body, key, v)
    {
        unsigned m = 0;
        while (m < MEMBER_COUNT && strcmp(key, members[m].name))
            m++;
        if (m == MEMBER_COUNT)
            return false; /* the key is the caller's text: it is not repeated */
        *out_member = members[m].name;
        if (!read_member((enum member)m, v, p))
            return false;
        seen[m] = true;
    }
    for (unsigned m = 0; m < MEMBER_COUNT; m++) {
        *out_member = members[m].name;
        if (members[m].required && !seen[m])
            return false;
    }
    *out_member = "dust_account";
    if (!strcmp(p->funding, p->dust))
        return false;
    *out_member = "max_payout";
    return !p->has_max || p->max_payout >= p->min_payout;
}

static void put_amount(struct buf *b, const char *key, wide_u128 v)
{
    char text[MONEY_CHARS];
    money_format((struct money){v}, text);
    buf_printf(b, "\"%s\":\"%s\"", key, text);
}

/* Every string here matched a grammar without quotes, backslashes or control bytes, so none needs escaping. */
static void write_canonical(const struct rewarder_policy *p, struct buf *b)
{
    buf_printf(b, "{\"asset\":\"%s\",\"dust_account\":\"%s\",\"funding_account\":\"%s\",\"id\":\"%s\",",
               p->asset, p->dust, p->funding, p->id);
    if (p->has_max) {
        put_amount(b, "max_payout", p->max_payout);
        buf_putc(b, ',');
    }
    put_amount(b, "min_payout", p->min_payout);
    buf_putc(b, ',');
    if (p->pool_is_balance)
        buf_puts(b, "\"pool\":\"balance\"");
    else
        put_amount(b, "pool", p->pool);
    buf_printf(b, ",\"rounding\":\"%s\",\"tenants\":[", rounding_names[p->rounding]);
    for (unsigned i = 0; i < p->tenant_count; i++)
        buf_printf(b, "%s\"%s\"", i ? "," : "", p->tenants[i]);
    buf_puts(b, "],\"tie_break\":\"account_asc\",\"v\":1,\"weights\":[");
    for (unsigned i = 0; i < p->weight_count; i++)
        buf_printf(b, "%s{\"den\":%u,\"dim\":\"%s\",\"num\":%u}", i ? "," : "", p->weights[i].den,
                   p->weights[i].dim, p->weights[i].num);
    buf_puts(b, "]}");
}

static enum err finish(const struct rewarder_policy *read, struct rewarder_policy **out)
{
    struct buf b;
    buf_init(&b, CANONICAL_MAX);
    write_canonical(read, &b);
    struct rewarder_policy *p = b.err == ERR_OK ? malloc(sizeof *p + b.n + 1) : NULL;
    if (!p) {
        buf_fini(&b);
        return ERR_NO_MEMORY;
    }
    *p = *read;
    p->canonical_n = b.n;
    memcpy(p->canonical, b.p, b.n);
    p->canonical[b.n] = '\0';
    sha256_of(b.p, b.n, &p->hash);
    buf_fini(&b);
    *out = p;
    return ERR_OK;
}

enum err rewarder_policy_create_json(const json_t *body, struct rewarder_policy **out,
                                     const char **out_member)
{
    struct rewarder_policy *read = calloc(1, sizeof *read);
    if (!read)
        return ERR_NO_MEMORY;
    read->min_payout = 1;
    read->tenant_count = 1;
    memcpy(read->tenants[0], "default", 8);
    enum err e = read_members(body, read, out_member) ? finish(read, out) : ERR_BAD_POLICY;
    free(read);
    return e;
}

enum err rewarder_policy_create(struct bytes text, struct rewarder_policy **out, const char **out_member)
{
    json_error_t why;
    json_t *body = NULL;
    if (text.n && !memchr(text.p, 0, text.n)) /* jansson skips a NUL after a number */
        body = json_loadb((const char *)text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    *out_member = "policy";
    if (!body)
        return ERR_BAD_POLICY;
    enum err e = rewarder_policy_create_json(body, out, out_member);
    json_decref(body);
    return e;
}

struct rewarder_policy *rewarder_policy_create_default(void)
{
    static const char text[] =
        "{\"v\":1,\"id\":\"default\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\","
        "\"dust_account\":\"pool:dust\",\"pool\":\"balance\",\"rounding\":\"largest_remainder\","
        "\"weights\":[{\"dim\":\"points\",\"num\":1,\"den\":1}]}";
    struct rewarder_policy *p;
    const char *member;
    enum err e =
        rewarder_policy_create((struct bytes){(const uint8_t *)text, sizeof text - 1}, &p, &member);
    return e == ERR_OK ? p : NULL;
}

void rewarder_policy_destroy(struct rewarder_policy *p)
{
    free(p);
}

bool rewarder_policy_for_tenant(const struct rewarder_policy *p, struct str tenant)
{
    for (unsigned i = 0; i < p->tenant_count; i++)
        if (str_eq_c(tenant, p->tenants[i]))
            return true;
    return false;
}
