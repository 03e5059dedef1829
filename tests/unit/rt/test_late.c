/* A library is loaded by the first call of one of its functions; one that is not there, or is too old, answers zero. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "rt/late.h"

static const char *const found[] = {"cos", "sqrt"}, *const half[] = {"cos", "no_such_function"};

static void what_is_there_is_found(void **state)
{
    (void)state;
    void *at[2] = {NULL, NULL};
    rt_late_load("libm.so.6", found, at, 2);
    assert_non_null(at[0]);
    assert_non_null(at[1]);
    assert_true(((double (*)(double))at[1])(9) == 3);
}

static void a_library_that_is_not_there_gives_nothing(void **state)
{
    (void)state;
    void *at[2] = {&state, &state};
    rt_late_load("libno-such-library.so.1", found, at, 2);
    assert_null(at[0]);
    assert_null(at[1]);
}

static void half_a_library_gives_nothing(void **state)
{
    (void)state;
    void *at[2] = {&state, &state};
    rt_late_load("libm.so.6", half, at, 2);
    assert_null(at[0]);
    assert_null(at[1]);
}

long missing_number(long a);
void *missing_pointer(void);
void missing_nothing(int a);
#define FUNCTIONS(F)                                                                                       \
    F(long, missing_number, (long a), (a))                                                                 \
    F(void *, missing_pointer, (void), ())                                                                 \
    F(void, missing_nothing, (int a), (a))
RT_LATE("libno-such-library.so.1", FUNCTIONS, RT_LATE_NONE)

static void its_stubs_answer_zero(void **state)
{
    (void)state;
    assert_int_equal(missing_number(7), 0);
    assert_null(missing_pointer());
    missing_nothing(1);
}

/* A file has one such list; this one has a second, so its names are others. A library large enough to take a while. */
#define late_at    there_at
#define late_once  there_once
#define late_load  there_load
#define LATE_COUNT THERE_COUNT
time_t curl_getdate(const char *text, const time_t *unused);
#define THERE(F) F(time_t, curl_getdate, (const char *text, const time_t *unused), (text, unused))
RT_LATE("libcurl.so.4", THERE, RT_LATE_NONE)

enum { CALLERS = 8 };
static pthread_barrier_t start;

static void *first_caller(void *arg)
{
    pthread_barrier_wait(&start);
    *(time_t *)arg = curl_getdate("Sun, 06 Nov 1994 08:49:37 GMT", NULL);
    return NULL;
}

static void all_who_call_first_at_once_are_answered_by_the_library(void **state)
{
    (void)state;
    pthread_t callers[CALLERS];
    time_t answers[CALLERS] = {0};
    assert_int_equal(pthread_barrier_init(&start, NULL, CALLERS), 0);
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, first_caller, &answers[i]), 0);
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        assert_int_equal(answers[i], 784111777); /* a stub that does not wait for the loading says 0 */
    }
    pthread_barrier_destroy(&start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_is_found),
        cmocka_unit_test(a_library_that_is_not_there_gives_nothing),
        cmocka_unit_test(half_a_library_gives_nothing),
        cmocka_unit_test(its_stubs_answer_zero),
        cmocka_unit_test(all_who_call_first_at_once_are_answered_by_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
