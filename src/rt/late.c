#include "rt/late.h"

#include <dlfcn.h>

void rt_late_load(const char *library, const char *const *names, void **at, size_t n)
{
    void *h = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    size_t found = 0;
    while (h && found < n && (at[found] = dlsym(h, names[found])) != NULL)
        found++;
    for (size_t i = 0; found < n && i < n; i++)
        at[i] = NULL;
}
