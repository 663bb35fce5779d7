/* LD_PRELOAD: below $FOREIGN, a file system that lacks the features that $LACKING lists, such as "chmod lock link".
   $NO_LOCK is the error number of locks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int lacks(const char *feature, int directory, const char *path, int error)
{
    const char *lacking = getenv("LACKING"), *foreign = getenv("FOREIGN");
    char link[64], folder[PATH_MAX], whole[2 * PATH_MAX];
    if (!lacking || !foreign || !strstr(lacking, feature))
        return 0;
    snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
    ssize_t size = readlink(link, folder, sizeof folder - 1);
    folder[size < 0 ? 0 : size] = 0;
    snprintf(whole, sizeof whole, "%s/%s", path && *path == '/' ? "" : folder, path ? path : "");
    if (!strstr(whole, foreign))
        return 0;
    errno = error;
    return 1;
}

static int no_lock(void) { return getenv("NO_LOCK") ? atoi(getenv("NO_LOCK")) : ENOLCK; }

#define REAL(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define REFUSE(feature, directory, path, error, call) return lacks(feature, directory, path, error) ? -1 : call

int chmod(const char *path, mode_t mode)
{
    REFUSE("chmod", AT_FDCWD, path, EPERM, REAL(chmod, const char *, mode_t)(path, mode));
}
int fchmod(int file, mode_t mode) { REFUSE("chmod", file, NULL, EPERM, REAL(fchmod, int, mode_t)(file, mode)); }
int fchmodat(int at, const char *path, mode_t mode, int flags)
{
    REFUSE("chmod", at, path, EPERM, REAL(fchmodat, int, const char *, mode_t, int)(at, path, mode, flags));
}
int link(const char *from, const char *to)
{
    REFUSE("link", AT_FDCWD, to, EPERM, REAL(link, const char *, const char *)(from, to));
}
int symlink(const char *from, const char *to)
{
    REFUSE("link", AT_FDCWD, to, EPERM, REAL(symlink, const char *, const char *)(from, to));
}
int flock(int file, int how) { REFUSE("lock", file, NULL, no_lock(), REAL(flock, int, int)(file, how)); }
int fsync(int file) { REFUSE("sync", file, NULL, EINVAL, REAL(fsync, int)(file)); }
int posix_fallocate(int file, off_t first, off_t count)
{
    return lacks("fallocate", file, NULL, 0) ? ENOSYS : REAL(posix_fallocate, int, off_t, off_t)(file, first, count);
}
int posix_fallocate64(int file, off_t first, off_t count) { return posix_fallocate(file, first, count); }
int utimensat(int at, const char *path, const struct timespec times[2], int flags)
{
    if (times && lacks("utime", at, path, EPERM))
        return -1;
    return REAL(utimensat, int, const char *, const struct timespec *, int)(at, path, times, flags);
}
