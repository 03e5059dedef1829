/*
 * ron man: the manual pages, made from the tables of commands. ron(1) is the whole, ron-<noun>(1) one command
 * with its verbs; what the tables do not know (environment, files, exit status, signals) stands here.
 *
 * Roff takes a leading dot or quote as a request and a backslash as an escape, so every text goes through
 * man_text().
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ron/cmd.h"
#include "svc/version.h"

/* The code point at *io_text, which moves to its last byte; roff reads \\[uXXXX] whatever the locale is. */
static unsigned code_point(const char **io_text)
{
    const unsigned char *p = (const unsigned char *)*io_text;
    int more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
    unsigned code = *p & (0x3fu >> more);
    for (; more && (p[1] & 0xc0) == 0x80; more--)
        code = code << 6 | (*++p & 0x3f);
    *io_text = (const char *)p;
    return code;
}

static void man_text(FILE *f, const char *text)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", f);
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else if (*text == '\'')
            fputs("\\(aq", f);
        else if (*text == '^')
            fputs("\\(ha", f);
        else if (*text == '~')
            fputs("\\(ti", f);
        else if (*text == '`')
            fputs("\\(ga", f);
        else if (*text & 0x80)
            fprintf(f, "\\[u%04X]", code_point(&text));
        else
            fputc(*text, f);
        line_start = *text == '\n';
    }
}

static void man_title(FILE *f, const char *page, const char *summary)
{
    char upper[64];
    size_t n = strnlen(page, sizeof upper - 1);
    for (size_t i = 0; i < n; i++)
        upper[i] = (char)(page[i] >= 'a' && page[i] <= 'z' ? page[i] - 32 : page[i]);
    upper[n] = 0;
    fprintf(f, ".TH \"%s\" 1 \"\" \"ron " SVC_VERSION "\" \"RON\"\n.SH NAME\n", upper);
    man_text(f, page);
    fputs(" \\- ", f);
    man_text(f, summary);
    fputc('\n', f);
}

static void man_flags(FILE *f, const struct cmd_flag *flags)
{
    for (; flags && flags->name; flags++) {
        fputs(".TP\n.BR \\-\\-", f);
        man_text(f, flags->name);
        if (flags->value_name) {
            fputs(" \\ \\fI", f);
            man_text(f, flags->value_name);
            fputs("\\fR", f);
        }
        fputc('\n', f);
        man_text(f, flags->help);
        fputc('\n', f);
    }
}

static void man_examples(FILE *f, const char *text)
{
    fputs(".PP\n.EX\n", f);
    man_text(f, text);
    fputs("\n.EE\n", f);
}

static void man_synopsis(FILE *f, const struct cmd_group *g, const struct cmd *c)
{
    fprintf(f, ".B ron %s%s%s\n", g->noun, c->verb ? " " : "", c->verb ? c->verb : "");
    if (c->args && *c->args) {
        fputs(".I \"", f);
        man_text(f, c->args);
        fputs("\"\n", f);
    }
    if (c->flags && c->flags->name)
        fputs("[\\fIflags\\fR]\n", f);
    fputs(".br\n", f);
}

static void man_see_also(FILE *f, const char *not_this)
{
    size_t n;
    const struct cmd_group *const *groups = cmd_groups(&n);
    fputs(".SH SEE ALSO\n", f);
    if (not_this)
        fputs(".BR ron (1),\n", f);
    for (size_t i = 0; i < n; i++)
        if (!not_this || strcmp(groups[i]->noun, not_this) != 0) {
            bool last =
                i + 1 == n || (i + 2 == n && not_this && strcmp(groups[n - 1]->noun, not_this) == 0);
            fputs(".BR ron\\-", f);
            man_text(f, groups[i]->noun);
            fprintf(f, " (1)%s\n", last ? "" : ",");
        }
}

static void page_group(FILE *f, const struct cmd_group *g)
{
    char page[64];
    snprintf(page, sizeof page, "ron-%s", g->noun);
    man_title(f, page, g->summary);
    fputs(".SH SYNOPSIS\n", f);
    if (g->service) {
        fputs(".B ron ", f);
        man_text(f, g->noun);
        fputs("\n[\\fB\\-\\-\\fIkey\\fB=\\fIvalue\\fR ...]\n.br\n", f);
    }
    for (const struct cmd *c = g->commands; c && c->run; c++)
        man_synopsis(f, g, c);
    fputs(".SH DESCRIPTION\n", f);
    if (g->service) {
        fputs("Without a verb the service itself runs in the foreground until it is told to stop; its "
              "flags are the keys of its\n"
              "section of the configuration file, for example \\fB\\-\\-max_conns=2000\\fR. With a verb "
              "the command talks to a\n"
              "running service.\n",
              f);
    } else {
        man_text(f, g->summary);
        fputs(".\n", f);
    }
    for (const struct cmd *c = g->commands; c && c->run; c++) {
        fprintf(f, ".SS \"ron %s%s%s", g->noun, c->verb ? " " : "", c->verb ? c->verb : "");
        if (c->args && *c->args) {
            fputc(' ', f);
            man_text(f, c->args);
        }
        fputs("\"\n", f);
        man_text(f, c->summary);
        fputc('\n', f);
        man_flags(f, c->flags);
        if (c->examples)
            man_examples(f, c->examples);
    }
    fputs(".SH OPTIONS\nEvery command understands:\n", f);
    man_flags(f, cmd_global_flags());
    fputs(".SH EXIT STATUS\nAs in\n.BR ron (1).\n", f);
    if (g->exits) {
        fputs("But ", f);
        man_text(f, g->exits);
        fputs(".\n", f);
    }
    man_see_also(f, g->noun);
}

