#include "services/mailbox/core/gather.h"

void mailbox_gather_wrote(struct mailbox_gather *g, int64_t now_us, int64_t took_us, uint32_t answered,
                          uint32_t waiting)
{
    int64_t wait_us = took_us * 3 / 4;
    g->expected = 0;
    if (g->skip > 0) {
        g->skip--;
        return;
    }
    g->answered = answered;
    g->expected = answered + waiting;
    g->since_us = now_us;
    g->until_us = now_us + (wait_us < MAILBOX_GATHER_MS * 1000 ? wait_us : MAILBOX_GATHER_MS * 1000);
    g->waited = false;
}

/* Those who were answered are back. At their pace, would all who are expected come in time? */
static bool in_time(const struct mailbox_gather *g, int64_t now_us)
{
    return (now_us - g->since_us) * g->expected <= (g->until_us - g->since_us) * g->answered;
}

bool mailbox_gather_waits(struct mailbox_gather *g, int64_t now_us, uint32_t here)
{
    if (g->expected == 0)
        return false;
    bool all = here >= g->expected;
    if (!all && now_us < g->until_us) {
        g->waited = true;
        return true;
    }
    if (g->waited && all && in_time(g, now_us)) {
        g->skips /= 2; /* by chance, perhaps */
    } else if (g->waited) {
        g->skips = g->skips == 0 ? 1 : g->skips * 2;
        if (g->skips > MAILBOX_GATHER_SKIPS_MAX)
            g->skips = MAILBOX_GATHER_SKIPS_MAX;
        g->skip = g->skips;
    }
    g->expected = 0; /* decided */
    return false;
}
