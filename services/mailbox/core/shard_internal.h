/* What the files of the shard share and nobody else sees. */
#ifndef RON_MAILBOX_CORE_SHARD_INTERNAL_H
#define RON_MAILBOX_CORE_SHARD_INTERNAL_H

#include "base/check.h"
#include "services/mailbox/core/shard.h"

#define ENTRY(s, i) mailbox_entry_at(&(s)->slabs, (i))

struct mailbox_topic *mailbox_shard__topic(const struct mailbox_shard *s, const struct mailbox_entry *e);
const struct mailbox_policy *mailbox_shard__policy(const struct mailbox_shard *s,
                                                   const struct mailbox_entry *e);
struct mailbox_class_stats *mailbox_shard__stats(struct mailbox_shard *s, const struct mailbox_topic *t);

/* The only way to change a state: keeps every count right. Does not touch left and right. */
void mailbox_shard__set_state(struct mailbox_shard *s, uint32_t i, enum mailbox_state to);
/* Where its record lies and how long it is: of these, too, every segment keeps count. */
void mailbox_shard__set_place(struct mailbox_shard *s, uint32_t i, uint32_t segment, uint32_t offset8,
                              uint32_t length64);
void mailbox_shard__free(struct mailbox_shard *s, uint32_t i);

/* Queues. The entry must be out of all others. */
void mailbox_shard__fifo_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i);
void mailbox_shard__heap_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i);
uint32_t mailbox_shard__ready_head(struct mailbox_shard *s,
                                   struct mailbox_topic *t); /* drops ghosts on the way */
void mailbox_shard__ready_pop(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i);
void mailbox_shard__dlq_push(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i);
void mailbox_shard__dlq_remove(struct mailbox_shard *s, struct mailbox_topic *t, uint32_t i);
void mailbox_shard__forget_later(struct mailbox_shard *s, uint32_t i); /* a DONE one, at its due */
void mailbox_shard__to_done(struct mailbox_shard *s, uint32_t i, bool acked, bool in_heap);
void mailbox_shard__mark_dirty(struct mailbox_shard *s, struct mailbox_topic *t);
void mailbox_shard__credit_back(struct mailbox_shard *s, uint32_t i);

/* The topic's record, under this id. */
void mailbox_shard__put_topic(struct mailbox_shard *s, uint32_t id, const struct mailbox_topic *t);
/* Puts the topic's record into the group unless the scope has one. */
void mailbox_shard__name_topic(struct mailbox_shard *s, struct mailbox_topic *t);

/* Room to remember one more message of the group being built. */
NODISCARD enum err mailbox_shard__pending_reserve(struct mailbox_shard *s);

/* Records. A read-only shard keeps none. */
void mailbox_shard__wrote(struct mailbox_shard *s, enum err e, bool flush);

int64_t mailbox_shard__accept_us(const struct mailbox_shard *s, const struct mailbox_entry *e);
/* From when the retention of a message that becomes ready again counts: its acceptance, or now if it began to wait later. */
int64_t mailbox_shard__ready_since_us(const struct mailbox_shard *s, const struct mailbox_entry *e);
int64_t mailbox_shard__window_end_us(const struct mailbox_shard *s, const struct mailbox_entry *e);
bool mailbox_shard__outstayed(const struct mailbox_shard *s,
                              const struct mailbox_entry *e); /* a READY one */
void mailbox_shard__fail(struct mailbox_shard *s, uint32_t i, enum mailbox_cause cause, struct str reason,
                         enum mailbox_fail_to to, uint64_t delay_ms);
void mailbox_shard__event(struct mailbox_shard *s, enum mailbox_event_kind kind,
                          const struct mailbox_topic *t, uint32_t i, uint8_t cause);
void mailbox_shard__topic_unused(struct mailbox_shard *s, struct mailbox_topic *t);

#endif