static const char main_page[] =
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\ndone\n"
    ".TP\n.B 1\nsomething went wrong here: a check failed, a file could not be read\n"
    ".TP\n.B 2\nthe command line or the configuration is wrong\n"
    ".TP\n.B 3\nthe service understood and said no (HTTP 4xx)\n"
    ".TP\n.B 4\nthe service could not be reached, or asked to come back later (429, 5xx)\n"
    ".TP\n.B 5\naccepted, but the outcome is not known yet; ask again\n"
    ".SH ENVIRONMENT\n"
    ".TP\n.BR RON_DATA ,\\  RON_CONFIG ,\\  RON_BASE_PORT ,\\  RON_TOKEN\ndefaults of \\fB\\-\\-data\\fR, "
    "\\fB\\-\\-config\\fR, "
    "\\fB\\-\\-base\\-port\\fR and \\fB\\-\\-token\\fR\n"
    ".TP\n.BI RON_ SERVICE _URL\nwhere a command finds that service, instead of where "
    "\\fB\\-\\-config\\fR says it is, or 127.0.0.1 and the default port\n"
    ".TP\n.BI RON_ SERVICE _ SECTION _ KEY\na configuration key; stronger than the file, weaker than a "
    "flag\n"
    ".TP\n.B NO_COLOR\nno colours, even on a terminal\n"
    ".SH FILES\n"
    ".TP\n.I ron\\-data/\neverything the services keep, readable by its owner only\n"
    ".TP\n.I ron\\-data/operator.token\na capability that may do anything; commands use it unless told "
    "otherwise\n"
    ".TP\n.I ron\\-data/keys/\nthe keys that capabilities and roots are signed with\n"
    ".TP\n.I ron\\-data/run/*.sock\nUnix sockets of the services\n"
    ".TP\n.I /etc/ron/ron.toml\nthe configuration file of the packaged service\n"
    ".SH SIGNALS\n"
    ".TP\n.BR SIGTERM ,\\  SIGINT\nstop taking work, finish what was accepted, stop; a second one ends at "
    "once\n"
    ".TP\n.B SIGHUP\nread configuration, keys and revocations again; what is wrong is refused as a whole "
    "and the old one kept\n";

static void page_main(FILE *f)
{
    size_t n;
    const struct cmd_group *const *groups = cmd_groups(&n);
    man_title(f, "ron", "ledger, wallet, mailbox, rewarder and edge in one program");
    fputs(".SH SYNOPSIS\n.B ron\n.I "
          "command\n[\\fIverb\\fR]\n[\\fIarguments\\fR]\n[\\fB\\-\\-\\fIflags\\fR]\n",
          f);
    fputs(".SH DESCRIPTION\n"
          "RON is five network services on one machine: an append\\-only ledger whose every commit has a "
          "provable root, a wallet\n"
          "for money over HTTP, a mailbox for messages under leases, a rewarder for pay\\-outs that add "
          "up, and an edge for map\n"
          "packs and content\\-addressed assets.\n"
          ".B ron up\nstarts them all with embedded defaults;\n.B ron demo\nshows what they do and checks "
          "every claim.\n"
          ".SH COMMANDS\n",
          f);
    for (size_t i = 0; i < n; i++) {
        fputs(".TP\n.BR ron\\-", f);
        man_text(f, groups[i]->noun);
        fputs(" (1)\n", f);
        man_text(f, groups[i]->summary);
        fputc('\n', f);
    }
    fputs(".SH OPTIONS\nEvery command understands:\n", f);
    man_flags(f, cmd_global_flags());
    fputs(main_page, f);
    man_see_also(f, NULL);
}

static int write_page(struct cmd_ctx *ctx, const char *dir, const struct cmd_group *g)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/ron%s%s.1", dir, g ? "-" : "", g ? g->noun : "");
    FILE *f = fopen(path, "w");
    if (!f)
        return cmd_fail(ctx, CMD_FAILED, "cannot write %s (%s)", path, strerror(errno));
    if (g)
        page_group(f, g);
    else
        page_main(f);
    bool bad = ferror(f) != 0;
    return fclose(f) || bad ? cmd_fail(ctx, CMD_FAILED, "cannot write %s", path) : CMD_OK;
}

static int run_man(struct cmd_ctx *ctx, int argc, char **argv)
{
    size_t n;
    const struct cmd_group *const *groups = cmd_groups(&n);
    const char *dir = cmd_flag(ctx, "out", NULL);
    if (dir) {
        if (mkdir(dir, 0755) && errno != EEXIST)
            return cmd_fail(ctx, CMD_FAILED, "cannot make %s (%s)", dir, strerror(errno));
        int status = write_page(ctx, dir, NULL);
        for (size_t i = 0; i < n && status == CMD_OK; i++)
            status = write_page(ctx, dir, groups[i]);
        return status;
    }
    if (!argc) {
        page_main(stdout);
        return CMD_OK;
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(groups[i]->noun, argv[0]) == 0) {
            page_group(stdout, groups[i]);
            return CMD_OK;
        }
    return cmd_fail(ctx, CMD_USAGE, "there is no command '%s' (ron help lists them)", argv[0]);
}

static const struct cmd_flag flags[] = {
    {"out", CMD_VALUE, "DIR", "write every page into this directory"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {NULL, "[COMMAND]", "a manual page as roff", "  ron man ledger | man -l -\n  ron man --out man", flags,
     0, 1, run_man},
    {.run = NULL},
};

const struct cmd_group cmd_man = {.noun = "man", .summary = "manual pages as roff", .commands = commands};
