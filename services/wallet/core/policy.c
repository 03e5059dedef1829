#include "services/wallet/core/policy.h"

#include <stdlib.h>

#include "base/str.h"

struct asset_row {
    struct str name;
    uint64_t decimals;
};

struct limit_row {
    struct str account, asset;
    struct json_list ops; /* struct str */
    struct money max_amount, daily;
    bool has_ops, has_max_amount, has_daily;
};

struct wallet_policy {
    struct arena arena;
    uint64_t version;
    struct json_list assets, frozen, limits;
    struct str kinds, reward_policies; /* other services' */
    bool has_assets, has_frozen, has_limits, has_version;
};

static bool is_pattern(struct str s)
{
    if (str_eq(s, STR("*")))
        return true;
    if (s.n && s.p[s.n - 1] == '*')
        s.n--;
    return str_is_account(s);
}

static bool is_op(struct str s)
{
    enum wallet_kind kind;
    return str_eq(s, STR("*")) || wallet_kind_parse(s, &kind) == ERR_OK;
}

static const struct json_field asset_fields[] = {
    JSON_DEF(struct asset_row, decimals, JSON_KIND_U64, .max = 18),
    JSON_END,
};

static const struct json_field limit_fields[] = {
    JSON_DEF(struct limit_row, account, JSON_KIND_STR, .check = is_pattern),
    JSON_DEF(struct limit_row, asset, JSON_KIND_STR, .check = is_pattern),
    JSON_OPT(struct limit_row, ops, JSON_KIND_STR_LIST, .min = 1, .max = 8, .check = is_op),
    JSON_OPT(struct limit_row, max_amount, JSON_KIND_MONEY),
    JSON_OPT(struct limit_row, daily, JSON_KIND_MONEY),
    JSON_END,
};

static const struct json_field policy_fields[] = {
    JSON_OPT(struct wallet_policy, version, JSON_KIND_U64),
    JSON_OPT(struct wallet_policy, assets, JSON_KIND_OBJ_MAP, .fields = asset_fields,
             .item_bytes = sizeof(struct asset_row), .key_offset = offsetof(struct asset_row, name),
             .max = 1024, .check = str_is_asset),
    JSON_OPT(struct wallet_policy, frozen, JSON_KIND_STR_LIST, .max = 65536, .check = is_pattern),
    JSON_OPT(struct wallet_policy, limits, JSON_KIND_OBJ_LIST, .fields = limit_fields,
             .item_bytes = sizeof(struct limit_row), .max = 4096),
    JSON_DEF(struct wallet_policy, kinds, JSON_KIND_RAW),
    JSON_DEF(struct wallet_policy, reward_policies, JSON_KIND_RAW),
    JSON_END,
};

static struct wallet_policy *policy_new(void)
{
    struct wallet_policy *p = calloc(1, sizeof *p);
    if (p)
        arena_init(&p->arena, 4096, 16 << 20);
    return p;
}

/* ron, when the file does not speak of assets. */
static bool default_asset(struct wallet_policy *p)
{
    struct asset_row *row = arena_zalloc(&p->arena, sizeof *row);
    if (!row)
        return false;
    row->name = STR("ron");
    p->assets = (struct json_list){row, 1};
    return true;
}

struct wallet_policy *wallet_policy_default(void)
{
    struct wallet_policy *p = policy_new();
    if (p && !default_asset(p)) {
        wallet_policy_free(p);
        return NULL;
    }
    return p;
}

enum err wallet_policy_read(struct bytes json, struct wallet_policy **out, struct json_error *out_err)
{
    struct wallet_policy *p = policy_new();
    if (!p)
        return ERR_NO_MEMORY;
    enum err e = json_read_dto(json, policy_fields, p, &p->arena, out_err);
    if (e == ERR_OK && !p->has_assets && !default_asset(p))
        e = ERR_NO_MEMORY;
    if (e != ERR_OK) {
        wallet_policy_free(p);
        return e == ERR_NO_MEMORY ? e : ERR_BAD_REQUEST;
    }
    *out = p;
    return ERR_OK;
}

void wallet_policy_free(struct wallet_policy *p)
{
    if (!p)
        return;
    arena_fini(&p->arena);
    free(p);
}

uint64_t wallet_policy_version(const struct wallet_policy *p)
{
    return p->version;
}

bool wallet_policy_has_asset(const struct wallet_policy *p, struct str asset)
{
    const struct asset_row *rows = p->assets.items;
    for (size_t i = 0; i < p->assets.n; i++)
        if (str_eq(rows[i].name, asset))
            return true;
    return false;
}

static bool matches(struct str pattern, struct str value)
{
    if (!pattern.n)
        return true; /* the row does not speak of it */
    if (pattern.p[pattern.n - 1] == '*')
        return str_starts(value, str_of(pattern.p, pattern.n - 1));
    return str_eq(pattern, value);
}

static bool is_frozen(const struct wallet_policy *p, struct str account)
{
    const struct str *rows = p->frozen.items;
    for (size_t i = 0; account.n && i < p->frozen.n; i++)
        if (matches(rows[i], account))
            return true;
    return false;
}

static bool row_names_op(const struct limit_row *row, enum wallet_kind kind)
{
    const struct str *ops = row->ops.items;
    for (size_t i = 0; i < row->ops.n; i++)
        if (str_eq(ops[i], STR("*")) || str_eq_c(ops[i], wallet_kind_name(kind)))
            return true;
    return !row->has_ops;
}

static const struct limit_row *first_limit(const struct wallet_policy *p, const struct wallet_ask *ask)
{
    const struct limit_row *rows = p->limits.items;
    for (size_t i = 0; i < p->limits.n; i++)
        if (matches(rows[i].account, ask->account) && matches(rows[i].asset, ask->asset) &&
            row_names_op(&rows[i], ask->kind))
            return &rows[i];
    return NULL;
}

enum err wallet_policy_judge(const struct wallet_policy *p, const struct wallet_ask *ask,
                             struct wallet_rule *out_rule, struct wallet_denial *out_denial)
{
    *out_rule = (struct wallet_rule){0};
    if (!wallet_policy_has_asset(p, ask->asset)) {
        *out_denial = (struct wallet_denial){.err = ERR_UNKNOWN_ASSET};
        return ERR_UNKNOWN_ASSET;
    }
    if (is_frozen(p, ask->from) || is_frozen(p, ask->to) || is_frozen(p, ask->account)) {
        *out_denial = (struct wallet_denial){.err = ERR_FORBIDDEN, .reason = "frozen"};
        return ERR_FORBIDDEN;
    }
    const struct limit_row *row = first_limit(p, ask);
    if (row && row->has_max_amount && money_cmp(ask->amount, row->max_amount) > 0) {
        *out_denial = (struct wallet_denial){ERR_LIMIT_EXCEEDED, "policy_max_amount", row->max_amount};
        return ERR_LIMIT_EXCEEDED;
    }
    if (row && row->has_daily && ask->kind != WALLET_CAPTURE && ask->kind != WALLET_RELEASE)
        *out_rule = (struct wallet_rule){true, row->daily};
    return ERR_OK;
}
