/*
 * A configuration file, an environment and a flag from any bytes (parts between 0x00 bytes). What loads must print to a
 * file that loads to the same values, and stay in range.
 */
#include <stdint.h>

#include "base/check.h"
#include "base/conf.h"

struct fuzz_config {
#define CONF CONF_AS_MEMBER
#include "tests/unit/base/conf/config.def"
#undef CONF
};

#define CONF_STRUCT struct fuzz_config
static const struct conf_key keys[] = {
#define CONF CONF_AS_KEY
#include "tests/unit/base/conf/config.def"
#undef CONF
};

static const struct conf_table table = {.service = "demo",
                                        .keys = keys,
                                        .keys_n = sizeof keys / sizeof keys[0],
                                        .config_bytes = sizeof(struct fuzz_config)};

static void check_round_trip(const struct conf *c)
{
    const struct fuzz_config *cfg = conf_values(c);
    CHECK(cfg->max_conns >= 1 && cfg->max_conns <= 65536 && cfg->fsync >= 0 && cfg->fsync <= 2);
    struct buf text, diff;
    buf_init(&text, 8 << 20);
    buf_init(&diff, 8 << 20);
    conf_print(c, &text);
    struct conf_sources printed = {.file_name = "printed", .file_text = buf_str(&text)};
    struct conf *again;
    struct conf_error why;
    CHECK(conf_load(&table, &printed, &again, &why) == ERR_OK);
    size_t changed = conf_diff(c, again, &diff);
    CHECK(changed == 0 || (changed == 1 && strstr(buf_cstr(&diff), "peer.token")));
    conf_destroy(again);
    buf_fini(&text);
    buf_fini(&diff);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char copy[8192];
    if (size >= sizeof copy)
        return 0;
    memcpy(copy, data, size);
    copy[size] = '\0';
    size_t first = strlen(copy), second = first < size ? first + 1 + strlen(copy + first + 1) : size;
    const char *env[] = {first < size ? copy + first + 1 : NULL, NULL};
    const char *flags[] = {second < size ? copy + second + 1 : ""};
    struct conf_sources from = {.file_name = "fuzz.toml",
                                .file_text = str_of(copy, first),
                                .env = env,
                                .flags = flags,
                                .flags_n = second < size ? 1 : 0};
    struct conf *c;
    struct conf_error why;
    if (conf_load(&table, &from, &c, &why) == ERR_OK) {
        check_round_trip(c);
        conf_destroy(c);
    } else {
        CHECK(why.text[0]);
    }
    return 0;
}
