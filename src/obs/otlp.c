/*
 * OTLP/HTTP with JSON: trace and span ids are hex (not base64, unlike plain proto3 JSON), 64-bit integers
 * are strings, enums are numbers. One resource, one scope, any number of spans.
 */
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/json_plain.h"
#include "base/str.h"
#include "obs/span.h"

static void put_attr(struct json_w *w, const char *key, const char *text)
{
    json_obj_begin(w);
    json_put_cstr(w, "key", key);
    json_key(w, "value");
    json_obj_begin(w);
    json_put_cstr(w, "stringValue", text);
    json_obj_end(w);
    json_obj_end(w);
}

void obs_otlp_begin(struct json_w *w, const char *service, const char *version, struct buf *out)
{
    json_w_init(w, out);
    json_obj_begin(w);
    json_key(w, "resourceSpans");
    json_arr_begin(w);
    json_obj_begin(w);
    json_key(w, "resource");
    json_obj_begin(w);
    json_key(w, "attributes");
    json_arr_begin(w);
    put_attr(w, "service.name", service);
    put_attr(w, "service.version", version);
    json_arr_end(w);
    json_obj_end(w);
    json_key(w, "scopeSpans");
    json_arr_begin(w);
    json_obj_begin(w);
    json_key(w, "scope");
    json_obj_begin(w);
    json_put_cstr(w, "name", "ron");
    json_obj_end(w);
    json_key(w, "spans");
    json_arr_begin(w);
}

/*
 * A span is written in one piece: thousands a second may be, and members one by one cost four times as much. Names and keys are
 * literals of ours that need no escape.
 */
enum {
    NAME_MAX_CHARS = 64,
    ATTR_MAX_CHARS = NAME_MAX_CHARS + 64 + 6 * OBS_ATTR_TEXT_MAX, /* every byte as \u00xx */
    SPAN_MAX_CHARS = 512 + 2 * NAME_MAX_CHARS + OBS_ATTRS_MAX * ATTR_MAX_CHARS
};

#define PUT(at, text) ((char *)memcpy((at), (text), sizeof(text) - 1) + sizeof(text) - 1)

static char *write_name(char *at, const char *name)
{
    size_t n = strlen(name);
    CHECK(n <= NAME_MAX_CHARS);
    memcpy(at, name, n);
    return at + n;
}

static char *write_hex(char *at, const uint8_t *p, size_t n)
{
    hex_encode(p, n, at);
    return at + 2 * n;
}

/* A signed 64-bit number there; larger ones would be refused by the receiver. */
static char *write_number(char *at, uint64_t n)
{
    return at + str_format_u64(n > INT64_MAX ? INT64_MAX : n, at);
}

static char *write_text(char *at, const char *text)
{
    struct json_w w;
    struct buf b;
    size_t n = strlen(text);
    const uint8_t *p = (const uint8_t *)text;
    if (json_plain_end(p, p + n) == p + n) { /* most are ids and words of ours */
        *at++ = '"';
        memcpy(at, text, n);
        at[n] = '"';
        return at + n + 1;
    }
    buf_init_fixed(&b, at, 6 * OBS_ATTR_TEXT_MAX);
    json_w_init(&w, &b);
    json_cstr(&w, text);
    return at + b.n;
}

static char *write_attr(char *at, const struct obs_attr *a)
{
    at = write_name(PUT(at, "{\"key\":\""), a->key);
    if (a->is_text)
        at = write_text(PUT(at, "\",\"value\":{\"stringValue\":"), a->text);
    else
        at = PUT(write_number(PUT(at, "\",\"value\":{\"intValue\":\""), a->number), "\"");
    return PUT(at, "}}");
}

void obs_otlp_span(struct json_w *w, const struct obs_span *s)
{
    static const uint8_t zero[8];
    char *text = json_raw_begin(w, SPAN_MAX_CHARS), *at = text;
    if (!text)
        return;
    at = write_hex(PUT(at, "{\"traceId\":\""), s->self.trace_id, sizeof s->self.trace_id);
    at = write_hex(PUT(at, "\",\"spanId\":\""), s->self.span_id, sizeof s->self.span_id);
    if (memcmp(s->parent_id, zero, sizeof zero) != 0)
        at = write_hex(PUT(at, "\",\"parentSpanId\":\""), s->parent_id, sizeof s->parent_id);
    at = write_name(PUT(at, "\",\"name\":\""), s->name);
    at = write_number(PUT(at, "\",\"kind\":1,\"startTimeUnixNano\":\""),
                      (uint64_t)s->start_unix_ns); /* internal */
    at = write_number(PUT(at, "\",\"endTimeUnixNano\":\""), (uint64_t)s->end_unix_ns);
    at = PUT(at, "\",\"attributes\":[");
    for (size_t i = 0; i < s->n_attrs; i++) {
        if (i)
            *at++ = ',';
        at = write_attr(at, &s->attrs[i]);
    }
    if (s->err == ERR_OK)
        at = PUT(at, "],\"status\":{\"code\":1}}");
    else
        at = PUT(write_name(PUT(at, "],\"status\":{\"code\":2,\"message\":\""), err_code(s->err)), "\"}}");
    json_raw_end(w, (size_t)(at - text));
}

void obs_otlp_end(struct json_w *w)
{
    json_arr_end(w); /* spans */
    json_obj_end(w);
    json_arr_end(w); /* scopeSpans */
    json_obj_end(w);
    json_arr_end(w); /* resourceSpans */
    json_obj_end(w);
}
