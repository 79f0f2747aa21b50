/* What is typed at the program and what it says back: texts, attached files, misspelt words. */
#include "base/json.h"
#include "cli/commands.h"
#include "cli/known_words.h"
#include "support/fake_hub.h"
#include "support/sanitized.h"
#include "support/shell.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the text of a run ----------------------------------------------------------------------- */

/* The ids that a line's prompt became, as JSON; the caller frees. */
static char *prompt_of(const char *line) {
    char command[1000];
    const char *rest = strstr(line, "reel run") + strlen("reel run");
    snprintf(command, sizeof command, "%.*s --json -n 1 --temp 0 -q%s", (int)(rest - line), line,
             rest);
    struct result r = shell(command);
    json_t *all = json_loads(r.out, 0, NULL);
    const json_t *ids = json_object_get(all, "prompt_ids");
    char *text = json_dumps(ids, 0);
    if (r.status != 0 || !text) fail_msg("%s\nstatus %d\n%s", command, r.status, r.err);
    json_decref(all);
    done(r);
    return text;
}

static void expect_same_prompt(const char *line, const char *other) {
    char *a = prompt_of(line), *b = prompt_of(other);
    if (strcmp(a, b) != 0) fail_msg("%s\n%s\n%s\n%s", line, a, other, b);
    free(a);
    free(b);
}

static void the_text_may_follow_the_model(void **state) {
    (void)state;
    expect_same_prompt("reel run demo 'Emma was'", "reel run demo -p 'Emma was'");
    expect_same_prompt("reel run demo Emma was  not", "reel run demo -p 'Emma was not'");
    expect_same_prompt("reel run demo -- -5 was", "reel run demo -p '-5 was'");
    expect_same_prompt("reel run demo --chat-template chatml 'Who is Emma?'",
                       "reel run demo --chat-template chatml -p 'Who is Emma?'");
    expect_same_prompt("printf 'of the pipe' | reel run demo Emma", "reel run demo -p Emma");
    struct result r = shell("reel tokenize demo Emma was --count && "
                            "reel tokenize demo -p 'Emma was' --count");
    assert_int_equal(r.status, 0);
    assert_memory_equal(r.out, strchr(r.out, '\n') + 1, strlen(strchr(r.out, '\n') + 1));
    done(r);
}

static void a_text_is_given_once(void **state) {
    (void)state;
    expect("reel run demo Emma -p Emma", 2, "given twice: after the model (\"Emma\") and with");
    expect("reel run demo Emma -f text", 2, "--attach FILE adds a file to a text");
    expect("reel tokenize demo Emma -f text", 2, "and with --file\n");
    expect("reel run demo -p x -f y", 2, "--prompt and --file exclude each other");
    expect("reel tokenize demo Emma --decode 5", 2, "--decode excludes a text");
}

/* Reading it would take the lines of a loop around the program; not reading it loses a file that
 * somebody meant to ask about. So that is said. */
static void a_pipe_beside_a_typed_text_is_not_lost_in_silence(void **state) {
    (void)state;
    static const char note[] = "standard input is not read";
    expect("printf 'some text' | reel run demo Emma -n 1", 0, note);
    expect("printf 'some text' | reel run demo -n 1", 0, "-f - takes it as the text");
    expect("printf 'some text' >text; reel run demo -p Emma -n 1 <text", 0, note);
    struct result r = shell("reel run demo Emma -n 1 </dev/null && "
                            "printf 'some text' | reel run demo Emma -n 1 --attach -");
    assert_int_equal(r.status, 0);
    assert_null(strstr(r.err, note));
    done(r);
    r = shell("printf 'some text' | reel run demo Emma -n 1 -q");
    assert_string_equal(r.err, "");
    done(r);
}

/* ---- attached files -------------------------------------------------------------------------- */

