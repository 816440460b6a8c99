/* Stands between taskgate and its store's files: records what is written and synced, and fails what the test says.
 *
 * Loaded by LD_PRELOAD. `shim.rs` writes the orders into a page that both processes share, and `loss.rs` reads the record.
 * Every call on a watched file runs under one lock, so the record has the order in which things happened.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
#define LONGEST 4096

/* The kinds of calls. A write that makes a file longer is of both kinds, and so is a sync of its times. */
enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, GROW = 8, READ = 16, SYNC_TIMES = 32 };
/* In place of an errno: half of the bytes are written. */
enum { SHORT = 1000 };
/* What a line of the record says. */
enum { OPENED = 1, WRITTEN, SYNCED, TRUNCATED, UNLINKED, SYNCED_FOLDER, SYNC_FAILED, RENAMED };

/* The shared page: `shim.rs` names the same fields in the same order. */
struct orders {
    uint64_t calls;       /* calls so far: the place in the record */
    uint64_t kinds;       /* which kinds of calls fail */
    uint64_t matched;     /* calls of these kinds since the order was given */
    uint64_t first;       /* the first of them that fails, counted from 1 */
    uint64_t count;       /* how many fail from there on */
    uint64_t error;       /* how they fail: an errno, or SHORT */
    uint64_t failed;      /* how many have failed */
    uint64_t sync_delay;  /* microseconds */
    uint64_t write_delay; /* microseconds */
};

