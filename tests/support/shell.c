#define _XOPEN_SOURCE 700 /* realpath, mkdtemp */

#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[300]; /* where the lines run; holds home/, out and err */

static char *read_file(const char *name) {
    char path[400];
    size_t n, size = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    while ((n = fread(text + size, 1, ((size_t)1 << 20) - 1 - size, f)) > 0)
        size += n;
    fclose(f);
    return text;
}

struct result shell(const char *line) {
    char command[3000];
    int n = snprintf(command, sizeof command, "cd '%s' && { %s ; } >out 2>err", folder, line);
    assert_true(n > 0 && (size_t)n < sizeof command);
    int status = system(command);
    return (struct result){ .status = WIFEXITED(status) ? WEXITSTATUS(status) : 255,
                            .out = read_file("out"),
                            .err = read_file("err") };
}

void done(struct result r) {
    free(r.out);
    free(r.err);
}

void expect(const char *line, int status, const char *says) {
    struct result r = shell(line);
    if (r.status != status || !strstr(r.err, says))
        fail_msg("%s\nstatus %d (expected %d)\n--- stdout\n%s--- stderr (expected \"%s\")\n%s",
                 line, r.status, status, r.out, says, r.err);
    done(r);
}

void shell_file(const char *name, const void *data, size_t size) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

int shell_enter(void **state) {
    (void)state;
    const char *name = getenv("REEL_BUILD");
    char *build = realpath(name ? name : "build/release", NULL);
    char *demo = realpath("models/demo", NULL);
    if (!build || !demo) return -1;
    snprintf(folder, sizeof folder, "%.200s/tests/cli/work-XXXXXX", build);
    if (!mkdtemp(folder)) return -1;
    char text[3000];
    snprintf(text, sizeof text, "%s:%s", build, getenv("PATH"));
    setenv("PATH", text, 1);
    setenv("DEMO", demo, 1); /* the demo model as a folder */
    snprintf(text, sizeof text, "%s/home", folder);
    mkdir(text, 0700);
    setenv("HOME", text, 1);
    setenv("LC_ALL", "C.UTF-8", 1); /* how ls sorts */
    static const char *const others[] = { "XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME",
                                          "HF_HUB_CACHE" };
    for (int i = 0; i < 4; i++)
        unsetenv(others[i]);
    free(build);
    free(demo);
    return 0;
}

int shell_leave(void **state) {
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}
