#define _XOPEN_SOURCE 700 /* posix_openpt */

#include "support/pty.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 20000

void pty_start(struct pty *t, const char *line) {
    memset(t, 0, sizeof *t);
    t->fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    t->child = fork();
    assert_true(t->child >= 0);
    if (t->child == 0) {
        setsid();
        int side = open(ptsname(t->fd), O_RDWR); /* becomes the controlling terminal */
        for (int i = 0; i < 3; i++)
            dup2(side, i);
        if (side > 2) close(side);
        close(t->fd);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
}

/* Reads once; false at the end or when nothing came in time. */
static bool read_some(struct pty *t) {
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    if (poll(&p, 1, PATIENCE_MS) <= 0 || t->n_seen + 1 >= sizeof t->seen) return false;
    ssize_t n = read(t->fd, t->seen + t->n_seen, sizeof t->seen - 1 - t->n_seen);
    if (n <= 0) return false;
    t->n_seen += (size_t)n;
    return true;
}

void pty_see(struct pty *t, const char *text) {
    char *found;
    while (!(found = strstr(t->seen + t->n_matched, text)))
        if (!read_some(t)) fail_msg("\"%s\" was not shown; all that was:\n%s", text, t->seen);
    t->n_matched = (size_t)(found - t->seen) + strlen(text);
}

void pty_type(struct pty *t, const char *keys) {
    assert_int_equal(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

bool pty_ended(struct pty *t) {
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    while (poll(&p, 1, 200) == 1 && (p.revents & POLLIN) && read_some(t)) {
    }
    return (p.revents & POLLHUP) != 0;
}

int pty_finish(struct pty *t) {
    int status = 0;
    while (read_some(t)) {
    }
    struct pollfd p = { .fd = t->fd };
    bool ended = poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
    if (!ended) kill(t->child, SIGKILL);
    waitpid(t->child, &status, 0);
    close(t->fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
