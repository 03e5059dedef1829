#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/err.h"

static void every_error_has_a_name_a_code_and_an_http_status(void **state)
{
    (void)state;
    for (int e = 1; e < ERR_COUNT; e++) {
        assert_non_null(err_name((enum err)e));
        assert_true(strlen(err_code((enum err)e)) > 0);
        assert_in_range(err_http_status((enum err)e), 400, 599);
    }
}

static void codes_are_unique_per_status(void **state)
{
    (void)state;
    for (int a = 1; a < ERR_COUNT; a++)
        for (int b = a + 1; b < ERR_COUNT; b++)
            assert_false(strcmp(err_code((enum err)a), err_code((enum err)b)) == 0 &&
                         err_http_status((enum err)a) == err_http_status((enum err)b));
}

static void errno_is_mapped_in_one_place(void **state)
{
    (void)state;
    assert_int_equal(err_from_errno(0), ERR_OK);
    assert_int_equal(err_from_errno(ENOSPC), ERR_NO_SPACE);
    assert_int_equal(err_from_errno(EIO), ERR_IO);
    assert_int_equal(err_from_errno(EROFS), ERR_PERMISSION);
    assert_int_equal(err_from_errno(ECONNREFUSED), ERR_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_a_name_a_code_and_an_http_status),
        cmocka_unit_test(codes_are_unique_per_status),
        cmocka_unit_test(errno_is_mapped_in_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
