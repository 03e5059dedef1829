/*
 * ron completion: scripts that complete every command, verb and flag, made from the same tables as the help, so
 * that a new command is completed the day it is added.
 *
 * Both scripts are static: they hold the words and never run the program while somebody is typing.
 */
#include <stdio.h>
#include <string.h>

#include "ron/cmd.h"

static bool names_a_file(const struct cmd_flag *f)
{
    return f->kind == CMD_VALUE && f->value_name &&
           (strcmp(f->value_name, "FILE") == 0 || strcmp(f->value_name, "DIR") == 0);
}

static void bash_flags(const struct cmd_flag *flags)
{
    for (; flags && flags->name; flags++)
        printf(" --%s%s", flags->name, flags->kind == CMD_VALUE ? "=" : "");
}

static void bash_group(const struct cmd_group *g)
{
    printf("    %s)\n        verbs='", g->noun);
    bool first = true;
    for (const struct cmd *c = g->commands; c && c->run; c++)
        if (c->verb) {
            printf("%s%s", first ? "" : " ", c->verb);
            first = false;
        }
    puts("'\n        case $verb in");
    for (const struct cmd *c = g->commands; c && c->run; c++)
        if (c->flags && c->flags->name) {
            printf("        %s) flags='", c->verb ? c->verb : "*");
            bash_flags(c->flags);
            puts("' ;;");
        }
    puts("        esac\n        ;;");
}

static void bash(const struct cmd_group *const *groups, size_t n)
{
    puts(
        "# bash completion for ron; put it where bash-completion looks, or: source <(ron completion bash)");
    puts("_ron() {\n    local cur=${COMP_WORDS[COMP_CWORD]} noun=${COMP_WORDS[1]-} verb=${COMP_WORDS[2]-} "
         "verbs='' flags='' path");
    /* bash splits words at '=', so a value after it arrives as a word of its own. */
    puts("    path=${COMP_WORDS[COMP_CWORD-1]}\n"
         "    [ \"$path\" = = ] && path=${COMP_WORDS[COMP_CWORD-2]}\n"
         "    [ \"$cur\" = = ] && path=${COMP_WORDS[COMP_CWORD-1]} cur=");
    fputs("    case $path in", stdout);
    for (const struct cmd_flag *f = cmd_global_flags(); f->name; f++)
        if (names_a_file(f))
            printf("\n    --%s) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;", f->name);
    puts("\n    esac");
    fputs("    if [ \"$COMP_CWORD\" = 1 ]; then\n        mapfile -t COMPREPLY < <(compgen -W 'help",
          stdout);
    for (size_t i = 0; i < n; i++)
        printf(" %s", groups[i]->noun);
    puts("' -- \"$cur\")\n        return\n    fi");
    fputs("    if [ \"$noun\" = help ] && [ \"$COMP_CWORD\" = 2 ]; then\n        mapfile -t COMPREPLY < "
          "<(compgen -W '",
          stdout);
    for (size_t i = 0; i < n; i++)
        printf("%s%s", i ? " " : "", groups[i]->noun);
    puts("' -- \"$cur\")\n        return\n    fi\n    case $noun in");
    for (size_t i = 0; i < n; i++)
        bash_group(groups[i]);
    fputs("    esac\n    flags=\"$flags", stdout);
    bash_flags(cmd_global_flags());
    puts("\"\n    case $cur in\n    -*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\") ;;");
    puts("    *)\n        if [ \"$COMP_CWORD\" = 2 ] && [ -n \"$verbs\" ]; then\n"
         "            mapfile -t COMPREPLY < <(compgen -W \"$verbs\" -- \"$cur\")\n"
         "        else\n            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n        fi\n        "
         ";;\n    esac");
    puts("    [ ${#COMPREPLY[@]} = 1 ] && [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n  "
         "  return 0\n}\ncomplete -F _ron ron");
}