static void attached_files_stand_before_the_text_under_their_names(void **state) {
    (void)state;
    expect(
        "printf 'one\\ntwo\\n' >a.txt; printf '\\357\\273\\277three' >b.md; "
        "printf 'a.txt:\\n```\\none\\ntwo\\n```\\n\\nb.md:\\n```\\nthree\\n```\\n\\nWhy?' >whole",
        0, "");
    expect_same_prompt("reel run demo --attach a.txt -a b.md 'Why?'", "reel run demo -f whole");
    expect_same_prompt("reel run demo 'Why?' --attach=a.txt -ab.md", "reel run demo -f whole");
    expect_same_prompt("printf 'Why?\\n' | reel run demo --attach a.txt -a b.md",
                       "reel run demo -f whole");
    expect_same_prompt(
        "printf 'one\\ntwo\\n' | reel run demo --attach - 'Why?'",
        "printf 'standard input:\\n```\\none\\ntwo\\n```\\n\\nWhy?' | reel run demo -f -");
    expect_same_prompt("reel run demo --chat-template chatml --attach a.txt -a b.md 'Why?'",
                       "reel run demo --chat-template chatml -f whole");
    expect_same_prompt("reel run demo --attach a.txt </dev/null",
                       "printf 'a.txt:\\n```\\none\\ntwo\\n```\\n\\n\\n' | reel run demo -f -");
}

static void a_fence_in_a_file_does_not_end_it(void **state) {
    (void)state;
    expect("printf 'say:\\n````\\nx\\n````' >fenced; printf 'fenced:\\n`````\\nsay:\\n````\\nx\\n"
           "````\\n`````\\n\\nWhy?' >whole",
           0, "");
    expect_same_prompt("reel run demo -a fenced 'Why?'", "reel run demo -f whole");
}

static void what_cannot_be_attached_is_refused_by_name(void **state) {
    (void)state;
    expect("printf 'a\\0b' >zero; reel run demo -a zero x", 2,
           "--attach zero: not a text: byte 0x00 at offset 1");
    expect("printf 'caf\\351' >latin; reel run demo -a latin x", 2,
           "--attach latin: not UTF-8: byte 0xe9 at offset 3");
    expect("printf '\\355\\240\\200' >half; reel run demo -a half x", 2,
           "--attach half: not UTF-8");
    expect("printf '\\340\\200\\200' >long; reel run demo -a long x", 2,
           "--attach long: not UTF-8");
    expect("head -c 9000000 /dev/zero | tr '\\0' x >large; reel run demo -a large x", REEL_E_LIMIT,
           "--attach large: larger than 8388608 bytes");
    expect("reel run demo -a no/such x", REEL_E_NOT_FOUND, "--attach no/such: No such file");
    expect("reel run demo -a . x", 2, "--attach .: is a folder");
    expect("reel run demo -a - -a - x </dev/null", 2, "standard input is given twice");
    expect("reel run demo -a - -f - </dev/null", 2, "--file - and --attach -");
    expect("reel run demo -a a.txt --raw x", 2, "--attach has no place in it");
}

static void a_prompt_that_does_not_fit_says_what_would(void **state) {
    (void)state;
    expect("seq 1 400 >many; seq 1 3 >few; reel run demo -c 64 -a few -a many 'Why?'",
           REEL_E_CONTEXT, "the context 64 positions; --ctx makes room, up to ");
    expect("reel run demo -c 64 -a few -a many 'Why?'", REEL_E_CONTEXT,
           "; the largest file, many, has 1492 of its ");
}

/* ---- misspelt words -------------------------------------------------------------------------- */

static void misspelt_words_of_every_kind_get_the_nearest(void **state) {
    (void)state;
    expect("reel help rnu", 2, "did you mean run?");
    expect("reel help gpu-option", 2, "did you mean gpu-options?");
    expect("reel --versoin", 2, "did you mean --version?");
    expect("reel run demo --Seed 5", 2, "did you mean --seed?");
    expect("reel bench demo -o jsn", 2, "is not one of: md csv json; did you mean json?");
    expect("reel transcribe --format JSON a.wav", 2, "did you mean json?");
    expect("reel run demo --device gppu x", 2, "did you mean gpu?");
    expect("reel run demo --device gpu9x x", 2,
           "--device: \"gpu9x\" is not one of: auto cpu gpu gpu:N gpu:N,M gpu:all");
    expect("reel run demo --device gpu: x", 2, "is not one of: auto cpu gpu gpu:N gpu:N,M gpu:all");
    expect("reel run demo --cpu-path portabel x", 2, "did you mean portable?");
    expect("reel run demo --device cpu --gpu-option led=5 x", 2, "did you mean lead?");
    expect("reel run demo --gpu-option xyzzy=5 x", 2, "reel help gpu-options lists them");
    expect("reel run demo --gpu-option lead x", 2, "is not KEY=VALUE");
    expect("reel run demo --gpu-option launch_ms=5,lead=1e3 x", 2, "lead is an integer from ");
}

