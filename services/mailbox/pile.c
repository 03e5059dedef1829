#include "services/mailbox/pile.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/huge.h"

static size_t per_piece(const struct mailbox_pile *p)
{
    return HUGE_BYTES / p->item_bytes;
}

void mailbox_pile_init(struct mailbox_pile *p, size_t item_bytes)
{
    CHECK(item_bytes > 0 && item_bytes <= HUGE_BYTES);
    *p = (struct mailbox_pile){.item_bytes = item_bytes};
}

void mailbox_pile_fini(struct mailbox_pile *p)
{
    for (size_t i = 0; i < p->pieces; i++)
        huge_free(p->piece[i]);
    free(p->piece);
    mailbox_pile_init(p, p->item_bytes);
}

uint8_t *mailbox_pile_add(struct mailbox_pile *p)
{
    size_t at = p->n / per_piece(p);
    if (at == p->pieces) {
        uint8_t **wider = realloc(p->piece, (p->pieces + 1) * sizeof *wider);
        if (!wider)
            return NULL;
        p->piece = wider;
        if (!(p->piece[p->pieces] = huge_alloc(false)))
            return NULL;
        p->pieces++;
    }
    return p->piece[at] + p->n++ % per_piece(p) * p->item_bytes;
}

struct bytes mailbox_pile_piece(const struct mailbox_pile *p, size_t i)
{
    CHECK(i < p->pieces);
    size_t before = i * per_piece(p), left = p->n - before;
    return bytes_of(p->piece[i], (left < per_piece(p) ? left : per_piece(p)) * p->item_bytes);
}
