/* Repositories of a hub as a person meets them: several models in one, models that reel cannot run,
 * hubs that are busy, gated or far away, and what is done with models that are here. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "base/clock.h"
#include "cli/hub.h"
#include "support/fake_hub.h"
#include "support/fixtures.h"
#include "support/pty.h"
#include "support/quantised_model.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/without_curl.h"

static struct fake_hub *hub;

static const char *const demo_files[] = { "config.json",           "generation_config.json",
                                          "model.safetensors",     "tokenizer.json",
                                          "tokenizer_config.json", NULL };

static int open_hub(void **state) {
    (void)state;
    hub = fake_hub_open();
    setenv("HF_ENDPOINT", fake_hub_url(hub), 1);
    unsetenv("HF_TOKEN");
    unsetenv("HF_TOKEN_PATH");
    return 0;
}

static int close_hub(void **state) {
    (void)state;
    fake_hub_close(hub);
    done(shell("rm -rf \"$HOME/.cache\""));
    return 0;
}

/* The line ends with this status, and its stdout holds this text. */
static void shows(const char *line, int status, const char *text) {
    struct result r = shell(line);
    if (r.status != status || !strstr(r.out, text))
        fail_msg("%s\nstatus %d (expected %d)\n--- stdout (expected \"%s\")\n%s--- stderr\n%s",
                 line, r.status, status, text, r.out, r.err);
    done(r);
}

static void hides(const char *line, const char *text) {
    struct result r = shell(line);
    if (strstr(r.out, text) || strstr(r.err, text))
        fail_msg("%s shows \"%s\":\n%s%s", line, text, r.out, r.err);
    done(r);
}

/* The quantised miniature, and the same with its embedding in a type that reel does not read. */
static void add_gguf(const char *repo, const char *path, bool readable) {
    static const char name[] = "token_embd.weight";
    struct bytes b = { 0 };
    quantised_gguf(&b);
    for (size_t i = 0; !readable && i + sizeof name < b.n; i++)
        if (memcmp(b.data + i, name, sizeof name - 1) == 0) {
            b.data[i + sizeof name - 1 + 4 + 16] = 16; /* after rank and extents: IQ2_XXS */
            break;
        }
    fake_hub_add(hub, repo, path, b.data, b.n);
    bytes_release(&b);
}

/* A header of another architecture, and a megabyte and a half behind it. */
static void add_foreign_gguf(const char *repo, const char *path) {
    struct bytes b = { 0 };
    bytes_gguf_header(&b, 3, 0, 1);
    bytes_gguf_text(&b, "general.architecture", "gemma3");
    bytes_zeros(&b, 3000000);
    fake_hub_add(hub, repo, path, b.data, b.n);
    bytes_release(&b);
}

static void add_zeros(const char *repo, const char *path, size_t n) {
    struct bytes b = { 0 };
    bytes_zeros(&b, n);
    fake_hub_add(hub, repo, path, b.data, b.n);
    bytes_release(&b);
}

/* ---- several models in one repository -------------------------------------------------------- */

static void a_second_file_keeps_the_first(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    shows("reel pull some/gguf --file tiny-Q4_K_M.gguf", 0, "models/some/gguf");
    shows("reel pull some/gguf --file tiny-Q8_0.gguf", 0, "models/some/gguf");
    shows("reel run some/gguf:Q4_K_M -p hi -n 3 --temp 0", 0, "");
    shows("reel run some/gguf:q8_0 -p hi -n 3 --temp 0", 0, "");
    shows("reel pull some/gguf --offline", 0, "models/some/gguf");
    expect("reel run some/gguf -p hi", 2, "Q4_K_M");
}

static void a_repository_of_gguf_files_lists_them(void **state) {
    (void)state;
    fake_hub_add_text(hub, "some/gguf", "README.md", "# hello\n");
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    fake_hub_add_text(hub, "some/gguf", "mmproj-tiny-f16.gguf", "GGUF");
    struct result r = shell("reel pull some/gguf");
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err, "Q8_0"));
    assert_non_null(strstr(r.err, "MB"));
    assert_non_null(strstr(r.err, "reel pull some/gguf:Q4_K_M"));
    assert_null(strstr(r.err, "mmproj"));
    done(r);
    assert_int_equal(fake_hub_asked(hub, "/resolve/"), 0);
    expect("reel run some/gguf --pull -p hi", 2, "reel pull some/gguf:Q4_K_M");
}

