#include "services/ledger/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/json_read.h"
#include "base/str.h"

struct ledger_policy {
    struct arena arena;
    struct ledger_policy *old;
    uint64_t version;
    bool has_kinds, has_assets;
    struct json_list kinds, assets, frozen; /* of struct str */
    struct str limits, reward_policies;     /* other services' */
    unsigned kind_bits;
};

struct asset_row {
    struct str name;
    uint64_t decimals; /* for people */
};

enum { POLICY_ARENA = 16 << 20 };

static bool is_pattern(struct str s)
{
    if (str_eq_c(s, "*"))
        return true;
    if (s.n != 0 && s.p[s.n - 1] == '*')
        s.n--;
    return ledger_account_ok(s);
}

static const struct json_field asset_fields[] = {
    JSON_DEF(struct asset_row, decimals, JSON_KIND_U64, .max = 18),
    JSON_END,
};

#define POLICY_FIELDS(...)                                                                                 \
    {                                                                                                      \
        JSON_DEF(struct ledger_policy, version, JSON_KIND_U64),                                            \
            JSON_OPT(struct ledger_policy, kinds, JSON_KIND_STR_LIST, .max = 16),                          \
            JSON_OPT(struct ledger_policy, assets, __VA_ARGS__, .max = 65535, .check = ledger_asset_ok),   \
            JSON_DEF(struct ledger_policy, frozen, JSON_KIND_STR_LIST, .max = 100000,                      \
                     .check = is_pattern),                                                                 \
            JSON_DEF(struct ledger_policy, limits, JSON_KIND_RAW),                                         \
            JSON_DEF(struct ledger_policy, reward_policies, JSON_KIND_RAW), JSON_END,                      \
    }
static const struct json_field fields[] =
    POLICY_FIELDS(JSON_KIND_OBJ_MAP, .fields = asset_fields, .item_bytes = sizeof(struct asset_row));
static const struct json_field fields_listed[] = POLICY_FIELDS(JSON_KIND_STR_LIST);

static struct ledger_policy *policy_new(void)
{
    struct ledger_policy *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    arena_init(&p->arena, 4096, POLICY_ARENA);
    return p;
}

struct ledger_policy *ledger_policy_default(void)
{
    struct ledger_policy *p = policy_new();
    p->kind_bits = ~(1u << CORE_REVERSE);
    return p;
}

/* From rows to names, in their place. */
static void names_alone(struct json_list *assets)
{
    const struct asset_row *rows = assets->items;
    struct str *names = assets->items;
    for (size_t i = 0; i < assets->n; i++) {
        struct str name = rows[i].name;
        names[i] = name;
    }
}

enum err ledger_policy_parse(struct bytes json, struct ledger_policy **out, char why[200])
{
    struct ledger_policy *p = policy_new();
    struct json_error at;
    enum err err = json_read_dto(json, fields, p, &p->arena, &at);
    if (err == ERR_OK) {
        names_alone(&p->assets);
    } else if (strcmp(at.path, "assets") == 0) {
        ledger_policy_free(p);
        p = policy_new();
        err = json_read_dto(json, fields_listed, p, &p->arena, &at);
    }
    if (err != ERR_OK) {
        snprintf(why, 200, "%s: %s", at.path, json_reason_name(at.reason));
        ledger_policy_free(p);
        return err;
    }
    p->kind_bits = p->has_kinds ? 1u << CORE_EXPIRE : ~(1u << CORE_REVERSE);
    const struct str *names = p->kinds.items;
    for (size_t i = 0; p->has_kinds && i < p->kinds.n; i++) {
        enum core_kind k = ledger_kind_parse(names[i]);
        if (k == CORE_KIND_NONE || k == CORE_EXPIRE) {
            snprintf(why, 200, "kinds[%zu]: unknown kind", i);
            ledger_policy_free(p);
            return ERR_BAD_REQUEST;
        }
        p->kind_bits |= 1u << k;
    }
    *out = p;
    return ERR_OK;
}

void ledger_policy_free(struct ledger_policy *p)
{
    for (struct ledger_policy *old; p != NULL; p = old) {
        old = p->old;
        arena_fini(&p->arena);
        free(p);
    }
}

void ledger_policy_replaces(struct ledger_policy *p, struct ledger_policy *old)
{
    p->old = old;
}

static bool listed(const struct json_list *list, struct str s)
{
    const struct str *v = list->items;
    for (size_t i = 0; s.n != 0 && i < list->n; i++)
        if (str_match_tail(v[i], s))
            return true;
    return false;
}

bool ledger_policy_allows(const struct ledger_policy *p, const struct core_unit *u, const char **out_why)
{
    for (uint32_t i = 0; i < u->n; i++) {
        const struct core_entry *e = &u->entries[i];
        if (!(p->kind_bits & 1u << e->kind)) {
            *out_why = "kind";
            return false;
        }
        if (p->has_assets && !listed(&p->assets, e->asset)) {
            *out_why = "asset";
            return false;
        }
        if (p->frozen.n != 0 && (listed(&p->frozen, e->account) || listed(&p->frozen, e->to))) {
            *out_why = "frozen";
            return false;
        }
    }
    return true;
}