static void what_other_programs_call_an_option_is_known(void **state) {
    (void)state;
    expect("reel run demo --temperature 1 x", 2, "did you mean --temp?");
    expect("reel run demo --max-tokens 5 x", 2, "did you mean --tokens?");
    expect("reel run demo --n-predict=5 x", 2, "did you mean --tokens?");
    expect("reel run demo --ctx-size 5 x", 2, "did you mean --ctx?");
    expect("reel run demo --attachment f x", 2, "did you mean --attach?");
    expect("reel run demo '-5 degrees are'", 2, "a text that begins with a dash comes after --");
}

/* A model as far as names go. */
static void make_cached(const char *folder) {
    char line[600];
    snprintf(line, sizeof line, "mkdir -p '%s' && touch '%s/config.json' '%s/model.safetensors'",
             folder, folder, folder);
    expect(line, 0, "");
}

static void a_misspelt_model_is_answered_with_one_that_is_at_hand(void **state) {
    (void)state;
    expect("reel run dmeo x", 3, "dmeo: no such file or folder; did you mean demo?");
    make_cached("home/.cache/reel/models/Qwen/Qwen3-0.6B");
    make_cached("home/.cache/huggingface/hub/models--HuggingFaceTB--SmolLM2-135M-Instruct/"
                "snapshots/0a1b");
    expect("reel run Qwen/Qwen3-06B x", 3,
           "nor in the local cache; did you mean Qwen/Qwen3-0.6B? or fetch it with: reel pull "
           "Qwen/Qwen3-06B\n");
    expect("reel run qwen3-0.6b x", 3, "did you mean Qwen/Qwen3-0.6B?");
    expect("reel inspect huggingfacetb/smollm2-135m-instruct", 3,
           "did you mean HuggingFaceTB/SmolLM2-135M-Instruct?");
    expect("reel run demo-speach x", 3, "did you mean demo-speech?");
    struct result r = shell("reel run /some/where/else x");
    assert_int_equal(r.status, 3);
    assert_null(strstr(r.err, "did you mean"));
    done(r);
}

static void each_cpu_path_of_this_machine_is_a_choice(void **state) {
    (void)state;
    expect("for p in $(reel devices | sed -n 's/^CPU paths *//p'); do "
           "reel run demo x -n 1 -q --cpu-path $p >answer || exit 1; done; test -s answer",
           0, "");
}

/* ---- completion ------------------------------------------------------------------------------ */

/* As bash calls it: the words typed, those with = or : taken apart, the last one to be completed. A
 * reel with two GPUs answers what is asked of devices. */
#define COMPLETE                                                                                   \
    "reel help --completion bash >reel.bash && bash -c '. ./reel.bash; "                           \
    "reel() { if [ \"$*\" = \"help --words devices\" ]; then echo auto cpu gpu gpu:0 gpu:1; "      \
    "else command reel \"$@\"; fi; }; "                                                            \
    "t() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _reel; echo \"${COMPREPLY[*]}\"; }; "

