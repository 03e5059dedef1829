/*
 * OTLP/HTTP with JSON: trace and span ids are hex (not base64, unlike plain proto3 JSON), 64-bit integers
 * are strings, enums are numbers. One resource, one scope, any number of spans.
 */
#include <string.h>

#include "obs/span.h"

static void put_hex(struct json_w *w, const char *key, const uint8_t *p, size_t n)
{
    json_key(w, key);
    json_hex(w, p, n);
}

static void put_number(struct json_w *w, const char *key, uint64_t n)
{
    /* A signed 64-bit number there; larger ones would be refused by the receiver. */
    json_key(w, key);
    json_u64_text(w, n > INT64_MAX ? INT64_MAX : n);
}

static void put_attr(struct json_w *w, const char *key, const char *text, uint64_t number)
{
    json_obj_begin(w);
    json_put_cstr(w, "key", key);
    json_key(w, "value");
    json_obj_begin(w);
    if (text)
        json_put_cstr(w, "stringValue", text);
    else
        put_number(w, "intValue", number);
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
    put_attr(w, "service.name", service, 0);
    put_attr(w, "service.version", version, 0);
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

void obs_otlp_span(struct json_w *w, const struct obs_span *s)
{
    static const uint8_t zero[8];
    enum { SPAN_KIND_INTERNAL = 1, STATUS_OK = 1, STATUS_ERROR = 2 };
    json_obj_begin(w);
    put_hex(w, "traceId", s->self.trace_id, sizeof s->self.trace_id);
    put_hex(w, "spanId", s->self.span_id, sizeof s->self.span_id);
    if (memcmp(s->parent_id, zero, sizeof zero) != 0)
        put_hex(w, "parentSpanId", s->parent_id, sizeof s->parent_id);
    json_put_cstr(w, "name", s->name);
    json_put_u64(w, "kind", SPAN_KIND_INTERNAL);
    put_number(w, "startTimeUnixNano", (uint64_t)s->start_unix_ns);
    put_number(w, "endTimeUnixNano", (uint64_t)s->end_unix_ns);
    json_key(w, "attributes");
    json_arr_begin(w);
    for (size_t i = 0; i < s->n_attrs; i++)
        put_attr(w, s->attrs[i].key, s->attrs[i].is_text ? s->attrs[i].text : NULL, s->attrs[i].number);
    json_arr_end(w);
    json_key(w, "status");
    json_obj_begin(w);
    json_put_u64(w, "code", s->err == ERR_OK ? STATUS_OK : STATUS_ERROR);
    if (s->err != ERR_OK)
        json_put_cstr(w, "message", err_code(s->err));
    json_obj_end(w);
    json_obj_end(w);
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
