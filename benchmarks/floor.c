/* The floor: as many children at once as there are slots, posix_spawn and wait4, nothing kept but the logs.
 *
 *   floor CHILDREN SLOTS FOLDER|- PROGRAM [ARGUMENT...]
 *
 * With a folder, each child's stdout and stderr go to a new file FOLDER/<number>.log. Exits 1 if a child failed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static void start(const char *folder, long number, char **argv) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    char path[4096];
    posix_spawn_file_actions_init(&actions);
    if (strcmp(folder, "-") != 0) {
        snprintf(path, sizeof path, "%s/%ld.log", folder, number);
        posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
    }
    int error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        fprintf(stderr, "floor: could not start %s: %s\n", argv[0], strerror(error));
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: floor CHILDREN SLOTS FOLDER|- PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    long children = atol(argv[1]), slots = atol(argv[2]), started = 0, ended = 0, failed = 0;
    while (ended < children) {
        while (started < children && started - ended < slots)
            start(argv[3], started++, argv + 4);
        int status;
        struct rusage usage;
        if (wait4(-1, &status, 0, &usage) < 0) {
            perror("floor: wait4");
            return 1;
        }
        ended++;
        failed += status != 0;
    }
    if (failed)
        fprintf(stderr, "floor: %ld of %ld children failed\n", failed, children);
    return failed != 0;
}