static void a_quantisation_names_a_file(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny.Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny.Q8_0.gguf", true);
    shows("reel pull https://a.hub/some/gguf:q4_k_m", 0, "models/some/gguf");
    shows("ls \"$HOME/.cache/reel/models/some/gguf\"", 0, "tiny.Q4_K_M.gguf");
    hides("ls \"$HOME/.cache/reel/models/some/gguf\"", "Q8_0");
    shows("reel run some/gguf -p hi -n 3 --temp 0", 0, "");
    expect("reel pull some/gguf:Q4_K_S", 3, "did you mean some/gguf:Q4_K_M?");
    expect("reel run some/gguf:Q8_0 -p hi", 3, "reel pull some/gguf:Q8_0");
}

static void the_only_file_needs_no_name(void **state) {
    (void)state;
    add_gguf("some/one", "tiny-Q4_K_M.gguf", true);
    shows("reel run some/one --pull -p hi -n 3 --temp 0", 0, "");
}

static void files_lie_in_sub_folders(void **state) {
    (void)state;
    add_gguf("some/deep", "Q4_K_M/tiny-Q4_K_M.gguf", true);
    add_gguf("some/deep", "more/sub folder/tiny-Q8_0.gguf", true);
    add_gguf("some/deep", "BF16/tiny-BF16-00001-of-00002.gguf", true);
    add_gguf("some/deep", "BF16/tiny-BF16-00002-of-00002.gguf", true);
    shows("reel pull some/deep --file Q4_K_M/tiny-Q4_K_M.gguf --file "
          "'more/sub folder/tiny-Q8_0.gguf'",
          0, "models/some/deep");
    shows("reel run some/deep:Q8_0 -p hi -n 3 --temp 0", 0, "");
    shows("reel run some/deep:Q4_K_M/tiny-Q4_K_M.gguf -p hi -n 3 --temp 0", 0, "");
    expect("reel pull some/deep:BF16", 6, "2 parts");
}

static void safetensors_lie_in_sub_folders_too(void **state) {
    (void)state;
    const char *demo = getenv("DEMO");
    fake_hub_add_folder(hub, "some/two", demo, demo_files);
    for (int i = 0; demo_files[i]; i++) {
        char line[600];
        snprintf(line, sizeof line, "mkdir -p two/small && cp '%s/%s' two/small/", demo,
                 demo_files[i]);
        done(shell(line));
    }
    struct result r = shell("pwd");
    char folder[500];
    snprintf(folder, sizeof folder, "%.*s/two", (int)strcspn(r.out, "\n"), r.out);
    done(r);
    static const char *const small[] = {
        "small/config.json",    "small/generation_config.json", "small/model.safetensors",
        "small/tokenizer.json", "small/tokenizer_config.json",  NULL
    };
    fake_hub_add_folder(hub, "some/two", folder, small);
    shows("reel pull some/two", 0, "models/some/two");
    hides("ls \"$HOME/.cache/reel/models/some/two\"", "small");
    shows("reel pull some/two:small", 0, "models/some/two");
    shows("reel run some/two:small -p hi -n 3 --temp 0", 0, "");
    shows("reel run some/two -p hi -n 3 --temp 0", 0, "");
}

static void paths_stay_inside(void **state) {
    (void)state;
    add_gguf("some/bad", "../evil.gguf", true);
    static const char *const bad[] = { "../x.gguf",   "/etc/x.gguf",    "a//x.gguf",
                                       "a/../x.gguf", "a/.hidden.gguf", "" };
    for (int i = 0; i < 6; i++) {
        char line[200];
        snprintf(line, sizeof line, "reel pull some/bad --file '%s'", bad[i]);
        expect(line, 2, "no path inside a repository");
    }
    expect("reel pull some/bad:../x.gguf", 2, "is not a repository name");
    expect("reel pull some/bad", 5, "../evil.gguf");
    hides("find \"$HOME/.cache\" -name '*.gguf' || true", "evil");
}