static void bash_completes_models_devices_keys_and_files(void **state) {
    (void)state;
    make_cached("home/.cache/reel/models/Qwen/Qwen3-0.6B");
    expect("mkdir -p 'a folder' && touch notes.txt 'a folder/b c.txt'", 0, "");
    struct result r =
        shell(COMPLETE "t reel ru; t reel run Q; t reel run dem; t reel run --temp 1 Q; "
                       "t reel run demo Q; t reel run demo --device g; "
                       "t reel run demo --device gpu :; "
                       "t reel run demo --device gpu : 1; "
                       "t reel run demo --device = c; t reel run demo --think = o; "
                       "t reel run demo --gpu-option lea; t reel run demo -a not; "
                       "t reel score demo not; t reel run -- Q; t reel help gpu; "
                       "t reel transcribe -m demo-s; t reel run demo --attach \"a f\"; "
                       "t reel run demo -- --se; t reel chat demo --no-h; "
                       "t reel rm Q; t reel pull --cache \"a f\"'");
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, "run\nQwen/Qwen3-0.6B\ndemo demo-speech\nQwen/Qwen3-0.6B\n\n"
                               "gpu gpu:0 gpu:1\n0 1\n1\ncpu\non off\nlead=\nnotes.txt\n"
                               "notes.txt\nQwen/Qwen3-0.6B\n\ndemo-speech\na folder\n\n"
                               "--no-history\nQwen/Qwen3-0.6B\na folder\n");
    done(r);
}

static void a_folder_name_in_a_cache_is_never_run_by_a_shell(void **state) {
    (void)state;
    make_cached("home/.cache/huggingface/hub/models--x--$(touch hurt)/snapshots/0a1b");
    make_cached("home/.cache/reel/models/x/y/$(touch hurt)");
    expect("touch 'home/.cache/reel/models/x/y/$(touch hurt).gguf'", 0, "");
    struct result r = shell(COMPLETE "t reel run x; t reel run \"\" >/dev/null' && "
                                     "reel help --words models; test ! -e hurt");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    assert_null(strstr(r.out, "hurt"));
    done(r);
}

static void the_words_of_a_completion_are_models_and_devices(void **state) {
    (void)state;
    struct word_list list = { 0 };
    make_cached("home/.cache/reel/models/a/b");
    make_cached("home/.cache/huggingface/hub/models--a--b/snapshots/0a1b");
    make_cached("home/.cache/huggingface/hub/models--c--d--e/snapshots/0a1b");
    expect("mkdir -p home/.cache/reel/models/a/q && "
           "touch home/.cache/reel/models/a/q/x-Q4_0.gguf home/.cache/reel/models/a/q/x-Q8_0.gguf",
           0, "");
    struct result r = shell("reel help --words models");
    assert_int_equal(r.status, 0);
    assert_memory_equal(r.out, "demo\ndemo-speech\n", 17);
    assert_non_null(strstr(r.out, "\na/b\n"));
    assert_null(strstr(strstr(r.out, "\na/b\n") + 1, "\na/b\n"));
    assert_non_null(strstr(r.out, "\nc/d--e\n"));
    assert_non_null(strstr(r.out, "\na/q:Q4_0\na/q:Q8_0\n"));
    done(r);
    r = shell("mkdir -p gpus/0000:01:00.0 gpus/0000:02:00.0 && printf \"$(pwd)/gpus\"");
    assert_int_equal(known_devices(&list, r.out, NULL), REEL_OK);
    assert_int_equal(list.n, 5);
    assert_string_equal(list.words[0], "auto");
    assert_string_equal(list.words[4], "gpu:1");
    word_list_release(&list);
    assert_int_equal(known_devices(&list, "/no/such/folder", NULL), REEL_OK);
    assert_int_equal(list.n, 3);
    word_list_release(&list);
    done(r);
    expect("HOME= reel help --words models", 0, "");
}

static void zsh_takes_its_completion(void **state) {
    (void)state;
    /* zsh completes no option beside an argument of which it has to say that nothing is offered */
    expect("! reel help --completion zsh | grep -F \"'*:TEXT\"", 0, "");
    struct result r = shell("command -v zsh");
    const bool here = r.status == 0;
    done(r);
    if (!here) {
        print_message("zsh is not installed\n");
        skip();
    }
    expect("reel help --completion zsh >_reel && zsh -n _reel", 0, "");
}

