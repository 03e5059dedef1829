/* A stream of requests read whole, read in pieces, and read by one who has seen its lines before must give the same requests, bodies and
 * refusals. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "net/http_parse.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 300, TRACE_MAX = 1 << 16 };

/* Everything a reader can tell, as bytes. */
struct trace {
    uint8_t b[TRACE_MAX];
    size_t n;
};

static void note(struct trace *t, const void *p, size_t n)
{
    if (n > TRACE_MAX - t->n)
        n = TRACE_MAX - t->n;
    memcpy(t->b + t->n, p, n);
    t->n += n;
}

static void note_head(struct trace *t, const struct net_http_head *h, const char *text)
{
    for (size_t i = 0; i < h->field_count; i++) {
        CHECK((size_t)h->fields[i].value.at + h->fields[i].value.n <= h->head_bytes);
        CHECK(net_http_is_token(net_http_text(text, h->fields[i].name)));
        note(t, &h->fields[i], sizeof h->fields[i]);
    }
    CHECK(!(h->chunked && h->has_length));
    CHECK(h->minor == 0 || h->known[NET_HTTP_HOST]);
    note(t, &h->target, sizeof h->target);
    note(t, &h->path, sizeof h->path);
    note(t, &h->length, sizeof h->length);
    note(t, &h->keep_alive, 1);
    struct str path = net_http_text(text, h->path);
    char *out = malloc(path.n + 1);
    size_t n;
    CHECK(out && net_http_percent_decode(path, false, out, &n) == ERR_OK);
    free(out);
    /* a handler cuts the query at '&' and '=' and decodes what is between: no escape is torn by that */
    struct str rest = h->has_query ? net_http_text(text, h->query) : (struct str){NULL, 0};
    while (rest.p) {
        struct str member, name;
        rest = str_cut(rest, '&', &member);
        struct str value = str_cut(member, '=', &name);
        char *member_out = malloc(member.n + 1);
        CHECK(member_out && net_http_percent_decode(name, true, member_out, &n) == ERR_OK && n <= name.n);
        CHECK(!value.p || (net_http_percent_decode(value, true, member_out, &n) == ERR_OK && n <= value.n));
        free(member_out);
    }
}

/* `rng` NULL: in one piece. Offsets are noted relative to each request. */
static void read_all(const uint8_t *data, size_t size, struct rng *rng, struct net_http_seen *seen,
                     struct trace *t)
{
    static const struct net_http_limits limits = {4096, 20, 1024};
    size_t start = 0, have = rng ? 0 : size;
    while (start < size) {
        struct net_http_head h;
        net_http_head_init(&h, &limits, seen);
        enum net_http_result r;
        while ((r = net_http_head_feed(&h, (const char *)data + start, have - start)) == NET_HTTP_MORE) {
            if (have == size)
                return;
            have += 1 + rng_below(rng, size - have < 40 ? size - have : 40);
        }
        note(t, &r, sizeof r);
        if (r == NET_HTTP_BAD) {
            note(t, &h.err, sizeof h.err);
            return;
        }
        note_head(t, &h, (const char *)data + start);
        start += h.head_bytes;
        if (h.has_length && h.length > BODY_MAX)
            return;
        struct net_http_body b;
        net_http_body_init(&b, &h, BODY_MAX);
        size_t total = 0;
        for (;;) {
            size_t used;
            struct bytes piece;
            r = net_http_body_feed(&b, data + start, have - start, &used, &piece);
            if (r == NET_HTTP_BAD) {
                note(t, &b.err, sizeof b.err);
                return;
            }
            CHECK(used <= have - start);
            start += used;
            if (r == NET_HTTP_DATA) {
                note(t, piece.p, piece.n);
                total += piece.n;
                CHECK(piece.n > 0 && total <= BODY_MAX);
            } else if (r == NET_HTTP_DONE) {
                break;
            } else {
                CHECK(start == have);
                if (have == size)
                    return;
                have += 1 + rng_below(rng, size - have < 40 ? size - have : 40);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trace whole, cut, again;
    static struct net_http_seen seen;
    if (size < 2)
        return 0;
    struct rng rng;
    rng_seed(&rng, (uint64_t)data[0] << 8 | data[1]);
    whole.n = cut.n = again.n = 0;
    memset(&seen, 0, sizeof seen);
    /* its own allocation, so that reading past the end is seen */
    uint8_t *copy = malloc(size - 2 ? size - 2 : 1);
    CHECK(copy != NULL);
    memcpy(copy, data + 2, size - 2);
    read_all(copy, size - 2, NULL, NULL, &whole);
    read_all(copy, size - 2, &rng, &seen, &cut);
    read_all(copy, size - 2, NULL, &seen, &again);
    CHECK(whole.n == cut.n && memcmp(whole.b, cut.b, whole.n) == 0);
    CHECK(whole.n == again.n && memcmp(whole.b, again.b, whole.n) == 0);
    free(copy);
    return 0;
}
