/* A clock that jumps, for the processes into which this is loaded (LD_PRELOAD): the time of day is off by as many
   seconds as the file $CHAOS_CLOCK says, 8 bytes. What waits until a time of day waits by the same clock. Debian's
   libfaketime does more, and lets short sleeps of Python 3.11 fail (clock_nanosleep: Invalid argument). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OF_DAY 1000000000 /* seconds: a later deadline is a time of day, an earlier one counts from the start */

static volatile int64_t none, *offset = &none;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED)
        offset = map;
    if (file >= 0)
        close(file);
}

static int (*real_gettime)(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_gettime)
        real_gettime = REAL(clock_gettime);
    int code = real_gettime(clock, now);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return code;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return out ? *out = now.tv_sec : now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    return 0;
}

static struct timespec real_deadline(const struct timespec *deadline)
{
    struct timespec real = *deadline;
    if (real.tv_sec > OF_DAY)
        real.tv_sec -= *offset;
    return real;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline)
{
    struct timespec real = real_deadline(deadline);
    return REAL(sem_timedwait)(semaphore, &real);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline)
{
    struct timespec real = real_deadline(deadline);
    return REAL(pthread_cond_timedwait)(condition, mutex, &real);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict deadline)
{
    struct timespec real = real_deadline(deadline);
    return REAL(pthread_mutex_timedlock)(mutex, &real);
}
