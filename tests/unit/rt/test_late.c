/* A library is loaded by the first call of one of its functions; one that is not there, or is too old, answers zero. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_is_found),
        cmocka_unit_test(a_library_that_is_not_there_gives_nothing),
        cmocka_unit_test(half_a_library_gives_nothing),
        cmocka_unit_test(its_stubs_answer_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
