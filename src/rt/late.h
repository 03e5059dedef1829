/*
 * Shared libraries that are loaded when they are first needed. libcurl and libpq bring some thirty others with them, four MiB that
 * a service which calls nobody never looks at again.
 *
 * A list of functions makes a stub for each under its own name, so that callers include the library's header and know nothing of it:
 *
 *     #define FUNCTIONS(F) F(PGresult *, PQgetResult, (PGconn * conn), (conn)) ...
 *     RT_LATE("libpq.so.5", FUNCTIONS, RT_LATE_NONE)
 *
 * MORE are functions that get an address but whose stubs the caller writes (variadic ones).
 *
 * A library that is not there makes every stub return zero: what begins (a handle, a connection) is NULL then, and the caller says
 * ERR_UNAVAILABLE.
 *
 * Threads     Any. The first call of all loads, and waits for the disk: it belongs where something is set up, not on a hot path.
 * Memory      A loaded library stays.
 */
#ifndef RON_RT_LATE_H
#define RON_RT_LATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Fills at[] with the addresses of names[]; all NULL unless every one is found. */
void rt_late_load(const char *library, const char *const *names, void **at, size_t n);

#define RT_LATE_NUMBER(ret, name, params, args) LATE_##name,
#define RT_LATE_NAME(ret, name, params, args)   #name,
#define RT_LATE_STUB(ret, name, params, args)                                                              \
    ret name params                                                                                        \
    {                                                                                                      \
        pthread_once(&late_once, late_load);                                                               \
        return late_at[LATE_##name] ? ((ret(*) params)late_at[LATE_##name])args : (ret)0;                  \
    }

#define RT_LATE_NONE(F)

#define RT_LATE(library, FUNCTIONS, MORE)                                                                  \
    enum { FUNCTIONS(RT_LATE_NUMBER) MORE(RT_LATE_NUMBER) LATE_COUNT };                                    \
    static void *late_at[LATE_COUNT];                                                                      \
    static pthread_once_t late_once = PTHREAD_ONCE_INIT;                                                   \
    static void late_load(void)                                                                            \
    {                                                                                                      \
        static const char *const names[] = {FUNCTIONS(RT_LATE_NAME) MORE(RT_LATE_NAME)};                   \
        rt_late_load(library, names, late_at, LATE_COUNT);                                                 \
    }                                                                                                      \
    FUNCTIONS(RT_LATE_STUB)

#endif
