/* The wall clock of a process, moved by as many nanoseconds as the file STEPPED_CLOCK says: a 64-bit number in the machine's
   byte order, which may be written at any time. The monotonic clock stays as it is. Loaded with LD_PRELOAD.

   A thread that waits until a time of this clock waits until the kernel's clock is as far. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
/* No monotonic clock shows as much; waits by one are left alone. */
#define WALL_SECONDS_MIN 1000000000LL

static volatile int64_t *step;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STEPPED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        step = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!real_clock_gettime)
        begin();
    int failed = real_clock_gettime(clock, out);
    if (failed || !step || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t now = out->tv_sec * SECOND + out->tv_nsec + *step;
    out->tv_sec = now / SECOND;
    out->tv_nsec = now % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

static struct timespec by_the_kernel(const struct timespec *until)
{
    struct timespec moved = *until;

    if (step && until->tv_sec > WALL_SECONDS_MIN) {
        int64_t at = until->tv_sec * SECOND + until->tv_nsec - *step;
        moved.tv_sec = at / SECOND;
        moved.tv_nsec = at % SECOND;
    }
    return moved;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec moved = by_the_kernel(until);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return real(condition, mutex, &moved);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    struct timespec moved = by_the_kernel(until);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "cnd_timedwait");
    return real(condition, mutex, &moved);
}
