/* The program as a user meets it: what it prints where, and how it ends. */
#include "base/json.h"
#include "reel_measure.h"
#include "support/sanitized.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- help ------------------------------------------------------------------------------------ */

static void every_command_explains_itself(void **state) {
    (void)state;
    struct result all = shell("reel help");
    int n = 0;
    assert_int_equal(all.status, 0);
    char *line = strstr(all.out, "Commands:\n");
    assert_non_null(line);
    for (line += 10; line[0] == ' '; line = strchr(line, '\n') + 1, n++) {
        char name[30], command[60], usage[60];
        assert_int_equal(sscanf(line, "%29s", name), 1);
        snprintf(command, sizeof command, "reel %s --help", name);
        snprintf(usage, sizeof usage, "usage: reel %s ", name);
        struct result r = shell(command);
        assert_int_equal(r.status, 0);
        assert_memory_equal(r.out, usage, strlen(usage));
        assert_non_null(strstr(r.out, "Exit status:\n   0  success\n"));
        assert_string_equal(r.err, "");
        done(r);
    }
    assert_true(n >= 5);
    done(all);
}

static void help_and_version_work_without_a_command(void **state) {
    (void)state;
    struct result r = shell("reel --version");
    assert_int_equal(r.status, 0);
    assert_memory_equal(r.out, "reel ", 5);
    done(r);
    r = shell("reel --help");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "reel run demo"));
    done(r);
    r = shell("reel");
    assert_int_equal(r.status, REEL_E_ARGUMENT);
    assert_string_equal(r.out, "");
    assert_non_null(strstr(r.err, "usage: reel COMMAND"));
    done(r);
}

static void the_man_page_names_every_option(void **state) {
    (void)state;
    /* every "--name" that begins a line of some --help must stand in the man page in roff */
    struct result r =
        shell("reel help --man >man; "
              "for c in $(reel help | sed -n '/^Commands/,/^$/s/^  \\([a-z]*\\) .*/\\1/p'); do "
              "reel $c --help | sed -n 's/^  ....--\\([a-z-]*\\).*/\\1/p'; done | sort -u >names; "
              "while read -r o; do grep -qF -- \"\\\\-\\\\-$(echo $o | sed 's/-/\\\\-/g')\" man || "
              "echo \"missing $o\" >&2; done <names; wc -l <names; grep -c 'EXIT STATUS' man");
    assert_string_equal(r.err, "");
    assert_true(atoi(r.out) > 25);
    assert_string_equal(strchr(r.out, '\n'), "\n1\n");
    done(r);
}

static void bash_completes_commands_options_and_choices(void **state) {
    (void)state;
    struct result r = shell(
        "reel help --completion bash >reel.bash && bash -c '. ./reel.bash; "
        "COMP_WORDS=(reel ins); COMP_CWORD=1; _reel; echo ${COMPREPLY[*]}; "
        "COMP_WORDS=(reel run demo --see); COMP_CWORD=3; _reel; echo ${COMPREPLY[*]}; "
        "COMP_WORDS=(reel run demo --think \"\"); COMP_CWORD=4; _reel; echo ${COMPREPLY[*]}'");
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, "inspect\n--seed\non off\n");
    done(r);
    expect("if command -v zsh; then reel help --completion zsh >_reel && zsh -n _reel; fi", 0, "");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void mistakes_in_names_are_answered_with_the_nearest(void **state) {
    (void)state;
    expect("reel rum demo", 2, "did you mean run?");
    expect("reel xyzzy", 2, "reel help lists them");
    expect("reel run demo --sed 5", 2, "did you mean --seed?");
    expect("reel run demo --tmep=5", 2, "did you mean --temp?");
    expect("reel run demo --quux", 2, "see reel run --help");
    expect("reel run demo -Z", 2, "-Z is no option of reel run");
    expect("reel help nothing", 2, "\"nothing\" is no command");
}

static void numbers_are_read_strictly_and_the_range_is_named(void **state) {
    (void)state;
    static const char *const bad[] = { "-n 5x",   "-n x5",   "-n ''",
                                       "-n ' 5'", "-n 5.0",  "-n 1e3",
                                       "-n -1",   "-n 0x10", "-n 99999999999999999999",
                                       "-c -5",   "-t 257",  "--top-k -1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[100];
        snprintf(line, sizeof line, "reel run demo %s", bad[i]);
        expect(line, 2, "is not an integer from 0 to ");
    }
    static const char *const bad_reals[] = { "nan", "inf", "-0.1", "101", "1,5", "''", "1e999" };
    for (size_t i = 0; i < sizeof bad_reals / sizeof *bad_reals; i++) {
        char line[100];
        snprintf(line, sizeof line, "reel run demo --temp %s", bad_reals[i]);
        expect(line, 2, "is not a number from 0 to 100");
    }
    expect("reel run demo --rounding loose", 2, "is not one of: fast faithful");
}

