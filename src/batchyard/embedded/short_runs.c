/* Runs short programs one after the other, without the interpreter of Python between them.
 *
 * Each new program displaces the interpreter from the caches of the CPU, and each call of Python
 * takes the interpreter lock again. short_runs.py has the rules of a series, and does the same in
 * Python where this file was not compiled.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Set in `taken` when no further program may start. */
#define WITHDRAWN (1 << 30)

/* The structures have the same fields in short_runs.py, which refuses a library with another number. */
const int32_t batchyard_layout = 1;

struct short_run {
    const char *path; /* NULL: it cannot be started */
    char *const *argv;
    char *const *shared; /* variables that many programs have */
    const char *own;     /* variables of this program, each with a null byte behind it */
    int32_t shared_count;
    int32_t own_count;
    int32_t stdout_fd; /* -1: it gets a pipe of its own */
    int32_t error;     /* errno of a program that could not be started */
    int32_t pid;       /* 0 before the start */
    int32_t is_over;
    int32_t status; /* as of wait(2) */
    int32_t read_end; /* of its own pipe, if it still runs; else -1 */
    int32_t write_end;
    int32_t output_start; /* in the buffer */
    int32_t output_length;
    int64_t started_us; /* when its start began: it may run long before the starter goes on */
    int64_t ended_us;
    int64_t user_us;
    int64_t system_us;
    int64_t max_rss_kib;
};

struct series {
    const posix_spawnattr_t *attributes;
    char *buffer; /* output of all programs */
    struct short_run *runs;
    int32_t buffer_size;
    int32_t pipe_size; /* room that the buffer must have before a program starts */
    int32_t buffer_used;
    int32_t stdin_fd;
    int32_t patience_ms;
    int32_t report_after_ms;
    int32_t count;
    int32_t taken; /* programs that have started or are being started, and WITHDRAWN */
    int32_t ended;
};

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static int64_t in_us(struct timeval time) {
    return time.tv_sec * 1000000LL + time.tv_usec;
}

static int open_pipe(struct short_run *run) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    run->read_end = ends[0];
    run->write_end = ends[1];
    fcntl(run->read_end, F_SETFL, O_NONBLOCK);
    return 0;
}

static void close_pipe(struct short_run *run) {
    if (run->write_end >= 0)
        close(run->write_end);
    if (run->read_end >= 0)
        close(run->read_end);
    run->read_end = run->write_end = -1;
}

/* Puts the shared variables and then the own ones into `environ`, behind them a null pointer. */
static void join_variables(const struct short_run *run, char **environ) {
    const char *own = run->own;
    memcpy(environ, run->shared, run->shared_count * sizeof *environ);
    environ += run->shared_count;
    for (int number = 0; number < run->own_count; number++) {
        *environ++ = (char *)own;
        own += strlen(own) + 1;
    }
    *environ = NULL;
}

