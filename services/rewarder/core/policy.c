#include "services/rewarder/core/policy.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json_read.h"
#include "base/money.h"
#include "base/str.h"

enum { CANONICAL_MAX = 64 * 1024, TEXT_MAX = 256 * 1024 };

/* ---- the text ---- */

struct weight_dto {
    struct str dim;
    uint64_t num, den;
};

struct policy_dto {
    uint64_t v;
    struct str id, asset, funding_account, dust_account, pool;
    struct json_list weights, tenants;
    struct money min_payout, max_payout;
    bool has_max_payout;
    enum rewarder_rounding rounding;
    int tie_break;
};

static const char *const rounding_names[] = {"floor", "largest_remainder", "webster", NULL};
static const char *const tie_breaks[] = {"account_asc",
                                         NULL}; /* the only one; stated so that it is committed */

static const struct json_field weight_fields[] = {
    JSON_REQ(struct weight_dto, dim, JSON_KIND_STR, .max = REWARDER_DIM_MAX, .check = rewarder_is_dim),
    JSON_REQ(struct weight_dto, num, JSON_KIND_U64, .max = REWARDER_WEIGHT_MAX),
    JSON_REQ(struct weight_dto, den, JSON_KIND_U64, .min = 1, .max = REWARDER_WEIGHT_MAX),
    JSON_END,
};

static const struct json_field policy_fields[] = {
    JSON_REQ(struct policy_dto, v, JSON_KIND_U64, .min = 1, .max = 1),
    JSON_REQ(struct policy_dto, id, JSON_KIND_STR, .check = rewarder_is_policy_id),
    JSON_REQ(struct policy_dto, asset, JSON_KIND_STR, .check = str_is_asset),
    JSON_REQ(struct policy_dto, funding_account, JSON_KIND_STR, .check = str_is_account),
    JSON_REQ(struct policy_dto, dust_account, JSON_KIND_STR, .check = str_is_account),
    JSON_REQ(struct policy_dto, pool, JSON_KIND_STR, .min = 1, .max = 39),
    JSON_REQ(struct policy_dto, weights, JSON_KIND_OBJ_LIST, .fields = weight_fields,
             .item_bytes = sizeof(struct weight_dto), .min = 1, .max = REWARDER_DIMS_MAX),
    JSON_DEF(struct policy_dto, min_payout, JSON_KIND_MONEY, .min = 1),
    JSON_OPT(struct policy_dto, max_payout, JSON_KIND_MONEY),
    JSON_REQ(struct policy_dto, rounding, JSON_KIND_ENUM, .names = rounding_names),
    JSON_DEF(struct policy_dto, tie_break, JSON_KIND_ENUM, .names = tie_breaks),
    JSON_DEF(struct policy_dto, tenants, JSON_KIND_STR_LIST, .min = 1, .max = REWARDER_TENANTS_MAX,
             .check = rewarder_is_tenant),
    JSON_END,
};

/* The top-level member a fault lies in, as static text: what a caller wrote is not repeated. */
static const char *member_of(const struct json_error *why)
{
    size_t n = strcspn(why->path, ".[");
    for (const struct json_field *f = policy_fields; f->kind != JSON_KIND_END; f++)
        if (f->name_n == n && !memcmp(f->name, why->path, n))
            return f->name;
    return "policy";
}

const char *rewarder_rounding_name(enum rewarder_rounding r)
{
    CHECK((size_t)r < sizeof rounding_names / sizeof *rounding_names - 1);
    return rounding_names[r];
}

/* ---- its rules ---- */

static void copy_name(struct str s, char *out)
{
    memcpy(out, s.p, s.n); /* its pattern bounds its length */
    out[s.n] = '\0';
}

static bool read_pool(struct str s, struct rewarder_policy *p)
{
    struct money m;
    p->pool_is_balance = str_eq(s, STR("balance"));
    if (p->pool_is_balance)
        return true;
    if (money_parse(s, &m) != ERR_OK)
        return false;
    p->pool = m.units;
    return true;
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

static bool read_weights(const struct json_list *list, struct rewarder_policy *p)
{
    const struct weight_dto *from = list->items;
    for (size_t i = 0; i < list->n; i++) {
        uint64_t g = gcd(from[i].num, from[i].den);
        copy_name(from[i].dim, p->weights[i].dim);
        p->weights[i].num = (uint32_t)(from[i].num / g);
        p->weights[i].den = (uint32_t)(from[i].den / g);
    }
    p->weight_count = (unsigned)list->n;
    qsort(p->weights, list->n, sizeof p->weights[0], by_dim);
    for (size_t i = 1; i < list->n; i++)
        if (!strcmp(p->weights[i - 1].dim, p->weights[i].dim))
            return false;
    return weigh(p);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool read_tenants(const struct json_list *list, struct rewarder_policy *p)
{
    const struct str *from = list->items;
    for (size_t i = 0; i < list->n; i++)
        copy_name(from[i], p->tenants[i]);
    p->tenant_count = (unsigned)list->n;
    qsort(p->tenants, list->n, sizeof p->tenants[0], by_text);
    for (size_t i = 1; i < list->n; i++)
        if (!strcmp(p->tenants[i - 1], p->tenants[i]))
            return false;
    return true;
}

/* What tables cannot say. False: *out_member is at fault. */
static bool take_over(const struct policy_dto *d, struct rewarder_policy *p, const char **out_member)
{
    copy_name(d->id, p->id);
    copy_name(d->asset, p->asset);
    copy_name(d->funding_account, p->funding);
    copy_name(d->dust_account, p->dust);
    p->min_payout = d->min_payout.units;
    p->max_payout = d->max_payout.units;
    p->has_max = d->has_max_payout;
    p->rounding = d->rounding;
    *out_member = "pool";
    if (!read_pool(d->pool, p))
        return false;
    *out_member = "weights";
    if (!read_weights(&d->weights, p))
        return false;
    *out_member = "tenants";
    if (!read_tenants(&d->tenants, p))
        return false;
    *out_member = "dust_account";
    if (!strcmp(p->funding, p->dust))
        return false;
    *out_member = "max_payout";
    return !p->has_max || p->max_payout >= p->min_payout;
}

/* ---- the canonical form ---- */

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

enum err rewarder_policy_create(struct bytes text, struct rewarder_policy **out, const char **out_member)
{
    struct str everybody = STR("default");
    struct policy_dto d = {.min_payout = {1}, .tenants = {&everybody, 1}};
    struct json_error why;
    struct arena arena;
    arena_init(&arena, 4096, TEXT_MAX);
    enum err e = json_read_dto(text, policy_fields, &d, &arena, &why);
    struct rewarder_policy *read = e == ERR_OK ? calloc(1, sizeof *read) : NULL;
    if (e != ERR_OK) {
        *out_member = member_of(&why);
        e = ERR_BAD_POLICY;
    } else if (!read) {
        e = ERR_NO_MEMORY;
    } else {
        e = take_over(&d, read, out_member) ? finish(read, out) : ERR_BAD_POLICY;
    }
    free(read);
    arena_fini(&arena);
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