static void fish_completes_commands_options_and_models(void **state) {
    (void)state;
    struct result r = shell("command -v fish");
    const bool here = r.status == 0;
    done(r);
    if (!here) {
        print_message("fish is not installed\n");
        skip();
    }
    make_cached("home/.cache/reel/models/Qwen/Qwen3-0.6B");
    r = shell("touch notes.txt; "
              "reel help --completion fish >reel.fish && fish -c 'source reel.fish; "
              "for line in \"reel ru\" \"reel run Q\" \"reel run --temp 1 Q\" \"reel run demo Q\" "
              "\"reel run demo --device c\" \"reel run demo --think o\" \"reel run demo --see\" "
              "\"reel run demo -a not\"; "
              "echo (complete -C $line | string split -f 1 \\t); end'");
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, "run\nQwen/Qwen3-0.6B\nQwen/Qwen3-0.6B\n\ncpu\noff on\n--seed\n"
                               "notes.txt\n");
    done(r);
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static double logprob_of(const float *logits, int n, int id) {
    double largest = (double)logits[0], sum = 0;
    for (int i = 1; i < n; i++)
        if ((double)logits[i] > largest) largest = (double)logits[i];
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return (double)logits[id] - largest - log(sum);
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* One token of the output against the logits of its position. */
static void check_logprobs(const struct reel_model *model, const json_t *token, const float *logits,
                           int vocab, int n_top, char *text) {
    const int id = (int)number(token, "id");
    size_t n = 0;
    const char *bytes = reel_token_bytes(reel_model_tokenizer(model), id, &n);
    assert_float_equal(number(token, "logprob"), logprob_of(logits, vocab, id), 1e-4);
    const json_t *piece = json_object_get(token, "text"), *top = json_object_get(token, "top");
    assert_int_equal(json_string_length(piece), n);
    assert_memory_equal(json_string_value(piece), bytes, n);
    strcat(text, json_string_value(piece));
    assert_int_equal(json_array_size(top), n_top);
    for (int i = 0; i < n_top; i++) {
        const json_t *one = json_array_get(top, (size_t)i);
        const double logprob = number(one, "logprob");
        int n_above = 0;
        assert_float_equal(logprob, logprob_of(logits, vocab, (int)number(one, "id")), 1e-4);
        const float logit = logits[(int)number(one, "id")];
        for (int other = 0; other < vocab; other++)
            n_above += logits[other] > logit;
        assert_true(n_above <= i);
        assert_true(json_is_string(json_object_get(one, "text")));
    }
}

/* Against the library's own logits, evaluated along the ids of the answer. */
static void logprobs_are_those_of_the_models_own_distribution(void **state) {
    (void)state;
    enum { N = 12, TOP = 3 };
    struct result r = shell("reel run demo Emma was -n 12 --temp 1.5 --top-k 40 --seed 5 --json "
                            "--logprobs 3 -q --rounding exact");
    json_t *all = json_loads(r.out, 0, NULL);
    const json_t *ids = json_object_get(all, "ids"), *prompt = json_object_get(all, "prompt_ids");
    const json_t *tokens = json_object_get(all, "logprobs");
    if (r.status != 0 || json_array_size(tokens) != N) fail_msg("%s%s", r.out, r.err);
    const int n_prompt = (int)json_array_size(prompt);
    int32_t list[64];
    for (int i = 0; i < n_prompt; i++)
        list[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
    for (int i = 0; i < N; i++)
        list[n_prompt + i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    struct reel_model *model = NULL;
    struct reel_session *session = NULL;
    struct reel_model_info info = { .size = sizeof info };
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .rounding = REEL_ROUNDING_EXACT };
    assert_int_equal(reel_model_open(&model, getenv("DEMO"), &options, NULL), REEL_OK);
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    assert_int_equal(reel_session_open(&session, model, NULL, NULL), REEL_OK);
    const size_t n_floats = (size_t)(n_prompt + N) * (size_t)info.vocab;
    float *logits = calloc(n_floats, sizeof *logits);
    assert_non_null(logits);
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n_prompt + N,
                                    .ids = list,
                                    .output = REEL_OUTPUT_ALL_LOGITS,
                                    .out = logits,
                                    .out_floats = n_floats };
    assert_int_equal(reel_session_eval(session, &eval, NULL), REEL_OK);
    char text[1000] = "";
    for (int i = 0; i < N; i++) {
        const json_t *token = json_array_get(tokens, (size_t)i);
        assert_int_equal(number(token, "id"), list[n_prompt + i]);
        check_logprobs(model, token, logits + (size_t)(n_prompt + i - 1) * (size_t)info.vocab,
                       info.vocab, TOP, text);
    }
    assert_string_equal(text, json_string_value(json_object_get(all, "text")));
    free(logits);
    reel_session_close(session);
    reel_model_close(model);
    json_decref(all);
    done(r);
}

static void logprobs_change_no_id_and_are_there_when_asked_for_only(void **state) {
    (void)state;
    struct result r = shell("reel run demo Emma -n 20 --temp 0.9 --seed 3 --json -q"),
                  none =
                      shell("reel run demo Emma -n 20 --temp 0.9 --seed 3 --json -q --logprobs 0");
    json_t *plain = json_loads(r.out, 0, NULL), *asked = json_loads(none.out, 0, NULL);
    assert_non_null(plain);
    assert_null(json_object_get(plain, "logprobs"));
    assert_true(json_equal(json_object_get(plain, "ids"), json_object_get(asked, "ids")));
    const json_t *first = json_array_get(json_object_get(asked, "logprobs"), 0);
    assert_true(number(first, "logprob") < 0);
    assert_null(json_object_get(first, "top"));
    json_decref(plain);
    json_decref(asked);
    done(r);
    done(none);
    expect("reel run demo x --logprobs 3", 2, "--logprobs goes with --json");
    expect("reel run demo x --json --logprobs 21", 2, "is not an integer from 0 to 20");
}

/* ---- errors in the words of the command line ------------------------------------------------- */

/* A model that opens in a moment. */
#define TINY                                                                                       \
    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":64,"       \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32," \
    "\"intermediate_size\":64,\"vocab_size\":1000,\"tie_word_embeddings\":true,"                   \
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":64,"                   \
    "\"eos_token_id\":256}"

static void make_tiny(void) {
    shell_file("tiny.json", TINY, strlen(TINY));
    expect("test -d tiny || reel synthesize tiny tiny.json", 0, "");
}

static void refused_values_name_their_option(void **state) {
    (void)state;
    make_tiny();
    expect("reel run tiny x -c 65", 2, "--ctx: 65 positions; tiny was made for 64");
    expect("reel score tiny tiny.json -c 65", 2, "--ctx: 65 positions; tiny was made for 64");
    expect("reel bench tiny --device cpu -p 60 -n 60 -d 4", 2, "-p, -n and -d: ");
    expect("reel verify tiny -n 65", 2, "--positions: 65 positions; tiny was made for 64");
    expect("reel run tiny x --stop ''", 2, "--stop: a text of 0 bytes; allowed are 1 to 256");
    expect("reel run tiny x --stop $(seq -s . 100)", 2, "--stop: a text of 291 bytes");
    expect("reel run tiny x --stop $(printf '\\244')", 2, "--stop: not UTF-8: byte 0xa4");
    expect("reel run tiny x $(for i in $(seq 17); do echo --stop $i; done)", 2,
           "--stop is given more than 16 times");
    expect("reel run tiny x --rounding exact --device gpu", 2, "--rounding exact is of the CPU");
    expect("reel run tiny x --cpu-path portable --device gpu:0", 2, "--device gpu:0 excludes it");
    expect("reel run tiny x --rounding exact --cpu-path portable", 2,
           "--rounding exact runs with --cpu-path reference");
    expect("reel bench --limits --device cpu", 2, "--limits measures a GPU; --device cpu");
    expect("reel run tiny x --chat-template chatml --system $(printf '\\351')", 2,
           "--system: not UTF-8: byte 0xe9");
    expect("reel run tiny $(printf 'caf\\351')", 2, "the text after the model: not UTF-8");
    expect("reel run tiny -p $(printf 'caf\\351')", 2, "--prompt: not UTF-8");
    expect("printf 'caf\\351' >latin; reel tokenize demo -f latin", 2,
           "latin: not UTF-8: byte 0xe9 at offset 3");
    expect("reel tokenize demo -f - <latin", 2, "standard input: not UTF-8");
    expect("reel score tiny latin", 2, "latin: not UTF-8");
    expect("reel chat tiny </dev/null", REEL_E_UNSUPPORTED, "--chat-template gives it one");
    expect("reel transcribe latin -m demo-speech -n 2000000000", REEL_E_LIMIT,
           "; see --segment and --tokens");
}

/* What a program would have done wrong, and a person cannot. */
static const char *const words_of_programs[] = {
    "reel_",       "REEL_",      "struct ",   "enum ",       "max_context", "n_threads",
    "gpu_options", "cpu_path",   "n_stop",    "stop string", "sampling:",   "top_k",
    "top_p",       "min_p",      "_penalty",  "on_token",    "cache_dir",   "nvrtc_dir",
    "GPU option ", "max_tokens", "_logprobs", "device \\\"", "encode:",     "NULL",
};

static void add_line(FILE *script, const char *command, const struct cli_option *o,
                     const char *value) {
    const char *text = strcmp(command, "score") == 0     ? "tiny.json"
                       : strcmp(command, "chat") == 0    ? "--chat-template chatml"
                       : strcmp(command, "inspect") == 0 ? ""
                                                         : "x";
    fprintf(script, "echo '>' %s --%s='%s' >&2; reel %s tiny %s --%s='%s' </dev/null\n", command,
            o->name, value, command, text, o->name, value);
}

/* The ends of each range and what lies beyond them. --threads is left out: 256 of them for nothing.
 */
static void add_values(FILE *script, const char *command, const struct cli_option *o) {
    char value[60];
    if (o->kind == CLI_FLAG || strcmp(o->name, "threads") == 0) return;
    add_line(script, command, o, "");
    add_line(script, command, o, "x");
    add_line(script, command, o, "\351");
    if (o->kind == CLI_INTEGER) {
        snprintf(value, sizeof value, "%lld", (long long)o->least);
        add_line(script, command, o, value);
        snprintf(value, sizeof value, "%lld", (long long)o->most);
        add_line(script, command, o, value);
        add_line(script, command, o, "-1");
    }
    if (o->kind == CLI_REAL) {
        snprintf(value, sizeof value, "%g", o->low);
        add_line(script, command, o, value);
        snprintf(value, sizeof value, "%g", o->high);
        add_line(script, command, o, value);
        add_line(script, command, o, "1e-45");
    }
    if (o->kind == CLI_CHOICE)
        for (const char *at = o->choices; *at; at += strspn(at, " ")) {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(at, " "), at);
            add_line(script, command, o, value);
            at += strcspn(at, " ");
        }
}