/* ---- what reel cannot run -------------------------------------------------------------------- */

static void the_config_refuses_before_the_weights_travel(void **state) {
    (void)state;
    fake_hub_add_text(hub, "some/gemma", "config.json",
                      "{\"model_type\": \"gemma3_text\", \"hidden_size\": 640}");
    add_zeros("some/gemma", "tokenizer.json", 500000);
    add_zeros("some/gemma", "model.safetensors", 2000000);
    expect("reel pull some/gemma", 6, "gemma3_text");
    assert_true(fake_hub_sent(hub) < 20000);
    assert_int_equal(fake_hub_asked(hub, "tokenizer.json"), 0);
    hides("find \"$HOME/.cache\" -name model.safetensors", "model");
}

static void the_tokenizer_refuses_before_the_weights_travel(void **state) {
    (void)state;
    const char *demo = getenv("DEMO");
    static const char *const names[] = { "config.json", "tokenizer_config.json", NULL };
    fake_hub_add_folder(hub, "some/words", demo, names);
    fake_hub_add_text(hub, "some/words", "tokenizer.json",
                      "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}");
    add_zeros("some/words", "model.safetensors", 2000000);
    struct result r = shell("reel pull some/words");
    assert_int_not_equal(r.status, 0);
    assert_non_null(strstr(r.err, "some/words/tokenizer.json"));
    done(r);
    assert_int_equal(fake_hub_asked(hub, "model.safetensors"), 0);
}

/* Of the two forms of one tokenizer the first that reel looks for is fetched. */
static void a_sentencepiece_model_is_fetched_where_no_json_is(void **state) {
    (void)state;
    static const char *const names[] = { "config.json", "model.safetensors", NULL };
    static const char *const both[] = { "config.json", "model.safetensors", "tokenizer.json",
                                        NULL };
    struct file_map model;
    assert_true(fixture_map(&model, "tokenizers/spm-small/tokenizer.model"));
    fake_hub_add_folder(hub, "some/spm", getenv("DEMO"), names);
    fake_hub_add(hub, "some/spm", "tokenizer.model", model.bytes, model.size);
    fake_hub_add_text(hub, "some/spm", "added_tokens.json", "{\"<pad>\": 1500}");
    shows("reel pull some/spm", 0, "models/some/spm");
    shows("reel inspect some/spm", 0,
          "SentencePiece BPE, 1501 tokens; tokenizer.model, added_tokens.json\n");
    shows("reel run some/spm --raw -p hi -n 2 --temp 0", 0, "");
    fake_hub_add_folder(hub, "some/both", getenv("DEMO"), both);
    fake_hub_add(hub, "some/both", "tokenizer.model", model.bytes, model.size);
    fake_hub_add_text(hub, "some/both", "added_tokens.json", "{\"<pad>\": 1500}");
    shows("reel pull some/both", 0, "models/some/both");
    shows("reel inspect some/both", 0, "byte-level BPE, 4096 tokens; tokenizer.json\n");
    file_map_close(&model);
}

static void a_gguf_header_refuses_before_the_weights_travel(void **state) {
    (void)state;
    add_foreign_gguf("some/gguf", "gemma-Q4_K_M.gguf");
    expect("reel pull some/gguf", 6, "gemma3");
    assert_true(fake_hub_sent(hub) < 1100000);
    add_gguf("some/q2", "tiny-Q2_K.gguf", false);
    expect("reel pull some/q2", 6, "IQ2_XXS");
}

static void a_repository_without_a_model_says_what_it_has(void **state) {
    (void)state;
    fake_hub_add_text(hub, "some/torch", "README.md", "# hello\n");
    fake_hub_add_text(hub, "some/torch", "config.json", "{\"model_type\": \"qwen3\"}");
    add_zeros("some/torch", "pytorch_model.bin", 1000);
    add_zeros("some/torch", "onnx/model.onnx", 1000);
    fake_hub_add_text(hub, "some/data", "README.md", "# hello\n");
    expect("reel pull some/torch", 6, "PyTorch (pytorch_model.bin), ONNX (onnx/model.onnx)");
    expect("reel pull some/data", 6, "neither safetensors nor GGUF");
    assert_int_equal(fake_hub_asked(hub, "/resolve/"), 0);
}

