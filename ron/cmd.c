/*
 * Parsing and dispatch. In steps: global flags may stand anywhere; the first word is the noun, the second the
 * verb if the group has one by that name; everything else is checked against the command's flag table before
 * the command runs, so that a command never sees a flag it does not know.
 */
#include "ron/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "ron/serve.h"

#define FLAGS_MAX 32
#define ARGS_MAX  256

#define GROUP(noun)  extern const struct cmd_group cmd_##noun;
#define HIDDEN(noun) extern const struct cmd_group cmd_##noun;
#include "ron/commands.def"
#undef GROUP
#undef HIDDEN

static const struct cmd_group *const groups[] = {
#define GROUP(noun) &cmd_##noun,
#define HIDDEN(noun)
#include "ron/commands.def"
#undef GROUP
#undef HIDDEN
};

/* For the build and the curious: they work, but help, completion and manual do not list them. */
static const struct cmd_group *const hidden_groups[] = {
#define GROUP(noun)
#define HIDDEN(noun) &cmd_##noun,
#include "ron/commands.def"
#undef GROUP
#undef HIDDEN
};

static const struct cmd_flag global_flags[] = {
    {"data", CMD_VALUE, "DIR", "where everything is kept (default ron-data; RON_DATA)"},
    {"config", CMD_VALUE, "FILE", "configuration file (RON_CONFIG)"},
    {"base-port", CMD_VALUE, "N", "first of the ten default ports (default 7400; RON_BASE_PORT)"},
    {"token", CMD_VALUE, "TOKEN", "capability to present (default DIR/operator.token; RON_TOKEN)"},
    {"json", CMD_SWITCH, NULL, "print JSON instead of tables"},
    {"amnesia", CMD_SWITCH, NULL, "write nothing to disk"},
    {"help", CMD_SWITCH, NULL, "say what this command does"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

struct flag_value {
    const char *name, *value; /* value NULL for a switch */
};

struct cmd_ctx {
    const struct cmd_group *group;
    const struct cmd *cmd;
    struct cmd_global global;
    struct flag_value flags[FLAGS_MAX];
    int flag_count;
    bool help;
};

const struct cmd_group *const *cmd_groups(size_t *out_n)
{
    *out_n = sizeof groups / sizeof groups[0];
    return groups;
}

const struct cmd_flag *cmd_global_flags(void)
{
    return global_flags;
}

const struct cmd_global *cmd_global(const struct cmd_ctx *ctx)
{
    return &ctx->global;
}

const char *cmd_flag(const struct cmd_ctx *ctx, const char *name, const char *otherwise)
{
    for (int i = ctx->flag_count - 1; i >= 0; i--)
        if (strcmp(ctx->flags[i].name, name) == 0)
            return ctx->flags[i].value;
    return otherwise;
}

bool cmd_switch(const struct cmd_ctx *ctx, const char *name)
{
    for (int i = 0; i < ctx->flag_count; i++)
        if (strcmp(ctx->flags[i].name, name) == 0)
            return true;
    return false;
}

int64_t cmd_flag_int(const struct cmd_ctx *ctx, const char *name, int64_t otherwise, int64_t min,
                     int64_t max)
{
    const char *text = cmd_flag(ctx, name, NULL);
    if (!text)
        return otherwise;
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        exit(cmd_fail(ctx, CMD_USAGE, "--%s takes a whole number from %lld to %lld, not '%s'", name,
                      (long long)min, (long long)max, text));
    return value;
}

int cmd_fail(const struct cmd_ctx *ctx, int code, const char *fmt, ...)
{
    va_list ap;
    fputs("ron", stderr);
    if (ctx && ctx->group)
        fprintf(stderr, " %s", ctx->group->noun);
    if (ctx && ctx->cmd && ctx->cmd->verb)
        fprintf(stderr, " %s", ctx->cmd->verb);
    fputs(": ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return code;
}

/* Edit distance, small strings only: good enough to find the command somebody meant. */
static int distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[64];
    if (n >= 63 || m >= 63)
        return 99;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int up = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = up;
        }
    }
    return row[m];
}

