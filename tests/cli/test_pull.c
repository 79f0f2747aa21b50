/* reel pull against a server on loopback that cuts, lies, redirects and refuses. */
#include "base/buffer.h"
#include "base/sha256.h"
#include "tests/support/http_stub.h"

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

#include "support/without_curl.h"

#define COMMIT        "0123456789abcdef0123456789abcdef01234567"
#define WEIGHTS_BYTES 300000

enum mischief { HONEST, CUTS, WRONG_BYTES, MORE_BYTES, IGNORES_RANGE, REFUSES, REDIRECTS, ESCAPES };

struct hub {
    struct http_stub *stub, *other; /* other: where REDIRECTS points */
    enum mischief mischief;
    char weights[WEIGHTS_BYTES];
    char listing[2000];
    char location[200];
    bool saw_token, other_saw_token;
    int weight_requests;
    char folder[64]; /* the cache */
};

static const char config[] = "{\"model_type\": \"qwen3\", \"hidden_size\": 8, "
                             "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
                             "\"num_key_value_heads\": 1, \"head_dim\": 4, "
                             "\"intermediate_size\": 12, \"vocab_size\": 10}\n";
/* git's id of the blob above: git hash-object --stdin */
#define CONFIG_GIT_ID "e6facc6fffc1eb672239c1e35482cb4d6d5c9ffa"

static struct http_reply weights_reply(struct hub *hub) {
    struct http_reply reply = { .body = hub->weights, .n_body = WEIGHTS_BYTES };
    static char wrong[WEIGHTS_BYTES];
    hub->weight_requests++;
    if (hub->mischief == CUTS && hub->weight_requests < 4) reply.cut_after = 90000;
    if (hub->mischief == WRONG_BYTES) reply.body = wrong;
    if (hub->mischief == MORE_BYTES) reply.lie = 10;
    if (hub->mischief == IGNORES_RANGE) {
        reply.ignore_range = true;
        if (hub->weight_requests == 1) reply.cut_after = 90000;
    }
    if (hub->mischief == REDIRECTS)
        reply = (struct http_reply){ .code = 302, .body = "", .location = hub->location };
    return reply;
}

static struct http_reply answer(void *user, const char *path, const char *authorization,
                                size_t range_from) {
    struct hub *hub = user;
    (void)range_from;
    if (authorization && strcmp(authorization, "Bearer secret") == 0) hub->saw_token = true;
    if (hub->mischief == REFUSES) return (struct http_reply){ .code = 401, .body = "" };
    if (strncmp(path, "/api/models/some/model/revision/main", 36) == 0)
        return (struct http_reply){ .body = hub->listing, .n_body = strlen(hub->listing) };
    if (strcmp(path, "/some/model/resolve/" COMMIT "/config.json") == 0)
        return (struct http_reply){ .body = config, .n_body = sizeof config - 1 };
    if (strcmp(path, "/some/model/resolve/" COMMIT "/model.safetensors") == 0)
        return weights_reply(hub);
    return (struct http_reply){ .code = 404, .body = "" };
}

static struct http_reply other_answer(void *user, const char *path, const char *authorization,
                                      size_t range_from) {
    struct hub *hub = user;
    (void)path, (void)range_from;
    hub->other_saw_token = authorization != NULL;
    return (struct http_reply){ .body = hub->weights, .n_body = WEIGHTS_BYTES };
}

