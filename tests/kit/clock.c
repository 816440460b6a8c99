/* Moves the clock of the system, for the process that loads this: by the seconds in the file that CLOCK_AHEAD names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    }
    int result = real(clock, now);
    const char *path = getenv("CLOCK_AHEAD");
    FILE *file = clock == CLOCK_REALTIME && path ? fopen(path, "r") : NULL;
    if (file) {
        long ahead = 0;
        if (fscanf(file, "%ld", &ahead) == 1) {
            now->tv_sec += ahead;
        }
        fclose(file);
    }
    return result;
}
