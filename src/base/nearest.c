#include "base/nearest.h"

#include <string.h>

enum { WORD_MAX = 63, FAR = 99, PREFIX_CHARS = 3 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Edit distance with swapped neighbours as one error (optimal string alignment), three rows at a time. */
static int distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int rows[3][WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX)
        return FAR;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], two_above[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

struct nearest nearest_to(const char *word)
{
    return (struct nearest){.word = word, .best_distance = FAR};
}

void nearest_offer(struct nearest *n, const char *candidate)
{
    if (!candidate)
        return;
    int d = distance(n->word, candidate);
    int errors_max = ((int)strlen(n->word) + 1) / 3;
    bool same_beginning = !n->typos_only && strncmp(n->word, candidate, PREFIX_CHARS) == 0;
    if (d < n->best_distance && (d <= errors_max || same_beginning)) {
        n->best_distance = d;
        n->best = candidate;
    }
}
