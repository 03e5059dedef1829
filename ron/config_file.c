#include "ron/config_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

extern char **environ;

enum { FILE_MAX = 1 << 20 };

static int read_file(const struct cmd_ctx *ctx, const char *path, struct buf *out)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s: %s", path, strerror(errno));
    size_t n;
    uint8_t *room;
    while ((room = buf_reserve(out, 65536)) && (n = fread(room, 1, 65536, f)) > 0)
        buf_commit(out, n);
    bool failed = ferror(f); /* a directory, say */
    fclose(f);
    if (failed)
        return cmd_fail(ctx, CMD_FAILED, "cannot read %s", path);
    return room ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "%s is larger than 1 MiB", path);
}

int config_file_load(const struct cmd_ctx *ctx, const struct svc_def *def, const char *file,
                     struct conf **out_conf)
{
    struct buf text;
    struct conf_error why = {0};
    struct conf_sources from = {.env = (const char *const *)environ};
    int status = CMD_OK;
    buf_init(&text, FILE_MAX);
    if (file) {
        status = read_file(ctx, file, &text);
        from.file_name = file;
        from.file_text = buf_str(&text);
    }
    if (status == CMD_OK && conf_load(def->config, &from, out_conf, &why) != ERR_OK)
        status = cmd_fail(ctx, CMD_USAGE, "%s", why.text);
    if (status == CMD_OK && svc_check_values(def, *out_conf) != ERR_OK) {
        status = cmd_fail(ctx, CMD_USAGE, "%s", svc_last_error());
        conf_destroy(*out_conf);
        *out_conf = NULL;
    }
    buf_fini(&text);
    return status;
}