static void no_value_is_answered_in_the_words_of_the_library(void **state) {
    (void)state;
    static const char *const names[] = { "run", "score", "tokenize", "inspect", "chat" };
    char *lines = NULL;
    size_t n = 0;
    FILE *script = open_memstream(&lines, &n);
    assert_non_null(script);
    make_tiny();
    for (size_t i = 0; i < sizeof names / sizeof *names; i += sanitized_briefly() ? 3 : 1) {
        const struct cli_command *command = cli_find_command(names[i]);
        assert_non_null(command);
        for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
            for (int k = 0; k < command->groups[g]->n_options; k++)
                add_values(script, names[i], &command->groups[g]->options[k]);
    }
    fclose(script);
    shell_file("values.sh", lines, n);
    free(lines);
    struct result r = shell("sh values.sh 2>&1 >/dev/null | cat -v");
    for (size_t i = 0; i < sizeof words_of_programs / sizeof *words_of_programs; i++) {
        const char *found = strstr(r.out, words_of_programs[i]);
        if (found) fail_msg("\"%s\": %.300s", words_of_programs[i], found);
    }
    done(r);
}

/* ---- names of what is not there yet ---------------------------------------------------------- */

static void a_file_that_cannot_be_written_is_called_by_its_own_name(void **state) {
    (void)state;
    make_tiny();
    expect("echo /save no/such/file | reel chat demo --chat-template chatml", REEL_E_IO,
           "no/such/file: cannot create: No such file or directory");
    expect("trap '' XFSZ; ulimit -f 8; reel synthesize small tiny.json", REEL_E_IO,
           "reel: small/tokenizer.json: cannot write: File too large");
    expect("TMPDIR=/no/such reel inspect demo", REEL_E_IO,
           "/no/such: cannot create a temporary folder there: No such file");
    expect("trap '' XFSZ; ulimit -f 8; TMPDIR=. reel inspect demo", REEL_E_IO,
           ".: writing the demo model there failed; TMPDIR can name another folder");
    expect("test ! -e small && test -z \"$(ls -d small.* reel-demo-* 2>/dev/null)\"", 0, "");
}