/* ---- hubs ------------------------------------------------------------------------------------ */

static void a_token_is_found_where_other_programs_keep_it(void **state) {
    (void)state;
    add_gguf("gated/one", "tiny-Q4_K_M.gguf", true);
    fake_hub_gate(hub, "gated/one", "right");
    expect("reel pull gated/one", 12, "no access token was sent");
    expect("reel pull gated/one", 12, "/gated/one;");
    expect("HF_TOKEN=wrong reel pull gated/one", 12, "the access token of $HF_TOKEN was sent");
    expect("mkdir -p hf && echo wrong >hf/token && HF_HOME=$PWD/hf reel pull gated/one", 12,
           "hf/token was sent");
    expect("printf 'a\\tb' >odd && HF_TOKEN_PATH=$PWD/odd reel pull gated/one", 5,
           "this is no access token");
    hides("HF_TOKEN=wrong reel pull gated/one", "wrong");
    done(shell("mkdir -p \"$HOME/.cache/huggingface\" && echo right "
               ">\"$HOME/.cache/huggingface/token\""));
    shows("reel run gated/one --pull -p hi -n 3 --temp 0", 0, "");
}

static void an_unknown_repository_is_told_from_a_private_one(void **state) {
    (void)state;
    expect("reel pull no/where", 12, "does not exist, or an access token is needed");
    expect("HF_TOKEN=secret reel pull no/where", 12, "let this token read it");
}

static void a_busy_hub_is_asked_again(void **state) {
    (void)state;
    add_gguf("some/busy", "tiny-Q4_K_M.gguf", true);
    fake_hub_trouble(hub, "/api/", 1,
                     (struct http_reply){ .code = 429, .headers = "Retry-After: 1\r\n" });
    fake_hub_trouble(hub, "/resolve/", 1, (struct http_reply){ .code = 503 });
    fake_hub_trouble(hub, "/resolve/", 1, (struct http_reply){ .hang_up = true });
    shows("reel pull some/busy", 0, "models/some/busy");
    assert_int_equal(fake_hub_asked(hub, "/api/"), 2);
    assert_true(fake_hub_asked(hub, "/resolve/") >= 3);
    fake_hub_trouble(hub, "/api/", 1,
                     (struct http_reply){ .code = 429, .headers = "Retry-After: 4000\r\n" });
    expect("reel pull some/busy", 12, "4000 s");
}

/* A pull without the program around it, so that waits can be short. */
static enum reel_status pull(const char *repo, int at_once, struct reel_error *err) {
    char cache[400];
    struct hub_pulled out = { 0 };
    snprintf(cache, sizeof cache, "%s/.cache/reel", getenv("HOME"));
    struct hub_pull request = { .repo = repo,
                                .mirror = fake_hub_url(hub),
                                .cache_dir = cache,
                                .retry_ms = 1,
                                .stall_s = 1,
                                .at_once = at_once };
    enum reel_status status = hub_pull(&request, &out, err);
    hub_pulled_release(&out);
    return status;
}

static void a_hub_that_stays_busy_is_given_up(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    add_gguf("some/busy", "tiny-Q4_K_M.gguf", true);
    fake_hub_trouble(hub, "/api/", 100, (struct http_reply){ .code = 503 });
    assert_int_equal(pull("some/busy", 0, &err), REEL_E_NETWORK);
    assert_non_null(strstr(err.text, "503"));
    assert_int_equal(fake_hub_asked(hub, "/api/"), 6);
}

static void a_stalled_transfer_is_noticed(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    add_gguf("some/slow", "tiny-Q4_K_M.gguf", true);
    fake_hub_trouble(hub, "/resolve/", 1, (struct http_reply){ .pause_ms = 60000 });
    double before = clock_s();
    assert_int_equal(pull("some/slow", 0, &err), REEL_OK);
    assert_true(clock_s() - before < 20);
    assert_int_equal(fake_hub_asked(hub, "/resolve/"), 2);
}

