#include "metric_sum.h"

#include <stdlib.h>
#include <string.h>

double metric_sum(const char *page, const char *name, const char *labels)
{
    double sum = 0;
    size_t n = strlen(name);
    for (const char *at = page; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        char line[512];
        size_t len = strcspn(at, "\n");
        if (len >= sizeof line || strncmp(at, name, n) != 0 || (at[n] != '{' && at[n] != ' '))
            continue;
        memcpy(line, at, len);
        line[len] = 0;
        if (strstr(line, labels))
            sum += strtod(strrchr(line, ' '), NULL);
    }
    return sum;
}