static void arguments_that_do_not_fit_are_refused(void **state) {
    (void)state;
    expect("reel run", 2, "usage: reel run MODEL");
    expect("reel score demo one more", 2, "\"more\" is one argument too many");
    expect("reel run demo -n", 2, "--tokens needs a value: N");
    expect("reel run demo -n 5 --tokens 6", 2, "given twice");
    expect("reel run demo --json=1", 2, "takes no value");
    expect("reel run demo -p x -f y", 2, "exclude each other");
    expect("reel run demo -p ''", 2, "the prompt is empty");
    expect("reel run demo -p x --system y", 2, "need a chat template");
    expect("reel run demo -p x --device gpu9x", 2, "gpu9x");
    expect("reel run demo -p x --cpu-path none", 2, "none");
    expect("reel run -- -p", 3, "-p: no such file");
    expect("printf 'a\\377b' | reel run demo -f -", 2, "UTF-8");
    expect("reel profile demo --device cpu", 2, "needs a GPU");
    expect("reel profile demo --trace-tokens 2", 2, "--trace FILE");
}

static void a_profile_without_its_gpu_is_refused_as_a_run_on_it_is(void **state) {
    (void)state;
    struct result run = shell("reel run demo -p x --device gpu:77");
    struct result profile = shell("reel profile demo --device gpu:77");
    assert_int_not_equal(run.status, 0);
    assert_int_equal(profile.status, run.status);
    assert_string_equal(profile.err, run.err);
    assert_string_equal(profile.out, "");
    done(run);
    done(profile);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void a_model_that_is_not_there_ends_with_status_3(void **state) {
    (void)state;
    expect("reel run /no/such/file -p x", 3, "/no/such/file: no such file or folder");
    expect("reel run no/such -p x", 3, "nor in the local cache");
    expect("reel inspect nothing.gguf", 3, "nothing.gguf");
    expect("reel tokenize nothing -p x", 3, "nothing");
    expect("reel run demo -f nothing.txt", 3, "nothing.txt");
    expect("mkdir -p empty && reel run empty -p x", 3, "empty");
}

static void a_file_of_another_kind_ends_with_status_5(void **state) {
    (void)state;
    expect("echo hello >hello.txt && reel run hello.txt -p x", 5, "not a GGUF file");
    expect("printf GGUF >short.gguf && reel inspect short.gguf", 5, "short.gguf");
    /* what stops it is said also where its text is cut within a character */
    expect("mkdir -p cut && printf '\\002\\0\\0\\0\\0\\0\\0\\0{}' >cut/model.safetensors && "
           "printf '{\"model_type\":\"x%s\"}' $(printf '\\303\\251%.0s' $(seq 40)) "
           ">cut/config.json && "
           "reel inspect cut",
           6, "model_type");
    expect("reel run demo -f .", 2, "is a folder");
}

static void a_repository_name_is_found_in_both_caches(void **state) {
    (void)state;
    static const char count[] = "reel tokenize some/model -p hello --count";
    expect(
        "mkdir -p home/.cache/reel/models/some && "
        "ln -s \"$DEMO\" home/.cache/reel/models/some/model && reel tokenize some/model -p hello "
        "--count && rm home/.cache/reel/models/some/model",
        0, "");
    expect(count, 3, "nor in the local cache");
    expect("h=home/.cache/huggingface/hub/models--some--model; mkdir -p $h/refs $h/snapshots && "
           "ln -s \"$DEMO\" $h/snapshots/0a1b && reel tokenize some/model -p hello --count",
           0, "");
    expect("h=home/.cache/huggingface/hub/models--some--model; mkdir $h/snapshots/ffff; "
           "reel tokenize some/model -p hello --count",
           2, "holds 2 snapshots");
    expect("h=home/.cache/huggingface/hub/models--some--model; printf 0a1b >$h/refs/main; "
           "reel tokenize some/model -p hello --count",
           0, "");
    expect("HF_HUB_CACHE=/nowhere reel tokenize some/model -p hello --count", 3, "local cache");
    expect("mkdir -p two && touch two/a.gguf two/b.gguf && reel inspect two", 2, "two/a.gguf");
}

static void inspect_describes_the_demo_model(void **state) {
    (void)state;
    struct result r = shell("reel inspect demo --tensors");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "qwen3, 8 layers"));
    assert_non_null(strstr(r.out, "model.embed_tokens.weight"));
    assert_string_equal(r.err, "");
    done(r);
    r = shell("reel inspect demo --json");
    json_t *all = json_loads(r.out, 0, NULL);
    assert_non_null(all);
    assert_true(json_is_object(json_object_get(all, "memory")));
    json_decref(all);
    done(r);
    expect("test -z \"$(ls -d ${TMPDIR:-/tmp}/reel-demo-* 2>/dev/null)\"", 0, "");
}

static void inspect_plans_for_a_gpu_that_is_not_there(void **state) {
    (void)state;
    struct result r = shell("reel inspect demo --plan --gpu h200");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "plan for h200: 132 SMs"));
    assert_non_null(strstr(r.out, "times the mean"));
    done(r);
    expect("reel inspect demo --plan --gpu h200 --gpus 2 | grep -q 'plan for 2 times h200'", 0, "");
    expect("reel inspect demo --plan --gpu h200 --gpus 9", 2, "from 1 to 8");
    expect("reel inspect demo --gpus 2", 2, "--plan");
    expect("reel inspect demo --plan --gpu abacus", 2, "rtx4090");
    expect("reel inspect demo --gpu h200", 2, "--plan");
    expect("reel inspect demo --plan --gpu h200 --json", 2, "--json");
}

