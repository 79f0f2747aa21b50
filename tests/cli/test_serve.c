/* reel serve as an operator meets it: starting, signals, files, TLS, logs. */
#include "tests/support/http_client.h"
#include "tests/support/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_WORDS 16

/* ---- the program ---- */

struct program {
    pid_t pid;
    int fd; /* its standard error */
    struct buffer said;
    int port;
};

static char folder[64];

static const char *in_folder(const char *name, char path[200]) {
    snprintf(path, 200, "%s/%s", folder, name);
    return path;
}
static void write_file(const char *name, const char *text) {
    char path[200];
    FILE *f = fopen(in_folder(name, path), "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void wait_ms(int ms) {
    nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL);
}

/* Reads what it says until `text` is there; false: it ended, or 20 seconds passed. */
static bool says(struct program *p, const char *text) {
    char some[1000];
    assert_int_equal(buffer_text(&p->said, "", NULL), REEL_OK);
    while (!strstr(p->said.bytes, text)) {
        struct pollfd ready = { .fd = p->fd, .events = POLLIN };
        if (poll(&ready, 1, 20000) <= 0) return false;
        ssize_t n = read(p->fd, some, sizeof some);
        if (n <= 0) return false;
        assert_int_equal(buffer_append(&p->said, some, (size_t)n, NULL), REEL_OK);
    }
    return true;
}

/* "reel serve" with these words, which spaces separate; FOLDER/ stands for the test's folder. */
static void start(struct program *p, const char *words) {
    char text[1000], reel[300], expanded[MOST_WORDS][300];
    char *argv[MOST_WORDS + 3] = { reel, (char[]){ "serve" } };
    int ends[2], n = 2;
    const char *build = getenv("REEL_BUILD");
    snprintf(reel, sizeof reel, "%s/reel", build ? build : "build/release");
    snprintf(text, sizeof text, "%s", words);
    char *rest = NULL;
    for (char *w = strtok_r(text, " ", &rest); w && n < MOST_WORDS;
         w = strtok_r(NULL, " ", &rest)) {
        const char *at = strstr(w, "FOLDER/");
        snprintf(expanded[n], sizeof expanded[n], "%.*s%s%s", at ? (int)(at - w) : (int)strlen(w),
                 w, at ? folder : "", at ? at + 6 : "");
        argv[n] = expanded[n];
        n++;
    }
    *p = (struct program){ 0 };
    assert_int_equal(pipe(ends), 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server */
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execv(reel, argv);
        _exit(127);
    }
    close(ends[1]);
    p->fd = ends[0];
}

static void start_server(struct program *p, const char *words) {
    start(p, words);
    if (!says(p, " is ready")) fail_msg("reel serve %s: %s", words, p->said.bytes);
    const char *at = strstr(p->said.bytes, "listening at ");
    assert_non_null(at);
    p->port = atoi(strchr(strstr(at, "://") + 3, ':') + 1);
    assert_true(p->port > 0);
}

