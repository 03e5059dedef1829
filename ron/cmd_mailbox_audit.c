/*
 * ron mailbox audit: does a topic's history hold together, and is it the one that was seen before?
 *
 * Reads every link the running mailbox still has and recomputes it from what the link covers. A mailbox that changed, dropped or
 * reordered a message would have to change every later link, and the head somebody noted earlier (--seen) would not be found again.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/time_fmt.h"
#include "ron/client.h"
#include "ron/cmd_mailbox.h"
#include "services/mailbox/core/canon.h"

enum { PATH_CHARS = 1024, PAGE_LINKS = 1000, WHY_CHARS = 160 };

const struct cmd_flag cmd_mailbox_audit_flags[] = {
    {"seen", CMD_VALUE, "SEQ:HASH", "a head noted earlier, which must be a link of this history"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

struct audit {
    const char *topic;
    uint64_t first, seq; /* links recomputed so far: first to seq; none while first is 0 */
    struct sha256 chain; /* of seq */
    uint64_t seen_seq;   /* 0: nothing was noted */
    struct sha256 seen;
    bool seen_found;
    char why[WHY_CHARS]; /* what does not hold; empty while everything does */
};

__attribute__((format(printf, 2, 3))) static bool broken(struct audit *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
    return false;
}

static bool hash_member(const json_t *object, const char *name, struct sha256 *out)
{
    return sha256_parse(str_from_c(client_str(object, name)), out) == ERR_OK;
}

/* A time that is not there counts as 0, as it does in the link. */
static bool time_member(const json_t *object, const char *name, uint64_t *out_ms)
{
    int64_t ms = 0;
    const char *text = client_str(object, name);
    if (*text && (time_parse_ms(str_from_c(text), &ms) != ERR_OK || ms < 0))
        return false;
    *out_ms = (uint64_t)ms;
    return true;
}

static bool read_link(const struct audit *a, const json_t *json, struct mailbox_link *out_link,
                      struct sha256 *out_claimed)
{
    *out_link = (struct mailbox_link){.prev = a->chain,
                                      .topic = str_from_c(a->topic),
                                      .idem_key = str_from_c(client_str(json, "idem_key")),
                                      .topic_seq = (uint64_t)client_int(json, "topic_seq")};
    return uuid_parse(str_from_c(client_str(json, "msg_id")), &out_link->msg_id) == ERR_OK &&
           time_member(json, "ts", &out_link->ts_ms) &&
           time_member(json, "not_before", &out_link->not_before_ms) &&
           hash_member(json, "payload_hash", &out_link->payload_hash) &&
           hash_member(json, "attrs_hash", &out_link->attrs_hash) &&
           hash_member(json, "hash_chain", out_claimed);
}

/* What the oldest link stands on: the topic's genesis, or, when older ones are no longer kept, what the mailbox says. */
static bool begin(struct audit *a, const json_t *page, uint64_t first)
{
    struct uuid id;
    struct sha256 genesis;
    if (!hash_member(page, "chain_prev", &a->chain) ||
        uuid_parse(str_from_c(client_str(page, "chain_id")), &id) != ERR_OK)
        return broken(a, "the page that begins with link %llu cannot be read", (unsigned long long)first);
    mailbox_chain_genesis(str_from_c(a->topic), &id, &genesis);
    if (first == 1 && !sha256_eq(&genesis, &a->chain))
        return broken(a, "link %llu does not begin at the topic's genesis", (unsigned long long)first);
    a->first = first;
    a->seq = first - 1;
    return true;
}

static bool check_link(struct audit *a, const json_t *json)
{
    struct mailbox_link link;
    struct sha256 claimed;
    uint64_t next = a->seq + 1;
    if (!read_link(a, json, &link, &claimed))
        return broken(a, "link %llu cannot be read", (unsigned long long)next);
    if (link.topic_seq != next)
        return broken(a, "link %llu is missing", (unsigned long long)next);
    mailbox_chain_next(&link, &a->chain);
    a->seq = next;
    if (!sha256_eq(&a->chain, &claimed))
        return broken(a, "link %llu does not hold", (unsigned long long)next);
    if (next == a->seen_seq) {
        a->seen_found = true;
        if (!sha256_eq(&a->chain, &a->seen))
            return broken(a, "link %llu is not the one seen before: history was rewritten",
                          (unsigned long long)next);
    }
    return true;
}

