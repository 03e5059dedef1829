#include "load/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/wire.h"
#include "load/oap.h"
#include "net/oap.h"

enum { CODE_SEND = 1, MSG_ID = 36, NUMBER_AT = 16, NUMBER_CHARS = 16, SEEN_FIRST = 1 << 16, EMPTY_MAX = 3 };
enum { VISIBILITY_MS = 60000 };

enum step { SEND, RECEIVE, ACK };

struct message {
    bool acknowledged;
    uint8_t received; /* how often, 255 at most */
};

struct slot {
    enum step step;
    uint64_t number; /* of the message it sends; of a batch, the first */
    int64_t asked_ns;
    char topic[64], msg_id[MSG_ID + 1];
};

struct load {
    const struct load_mailbox_spec *spec;
    struct load_mailbox_result *r;
    struct slot *slots;
    uint64_t run, next, next_topic;
    bool last_look; /* receiving what the cycles left behind */
    unsigned empty; /* topics in a row that had nothing */
    struct message *messages;
    size_t messages_room;
};

void load_mailbox_payload(uint64_t run, uint64_t number, uint8_t out[LOAD_MAILBOX_PAYLOAD])
{
    char head[40];
    memset(out, 'x', LOAD_MAILBOX_PAYLOAD);
    snprintf(head, sizeof head, "%016llx%016llx", (unsigned long long)run, (unsigned long long)number);
    memcpy(out, head, NUMBER_AT + NUMBER_CHARS);
}

/* ---- the record ---- */

static bool record_room(struct load *l)
{
    if (!l->spec->check || l->next < l->messages_room)
        return true;
    if (l->next >= LOAD_MAILBOX_MESSAGES_MAX)
        return false;
    size_t room = l->messages_room == 0 ? SEEN_FIRST : 2 * l->messages_room;
    struct message *grown = realloc(l->messages, room * sizeof *grown);
    if (grown == NULL)
        return false;
    memset(grown + l->messages_room, 0, (room - l->messages_room) * sizeof *grown);
    l->messages = grown;
    l->messages_room = room;
    return true;
}

static void note_received(struct load *l, struct bytes body)
{
    static const char key[] = "\"payload_b64\":\"";
    const uint8_t *p = memmem(body.p, body.n, key, sizeof key - 1);
    uint8_t head[(NUMBER_AT + NUMBER_CHARS) / 4 * 3 + 24];
    size_t n;
    char number[NUMBER_CHARS + 1] = {0};
    enum { CHARS = 44 }; /* of 33 bytes: run and number, and an x */
    if (!l->spec->check || p == NULL || (size_t)(body.p + body.n - p) < sizeof key - 1 + CHARS)
        return;
    if (base64_decode(str_of((const char *)p + sizeof key - 1, CHARS), head, sizeof head, &n) != ERR_OK)
        return;
    memcpy(number, head + NUMBER_AT, NUMBER_CHARS);
    uint64_t i = strtoull(number, NULL, 16);
    if (i < l->messages_room && l->messages[i].received < UINT8_MAX)
        l->messages[i].received++;
}

static void judge(struct load *l)
{
    struct load_mailbox_result *r = l->r;
    for (uint64_t i = 0; i < l->next && i < l->messages_room; i++) {
        r->acknowledged += l->messages[i].acknowledged;
        r->found += l->messages[i].acknowledged && l->messages[i].received > 0;
        r->doubled += l->messages[i].received > 1;
    }
    r->checked = true;
}

/* ---- HTTP ---- */

static void name_topic(struct load *l, struct slot *s)
{
    unsigned n = l->spec->topics;
    snprintf(s->topic, sizeof s->topic, "%s/%u", l->spec->topic,
             n > 1 ? (unsigned)(l->next_topic++ % n) : 0);
}

static void put_send(struct load *l, const struct slot *s, struct buf *out)
{
    uint8_t payload[LOAD_MAILBOX_PAYLOAD];
    char b64[400], body[1024];
    load_mailbox_payload(l->run, s->number, payload);
    base64_encode(payload, sizeof payload, b64);
    int n =
        snprintf(body, sizeof body, "{\"topic\":\"%s\",\"idem_key\":\"%llx-%llu\",\"payload_b64\":\"%s\"}",
                 s->topic, (unsigned long long)l->run, (unsigned long long)s->number, b64);
    load_http_put(out, "POST", "/v1/send", l->spec->token, NULL, bytes_of(body, (size_t)n));
}