static void inspect_of_a_model_reel_cannot_run_says_why(void **state) {
    (void)state;
    expect("mkdir odd && cp \"$DEMO\"/*.safetensors odd && sed 's/\"qwen3\"/\"mamba\"/' "
           "\"$DEMO\"/config.json >odd/config.json && reel inspect odd",
           6, "mamba");
    /* a tokenizer that is refused, and so what `run` says too */
    expect(
        "mkdir odder && cp \"$DEMO\"/* odder && sed 's/\"type\":\"BPE\"/\"type\":\"WordPiece\"/' "
        "\"$DEMO\"/tokenizer.json >odder/tokenizer.json && ! reel inspect odder 2>&1 | grep fits",
        0, "");
    expect("reel inspect odder", 6, "WordPiece");
    expect("reel run odder -p Hello", 6, "WordPiece");
    /* a key that no one here knows is shown */
    struct result r =
        shell("mkdir keyed && cp \"$DEMO\"/* keyed && sed 's/{/{\"gravity\": 9.81, /' "
              "\"$DEMO\"/config.json >keyed/config.json && reel inspect keyed");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "gravity"));
    done(r);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void tokens_come_back_as_the_text_they_were(void **state) {
    (void)state;
    struct result r =
        shell("printf 'Na\\303\\257ve \\360\\237\\231\\202\\n\\ttext' >text && "
              "reel tokenize demo -f text --json >json && "
              "ids=$(grep -oE '\"id\": [0-9]+' json | grep -oE '[0-9]+' | tr '\\n' ,) && "
              "reel tokenize demo --decode \"$ids\" >back && echo >>text && "
              "cmp text back && reel tokenize demo -f text --count");
    assert_int_equal(r.status, 0);
    assert_true(atoi(r.out) > 3);
    assert_string_equal(r.err, "");
    done(r);
}

static void bad_ids_are_refused_with_the_range(void **state) {
    (void)state;
    expect("reel tokenize demo --decode 1,99999999", 2, "is not an id from 0 to ");
    expect("reel tokenize demo --decode 1,x", 2, "\"x\"");
    expect("reel tokenize demo --decode -1", 2, "\"-1\"");
    expect("reel tokenize demo --decode 1 --count", 2, "--decode excludes");
    expect("printf '5 \\0 6' | reel tokenize demo --decode -", 2, "NUL byte");
}

/* U+1D160 is 4 bytes, and 12 after normalisation: more ids than the text has bytes. */
static void text_that_grows_when_normalised_is_encoded(void **state) {
    (void)state;
    struct result r = shell("for i in 1 2 3; do printf '\\360\\235\\205\\240'; done >notes && "
                            "reel tokenize demo -f notes --count && "
                            "reel run demo -f notes -n 1 -q >answer && reel score demo notes");
    if (r.status != 0) fail_msg("%s", r.err);
    assert_true(atoi(r.out) > 12);
    done(r);
}

static void a_text_too_short_to_score_is_an_argument_out_of_range(void **state) {
    (void)state;
    expect("printf a >one && reel score demo one", 2, "1 tokens, allowed are 2 to ");
    expect("printf 'a long day' >more && reel score demo more -c 1", 2, "at least 2 positions");
}

/* ---- run ------------------------------------------------------------------------------------- */

static void text_goes_to_stdout_and_figures_to_stderr(void **state) {
    (void)state;
    struct result r = shell("reel run demo -n 12 --seed 1 </dev/null");
    assert_int_equal(r.status, 0);
    assert_memory_equal(r.out, "It was", 6);
    assert_null(strstr(r.out, "t/s"));
    assert_non_null(strstr(r.err, "answer 12 tokens"));
    assert_non_null(strstr(r.err, "seed 1"));
    assert_null(strchr(r.err, '\033'));
    assert_null(strchr(r.err, '\r'));
    done(r);
    r = shell("reel run demo -n 12 -p Emma -q");
    assert_string_equal(r.err, "");
    done(r);
}

static void the_same_seed_gives_the_same_text(void **state) {
    (void)state;
    struct result a = shell("reel run demo -n 40 --seed 7 --temp 1 -p Emma");
    struct result b = shell("reel run demo -n 40 --seed 7 --temp 1 -p Emma -t 1");
    struct result c = shell("reel run demo -n 40 --seed 8 --temp 1 -p Emma");
    assert_string_equal(a.out, b.out);
    assert_string_not_equal(a.out, c.out);
    done(a);
    done(b);
    done(c);
}

