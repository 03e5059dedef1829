#include "services/wallet/api/body.h"

#include <stdio.h>

#include "base/str.h"

struct body {
    struct str from, to, asset, memo, hold, op;
    struct money amount;
    uint64_t nonce, lane, expires_in;
    bool has_amount, has_memo, has_expires_in;
};

#define F_TO     JSON_REQ(struct body, to, JSON_KIND_STR, .check = str_is_account)
#define F_FROM   JSON_REQ(struct body, from, JSON_KIND_STR, .check = str_is_account)
#define F_ASSET  JSON_REQ(struct body, asset, JSON_KIND_STR, .check = str_is_asset)
#define F_AMOUNT JSON_REQ(struct body, amount, JSON_KIND_MONEY, .min = 1)
#define F_NONCE  JSON_REQ(struct body, nonce, JSON_KIND_U64, .min = 1, .max = WALLET_NONCE_MAX)
#define F_LANE   JSON_DEF(struct body, lane, JSON_KIND_U64, .max = 65535)
#define F_MEMO   JSON_OPT(struct body, memo, JSON_KIND_STR, .check = wallet_is_memo)
#define F_HOLD   JSON_REQ(struct body, hold, JSON_KIND_STR, .check = wallet_is_txid)
#define F_OP     JSON_REQ(struct body, op, JSON_KIND_STR)

static const struct json_field issue_fields[] = {F_TO, F_ASSET, F_AMOUNT, F_MEMO, JSON_END};
static const struct json_field transfer_fields[] = {F_FROM,  F_TO,   F_ASSET, F_AMOUNT,
                                                    F_NONCE, F_LANE, F_MEMO,  JSON_END};
static const struct json_field burn_fields[] = {F_FROM, F_ASSET, F_AMOUNT, F_NONCE,
                                                F_LANE, F_MEMO,  JSON_END};
static const struct json_field hold_fields[] = {
    F_FROM,  F_TO,   F_ASSET, F_AMOUNT,
    F_NONCE, F_LANE, F_MEMO,  JSON_OPT(struct body, expires_in, JSON_KIND_U64, .min = 1, .max = 100000000),
    JSON_END};
static const struct json_field capture_fields[] = {
    F_HOLD, JSON_OPT(struct body, amount, JSON_KIND_MONEY, .min = 1), F_MEMO, JSON_END};
static const struct json_field release_fields[] = {F_HOLD, F_MEMO, JSON_END};

static const struct json_field *const fields_of[WALLET_KIND_COUNT] = {
    [WALLET_ISSUE] = issue_fields, [WALLET_TRANSFER] = transfer_fields, [WALLET_BURN] = burn_fields,
    [WALLET_HOLD] = hold_fields,   [WALLET_CAPTURE] = capture_fields,   [WALLET_RELEASE] = release_fields,
};

/* A simulation's body is the operation's with one more member. */
struct op_only {
    struct str op;
};
static const struct json_field op_only_fields[] = {JSON_REQ(struct op_only, op, JSON_KIND_STR), JSON_END};

static enum err bad(struct json_error *why, const char *member, enum json_reason reason)
{
    snprintf(why->path, sizeof why->path, "%s", member);
    why->reason = reason;
    return ERR_BAD_REQUEST;
}

/* Which operation a simulation is about, and the table with "op" added to it. */
static enum err simulated_fields(struct bytes body, struct arena *a, struct json_field room[16],
                                 enum wallet_kind *out_kind, struct json_error *why)
{
    static const struct json_field op_field = F_OP;
    struct op_only head = {0};
    size_t n = 0;
    if (json_read_dto_lax(body, op_only_fields, &head, a, why) != ERR_OK)
        return ERR_BAD_REQUEST;
    if (wallet_kind_parse(head.op, out_kind) != ERR_OK)
        return bad(why, "op", JSON_PATTERN);
    for (const struct json_field *f = fields_of[*out_kind]; f->kind != JSON_KIND_END; f++)
        room[n++] = *f;
    room[n++] = op_field;
    room[n] = (struct json_field)JSON_END;
    return ERR_OK;
}

enum err wallet_body_read(struct bytes body, enum wallet_kind kind, bool simulated,
                          const struct wallet_body_limits *limits, struct arena *a, struct wallet_op *out,
                          struct json_error *out_why)
{
    struct json_field room[16];
    const struct json_field *fields = fields_of[kind];
    struct body b = {0};
    if (simulated) {
        if (simulated_fields(body, a, room, &kind, out_why) != ERR_OK)
            return ERR_BAD_REQUEST;
        fields = room;
    }
    if (json_read_dto(body, fields, &b, a, out_why) != ERR_OK)
        return ERR_BAD_REQUEST;
    if (b.lane > limits->max_lane)
        return bad(out_why, "lane", JSON_RANGE);
    if (b.has_expires_in && (int64_t)b.expires_in * 1000 > limits->hold_max_ttl_ms)
        return bad(out_why, "expires_in", JSON_RANGE);
    *out = (struct wallet_op){.kind = kind,
                              .from = b.from,
                              .to = b.to,
                              .asset = b.asset,
                              .amount = b.amount,
                              .has_amount = kind == WALLET_CAPTURE ? b.has_amount : kind != WALLET_RELEASE,
                              .nonce = b.nonce,
                              .lane = (uint32_t)b.lane,
                              .expires_in_s = b.expires_in,
                              .has_expires_in = b.has_expires_in,
                              .hold = b.hold,
                              .memo = b.has_memo ? b.memo : str_of(NULL, 0)};
    return ERR_OK;
}