static void several_files_travel_at_once(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    fake_hub_trouble(hub, "/resolve/", 20, (struct http_reply){ .pause_ms = 100 });
    assert_int_equal(pull("some/model", 0, &err), REEL_OK);
    assert_true(fake_hub_most_at_once(hub) > 1);
    assert_true(fake_hub_most_at_once(hub) <= 4);
}

static void ctrl_c_leaves_what_has_arrived(void **state) {
    (void)state;
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    fake_hub_trouble(hub, "model.safetensors", 1, (struct http_reply){ .cut_after = 100000 });
    fake_hub_trouble(hub, "model.safetensors", 1, (struct http_reply){ .pause_ms = 60000 });
    expect("reel pull some/model & pid=$!; "
           "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do "
           "[ -s \"$HOME/.cache/reel/models/some/.model.partial/model.safetensors.part\" ] && "
           "break; sleep 0.1; done; sleep 0.5; kill -INT $pid; wait $pid",
           13, "what has arrived is kept");
    shows("reel run some/model --pull -p hi -n 3 --temp 0", 0, "");
}

/* ---- pulls over pulls ------------------------------------------------------------------------ */

static void an_update_replaces_what_belongs_together(void **state) {
    (void)state;
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    fake_hub_add_text(hub, "some/model", "LICENSE", "none");
    add_gguf("some/model", "tiny-Q4_K_M.gguf", true);
    shows("reel pull some/model", 0, "models/some/model");
    shows("reel pull some/model:Q4_K_M", 0, "models/some/model");
    fake_hub_add_text(hub, "some/model", "generation_config.json", "{}");
    int before = fake_hub_asked(hub, "model.safetensors");
    shows("reel pull some/model", 0, "models/some/model");
    shows("cat \"$HOME/.cache/reel/models/some/model/generation_config.json\"", 0, "{}");
    assert_int_equal(fake_hub_asked(hub, "model.safetensors"), before);
    shows("reel run some/model:Q4_K_M -p hi -n 3 --temp 0", 0, "");
    shows("reel run some/model -p hi -n 3 --temp 0", 0, "");
    hides("ls -a \"$HOME/.cache/reel/models/some\"", ".model");
}

static void the_old_folder_serves_until_the_new_is_whole(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    shows("reel pull some/model", 0, "models/some/model");
    fake_hub_add_text(hub, "some/model", "generation_config.json", "{}");
    fake_hub_trouble(hub, "generation_config.json", 100, (struct http_reply){ .code = 500 });
    assert_int_equal(pull("some/model", 0, &err), REEL_E_NETWORK);
    shows("reel run some/model -p hi -n 3 --temp 0", 0, "");
    shows("reel pull some/model --offline", 0, "models/some/model");
}

static void what_has_arrived_of_one_file_waits_while_another_is_pulled(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    add_gguf("some/model", "tiny-Q4_K_M.gguf", true);
    fake_hub_trouble(hub, "model.safetensors", 1, (struct http_reply){ .cut_after = 3000000 });
    fake_hub_trouble(hub, "model.safetensors", 100, (struct http_reply){ .code = 500 });
    assert_int_equal(pull("some/model", 0, &err), REEL_E_NETWORK);
    shows("reel pull some/model:Q4_K_M", 0, "models/some/model");
    hides("ls -R \"$HOME/.cache/reel/models/some/model\"", "model.safetensors");
    shows("ls -l \"$HOME/.cache/reel/models/some/.model.partial\"", 0, "model.safetensors.part");
    shows("reel du", 0, "unfinished downloads");
    size_t before = fake_hub_sent(hub);
    fake_hub_trouble_ends(hub);
    shows("reel pull some/model", 0, "models/some/model");
    assert_true(fake_hub_sent(hub) - before < 10000000); /* of 11.4 MB 3 were here */
    shows("reel run some/model -p hi -n 3 --temp 0", 0, "");
    shows("reel run some/model:Q4_K_M -p hi -n 3 --temp 0", 0, "");
}

