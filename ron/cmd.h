/*
 * The command line: `ron <noun> <verb> [arguments] [--flags]`.
 *
 * A command is data: what it is called, which flags it takes, what its help says, and the function that runs
 * it. One file per noun (ron/cmd_<noun>.c) exports one group; commands.def lists the groups. Help, shell
 * completion, man pages, flag checking and "did you mean" are made from these tables.
 *
 * Ownership   Everything a command gets from the context is borrowed and lives until the command returns.
 * Threads     A command runs on the main thread.
 */
#ifndef RON_CMD_H
#define RON_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rt/lock.h"

struct svc_def;
struct cmd_ctx;

/* What a shell script may rely on (ron(1), EXIT STATUS). */
enum cmd_exit {
    CMD_OK = 0,
    CMD_FAILED = 1,      /* something went wrong here: a check failed, a file could not be read */
    CMD_USAGE = 2,       /* the command line or the configuration is wrong */
    CMD_REFUSED = 3,     /* the service understood and said no (4xx) */
    CMD_UNAVAILABLE = 4, /* the service could not be reached or asked to come back later */
    CMD_PENDING = 5,     /* accepted, outcome not known yet */
};

enum cmd_flag_kind {
    CMD_SWITCH, /* --json */
    CMD_VALUE,  /* --asset ron, --asset=ron */
};

struct cmd_flag {
    const char *name; /* without the dashes; a NULL name ends the list */
    enum cmd_flag_kind kind;
    const char *value_name; /* shown in help: --asset ASSET */
    const char *help;
};

struct cmd {
    const char *verb;     /* NULL: the noun alone is the command */
    const char *args;     /* "FROM TO AMOUNT", shown in the synopsis */
    const char *summary;  /* one line */
    const char *examples; /* lines, each a command somebody could paste */
    const struct cmd_flag *flags;
    int args_min, args_max; /* how many positional arguments; -1: any number */
    int (*run)(struct cmd_ctx *ctx, int argc, char **argv); /* argv: the positional arguments only */
};

struct cmd_group {
    const char *noun;
    const char *summary;
    const struct cmd *commands; /* ends with a row whose run is NULL */
    /* A noun that is a service: `ron <noun>` without a verb runs it in the foreground. */
    const struct svc_def *service;
    const char
        *exits; /* which commands' exit codes mean something else than enum cmd_exit says, and what */
};

/* The flags every command understands. */
struct cmd_global {
    const char *data;   /* --data DIR, RON_DATA, default ron-data */
    const char *config; /* --config FILE, RON_CONFIG, default none */
    int base_port;      /* --base-port N, RON_BASE_PORT, default 7400 */
    const char *token;  /* --token T or RON_TOKEN, default: DIR/operator.token */
    bool json;          /* --json: machine-readable output */
    bool color;         /* stdout is a terminal, NO_COLOR is unset */
    bool amnesia;       /* --amnesia */
};

const struct cmd_global *cmd_global(const struct cmd_ctx *ctx);

/* The value of a flag of this command, or `otherwise` when it was not given. */
const char *cmd_flag(const struct cmd_ctx *ctx, const char *name, const char *otherwise);
/* A flag that may be given several times: its next value from *io_at (0 at first) on, or NULL. */
const char *cmd_flag_each(const struct cmd_ctx *ctx, const char *name, int *io_at);
bool cmd_switch(const struct cmd_ctx *ctx, const char *name);
/* A flag as a whole number; ends the command with a usage error when it is not one in [min, max]. */
int64_t cmd_flag_int(const struct cmd_ctx *ctx, const char *name, int64_t otherwise, int64_t min,
                     int64_t max);

/* A flag that is a time, in milliseconds: 250ms, 30s, 5m, 2h, 1d; no number alone, who writes 5 may mean seconds. Else as
 * cmd_flag_int. */
#define CMD_MS_MAX (INT64_MAX / 1000000) /* as much as still fits as nanoseconds */
int64_t cmd_flag_ms(const struct cmd_ctx *ctx, const char *name, int64_t otherwise, int64_t min,
                    int64_t max);
bool cmd_parse_ms(const char *text, int64_t *out_ms); /* the same for an argument; false: it is no time */

/* Says what is wrong in one sentence on stderr and returns `code`, so that a command can `return cmd_fail(...)`. */
int cmd_fail(const struct cmd_ctx *ctx, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A port from which the ten default ports can be counted; false: it is none. */
bool cmd_parse_base_port(const char *text, int *out);

/* The whole command line (main calls this). */
int cmd_main(int argc, char **argv) RT_BLOCKS;

/* For commands that work on the table of commands itself: completion, man pages, help. */
const struct cmd_group *const *cmd_groups(size_t *out_n);
const struct cmd_flag *cmd_global_flags(void);

#endif
