#include "services/mailbox/core/wire.h"

#include "base/wire.h"

struct field {
    uint32_t no, wire;
    uint64_t v;     /* WIRE_VARINT */
    struct bytes b; /* WIRE_BYTES */
};

/* ERR_EMPTY at the end. */
static enum err next(struct bytes *in, struct field *out)
{
    struct wire w = wire_of(*in);
    struct wire_field f = {.key = 0};
    if (!wire_next(&w, &f))
        return w.bad ? ERR_SYNTAX : ERR_EMPTY;
    *in = bytes_of(w.p, (size_t)(w.end - w.p));
    *out = (struct field){wire_member(f.key), f.key & 7, f.number, f.text};
    return ERR_OK;
}

static struct str text(struct bytes b)
{
    return str_of((const char *)b.p, b.n);
}

size_t mailbox_wire_count(struct bytes in)
{
    struct field f;
    size_t n = 0;
    enum err e;
    while ((e = next(&in, &f)) == ERR_OK)
        n += f.no == 1;
    return e == ERR_EMPTY ? n : 0;
}

/* ---- send ---- */

static enum err read_attr(struct bytes in, struct mailbox_attr *a)
{
    struct field f;
    enum err e;
    while ((e = next(&in, &f)) == ERR_OK) {
        if (f.no > 2)
            continue;
        if (f.wire != WIRE_BYTES)
            return ERR_SYNTAX;
        *(f.no == 1 ? &a->key : &a->value) = text(f.b);
    }
    return e == ERR_EMPTY ? ERR_OK : e;
}