static void put_receive(struct load *l, const struct slot *s, struct buf *out)
{
    char body[160];
    int n = snprintf(body, sizeof body, "{\"topic\":\"%s\",\"max_messages\":1,\"visibility_ms\":%d}",
                     s->topic, VISIBILITY_MS);
    load_http_put(out, "POST", "/v1/recv", l->spec->token, NULL, bytes_of(body, (size_t)n));
}

static uint64_t ask(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct load *l = app;
    struct slot *s = &l->slots[slot];
    bool receives = l->last_look || l->spec->mode == LOAD_MAILBOX_RECEIVE;
    (void)first_on_conn;
    if (fresh) {
        if (l->last_look ? l->empty >= l->spec->topics * EMPTY_MAX : !receives && !record_room(l))
            return 0;
        s->step = receives ? RECEIVE : SEND;
        if (!receives)
            s->number = l->next++;
        name_topic(l, s);
    }
    char path[64];
    s->asked_ns = load_now_ns();
    switch (s->step) {
    case SEND:
        put_send(l, s, out);
        break;
    case RECEIVE:
        put_receive(l, s, out);
        break;
    case ACK:
        snprintf(path, sizeof path, "/v1/ack/%s", s->msg_id);
        load_http_put(out, "POST", path, l->spec->token, NULL, bytes_of("", 0));
        break;
    }
    return 1;
}

static enum load_verdict received(struct load *l, struct slot *s, struct bytes body)
{
    const uint8_t *id = memmem(body.p, body.n, "\"msg_id\":\"", 10);
    if (id == NULL || (size_t)(body.p + body.n - id) < 10 + MSG_ID) {
        if (!l->last_look)
            return LOAD_STEP; /* somebody else was faster: once more */
        l->empty++;
        return LOAD_DONE;
    }
    l->empty = 0;
    memcpy(s->msg_id, id + 10, MSG_ID);
    s->msg_id[MSG_ID] = 0;
    note_received(l, body);
    s->step = ACK;
    return LOAD_STEP;
}

/* Notes what was refused. A token that is not good enough does not get better: nothing more is asked. */
static void complain(struct load *l, const struct load_answer *a, bool oap)
{
    load_complain(&l->r->complaint, a, oap);
    if ((a->status == 401 || a->status == 403) && l->spec->stop != NULL)
        atomic_store(l->spec->stop, true);
}

static enum load_verdict answered(void *app, unsigned slot, const struct load_answer *a)
{
    struct load *l = app;
    struct slot *s = &l->slots[slot];
    enum load_verdict v = load_verdict_of(a->status);
    if (l->spec->rate > 0 && a->status == 429) {
        load_times_note(&l->r->refused, load_now_ns() - s->asked_ns);
        return LOAD_FAILED;
    }
    if (v == LOAD_FAILED)
        complain(l, a, false);
    if (v != LOAD_DONE)
        return v;
    switch (s->step) {
    case SEND:
        if (l->spec->check)
            l->messages[s->number].acknowledged = true;
        s->step = RECEIVE;
        return l->spec->mode == LOAD_MAILBOX_SEND ? LOAD_DONE : LOAD_STEP;
    case RECEIVE:
        if (l->spec->mode == LOAD_MAILBOX_RECEIVE)
            name_topic(l, s);
        return received(l, s, a->body);
    case ACK:
        return LOAD_DONE;
    }
    UNREACHABLE();
}

/* ---- OAP: batches of sends ---- */

