/* known_fatal.c: what is never launched, because it takes the device down with it.
 *
 * A probe in a child process survives a crash and a hang; it does not help where the device itself is gone until someone
 * reboots the machine. Such combinations are listed here, each with its reason and where it was seen. '*' matches anything. */
#include <fnmatch.h>

#include "device/verdict.h"

static const struct {
    const char *device, *driver, *kernel, *reason;
} fatal[] = {
    {"*Iluvatar BI-V100*", "*", "*triton*prefill*",
     "prefill kernels built by Triton hang this card for good; only a reboot brings it back"},
};

const char *es_known_fatal(const char *device, const char *driver, const char *kernel)
{
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (fnmatch(fatal[i].device, device, 0) == 0 && fnmatch(fatal[i].driver, driver, 0) == 0 &&
            fnmatch(fatal[i].kernel, kernel, 0) == 0)
            return fatal[i].reason;
    return es_known_fatal_extra ? es_known_fatal_extra(kernel) : NULL;
}
