#include "services/mailbox/core/history.h"

#include <stdlib.h>
#include <string.h>

void mailbox_failure_reason(struct mailbox_failure *f, struct str reason)
{
    size_t n = reason.n < MAILBOX_HISTORY_REASON ? reason.n : MAILBOX_HISTORY_REASON;
    while (n > 0 && n < reason.n && ((unsigned char)reason.p[n] & 0xc0) == 0x80)
        n--; /* the next byte goes on with a character of UTF-8 */
    f->reason_len = (uint8_t)n;
    if (n)
        memcpy(f->reason, reason.p, n);
}

enum err mailbox_history_init(struct mailbox_history *h)
{
    return map64_init(&h->of, 0);
}

void mailbox_history_fini(struct mailbox_history *h)
{
    size_t at = 0;
    void *v;
    while (map64_next(&h->of, &at, NULL, &v))
        free(v);
    map64_fini(&h->of);
}

bool mailbox_history_add(struct mailbox_history *h, uint32_t entry, const struct mailbox_failure *f)
{
    struct mailbox_failures *old = map64_get(&h->of, entry);
    if (old && old->n == MAILBOX_HISTORY_CAUSES) {
        memmove(old->f, old->f + 1, (MAILBOX_HISTORY_CAUSES - 1) * sizeof *f);
        old->f[MAILBOX_HISTORY_CAUSES - 1] = *f;
        old->truncated = true;
        return true;
    }
    if (!old && map64_count(&h->of) >= MAILBOX_HISTORY_MESSAGES)
        return false;
    uint8_t n = old ? old->n : 0;
    struct mailbox_failures *now = realloc(old, sizeof *now + (n + 1u) * sizeof *f);
    if (!now)
        return false;
    if (!old)
        now->truncated = false;
    now->f[n] = *f;
    now->n = (uint8_t)(n + 1);
    if (map64_put(&h->of, entry, now, NULL) != ERR_OK) {
        free(now); /* only a first cause can need a larger table, so nothing that was kept is lost */
        return false;
    }
    return true;
}

bool mailbox_history_begin_cut(struct mailbox_history *h, uint32_t entry)
{
    struct mailbox_failures *f = calloc(1, sizeof *f);
    bool kept =
        f && map64_count(&h->of) < MAILBOX_HISTORY_MESSAGES && map64_add(&h->of, entry, f) == ERR_OK;
    if (kept)
        f->truncated = true;
    else
        free(f);
    return kept;
}

const struct mailbox_failures *mailbox_history_get(const struct mailbox_history *h, uint32_t entry)
{
    return map64_get(&h->of, entry);
}

void mailbox_history_drop(struct mailbox_history *h, uint32_t entry)
{
    free(map64_remove(&h->of, entry));
}
