/* Request bodies that say they are gzip: never more than ratio and cap allow, and the same verdict however they are cut. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/http_inflate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CAP = 1 << 16, RATIO = 10 };

static enum err piecewise(struct net_inflater *z, const uint8_t *p, size_t n, size_t step, uint8_t *out,
                          size_t *out_n)
{
    enum err e = net_inflate_begin(z);
    *out_n = 0;
    for (size_t at = 0; e == ERR_OK && at < n; at += step) {
        size_t got = 1;
        net_inflate_feed(z, bytes_of(p + at, n - at < step ? n - at : step));
        while (e == ERR_OK && got) {
            uint8_t room[512];
            e = net_inflate_take(z, RATIO, CAP, room, sizeof room, &got);
            if (e != ERR_OK)
                break;
            CHECK(*out_n + got <= CAP);
            memcpy(out + *out_n, room, got);
            *out_n += got;
        }
    }
    return e == ERR_OK ? net_inflate_end(z, RATIO) : e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct net_inflater *z;
    static uint8_t out[CAP];
    uint8_t *whole = NULL;
    size_t n = 0, m = 0;
    if (!z)
        CHECK(net_inflater_create(&z) == ERR_OK);
    if (size < 2)
        return 0;
    size_t step = 1 + data[0] % 37u;
    enum err one = net_inflate(z, bytes_of(data + 1, size - 1), RATIO, CAP, &whole, &n);
    enum err many = piecewise(z, data + 1, size - 1, step, out, &m);
    if (one == ERR_OK) {
        CHECK(n <= CAP && many == ERR_OK && m == n && (n == 0 || memcmp(whole, out, n) == 0));
        free(whole);
    } else
        CHECK(many != ERR_OK);
    return 0;
}