struct nearest {
    const char *word, *best;
    int best_distance;
};

static void nearest_offer(struct nearest *n, const char *candidate)
{
    int d = candidate ? distance(n->word, candidate) : 99;
    if (d < n->best_distance) {
        n->best_distance = d;
        n->best = candidate;
    }
}

static struct nearest nearest_to(const char *word)
{
    return (struct nearest){.word = word, .best = NULL, .best_distance = (int)strlen(word) / 2 + 2};
}

static const struct cmd_group *find_group(const char *noun)
{
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strcmp(groups[i]->noun, noun) == 0)
            return groups[i];
    for (size_t i = 0; i < sizeof hidden_groups / sizeof hidden_groups[0]; i++)
        if (strcmp(hidden_groups[i]->noun, noun) == 0)
            return hidden_groups[i];
    return NULL;
}

static const struct cmd *find_cmd(const struct cmd_group *group, const char *verb)
{
    for (const struct cmd *c = group->commands; c && c->run; c++)
        if ((!c->verb && !verb) || (c->verb && verb && strcmp(c->verb, verb) == 0))
            return c;
    return NULL;
}

static const struct cmd_flag *find_flag(const struct cmd_flag *flags, const char *name, size_t n)
{
    for (; flags && flags->name; flags++)
        if (strlen(flags->name) == n && strncmp(flags->name, name, n) == 0)
            return flags;
    return NULL;
}

static void print_flags(const struct cmd_flag *flags)
{
    for (; flags && flags->name; flags++) {
        char left[48];
        snprintf(left, sizeof left, "--%s%s%s", flags->name, flags->value_name ? " " : "",
                 flags->value_name ? flags->value_name : "");
        printf("  %-24s %s\n", left, flags->help);
    }
}

static void help_all(void)
{
    puts("ron: five services on one machine: a provable ledger, a wallet, a mailbox, a rewarder and an "
         "edge.\n");
    puts("usage: ron <command> [<verb>] [arguments] [--flags]\n");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        printf("  %-12s %s\n", groups[i]->noun, groups[i]->summary);
    puts("\nevery command:");
    print_flags(global_flags);
    puts("\nstart everything:   ron up\nsee it work:        ron demo\nabout one command:  ron help "
         "<command>");
}

/* "wallet transfer FROM TO AMOUNT"; returns its length. */
static int synopsis(const struct cmd_group *group, const struct cmd *c, char *out, size_t n)
{
    return snprintf(out, n, "%s%s%s%s%s", group->noun, c->verb ? " " : "", c->verb ? c->verb : "",
                    c->args && *c->args ? " " : "", c->args ? c->args : "");
}

static void help_group(const struct cmd_group *group)
{
    char left[96];
    int widest = 0;
    for (const struct cmd *c = group->commands; c && c->run; c++) {
        int n = synopsis(group, c, left, sizeof left);
        widest = n > widest ? n : widest;
    }
    printf("ron %s: %s\n\n", group->noun, group->summary);
    if (group->service)
        printf("  ron %-*s  run the service in the foreground\n", widest, group->noun);
    for (const struct cmd *c = group->commands; c && c->run; c++) {
        synopsis(group, c, left, sizeof left);
        printf("  ron %-*s  %s\n", widest, left, c->summary);
    }
}

static void help_cmd(const struct cmd_group *group, const struct cmd *c)
{
    printf("ron %s%s%s: %s\n\nusage: ron %s%s%s %s%s\n", group->noun, c->verb ? " " : "",
           c->verb ? c->verb : "", c->summary, group->noun, c->verb ? " " : "", c->verb ? c->verb : "",
           c->args ? c->args : "", c->flags && c->flags->name ? " [--flags]" : "");
    if (c->flags && c->flags->name) {
        puts("\nflags:");
        print_flags(c->flags);
    }
    puts("\nevery command:");
    print_flags(global_flags);
    if (c->examples)
        printf("\nexamples:\n%s\n", c->examples);
}