/* Text inside '...' of a zsh specification: quotes, brackets and colons mean something there. */
static void zsh_text(const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
}

static void zsh_flags(const struct cmd_flag *flags, const char *indent)
{
    for (; flags && flags->name; flags++) {
        printf("%s'--%s%s[", indent, flags->name, flags->kind == CMD_VALUE ? "=" : "");
        zsh_text(flags->help);
        putchar(']');
        if (flags->kind == CMD_VALUE) {
            putchar(':');
            zsh_text(flags->value_name ? flags->value_name : "value");
            fputs(names_a_file(flags) ? ":_files" : ": ", stdout);
        }
        puts("'");
    }
}

static void zsh_pair(const char *indent, const char *word, const char *text)
{
    printf("%s'", indent);
    zsh_text(word);
    putchar(':');
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    puts("'");
}

static void zsh_group(const struct cmd_group *g)
{
    bool any = false;
    printf("    (%s)\n", g->noun);
    for (const struct cmd *c = g->commands; c && c->run; c++)
        any = any || c->verb;
    if (any) {
        puts("        words_of=(");
        for (const struct cmd *c = g->commands; c && c->run; c++)
            if (c->verb)
                zsh_pair("            ", c->verb, c->summary);
        puts("        )");
    }
    puts("        case $words[3] in");
    for (const struct cmd *c = g->commands; c && c->run; c++)
        if (c->flags && c->flags->name) {
            printf("        (%s) flags+=(\n", c->verb ? c->verb : "*");
            zsh_flags(c->flags, "            ");
            puts("        ) ;;");
        }
    puts("        esac\n        ;;");
}

static void zsh(const struct cmd_group *const *groups, size_t n)
{
    puts("#compdef ron\n# zsh completion for ron; put it as _ron into a directory of $fpath.");
    puts("_ron() {\n    local -a nouns words_of flags\n    nouns=(");
    zsh_pair("        ", "help", "about one command");
    for (size_t i = 0; i < n; i++)
        zsh_pair("        ", groups[i]->noun, groups[i]->summary);
    puts("    )\n    flags=(");
    zsh_flags(cmd_global_flags(), "        ");
    puts("    )\n    if (( CURRENT == 2 )) || { (( CURRENT == 3 )) && [[ $words[2] == help ]] }; then\n"
         "        _describe -t commands command nouns\n        return\n    fi\n    case $words[2] in");
    for (size_t i = 0; i < n; i++)
        zsh_group(groups[i]);
    puts("    esac\n    if (( CURRENT == 3 )) && (( $#words_of )) && [[ $words[3] != -* ]]; then\n"
         "        _describe -t verbs verb words_of\n        return\n    fi\n    _arguments $flags "
         "'*:argument:_files'\n}");
    puts("if [ \"$funcstack[1]\" = _ron ]; then _ron \"$@\"; else compdef _ron ron; fi");
}

static int run_bash(struct cmd_ctx *ctx, int argc, char **argv)
{
    size_t n;
    const struct cmd_group *const *groups = cmd_groups(&n);
    (void)ctx, (void)argc, (void)argv;
    bash(groups, n);
    return CMD_OK;
}

static int run_zsh(struct cmd_ctx *ctx, int argc, char **argv)
{
    size_t n;
    const struct cmd_group *const *groups = cmd_groups(&n);
    (void)ctx, (void)argc, (void)argv;
    zsh(groups, n);
    return CMD_OK;
}

static const struct cmd commands[] = {
    {"bash", "", "for bash",
     "  source <(ron completion bash)\n  ron completion bash > /etc/bash_completion.d/ron", NULL, 0, 0,
     run_bash},
    {"zsh", "", "for zsh", "  ron completion zsh > ~/.zsh/completions/_ron", NULL, 0, 0, run_zsh},
    {.run = NULL},
};

const struct cmd_group cmd_completion = {
    .noun = "completion", .summary = "shell completion for bash and zsh", .commands = commands};
