/*
 * Names and numbers of the mailbox: topics, keys, message ids, buckets.
 *
 * A message id is a UUIDv7 whose 12 bits of rand_a are the topic's bucket, so an id alone finds its shard whatever the
 * number of shards.  Pure: nothing allocates, nothing reads a clock.
 */
#ifndef RON_MAILBOX_CORE_IDS_H
#define RON_MAILBOX_CORE_IDS_H

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/uuid.h"

enum {
    MAILBOX_BUCKETS = 4096,
    MAILBOX_TOPIC_MAX = 256,
    MAILBOX_IDEM_MAX = 128,
    MAILBOX_CORR_MAX = 128,
    MAILBOX_REASON_MAX = 256,
    MAILBOX_PAYLOAD_MAX = 737280,
    MAILBOX_ATTRS_MAX = 32,
    MAILBOX_ATTRS_BYTES_MAX = 8192,
    MAILBOX_ATTR_KEY_MAX = 64,
    MAILBOX_ATTR_VALUE_MAX = 1024,
};

struct mailbox_digest {
    uint8_t b[16];
};

bool mailbox_topic_valid(struct str topic); /* ^[A-Za-z0-9][A-Za-z0-9:._/@-]{0,255}$ */
bool mailbox_idem_valid(struct str key);    /* 1..128 bytes of 0x21..0x7e */
bool mailbox_attr_key_valid(struct str key);

/* The topic's hash is taken once, at the door; bucket, shard and table slot all come from it. */
void mailbox_topic_hash(struct str topic, struct sha256 *out_hash);
static inline uint16_t mailbox_bucket(const struct sha256 *topic_hash)
{
    return (uint16_t)(be16_get(topic_hash->b) >> 4);
}
void mailbox_dedup_digest(struct str topic, struct str idem_key, struct mailbox_digest *out_digest);
/* What is hashed for it, for whoever hashes many at once: its bytes; the digest is the first of the SHA-256. */
enum { MAILBOX_DEDUP_BYTES_MAX = 21 + 4 + MAILBOX_TOPIC_MAX + 4 + MAILBOX_IDEM_MAX };
size_t mailbox_dedup_bytes(struct str topic, struct str idem_key, uint8_t out[MAILBOX_DEDUP_BYTES_MAX]);

struct uuid mailbox_id_make(uint64_t ts_ms, uint16_t bucket, uint64_t random_bits);
uint64_t mailbox_id_ts_ms(const struct uuid *id);
uint16_t mailbox_id_bucket(const struct uuid *id);
static inline bool mailbox_id_eq(const struct uuid *a, const struct uuid *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

#endif
