/*
 * JSON, written directly: no tree, no allocation beyond the buf. Commas, quotes and escapes are the
 * writer's business.
 *
 *   struct json_w w;
 *   json_w_init(&w, &buf);
 *   json_obj_begin(&w);
 *   json_put_u64(&w, "seq", 7);
 *   json_key(&w, "entries"); json_arr_begin(&w); ... json_arr_end(&w);
 *   json_obj_end(&w);
 *   if (buf.err != ERR_OK) ...
 *
 * Ownership   The writer borrows the buf and every string only for the call.
 * Threads     One at a time.
 * Order       Members come out as written: for canonical JSON write the keys in bytewise order. Unbalanced
 * calls, a key outside an object and a value without a key abort: they are bugs.
 */
#ifndef RON_BASE_JSON_WRITE_H
#define RON_BASE_JSON_WRITE_H

#include "base/buf.h"
#include "base/money.h"
#include "base/sha256.h"
#include "base/uuid.h"

enum { JSON_W_DEPTH_MAX = 32 };

struct json_w {
    struct buf *buf;
    unsigned depth;
    uint32_t is_object, has_members; /* one bit per depth */
    bool after_key;
};

void json_w_init(struct json_w *w, struct buf *buf);
bool json_w_done(const struct json_w *w); /* everything opened is closed */

void json_obj_begin(struct json_w *w);
void json_obj_end(struct json_w *w);
void json_arr_begin(struct json_w *w);
void json_arr_end(struct json_w *w);
void json_key(struct json_w *w, const char *name); /* a name of ours: plain ASCII that needs no escape */
void json_key_str(struct json_w *w, struct str name);

/* Values. Text that is not UTF-8 comes out with U+FFFD in its place, so that the document is always valid.
 */
void json_str(struct json_w *w, struct str s);
void json_cstr(struct json_w *w, const char *s);
void json_u64(struct json_w *w, uint64_t v);
void json_i64(struct json_w *w, int64_t v);
void json_u64_text(struct json_w *w, uint64_t v); /* as a decimal string */
void json_f64(struct json_w *w, double v);        /* shortest that reads back; not finite: null */
void json_bool(struct json_w *w, bool v);
void json_nil(struct json_w *w);                          /* null; jansson owns the obvious name */
void json_money(struct json_w *w, struct money m);        /* decimal string */
void json_hash(struct json_w *w, const struct sha256 *h); /* "sha256:<hex>" */
void json_hex(struct json_w *w, const void *p, size_t n); /* "<hex>" */
void json_base64(struct json_w *w, struct bytes b);       /* standard, padded */
void json_uuid(struct json_w *w, const struct uuid *u);
void json_time_ms(struct json_w *w, int64_t wall_ms); /* RFC 3339 */
void json_raw(struct json_w *w, struct str json);     /* already JSON: exactly one value */
/* The same, written in place: room for max bytes, or NULL with the buffer's error set; then how many it took. */
char *json_raw_begin(struct json_w *w, size_t max);
void json_raw_end(struct json_w *w, size_t n);

/* Key and value in one go. */
void json_put_str(struct json_w *w, const char *name, struct str s);
void json_put_cstr(struct json_w *w, const char *name, const char *s);
void json_put_u64(struct json_w *w, const char *name, uint64_t v);
void json_put_i64(struct json_w *w, const char *name, int64_t v);
void json_put_bool(struct json_w *w, const char *name, bool v);
void json_put_money(struct json_w *w, const char *name, struct money m);
void json_put_hash(struct json_w *w, const char *name, const struct sha256 *h);
void json_put_base64(struct json_w *w, const char *name, struct bytes b);
void json_put_time_ms(struct json_w *w, const char *name, int64_t wall_ms);
void json_put_raw(struct json_w *w, const char *name, struct str json);

#endif
