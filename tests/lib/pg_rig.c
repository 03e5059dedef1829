#include "pg_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(const char *command)
{
    if (system(command) != 0) {
        fprintf(stderr, "failed: %s\n", command);
        abort();
    }
}

bool pg_rig_start(struct pg_rig *r)
{
    char command[256];
    snprintf(r->dir, sizeof r->dir, "/tmp/ron-pgt-%d", (int)getpid());
    snprintf(command, sizeof command, "tools/pg-cluster --dir %s --port $(tests/lib/ports) start", r->dir);
    FILE *f = popen(command, "r");
    if (f == NULL)
        return false;
    char *line = fgets(r->dsn, sizeof r->dsn, f);
    int status = pclose(f);
    if (line == NULL || status != 0) {
        pg_rig_stop(r);
        return false;
    }
    r->dsn[strcspn(r->dsn, "\n")] = 0;
    return true;
}

void pg_rig_stop(struct pg_rig *r)
{
    pg_rig_do(r, "stop");
}

void pg_rig_do(const struct pg_rig *r, const char *command)
{
    char text[256];
    snprintf(text, sizeof text, "tools/pg-cluster --dir %s %s >/dev/null", r->dir, command);
    must(text);
}

static void psql(char *out, size_t n, const struct pg_rig *r, const char *name, const char *sql,
                 const char *rest)
{
    int offset = strcmp(name, "p") == 0 ? 0 : name[1] - '0';
    snprintf(
        out, n,
        "psql -X -q -A -t -v ON_ERROR_STOP=1 -h %s -p $(($(cat %s/port) + %d)) -U ron -d ron -c \"%s\" %s",
        r->dir, r->dir, offset, sql, rest);
}

void pg_rig_sql(const struct pg_rig *r, const char *name, const char *sql)
{
    char text[1024];
    psql(text, sizeof text, r, name, sql, ">/dev/null");
    must(text);
}

long pg_rig_number(const struct pg_rig *r, const char *name, const char *sql)
{
    char text[1024], line[64] = "";
    psql(text, sizeof text, r, name, sql, "");
    FILE *p = popen(text, "r");
    char *end = line;
    long n = p != NULL && fgets(line, sizeof line, p) != NULL ? strtol(line, &end, 10) : -1;
    if (p != NULL)
        pclose(p);
    return end == line ? -1 : n;
}