static void two_programs_pull_in_turn(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    fake_hub_trouble(hub, "Q4_K_M", 1, (struct http_reply){ .pause_ms = 800 });
    shows("reel pull some/gguf:Q4_K_M & sleep 0.3; reel pull some/gguf:Q8_0; wait", 0, "models/");
    shows("reel pull some/gguf:Q4_K_M --offline", 0, "models/some/gguf");
    shows("reel pull some/gguf:Q8_0 --offline", 0, "models/some/gguf");
}

static void a_crash_between_two_renames_loses_nothing(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    shows("reel pull some/gguf:Q4_K_M", 0, "models/some/gguf");
    shows("cd \"$HOME/.cache/reel/models/some\" && mv gguf .gguf.old && mkdir .gguf.new && touch "
          ".gguf.new/half; echo ok",
          0, "ok");
    shows("reel pull some/gguf:Q8_0", 0, "models/some/gguf");
    shows("reel run some/gguf:Q4_K_M -p hi -n 3 --temp 0", 0, "");
    hides("ls -A \"$HOME/.cache/reel/models/some\"", ".gguf.");
}

static void what_somebody_put_there_stays(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    shows("reel pull some/gguf:Q4_K_M", 0, "models/some/gguf");
    shows("cd \"$HOME/.cache/reel/models/some/gguf\" && echo mine >notes.txt && mv "
          "tiny-Q4_K_M.gguf my-Q5_K_M.gguf && rm reel-manifest.json; echo ok",
          0, "ok");
    shows("reel pull some/gguf:Q8_0", 0, "models/some/gguf");
    shows("cat \"$HOME/.cache/reel/models/some/gguf/notes.txt\"", 0, "mine");
    shows("reel run some/gguf:Q5_K_M -p hi -n 3 --temp 0", 0, "");
    shows("reel rm some/gguf:Q8_0 -y", 0, "deleted");
    shows("reel run some/gguf:Q5_K_M -p hi -n 3 --temp 0", 0, "");
}

static void a_manifest_of_an_earlier_reel_is_understood(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    shows("reel pull some/gguf:Q4_K_M", 0, "models/some/gguf");
    /* it kept the hub's answer, which lists what was never fetched */
    const char *listing = fake_hub_listing(hub, "some/gguf");
    shell_file("listing", listing, strlen(listing));
    shows("cp listing \"$HOME/.cache/reel/models/some/gguf/reel-manifest.json\"; echo ok", 0, "ok");
    shows("reel pull some/gguf --offline", 0, "models/some/gguf");
    shows("reel pull some/gguf:Q8_0", 0, "models/some/gguf");
    shows("reel run some/gguf:Q4_K_M -p hi -n 3 --temp 0", 0, "");
}

/* ---- questions at a terminal ----------------------------------------------------------------- */

static void a_model_that_is_not_here_is_asked_about(void **state) {
    (void)state;
    struct pty t;
    add_gguf("some/one", "tiny-Q4_K_M.gguf", true);
    pty_start(&t, "reel inspect some/one");
    pty_see(&t, "some/one is not here. Fetch it from http://127.0.0.1");
    pty_type(&t, "n\n");
    pty_see(&t, "reel pull some/one");
    assert_int_equal(pty_finish(&t), 3);
    assert_int_equal(fake_hub_asked(hub, "/"), 0);
    pty_start(&t, "reel inspect some/one");
    pty_see(&t, "[Y/n]");
    pty_type(&t, "\n");
    pty_see(&t, "1 file to fetch");
    pty_see(&t, "llama");
    assert_int_equal(pty_finish(&t), 0);
    pty_start(&t, "exec reel inspect no/where");
    pty_see(&t, "[Y/n]");
    pty_type(&t, "\003"); /* Ctrl-C */
    assert_int_equal(pty_finish(&t), 3);
}