static int set_global(struct cmd_ctx *ctx, const char *name, const char *value)
{
    if (strcmp(name, "data") == 0)
        ctx->global.data = value;
    else if (strcmp(name, "config") == 0)
        ctx->global.config = value;
    else if (strcmp(name, "token") == 0)
        ctx->global.token = value;
    else if (strcmp(name, "json") == 0)
        ctx->global.json = true;
    else if (strcmp(name, "amnesia") == 0)
        ctx->global.amnesia = true;
    else if (strcmp(name, "help") == 0)
        ctx->help = true;
    else if (strcmp(name, "base-port") == 0) {
        char *end = NULL;
        long port = strtol(value, &end, 10);
        if (end == value || *end || port < 1 || port > 65000)
            return cmd_fail(ctx, CMD_USAGE, "--base-port takes a port number from 1 to 65000, not '%s'",
                            value);
        ctx->global.base_port = (int)port;
    } else
        UNREACHABLE();
    return CMD_OK;
}

/* Reads one --flag (and its value); *io_index moves past what was used. */
static int take_flag(struct cmd_ctx *ctx, int argc, char **argv, int *io_index)
{
    const char *name = argv[*io_index] + 2;
    const char *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const struct cmd_flag *own = ctx->cmd ? find_flag(ctx->cmd->flags, name, n) : NULL;
    const struct cmd_flag *flag = own ? own : find_flag(global_flags, name, n);

    if (!flag) {
        struct nearest near = nearest_to(name);
        for (const struct cmd_flag *f = ctx->cmd ? ctx->cmd->flags : NULL; f && f->name; f++)
            nearest_offer(&near, f->name);
        for (const struct cmd_flag *f = global_flags; f->name; f++)
            nearest_offer(&near, f->name);
        return near.best ? cmd_fail(ctx, CMD_USAGE, "unknown flag --%.*s; did you mean --%s?", (int)n, name,
                                    near.best)
                         : cmd_fail(ctx, CMD_USAGE, "unknown flag --%.*s (see --help)", (int)n, name);
    }
    const char *value = NULL;
    if (flag->kind == CMD_VALUE) {
        if (equals)
            value = equals + 1;
        else if (*io_index + 1 < argc)
            value = argv[++*io_index];
        else
            return cmd_fail(ctx, CMD_USAGE, "--%s needs a value: --%s %s", flag->name, flag->name,
                            flag->value_name);
    } else if (equals)
        return cmd_fail(ctx, CMD_USAGE, "--%s takes no value", flag->name);
    if (!own)
        return set_global(ctx, flag->name, value);
    if (ctx->flag_count == FLAGS_MAX)
        return cmd_fail(ctx, CMD_USAGE, "too many flags");
    ctx->flags[ctx->flag_count++] = (struct flag_value){flag->name, value};
    return CMD_OK;
}

static void globals_from_environment(struct cmd_global *g)
{
    const char *port = getenv("RON_BASE_PORT");
    g->data = getenv("RON_DATA") ? getenv("RON_DATA") : "ron-data";
    g->config = getenv("RON_CONFIG");
    g->token = getenv("RON_TOKEN");
    g->base_port = port && atoi(port) > 0 ? atoi(port) : 7400;
    g->color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
}

static int unknown_noun(const struct cmd_ctx *ctx, const char *noun)
{
    struct nearest near = nearest_to(noun);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        nearest_offer(&near, groups[i]->noun);
    return near.best
               ? cmd_fail(ctx, CMD_USAGE, "there is no command '%s'; did you mean '%s'?", noun, near.best)
               : cmd_fail(ctx, CMD_USAGE, "there is no command '%s' (ron help lists them)", noun);
}

