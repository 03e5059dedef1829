/* A PostgreSQL cluster (tools/pg-cluster) for C tests; the working directory is the source tree. */
#ifndef RON_TESTS_PG_RIG_H
#define RON_TESTS_PG_RIG_H

#include <stdbool.h>

struct pg_rig {
    char dir[64];
    char dsn[512];
};

bool pg_rig_start(struct pg_rig *r); /* false: it does not start, and says why on stderr */
void pg_rig_stop(struct pg_rig *r);
/* Runs `tools/pg-cluster --dir DIR <command>`; aborts the test program when it fails. */
void pg_rig_do(const struct pg_rig *r, const char *command);
/* A statement on the server NAME (p, s1, s2), outside of what is tested. */
void pg_rig_sql(const struct pg_rig *r, const char *name, const char *sql);
/* The number that a query there yields; -1 when there was none. */
long pg_rig_number(const struct pg_rig *r, const char *name, const char *sql);

#endif