/* Neither the folder in which a pull collects files, nor what a file is called until it is whole.
 */
static void a_pull_that_cannot_write_names_the_model(void **state) {
    (void)state;
    static const char *const files[] = { "config.json", "tokenizer.json", "model.safetensors",
                                         NULL };
    char line[1000];
    struct fake_hub *hub = fake_hub_open();
    fake_hub_add_folder(hub, "some/demo", getenv("DEMO"), files);
    snprintf(line, sizeof line, "%s reel pull some/demo --cache full --mirror %s",
             "trap '' XFSZ; ulimit -f 8;", fake_hub_url(hub));
    expect(line, REEL_E_IO, "cannot write: File too large");
    snprintf(line, sizeof line, "%s --mirror %s",
             "mkdir -p taken/models/some/.demo.lock; "
             "reel pull some/demo --cache taken",
             fake_hub_url(hub));
    expect(line, REEL_E_IO, "taken/models/some/demo: cannot lock: Is a directory");
    snprintf(line, sizeof line,
             "mkdir -p wrong/models/some/.demo.partial/model.safetensors.part; "
             "reel pull some/demo --cache wrong --mirror %s",
             fake_hub_url(hub));
    expect(line, REEL_E_IO, "model.safetensors: cannot create: Is a directory");
    struct result r = shell(line);
    assert_null(strstr(r.err, ".part"));
    done(r);
    fake_hub_close(hub);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_may_follow_the_model),
        cmocka_unit_test(a_text_is_given_once),
        cmocka_unit_test(a_pipe_beside_a_typed_text_is_not_lost_in_silence),
        cmocka_unit_test(attached_files_stand_before_the_text_under_their_names),
        cmocka_unit_test(a_fence_in_a_file_does_not_end_it),
        cmocka_unit_test(what_cannot_be_attached_is_refused_by_name),
        cmocka_unit_test(a_prompt_that_does_not_fit_says_what_would),
        cmocka_unit_test(misspelt_words_of_every_kind_get_the_nearest),
        cmocka_unit_test(what_other_programs_call_an_option_is_known),
        cmocka_unit_test(a_misspelt_model_is_answered_with_one_that_is_at_hand),
        cmocka_unit_test(each_cpu_path_of_this_machine_is_a_choice),
        cmocka_unit_test(bash_completes_models_devices_keys_and_files),
        cmocka_unit_test(a_folder_name_in_a_cache_is_never_run_by_a_shell),
        cmocka_unit_test(the_words_of_a_completion_are_models_and_devices),
        cmocka_unit_test(zsh_takes_its_completion),
        cmocka_unit_test(fish_completes_commands_options_and_models),
        cmocka_unit_test(logprobs_are_those_of_the_models_own_distribution),
        cmocka_unit_test(logprobs_change_no_id_and_are_there_when_asked_for_only),
        cmocka_unit_test(refused_values_name_their_option),
        cmocka_unit_test(no_value_is_answered_in_the_words_of_the_library),
        cmocka_unit_test(a_file_that_cannot_be_written_is_called_by_its_own_name),
        cmocka_unit_test(a_pull_that_cannot_write_names_the_model),
    };
    return cmocka_run_group_tests(tests, shell_enter, shell_leave);
}
