/* reel pull when memory or disks fail at every point: a message, nothing leaked, and never a model
 * folder that is not complete. */
#include "base/sha256.h"
#include "cli/hub.h"
#include "support/faults.h"
#include "support/http_stub.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/without_curl.h"

#define COMMIT  "0123456789abcdef0123456789abcdef01234567"
#define N_BYTES 3000

struct hub {
    pid_t server; /* a process of its own: its descriptors are not ours to count */
    char mirror[64], cache[64], folder[128];
    char listing[1000], weights[N_BYTES];
};

static const char config[] = "{\"model_type\": \"qwen3\", \"hidden_size\": 8, "
                             "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
                             "\"num_key_value_heads\": 1, \"head_dim\": 4, "
                             "\"intermediate_size\": 12, \"vocab_size\": 10}\n";

static struct http_reply answer(void *user, const char *path, const char *authorization,
                                size_t range_from) {
    struct hub *hub = user;
    (void)authorization, (void)range_from;
    if (strncmp(path, "/api/", 5) == 0)
        return (struct http_reply){ .body = hub->listing, .n_body = strlen(hub->listing) };
    if (strstr(path, "/config.json"))
        return (struct http_reply){ .body = config, .n_body = sizeof config - 1 };
    return (struct http_reply){ .body = hub->weights, .n_body = N_BYTES };
}

/* Serves until killed; tells its port through fd. */
static void serve(struct hub *hub, int fd) {
    struct http_stub *stub = http_stub_open(answer, hub);
    int port = stub ? http_stub_port(stub) : 0;
    if (write(fd, &port, sizeof port) != sizeof port) _exit(1);
    for (;;)
        pause();
}

static int start(void **state) {
    struct hub *hub = calloc(1, sizeof *hub);
    char hash[SHA256_HEX], config_hash[SHA256_HEX];
    int ends[2], port = 0;
    if (!hub || pipe(ends) != 0) return -1;
    faults_install();
    for (int i = 0; i < N_BYTES; i++)
        hub->weights[i] = (char)(i * 7);
    sha256_hex(hub->weights, N_BYTES, hash);
    sha256_hex(config, sizeof config - 1, config_hash);
    snprintf(hub->listing, sizeof hub->listing,
             "{\"sha\": \"" COMMIT "\", \"siblings\": [{\"rfilename\": \"model.safetensors\","
             " \"size\": %d, \"lfs\": {\"sha256\": \"%s\"}}, {\"rfilename\": \"config.json\","
             " \"size\": %zu, \"lfs\": {\"sha256\": \"%s\"}}]}",
             N_BYTES, hash, sizeof config - 1, config_hash);
    hub->server = fork();
    if (hub->server == 0) serve(hub, ends[1]);
    if (hub->server < 0 || read(ends[0], &port, sizeof port) != sizeof port || port == 0) return -1;
    close(ends[0]);
    close(ends[1]);
    snprintf(hub->mirror, sizeof hub->mirror, "http://127.0.0.1:%d", port);
    strcpy(hub->cache, "/tmp/reel-pull-XXXXXX");
    if (!mkdtemp(hub->cache)) return -1;
    snprintf(hub->folder, sizeof hub->folder, "%s/models/some/model", hub->cache);
    *state = hub;
    return 0;
}

static void empty_cache(const struct hub *hub) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/models", hub->cache);
    assert_int_equal(system(command), 0);
}

static int stop(void **state) {
    struct hub *hub = *state;
    kill(hub->server, SIGKILL);
    waitpid(hub->server, NULL, 0);
    empty_cache(hub);
    rmdir(hub->cache);
    free(hub);
    return 0;
}

static enum reel_status pull(const struct hub *hub, struct reel_error *err) {
    struct hub_pulled out = { 0 };
    struct hub_pull request = {
        .repo = "some/model", .mirror = hub->mirror, .cache_dir = hub->cache, .retry_ms = 1
    };
    enum reel_status status = hub_pull(&request, &out, err);
    if (status == REEL_OK) {
        assert_string_equal(out.folder, hub->folder);
        assert_string_equal(out.name, "some/model");
    } else {
        assert_null(out.folder);
        assert_null(out.name);
    }
    hub_pulled_release(&out);
    return status;
}

/* Bytes of the weights in the model's folder; -1 without one. */
static long weights_held(const struct hub *hub) {
    char path[160];
    struct stat st;
    if (stat(hub->folder, &st) != 0) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", hub->folder);
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

static enum reel_status pull_afresh(void *context, struct reel_error *err) {
    empty_cache(context);
    return pull(context, err);
}

static enum reel_status pull_again(void *context, struct reel_error *err) {
    return pull(context, err);
}

static void check_folder(void *context, enum reel_status status) {
    long held = weights_held(context);
    assert_true(held == N_BYTES || (status != REEL_OK && held == -1));
}

static void check_kept(void *context, enum reel_status status) {
    (void)status;
    assert_int_equal(weights_held(context), N_BYTES);
}

static void sweep(struct hub *hub, enum reel_status (*run)(void *, struct reel_error *),
                  void (*check)(void *, enum reel_status)) {
    struct faults_sweep all = { .name = "hub_pull",
                                .run = run,
                                .context = hub,
                                .check = check,
                                .may_succeed = true,
                                .most = 80 };
    faults_sweep(&all, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&all, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&all, FAULT_IO, FAULT_ONCE);
}

static void a_model_appears_whole_or_not_at_all(void **state) {
    sweep(*state, pull_afresh, check_folder);
}

static void a_model_that_is_there_outlives_a_failing_pull(void **state) {
    empty_cache(*state);
    assert_int_equal(pull(*state, NULL), REEL_OK);
    sweep(*state, pull_again, check_kept);
}

static void short_writes_and_interrupts_change_nothing(void **state) {
    struct faults_sweep all = { .name = "hub_pull",
                                .run = pull_afresh,
                                .context = *state,
                                .check = check_folder,
                                .may_succeed = true,
                                .most = 40 };
    faults_sweep(&all, FAULT_IO, FAULT_SHORT);
    faults_sweep(&all, FAULT_IO, FAULT_INTERRUPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_appears_whole_or_not_at_all),
        cmocka_unit_test(a_model_that_is_there_outlives_a_failing_pull),
        cmocka_unit_test(short_writes_and_interrupts_change_nothing),
    };
    if (!BUILT_WITH_CURL) return without_curl();
    return cmocka_run_group_tests(tests, start, stop);
}