static void json_holds_text_ids_reason_and_timings(void **state) {
    (void)state;
    struct result r = shell("echo Emma | reel run demo -f - -n 9 --temp 0 --json");
    struct result plain = shell("echo Emma | reel run demo -f - -n 9 --temp 0");
    json_t *all = json_loads(r.out, 0, NULL);
    assert_non_null(all);
    assert_int_equal(json_array_size(json_object_get(all, "ids")), 9);
    assert_string_equal(json_string_value(json_object_get(all, "reason")), "max_tokens");
    const json_t *timings = json_object_get(all, "timings");
    assert_true(json_number_value(json_object_get(timings, "first_token_ms")) > 0);
    const char *text = json_string_value(json_object_get(all, "text"));
    assert_int_equal(strlen(plain.out), strlen(text) + 1);
    assert_memory_equal(plain.out, text, strlen(text));
    json_decref(all);
    done(r);
    done(plain);
}

static void a_stop_string_ends_the_text_before_it(void **state) {
    (void)state;
    struct result r = shell("reel run demo -p Emma --temp 0 -n 300 --stop ' the' --stop ' and'");
    assert_int_equal(r.status, 0);
    assert_null(strstr(r.out, " the"));
    assert_null(strstr(r.out, " and"));
    assert_non_null(strstr(r.err, "stop string"));
    done(r);
}

static void a_full_context_is_named_as_the_reason(void **state) {
    (void)state;
    expect("reel run demo -p Emma -n 0 -c 24 --ignore-eos", 0, "| the context is full");
    expect("reel run demo -p 'a b c d e f g h i j k l m n o p q r s t' -c 8", 9, "8");
}

static void a_failing_output_is_reported(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    struct result r = shell("reel run demo -n 200 -p Emma >/dev/full");
    assert_int_equal(r.status, REEL_E_IO);
    assert_non_null(strstr(r.err, "writing to standard output failed"));
    done(r);
    expect("reel help >/dev/full", 4, "writing to standard output failed");
}

/* Their numbers must not go to the next file that is opened. */
static void closed_streams_are_not_mistaken_for_other_files(void **state) {
    (void)state;
    expect("reel run demo -n 2 -p Emma <&- >&-", REEL_E_IO, "writing to standard output failed");
    expect("reel run demo -n 2 -f - <&-", REEL_E_IO, "standard input: Bad file descriptor");
    struct result r = shell("reel run demo -n 2 -p Emma <&- >&- 2>&-; echo $?");
    assert_string_equal(r.out, "4\n");
    done(r);
}

static void a_closed_pipe_ends_it_quietly(void **state) {
    (void)state;
    struct result r = shell("reel run demo -n 0 -p Emma | head -c 1");
    assert_int_equal(strlen(r.out), 1);
    assert_string_equal(r.err, "");
    done(r);
}

static void an_interrupt_ends_the_text_and_keeps_the_figures(void **state) {
    (void)state;
    expect("reel run demo -n 0 -p Emma --ignore-eos >begun & p=$!; "
           "until [ -s begun ]; do sleep 0.02; done; kill -INT $p; wait $p",
           REEL_E_CANCELLED, "| interrupted");
}

/* The file has to shrink while the model is open, hence chat, which waits for its next line. */
static void a_model_file_that_shrinks_ends_in_a_message(void **state) {
    (void)state;
    expect("cp -r \"$DEMO\" shrinking; mkfifo lines; "
           "reel chat shrinking --chat-template chatml --cpu-path reference -n 2 <lines >answers & "
           "p=$!; trap '' PIPE; exec 3>lines; echo hello >&3; until [ -s answers ]; do sleep 0.02; "
           "done; "
           "truncate -s 4096 shrinking/model.safetensors; echo more >&3 2>/dev/null; exec 3>&-; "
           "wait $p",
           REEL_E_IO, "became shorter while it was in use");
}

/* ---- chat ------------------------------------------------------------------------------------ */

#define CHAT "reel chat demo --chat-template chatml --temp 0 "

