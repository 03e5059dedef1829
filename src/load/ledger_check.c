/*
 * The record of acknowledgements, and the reading of the log that it is compared with. A unit is found when the log holds all its
 * entries, once, at the seq that was acknowledged; doubled when its idem_id begins at a second seq.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/wire.h"
#include "load/ledger_internal.h"
#include "load/oap.h"
#include "net/oap.h"

enum { PAGE = 500, CODE_ENTRIES = 7, READERS = 4, UNITS_FIRST = 1 << 16, UNITS_MAX = 20 << 20 };
static const int64_t read_ms = 600000;

bool load_ledger__record_room(struct load_ledger *l)
{
    uint64_t need = l->next_unit + l->spec->units;
    if (need <= l->units_room)
        return true;
    if (need > UNITS_MAX)
        return false;
    size_t room = l->units_room == 0 ? UNITS_FIRST : 2 * l->units_room;
    struct load_record *grown = realloc(l->units, room * sizeof *grown);
    if (grown == NULL)
        return false;
    memset(grown + l->units_room, 0, (room - l->units_room) * sizeof *grown);
    l->units = grown;
    l->units_room = room;
    return true;
}

static void seen(struct load_ledger *l, uint64_t seq, uint64_t unit_seq, struct str idem)
{
    uint64_t number;
    (void)seq;
    l->r->entries_read++;
    if (idem.n <= l->unit_head_n || memcmp(idem.p, l->unit_head, l->unit_head_n) != 0 ||
        str_parse_u64(str_of(idem.p + l->unit_head_n, idem.n - l->unit_head_n), &number) != ERR_OK ||
        number >= l->units_room)
        return; /* somebody else's, or a mint */
    struct load_record *u = &l->units[number];
    if (u->seen_seq == 0)
        u->seen_seq = unit_seq;
    if (u->seen_seq == unit_seq)
        u->seen_entries++;
    else
        u->doubled = true;
}

static uint64_t page_end(const struct load_ledger_slot *s)
{
    return (s->page - 1) / PAGE * PAGE +
           PAGE; /* pages lie on a grid, whatever part of one is left to read */
}

static uint64_t ask_page(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct load_ledger *l = app;
    struct load_ledger_slot *s = &l->slots[slot];
    if (fresh) {
        if (l->read_next > l->read_end)
            return 0;
        s->page = l->read_next;
        l->read_next = page_end(s) + 1;
    }
    uint64_t limit = page_end(s) - s->page + 1;
    if (l->oap) {
        uint8_t body[32];
        uint8_t *p = wire_put_number(wire_put_number(body, 2, s->page), 3, limit);
        load_oap_put(out, NET_OAP_LEDGER, CODE_ENTRIES, slot, first_on_conn ? l->spec->token : NULL,
                     bytes_of(body, (size_t)(p - body)));
    } else {
        char path[96];
        snprintf(path, sizeof path, "/v1/entries?from=%llu&limit=%llu", (unsigned long long)s->page,
                 (unsigned long long)limit);
        load_http_put(out, "GET", path, l->spec->token, NULL, bytes_of(NULL, 0));
    }
    return 1;
}

static enum load_verdict page_answered(void *app, unsigned slot, const struct load_answer *a)
{
    struct load_ledger *l = app;
    struct load_ledger_slot *s = &l->slots[slot];
    uint64_t last = 0, head = 0;
    if (a->status != 200) {
        enum load_verdict v = load_verdict_of(a->status);
        if (v == LOAD_FAILED)
            load_complain(&l->r->complaint, a, l->oap);
        return v;
    }
    if (!load_ledger__entries(l, a->body, seen, &last, &head))
        return LOAD_FAILED;
    if (head > l->read_end)
        l->read_end = head; /* there is more than was acknowledged */
    if (last == 0 && s->page <= l->read_end)
        return LOAD_ELSEWHERE; /* a copy that is behind */
    if (last != 0 && last < page_end(s) && last < l->read_end) {
        s->page = last + 1;
        return LOAD_STEP;
    }
    return LOAD_DONE;
}

static const struct load_wire http = {.ask = ask_page, .parse = load_http_parse, .answered = page_answered};
static const struct load_wire oap = {
    .ask = ask_page, .parse = load_oap_parse, .answered = page_answered, .by_slot = true};

static void judge(struct load_ledger *l)
{
    struct load_ledger_result *r = l->r;
    for (uint64_t i = 0; i < l->next_unit && i < l->units_room; i++) {
        const struct load_record *u = &l->units[i];
        r->acknowledged += u->acked_seq != 0;
        r->doubled += u->doubled;
        bool whole = u->seen_entries == l->spec->per_unit;
        if (u->acked_seq == 0)
            r->unasked += u->seen_seq != 0;
        else if (u->seen_seq == u->acked_seq && whole)
            r->found++;
        else
            r->moved += u->seen_seq != 0;
    }
    r->checked = true;
}

enum err load_ledger__check(struct load_ledger *l, size_t first_addr)
{
    struct load_mill_result m;
    l->read_next = l->first_seq == 0 ? 1 : l->first_seq;
    l->read_end = l->read_next;
    for (uint64_t i = 0; i < l->next_unit && i < l->units_room; i++)
        if (l->units[i].acked_seq > l->read_end)
            l->read_end = l->units[i].acked_seq;
    unsigned readers = l->spec->conns < READERS ? l->spec->conns : READERS;
    enum err e = load_mill_run(&(struct load_mill_spec){.wire = l->oap ? &oap : &http,
                                                        .app = l,
                                                        .addrs = l->spec->addrs,
                                                        .n_addrs = l->spec->n_addrs,
                                                        .first_addr = first_addr,
                                                        .conns = readers,
                                                        .inflight = 1,
                                                        .ms = read_ms,
                                                        .timeout_ms = l->spec->timeout_ms,
                                                        .stop = l->spec->stop},
                               &m);
    if (e != ERR_OK)
        return e;
    if (m.failed > 0)
        return ERR_REFUSED;
    if (l->read_next <= l->read_end || m.unanswered > 0)
        return ERR_TIMEOUT;
    judge(l);
    return ERR_OK;
}