static int setup(void **state) {
    struct hub *hub = calloc(1, sizeof *hub);
    char hash[SHA256_HEX];
    assert_non_null(hub);
    for (int i = 0; i < WEIGHTS_BYTES; i++)
        hub->weights[i] = (char)(i * 31 + i / 251);
    sha256_hex(hub->weights, WEIGHTS_BYTES, hash);
    snprintf(hub->listing, sizeof hub->listing,
             "{\"sha\": \"" COMMIT "\", \"siblings\": ["
             "{\"rfilename\": \"config.json\", \"size\": %zu, \"blobId\": \"" CONFIG_GIT_ID "\"},"
             "{\"rfilename\": \"evil.py\", \"size\": 5, \"blobId\": \"" COMMIT "\"},"
             "{\"rfilename\": \"pytorch_model.bin\", \"size\": 5, \"blobId\": \"" COMMIT "\"},"
             "{\"rfilename\": \"model.safetensors\", \"size\": %d, \"blobId\": \"" COMMIT "\","
             " \"lfs\": {\"sha256\": \"%s\", \"size\": %d}}]}",
             sizeof config - 1, WEIGHTS_BYTES, hash, WEIGHTS_BYTES);
    strcpy(hub->folder, "/tmp/reel-pull-XXXXXX");
    assert_non_null(mkdtemp(hub->folder));
    hub->stub = http_stub_open(answer, hub);
    hub->other = http_stub_open(other_answer, hub);
    assert_non_null(hub->stub);
    assert_non_null(hub->other);
    /* another name of the same machine: to the client, another host */
    snprintf(hub->location, sizeof hub->location, "http://localhost:%d/elsewhere",
             http_stub_port(hub->other));
    setenv("HF_TOKEN", "secret", 1);
    *state = hub;
    return 0;
}

static int teardown(void **state) {
    struct hub *hub = *state;
    char command[128];
    http_stub_close(hub->stub);
    http_stub_close(hub->other);
    snprintf(command, sizeof command, "rm -rf %s", hub->folder);
    assert_int_equal(system(command), 0);
    free(hub);
    return 0;
}

/* Runs reel pull and returns its exit status; its messages go to `text`. */
static int pull(struct hub *hub, const char *extra, char *text, size_t n) {
    const char *build = getenv("REEL_BUILD");
    char command[600];
    snprintf(command, sizeof command,
             "%s/reel pull some/model --mirror http://127.0.0.1:%d --cache %s %s 2>&1",
             build ? build : "build/release", http_stub_port(hub->stub), hub->folder, extra);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t got = fread(text, 1, n - 1, out);
    text[got] = '\0';
    int code = pclose(out);
    assert_true(WIFEXITED(code));
    return WEXITSTATUS(code);
}

static bool has(struct hub *hub, const char *name) {
    char path[200];
    struct stat st;
    snprintf(path, sizeof path, "%s/models/some/%s", hub->folder, name);
    return stat(path, &st) == 0;
}

static void assert_complete(struct hub *hub) {
    char path[200];
    static char bytes[WEIGHTS_BYTES + 1];
    snprintf(path, sizeof path, "%s/models/some/model/model.safetensors", hub->folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), WEIGHTS_BYTES);
    fclose(file);
    assert_memory_equal(bytes, hub->weights, WEIGHTS_BYTES);
    assert_true(has(hub, "model/config.json"));
    assert_false(has(hub, ".model.partial"));
}

static void a_pull_fetches_what_reel_reads_and_nothing_else(void **state) {
    struct hub *hub = *state;
    char text[1000], folder[200];
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_complete(hub);
    assert_false(has(hub, "model/evil.py"));
    assert_false(has(hub, "model/pytorch_model.bin"));
    snprintf(folder, sizeof folder, "%s/models/some/model\n", hub->folder);
    assert_string_equal(text, folder);
    assert_true(hub->saw_token);
}

static void a_second_pull_fetches_nothing_again(void **state) {
    struct hub *hub = *state;
    char text[1000];
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_int_equal(hub->weight_requests, 1);
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_int_equal(hub->weight_requests, 1);
    assert_complete(hub);
}

static void a_cut_connection_is_resumed_where_it_broke(void **state) {
    struct hub *hub = *state;
    char text[1000];
    hub->mischief = CUTS;
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_int_equal(hub->weight_requests, 4); /* 3 x 90,000 bytes and the rest */
    assert_complete(hub);
}

static void a_server_without_ranges_costs_a_fresh_start_only(void **state) {
    struct hub *hub = *state;
    char text[1000];
    hub->mischief = IGNORES_RANGE;
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_complete(hub);
}

