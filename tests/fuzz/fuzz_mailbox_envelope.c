/*
 * An envelope as JSON, and back: whatever bytes a message has, the line is one that a strict reader takes, and its members come out
 * as they went in. A bit flipped in the record before it is read never gets this far.
 */
#include <jansson.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/json_write.h"
#include "base/str.h"
#include "services/mailbox/api/call.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct bytes take(const uint8_t **p, size_t *n, size_t most)
{
    size_t want = *n ? **p % (most + 1) : 0;
    if (*n)
        ++*p, --*n;
    if (want > *n)
        want = *n;
    struct bytes b = bytes_of(*p, want);
    *p += want;
    *n -= want;
    return b;
}

static void check_line(const struct buf *b, const struct mailbox_delivery *d)
{
    json_error_t why;
    json_t *o = json_loadb((const char *)b->p, b->n, JSON_REJECT_DUPLICATES, &why);
    CHECK(o != NULL);
    const char *text = json_string_value(json_object_get(o, "payload_b64"));
    uint8_t *back = malloc(d->enq.payload.n + 3);
    size_t got;
    CHECK(text && back);
    CHECK(base64_decode(str_from_c(text), back, d->enq.payload.n + 3, &got) == ERR_OK);
    CHECK(got == d->enq.payload.n && memcmp(back, d->enq.payload.p, got) == 0);
    CHECK((uint64_t)json_integer_value(json_object_get(o, "topic_seq")) == d->enq.topic_seq);
    CHECK(json_is_object(json_object_get(o, "attrs")));
    free(back);
    json_decref(o);
}

/* The record of it: any flipped bit is refused by the reader. */
static void check_flip(const struct mailbox_rec_enq *q, size_t bit)
{
    static uint8_t group[1 << 16];
    struct mailbox_rec_w w;
    struct mailbox_rec r;
    size_t at = 0;
    mailbox_rec_w_init(&w, group, sizeof group);
    if (mailbox_rec_put_enq(&w, 1, q) != ERR_OK)
        return;
    mailbox_rec_seal(&w);
    CHECK(mailbox_rec_next(bytes_of(group, w.n), &at, &r) == ERR_OK && r.enq.payload.n == q->payload.n);
    bit %= w.n * 8;
    group[bit / 8] ^= (uint8_t)(1u << bit % 8);
    at = 0;
    CHECK(mailbox_rec_next(bytes_of(group, w.n), &at, &r) != ERR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct mailbox_attr attr[4];
    uint8_t attrs[2048];
    size_t attrs_n = 0, k = 0;
    struct buf b;
    struct json_w w;
    if (n > 4096)
        return 0;
    struct bytes topic = take(&data, &n, 60), key = take(&data, &n, 40), corr = take(&data, &n, 36);
    for (; k < 4 && n > 100; k++) {
        attr[k].key = str_of_bytes(take(&data, &n, 20));
        attr[k].value = str_of_bytes(take(&data, &n, 60));
        if (!str_utf8_valid(attr[k].value) ||
            (attr[k].value.n && memchr(attr[k].value.p, 0, attr[k].value.n)))
            return 0;
    }
    if (!mailbox_topic_valid(str_of_bytes(topic)) || !mailbox_idem_valid(str_of_bytes(key)) ||
        !mailbox_idem_valid(str_of_bytes(corr)) ||
        mailbox_attrs_encode(attr, k, attrs, sizeof attrs, &attrs_n) != ERR_OK)
        return 0;
    struct mailbox_delivery d = {.enq = {.topic_seq = n + 1,
                                         .ts_ms = 1760292161000,
                                         .idem_key = str_of_bytes(key),
                                         .corr_id = str_of_bytes(corr),
                                         .attrs = bytes_of(attrs, attrs_n),
                                         .payload = bytes_of(data, n)},
                                 .attempt = 1};
    buf_init(&b, 1 << 20);
    json_w_init(&w, &b);
    mailbox_put_envelope(&w, str_of_bytes(topic), &d, 0);
    CHECK(b.err == ERR_OK);
    check_line(&b, &d);
    check_flip(&d.enq, n * 2654435761u);
    buf_fini(&b);
    return 0;
}
