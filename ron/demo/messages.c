/* The mailbox: sent once whatever is repeated, delivered under a lease, poisoned into the dead letters and brought back. */
#include <stdio.h>
#include <string.h>

#include "ron/demo/demo.h"

enum { DELIVERIES_MAX = 100 };

struct letter {
    char id[64];
    long long attempt;
};

RT_BLOCKS
static bool send_one(struct demo *d, const char *topic, const char *key, bool duplicate, char id[64])
{
    struct client_answer a;
    char body[512];
    /* eyJvcmRlciI6MX0= is {"order":1} */
    snprintf(body, sizeof body,
             "{\"topic\":\"%s\",\"idem_key\":\"%s\",\"payload_b64\":\"eyJvcmRlciI6MX0=\"}", topic, key);
    if (!demo_call(d, "mailbox", 200, &(struct client_request){.path = "/v1/send", .body = body}, &a))
        return false;
    bool ok = json_is_true(json_object_get(a.json, "duplicate")) == duplicate &&
              (!duplicate || strcmp(id, client_str(a.json, "msg_id")) == 0);
    snprintf(id, 64, "%s", client_str(a.json, "msg_id"));
    ok = demo_claim(d, ok,
                    duplicate ? "sent again with its key: still one, %s" : "a message is durable: %s", id);
    client_free(&a);
    return ok;
}

/* False when nothing came (that is no claim yet) or the call failed. */
RT_BLOCKS
static bool receive(struct demo *d, const char *topic, long long wait_ms, struct letter *out,
                    bool *out_came)
{
    struct client_answer a;
    char body[256];
    snprintf(body, sizeof body,
             "{\"topic\":\"%s\",\"max_messages\":1,\"wait_ms\":%lld,\"visibility_ms\":30000}", topic,
             wait_ms);
    if (!demo_call(d, "mailbox", 200,
                   &(struct client_request){.path = "/v1/recv", .body = body, .timeout_ms = wait_ms + 5000},
                   &a))
        return false;
    const json_t *m = json_array_get(json_object_get(a.json, "messages"), 0);
    *out_came = m != NULL;
    if (m) {
        snprintf(out->id, sizeof out->id, "%s", client_str(m, "msg_id"));
        out->attempt = client_int(m, "attempt");
    }
    client_free(&a);
    return true;
}

RT_BLOCKS
static bool ack(struct demo *d, const char *id, const char *what)
{
    struct client_answer a;
    char path[128];
    snprintf(path, sizeof path, "/v1/ack/%s", id);
    if (!demo_call(d, "mailbox", 200,
                   &(struct client_request){.path = path, .method = "POST", .body = "{}"}, &a))
        return false;
    bool ok = demo_claim(d, json_is_true(json_object_get(a.json, "ok")), "%s", what);
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool deliver(struct demo *d, const char *topic, const char *id)
{
    struct letter got = {0};
    bool came;
    if (!receive(d, topic, 5000, &got, &came) ||
        !demo_claim(d, came && strcmp(got.id, id) == 0, "a reader holds it under a lease"))
        return false;
    if (!receive(d, topic, 0, &got, &came) || !demo_claim(d, !came, "nobody else sees it meanwhile"))
        return false;
    return ack(d, id, "the reader acknowledged it: it will not come again");
}

/* A reader that fails every time, until the mailbox gives up on the message. */
RT_BLOCKS
static bool poison(struct demo *d, const char *topic, const char *id)
{
    long long attempt = 0;
    for (int i = 0; i < DELIVERIES_MAX; i++) {
        struct letter got = {0};
        struct client_answer a;
        char path[128];
        bool came;
        if (!receive(d, topic, 5000, &got, &came))
            return false;
        if (!came || strcmp(got.id, id) != 0 || got.attempt != attempt + 1)
            return demo_claim(d, false, "delivery %lld of the poisoned message did not come", attempt + 1);
        attempt = got.attempt;
        snprintf(path, sizeof path, "/v1/nack/%s", id);
        if (!demo_call(d, "mailbox", 200,
                       &(struct client_request){
                           .path = path, .body = "{\"delay_ms\":0,\"reason\":\"the printer is on fire\"}"},
                       &a))
            return false;
        bool dead = strcmp(client_str(a.json, "state"), "dlq") == 0;
        client_free(&a);
        if (dead)
            return demo_claim(d, true, "a poisoned message failed %lld deliveries and is a dead letter now",
                              attempt);
    }
    return demo_claim(d, false, "a message that always fails never became a dead letter");
}

RT_BLOCKS
static bool look_at_dead(struct demo *d, const char *topic, const char *id)
{
    struct client_answer a;
    char path[192];
    snprintf(path, sizeof path, "/v1/dlq?topic=%s", topic);
    if (!demo_call(d, "mailbox", 200, &(struct client_request){.path = path}, &a))
        return false;
    const json_t *e = json_array_get(json_object_get(a.json, "entries"), 0);
    bool ok =
        demo_claim(d,
                   client_int(a.json, "count") == 1 && strcmp(client_str(e, "msg_id"), id) == 0 &&
                       strcmp(client_str(e, "cause"), "nack") == 0,
                   "the dead letter says why: %s, %s", client_str(e, "cause"), client_str(e, "reason"));
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool bring_back(struct demo *d, const char *topic, const char *id)
{
    static const char *const done[] = {"done", NULL};
    struct client_answer a;
    char body[192], path[128];
    snprintf(body, sizeof body, "{\"topic\":\"%s\"}", topic);
    if (!demo_call(d, "mailbox", 202, &(struct client_request){.path = "/v1/dlq/reprocess", .body = body},
                   &a))
        return false;
    snprintf(path, sizeof path, "/v1/dlq/jobs/%s", client_str(a.json, "job"));
    client_free(&a);
    if (!demo_until(d, "mailbox", path, "state", done, &a))
        return false;
    bool ok = demo_claim(d, client_int(a.json, "moved") == 1,
                         "the operator repaired the printer and reprocessed %lld dead letter",
                         client_int(a.json, "moved"));
    client_free(&a);
    struct letter got = {0};
    bool came;
    return ok && receive(d, topic, 5000, &got, &came) &&
           demo_claim(d, came && strcmp(got.id, id) == 0, "it was delivered again, attempt %lld",
                      got.attempt) &&
           ack(d, id, "and acknowledged");
}

void demo_messages(struct demo *d)
{
    char topic[64], key[64], id[64] = "";
    demo_chapter(d, "Messages");
    snprintf(topic, sizeof topic, "demo-%s", d->run);
    snprintf(key, sizeof key, "first-%s", d->run);
    if (!send_one(d, topic, key, false, id) || !send_one(d, topic, key, true, id) || !deliver(d, topic, id))
        return;
    snprintf(key, sizeof key, "poison-%s", d->run);
    if (send_one(d, topic, key, false, id) && poison(d, topic, id) && look_at_dead(d, topic, id))
        bring_back(d, topic, id);
}
