#include "ron/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/nearest.h"
#include "svc/data.h"
#include "svc/svc.h"

enum { FLAGS_MAX = 128 };

/* Without a verb a flag is a key of the configuration; somebody who meant a command is told how to find it. */
static int check_key(const struct svc_def *def, const char *name, size_t n)
{
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    struct nearest near = nearest_to(word);
    for (size_t i = 0; i < def->config->keys_n; i++) {
        if (strcmp(def->config->keys[i].name, word) == 0)
            return CMD_OK;
        nearest_offer(&near, def->config->keys[i].name);
    }
    return cmd_fail(
        NULL, CMD_USAGE,
        "ron %s without a verb runs the service, which has no key '%s'%s%s%s (ron %s --help lists "
        "the commands, ron config example %s the keys)",
        def->name, word, near.best ? "; did you mean '" : "", near.best ? near.best : "",
        near.best ? "'?" : "", def->name, def->name);
}

/* Splits the command line into what every command knows and what the service's configuration knows. */
static int split_flags(const struct svc_def *def, int argc, char **argv, struct cmd_global *g,
                       struct svc_options *opt, const char **out_flags, size_t *out_n)
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
        else if (IS("--base-port")) {
            if (value && !cmd_parse_base_port(value, &g->base_port))
                return cmd_fail(NULL, CMD_USAGE,
                                "--base-port takes a port number from 1 to 65000, not '%s'", value);
        } else if (IS("--amnesia") || IS("--quiet")) {
            *(arg[2] == 'a' ? &g->amnesia : &opt->quiet) = true;
            takes_value = false;
        } else if (IS("--ready-fd")) { /* from ron up --isolate to its children */
            opt->ready_fd = value ? atoi(value) : 0;
        } else if (strncmp(arg, "--", 2) == 0 && *out_n < FLAGS_MAX) {
            int status = check_key(def, arg + 2, n - 2);
            if (status != CMD_OK)
                return status;
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
    struct svc_options opt = {.flags = flags};
    int status = split_flags(def, argc, argv, &g, &opt, flags, &flag_count);
    if (status != CMD_OK)
        return status;
    opt.config_file = g.config;
    opt.base_port = g.base_port;
    opt.flag_count = flag_count;
    enum err e = svc_check_config(def, &opt);
    if (e != ERR_OK)
        return cmd_fail(NULL, e == ERR_BAD_REQUEST ? CMD_USAGE : CMD_FAILED, "%s", svc_last_error());
    const char *why = "";
    e = svc_data_open(g.data, g.amnesia, SVC_DATA_SHARED, &opt.data, &why);
    if (e != ERR_OK)
        return cmd_fail(NULL, CMD_FAILED,
                        "%s (ron %s without a verb runs the service; ron %s --help lists the "
                        "commands)",
                        why, def->name, def->name);
    status = svc_run(def, &opt);
    svc_data_close(opt.data);
    return status;
}
