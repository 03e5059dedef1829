#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "services/ledger/core/tile_path.h"

static void paths_of_tiles_are_read_as_the_specification_spells_them(void **state)
{
    (void)state;
    struct ledger_tile t;
    assert_int_equal(ledger_tile_parse(STR("0/x001/x234/067"), &t), ERR_OK);
    assert_true(t.n == 1234067 && t.level == 0 && t.width == 256 && !t.entries);
    assert_int_equal(ledger_tile_parse(STR("3/000.p/17"), &t), ERR_OK);
    assert_true(t.n == 0 && t.level == 3 && t.width == 17);
    assert_int_equal(ledger_tile_parse(STR("entries/x001/000.p/255"), &t), ERR_OK);
    assert_true(t.entries && t.n == 1000 && t.width == 255);
}

static void one_tile_has_one_path(void **state)
{
    (void)state;
    const char *bad[] = {
        "",       "0",        "0/",      "0/1",       "0/0001",      "0/x000/001", "0/x1/001",
        "6/000",  "01/000",   "0/000.p", "0/000.p/0", "0/000.p/256", "0/000.p/01", "0/000/1",
        "x/000",  "-1/000",   "0/x001",  "entries/",  "entries/abc", "0/00a",      "0/000.p/1/2",
        "0//000", "0/x001//0"};
    struct ledger_tile t;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ledger_tile_parse(str_from_c(bad[i]), &t), ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_of_tiles_are_read_as_the_specification_spells_them),
        cmocka_unit_test(one_tile_has_one_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