/* Its status, when it has ended; 1000: it did not in 15 seconds, and is killed. */
static int ended(struct program *p) {
    int status = 0;
    for (int i = 0; i < 1500 && waitpid(p->pid, &status, WNOHANG) == 0; i++) {
        wait_ms(10);
        if (i < 1499) continue;
        kill(p->pid, SIGKILL);
        waitpid(p->pid, &status, 0);
        status = -1;
    }
    (void)says(p, "\x01"); /* all that it said */
    close(p->fd);
    return status == -1 ? 1000 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
static void forget(struct program *p) { buffer_release(&p->said); }

static void stop(struct program *p) {
    kill(p->pid, SIGTERM);
    assert_int_equal(ended(p), 0);
    forget(p);
}

/* It ends with an error that says this. */
static void refuses(const char *words, const char *what) {
    struct program p;
    start(&p, words);
    const int status = ended(&p);
    if (status == 0 || status >= 100 || !strstr(p.said.bytes, what))
        fail_msg("reel serve %s: %d, %s", words, status, p.said.bytes);
    forget(&p);
}

static int ask(int port, const char *path, const char *headers) {
    struct http_answer answer;
    http_ask(&answer, port, &(struct http_request){ .path = path, .headers = headers });
    const int code = answer.code;
    http_answer_release(&answer);
    return code;
}

/* A stream that has begun. */
static int long_stream(const struct program *p, int n, int n_tokens) {
    char body[200], byte;
    int fd = http_connect(p->port);
    snprintf(body, sizeof body,
             "{\"prompt\":\"Once\",\"ignore_eos\":true,\"stream\":true,\"n\":%d,\"max_tokens\":%d}",
             n, n_tokens);
    assert_true(fd >= 0);
    assert_true(
        http_send_request(fd, &(struct http_request){ .path = "/v1/completions", .body = body }));
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    return fd;
}

static bool stream_ends_well(int fd) {
    struct buffer all = { 0 };
    char some[4096];
    ssize_t n = 0;
    assert_int_equal(buffer_text(&all, "", NULL), REEL_OK);
    while (!strstr(all.bytes, "[DONE]") && (n = recv(fd, some, sizeof some, 0)) > 0)
        assert_int_equal(buffer_append(&all, some, (size_t)n, NULL), REEL_OK);
    const bool well = strstr(all.bytes, "[DONE]") != NULL;
    buffer_release(&all);
    close(fd);
    return well;
}

/* ---- signals ---- */

static void a_first_signal_lets_running_requests_end(void **state) {
    (void)state;
    const int signals[] = { SIGTERM, SIGINT };
    for (int i = 0; i < 2; i++) {
        struct program p;
        start_server(&p, "demo --port 0 --log none");
        int fd = long_stream(&p, 1, 300);
        kill(p.pid, signals[i]);
        assert_true(says(&p, "no more requests are taken"));
        assert_true(stream_ends_well(fd));
        assert_int_equal(ended(&p), 0);
        assert_null(strstr(p.said.bytes, "cut off"));
        forget(&p);
    }
}

static void a_second_signal_does_not_wait(void **state) {
    (void)state;
    struct program p;
    start_server(&p, "demo --port 0 --log none");
    int fd = long_stream(&p, 16, 1000);
    kill(p.pid, SIGTERM);
    assert_true(says(&p, "no more requests are taken"));
    kill(p.pid, SIGTERM);
    assert_false(stream_ends_well(fd));
    assert_int_equal(ended(&p), 0);
    assert_non_null(strstr(p.said.bytes, "cut off"));
    forget(&p);
}

static void sighup_reads_the_keys_again(void **state) {
    (void)state;
    struct program p;
    write_file("keys", "# ours\nfirst\n\n");
    start_server(&p, "demo --port 0 --log none --api-key-file FOLDER/keys");
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: first\r\n"), 200);
    write_file("keys", "second\r\nthird\r\n");
    kill(p.pid, SIGHUP);
    assert_true(says(&p, "the keys were read again"));
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: first\r\n"), 401);
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: third\r\n"), 200);
    write_file("keys", "# none\n"); /* a mistake lets nobody in, and nobody out */
    kill(p.pid, SIGHUP);
    assert_true(says(&p, "there is no key in it"));
    assert_int_equal(ask(p.port, "/v1/models", NULL), 401);
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: second\r\n"), 200);
    stop(&p);
}

static void sighup_reads_the_keys_of_a_config_again(void **state) {
    (void)state;
    struct program p;
    write_file("more-keys", "from-a-file\n");
    write_file("serve.conf", "model = demo\nlog = none\napi-key = first\n");
    start_server(&p, "--config FOLDER/serve.conf --port 0");
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: first\r\n"), 200);
    char text[300], path[200];
    snprintf(text, sizeof text,
             "model = demo\nlog = none\napi-key = second\napi-key = third\napi-key-file = %s\n",
             in_folder("more-keys", path));
    write_file("serve.conf", text);
    kill(p.pid, SIGHUP);
    assert_true(says(&p, "the keys were read again"));
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: first\r\n"), 401);
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: second\r\n"), 200);
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: third\r\n"), 200);
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: from-a-file\r\n"), 200);
    static const char *const mistakes[][2] = {
        { "model = demo\nno-such-option = 1\n", "serve.conf, line 2" },
        { "model = demo\nlog = none\n", "there is no key any more; the keys stay as they were" },
    };
    for (int i = 0; i < 2; i++) {
        write_file("serve.conf", mistakes[i][0]);
        kill(p.pid, SIGHUP);
        if (!says(&p, mistakes[i][1])) fail_msg("%s", p.said.bytes);
        assert_int_equal(ask(p.port, "/v1/models", NULL), 401);
        assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: second\r\n"), 200);
    }
    stop(&p);
    write_file("serve.conf", "api-key = in-the-file\n");
    start_server(&p, "demo --config FOLDER/serve.conf --port 0 --log none --api-key typed");
    kill(p.pid, SIGHUP); /* what is typed wins, also then */
    assert_true(says(&p, "the keys were read again"));
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: in-the-file\r\n"), 401);
    assert_int_equal(ask(p.port, "/v1/models", "X-Api-Key: typed\r\n"), 200);
    stop(&p);
}

/* ---- what cannot be ---- */

static void mistakes_are_named(void **state) {
    (void)state;
    struct program p;
    char words[100], what[40];
    start_server(&p, "demo --port 0 --log none");
    snprintf(words, sizeof words, "demo --port %d", p.port);
    snprintf(what, sizeof what, "port %d", p.port);
    refuses(words, what);
    stop(&p);
    write_file("nonsense", "no key\n");
    refuses("demo --port 0 --tls-cert FOLDER/nonsense", "go together");
    refuses("demo --port 0 --tls-cert FOLDER/none --tls-key FOLDER/none", "none");
    refuses("demo --port 0 --tls-cert FOLDER/nonsense --tls-key FOLDER/nonsense", "--tls-cert");
    refuses("demo demo --port 0", "two models are called demo");
    refuses("/nonexistent --port 0", "nonexistent");
    refuses("demo --host 0.0.0.0 --port 0", "--insecure");
    refuses("demo --host nowhere.invalid --port 0", "nowhere.invalid");
    refuses("demo --port 0 --alias a=b", "--alias a=b");
    refuses("--port 0", "something is missing");
}

/* ---- files, TLS, logs, the service manager ---- */

static void a_file_has_the_options(void **state) {
    (void)state;
    struct program p;
    write_file("serve.conf",
               "# a server\n\nport = 1\nmodel = one=demo\r\n  model =two=demo\nalias=gpt=one\n"
               "alias = gpt2=two\nlog = none\ninsecure = false\nkv = int8\napi-key = a = b # c\n");
    start_server(&p, "--config FOLDER/serve.conf --port 0"); /* what is typed wins */
    assert_true(says(&p, "two is ready"));
    assert_int_equal(ask(p.port, "/v1/models/gpt", "X-Api-Key: a = b # c\r\n"), 200);
    assert_int_equal(ask(p.port, "/v1/models/gpt2", "X-Api-Key: a = b # c\r\n"), 200);
    assert_int_equal(ask(p.port, "/v1/models/demo", "X-Api-Key: a = b # c\r\n"), 404);
    stop(&p);
    start_server(&p,
                 "--config FOLDER/serve.conf three=demo --alias gpt=three --port 0 --api-key x");
    assert_int_equal(ask(p.port, "/v1/models/gpt", "X-Api-Key: x\r\n"), 200);
    assert_int_equal(ask(p.port, "/v1/models/one", "X-Api-Key: x\r\n"), 404);
    assert_int_equal(ask(p.port, "/v1/models/one", "X-Api-Key: a = b # c\r\n"), 401);
    stop(&p);
}

static void mistakes_in_a_file_name_its_line(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        { "\n\nprot = 1\n", "line 3: --prot=1 is no option of reel serve; did you mean --port?" },
        { "port = x\n", "line 1: --port: \"x\" is not an integer" },
        { "#\nport\n", "line 2: port needs a value" },
        { "port = 1\nport = 2\n", "line 2: port was given before" },
        { "insecure = maybe\n", "line 1: insecure is true or false" },
        { "= 1\n", "line 1: there is no name" },
        { "config = other\n", "line 1: config names another file" },
        { "model =\n", "line 1: model needs a value" },
        { "help\n", "line 1: help" },
        { "log = loud\n", "line 1: --log: \"loud\" is not one of" },
        { "kv = int4\n", "line 1: --kv: \"int4\" is not one of" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file("wrong.conf", wrong[i][0]);
        refuses("--config FOLDER/wrong.conf demo", wrong[i][1]);
    }
    refuses("--config FOLDER/none.conf demo", "none.conf");
}

static void tls_is_spoken(void **state) {
    (void)state;
    struct program p;
    char line[1000];
    if (system("command -v openssl >/dev/null && command -v curl >/dev/null") != 0) skip();
    snprintf(line, sizeof line,
             "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
             "-keyout key.pem -out cert.pem -subj /CN=localhost -days 2 2>/dev/null",
             folder);
    assert_int_equal(system(line), 0);
    start_server(&p,
                 "demo --port 0 --log none --tls-cert FOLDER/cert.pem --tls-key FOLDER/key.pem");
    assert_non_null(strstr(p.said.bytes, "https://"));
    snprintf(line, sizeof line,
             "curl -sS --cacert %s/cert.pem -o %s/out --noproxy '*' "
             "https://localhost:%d/v1/completions -d "
             "'{\"prompt\":\"Once\",\"max_tokens\":50,\"stream\":true}' && grep -q DONE %s/out",
             folder, folder, p.port, folder);
    assert_int_equal(system(line), 0);
    assert_int_equal(ask(p.port, "/health", NULL), 0); /* not without TLS */
    stop(&p);
}

static void logs_are_as_asked(void **state) {
    (void)state;
    static const char *const formats[][2] = { { "none", NULL },
                                              { "text", " GET /health 200 " },
                                              { "json", "\"path\":\"/health\",\"code\":200," } };
    for (int i = 0; i < 3; i++) {
        struct program p;
        char words[100];
        snprintf(words, sizeof words, "demo --port 0 --log %s", formats[i][0]);
        start_server(&p, words);
        assert_int_equal(ask(p.port, "/health?a=secret", NULL), 200);
        kill(p.pid, SIGTERM);
        assert_int_equal(ended(&p), 0);
        if (formats[i][1]) assert_non_null(strstr(p.said.bytes, formats[i][1]));
        if (!formats[i][1]) assert_null(strstr(p.said.bytes, "/health"));
        assert_null(strstr(p.said.bytes, "secret"));
        forget(&p);
    }
}

static void a_service_manager_hears_when_it_is_ready(void **state) {
    (void)state;
    struct program p;
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char path[200], heard[40] = "";
    in_folder("notify", path);
    assert_true(strlen(path) < sizeof at.sun_path);
    memcpy(at.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    start_server(&p, "demo --port 0 --log none");
    unsetenv("NOTIFY_SOCKET");
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    assert_int_equal(poll(&ready, 1, 10000), 1);
    assert_true(recv(fd, heard, sizeof heard - 1, 0) > 0);
    assert_string_equal(heard, "READY=1");
    kill(p.pid, SIGTERM);
    memset(heard, 0, sizeof heard);
    assert_int_equal(poll(&ready, 1, 10000), 1);
    assert_true(recv(fd, heard, sizeof heard - 1, 0) > 0);
    assert_string_equal(heard, "STOPPING=1");
    assert_int_equal(ended(&p), 0);
    forget(&p);
    close(fd);
}

/* glibc's heaps beside the first begin at multiples of 64 MiB. Without a limit there are eight for
 * each core. Now and then other memory, of which there are a hundred pieces, begins at one by
 * chance. */
static int count_heaps(pid_t pid) {
    char path[100], line[400];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const unsigned long long begin = strtoull(line, NULL, 16);
        n += begin % (64ull << 20) == 0 && strstr(line, " rw-p ") && !strchr(line, '/') &&
             !strchr(line, '[');
    }
    fclose(f);
    return n;
}

static void threads_share_heaps(void **state) {
    enum { STREAMS = 24 };
    struct program p;
    int fds[STREAMS];
    (void)state;
    if (SANITIZED) skip(); /* another malloc */
    start_server(&p, "demo --port 0 --log none --sessions 24 --ctx 256");
    for (int i = 0; i < STREAMS; i++)
        fds[i] = long_stream(&p, 1, 100);
    const int n = count_heaps(p.pid);
    if (n > 3) fail_msg("%d heaps beside the first; one is allowed, and two by chance", n);
    for (int i = 0; i < STREAMS; i++)
        assert_true(stream_ends_well(fds[i]));
    stop(&p);
}

static void no_core_is_written(void **state) {
    (void)state;
    struct program p;
    char path[64], line[200];
    bool none = false;
    start_server(&p, "demo --port 0 --log none");
    snprintf(path, sizeof path, "/proc/%d/limits", (int)p.pid);
    FILE *f = fopen(path, "r");
    if (!f) {
        stop(&p);
        skip();
    }
    while (fgets(line, sizeof line, f)) {
        long soft = -1, hard = -1;
        if (sscanf(line, "Max core file size %ld %ld", &soft, &hard) == 2)
            none = soft == 0 && hard == 0;
    }
    fclose(f);
    assert_true(none);
    stop(&p);
}

static int enter(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/reel-serve-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int leave(void **state) {
    char line[100];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_signal_lets_running_requests_end),
        cmocka_unit_test(a_second_signal_does_not_wait),
        cmocka_unit_test(sighup_reads_the_keys_again),
        cmocka_unit_test(sighup_reads_the_keys_of_a_config_again),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_file_has_the_options),
        cmocka_unit_test(mistakes_in_a_file_name_its_line),
        cmocka_unit_test(tls_is_spoken),
        cmocka_unit_test(logs_are_as_asked),
        cmocka_unit_test(a_service_manager_hears_when_it_is_ready),
        cmocka_unit_test(threads_share_heaps),
        cmocka_unit_test(no_core_is_written),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
