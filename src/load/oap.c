#include "load/oap.h"

#include <string.h>

#include "net/oap.h"

void load_oap_put(struct buf *out, unsigned app, unsigned code, unsigned slot, const char *token,
                  struct bytes payload)
{
    struct net_oap_head head = {.ver = NET_OAP_VERSION,
                                .flags = NET_OAP_REQ | NET_OAP_START | NET_OAP_END,
                                .code = (uint16_t)code,
                                .app = (uint16_t)app,
                                .corr = slot};
    net_oap_put(out, &head, token == NULL ? bytes_of(NULL, 0) : bytes_of(token, strlen(token)), payload);
}

enum err load_oap_parse(struct bytes in, struct load_answer *out)
{
    struct net_oap_frame f;
    size_t used;
    const char *why;
    enum err e = net_oap_next(in, NET_OAP_FRAME_MAX, &f, &used, &why);
    if (e != ERR_OK)
        return e;
    *out = (struct load_answer){.used = used,
                                .status = f.head.code,
                                .body = f.payload,
                                .slot = f.head.corr,
                                .noise = !(f.head.flags & NET_OAP_END) || !(f.head.flags & NET_OAP_RESP)};
    return ERR_OK;
}
