/*
 * Parsing and dispatch. In steps: the flags of every command may stand anywhere; the first word is the noun, the
 * second the verb if the group has one by that name; everything else is checked against the command's flag table
 * before the command runs, so that a command never sees a flag it does not know.
 */
#include "ron/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/nearest.h"
#include "base/str.h"
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
    {"config", CMD_VALUE, "FILE", "configuration of the services, also to find them by (RON_CONFIG)"},
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

const char *cmd_flag_each(const struct cmd_ctx *ctx, const char *name, int *io_at)
{
    while (*io_at < ctx->flag_count)
        if (strcmp(ctx->flags[(*io_at)++].name, name) == 0)
            return ctx->flags[*io_at - 1].value;
    return NULL;
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

bool cmd_parse_ms(const char *text, int64_t *out_ms)
{
    return str_parse_duration_ms(str_from_c(text), out_ms) == ERR_OK;
}

int64_t cmd_flag_ms(const struct cmd_ctx *ctx, const char *name, int64_t otherwise, int64_t min,
                    int64_t max)
{
    const char *text = cmd_flag(ctx, name, NULL);
    int64_t value = otherwise;
    char low[STR_NUMBER_CHARS], high[STR_NUMBER_CHARS];
    if (!text || (cmd_parse_ms(text, &value) && value >= min && value <= max))
        return value;
    str_format_duration_ms(min, low);
    str_format_duration_ms(max, high);
    exit(cmd_fail(ctx, CMD_USAGE, "--%s takes a time from %s to %s, such as 30s, not '%s'", name, low, high,
                  text));
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
    char usage[96];
    synopsis(group, c, usage, sizeof usage);
    printf("ron %s%s%s: %s\n\nusage: ron %s%s\n", group->noun, c->verb ? " " : "", c->verb ? c->verb : "",
           c->summary, usage, c->flags && c->flags->name ? " [--flags]" : "");
    if (c->flags && c->flags->name) {
        puts("\nflags:");
        print_flags(c->flags);
    }
    puts("\nevery command:");
    print_flags(global_flags);
    if (group->exits)
        printf("\nexit codes: ron(1); but %s\n", group->exits);
    if (c->examples)
        puts("\nexamples:");
    for (const char *line = c->examples; line && *line;
         line += strcspn(line, "\n"), line += *line == '\n') {
        line += strspn(line, " ");
        printf("  %.*s\n", (int)strcspn(line, "\n"), line);
    }
}

bool cmd_parse_base_port(const char *text, int *out)
{
    char *end = NULL;
    long port = strtol(text, &end, 10);
    if (end == text || *end || port < 1 || port > 65000)
        return false;
    *out = (int)port;
    return true;
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
        CHECK(value != NULL); /* its row in the table says so */
        if (!cmd_parse_base_port(value, &ctx->global.base_port))
            return cmd_fail(ctx, CMD_USAGE, "--base-port takes a port number from 1 to 65000, not '%s'",
                            value);
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
    if (value &&
        !*value) /* "$(cat key)" of a file that is not there: what was meant is not what would be done */
        return cmd_fail(ctx, CMD_USAGE, "--%s is empty: --%s %s", flag->name, flag->name, flag->value_name);
    if (!own)
        return set_global(ctx, flag->name, value);
    if (ctx->flag_count == FLAGS_MAX)
        return cmd_fail(ctx, CMD_USAGE, "too many flags");
    ctx->flags[ctx->flag_count++] = (struct flag_value){flag->name, value};
    return CMD_OK;
}

/* NULL when it is not set, or empty: RON_TOKEN= ron ... is how a shell unsets one for a command. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int globals_from_environment(struct cmd_ctx *ctx)
{
    struct cmd_global *g = &ctx->global;
    const char *port = environment("RON_BASE_PORT"), *data = environment("RON_DATA");
    g->data = data ? data : "ron-data";
    g->config = environment("RON_CONFIG");
    g->token = environment("RON_TOKEN");
    g->base_port = 7400;
    g->color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    if (port && !cmd_parse_base_port(port, &g->base_port))
        return cmd_fail(ctx, CMD_USAGE, "RON_BASE_PORT is a port number from 1 to 65000, not '%s'", port);
    return CMD_OK;
}

static void add_word(char *list, size_t room, const char *word)
{
    size_t n = strlen(list);
    snprintf(list + n, room - n, "%s%s", n ? ", " : "", word);
}

static int unknown_noun(const struct cmd_ctx *ctx, const char *noun)
{
    struct nearest near = nearest_to(noun);
    char list[512] = "";
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        nearest_offer(&near, groups[i]->noun);
        add_word(list, sizeof list, groups[i]->noun);
    }
    return near.best
               ? cmd_fail(ctx, CMD_USAGE, "there is no command '%s'; did you mean '%s'?", noun, near.best)
               : cmd_fail(ctx, CMD_USAGE, "there is no command '%s', nor one like it: %s (ron help)", noun,
                          list);
}

static int unknown_verb(const struct cmd_ctx *ctx, const char *verb)
{
    struct nearest near = nearest_to(verb);
    char list[512] = "";
    for (const struct cmd *c = ctx->group->commands; c && c->run; c++)
        if (c->verb) {
            nearest_offer(&near, c->verb);
            add_word(list, sizeof list, c->verb);
        }
    return near.best ? cmd_fail(ctx, CMD_USAGE, "there is no '%s'; did you mean '%s'?", verb, near.best)
                     : cmd_fail(ctx, CMD_USAGE, "there is no '%s', nor one like it: %s (ron help %s)", verb,
                                list, ctx->group->noun);
}

static bool asks_for_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

static int run_help(struct cmd_ctx *ctx, int argc, char **argv)
{
    if (argc == 0 || asks_for_help(argv[0]) || strcmp(argv[0], "help") == 0) {
        help_all();
        return CMD_OK;
    }
    const struct cmd_group *group = find_group(argv[0]);
    if (!group)
        return unknown_noun(ctx, argv[0]);
    ctx->group = group;
    if (argc > 1 && asks_for_help(argv[1]))
        argc = 1;
    const struct cmd *c = find_cmd(group, argc > 1 ? argv[1] : NULL);
    if (argc > 1 && !c)
        return unknown_verb(ctx, argv[1]);
    if (c && (argc > 1 || !group->commands[1].run))
        help_cmd(group, c);
    else
        help_group(group);
    return CMD_OK;
}

/* Where the first word stands behind flags that every command has; argc when other flags come first, or nothing. */
static int first_word(int argc, char **argv, int from)
{
    for (int i = from; i < argc; i++) {
        if (argv[i][0] != '-')
            return i;
        const char *name = argv[i] + (strncmp(argv[i], "--", 2) == 0 ? 2 : 0);
        const struct cmd_flag *flag = find_flag(global_flags, name, strcspn(name, "="));
        if (!flag)
            return argc;
        if (flag->kind == CMD_VALUE && !strchr(name, '='))
            i++;
    }
    return argc;
}

/* Everything but the verb, against the command's own flags. */
static int run_cmd(struct cmd_ctx *ctx, int argc, char **argv, int from, int verb_at)
{
    char *args[ARGS_MAX], usage[96];
    int arg_count = 0, status;
    bool flags_over = false;
    for (int i = from; i < argc; i++) {
        if (i == verb_at)
            continue;
        if (!flags_over && strcmp(argv[i], "--") == 0) {
            flags_over = true;
        } else if (!flags_over && asks_for_help(argv[i])) {
            ctx->help = true;
        } else if (!flags_over && strncmp(argv[i], "--", 2) == 0) {
            if ((status = take_flag(ctx, argc, argv, &i)) != CMD_OK)
                return status;
        } else if (arg_count == ARGS_MAX) {
            return cmd_fail(ctx, CMD_USAGE, "too many arguments");
        } else
            args[arg_count++] = argv[i];
    }
    if (ctx->help) {
        help_cmd(ctx->group, ctx->cmd);
        return CMD_OK;
    }
    synopsis(ctx->group, ctx->cmd, usage, sizeof usage);
    if (arg_count < ctx->cmd->args_min)
        return cmd_fail(ctx, CMD_USAGE, "something is missing; usage: ron %s", usage);
    if (ctx->cmd->args_max >= 0 && arg_count > ctx->cmd->args_max && args[ctx->cmd->args_max][0] == '-')
        return cmd_fail(ctx, CMD_USAGE, "unknown flag %s; usage: ron %s", args[ctx->cmd->args_max], usage);
    if (ctx->cmd->args_max >= 0 && arg_count > ctx->cmd->args_max)
        return cmd_fail(ctx, CMD_USAGE, "'%s' is too much; usage: ron %s", args[ctx->cmd->args_max], usage);
    return ctx->cmd->run(ctx, arg_count, args);
}

/* A noun without a verb, and no command by that name alone. */
RT_BLOCKS
static int run_bare_noun(struct cmd_ctx *ctx, int argc, char **argv, int from)
{
    bool help = false;
    for (int i = from; i < argc; i++)
        help = help || asks_for_help(argv[i]);
    /* `ron ledger` and `ron ledger --flags` run the service; its flags are its configuration keys. */
    if (ctx->group->service && !help)
        return serve_one(ctx->group->service, argc - from, argv + from, &ctx->global);
    help_group(ctx->group);
    return help ? CMD_OK : CMD_USAGE;
}

int cmd_main(int argc, char **argv)
{
    struct cmd_ctx ctx = {0};
    int noun_at = 1, status = globals_from_environment(&ctx);

    if (status != CMD_OK)
        return status;
    for (; noun_at < argc && argv[noun_at][0] == '-'; noun_at++) {
        if (asks_for_help(argv[noun_at])) {
            help_all();
            return CMD_OK;
        }
        if (strcmp(argv[noun_at], "--version") == 0) {
            ctx.cmd = find_cmd(ctx.group = find_group("version"), NULL);
            CHECK(ctx.cmd != NULL);
            return ctx.cmd->run(&ctx, 0, NULL);
        }
        if (strncmp(argv[noun_at], "--", 2) != 0)
            return cmd_fail(&ctx, CMD_USAGE, "unknown flag %s (ron help)", argv[noun_at]);
        if ((status = take_flag(&ctx, argc, argv, &noun_at)) != CMD_OK)
            return status;
    }
    if (noun_at >= argc) {
        help_all();
        return CMD_USAGE;
    }
    if (strcmp(argv[noun_at], "help") == 0)
        return run_help(&ctx, argc - noun_at - 1, argv + noun_at + 1);
    ctx.group = find_group(argv[noun_at]);
    if (!ctx.group)
        return unknown_noun(&ctx, argv[noun_at]);

    int from = noun_at + 1, word_at = first_word(argc, argv, from);
    bool has_verb = word_at < argc && find_cmd(ctx.group, argv[word_at]) != NULL;
    ctx.cmd = find_cmd(ctx.group, has_verb ? argv[word_at] : NULL);
    if (ctx.cmd)
        return run_cmd(&ctx, argc, argv, from, has_verb ? word_at : -1);
    return word_at < argc ? unknown_verb(&ctx, argv[word_at]) : run_bare_noun(&ctx, argc, argv, from);
}
