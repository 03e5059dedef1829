#include "services/mailbox/presence.h"

#include "base/check.h"

static bool move(struct mailbox_presence *p, enum mailbox_stage from, enum mailbox_stage to)
{
    uint32_t seen = from;
    return os_a32_cas(&p->stage, &seen, to, memory_order_seq_cst);
}

enum mailbox_stage mailbox_presence_stage(const struct mailbox_presence *p)
{
    return (enum mailbox_stage)os_a32_load(&p->stage, memory_order_seq_cst);
}

bool mailbox_presence_is_here(const struct mailbox_presence *p)
{
    return mailbox_presence_stage(p) == MAILBOX_HERE;
}

bool mailbox_presence_is_lost(const struct mailbox_presence *p)
{
    return os_a32_load(&p->lost, memory_order_seq_cst) != 0;
}

void mailbox_presence_begin_away(struct mailbox_presence *p)
{
    os_a32_store(&p->stage, MAILBOX_AWAY, memory_order_seq_cst);
}

void mailbox_presence_claim(struct mailbox_presence *p)
{
    CHECK(move(p, MAILBOX_AWAY, MAILBOX_COMING));
}

void mailbox_presence_arrived(struct mailbox_presence *p)
{
    CHECK(move(p, MAILBOX_COMING, MAILBOX_HERE));
    if (mailbox_presence_is_lost(p)) /* after the move: who loses it from now on finds it here */
        (void)move(p, MAILBOX_HERE, MAILBOX_GOING);
}

bool mailbox_presence_leave(struct mailbox_presence *p)
{
    return move(p, MAILBOX_HERE, MAILBOX_GOING);
}

bool mailbox_presence_lose(struct mailbox_presence *p)
{
    os_a32_store(&p->lost, 1, memory_order_seq_cst);
    return move(p, MAILBOX_HERE, MAILBOX_GOING);
}

bool mailbox_presence_unread(const struct mailbox_presence *p)
{
    return os_a32_load(&p->pins, memory_order_seq_cst) == 0;
}

void mailbox_presence_left(struct mailbox_presence *p)
{
    os_a32_store(&p->stage, MAILBOX_AWAY, memory_order_seq_cst);
}

void mailbox_presence_forget_loss(struct mailbox_presence *p)
{
    os_a32_store(&p->lost, 0, memory_order_seq_cst);
}

bool mailbox_presence_pin(struct mailbox_presence *p)
{
    os_a32_add(&p->pins, 1, memory_order_seq_cst); /* before the look at the stage */
    if (mailbox_presence_is_here(p))
        return true;
    mailbox_presence_unpin(p);
    return false;
}

void mailbox_presence_unpin(struct mailbox_presence *p)
{
    os_a32_add(&p->pins, (uint32_t)-1, memory_order_seq_cst);
}