static void a_chat_begins_with_a_name_alone(void **state) {
    (void)state;
    struct pty t;
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    fake_hub_trouble(hub, "model.safetensors", 1, (struct http_reply){ .pause_ms = 700 });
    pty_start(&t, "exec reel chat some/model --chat-template chatml -n 5");
    pty_see(&t, "Fetch it from");
    pty_type(&t, "yes\n");
    pty_see(&t, "some/model: ");
    pty_see(&t, "1 file to fetch, 12 MB");
    pty_see(&t, "fetching 1 file [");
    pty_see(&t, "> ");
    pty_type(&t, "hello\r");
    pty_see(&t, "> ");
    for (int i = 0; i < 50 && !pty_ended(&t); i++)
        pty_type(&t, "\x15\x04"); /* Ctrl-U, Ctrl-D */
    assert_int_equal(pty_finish(&t), 0);
}

static void one_of_several_is_chosen(void **state) {
    (void)state;
    struct pty t;
    add_gguf("some/gguf", "tiny-Q2_K.gguf", true);
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    pty_start(&t, "reel pull some/gguf");
    pty_see(&t, "some/gguf has 3 models");
    pty_see(&t, "[Q4_K_M]");
    pty_type(&t, "17\n");
    pty_see(&t, "[Q4_K_M]");
    pty_type(&t, "\n");
    pty_see(&t, "some/gguf:Q4_K_M");
    assert_int_equal(pty_finish(&t), 0);
    pty_start(&t, "reel run some/gguf:q8_0 --pull -p hi -n 3 --temp 0");
    assert_int_equal(pty_finish(&t), 0);
    pty_start(&t, "reel pull some/gguf");
    pty_see(&t, "[Q4_K_M]");
    pty_type(&t, "1\n");
    pty_see(&t, "some/gguf:Q2_K");
    assert_int_equal(pty_finish(&t), 0);
    pty_start(&t, "reel rm some/gguf:Q2_K");
    pty_see(&t, "[y/N]");
    pty_type(&t, "\n");
    assert_int_equal(pty_finish(&t), 13);
    shows("reel list", 0, "Q2_K");
}

/* ---- models that are here -------------------------------------------------------------------- */

static void a_model_that_is_not_here_is_named_with_its_command(void **state) {
    (void)state;
    add_gguf("some/one", "tiny-Q4_K_M.gguf", true);
    expect("reel run some/one -p hi", 3, "reel pull some/one");
    expect("echo hi | reel tokenize some/one", 3, "reel pull some/one");
    expect("reel inspect some/one:Q4_K_M", 3, "reel pull some/one:Q4_K_M");
    expect("reel run some/one.gguf -p hi", 3, "no such file");
    assert_int_equal(fake_hub_asked(hub, "/"), 0);
    shows("reel inspect some/one --pull", 0, "llama");
}

static void models_are_listed_with_their_names(void **state) {
    (void)state;
    expect("reel list", 0, "no models yet");
    fake_hub_add_folder(hub, "some/model", getenv("DEMO"), demo_files);
    add_gguf("some/gguf", "sub/tiny-Q4_K_M.gguf", true);
    shows("reel pull some/model", 0, "");
    shows("reel pull some/gguf", 0, "");
    shows("s=\"$HOME/.cache/huggingface/hub/models--other--one/snapshots/$(printf 'a%.0s' 1 2 3 4 "
          "5 6 "
          "7 8)\"; mkdir -p \"$s\" && cp \"$DEMO\"/config.json \"$DEMO\"/model.safetensors \"$s\"; "
          "echo ok",
          0, "ok");
    shows("reel list", 0, "some/gguf:Q4_K_M");
    shows("reel list", 0, "some/model ");
    shows("reel list", 0, "huggingface");
    shows("reel list --json", 0, "\"quantisation\": \"Q4_K_M\"");
    shows("reel list --json", 0, "\"name\": \"other/one\"");
    shows("reel du", 0, "models");
    shows("reel du", 0, "Hugging Face cache");
}

