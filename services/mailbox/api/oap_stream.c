/*
 * RecvStream over OAP: RESP frames without END, each a RecvResponse of about 64 KiB, until the client ends it (REQ|END on its corr)
 * or the service does (RESP|END with a StreamEnd). Settling goes over the same connection or any other.
 */
#include <stdlib.h>

#include "services/mailbox/api/oap.h"
#include "services/mailbox/api/stream.h"

enum { FRAME_BYTES = 64 << 10, FRAME_MAX = (1 << 20) - NET_OAP_HEADER };

static void room_again(struct net_oap_req *rq, void *arg)
{
    (void)rq;
    mailbox_stream_room(arg);
}

static void client_left(struct net_oap_req *rq, void *arg)
{
    (void)rq;
    mailbox_stream_left(arg);
}

static void begin(struct mailbox_stream *st)
{
    (void)st; /* the first frame begins it */
}

static enum err write_frame(struct mailbox_stream *st, struct mailbox_batch *b)
{
    size_t room = 0;
    uint32_t end = b->written;
    while (end < b->n && (end == b->written || room < FRAME_BYTES)) {
        size_t next = mailbox_oap_envelope_max(st->topic, &b->got[end]);
        if (end > b->written && room + next > FRAME_MAX)
            break;
        room += next;
        end++;
    }
    uint8_t *out = malloc(room), *p = out;
    if (!out)
        return ERR_NO_MEMORY;
    for (uint32_t i = b->written; i < end; i++)
        p = mailbox_oap_put_envelope(p, st->topic, &b->got[i], st->close_job.lane->no);
    enum err e = net_oap_send(st->call->oap, NET_OAP_RESP, 200, bytes_of(out, (size_t)(p - out)));
    free(out);
    if (e == ERR_OK)
        b->written = end;
    return e;
}

static enum err beat(struct mailbox_stream *st)
{
    return net_oap_send(st->call->oap, NET_OAP_RESP, 200, (struct bytes){0}); /* an empty RecvResponse */
}

static void end_stream(struct mailbox_stream *st)
{
    struct net_oap_req *rq = st->call->oap;
    struct str code = str_from_c(st->end_code ? st->end_code : "client"),
               detail = STR("the stream has ended; open another to go on");
    uint8_t out[128], *p = mailbox_wire_bytes(out, 1, code.p, code.n);
    p = mailbox_wire_bytes(p, 2, detail.p, detail.n);
    p = mailbox_wire_uint(p, 3, 1);
    mailbox_call_ended(st->call, ERR_OK);
    free(st);
    net_oap_end(rq, NET_OAP_RESP, 200, bytes_of(out, (size_t)(p - out)));
}

static const struct mailbox_stream_wire over_oap = {
    .begin = begin, .write = write_frame, .beat = beat, .end = end_stream};

void mailbox_oap_stream(struct mailbox_call *c)
{
    struct mailbox_wire_recv want;
    enum err e = mailbox_wire_stream(net_oap_req_payload(c->oap), &want);
    if (e == ERR_OK && want.credit == 0)
        want.credit = 64;
    if (e == ERR_OK && want.max_bytes == 0)
        want.max_bytes = 1 << 20;
    if (e != ERR_OK || !mailbox_topic_valid(want.topic) ||
        !mailbox_oap_visibility_ok(c, want.visibility_ms) || want.credit > 1024 || want.max_bytes < 65536 ||
        want.max_bytes > 8388608) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            e == ERR_OK ? "a member is out of range" : "not a RecvStreamRequest");
        return;
    }
    if ((e = mailbox_call_allows(c, want.topic, 0)) != ERR_OK) {
        mailbox_call_refuse(c, e, MAILBOX_WHY_NONE, "the capability does not cover this topic");
        return;
    }
    struct mailbox_stream *st = mailbox_stream_create(c, &want, &over_oap);
    if (!st) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    net_oap_req_set_timeout(c->oap, 0);
    net_oap_req_on_close(c->oap, client_left, st);
    net_oap_req_on_room(c->oap, room_again, st);
    mailbox_stream_submit(st);
}
