/*
 * Why messages failed: a side table from an entry to its causes, for the few that have any.
 *
 * Bounds      65536 messages, the last 16 causes each, reasons cut to 64 bytes. A message that finds the table full, or a
 *             17th cause, is marked truncated; nothing else is lost by it.
 * Threads     One writer.
 */
#ifndef RON_MAILBOX_CORE_HISTORY_H
#define RON_MAILBOX_CORE_HISTORY_H

#include "base/map.h"
#include "base/str.h"

enum { MAILBOX_HISTORY_MESSAGES = 65536, MAILBOX_HISTORY_CAUSES = 16, MAILBOX_HISTORY_REASON = 64 };

struct mailbox_failure {
    uint64_t at_ms;
    uint16_t attempt;
    uint8_t cause, reason_len;
    char reason[MAILBOX_HISTORY_REASON];
};

/* As much of it as is kept, whole characters. */
void mailbox_failure_reason(struct mailbox_failure *f, struct str reason);

struct mailbox_failures {
    uint8_t n;
    bool truncated;
    struct mailbox_failure f[];
};

struct mailbox_history {
    struct map64 of;
};

NODISCARD enum err mailbox_history_init(struct mailbox_history *h);
void mailbox_history_fini(struct mailbox_history *h);
bool mailbox_history_add(struct mailbox_history *h, uint32_t entry,
                         const struct mailbox_failure *f); /* false: no room */
/* An entry without causes whose first ones are known to be gone. false: no room */
bool mailbox_history_begin_cut(struct mailbox_history *h, uint32_t entry);
const struct mailbox_failures *mailbox_history_get(const struct mailbox_history *h,
                                                   uint32_t entry); /* NULL = none */
void mailbox_history_drop(struct mailbox_history *h, uint32_t entry);

#endif