static enum err read_attrs(struct bytes in, struct arena *arena, struct mailbox_message *m)
{
    struct field f;
    size_t at = 0;
    m->attrs = arena_array(arena, m->attrs_n, sizeof *m->attrs);
    if (!m->attrs)
        return ERR_NO_MEMORY;
    while (next(&in, &f) == ERR_OK) {
        if (f.no != 4)
            continue;
        m->attrs[at] = (struct mailbox_attr){STR(""), STR("")};
        enum err e = read_attr(f.b, &m->attrs[at++]);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err read_message(struct bytes in, struct arena *arena, struct mailbox_message *m)
{
    const struct bytes all = in;
    struct field f;
    enum err e;
    *m = (struct mailbox_message){.topic = STR(""), .idem_key = STR("")};
    while ((e = next(&in, &f)) == ERR_OK) {
        if (f.no > 7)
            continue;
        if (f.wire != (f.no <= 5 ? WIRE_BYTES : WIRE_VARINT))
            return ERR_SYNTAX;
        if (f.no == 1)
            m->topic = text(f.b);
        else if (f.no == 2)
            m->idem_key = text(f.b);
        else if (f.no == 3)
            m->payload = f.b;
        else if (f.no == 4)
            m->attrs_n++;
        else if (f.no == 5) {
            m->has_payload_hash = f.b.n == 32;
            m->bad_payload_hash = f.b.n != 32 && f.b.n != 0;
            if (m->has_payload_hash)
                memcpy(m->payload_hash.b, f.b.p, 32);
        } else if (f.no == 6)
            m->delay_ms = f.v;
        else
            m->deliver_at_ms = f.v;
    }
    m->has_delay = m->delay_ms != 0;
    m->has_deliver_at = m->deliver_at_ms != 0;
    if (e != ERR_EMPTY)
        return e;
    return m->attrs_n ? read_attrs(all, arena, m) : ERR_OK;
}

enum err mailbox_wire_send(struct bytes in, struct arena *a, struct str *out_corr_id,
                           enum err (*each)(void *ctx, struct mailbox_message *m), void *ctx)
{
    struct field f;
    enum err e;
    *out_corr_id = STR("");
    while ((e = next(&in, &f)) == ERR_OK) {
        struct mailbox_message m;
        if (f.no > 2)
            continue;
        if (f.wire != WIRE_BYTES)
            return ERR_SYNTAX;
        if (f.no == 2) {
            *out_corr_id = text(f.b);
            continue;
        }
        e = read_message(f.b, a, &m);
        if (e == ERR_OK)
            e = each(ctx, &m);
        if (e != ERR_OK)
            return e;
    }
    return e == ERR_EMPTY ? ERR_OK : e;
}

/* ---- receive ---- */

static enum err read_recv(struct bytes in, uint32_t **scalar, size_t scalars, struct mailbox_wire_recv *out)
{
    struct field f;
    enum err e;
    while ((e = next(&in, &f)) == ERR_OK) {
        if (f.no > scalars + 1)
            continue;
        if (f.wire != (f.no == 1 ? WIRE_BYTES : WIRE_VARINT))
            return ERR_SYNTAX;
        if (f.no == 1)
            out->topic = text(f.b);
        else
            *scalar[f.no - 2] = (uint32_t)f.v;
    }
    return e == ERR_EMPTY ? ERR_OK : e;
}

enum err mailbox_wire_recv(struct bytes in, struct mailbox_wire_recv *out)
{
    struct mailbox_wire_recv r = {.topic = STR("")};
    uint32_t *scalar[] = {&r.visibility_ms, &r.max_messages, &r.max_bytes, &r.wait_ms};
    enum err e = read_recv(in, scalar, 4, &r);
    if (e == ERR_OK)
        *out = r;
    return e;
}

enum err mailbox_wire_stream(struct bytes in, struct mailbox_wire_recv *out)
{
    struct mailbox_wire_recv r = {.topic = STR("")};
    uint32_t *scalar[] = {&r.visibility_ms, &r.credit, &r.max_bytes};
    enum err e = read_recv(in, scalar, 3, &r);
    if (e == ERR_OK)
        *out = r;
    return e;
}

/* ---- settle ---- */

static enum err set_settle(struct mailbox_wire_settle *it, enum mailbox_wire_kind kind,
                           const struct field *f)
{
    bool bytes = f->no == 1 || (kind == MAILBOX_WIRE_NACK && f->no == 3);
    if (f->wire != (bytes ? WIRE_BYTES : WIRE_VARINT))
        return ERR_SYNTAX;
    if (f->no == 1)
        it->msg_id = f->b;
    else if (f->no == 2)
        it->attempt = (uint32_t)f->v;
    else if (kind == MAILBOX_WIRE_EXTEND)
        it->visibility_ms = (uint32_t)f->v;
    else if (f->no == 3)
        it->reason = text(f->b);
    else if (f->no == 4)
        it->use_delay = f->v != 0;
    else if (f->no == 5)
        it->delay_ms = f->v;
    else
        it->dead = f->v != 0;
    return ERR_OK;
}

enum err mailbox_wire_settle(struct bytes in, enum mailbox_wire_kind kind,
                             enum err (*each)(void *ctx, const struct mailbox_wire_settle *it), void *ctx)
{
    static const uint32_t last[] = {
        [MAILBOX_WIRE_ACK] = 2, [MAILBOX_WIRE_NACK] = 6, [MAILBOX_WIRE_EXTEND] = 3};
    struct field f, g;
    enum err e;
    while ((e = next(&in, &f)) == ERR_OK) {
        struct mailbox_wire_settle it = {.reason = STR("")};
        struct bytes one = f.b;
        if (f.no != 1)
            continue;
        if (f.wire != WIRE_BYTES)
            return ERR_SYNTAX;
        while ((e = next(&one, &g)) == ERR_OK) {
            if (g.no <= last[kind] && (e = set_settle(&it, kind, &g)) != ERR_OK)
                return e;
        }
        if (e != ERR_EMPTY || (e = each(ctx, &it)) != ERR_OK)
            return e;
    }
    return e == ERR_EMPTY ? ERR_OK : e;
}

/* ---- writing ---- */

uint8_t *mailbox_wire_uint(uint8_t *p, uint32_t field, uint64_t v)
{
    return v ? wire_put_varint(wire_put_varint(p, (uint64_t)field << 3), v) : p;
}

uint8_t *mailbox_wire_bytes(uint8_t *p, uint32_t field, const void *v, size_t n)
{
    if (n == 0)
        return p;
    p = wire_put_varint(wire_put_varint(p, (uint64_t)field << 3 | WIRE_BYTES), n);
    memcpy(p, v, n);
    return p + n;
}