static void wrong_bytes_are_named_and_leave_no_model(void **state) {
    struct hub *hub = *state;
    char text[1000];
    hub->mischief = WRONG_BYTES;
    assert_int_equal(pull(hub, "", text, sizeof text), 1);
    assert_non_null(strstr(text, "model.safetensors"));
    assert_non_null(strstr(text, "SHA-256"));
    assert_false(has(hub, "model"));
    hub->mischief = HONEST;
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_complete(hub);
}

static void more_bytes_than_announced_are_refused(void **state) {
    struct hub *hub = *state;
    char text[1000];
    hub->mischief = MORE_BYTES;
    assert_int_equal(pull(hub, "", text, sizeof text), 12);
    assert_false(has(hub, "model"));
}

static void a_refusal_mentions_the_access_token(void **state) {
    struct hub *hub = *state;
    char text[1000];
    hub->mischief = REFUSES;
    assert_int_equal(pull(hub, "", text, sizeof text), 12);
    assert_non_null(strstr(text, "401"));
    assert_non_null(strstr(text, "token"));
}

static void the_access_token_does_not_follow_a_redirect(void **state) {
    struct hub *hub = *state;
    char text[1000];
    hub->mischief = REDIRECTS;
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    assert_true(hub->saw_token);
    assert_false(hub->other_saw_token);
    assert_complete(hub);
}

static void a_name_that_leaves_the_folder_is_refused(void **state) {
    struct hub *hub = *state;
    char text[1000];
    char *name = strstr(hub->listing, "model.safetensors");
    assert_non_null(name);
    memcpy(name, "../oh.safetensors", 17);
    assert_int_equal(pull(hub, "", text, sizeof text), 5);
    assert_non_null(strstr(text, "../oh.safetensors"));
    assert_false(has(hub, "model"));
}

static void an_unknown_repository_exits_as_not_found(void **state) {
    struct hub *hub = *state;
    char text[1000];
    assert_int_equal(pull(hub, "--revision nowhere", text, sizeof text), 3);
    assert_non_null(strstr(text, "404"));
    int before = http_stub_requests(hub->stub);
    assert_int_equal(pull(hub, "--revision ../../x", text, sizeof text), 2);
    assert_int_equal(pull(hub, "--revision ''", text, sizeof text), 2);
    assert_int_equal(http_stub_requests(hub->stub), before);
}

static void offline_checks_hashes_without_a_request(void **state) {
    struct hub *hub = *state;
    char text[1000], command[200];
    assert_int_equal(pull(hub, "--offline", text, sizeof text), 3);
    assert_int_equal(pull(hub, "", text, sizeof text), 0);
    int before = http_stub_requests(hub->stub);
    assert_int_equal(pull(hub, "--offline", text, sizeof text), 0);
    snprintf(command, sizeof command, "printf x >> %s/models/some/model/model.safetensors",
             hub->folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(pull(hub, "--offline", text, sizeof text), 1);
    assert_int_equal(http_stub_requests(hub->stub), before);
}

static void a_bad_repository_name_is_an_argument_error(void **state) {
    struct hub *hub = *state;
    char command[300];
    const char *build = getenv("REEL_BUILD");
    snprintf(command, sizeof command, "%s/reel pull ../etc/passwd --cache %s 2>/dev/null",
             build ? build : "build/release", hub->folder);
    assert_int_equal(WEXITSTATUS(system(command)), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_pull_fetches_what_reel_reads_and_nothing_else),
        TEST(a_second_pull_fetches_nothing_again),
        TEST(a_cut_connection_is_resumed_where_it_broke),
        TEST(a_server_without_ranges_costs_a_fresh_start_only),
        TEST(wrong_bytes_are_named_and_leave_no_model),
        TEST(more_bytes_than_announced_are_refused),
        TEST(a_refusal_mentions_the_access_token),
        TEST(the_access_token_does_not_follow_a_redirect),
        TEST(a_name_that_leaves_the_folder_is_refused),
        TEST(an_unknown_repository_exits_as_not_found),
        TEST(offline_checks_hashes_without_a_request),
        TEST(a_bad_repository_name_is_an_argument_error),
    };
    unsetenv("http_proxy");
    if (!BUILT_WITH_CURL) return without_curl();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