static void a_draft_model_changes_no_id(void **state) {
    (void)state;
    struct result with =
                      shell("reel run \"$DEMO\" --draft \"$DEMO\" --speculate draft --draft-max 3 "
                            "-n 30 --seed 4 --temp 0.8 Once --json --verbose"),
                  without = shell("reel run \"$DEMO\" -n 30 --seed 4 --temp 0.8 Once --json "
                                  "--speculate off");
    json_t *both[2] = { json_loads(with.out, 0, NULL), json_loads(without.out, 0, NULL) };
    assert_non_null(both[0]);
    assert_non_null(both[1]);
    assert_true(json_equal(json_object_get(both[0], "ids"), json_object_get(both[1], "ids")));
    const json_t *timings = json_object_get(both[0], "timings");
    assert_true(json_integer_value(json_object_get(timings, "drafted")) > 0);
    assert_true(json_integer_value(json_object_get(timings, "passes")) < 12);
    assert_non_null(strstr(with.err, " guesses for "));
    assert_non_null(strstr(with.err, " drafts right)"));
    json_decref(both[0]);
    json_decref(both[1]);
    done(with);
    done(without);
    struct result chat =
        shell("printf 'Hello\\n' | reel chat \"$DEMO\" --chat-template chatml --draft "
              "\"$DEMO\" --speculate draft -n 9");
    assert_int_equal(chat.status, 0);
    done(chat);
    struct result bench =
        shell("reel bench \"$DEMO\" --draft \"$DEMO\" --speculate draft -p 0 -n 20 "
              "-r 1");
    assert_int_equal(bench.status, 0);
    assert_non_null(strstr(bench.out, " guesses, and what it reads is not in GB/s; "));
    assert_non_null(strstr(bench.out, " guesses were right\n"));
    done(bench);
    bench = shell("reel bench \"$DEMO\" --draft \"$DEMO\" -p 0 -n 1 -r 1");
    assert_non_null(strstr(bench.out, "\nno guess of "));
    assert_null(strstr(bench.out, " guesses, and what it reads"));
    done(bench);
    expect("reel run \"$DEMO\" --speculate draft hello", REEL_E_ARGUMENT,
           "--speculate draft needs --draft MODEL");
    expect("reel run \"$DEMO\" --draft \"$DEMO\" --speculate mtp hello", REEL_E_ARGUMENT,
           "--draft is for --speculate draft or auto; --speculate mtp has no use for it");
    expect("reel run \"$DEMO\" --draft no/model hello", REEL_E_NOT_FOUND, "no/model");
    expect("reel run \"$DEMO\" --draft-head no/head hello", REEL_E_NOT_FOUND, "no/head");
    expect("reel run \"$DEMO\" --draft-head \"$DEMO\" --device cpu hello", REEL_E_UNSUPPORTED,
           "supported is an EAGLE-3 head");
    expect("reel run \"$DEMO\" --speculate eagle3 hello", REEL_E_ARGUMENT,
           "--speculate eagle3 needs --draft-head FOLDER");
    expect("reel run \"$DEMO\" --draft 3 hello", REEL_E_NOT_FOUND,
           "; --draft names a model, and --draft-max is the number of guesses");
}

static void a_draft_model_is_not_opened_where_no_guess_is_checked(void **state) {
    (void)state;
    struct result run = shell("reel run \"$DEMO\" --draft no/model --cpu-path reference -n 3 "
                              "--verbose Once"),
                  bench = shell("reel bench \"$DEMO\" --draft \"$DEMO\" --cpu-path reference -p 0 "
                                "-n 3 -r 1");
    const char warning[] = " checks no guesses on this device and path (cpu, reference); --draft "
                           "is passed over\n";
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.err, warning));
    assert_null(strstr(run.err, " guesses for "));
    assert_int_equal(bench.status, 0);
    assert_non_null(strstr(bench.err, warning));
    assert_null(strstr(bench.out, "guess"));
    done(run);
    done(bench);
    expect("reel run \"$DEMO\" --draft \"$DEMO\" --speculate draft --cpu-path reference hello",
           REEL_E_UNSUPPORTED, "--speculate draft: ");
}

static void chat_answers_the_lines_of_a_pipe(void **state) {
    (void)state;
    struct result r =
        shell("printf 'hello\\n\\ntwo \\\\\\nlines\\n/save saved.json\\n/stats\\n' | " CHAT
              "-n 5 --system 'Be brief.' && cat saved.json");
    assert_int_equal(r.status, 0);
    assert_null(strchr(r.out, '>'));
    assert_null(strchr(r.out, '\033'));
    assert_null(strchr(r.err, '\033'));
    assert_non_null(strstr(r.err, "saved.json: 5 messages"));
    assert_non_null(strstr(r.err, "positions used; last: prompt"));
    json_t *saved = json_loads(strchr(r.out, '['), 0, NULL);
    assert_int_equal(json_array_size(saved), 5);
    const json_t *question = json_array_get(saved, 3);
    assert_string_equal(json_string_value(json_object_get(question, "content")), "two \nlines");
    json_decref(saved);
    done(r);
}

static void chat_reuses_what_the_session_holds(void **state) {
    (void)state;
    expect("printf 'hello\\nagain\\n/stats\\n' | " CHAT "-n 5", 0, " reused)");
}

static void a_full_context_ends_a_piped_chat_with_status_9(void **state) {
    (void)state;
    expect("printf 'hello\\nmore\\nmore\\nmore\\n' | " CHAT "-c 64", REEL_E_CONTEXT,
           "the context is full");
}

static void chat_without_a_known_template_is_refused(void **state) {
    (void)state;
    expect("echo hello | reel chat demo", REEL_E_UNSUPPORTED, "no chat template");
    expect("cp -r \"$DEMO\" odd-chat && printf '\\n{{ odd' >odd-chat/chat_template.jinja && "
           "echo hello | reel chat odd-chat",
           REEL_E_UNSUPPORTED, "cannot be evaluated: chat_template.jinja");
    expect("reel run odd-chat -p x", REEL_E_UNSUPPORTED, "--chat-template gives it another");
    expect("reel inspect odd-chat", REEL_E_UNSUPPORTED, "cannot be evaluated: chat_template");
    expect("reel run odd-chat -p x -n 1 --raw", 0, "answer 1 tokens");
    expect("reel run odd-chat -p x -n 1 --chat-template chatml --think on", 2, "no thinking");
}

