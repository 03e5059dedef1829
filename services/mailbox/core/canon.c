#include "services/mailbox/core/canon.h"

#include <stdlib.h>

static int attr_cmp(const void *a, const void *b)
{
    return str_cmp(((const struct mailbox_attr *)a)->key, ((const struct mailbox_attr *)b)->key);
}

enum err mailbox_attrs_encode(struct mailbox_attr *attrs, size_t count, uint8_t *out, size_t out_max,
                              size_t *out_len)
{
    size_t need = 4;

    if (count > MAILBOX_ATTRS_MAX)
        return ERR_TOO_LARGE;
    if (count > 1)
        qsort(attrs, count, sizeof *attrs, attr_cmp);
    for (size_t i = 0; i < count; i++) {
        if (!mailbox_attr_key_valid(attrs[i].key) || (i > 0 && str_eq(attrs[i - 1].key, attrs[i].key)))
            return ERR_SYNTAX;
        if (attrs[i].value.n > MAILBOX_ATTR_VALUE_MAX)
            return ERR_TOO_LARGE;
        need += 8 + attrs[i].key.n + attrs[i].value.n;
    }
    if (need > MAILBOX_ATTRS_BYTES_MAX || need > out_max)
        return ERR_TOO_LARGE;
    be32_put(out, (uint32_t)count);
    uint8_t *p = out + 4;
    for (size_t i = 0; i < count; i++) {
        be32_put(p, (uint32_t)attrs[i].key.n);
        memcpy(p + 4, attrs[i].key.p, attrs[i].key.n);
        p += 4 + attrs[i].key.n;
        be32_put(p, (uint32_t)attrs[i].value.n);
        if (attrs[i].value.n)
            memcpy(p + 4, attrs[i].value.p, attrs[i].value.n);
        p += 4 + attrs[i].value.n;
    }
    *out_len = need;
    return ERR_OK;
}

static bool take_lp(struct bytes b, size_t *at, struct str *out)
{
    if (b.n - *at < 4)
        return false;
    uint32_t n = be32_get(b.p + *at);
    if (b.n - *at - 4 < n)
        return false;
    *out = str_of((const char *)b.p + *at + 4, n);
    *at += 4 + (size_t)n;
    return true;
}

bool mailbox_attrs_next(struct bytes attrs, size_t *at, struct mailbox_attr *out_attr)
{
    size_t pos = *at == 0 ? 4 : *at;
    struct mailbox_attr a;

    if (attrs.n < 4)
        return false;
    *at = pos;
    if (!take_lp(attrs, &pos, &a.key) || !take_lp(attrs, &pos, &a.value))
        return false;
    *at = pos;
    *out_attr = a;
    return true;
}

bool mailbox_attrs_wellformed(struct bytes attrs)
{
    size_t at = 0, n = 0;
    struct mailbox_attr a;

    if (attrs.n < 4 || attrs.n > MAILBOX_ATTRS_BYTES_MAX)
        return false;
    while (mailbox_attrs_next(attrs, &at, &a))
        n++;
    return at == attrs.n && n == be32_get(attrs.p);
}

void mailbox_chain_genesis(struct str topic, const struct uuid *chain_id, struct sha256 *out_chain)
{
    static const char tag[] = "ron/mailbox/genesis/v1";
    uint8_t buf[sizeof tag + 4 + MAILBOX_TOPIC_MAX + 20], *p = buf;

    memcpy(p, tag, sizeof tag);
    p += sizeof tag;
    be32_put(p, (uint32_t)topic.n);
    memcpy(p + 4, topic.p, topic.n);
    p += 4 + topic.n;
    be32_put(p, 16);
    memcpy(p + 4, chain_id->b, 16);
    sha256_of(buf, (size_t)(p + 20 - buf), out_chain);
}

static uint8_t *put_lp(uint8_t *p, const void *bytes, size_t n)
{
    be32_put(p, (uint32_t)n);
    memcpy(p + 4, bytes, n);
    return p + 4 + n;
}

static uint8_t *put_u64(uint8_t *p, uint64_t v)
{
    be32_put(p, 8);
    be64_put(p + 4, v);
    return p + 12;
}

void mailbox_chain_next(const struct mailbox_link *link, struct sha256 *out_chain)
{
    static const char tag[] = "ron/mailbox/chain/v1";
    uint8_t buf[189 + MAILBOX_TOPIC_MAX + MAILBOX_IDEM_MAX], *p = buf;

    memcpy(p, tag, sizeof tag);
    memcpy(p + sizeof tag, link->prev.b, 32);
    p = put_u64(p + sizeof tag + 32, link->topic_seq);
    p = put_lp(p, link->topic.p, link->topic.n);
    p = put_lp(p, link->msg_id.b, 16);
    p = put_u64(p, link->ts_ms);
    p = put_u64(p, link->not_before_ms);
    p = put_lp(p, link->idem_key.p, link->idem_key.n);
    p = put_lp(p, link->payload_hash.b, 32);
    p = put_lp(p, link->attrs_hash.b, 32);
    sha256_of(buf, (size_t)(p - buf), out_chain);
}
