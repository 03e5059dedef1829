/*
 * What a topic's name says about its messages: the first matching rule wins, the last is the default.  Pure.
 */
#ifndef RON_MAILBOX_CORE_POLICY_H
#define RON_MAILBOX_CORE_POLICY_H

#include "base/bytes.h"

enum { MAILBOX_CLASSES_MAX = 65, MAILBOX_CLASS_NAME_MAX = 32 }; /* 64 rules and the default */
#define MAILBOX_UNLIMITED UINT64_MAX

struct mailbox_policy {
    char match[260]; /* exact, or a prefix and '*' */
    char class_name[MAILBOX_CLASS_NAME_MAX];
    uint64_t t_replay_ms; /* MAILBOX_UNLIMITED */
    uint32_t default_visibility_ms;
    uint8_t max_attempts;
    bool ordered;
};

struct mailbox_policies {
    struct mailbox_policy p[MAILBOX_CLASSES_MAX];
    uint8_t n; /* p[0] is the default; 1.. are the rules in order */
};

uint8_t mailbox_policy_match(const struct mailbox_policies *ps, struct str topic);
bool mailbox_pattern_covers(struct str pattern, struct str name); /* trailing '*' is the only wildcard */

#endif