static int start(const struct series *series, struct short_run *run) {
    char *environ[run->shared_count + run->own_count + 1];
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int stdout_fd = run->stdout_fd < 0 ? run->write_end : run->stdout_fd;
    join_variables(run, environ);
    posix_spawn_file_actions_init(&actions);
    int error = posix_spawn_file_actions_adddup2(&actions, series->stdin_fd, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, stdout_fd, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, stdout_fd, 2);
    if (!error)
        error = posix_spawn(&pid, run->path, &actions, series->attributes, run->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (!error)
        __atomic_store_n(&run->pid, pid, __ATOMIC_RELEASE);
    return error;
}

/* Returns whether the process has ended, after `patience_ms` at most. */
static int wait_for_end(pid_t pid, int patience_ms) {
    int pidfd = syscall(SYS_pidfd_open, pid, 0), count;
    if (pidfd < 0)
        return 0; /* too many open files: nothing shows whether the process is a short one */
    struct pollfd poll_entry = {.fd = pidfd, .events = POLLIN};
    do
        count = poll(&poll_entry, 1, patience_ms);
    while (count < 0 && errno == EINTR);
    close(pidfd);
    return count > 0;
}

/* Returns whether the buffer has room for the output of a process that has ended. */
static int has_room(const struct series *series, const struct short_run *run) {
    int length = 0;
    return run->stdout_fd >= 0 || (ioctl(run->read_end, FIONREAD, &length) == 0 &&
                                   length <= series->buffer_size - series->buffer_used);
}

/* Without success, the process counts as one that still runs, and short_runs.py's caller waits for it. */
static void reap(struct short_run *run) {
    struct rusage usage;
    pid_t pid;
    /* The zombie still has its pid, so that no other process group can have it. */
    killpg(run->pid, SIGKILL);
    do
        pid = wait4(run->pid, &run->status, 0, &usage);
    while (pid < 0 && errno == EINTR);
    if (pid < 0)
        return;
    run->is_over = 1;
    run->user_us = in_us(usage.ru_utime);
    run->system_us = in_us(usage.ru_stime);
    run->max_rss_kib = usage.ru_maxrss;
}

static void read_output(struct series *series, struct short_run *run) {
    int room = series->buffer_size - series->buffer_used;
    char *buffer = series->buffer + series->buffer_used;
    ssize_t count;
    run->output_start = series->buffer_used;
    /* Closed first, so that a read of the empty pipe returns its end. */
    close(run->write_end);
    run->write_end = -1;
    do {
        count = read(run->read_end, buffer + run->output_length, room - run->output_length);
        if (count > 0)
            run->output_length += count;
    } while ((count > 0 && run->output_length < room) || (count < 0 && errno == EINTR));
    series->buffer_used += run->output_length;
}

/* Runs one program, until its end or until it is not a short one any more. */
static void run_one(struct series *series, struct short_run *run) {
    run->error = run->path == NULL ? EINVAL : 0;
    run->read_end = run->write_end = -1;
    run->started_us = now_us();
    if (!run->error && run->stdout_fd < 0)
        run->error = open_pipe(run);
    if (!run->error)
        run->error = start(series, run);
    if (run->error) {
        close_pipe(run);
        return;
    }
    if (wait_for_end(run->pid, series->patience_ms) && has_room(series, run))
        reap(run);
    if (run->is_over) {
        if (run->stdout_fd < 0)
            read_output(series, run);
        close_pipe(run);
        run->ended_us = now_us();
    }
}

/* Returns whether the next program may start; it is taken then. */
int batchyard_take(struct series *series, int32_t number) {
    int32_t taken = number;
    /* It was taken already if it is tried a second time. */
    return __atomic_compare_exchange_n(&series->taken, &taken, number + 1, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           (taken & ~WITHDRAWN) > number;
}

/* Lets no further program start. Returns how many have started or are being started. */
int batchyard_withdraw(struct series *series) {
    return __atomic_fetch_or(&series->taken, WITHDRAWN, __ATOMIC_ACQ_REL) & ~WITHDRAWN;
}

/* Returns how many programs have ended. */
int batchyard_count_ended(struct series *series) {
    return __atomic_load_n(&series->ended, __ATOMIC_ACQUIRE);
}

/* Runs the programs from `ended` on. Returns at a program that still runs, that failed or that could
 * not be started; when the ends since the call must be reported; and at the end of the series.
 */
void batchyard_run_series(struct series *series) {
    int32_t first = series->ended;
    for (int32_t number = first; number < series->count; number++) {
        struct short_run *run = &series->runs[number];
        if (series->buffer_size - series->buffer_used < series->pipe_size || !batchyard_take(series, number))
            return;
        run_one(series, run);
        if (!run->is_over)
            return;
        __atomic_store_n(&series->ended, number + 1, __ATOMIC_RELEASE);
        if (run->status ||
            run->ended_us - series->runs[first].ended_us > series->report_after_ms * 1000LL)
            return;
    }
}
