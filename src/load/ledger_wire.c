/*
 * Units as bytes, and answers back from bytes: protobuf for OAP, JSON for HTTP. Numbers become text by hand: printf would cost more
 * than the ledger's whole work on an entry.
 */
#include <jansson.h>
#include <string.h>

#include "base/str.h"
#include "base/wire.h"
#include "load/ledger_internal.h"

enum { ENTRY_BYTES_MAX = 512 };
static const uint64_t ts_ms = 1760000000000;

static uint8_t *put_named(uint8_t *p, unsigned field, const char *head, uint64_t v)
{
    char text[64];
    size_t n = strlen(head);
    memcpy(text, head, n + 1);
    n += str_format_u64(v, text + n);
    return wire_put_bytes(p, field, text, n);
}

void load_ledger__body_begin(struct load_ledger *l, struct load_ledger_slot *s)
{
    buf_reset(&s->body);
    s->first_unit = l->next_unit;
    s->n_units = 0;
    if (!l->oap)
        buf_puts(&s->body, "{\"units\":[");
}

void load_ledger__body_end(struct load_ledger *l, struct load_ledger_slot *s)
{
    if (!l->oap)
        buf_puts(&s->body, "]}");
}

void load_ledger__unit_begin(struct load_ledger *l, struct load_ledger_slot *s)
{
    buf_reset(&l->scratch);
    s->n_units++;
}

static void entry_protobuf(struct load_ledger *l, enum load_ledger_kind kind, uint64_t from, uint64_t to,
                           uint64_t amount, uint64_t nonce)
{
    uint8_t entry[ENTRY_BYTES_MAX];
    uint8_t *e = put_named(entry, 1, l->entry_head, l->next_entry);
    e = wire_put_number(e, 2, ts_ms + l->next_entry);
    e = wire_put_number(e, 3, kind);
    e = put_named(e, 4, l->account_head, from);
    if (kind == LOAD_TRANSFER)
        e = put_named(e, 5, l->account_head, to);
    e = wire_put_bytes(e, 6, l->spec->asset, strlen(l->spec->asset));
    e = wire_put_number(e, 7, amount);
    e = wire_put_number(e, 9, nonce);
    size_t n = (size_t)(e - entry);
    uint8_t *p = buf_reserve(&l->scratch, wire_bytes_size(n));
    if (p != NULL)
        buf_commit(&l->scratch, (size_t)(wire_put_bytes(p, 2, entry, n) - p));
}

static void put_text(struct buf *b, const char *before, const char *head, uint64_t v)
{
    buf_puts(b, before);
    buf_puts(b, head);
    buf_put_u64(b, v);
}

static void entry_json(struct load_ledger *l, enum load_ledger_kind kind, uint64_t from, uint64_t to,
                       uint64_t amount, uint64_t nonce)
{
    struct buf *b = &l->scratch;
    put_text(b, b->n == 0 ? "{\"id\":\"" : ",{\"id\":\"", l->entry_head, l->next_entry);
    put_text(b, "\",\"ts\":", "", ts_ms + l->next_entry);
    put_text(b,
             kind == LOAD_MINT ? ",\"kind\":\"mint\",\"account\":\""
                               : ",\"kind\":\"transfer\",\"account\":\"",
             l->account_head, from);
    if (kind == LOAD_TRANSFER)
        put_text(b, "\",\"to\":\"", l->account_head, to);
    buf_puts(b, "\",\"asset\":\"");
    buf_puts(b, l->spec->asset);
    put_text(b, "\",\"amount\":\"", "", amount);
    if (nonce != 0)
        put_text(b, "\",\"nonce\":\"", "", nonce);
    buf_puts(b, "\"}");
}

void load_ledger__entry(struct load_ledger *l, enum load_ledger_kind kind, uint64_t from, uint64_t to,
                        uint64_t amount, uint64_t nonce)
{
    if (l->oap)
        entry_protobuf(l, kind, from, to, amount, nonce);
    else
        entry_json(l, kind, from, to, amount, nonce);
    l->next_entry++;
}

void load_ledger__unit_end(struct load_ledger *l, struct load_ledger_slot *s)
{
    uint64_t number = l->next_unit++;
    if (!l->oap) {
        put_text(&s->body, s->n_units > 1 ? ",{\"idem_id\":\"" : "{\"idem_id\":\"", l->unit_head, number);
        buf_puts(&s->body, "\",\"entries\":[");
        buf_put_bytes(&s->body, buf_bytes(&l->scratch));
        buf_puts(&s->body, "]}");
        return;
    }
    uint8_t idem[80];
    size_t idem_n = (size_t)(put_named(idem, 1, l->unit_head, number) - idem), n = idem_n + l->scratch.n;
    uint8_t *p = buf_reserve(&s->body, 8 + n);
    if (p == NULL)
        return;
    uint8_t *at = wire_put_head(p, 1, n);
    memcpy(at, idem, idem_n);
    memcpy(at + idem_n, l->scratch.p, l->scratch.n);
    buf_commit(&s->body, (size_t)(at + n - p));
}

