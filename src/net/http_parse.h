/*
 * HTTP/1.1 requests from bytes: strict, incremental, no I/O, no allocation.
 *
 * Head and body are read by two machines. The head machine looks at a buffer that starts with the request line and
 * grows between calls; it keeps offsets, so the buffer may move. The body machine takes pieces and gives back views into
 * them. Both give the same verdict for every way the bytes are cut into pieces.
 *
 * What could be read in two ways is refused: see the table of refusals in http_parse.c.
 *
 * A field line that came before, byte by byte, is not judged again: a reader of many heads may give all of them the same memory of
 * lines. It changes no verdict.
 *
 * Ownership   Offsets and views refer to the caller's bytes. The memory of lines is the caller's, and outlives the head's reading.
 * Threads     Pure: a struct belongs to one thread at a time.
 */
#ifndef RON_NET_HTTP_PARSE_H
#define RON_NET_HTTP_PARSE_H

#include "base/bytes.h"
#include "base/err.h"

enum {
    NET_HTTP_FIELDS_MAX = 100,
    NET_HTTP_HEAD_MAX = 16384,
    NET_HTTP_METHOD_MAX = 32,
    NET_HTTP_SEEN_LINES = 8, /* of a head; who keeps a connection rarely says more */
    NET_HTTP_SEEN_BYTES = 768,
};

enum net_http_result {
    NET_HTTP_MORE, /* undecided: give more bytes */
    NET_HTTP_DATA, /* body only: a piece of it */
    NET_HTTP_DONE,
    NET_HTTP_BAD, /* err and why say what; the connection must be closed after the answer */
};

struct net_http_span {
    uint16_t at, n;
};

struct net_http_field {
    struct net_http_span name, value;
};

/* Fields the server itself acts on, by index + 1 into fields; 0: absent. The first one counts (of X-Forwarded-For the last). */
enum net_http_known {
    NET_HTTP_OTHER,
    NET_HTTP_HOST,
    NET_HTTP_CONNECTION,
    NET_HTTP_CONTENT_LENGTH,
    NET_HTTP_TRANSFER_ENCODING,
    NET_HTTP_CONTENT_ENCODING,
    NET_HTTP_EXPECT,
    NET_HTTP_CORR_ID,
    NET_HTTP_TRACEPARENT,
    NET_HTTP_REQUEST_TIMEOUT,
    NET_HTTP_DEADLINE,
    NET_HTTP_FORWARDED_FOR,
    NET_HTTP_KNOWN_COUNT
};

struct net_http_limits {
    size_t head_bytes, fields, line_bytes; /* head and line include their CRLF */
};

/* A field line, with its CRLF: where name and value are in it, and which field it is. */
struct net_http_line {
    uint16_t n, name_n, value_at, value_n;
    enum net_http_known known;
};

/* For each place in a head the line that stood there last. All zero: none yet. */
struct net_http_seen {
    struct {
        struct net_http_line line; /* n 0: none, or too long to keep */
        char text[NET_HTTP_SEEN_BYTES];
    } at[NET_HTTP_SEEN_LINES];
};

struct net_http_head {
    /* the result, valid after NET_HTTP_DONE */
    struct net_http_span method, target, path, query, host; /* query.n 0 and has_query false: none */
    bool has_query;
    uint8_t minor; /* HTTP/1.minor */
    bool keep_alive, chunked, has_length, expect_continue, expect_other, gzip, encoding_other;
    uint64_t length;
    size_t head_bytes; /* everything up to and with the empty line */
    uint8_t known[NET_HTTP_KNOWN_COUNT];
    size_t field_count;
    struct net_http_field fields[NET_HTTP_FIELDS_MAX];
    /* the refusal, valid after NET_HTTP_BAD */
    enum err err;
    const char *why;
    /* where we are */
    struct net_http_limits limits;
    struct net_http_seen *seen; /* NULL: every line is judged */
    size_t line_at;             /* start of the line being looked for */
    size_t scanned;             /* no line feed before this */
    uint8_t state;
    bool close, keep; /* options of Connection */
    uint8_t blank;    /* empty lines before the request line */
};

void net_http_head_init(struct net_http_head *h, const struct net_http_limits *limits,
                        struct net_http_seen *seen);
/* buf[0..n) is everything received since the head began; n never shrinks. */
enum net_http_result net_http_head_feed(struct net_http_head *h, const char *buf, size_t n);

static inline struct str net_http_text(const char *buf, struct net_http_span s)
{
    return (struct str){buf + s.at, s.n};
}

struct net_http_body {
    uint64_t left;  /* of the length, or of the chunk */
    uint64_t total; /* body bytes handed out */
    uint64_t max;
    uint8_t state;
    uint8_t digits;
    size_t trailer_bytes, trailer_fields;
    struct net_http_limits limits;
    enum err err;
    const char *why;
};

/* max: more body than that is ERR_TOO_LARGE. */
void net_http_body_init(struct net_http_body *b, const struct net_http_head *h, uint64_t max);
/* Takes in[0..n); *out_used says how much was taken (all of it on NET_HTTP_MORE). NET_HTTP_DATA: *out_piece is body; call
 * again with the rest. NET_HTTP_DONE: what was not used belongs to the next request. */
enum net_http_result net_http_body_feed(struct net_http_body *b, const uint8_t *in, size_t n,
                                        size_t *out_used, struct bytes *out_piece);

bool net_http_is_token(struct str s);
bool net_http_name_eq(struct str a, struct str b); /* ASCII letters without case */
/* "%41" -> 'A'; plus: '+' -> ' '. ERR_SYNTAX for broken escapes and for NUL. out holds s.n bytes. */
NODISCARD enum err net_http_percent_decode(struct str s, bool plus, char *out, size_t *out_n);

#endif
