/* Any text: parsing is total, and what parses covers only what it says. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "auth/caveat.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct auth_caveat c, again;
    struct str text = {(const char *)data, size};
    if (auth_caveat_parse(text, &c) != ERR_OK)
        return 0;
    CHECK(c.kind > AUTH_CV_UNKNOWN && c.kind < AUTH_CV_COUNT);
    CHECK(memchr(data, 0, size) == NULL && memchr(data, '\n', size) == NULL);
    CHECK(auth_caveat_parse(text, &again) == ERR_OK && again.kind == c.kind);
    if (c.kind == AUTH_CV_IP) {
        static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
        (void)auth_ip_list_covers(c.list, loopback);
        CHECK(!auth_ip_list_covers(c.list, NULL));
    } else if (c.kind == AUTH_CV_OP || c.kind == AUTH_CV_ACCOUNT || c.kind == AUTH_CV_TOPIC) {
        struct str word = STR("acct:a");
        CHECK(!auth_list_covers(c.list, STR("")));
        CHECK(!auth_list_spells(c.list, word) || auth_list_covers(c.list, word));
    }
    return 0;
}
