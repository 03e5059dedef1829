/* `ron rewarder fetch`: every file of a run, its signatures and the key that made them: what `verify` needs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "ron/client.h"
#include "ron/cmd_rewarder.h"

static int write_file(struct cmd_ctx *ctx, const char *dir, const char *name, const void *bytes, size_t n)
{
    char to[1024];
    snprintf(to, sizeof to, "%s/%s", dir, name);
    FILE *f = fopen(to, "wb");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    if (f)
        ok = fclose(f) == 0 && ok;
    return ok ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "cannot write %s: %s", to, strerror(errno));
}

static int fetch_one(struct cmd_ctx *ctx, const char *epoch, const char *dir, const char *name,
                     bool optional) RT_BLOCKS
{
    struct buf path;
    struct client_answer a;
    char rest[128];
    buf_init(&path, 1024);
    snprintf(rest, sizeof rest, "/artifacts/%s", name);
    rewarder_epoch_path(epoch, rest, &path);
    int status =
        client_call(ctx, "rewarder",
                    &(struct client_request){
                        .path = buf_cstr(&path), .timeout_ms = 600000, .answer_max = REWARDER_FILE_MAX},
                    &a);
    buf_fini(&path);
    if (status != CMD_OK && optional) {
        client_free(&a);
        return CMD_OK;
    }
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    status = write_file(ctx, dir, name, a.body.p, a.body.n);
    client_free(&a);
    return status;
}

/* The key that signed it, which need not be the one that signs today. */
static const json_t *key_of(const json_t *keys, const char *kid)
{
    for (size_t i = 0; i < json_array_size(keys); i++)
        if (!strcmp(client_str(json_array_get(keys, i), "kid"), kid))
            return json_array_get(keys, i);
    return NULL;
}

int rewarder_fetch_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    static const char *const names[] = {"run.json", "commitment", "payouts.bin", "tree.bin", "seal.json"};
    struct client_answer a;
    struct buf path;
    char sigs[1024], name[64];
    (void)argc;
    snprintf(sigs, sizeof sigs, "%s/sigs", argv[1]);
    if ((mkdir(argv[1], 0700) != 0 && errno != EEXIST) || (mkdir(sigs, 0700) != 0 && errno != EEXIST))
        return cmd_fail(ctx, CMD_FAILED, "cannot make %s: %s", sigs, strerror(errno));
    int status = CMD_OK;
    for (size_t i = 0; status == CMD_OK && i < sizeof names / sizeof *names; i++)
        status = fetch_one(ctx, argv[0], argv[1], names[i], false);
    if (status == CMD_OK)
        status = fetch_one(ctx, argv[0], argv[1], "settlement.json", true);
    if (status != CMD_OK)
        return status;
    buf_init(&path, 1024);
    rewarder_epoch_path(argv[0], "", &path);
    status = client_call(ctx, "rewarder", &(struct client_request){.path = buf_cstr(&path)}, &a);
    buf_fini(&path);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    const char *kid = client_str(json_array_get(json_object_get(a.json, "signatures"), 0), "kid");
    snprintf(name, sizeof name, "sigs/%s.sig", kid);
    status = fetch_one(ctx, argv[0], argv[1], name, false);
    snprintf(name, sizeof name, "sigs/%s.settlement.sig", kid);
    if (status == CMD_OK)
        status = fetch_one(ctx, argv[0], argv[1], name, true);
    snprintf(name, sizeof name, "%s", kid);
    client_free(&a);
    if (status != CMD_OK)
        return status;
    status = client_call(ctx, "rewarder", &(struct client_request){.path = "/rewarder/keys"}, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    const char *pem = client_str(key_of(json_object_get(a.json, "keys"), name), "pem");
    status =
        *pem ? write_file(ctx, argv[1], "pub.pem", pem, strlen(pem))
             : cmd_fail(ctx, CMD_FAILED, "the service does not publish the key %s that signed it", name);
    client_free(&a);
    if (status != CMD_OK)
        return status;
    if (cmd_global(ctx)->json) {
        json_t *where = json_pack("{s:s}", "dir", argv[1]);
        json_dumpf(where, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(where);
    } else
        printf("%s: everything to check the run without the service (ron rewarder verify %s)\n", argv[1],
               argv[1]);
    return CMD_OK;
}