static void models_are_deleted_one_by_one_or_together(void **state) {
    (void)state;
    add_gguf("some/gguf", "tiny-Q4_K_M.gguf", true);
    add_gguf("some/gguf", "tiny-Q8_0.gguf", true);
    shows("reel pull some/gguf --file tiny-Q4_K_M.gguf --file tiny-Q8_0.gguf", 0, "");
    expect("reel rm some/gguf:Q8_0", 2, "--yes");
    shows("reel rm some/gguf:Q8_0 --yes", 0, "deleted");
    hides("reel list", "Q8_0");
    shows("reel pull some/gguf --offline", 0, "");
    expect("reel rm some/gguf:Q8_0 -y", 3, "Q8_0");
    shows("reel run some/gguf -p hi -n 3 --temp 0", 0, "");
    shows("reel rm some/gguf -y", 0, "deleted");
    expect("reel rm some/gguf -y", 3, "reel list");
    shows("ls -A \"$HOME/.cache/reel/models\"; echo end", 0, "end");
    hides("ls -A \"$HOME/.cache/reel/models\"", "some");
}

static void nothing_outside_the_cache_is_deleted(void **state) {
    (void)state;
    shows("s=\"$HOME/.cache/huggingface/hub/models--other--one/snapshots/abc\"; mkdir -p \"$s\" && "
          "cp "
          "\"$DEMO\"/config.json \"$s\"; echo ok",
          0, "ok");
    expect("reel rm other/one -y", 3, "snapshots/abc");
    shows("ls \"$HOME/.cache/huggingface/hub/models--other--one/snapshots/abc\"", 0, "config.json");
    expect("reel rm ../.. -y", 2, "is not the name");
    expect("reel rm some/.. -y", 2, "is not the name");
    shows("mkdir -p elsewhere \"$HOME/.cache/reel/models/my\" && touch elsewhere/kept && ln -s "
          "\"$PWD/elsewhere\" \"$HOME/.cache/reel/models/my/link\" && reel rm my/link -y",
          0, "deleted");
    shows("ls elsewhere", 0, "kept");
    hides("ls -A \"$HOME/.cache/reel/models\"", "my");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_hub, close_hub)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_second_file_keeps_the_first),
        TEST(a_repository_of_gguf_files_lists_them),
        TEST(a_quantisation_names_a_file),
        TEST(the_only_file_needs_no_name),
        TEST(files_lie_in_sub_folders),
        TEST(safetensors_lie_in_sub_folders_too),
        TEST(paths_stay_inside),
        TEST(the_config_refuses_before_the_weights_travel),
        TEST(the_tokenizer_refuses_before_the_weights_travel),
        TEST(a_sentencepiece_model_is_fetched_where_no_json_is),
        TEST(a_gguf_header_refuses_before_the_weights_travel),
        TEST(a_repository_without_a_model_says_what_it_has),
        TEST(a_token_is_found_where_other_programs_keep_it),
        TEST(an_unknown_repository_is_told_from_a_private_one),
        TEST(a_busy_hub_is_asked_again),
        TEST(a_hub_that_stays_busy_is_given_up),
        TEST(a_stalled_transfer_is_noticed),
        TEST(several_files_travel_at_once),
        TEST(ctrl_c_leaves_what_has_arrived),
        TEST(an_update_replaces_what_belongs_together),
        TEST(the_old_folder_serves_until_the_new_is_whole),
        TEST(what_has_arrived_of_one_file_waits_while_another_is_pulled),
        TEST(two_programs_pull_in_turn),
        TEST(a_crash_between_two_renames_loses_nothing),
        TEST(what_somebody_put_there_stays),
        TEST(a_manifest_of_an_earlier_reel_is_understood),
        TEST(a_model_that_is_not_here_is_asked_about),
        TEST(a_chat_begins_with_a_name_alone),
        TEST(one_of_several_is_chosen),
        TEST(a_model_that_is_not_here_is_named_with_its_command),
        TEST(models_are_listed_with_their_names),
        TEST(models_are_deleted_one_by_one_or_together),
        TEST(nothing_outside_the_cache_is_deleted),
    };
    unsetenv("http_proxy");
    if (!BUILT_WITH_CURL) return without_curl();
    return cmocka_run_group_tests(tests, shell_enter, shell_leave);
}