struct line {
    uint32_t what, file;
    uint64_t offset, length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct orders *orders;
static const char *watched;    /* files whose paths begin so */
static char folder[LONGEST];   /* where they are */
static int record = -1;
static char *paths[LONGEST];   /* the watched files, by number */
static int files;
static int file_of[LONGEST];   /* by descriptor: the number of the file, from 1; FOLDER; 0 if not watched */
enum { FOLDER = -1 };

__attribute__((constructor)) static void start(void) {
    const char *page = getenv("SHIM_ORDERS"), *log = getenv("SHIM_RECORD");
    watched = getenv("SHIM_WATCHED");
    if (!page || !watched || strlen(watched) >= LONGEST) return;
    int fd = REAL(open, page, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *mapped = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) abort();
    REAL(close, fd);
    strcpy(folder, watched);
    *strrchr(folder, '/') = 0;
    if (log) record = REAL(open, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    orders = mapped;
}

static void note(uint32_t what, int file, uint64_t offset, const void *data, uint64_t length) {
    if (record >= 0) {
        struct line line = {what, (uint32_t)file, offset, length};
        if (REAL(write, record, &line, sizeof line) != sizeof line) abort();
        if (data && REAL(write, record, data, length) != (ssize_t)length) abort();
    }
    __atomic_fetch_add(&orders->calls, 1, __ATOMIC_SEQ_CST);
}

/* Returns how this call fails, or 0. */
static int fails(uint64_t kinds) {
    if (!(orders->kinds & kinds)) return 0;
    uint64_t number = ++orders->matched;
    if (number < orders->first || number - orders->first >= orders->count) return 0;
    orders->failed++;
    return (int)orders->error;
}

static int watches(const char *path) {
    size_t length = strlen(path);
    /* The -shm file is memory that processes share; SQLite builds it anew after a crash. */
    int shm = length > 4 && !strcmp(path + length - 4, "-shm");
    return orders && !strncmp(path, watched, strlen(watched)) && !shm;
}

/* Remembers what a new descriptor stands for. */
static int opened(int fd, const char *path, int is_new, int flags) {
    if (fd < 0 || fd >= LONGEST || !orders) return fd;
    pthread_mutex_lock(&lock);
    file_of[fd] = strcmp(path, folder) ? 0 : FOLDER;
    if (watches(path)) {
        int file = 0;
        while (file < files && strcmp(paths[file], path)) file++;
        if (file == LONGEST) abort();
        if (file == files) paths[files++] = strdup(path);
        file_of[fd] = file + 1;
        note(OPENED, file + 1, (uint64_t)is_new, path, strlen(path));
        if (flags & O_TRUNC && !is_new) note(TRUNCATED, file + 1, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPEN(name)                                                            \
    int name(const char *path, int flags, ...) {                             \
        va_list more;                                                        \
        va_start(more, flags);                                               \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                        \
        int is_new = orders && watches(path) && access(path, F_OK) != 0;     \
        return opened(REAL(name, path, flags, mode), path, is_new, flags);   \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                         \
    int name(int at, const char *path, int flags, ...) {                     \
        va_list more;                                                        \
        va_start(more, flags);                                               \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                        \
        int is_new = orders && watches(path) && access(path, F_OK) != 0;     \
        return opened(REAL(name, at, path, flags, mode), path, is_new, flags); \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    if (fd >= 0 && fd < LONGEST && file_of[fd]) {
        pthread_mutex_lock(&lock);
        file_of[fd] = 0;
        pthread_mutex_unlock(&lock);
    }
    return REAL(close, fd);
}

static int file(int fd) {
    return orders && fd >= 0 && fd < LONGEST ? file_of[fd] : 0;
}

static ssize_t write_at(int fd, const void *data, size_t length, off_t offset, int moves) {
    pthread_mutex_lock(&lock);
    if (orders->write_delay) usleep((useconds_t)orders->write_delay);
    struct stat now;
    int grows = fstat(fd, &now) == 0 && offset + (off_t)length > now.st_size;
    int error = fails(WRITE | (grows ? GROW : 0));
    ssize_t written = -1;
    if (error && error != SHORT) {
        errno = error;
    } else {
        if (error && length > 1) length /= 2;
        written = moves ? REAL(write, fd, data, length) : REAL(pwrite, fd, data, length, offset);
        if (written > 0) note(WRITTEN, file_of[fd], (uint64_t)offset, data, (uint64_t)written);
    }
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int fd, const void *data, size_t length) {
    if (file(fd) <= 0) return REAL(write, fd, data, length);
    return write_at(fd, data, length, lseek(fd, 0, SEEK_CUR), 1);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    if (file(fd) <= 0) return REAL(pwrite, fd, data, length, offset);
    return write_at(fd, data, length, offset, 0);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    if (file(fd) <= 0) return REAL(pwrite64, fd, data, length, offset);
    return write_at(fd, data, length, (off_t)offset, 0);
}

#define SYNCS(name, kinds)                                                   \
    int name(int fd) {                                                       \
        if (!file(fd)) return REAL(name, fd);                                \
        pthread_mutex_lock(&lock);                                           \
        if (orders->sync_delay) usleep((useconds_t)orders->sync_delay);      \
        int error = fails(kinds), answer = error ? -1 : REAL(name, fd);      \
        if (file_of[fd] == FOLDER) {                                         \
            if (!answer) note(SYNCED_FOLDER, 0, 0, NULL, 0);                 \
        } else {                                                             \
            note(answer ? SYNC_FAILED : SYNCED, file_of[fd], 0, NULL, 0);    \
        }                                                                    \
        if (error) errno = error == SHORT ? EIO : error;                     \
        pthread_mutex_unlock(&lock);                                         \
        return answer;                                                       \
    }
SYNCS(fsync, SYNC | SYNC_TIMES)
SYNCS(fdatasync, SYNC)

#define TRUNCATES(name, offset)                                              \
    int name(int fd, offset length) {                                        \
        if (file(fd) <= 0) return REAL(name, fd, length);                    \
        pthread_mutex_lock(&lock);                                           \
        struct stat now;                                                     \
        int grows = fstat(fd, &now) == 0 && (off_t)length > now.st_size;     \
        int error = fails(TRUNCATE | (grows ? GROW : 0));                    \
        int answer = error ? -1 : REAL(name, fd, length);                    \
        if (!answer) note(TRUNCATED, file_of[fd], (uint64_t)length, NULL, 0); \
        if (error) errno = error == SHORT ? EIO : error;                     \
        pthread_mutex_unlock(&lock);                                         \
        return answer;                                                       \
    }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

int unlink(const char *path) {
    if (!orders || !watches(path)) return REAL(unlink, path);
    pthread_mutex_lock(&lock);
    int answer = REAL(unlink, path);
    if (!answer) note(UNLINKED, 0, 0, path, strlen(path));
    pthread_mutex_unlock(&lock);
    return answer;
}

int rename(const char *path, const char *to) {
    if (!orders || !watches(path)) return REAL(rename, path, to);
    pthread_mutex_lock(&lock);
    int answer = REAL(rename, path, to);
    char both[2 * LONGEST];
    int length = snprintf(both, sizeof both, "%s\n%s", path, to);
    if (!answer) note(RENAMED, 0, 0, both, (uint64_t)length);
    pthread_mutex_unlock(&lock);
    return answer;
}

#define READS(name, offset)                                                  \
    ssize_t name(int fd, void *data, size_t length, offset from) {           \
        int error = 0;                                                       \
        if (file(fd) > 0) {                                                  \
            pthread_mutex_lock(&lock);                                       \
            error = fails(READ);                                             \
            pthread_mutex_unlock(&lock);                                     \
        }                                                                    \
        if (!error) return REAL(name, fd, data, length, from);               \
        errno = error == SHORT ? EIO : error;                                \
        return -1;                                                           \
    }
READS(pread, off_t)
READS(pread64, off64_t)

ssize_t read(int fd, void *data, size_t length) {
    int error = 0;
    if (file(fd) > 0) {
        pthread_mutex_lock(&lock);
        error = fails(READ);
        pthread_mutex_unlock(&lock);
    }
    if (!error) return REAL(read, fd, data, length);
    errno = error == SHORT ? EIO : error;
    return -1;
}