static int unknown_verb(const struct cmd_ctx *ctx, const char *verb)
{
    struct nearest near = nearest_to(verb);
    for (const struct cmd *c = ctx->group->commands; c && c->run; c++)
        nearest_offer(&near, c->verb);
    return near.best ? cmd_fail(ctx, CMD_USAGE, "there is no '%s'; did you mean '%s'?", verb, near.best)
                     : cmd_fail(ctx, CMD_USAGE, "there is no '%s' (ron help %s lists them)", verb,
                                ctx->group->noun);
}

static int run_help(struct cmd_ctx *ctx, int argc, char **argv)
{
    if (argc == 0) {
        help_all();
        return CMD_OK;
    }
    const struct cmd_group *group = find_group(argv[0]);
    if (!group)
        return unknown_noun(ctx, argv[0]);
    ctx->group = group;
    const struct cmd *c = find_cmd(group, argc > 1 ? argv[1] : NULL);
    if (argc > 1 && !c)
        return unknown_verb(ctx, argv[1]);
    if (c && (argc > 1 || !group->commands[1].run))
        help_cmd(group, c);
    else
        help_group(group);
    return CMD_OK;
}

int cmd_main(int argc, char **argv)
{
    struct cmd_ctx ctx = {0};
    char *args[ARGS_MAX];
    int arg_count = 0, status;

    globals_from_environment(&ctx.global);
    if (argc > 1 && argv[1][0] != '-') {
        if (strcmp(argv[1], "help") == 0)
            return run_help(&ctx, argc - 2, argv + 2);
        ctx.group = find_group(argv[1]);
        if (!ctx.group)
            return unknown_noun(&ctx, argv[1]);
    } else if (argc == 1 || strcmp(argv[1], "--help") == 0) {
        help_all();
        return argc == 1 ? CMD_USAGE : CMD_OK;
    } else if (strcmp(argv[1], "--version") == 0) {
        ctx.group = find_group("version");
    } else
        return cmd_fail(&ctx, CMD_USAGE, "the command comes first: ron <command> [--flags] (ron help)");

    int next = 2;
    bool has_verb = next < argc && argv[next][0] != '-' && find_cmd(ctx.group, argv[next]) != NULL;
    ctx.cmd = find_cmd(ctx.group, has_verb ? argv[next] : NULL);
    if (has_verb)
        next++;

    /* `ron ledger` and `ron ledger --flags` run the service; its flags are its configuration keys. */
    if (!ctx.cmd && ctx.group->service && (next == argc || argv[next][0] == '-') &&
        !(next < argc && strcmp(argv[next], "--help") == 0))
        return serve_one(ctx.group->service, argc - 2, argv + 2, &ctx.global);
    if (!ctx.cmd) {
        if (next < argc && argv[next][0] != '-')
            return unknown_verb(&ctx, argv[next]);
        help_group(ctx.group);
        return next < argc ? CMD_OK : CMD_USAGE;
    }

    bool flags_over = false;
    for (int i = next; i < argc; i++) {
        if (!flags_over && strcmp(argv[i], "--") == 0) {
            flags_over = true;
        } else if (!flags_over && strncmp(argv[i], "--", 2) == 0) {
            if ((status = take_flag(&ctx, argc, argv, &i)) != CMD_OK)
                return status;
        } else if (arg_count == ARGS_MAX) {
            return cmd_fail(&ctx, CMD_USAGE, "too many arguments");
        } else
            args[arg_count++] = argv[i];
    }
    if (ctx.help) {
        help_cmd(ctx.group, ctx.cmd);
        return CMD_OK;
    }
    if (arg_count < ctx.cmd->args_min || (ctx.cmd->args_max >= 0 && arg_count > ctx.cmd->args_max))
        return cmd_fail(&ctx, CMD_USAGE, "usage: ron %s%s%s %s", ctx.group->noun, ctx.cmd->verb ? " " : "",
                        ctx.cmd->verb ? ctx.cmd->verb : "", ctx.cmd->args ? ctx.cmd->args : "");
    return ctx.cmd->run(&ctx, arg_count, args);
}
