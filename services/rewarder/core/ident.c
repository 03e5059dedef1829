#include "services/rewarder/core/ident.h"

#include <string.h>

#include "base/check.h"
#include "base/hex.h"

static bool is_alnum(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool in_set(unsigned char c, const char *also)
{
    return is_alnum(c) || (c && strchr(also, c));
}

static bool name_matches(struct str s, size_t max, const char *also)
{
    if (s.n == 0 || s.n > max || !is_alnum((unsigned char)s.p[0]))
        return false;
    for (size_t i = 1; i < s.n; i++)
        if (!in_set((unsigned char)s.p[i], also))
            return false;
    return true;
}

bool rewarder_is_tenant(struct str s)
{
    return name_matches(s, REWARDER_NAME_MAX, "._-");
}

bool rewarder_is_epoch(struct str s)
{
    return name_matches(s, REWARDER_NAME_MAX, "._:-");
}

bool rewarder_is_dim(struct str s)
{
    if (s.n == 0 || s.n > REWARDER_DIM_MAX || s.p[0] < 'a' || s.p[0] > 'z')
        return false;
    for (size_t i = 1; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'))
            return false;
    }
    return true;
}

bool rewarder_is_policy_id(struct str s)
{
    if (!name_matches(s, REWARDER_NAME_MAX, "._-"))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] >= 'A' && s.p[i] <= 'Z')
            return false;
    return true;
}

/* Preimages are short; they are put together on the stack and hashed in one go. */
struct preimage {
    uint8_t p[512];
    size_t n;
};

static void pre_raw(struct preimage *pre, const void *p, size_t n)
{
    CHECK(pre->n + n <= sizeof pre->p);
    memcpy(pre->p + pre->n, p, n);
    pre->n += n;
}

static void pre_lp(struct preimage *pre, struct str s)
{
    CHECK(s.n <= 255);
    uint8_t len = (uint8_t)s.n;
    pre_raw(pre, &len, 1);
    pre_raw(pre, s.p, s.n);
}

static struct sha256 pre_hash(const struct preimage *pre)
{
    struct sha256 h;
    sha256_of(pre->p, pre->n, &h);
    return h;
}

#define PRE_TAG(pre, text) pre_raw((pre), text, sizeof text) /* the tag's zero byte is part of it */

struct sha256 rewarder_run_key(struct str tenant, struct str epoch, const struct sha256 *policy_hash,
                               const struct sha256 *inputs_digest)
{
    struct preimage pre = {.n = 0};
    PRE_TAG(&pre, "ron-rewarder/run/1");
    pre_lp(&pre, tenant);
    pre_lp(&pre, epoch);
    pre_raw(&pre, policy_hash->b, 32);
    pre_raw(&pre, inputs_digest->b, 32);
    return pre_hash(&pre);
}

void rewarder_entry_id(struct str tenant, struct str epoch, struct str account,
                       char out[REWARDER_ENTRY_ID_LEN + 1])
{
    struct preimage pre = {.n = 0};
    PRE_TAG(&pre, "ron-rewarder/entry/1");
    pre_lp(&pre, tenant);
    pre_lp(&pre, epoch);
    pre_lp(&pre, account);
    struct sha256 h = pre_hash(&pre);
    memcpy(out, "rw_", 3);
    hex_encode(h.b, 16, out + 3);
}

void rewarder_unit_id(struct str tenant, struct str epoch, const struct sha256 *run_key, uint32_t chunk,
                      char out[REWARDER_UNIT_ID_LEN + 1])
{
    struct preimage pre = {.n = 0};
    PRE_TAG(&pre, "ron-rewarder/unit/1");
    pre_lp(&pre, tenant);
    pre_lp(&pre, epoch);
    pre_raw(&pre, run_key->b, 32);
    uint8_t no[4];
    be32_put(no, chunk);
    pre_raw(&pre, no, 4);
    struct sha256 h = pre_hash(&pre);
    memcpy(out, "r:", 2);
    hex_encode(h.b, 16, out + 2);
}

void rewarder_kid(const uint8_t public_key[32], char out[REWARDER_KID_LEN + 1])
{
    struct sha256 h;
    sha256_of(public_key, 32, &h);
    hex_encode(h.b, 8, out);
}

struct sha256 rewarder_shadow_id(const struct sha256 *base_hash, const struct sha256 *candidate_hash,
                                 const struct sha256 *inputs_digest)
{
    struct preimage pre = {.n = 0};
    PRE_TAG(&pre, "ron-rewarder/shadow/1");
    pre_raw(&pre, base_hash->b, 32);
    pre_raw(&pre, candidate_hash->b, 32);
    pre_raw(&pre, inputs_digest->b, 32);
    return pre_hash(&pre);
}
