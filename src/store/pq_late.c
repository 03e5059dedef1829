/* libpq's functions, loaded by the first connection (rt/late.h). */
#include <libpq-fe.h>

#include "rt/late.h"

#define FUNCTIONS(F)                                                                                       \
    F(PQconninfoOption *, PQconninfoParse, (const char *dsn, char **why), (dsn, why))                      \
    F(void, PQconninfoFree, (PQconninfoOption * o), (o))                                                   \
    F(PGconn *, PQconnectStartParams, (const char *const *names, const char *const *values, int dbname),   \
      (names, values, dbname))                                                                             \
    F(PostgresPollingStatusType, PQconnectPoll, (PGconn * c), (c))                                         \
    F(void, PQfinish, (PGconn * c), (c))                                                                   \
    F(ConnStatusType, PQstatus, (const PGconn *c), (c))                                                    \
    F(int, PQsocket, (const PGconn *c), (c))                                                               \
    F(int, PQserverVersion, (const PGconn *c), (c))                                                        \
    F(const char *, PQparameterStatus, (const PGconn *c, const char *name), (c, name))                     \
    F(char *, PQerrorMessage, (const PGconn *c), (c))                                                      \
    F(PQnoticeReceiver, PQsetNoticeReceiver, (PGconn * c, PQnoticeReceiver fn, void *arg), (c, fn, arg))   \
    F(int, PQsetnonblocking, (PGconn * c, int on), (c, on))                                                \
    F(int, PQenterPipelineMode, (PGconn * c), (c))                                                         \
    F(int, PQpipelineSync, (PGconn * c), (c))                                                              \
    F(int, PQconsumeInput, (PGconn * c), (c))                                                              \
    F(int, PQisBusy, (PGconn * c), (c))                                                                    \
    F(int, PQflush, (PGconn * c), (c))                                                                     \
    F(int, PQsendQuery, (PGconn * c, const char *text), (c, text))                                         \
    F(int, PQsendQueryPrepared,                                                                            \
      (PGconn * c, const char *name, int n, const char *const *values, const int *lengths,                 \
       const int *formats, int format),                                                                    \
      (c, name, n, values, lengths, formats, format))                                                      \
    F(PGresult *, PQgetResult, (PGconn * c), (c))                                                          \
    F(ExecStatusType, PQresultStatus, (const PGresult *r), (r))                                            \
    F(char *, PQresultErrorMessage, (const PGresult *r), (r))                                              \
    F(char *, PQresultErrorField, (const PGresult *r, int field), (r, field))                              \
    F(int, PQntuples, (const PGresult *r), (r))                                                            \
    F(char *, PQgetvalue, (const PGresult *r, int row, int column), (r, row, column))                      \
    F(int, PQgetlength, (const PGresult *r, int row, int column), (r, row, column))                        \
    F(char *, PQcmdTuples, (PGresult * r), (r))                                                            \
    F(void, PQclear, (PGresult * r), (r))                                                                  \
    F(void, PQfreemem, (void *p), (p))

RT_LATE("libpq.so.5", FUNCTIONS, RT_LATE_NONE)
