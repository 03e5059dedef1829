#include "services/mailbox/core/ids.h"

static bool alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool mailbox_topic_valid(struct str topic)
{
    if (topic.n < 1 || topic.n > MAILBOX_TOPIC_MAX || !alnum(topic.p[0]))
        return false;
    for (size_t i = 1; i < topic.n; i++) {
        char c = topic.p[i];
        if (!alnum(c) && c != ':' && c != '.' && c != '_' && c != '/' && c != '@' && c != '-')
            return false;
    }
    return true;
}

bool mailbox_idem_valid(struct str key)
{
    if (key.n < 1 || key.n > MAILBOX_IDEM_MAX)
        return false;
    for (size_t i = 0; i < key.n; i++)
        if (key.p[i] < 0x21 || key.p[i] > 0x7e)
            return false;
    return true;
}

bool mailbox_attr_key_valid(struct str key)
{
    if (key.n < 1 || key.n > MAILBOX_ATTR_KEY_MAX)
        return false;
    for (size_t i = 0; i < key.n; i++)
        if (!alnum(key.p[i]) && key.p[i] != '.' && key.p[i] != '_' && key.p[i] != '-')
            return false;
    return true;
}

void mailbox_topic_hash(struct str topic, struct sha256 *out_hash)
{
    sha256_of(topic.p, topic.n, out_hash);
}

size_t mailbox_dedup_bytes(struct str topic, struct str idem_key, uint8_t out[MAILBOX_DEDUP_BYTES_MAX])
{
    static const char tag[] = "ron/mailbox/dedup/v1";
    _Static_assert(sizeof tag + 4 + MAILBOX_TOPIC_MAX + 4 + MAILBOX_IDEM_MAX == MAILBOX_DEDUP_BYTES_MAX,
                   "the longest of each");
    uint8_t *p = out;

    memcpy(p, tag, sizeof tag);
    p += sizeof tag;
    be32_put(p, (uint32_t)topic.n);
    memcpy(p + 4, topic.p, topic.n);
    p += 4 + topic.n;
    be32_put(p, (uint32_t)idem_key.n);
    memcpy(p + 4, idem_key.p, idem_key.n);
    return (size_t)(p + 4 + idem_key.n - out);
}

void mailbox_dedup_digest(struct str topic, struct str idem_key, struct mailbox_digest *out_digest)
{
    uint8_t bytes[MAILBOX_DEDUP_BYTES_MAX];
    struct sha256 h;

    sha256_of(bytes, mailbox_dedup_bytes(topic, idem_key, bytes), &h);
    memcpy(out_digest->b, h.b, sizeof out_digest->b);
}

struct uuid mailbox_id_make(uint64_t ts_ms, uint16_t bucket, uint64_t random_bits)
{
    struct uuid id;

    be64_put(id.b, (ts_ms << 16) | 0x7000u | (bucket & 0x0fffu));
    be64_put(id.b + 8, (random_bits & 0x3fffffffffffffffu) | 0x8000000000000000u);
    return id;
}

uint64_t mailbox_id_ts_ms(const struct uuid *id)
{
    return be64_get(id->b) >> 16;
}

uint16_t mailbox_id_bucket(const struct uuid *id)
{
    return (uint16_t)(be16_get(id->b + 6) & 0x0fff);
}
