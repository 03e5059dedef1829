/*
 * Whether a shard is on this node, and whether somebody still reads from it.
 *
 *            keeper            worker                 keeper, or a commit that was fenced
 *     AWAY ──claim──► COMING ──arrived──► HERE ──leave, lose──► GOING
 *       ▲                └──── cannot ────┐                       │
 *       └────────────────────── worker: left ◄────────────────────┘  once nobody has it pinned
 *
 * A mailbox that is alone is always HERE.
 *
 * Threads     begin_away, claim, leave, lose, forget_loss: the shard keeper (lose: the worker, too). arrived, left, unread: the shard's worker.
 *             pin, unpin, stage, is_here, is_lost: anybody.
 * Order       Everything is sequentially consistent, since two pairs look at each other crosswise: a reader pins, then looks at the
 *             stage, while the worker looks at the pins after the stage moved on; and the keeper says lost, then looks at the stage,
 *             while the worker says here, then looks whether it is lost. tests/model/mailbox/model_presence.c.
 */
#ifndef RON_MAILBOX_PRESENCE_H
#define RON_MAILBOX_PRESENCE_H

#include <stdbool.h>

#include "rt/os.h"

enum mailbox_stage { MAILBOX_HERE, MAILBOX_AWAY, MAILBOX_COMING, MAILBOX_GOING };

struct mailbox_presence {
    struct os_a32 stage; /* enum mailbox_stage */
    struct os_a32 pins;  /* who reads from its journal */
    struct os_a32 lost;  /* its epoch is over */
};

enum mailbox_stage mailbox_presence_stage(const struct mailbox_presence *p);
bool mailbox_presence_is_here(const struct mailbox_presence *p);
bool mailbox_presence_is_lost(const struct mailbox_presence *p);

/* At the start of a mailbox that shares its shards. */
void mailbox_presence_begin_away(struct mailbox_presence *p);
/* AWAY -> COMING. */
void mailbox_presence_claim(struct mailbox_presence *p);
/* COMING -> HERE; and on to GOING, if it was lost meanwhile. */
void mailbox_presence_arrived(struct mailbox_presence *p);
/* HERE -> GOING. False: it was not here. */
bool mailbox_presence_leave(struct mailbox_presence *p);
/* The epoch is over: HERE -> GOING, now or when it arrives. False: it was not here. */
bool mailbox_presence_lose(struct mailbox_presence *p);
/* Nobody reads from it, and nobody begins to. In GOING only. */
bool mailbox_presence_unread(const struct mailbox_presence *p);
/* COMING or GOING -> AWAY; the state is gone. */
void mailbox_presence_left(struct mailbox_presence *p);
/* The lease was given back: a later one begins with a clean record. In AWAY only. */
void mailbox_presence_forget_loss(struct mailbox_presence *p);

/* False: the shard is not here. Otherwise its journal stays until it is unpinned. */
bool mailbox_presence_pin(struct mailbox_presence *p);
void mailbox_presence_unpin(struct mailbox_presence *p);

#endif
