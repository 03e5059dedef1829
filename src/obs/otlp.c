/*
 * OTLP/HTTP with JSON: trace and span ids are hex (not base64, unlike plain proto3 JSON), 64-bit integers
 * are strings, enums are numbers. One resource, one scope, any number of spans.
 */
#include "obs/span.h"

#include <string.h>

static void put_json_str(struct buf *out, const char *s)
{
    buf_putc(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            buf_putc(out, '\\');
        if (c < 0x20)
            buf_printf(out, "\\u%04x", (unsigned)c);
        else
            buf_putc(out, *s);
    }
    buf_putc(out, '"');
}

static void put_hex(struct buf *out, const char *key, const uint8_t *p, size_t n)
{
    buf_printf(out, "\"%s\":\"", key);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%02x", (unsigned)p[i]);
    buf_putc(out, '"');
}

static void put_text_attr(struct buf *out, const char *key, const char *value)
{
    buf_puts(out, "{\"key\":");
    put_json_str(out, key);
    buf_puts(out, ",\"value\":{\"stringValue\":");
    put_json_str(out, value);
    buf_puts(out, "}}");
}

static void put_attr(struct buf *out, const struct obs_attr *a)
{
    if (a->is_text) {
        put_text_attr(out, a->key, a->text);
        return;
    }
    buf_puts(out, "{\"key\":");
    put_json_str(out, a->key);
    /* intValue is a signed 64-bit number; larger ones would be refused by the receiver. */
    uint64_t n = a->number > INT64_MAX ? INT64_MAX : a->number;
    buf_printf(out, ",\"value\":{\"intValue\":\"%llu\"}}", (unsigned long long)n);
}

static void put_span(struct buf *out, const struct obs_span *s)
{
    static const uint8_t zero[8];
    enum { SPAN_KIND_INTERNAL = 1, STATUS_OK = 1, STATUS_ERROR = 2 };
    buf_putc(out, '{');
    put_hex(out, "traceId", s->self.trace_id, 16);
    buf_putc(out, ',');
    put_hex(out, "spanId", s->self.span_id, 8);
    if (memcmp(s->parent_id, zero, 8) != 0) {
        buf_putc(out, ',');
        put_hex(out, "parentSpanId", s->parent_id, 8);
    }
    buf_puts(out, ",\"name\":");
    put_json_str(out, s->name);
    buf_printf(out,
               ",\"kind\":%d,\"startTimeUnixNano\":\"%lld\",\"endTimeUnixNano\":\"%lld\",\"attributes\":[",
               SPAN_KIND_INTERNAL, (long long)s->start_unix_ns, (long long)s->end_unix_ns);
    for (size_t i = 0; i < s->n_attrs; i++) {
        if (i)
            buf_putc(out, ',');
        put_attr(out, &s->attrs[i]);
    }
    buf_puts(out, "],\"status\":{\"code\":");
    if (s->err == ERR_OK)
        buf_printf(out, "%d}}", STATUS_OK);
    else
        buf_printf(out, "%d,\"message\":\"%s\"}}", STATUS_ERROR, err_code(s->err));
}

void obs_otlp_encode(const char *service, const char *version, const struct obs_span *spans, size_t n,
                     struct buf *out)
{
    buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_text_attr(out, "service.name", service);
    buf_putc(out, ',');
    put_text_attr(out, "service.version", version);
    buf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"ron\"},\"spans\":[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_putc(out, ',');
        put_span(out, &spans[i]);
    }
    buf_puts(out, "]}]}]}");
}