static bool check_page(struct audit *a, const json_t *page)
{
    size_t i;
    json_t *link;
    struct sha256 head;
    const json_t *claimed = json_object_get(page, "head");
    json_array_foreach(json_object_get(page, "links"), i, link)
    {
        if (!a->first && !begin(a, page, (uint64_t)client_int(link, "topic_seq")))
            return false;
        if (!check_link(a, link))
            return false;
    }
    if (!a->first || json_object_get(page, "next"))
        return true;
    if ((uint64_t)client_int(claimed, "topic_seq") != a->seq)
        return broken(a, "the links after %llu are missing", (unsigned long long)a->seq);
    if (!hash_member(claimed, "hash_chain", &head) || !sha256_eq(&head, &a->chain))
        return broken(a, "the head is not link %llu", (unsigned long long)a->seq);
    return true;
}

static int fetch(struct cmd_ctx *ctx, const struct audit *a, struct client_answer *out) RT_BLOCKS
{
    struct buf path;
    buf_init(&path, PATH_CHARS);
    buf_puts(&path, "/v1/topics/");
    client_encode(a->topic, &path);
    buf_printf(&path, "/chain?limit=%d", PAGE_LINKS);
    if (a->first)
        buf_printf(&path, "&from=%llu", (unsigned long long)a->seq + 1);
    int status =
        client_call(ctx, "mailbox", &(struct client_request){.path = buf_cstr(&path), .repeat = true}, out);
    buf_fini(&path);
    return status;
}

/* SEQ:HASH, as this command prints a head. */
static bool parse_seen(const char *text, struct audit *a)
{
    struct str number, hash = str_cut(str_from_c(text), ':', &number);
    return str_parse_u64(number, &a->seen_seq) == ERR_OK && a->seen_seq > 0 &&
           sha256_parse(hash, &a->seen) == ERR_OK;
}

static int conclude(struct cmd_ctx *ctx, const struct audit *a)
{
    char hash[SHA256_TEXT_CHARS];
    if (*a->why)
        return cmd_fail(ctx, CMD_FAILED, "%s: %s", a->topic, a->why);
    if (a->seen_seq && !a->seen_found)
        return cmd_fail(ctx, CMD_FAILED, "%s: link %llu, seen before, is %s", a->topic,
                        (unsigned long long)a->seen_seq,
                        a->first && a->seen_seq < a->first ? "older than what is kept" : "not there");
    if (!a->first) {
        puts(cmd_global(ctx)->json ? "{\"links\":0}" : "no links are kept");
        return CMD_OK;
    }
    sha256_format(&a->chain, hash);
    printf(cmd_global(ctx)->json
               ? "{\"first\":%llu,\"links\":%llu,\"head\":{\"topic_seq\":%llu,\"hash_chain\":\"%s\"}}\n"
               : "from %llu on, %llu links hold; head %llu:%s\n",
           (unsigned long long)a->first, (unsigned long long)(a->seq - a->first + 1),
           (unsigned long long)a->seq, hash);
    return CMD_OK;
}

int cmd_mailbox_audit(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct audit a = {.topic = argv[0]};
    const char *seen = cmd_flag(ctx, "seen", NULL);
    (void)argc;
    if (seen && !parse_seen(seen, &a))
        return cmd_fail(ctx, CMD_USAGE,
                        "--seen takes SEQ:sha256:HEX as an earlier audit printed it, not '%s'", seen);
    for (bool more = true; more;) {
        struct client_answer page;
        int status = fetch(ctx, &a, &page);
        if (status != CMD_OK)
            return client_finish(ctx, &page, status);
        uint64_t before = a.seq;
        bool holds = check_page(&a, page.json);
        more = holds && json_object_get(page.json, "next") && a.seq > before;
        client_free(&page);
    }
    return conclude(ctx, &a);
}
