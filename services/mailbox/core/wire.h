/*
 * The requests of the OAP door as protobuf (proto/ron/mailbox.proto), read without copies.
 *
 * A generated decoder allocates an object, an array and a string per field; a send of 64 messages is 400 allocations. These readers
 * walk the bytes once and hand out views into them. They accept nothing that generated code refuses and see the same members: unknown
 * fields are skipped, of a scalar given twice the last one counts, a known field with the wrong wire type is an error. Field 0 and
 * groups are errors too. The fuzzer compares the two.
 *
 * Ownership   Views point into the input.
 * Memory      Only attributes of messages that have some, from the arena.
 */
#ifndef RON_MAILBOX_CORE_WIRE_H
#define RON_MAILBOX_CORE_WIRE_H

#include "base/arena.h"
#include "services/mailbox/core/canon.h"

/* One message to be sent, from JSON or protobuf, not yet checked against grammars and limits. */
struct mailbox_message {
    struct str topic, idem_key;
    struct bytes payload;
    struct mailbox_attr *attrs;
    size_t attrs_n;
    struct sha256 payload_hash;
    bool has_payload_hash, bad_payload_hash; /* bad: neither empty nor 32 bytes */
    uint64_t delay_ms, deliver_at_ms;
    bool has_delay, has_deliver_at;
};

/* Calls `each` for every message in order; ERR_SYNTAX, ERR_NO_MEMORY, or what `each` answers. */
NODISCARD enum err mailbox_wire_send(struct bytes in, struct arena *a, struct str *out_corr_id,
                                     enum err (*each)(void *ctx, struct mailbox_message *m), void *ctx);

struct mailbox_wire_recv {
    struct str topic;
    uint32_t visibility_ms, max_messages, max_bytes, wait_ms, credit;
};
NODISCARD enum err mailbox_wire_recv(struct bytes in, struct mailbox_wire_recv *out);
NODISCARD enum err mailbox_wire_stream(struct bytes in, struct mailbox_wire_recv *out);

/* One item of an ack, nack or extend; each kind leaves the others' members zero. */
struct mailbox_wire_settle {
    struct bytes msg_id;
    uint32_t attempt, visibility_ms;
    struct str reason;
    bool use_delay, dead;
    uint64_t delay_ms;
};
enum mailbox_wire_kind { MAILBOX_WIRE_ACK, MAILBOX_WIRE_NACK, MAILBOX_WIRE_EXTEND };
/* Calls `each` for every item in order; ERR_SYNTAX, or what `each` answers. */
NODISCARD enum err mailbox_wire_settle(struct bytes in, enum mailbox_wire_kind kind,
                                       enum err (*each)(void *ctx, const struct mailbox_wire_settle *it),
                                       void *ctx);

/* How many items (field 1) a request has; 0 also when it is not well formed. */
size_t mailbox_wire_count(struct bytes in);

/* Writing, beside what base/wire.h has: each returns where it stopped; the caller knows the room. */
uint8_t *mailbox_wire_uint(uint8_t *p, uint32_t field, uint64_t v); /* nothing for 0, as proto3 has it */
uint8_t *mailbox_wire_bytes(uint8_t *p, uint32_t field, const void *v, size_t n); /* nothing for n = 0 */

#endif
