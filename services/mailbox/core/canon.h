/*
 * Canonical bytes and the hash chain of a topic.
 *
 * attrs bytes = u32 count, then by key bytes ascending: LP(key) LP(value), where LP(x) = u32 length and x. Integers are
 * big-endian. chain_0 names the topic and its chain id; chain_n covers chain_{n-1} and everything of message n that a
 * consumer can see except its payload and attributes, which it covers by hash (docs/formats/mailbox.md).  Pure.
 */
#ifndef RON_MAILBOX_CORE_CANON_H
#define RON_MAILBOX_CORE_CANON_H

#include "services/mailbox/core/ids.h"

struct mailbox_attr {
    struct str key, value;
};

/* Sorts attrs in place and writes their canonical bytes; ERR_SYNTAX for a bad or repeated key, ERR_TOO_LARGE over a limit. */
NODISCARD enum err mailbox_attrs_encode(struct mailbox_attr *attrs, size_t count, uint8_t *out,
                                        size_t out_max, size_t *out_len);
/* Walks canonical bytes: start with *at = 0; false at the end or on malformed bytes (then *at != bytes.n). */
bool mailbox_attrs_next(struct bytes attrs, size_t *at, struct mailbox_attr *out_attr);
bool mailbox_attrs_wellformed(struct bytes attrs);

struct mailbox_link {
    struct sha256 prev, payload_hash, attrs_hash;
    struct str topic, idem_key;
    struct uuid msg_id;
    uint64_t topic_seq, ts_ms, not_before_ms;
};

void mailbox_chain_genesis(struct str topic, const struct uuid *chain_id, struct sha256 *out_chain);
void mailbox_chain_next(const struct mailbox_link *link, struct sha256 *out_chain);

#endif