static void a_chat_template_is_a_name_a_text_or_a_file(void **state) {
    (void)state;
#define ASK "reel run demo -q --temp 0 -n 4 -p 'Who is Emma?' --chat-template "
    struct result name = shell(ASK "chatml"), raw;
    struct result text = shell(ASK "\"$(printf '{%% for m in messages %%}{{ \"<|im_start|>\" + "
                                   "m.role }}\\n{{ m.content }}<|im_end|>\\n{%% endfor %%}"
                                   "{{ \"<|im_start|>assistant\\\\n\" }}')\"");
    assert_int_equal(name.status, 0);
    assert_int_equal(text.status, 0);
    assert_string_equal(name.out, text.out);
    raw = shell("printf '{{ messages[0].content }}' >plain.jinja; " ASK "plain.jinja");
    assert_int_equal(raw.status, 0);
    done(text);
    text = shell("reel run demo -q --temp 0 -n 4 -p 'Who is Emma?' --raw");
    assert_string_equal(raw.out, text.out);
    expect(ASK "no-such-template", 2, "zephyr");
    expect(ASK "chatm", 2, "did you mean chatml?");
    expect(ASK "''", 2, "a file or the text of a template");
    expect(ASK ".", REEL_E_ARGUMENT, "is a folder");
    expect("printf '{{ a\\377 }}' >bytes.jinja; " ASK "bytes.jinja", 2,
           "bytes.jinja: not valid UTF-8");
    /* what is wrong with a template: where, at which line, what was found */
    expect("printf 'a\\n{%% for x in %%}' >for.jinja; " ASK "for.jinja", 2,
           "for.jinja:2: Expected an expression, got 'end of statement block'");
    expect("printf '\\n\\n{{ messages|nosuch }}' >filter.jinja; " ASK "filter.jinja", 2,
           "filter.jinja:3: No filter named 'nosuch'");
    expect("printf '{%% block a %%}{%% endblock %%}' >tag.jinja; " ASK "tag.jinja", 2,
           "tag.jinja:1: the tag 'block'");
    expect(ASK "'{{ messages'", 2, "the given chat template:1: expected token 'end of print");
    /* and with a rendering */
    expect("printf '\\n{{ messages.x.y }}' >none.jinja; " ASK "none.jinja", 2,
           "none.jinja:2: 'list object' has no attribute 'x'");
    expect(ASK "'{{ raise_exception(\"only a user\") }}'", 2, "the template refuses: only a user");
    expect(ASK "'{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}'",
           REEL_E_LIMIT, "steps, which is the limit");
    expect("echo plain >plain.txt; " ASK "plain.txt", REEL_E_FORMAT, "no template in Jinja");
    done(name);
    done(text);
    done(raw);
}

/* In qwen3.5's conversations the prompt opens thinking; with qwen3's the model writes the tag. */
static void thinking_that_the_prompt_opened_shows_its_tag(void **state) {
    (void)state;
#define THINK "reel run demo --chat-template qwen3.5 --temp 0 -n 3 -q -p x --think "
    struct result on = shell(THINK "on"), json = shell(THINK "on --json"), off = shell(THINK "off");
    assert_int_equal(on.status, 0);
    assert_int_equal(strncmp(on.out, "<think>\n", 8), 0);
    assert_non_null(strstr(json.out, "\"text\": \"<think>\\n"));
    assert_int_equal(off.status, 0);
    assert_null(strstr(off.out, "<think>"));
    done(on);
    done(json);
    done(off);
}

static void mistakes_in_chat_commands_end_a_piped_chat(void **state) {
    (void)state;
    expect("echo /sttas | " CHAT, 2, "did you mean /stats");
    expect("echo /think maybe | " CHAT, 2, "on or off");
    expect("echo /save | " CHAT, 2, "needs a file name");
    expect("echo /save /no/such/folder/file | " CHAT, REEL_E_IO, "/no/such/folder/file");
    expect("mkfifo pipe; echo /save pipe | " CHAT "; s=$?; test -p pipe && exit $s", REEL_E_IO,
           "pipe: is there and not a regular file");
    expect("printf 'a\\0b\\n' | " CHAT, 2, "a line holds a NUL byte");
    expect("head -c 3000000 /dev/zero | tr '\\0' x | " CHAT, REEL_E_LIMIT, "a line of more than");
    expect("printf '/help\\n/reset\\n/system Hi\\n/think off\\n/quit\\nnever read\\n' | " CHAT, 0,
           "knows no thinking");
}

/* ---- synthesize ------------------------------------------------------------------------------ */

/* A shape of 0.1 million parameters; the smallest named one has 135 million. */
#define TINY                                                                                       \
    "printf '%s' '{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\","             \
    "\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":2,"                        \
    "\"num_key_value_heads\":1,\"head_dim\":32,\"intermediate_size\":64,\"vocab_size\":1000,"      \
    "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,"                     \
    "\"max_position_embeddings\":64,\"eos_token_id\":256}' >tiny.json && "

