#include "services/wallet/core/op.h"

#include "base/check.h"
#include "base/hex.h"
#include "base/json_write.h"

static const char *const kind_names[WALLET_KIND_COUNT] = {"issue", "transfer", "burn",
                                                          "hold",  "capture",  "release"};

const char *wallet_kind_name(enum wallet_kind kind)
{
    CHECK((unsigned)kind < WALLET_KIND_COUNT);
    return kind_names[kind];
}

enum err wallet_kind_parse(struct str s, enum wallet_kind *out_kind)
{
    for (int i = 0; i < WALLET_KIND_COUNT; i++)
        if (str_eq_c(s, kind_names[i])) {
            *out_kind = (enum wallet_kind)i;
            return ERR_OK;
        }
    return ERR_SYNTAX;
}

bool wallet_kind_has_nonce(enum wallet_kind kind)
{
    return kind == WALLET_TRANSFER || kind == WALLET_BURN || kind == WALLET_HOLD;
}

uint64_t wallet_ledger_nonce(uint32_t lane, uint64_t counter)
{
    CHECK(lane <= UINT16_MAX && counter >= 1 && counter <= WALLET_NONCE_MAX);
    return (uint64_t)lane << 48 | counter;
}

/* Keys in bytewise order: that is what makes it canonical. */
void wallet_request_canonical(const struct wallet_op *op, struct buf *out)
{
    struct json_w w;
    json_w_init(&w, out);
    json_obj_begin(&w);
    if (op->has_amount)
        json_put_money(&w, "amount", op->amount);
    if (op->asset.p)
        json_put_str(&w, "asset", op->asset);
    if (op->has_expires_in)
        json_put_u64(&w, "expires_in", op->expires_in_s);
    if (op->from.p)
        json_put_str(&w, "from", op->from);
    if (op->hold.p)
        json_put_str(&w, "hold", op->hold);
    if (op->lane)
        json_put_u64(&w, "lane", op->lane);
    if (op->memo.p)
        json_put_str(&w, "memo", op->memo);
    if (op->nonce)
        json_put_u64(&w, "nonce", op->nonce);
    json_put_cstr(&w, "op", wallet_kind_name(op->kind));
    if (op->to.p)
        json_put_str(&w, "to", op->to);
    json_obj_end(&w);
}

/* SHA-256 of tag, tenant, key and more, each but the last followed by a zero byte. */
static void hash_named(struct str tag, struct str tenant, struct str key, const struct str *more,
                       struct sha256 *out)
{
    static const uint8_t zero[1] = {0};
    const struct bytes sep = {zero, 1};
    struct bytes parts[7] = {bytes_of_str(tag), sep, bytes_of_str(tenant), sep, bytes_of_str(key)};
    size_t n = 5;
    if (more) {
        parts[n++] = sep;
        parts[n++] = bytes_of_str(*more);
    }
    sha256_of_parts(parts, n, out);
}

void wallet_txid_hash(struct str tenant, struct str key, struct str canonical, struct sha256 *out)
{
    hash_named(STR("ron/wallet/txid/v1"), tenant, key, &canonical, out);
}

void wallet_idem_hash(struct str tenant, struct str key, struct sha256 *out)
{
    hash_named(STR("ron/wallet/idem/v1"), tenant, key, NULL, out);
}

void wallet_txid_write(const struct sha256 *hash, char out[WALLET_TXID_CHARS])
{
    memcpy(out, (const char[]){'t', 'x', '_'}, 3);
    hex_encode(hash->b, 16, out + 3);
}

void wallet_idem_id_write(const struct sha256 *hash, char out[WALLET_IDEM_ID_CHARS])
{
    memcpy(out, (const char[]){'w', ':'}, 2);
    hex_encode(hash->b, 32, out + 2);
}

void wallet_txid(struct str tenant, struct str key, struct str canonical, char out[WALLET_TXID_CHARS])
{
    struct sha256 hash;
    wallet_txid_hash(tenant, key, canonical, &hash);
    wallet_txid_write(&hash, out);
}

void wallet_idem_id(struct str tenant, struct str key, char out[WALLET_IDEM_ID_CHARS])
{
    struct sha256 hash;
    wallet_idem_hash(tenant, key, &hash);
    wallet_idem_id_write(&hash, out);
}

bool wallet_is_txid(struct str s)
{
    if (s.n != WALLET_TXID_CHARS - 1 || memcmp(s.p, "tx_", 3) != 0)
        return false;
    for (size_t i = 3; i < s.n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
            return false;
    return true;
}

bool wallet_is_memo(struct str s)
{
    if (s.n < 1 || s.n > WALLET_MEMO_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7F)
            return false;
    return true;
}

static bool is_alnum(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool wallet_is_tenant(struct str s)
{
    if (s.n < 1 || s.n > WALLET_TENANT_MAX || !is_alnum(s.p[0]))
        return false;
    for (size_t i = 1; i < s.n; i++)
        if (!is_alnum(s.p[i]) && s.p[i] != '.' && s.p[i] != '_' && s.p[i] != '-')
            return false;
    return true;
}

enum err wallet_key_parse(struct str header, struct str *out_key)
{
    struct str key = header;
    if (key.n >= 2 && key.p[0] == '"' && key.p[key.n - 1] == '"')
        key = str_of(key.p + 1, key.n - 2);
    if (key.n < 1 || key.n > WALLET_KEY_MAX)
        return ERR_SYNTAX;
    for (size_t i = 0; i < key.n; i++)
        if (!is_alnum(key.p[i]) && !(key.p[i] && strchr("._:/+=-", key.p[i])))
            return ERR_SYNTAX;
    *out_key = key;
    return ERR_OK;
}
