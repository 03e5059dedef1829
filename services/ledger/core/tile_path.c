#include "services/ledger/core/tile_path.h"

#include "base/str.h"

static bool three_digits(struct str s, uint64_t *out)
{
    if (s.n != 3)
        return false;
    *out = 0;
    for (size_t i = 0; i < 3; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(s.p[i] - '0');
    }
    return true;
}

static enum err number(struct str *rest, uint64_t *out, bool *out_partial)
{
    uint64_t n = 0, part;
    struct str piece;
    *out_partial = false;
    for (unsigned groups = 0; groups < 6; groups++) {
        struct str after = str_cut(*rest, '/', &piece);
        bool more = piece.n > 0 && piece.p[0] == 'x';
        bool first_zero = groups == 0 && more && str_eq(piece, STR("x000"));
        if (first_zero)
            return ERR_SYNTAX; /* leading zeros */
        if (more) {
            if (!three_digits(str_of(piece.p + 1, piece.n - 1), &part) || after.p == NULL)
                return ERR_SYNTAX;
            n = n * 1000 + part;
            *rest = after;
            continue;
        }
        if (str_ends(piece, STR(".p"))) {
            *out_partial = true;
            piece.n -= 2;
        }
        if (!three_digits(piece, &part))
            return ERR_SYNTAX;
        *out = n * 1000 + part;
        *rest = after;
        return ERR_OK;
    }
    return ERR_SYNTAX;
}

enum err ledger_tile_parse(struct str path, struct ledger_tile *out)
{
    struct ledger_tile t = {.width = TILE_WIDTH};
    struct str head, rest = str_cut(path, '/', &head);
    uint64_t level = 0, width;
    bool partial;
    if (rest.p == NULL)
        return ERR_SYNTAX;
    t.entries = str_eq(head, STR("entries"));
    if (!t.entries && (str_parse_u64(head, &level) != ERR_OK || level > 5))
        return ERR_SYNTAX;
    t.level = (unsigned)level;
    if (number(&rest, &t.n, &partial) != ERR_OK)
        return ERR_SYNTAX;
    if (partial) {
        if (rest.p == NULL || str_parse_u64(rest, &width) != ERR_OK || width == 0 || width >= TILE_WIDTH)
            return ERR_SYNTAX;
        t.width = (unsigned)width;
    } else if (rest.p != NULL) {
        return ERR_SYNTAX;
    }
    *out = t;
    return ERR_OK;
}