static void bench_says_how_ids_were_picked_and_asked_for(void **state) {
    (void)state;
    struct result r = shell("reel bench demo --device cpu -p 4 -n 8 -d 0,20 -r 2 -o csv");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, ",pp4,4,0,0,2,"));
    assert_non_null(strstr(r.out, ",tg8,0,8,0,2,"));
    assert_non_null(strstr(r.out, ",tg8 @ d20,0,8,20,2,"));
    assert_non_null(strstr(r.out, ",greedy,one call a run,bf16,16."));
    done(r);
    if (sanitized_briefly()) return; /* other words about the same way */
    r = shell("reel bench demo --device cpu -p 0 -n 0 --pg 4,8 -r 2 --temp 0.8 "
              "--one-launch-per-token -o json");
    assert_int_equal(r.status, 0);
    json_t *json = json_loads(r.out, 0, NULL);
    const json_t *row = json_array_get(json_object_get(json, "results"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "test")), "pp4+tg8");
    assert_true(json_number_value(json_object_get(row, "prompt_ts")) > 0);
    assert_true(json_number_value(json_object_get(row, "decode_ts")) > 0);
    assert_string_equal(json_string_value(json_object_get(json, "ids")), "sampled");
    assert_string_equal(json_string_value(json_object_get(json, "calls")), "one call a token");
    json_decref(json);
    done(r);
}

static void bench_measures_several_sessions_at_once(void **state) {
    (void)state;
    struct result r =
        shell("reel bench demo --device cpu --parallel 1,3 -p 8 -n 6 -d 4 -r 1 -o csv");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, ",parallel,8,6,1,18,"));
    assert_non_null(strstr(r.out, ",parallel,8,6,3,54,"));
    done(r);
    if (sanitized_briefly()) return; /* other words about the same way */
    r = shell("reel bench demo --device cpu --parallel 2 --arrivals -p 20 -n 8 -r 2 -o json");
    assert_int_equal(r.status, 0);
    json_t *json = json_loads(r.out, 0, NULL);
    const json_t *row = json_array_get(json_object_get(json, "results"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "test")), "arrivals");
    assert_int_equal(json_integer_value(json_object_get(row, "pl")), 2);
    assert_int_equal(json_integer_value(json_object_get(row, "n_kv")), 36);
    const double t_pp = json_number_value(json_object_get(row, "t_pp"));
    const double read = json_number_value(json_object_get(row, "speed_pp")) * t_pp;
    assert_true(read > 19.99 && read < 20.01);
    assert_true(json_is_null(json_object_get(row, "t_tg")));
    json_decref(json);
    done(r);
    r = shell("reel bench demo --device cpu --arrivals");
    assert_int_equal(r.status, REEL_E_ARGUMENT);
    assert_string_equal(r.err, "reel: --arrivals is for --parallel\n");
    done(r);
    r = shell("reel bench demo --device cpu --parallel 257");
    assert_int_equal(r.status, REEL_E_ARGUMENT);
    done(r);
}

static void synthesize_writes_a_folder_that_inspect_and_run_open(void **state) {
    (void)state;
    struct result r = shell(TINY "reel synthesize made tiny.json");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "made\n");
    assert_string_equal(r.err, "");
    done(r);
    r = shell("reel inspect made");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "qwen3, 1 layers, hidden 64, intermediate 64"));
    done(r);
    expect("reel run made -p x -n 2 --raw", 0, "answer");
}

static void the_seed_of_synthesize_chooses_the_weights(void **state) {
    (void)state;
    expect(TINY "reel synthesize s0 tiny.json && reel synthesize s0-again tiny.json --seed 0 && "
                "reel synthesize s1 tiny.json --seed 1 && "
                "cmp s0/model.safetensors s0-again/model.safetensors && "
                "! cmp -s s0/model.safetensors s1/model.safetensors",
           0, "");
}

static void synthesize_refuses_what_is_there_and_what_it_does_not_know(void **state) {
    (void)state;
    expect("mkdir there && reel synthesize there qwen3-0.6b", 2, "exists already");
    expect("reel synthesize new qwen3-0.9b", REEL_E_NOT_FOUND, "known are qwen3-0.6b");
    expect("echo '{}' >empty.json && reel synthesize new empty.json", REEL_E_FORMAT, "model_type");
    expect("reel synthesize new", 2, "SHAPE");
    expect("reel synthesize new qwen3-0.6b --seed -1", 2, "--seed");
    expect("reel synthesize no/such/parent smollm2-135m", REEL_E_IO, "no/such/parent");
    expect("test ! -e new", 0, "");
}

static void help_names_every_shape_that_synthesize_knows(void **state) {
    (void)state;
    struct result help = shell("reel help synthesize | tr -s ' \\n' ' '");
    struct result known = shell("reel synthesize new no-shape");
    int n = 0;
    char *names = strstr(known.err, "known are ");
    assert_non_null(names);
    for (char *name = strtok(names + 10, ", \n"); name; name = strtok(NULL, ", \n"), n++)
        if (!strstr(help.out, name)) fail_msg("help does not name %s:\n%s", name, help.out);
    assert_true(n >= 9);
    done(help);
    done(known);
}

static char *read_page(const char *path) {
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "r");
    assert_true(text && file);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 100);
    fclose(file);
    return text;
}

