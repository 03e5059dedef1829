/* Any bytes, any splits: the same frames come out, and what is read can be written again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/oap.h"

static size_t frames(const uint8_t *p, size_t n, size_t step, enum err *out_end, struct buf *again)
{
    struct buf b;
    size_t count = 0, at = 0;
    enum err e = ERR_EMPTY;
    buf_init(&b, 2 * NET_OAP_FRAME_MAX);
    while (e == ERR_EMPTY && at < n) {
        size_t piece = step < n - at ? step : n - at;
        buf_put(&b, p + at, piece);
        at += piece;
        struct net_oap_frame f;
        size_t used;
        const char *why;
        while ((e = net_oap_next(buf_bytes(&b), NET_OAP_FRAME_MAX, &f, &used, &why)) == ERR_OK) {
            count++;
            if (again != NULL)
                net_oap_put(again, &f.head, f.cap, f.payload);
            struct net_oap_problem_view v;
            (void)!net_oap_problem_get(f.payload, &v);
            if (f.head.flags & NET_OAP_COMP) {
                struct buf out;
                buf_init(&out, (1 << 16) + 1);
                if (net_oap_inflate(f.payload, 1 << 16, &out) == ERR_OK)
                    CHECK(out.n <= 1 << 16);
                buf_fini(&out);
            }
            buf_consume(&b, used);
        }
    }
    buf_fini(&b);
    *out_end = e;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    enum err whole_end, split_end;
    struct buf again;
    size_t step = (size_t)data[0] % 60 + 1;
    buf_init(&again, 1 << 22);
    size_t whole = frames(data + 1, size - 1, size, &whole_end, &again);
    size_t split = frames(data + 1, size - 1, step, &split_end, NULL);
    CHECK(whole == split && whole_end == split_end);
    CHECK(again.err == ERR_OK && again.n <= size - 1);
    CHECK(again.n == 0 || memcmp(again.p, data + 1, again.n) == 0);
    buf_fini(&again);
    return 0;
}