/* ---- answers ---- */

enum { COMMITTED = 1, DUPLICATE = 2 };

static bool results_protobuf(struct load_ledger *l, uint64_t unit, struct bytes body,
                             load_ledger_result_fn *fn)
{
    struct wire all = wire_of(body);
    struct wire_field f, g;
    while (wire_next(&all, &f)) {
        if (f.key != wire_key(1, WIRE_BYTES))
            continue;
        uint64_t status = 0, seq = 0;
        struct wire one = wire_of(f.text);
        while (wire_next(&one, &g)) {
            if (g.key == wire_key(2, WIRE_VARINT))
                status = g.number;
            else if (g.key == wire_key(3, WIRE_VARINT))
                seq = g.number;
        }
        if (one.bad)
            return false;
        fn(l, unit++, status == COMMITTED || status == DUPLICATE, seq);
    }
    return !all.bad;
}

static bool results_json(struct load_ledger *l, uint64_t unit, struct bytes body, load_ledger_result_fn *fn)
{
    json_t *root = json_loadb((const char *)body.p, body.n, 0, NULL), *one;
    const json_t *list = json_object_get(root, "results");
    size_t i;
    bool good = json_is_array(list);
    json_array_foreach(list, i, one)
    {
        const char *status = json_string_value(json_object_get(one, "status"));
        bool there =
            status != NULL && (strcmp(status, "committed") == 0 || strcmp(status, "duplicate") == 0);
        fn(l, unit++, there, (uint64_t)json_integer_value(json_object_get(one, "seq_start")));
    }
    json_decref(root);
    return good;
}

bool load_ledger__results(struct load_ledger *l, const struct load_ledger_slot *s, struct bytes body,
                          load_ledger_result_fn *fn)
{
    return l->oap ? results_protobuf(l, s->first_unit, body, fn) : results_json(l, s->first_unit, body, fn);
}

static bool entries_protobuf(struct load_ledger *l, struct bytes body, load_ledger_entry_fn *fn,
                             uint64_t *out_last, uint64_t *out_head)
{
    struct wire all = wire_of(body);
    struct wire_field f, g;
    while (wire_next(&all, &f)) {
        if (f.key == wire_key(3, WIRE_VARINT))
            *out_head = f.number;
        if (f.key != wire_key(1, WIRE_BYTES))
            continue;
        uint64_t seq = 0, unit_seq = 0;
        struct str idem = {NULL, 0};
        struct wire one = wire_of(f.text);
        while (wire_next(&one, &g)) {
            if (g.key == wire_key(1, WIRE_VARINT))
                seq = g.number;
            else if (g.key == wire_key(3, WIRE_VARINT))
                unit_seq = g.number;
            else if (g.key == wire_key(7, WIRE_BYTES))
                idem = str_of((const char *)g.text.p, g.text.n);
        }
        if (one.bad || seq == 0)
            return false;
        *out_last = seq;
        fn(l, seq, unit_seq, idem);
    }
    return !all.bad;
}

static bool entries_json(struct load_ledger *l, struct bytes body, load_ledger_entry_fn *fn,
                         uint64_t *out_last, uint64_t *out_head)
{
    json_t *root = json_loadb((const char *)body.p, body.n, 0, NULL), *one;
    const json_t *list = json_object_get(root, "entries");
    size_t i;
    bool good = json_is_array(list);
    *out_head = (uint64_t)json_integer_value(json_object_get(root, "as_of_seq"));
    json_array_foreach(list, i, one)
    {
        const json_t *unit = json_object_get(one, "unit");
        *out_last = (uint64_t)json_integer_value(json_object_get(one, "seq"));
        fn(l, *out_last, (uint64_t)json_integer_value(json_object_get(unit, "seq_start")),
           str_from_c(json_string_value(json_object_get(unit, "idem_id"))));
    }
    json_decref(root);
    return good;
}

bool load_ledger__entries(struct load_ledger *l, struct bytes body, load_ledger_entry_fn *fn,
                          uint64_t *out_last, uint64_t *out_head)
{
    return l->oap ? entries_protobuf(l, body, fn, out_last, out_head)
                  : entries_json(l, body, fn, out_last, out_head);
}
