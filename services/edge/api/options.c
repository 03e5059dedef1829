/* OPTIONS: CORS preflight, and which methods there are. */
#include "services/edge/api/api.h"

void edge_options(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    char raw[1536];
    struct buf lines;
    buf_init_fixed(&lines, raw, sizeof raw);
    bool listed = edge_cors(e, rq, &lines);
    if (net_req_header(rq, "origin").p && !listed) {
        edge_refuse(e, rq, ERR_FORBIDDEN, EDGE_R_NONE, "scripts of this origin may not read here");
        return;
    }
    if (listed)
        buf_printf(&lines,
                   "Access-Control-Allow-Methods: GET, HEAD\r\nAccess-Control-Allow-Headers: Range, "
                   "If-Match, If-None-Match, "
                   "If-Range, If-Modified-Since, Prefer, X-Corr-ID, traceparent, Want-Repr-Digest\r\n"
                   "Access-Control-Max-Age: %lld\r\n",
                   (long long)(edge_config(e)->cors_max_age / 1000));
    buf_puts(&lines, "Allow: GET, HEAD, OPTIONS\r\n");
    net_reply(rq, 204, &(struct net_headers){.type = "", .raw = buf_str(&lines)}, bytes_of(NULL, 0));
}