/* The library's list is the source; each option stands in all three with its range and default. */
static void gpu_options_are_in_help_man_page_and_docs(void **state) {
    (void)state;
    struct reel_gpu_option o = { .size = sizeof o };
    struct result help = shell("reel help gpu-options | tr -s ' \\n' ' '");
    struct result man =
        shell("reel help --man | tr -d '\\\\' | sed -n '/^.SH GPU OPTIONS/,/^.SH EXIT/p'");
    char *page = read_page("docs/GPU_OPTIONS.md"), line[600];
    int n = 0;
    for (; reel_gpu_option(n, &o, NULL) == REEL_OK; n++) {
        const long long least = o.least, most = o.most, standard = o.standard;
        snprintf(line, sizeof line, " %s %s (%lld to %lld; default %lld)", o.key, o.meaning, least,
                 most, standard);
        if (!strstr(help.out, line)) fail_msg("reel help gpu-options lacks:%s", line);
        snprintf(line, sizeof line, "fB%sfR (%lld to %lld; default %lld)\n%s\n", o.key, least, most,
                 standard, o.meaning);
        if (!strstr(man.out, line)) fail_msg("the man page lacks: %s", line);
        snprintf(line, sizeof line, "\n| `%s` | %lld to %lld | %lld | %s |\n", o.key, least, most,
                 standard, o.meaning);
        if (!strstr(page, line)) fail_msg("docs/GPU_OPTIONS.md lacks: %s", line);
    }
    int rows = 0;
    for (char *at = page; (at = strstr(at, "\n| `")); at++)
        rows++;
    assert_true(n > 20);
    assert_int_equal(rows, n);
    free(page);
    done(help);
    done(man);
    expect("reel run --help | tr -s ' \\n' ' ' | grep -q 'reel help gpu-options'", 0, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_options_are_in_help_man_page_and_docs),
        cmocka_unit_test(every_command_explains_itself),
        cmocka_unit_test(help_and_version_work_without_a_command),
        cmocka_unit_test(the_man_page_names_every_option),
        cmocka_unit_test(bash_completes_commands_options_and_choices),
        cmocka_unit_test(mistakes_in_names_are_answered_with_the_nearest),
        cmocka_unit_test(numbers_are_read_strictly_and_the_range_is_named),
        cmocka_unit_test(arguments_that_do_not_fit_are_refused),
        cmocka_unit_test(a_profile_without_its_gpu_is_refused_as_a_run_on_it_is),
        cmocka_unit_test(a_model_that_is_not_there_ends_with_status_3),
        cmocka_unit_test(a_file_of_another_kind_ends_with_status_5),
        cmocka_unit_test(a_repository_name_is_found_in_both_caches),
        cmocka_unit_test(inspect_describes_the_demo_model),
        cmocka_unit_test(inspect_plans_for_a_gpu_that_is_not_there),
        cmocka_unit_test(inspect_of_a_model_reel_cannot_run_says_why),
        cmocka_unit_test(tokens_come_back_as_the_text_they_were),
        cmocka_unit_test(bad_ids_are_refused_with_the_range),
        cmocka_unit_test(text_that_grows_when_normalised_is_encoded),
        cmocka_unit_test(a_text_too_short_to_score_is_an_argument_out_of_range),
        cmocka_unit_test(text_goes_to_stdout_and_figures_to_stderr),
        cmocka_unit_test(the_same_seed_gives_the_same_text),
        cmocka_unit_test(json_holds_text_ids_reason_and_timings),
        cmocka_unit_test(a_stop_string_ends_the_text_before_it),
        cmocka_unit_test(a_full_context_is_named_as_the_reason),
        cmocka_unit_test(a_failing_output_is_reported),
        cmocka_unit_test(closed_streams_are_not_mistaken_for_other_files),
        cmocka_unit_test(a_closed_pipe_ends_it_quietly),
        cmocka_unit_test(an_interrupt_ends_the_text_and_keeps_the_figures),
        cmocka_unit_test(a_model_file_that_shrinks_ends_in_a_message),
        cmocka_unit_test(a_draft_model_changes_no_id),
        cmocka_unit_test(a_draft_model_is_not_opened_where_no_guess_is_checked),
        cmocka_unit_test(chat_answers_the_lines_of_a_pipe),
        cmocka_unit_test(chat_reuses_what_the_session_holds),
        cmocka_unit_test(a_full_context_ends_a_piped_chat_with_status_9),
        cmocka_unit_test(chat_without_a_known_template_is_refused),
        cmocka_unit_test(a_chat_template_is_a_name_a_text_or_a_file),
        cmocka_unit_test(thinking_that_the_prompt_opened_shows_its_tag),
        cmocka_unit_test(mistakes_in_chat_commands_end_a_piped_chat),
        cmocka_unit_test(bench_says_how_ids_were_picked_and_asked_for),
        cmocka_unit_test(bench_measures_several_sessions_at_once),
        cmocka_unit_test(synthesize_writes_a_folder_that_inspect_and_run_open),
        cmocka_unit_test(the_seed_of_synthesize_chooses_the_weights),
        cmocka_unit_test(synthesize_refuses_what_is_there_and_what_it_does_not_know),
        cmocka_unit_test(help_names_every_shape_that_synthesize_knows),
    };
    return cmocka_run_group_tests(tests, shell_enter, shell_leave);
}
