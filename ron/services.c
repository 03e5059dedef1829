#include "ron/services.h"

#include <string.h>

const struct svc_def *const ron_services[] = {
#define SERVICE(name) &name##_svc,
#include "ron/services.def"
#undef SERVICE
    NULL,
};

const size_t ron_service_count = sizeof ron_services / sizeof ron_services[0] - 1;

const char *ron_service_names(void)
{
    static const char names[] =
#define SERVICE(name) ", " #name
#include "ron/services.def"
#undef SERVICE
        ;
    return names + 2; /* the first comma */
}

const struct svc_def *ron_service_find(const char *name)
{
    for (size_t i = 0; i < ron_service_count; i++)
        if (strcmp(ron_services[i]->name, name) == 0)
            return ron_services[i];
    return NULL;
}