static uint64_t ask_batch(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct load *l = app;
    struct slot *s = &l->slots[slot];
    static const size_t one_max = 512;
    if (fresh) {
        s->number = l->next;
        l->next += l->spec->batch;
    }
    uint8_t *body = malloc(one_max * l->spec->batch), *p = body;
    CHECK(body != NULL);
    for (unsigned i = 0; i < l->spec->batch; i++) {
        uint8_t one[512], payload[LOAD_MAILBOX_PAYLOAD];
        char key[64], topic[64];
        uint64_t number = s->number + i;
        int k =
            snprintf(key, sizeof key, "%llx-%llu", (unsigned long long)l->run, (unsigned long long)number);
        int t =
            snprintf(topic, sizeof topic, "%s/%u", l->spec->topic, (unsigned)(number % l->spec->topics));
        load_mailbox_payload(l->run, number, payload);
        uint8_t *e = wire_put_bytes(one, 1, topic, (size_t)t);
        e = wire_put_bytes(e, 2, key, (size_t)k);
        e = wire_put_bytes(e, 3, payload, sizeof payload);
        p = wire_put_bytes(p, 1, one, (size_t)(e - one));
    }
    load_oap_put(out, NET_OAP_MAILBOX, CODE_SEND, slot, first_on_conn ? l->spec->token : NULL,
                 bytes_of(body, (size_t)(p - body)));
    free(body);
    return l->spec->batch;
}

/* A batch is done when each of its messages is. */
static bool all_taken(struct bytes body)
{
    struct wire all = wire_of(body);
    struct wire_field f = {0}, g = {0};
    while (wire_next(&all, &f)) {
        struct wire one = wire_of(f.key == wire_key(1, WIRE_BYTES) ? f.text : bytes_of(NULL, 0));
        while (wire_next(&one, &g))
            if (g.key == wire_key(1, WIRE_VARINT) && g.number != 200)
                return false;
        if (one.bad)
            return false;
    }
    return !all.bad;
}

static enum load_verdict batch_answered(void *app, unsigned slot, const struct load_answer *a)
{
    struct load *l = app;
    enum load_verdict v = load_verdict_of(a->status);
    (void)slot;
    if (v == LOAD_DONE && !all_taken(a->body))
        v = LOAD_FAILED;
    if (v == LOAD_FAILED)
        complain(l, a, true);
    return v;
}

static const struct load_wire http = {.ask = ask, .parse = load_http_parse, .answered = answered};
static const struct load_wire oap = {
    .ask = ask_batch, .parse = load_oap_parse, .answered = batch_answered, .by_slot = true};

/* ---- the run ---- */

static enum err mill(struct load *l, struct load_mill_result *out)
{
    const struct load_mailbox_spec *s = l->spec;
    return load_mill_run(&(struct load_mill_spec){.wire = s->addrs[0].oap ? &oap : &http,
                                                  .app = l,
                                                  .addrs = s->addrs,
                                                  .n_addrs = s->n_addrs,
                                                  .conns = s->conns,
                                                  .inflight = s->inflight,
                                                  .rate = l->last_look ? 0 : s->rate,
                                                  .awake = s->awake,
                                                  .ms = l->last_look ? VISIBILITY_MS : s->ms,
                                                  .count_max = l->last_look ? 0 : s->count,
                                                  .timeout_ms = s->timeout_ms,
                                                  .patience_ms = s->patience_ms,
                                                  .stop = s->stop,
                                                  .each_second = l->last_look ? NULL : s->each_second},
                         out);
}

enum err load_mailbox_run(const struct load_mailbox_spec *spec, struct load_mailbox_result *out)
{
    struct load l = {.spec = spec, .r = out, .run = rng_secure_u64() >> 8};
    memset(out, 0, sizeof *out);
    CHECK(spec->topics > 0 && spec->batch > 0 && (!spec->check || spec->mode == LOAD_MAILBOX_CYCLE));
    if (spec->addrs[0].oap && spec->mode != LOAD_MAILBOX_SEND)
        return ERR_RANGE;
    l.slots = calloc((size_t)spec->conns * spec->inflight, sizeof *l.slots);
    enum err e = l.slots == NULL ? ERR_NO_MEMORY : mill(&l, &out->load);
    out->load.failed -=
        out->refused.n < out->load.failed ? out->refused.n : out->load.failed; /* told apart */
    if (e == ERR_OK && out->load.done_in_all == 0 && out->complaint.status >= 400)
        e = ERR_REFUSED;
    if (e == ERR_OK && spec->check) {
        struct load_mill_result last;
        l.last_look = true;
        e = mill(&l, &last);
        if (e == ERR_OK)
            judge(&l);
    }
    free(l.slots);
    free(l.messages);
    return e;
}
