/* Starts a program and waits for its end, for a few milliseconds at most.
 *
 * One call instead of eight from Python: each new program displaces the interpreter from the caches
 * of the CPU, and each call of Python takes the interpreter lock again. short_runs.py does the same
 * in Python where this file was not compiled.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* The same fields as ShortRun in short_runs.py. */
struct short_run {
    int64_t lasted_us; /* from the start of the program until now, or until its end */
    int64_t user_us;
    int64_t system_us;
    int64_t max_rss_kib;
    int64_t length; /* of the output that was read */
    int32_t pid;
    int32_t is_over;
    int32_t status; /* as of wait(2) */
    int32_t read_end; /* of the pipe of a program that still runs; -1 without a pipe */
    int32_t write_end;
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

static int start(const char *path, char *const argv[], char *const environ[],
                 const posix_spawnattr_t *attributes, int stdin_fd, int stdout_fd, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int error = posix_spawn_file_actions_adddup2(&actions, stdin_fd, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, stdout_fd, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, stdout_fd, 2);
    if (!error)
        error = posix_spawn(pid, path, &actions, attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
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

static void reap(struct short_run *run) {
    struct rusage usage;
    /* The zombie still has its pid, so that no other process group can have it. */
    killpg(run->pid, SIGKILL);
    while (wait4(run->pid, &run->status, 0, &usage) < 0 && errno == EINTR)
        ;
    run->is_over = 1;
    run->user_us = in_us(usage.ru_utime);
    run->system_us = in_us(usage.ru_stime);
    run->max_rss_kib = usage.ru_maxrss;
}

static void read_output(struct short_run *run, char *buffer, int size) {
    /* Closed first, so that a read of the empty pipe returns its end. */
    close(run->write_end);
    run->write_end = -1;
    ssize_t count;
    do {
        count = read(run->read_end, buffer + run->length, size - run->length);
        if (count > 0)
            run->length += count;
    } while ((count > 0 && run->length < size) || (count < 0 && errno == EINTR));
}

/* Puts the shared variables and then the own ones into `environ`, which has room for a null pointer. */
static void join_variables(char *const shared[], int shared_count, const char *own, int own_count,
                           char **environ) {
    memcpy(environ, shared, shared_count * sizeof *environ);
    environ += shared_count;
    for (; own_count > 0; own_count--) {
        *environ++ = (char *)own;
        own += strlen(own) + 1;
    }
    *environ = NULL;
}

/* Returns an errno of a program that cannot be started, else 0.
 *
 * `shared`: pointers to variables that many programs have. `own`: variables of this program, each
 * with a null byte behind it.
 * `stdout_fd`: -1 to open a pipe, whose content is put into `buffer` at the end of the program.
 * `size`: of the buffer, at least that of a pipe.
 */
int batchyard_run_short(const char *path, char *const argv[], char *const shared[],
                        int shared_count, const char *own, int own_count,
                        const posix_spawnattr_t *attributes, int stdin_fd, int stdout_fd,
                        int patience_ms, char *buffer, int size, struct short_run *run) {
    int error = 0;
    pid_t pid;
    char *environ[shared_count + own_count + 1];
    join_variables(shared, shared_count, own, own_count, environ);
    run->is_over = 0;
    run->length = 0;
    run->read_end = run->write_end = -1;
    if (stdout_fd < 0)
        error = open_pipe(run);
    if (!error)
        error = start(path, argv, environ, attributes, stdin_fd,
                      stdout_fd < 0 ? run->write_end : stdout_fd, &pid);
    if (error) {
        close_pipe(run);
        return error;
    }
    int64_t started_us = now_us();
    run->pid = pid;
    if (wait_for_end(pid, patience_ms)) {
        reap(run);
        if (stdout_fd < 0)
            read_output(run, buffer, size);
        close_pipe(run);
    }
    run->lasted_us = now_us() - started_us;
    return 0;
}
