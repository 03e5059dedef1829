/*
 * OAP requests as the door reads them (core/wire) against protobuf-c, which generated code is made of: what the door takes,
 * generated code takes too, and both see the same members. Text with a NUL is left out of the comparison: generated strings end there.
 */
#include <stdlib.h>

#include "base/check.h"
#include "ron/mailbox.pb-c.h"
#include "services/mailbox/core/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool same_text(struct str a, const char *b)
{
    size_t n = strlen(b);
    return memchr(a.p, 0, a.n) ? true : a.n == n && memcmp(a.p, b, n) == 0;
}

static bool same_bytes(struct bytes a, ProtobufCBinaryData b)
{
    return a.n == b.len && (a.n == 0 || memcmp(a.p, b.data, a.n) == 0);
}

struct send_check {
    Ron__Mailbox__V1__SendRequest *want;
    size_t at;
};

static enum err see_message(void *ctx, struct mailbox_message *m)
{
    struct send_check *s = ctx;
    if (!s->want)
        return ERR_OK;
    CHECK(s->at < s->want->n_messages);
    const Ron__Mailbox__V1__Message *w = s->want->messages[s->at++];
    CHECK(same_text(m->topic, w->topic) && same_text(m->idem_key, w->idem_key));
    CHECK(same_bytes(m->payload, w->payload) && m->attrs_n == w->n_attrs);
    CHECK(m->delay_ms == w->delay_ms && m->deliver_at_ms == w->deliver_at_ms);
    CHECK(m->has_payload_hash == (w->payload_hash.len == 32));
    CHECK(m->bad_payload_hash == (w->payload_hash.len != 32 && w->payload_hash.len != 0));
    for (size_t i = 0; i < m->attrs_n; i++)
        CHECK(same_text(m->attrs[i].key, w->attrs[i]->key) &&
              same_text(m->attrs[i].value, w->attrs[i]->value));
    return ERR_OK;
}

static void check_send(struct bytes in)
{
    struct arena a;
    struct str corr;
    struct send_check s = {ron__mailbox__v1__send_request__unpack(NULL, in.n, in.p), 0};
    arena_init(&a, 4096, 64 << 20);
    enum err e = mailbox_wire_send(in, &a, &corr, see_message, &s);
    CHECK(e != ERR_OK || s.want);
    if (s.want && e == ERR_OK)
        CHECK(s.at == s.want->n_messages && mailbox_wire_count(in) == s.at &&
              same_text(corr, s.want->corr_id));
    if (s.want)
        ron__mailbox__v1__send_request__free_unpacked(s.want, NULL);
    arena_fini(&a);
}

static void check_recv(struct bytes in)
{
    struct mailbox_wire_recv r;
    Ron__Mailbox__V1__RecvRequest *w = ron__mailbox__v1__recv_request__unpack(NULL, in.n, in.p);
    enum err e = mailbox_wire_recv(in, &r);
    CHECK(e != ERR_OK || w);
    if (w && e == ERR_OK)
        CHECK(same_text(r.topic, w->topic) && r.visibility_ms == w->visibility_ms &&
              r.max_messages == w->max_messages && r.max_bytes == w->max_bytes && r.wait_ms == w->wait_ms);
    if (w)
        ron__mailbox__v1__recv_request__free_unpacked(w, NULL);
    Ron__Mailbox__V1__RecvStreamRequest *v =
        ron__mailbox__v1__recv_stream_request__unpack(NULL, in.n, in.p);
    e = mailbox_wire_stream(in, &r);
    CHECK(e != ERR_OK || v);
    if (v && e == ERR_OK)
        CHECK(r.credit == v->credit && r.max_bytes == v->max_bytes && r.visibility_ms == v->visibility_ms);
    if (v)
        ron__mailbox__v1__recv_stream_request__free_unpacked(v, NULL);
}

struct nack_check {
    Ron__Mailbox__V1__NackRequest *want;
    size_t at;
};

static enum err see_nack(void *ctx, const struct mailbox_wire_settle *it)
{
    struct nack_check *s = ctx;
    if (!s->want)
        return ERR_OK;
    CHECK(s->at < s->want->n_items);
    const Ron__Mailbox__V1__NackItem *w = s->want->items[s->at++];
    CHECK(same_bytes(it->msg_id, w->msg_id) && it->attempt == w->attempt &&
          same_text(it->reason, w->reason));
    CHECK(it->use_delay == (w->use_delay != 0) && it->dead == (w->dead != 0) &&
          it->delay_ms == w->delay_ms);
    return ERR_OK;
}

static enum err see_any(void *ctx, const struct mailbox_wire_settle *it)
{
    (void)it;
    ++*(size_t *)ctx;
    return ERR_OK;
}

static void check_settle(struct bytes in)
{
    struct nack_check s = {ron__mailbox__v1__nack_request__unpack(NULL, in.n, in.p), 0};
    enum err e = mailbox_wire_settle(in, MAILBOX_WIRE_NACK, see_nack, &s);
    CHECK(e != ERR_OK || (s.want && s.at == s.want->n_items));
    if (s.want)
        ron__mailbox__v1__nack_request__free_unpacked(s.want, NULL);
    size_t n = 0;
    Ron__Mailbox__V1__AckRequest *a = ron__mailbox__v1__ack_request__unpack(NULL, in.n, in.p);
    e = mailbox_wire_settle(in, MAILBOX_WIRE_ACK, see_any, &n);
    CHECK(e != ERR_OK || (a && n == a->n_items));
    if (a)
        ron__mailbox__v1__ack_request__free_unpacked(a, NULL);
    n = 0;
    Ron__Mailbox__V1__ExtendRequest *x = ron__mailbox__v1__extend_request__unpack(NULL, in.n, in.p);
    e = mailbox_wire_settle(in, MAILBOX_WIRE_EXTEND, see_any, &n);
    CHECK(e != ERR_OK || (x && n == x->n_items));
    if (x)
        ron__mailbox__v1__extend_request__free_unpacked(x, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes in = bytes_of(data, n);
    if (n > 1 << 20)
        return 0;
    check_send(in);
    check_recv(in);
    check_settle(in);
    return 0;
}
