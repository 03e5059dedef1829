/* Any text as a token: decoding is total; what decodes has one canonical text that the reference library
 * reads alike. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <macaroons.h>

#include "auth/macaroon.h"
#include "base/base64.h"
#include "base/check.h"

static void check_token(struct str token)
{
    static struct auth_macaroon m, again;
    if (auth_macaroon_decode(token, &m) != ERR_OK || m.nthird_party > 0)
        return;
    struct buf b;
    buf_init(&b, AUTH_TOKEN_MAX + 1);
    enum err e = auth_macaroon_encode(&m, &b);
    if (e == ERR_OK) { /* a version 2 token can be too long for version 1 */
        CHECK(auth_macaroon_decode(buf_str(&b), &again) == ERR_OK);
        CHECK(again.ncaveats == m.ncaveats && str_eq(again.kid, m.kid) &&
              memcmp(again.sig, m.sig, sizeof m.sig) == 0);
        for (size_t i = 0; i < m.ncaveats; i++)
            CHECK(str_eq(again.caveats[i], m.caveats[i]));
        enum macaroon_returncode rc;
        struct macaroon *lib = macaroon_deserialize(buf_cstr(&b), &rc);
        CHECK(lib != NULL);
        const unsigned char *id;
        size_t n;
        macaroon_identifier(lib, &id, &n);
        CHECK(str_eq(m.kid, (struct str){(const char *)id, n}));
        macaroon_destroy(lib);
        CHECK(auth_macaroon_verify(&m, bytes_of("0123456789abcdef0123456789abcdef", 32)) != ERR_OK ||
              m.ncaveats <= 1);
    }
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[8 * AUTH_TOKEN_MAX];
    check_token((struct str){(const char *)data, size});
    /* The same bytes below the base64 layer, where the interesting mutations are. */
    if (base64_encoded_chars(size) < sizeof text)
        check_token((struct str){text, base64url_encode(data, size, text)});
    return 0;
}
