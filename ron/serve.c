#include "ron/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svc/data.h"
#include "svc/svc.h"

enum { FLAGS_MAX = 128 };

/* Splits the command line into what every command knows and what the service's configuration knows. */
static int split_flags(int argc, char **argv, struct cmd_global *g, const char **out_flags, size_t *out_n)
{
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        bool has_value = strchr(arg, '=') != NULL;
        const char *value = has_value ? strchr(arg, '=') + 1 : i + 1 < argc ? argv[i + 1] : NULL;
        size_t n = has_value ? (size_t)(strchr(arg, '=') - arg) : strlen(arg);
#define IS(name) (n == sizeof(name) - 1 && strncmp(arg, name, n) == 0)
        bool takes_value = true;
        if (IS("--data"))
            g->data = value;
        else if (IS("--config"))
            g->config = value;
        else if (IS("--base-port"))
            g->base_port = value ? atoi(value) : 0;
        else if (IS("--amnesia")) {
            g->amnesia = true;
            takes_value = false;
        } else if (strncmp(arg, "--", 2) == 0 && *out_n < FLAGS_MAX) {
            out_flags[(*out_n)++] = arg;
            takes_value = false;
        } else
            return cmd_fail(NULL, CMD_USAGE,
                            "'%s' is not a flag; configuration keys are given as --section.key=value", arg);
#undef IS
        if (takes_value && !value)
            return cmd_fail(NULL, CMD_USAGE, "%s needs a value", arg);
        if (takes_value && !has_value)
            i++;
    }
    return CMD_OK;
}

int serve_one(const struct svc_def *def, int argc, char **argv, const struct cmd_global *defaults)
{
    struct cmd_global g = *defaults;
    const char *flags[FLAGS_MAX];
    size_t flag_count = 0;
    int status = split_flags(argc, argv, &g, flags, &flag_count);
    if (status != CMD_OK)
        return status;

    struct svc_data *data;
    const char *why = "";
    enum err e = svc_data_open(g.data, g.amnesia, SVC_DATA_SHARED, &data, &why);
    if (e != ERR_OK)
        return cmd_fail(NULL, CMD_FAILED, "%s", why);
    status = svc_run(def, &(struct svc_options){.data = data,
                                                .config_file = g.config,
                                                .base_port = g.base_port,
                                                .flags = flags,
                                                .flag_count = flag_count});
    svc_data_close(data);
    return status;
}
