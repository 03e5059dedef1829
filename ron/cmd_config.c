/* ron config: what a service would run with, where each value comes from, and whether a file is right. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "ron/config_file.h"
#include "ron/services.h"
#include "ron/up.h"

enum { OUTPUT_MAX = 4 << 20 };

typedef void print_fn(const struct svc_def *def, const struct conf *c, struct buf *out);

static void print_effective(const struct svc_def *def, const struct conf *c, struct buf *out)
{
    (void)def;
    conf_print(c, out);
}

/* A value as TOML writes it is one that JSON reads: a number, a string, true, false or a list of these. A source is neither. */
static json_t *as_json(const struct conf *c, const char *name,
                       void (*format)(const struct conf *c, const char *name, struct buf *out))
{
    struct buf text;
    buf_init(&text, OUTPUT_MAX);
    format(c, name, &text);
    json_t *value = json_loads(buf_cstr(&text), JSON_DECODE_ANY, NULL);
    if (!value)
        value = json_string(buf_cstr(&text));
    buf_fini(&text);
    return value;
}

static void print_json(const struct svc_def *def, const struct conf *c, struct buf *out)
{
    json_t *keys = json_object();
    for (size_t i = 0; i < def->config->keys_n; i++) {
        const char *name = def->config->keys[i].name;
        json_object_set_new(keys, name,
                            json_pack("{s:o, s:o}", "value", as_json(c, name, conf_format_value), "from",
                                      as_json(c, name, conf_format_source)));
    }
    json_t *all = json_pack("{s:s, s:o}", "service", def->name, "keys", keys);
    char *text = json_dumps(all, JSON_COMPACT);
    CHECK(text != NULL);
    buf_put_str(out, str_from_c(text));
    free(text);
    json_decref(all);
}

static void print_example(const struct svc_def *def, const struct conf *c, struct buf *out)
{
    (void)c;
    conf_example(def->config, out);
}

static void print_markdown(const struct svc_def *def, const struct conf *c, struct buf *out)
{
    (void)c;
    buf_printf(out, "## %s\n\n", def->name);
    conf_markdown(def->config, out);
}

/* For one service when it is named, else for all of them. */
static int for_each(struct cmd_ctx *ctx, const char *name, const char *file, print_fn *print)
{
    if (name && !ron_service_find(name))
        return cmd_fail(ctx, CMD_USAGE, "there is no service '%s': %s", name, ron_service_names());
    for (size_t i = 0; i < ron_service_count; i++) {
        const struct svc_def *def = ron_services[i];
        struct conf *c;
        if (name && ron_service_find(name) != def)
            continue;
        int status = config_file_load(ctx, def, file, &c);
        if (status != CMD_OK)
            return status;
        struct buf out;
        buf_init(&out, OUTPUT_MAX);
        print(def, c, &out);
        printf("%s\n", buf_cstr(&out));
        buf_fini(&out);
        conf_destroy(c);
    }
    return CMD_OK;
}

/* A file is good when a start would take it. */
static int run_print(struct cmd_ctx *ctx, int argc, char **argv)
{
    int status = up_check_config(ctx, cmd_global(ctx));
    return status != CMD_OK ? status
                            : for_each(ctx, argc ? argv[0] : NULL, cmd_global(ctx)->config,
                                       cmd_global(ctx)->json ? print_json : print_effective);
}

static int run_check(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    int status = up_check_config(ctx, &(struct cmd_global){.config = argv[0]});
    if (status == CMD_OK)
        printf(cmd_global(ctx)->json ? "{\"ok\":true}\n" : "%s is good\n", argv[0]);
    return status;
}

static int run_example(struct cmd_ctx *ctx, int argc, char **argv)
{
    return for_each(ctx, argc ? argv[0] : NULL, NULL, print_example);
}

static int run_markdown(struct cmd_ctx *ctx, int argc, char **argv)
{
    return for_each(ctx, argc ? argv[0] : NULL, NULL, print_markdown);
}

static const struct cmd commands[] = {
    {"print", "[SERVICE]", "the effective configuration and where each value comes from",
     "  ron config print wallet --config ron.toml\n  ron config print ledger --json | jq '.keys.max_conns'",
     NULL, 0, 1, run_print},
    {"check", "FILE", "say whether a file is right, and if not where", "  ron config check ron.toml", NULL,
     1, 1, run_check},
    {"example", "[SERVICE]", "a file with every key, its default and its meaning",
     "  ron config example > ron.toml", NULL, 0, 1, run_example},
    {"markdown", "[SERVICE]", "the same as tables for the documentation",
     "  ron config markdown\n  ron config markdown ledger", NULL, 0, 1, run_markdown},
    {.run = NULL},
};

const struct cmd_group cmd_config = {
    .noun = "config", .summary = "print, check and explain configuration", .commands = commands};
