#include "services/rewarder/line.h"

#include "base/json_read.h"

#define TEXT(member)   JSON_DEF(struct rewarder_line, member, JSON_KIND_STR)
#define HASH(member)   JSON_OPT(struct rewarder_line, member, JSON_KIND_HASH)
#define AMOUNT(member) JSON_OPT(struct rewarder_line, member, JSON_KIND_MONEY)
#define COUNT(member)  JSON_DEF(struct rewarder_line, member, JSON_KIND_U64)
#define TIME(member)   JSON_DEF(struct rewarder_line, member, JSON_KIND_I64)

static const struct json_field fields[] = {
    JSON_REQ(struct rewarder_line, n, JSON_KIND_U64),
    JSON_REQ_AS(struct rewarder_line, tenant, "t", JSON_KIND_STR),
    JSON_REQ_AS(struct rewarder_line, epoch, "e", JSON_KIND_STR),
    JSON_REQ(struct rewarder_line, op, JSON_KIND_STR),
    HASH(run_key),
    HASH(cid),
    HASH(digest),
    HASH(manifest),
    HASH(root),
    HASH(policy_hash),
    TEXT(policy_id),
    TEXT(funding),
    TEXT(asset),
    AMOUNT(declared),
    JSON_DEF(struct rewarder_line, from_balance, JSON_KIND_BOOL),
    COUNT(ledger_seq),
    AMOUNT(pool),
    AMOUNT(payouts),
    AMOUNT(dust),
    COUNT(paid),
    COUNT(leaves),
    TIME(sealed_at),
    TEXT(kind),
    TEXT(reason),
    JSON_DEF(struct rewarder_line, refused, JSON_KIND_RAW),
    AMOUNT(placed),
    TIME(at),
    TIME(settled_at),
    COUNT(seq_first),
    COUNT(seq_last),
    JSON_END,
};

enum err rewarder_line_read(struct bytes text, struct arena *arena, struct rewarder_line *out)
{
    struct json_error why;
    *out = (struct rewarder_line){.n = 0};
    enum err e = json_read_dto_lax(text, fields, out, arena, &why);
    return e == ERR_OK ? ERR_OK : e == ERR_TOO_LARGE ? ERR_NO_MEMORY : ERR_CORRUPT;
}
