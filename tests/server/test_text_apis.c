/* The text interfaces over HTTP, on the demo model: what they answer, and what they refuse. */
#include "tests/support/asking.h"
#include "tests/support/served.h"

#include "base/file_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct served served;

static int set_up(void **state) {
    (void)state;
    served.options.context = 256;
    served.options.sessions = 2;
    if (served_open(&served)) return 0;
    fprintf(stderr, "%s\n", served.err.text);
    return -1;
}

static int tear_down(void **state) {
    (void)state;
    served_close(&served);
    return 0;
}

/* ---- chat ---- */

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"She was\"}]"

static void chat_answers_whole(void **state) {
    (void)state;
    json_t *json = ask(served.port, "/v1/chat/completions",
                       "{" HELLO ",\"model\":\"demo\",\"max_tokens\":5,\"temperature\":0}", 200);
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    assert_string_equal(field_of(json, "object"), "chat.completion");
    assert_string_equal(field_of(choice, "finish_reason"), "length");
    assert_int_equal(number_of(json_object_get(json, "usage"), "completion_tokens"), 5);
    json_decref(json);
}

static void chat_refuses_by_name(void **state) {
    static const char path[] = "/v1/chat/completions";
    (void)state;
    assert_refused(served.port, path, "{" HELLO ",\"temperature\":-1}", "temperature");
    assert_refused(served.port, path, "{" HELLO ",\"top_logprobs\":3}", "top_logprobs");
    assert_refused(served.port, path, "{\"messages\":[]}", "messages");
    assert_refused(served.port, path, "{" HELLO ",\"n\":1000000}", "n");
    assert_refused(served.port, path, "{" HELLO ",\"top_p\":1.5}", "top_p");
    assert_refused(served.port, path, "{" HELLO ",\"top_p\":-0.5}", "top_p");
    assert_refused(served.port, path, "{" HELLO ",\"repetition_penalty\":0}", "repetition_penalty");
}

/* Fields that would change the answer and are not kept: nobody gets another answer unasked. */
static void what_is_not_kept_is_refused_by_name(void **state) {
    static const char *const refused[][2] = {
        { "functions", "[{\"name\":\"f\",\"parameters\":{}}]" },
        { "functions", "[]" },
        { "function_call", "\"auto\"" },
        { "function_call", "{\"name\":\"f\"}" },
        { "chat_template", "\"{{ messages }}\"" },
        { "tool_choice", "\"required\"" },
        { "tool_choice", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}" },
        { "tool_choice", "\"any\"" },
        { "response_format", "{\"type\":\"json_object\"}" },
        { "response_format", "{\"type\":\"json_schema\",\"json_schema\":{}}" },
        { "response_format", "{}" },
        { "guided_json", "{\"type\":\"object\"}" },
        { "guided_regex", "\"a+\"" },
        { "guided_choice", "[\"yes\",\"no\"]" },
        { "guided_grammar", "\"root ::= 'a'\"" },
        { "structured_outputs", "{\"regex\":\"a\"}" },
        { "grammar", "\"root ::= 'a'\"" },
        { "json_schema", "{}" },
        { "allowed_token_ids", "[1]" },
        { "bad_words", "[\"no\"]" },
        { "stop_token_ids", "7" },
        { "stop_token_ids", "[\"a\"]" },
        { "stop_token_ids", "[-1]" },
        { "stop_token_ids", "[1,99999999]" },
        { "min_tokens", "-1" },
        { "min_tokens", "3" },
        { "min_tokens", "9" },
        { "parallel_tool_calls", "7" },
        { "modalities", "\"audio\"" },
        { "continue_final_message", "7" },
    };
    static const char *const passed[] = {
        "\"functions\":null,\"function_call\":null,\"chat_template\":null,\"tool_choice\":null",
        "\"guided_json\":null,\"bad_words\":[],\"allowed_token_ids\":null,\"grammar\":null",
        "\"response_format\":{\"type\":\"text\"},\"tool_choice\":\"none\",\"tools\":[]",
        "\"stop_token_ids\":[],\"min_tokens\":0,\"parallel_tool_calls\":true",
        "\"min_tokens\":3,\"ignore_eos\":true,\"stop\":[]",
    };
    char body[600];
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(body, sizeof body, "{" HELLO ",\"max_tokens\":5,\"%s\":%s}", refused[i][0],
                 refused[i][1]);
        assert_refused(served.port, "/v1/chat/completions", body, refused[i][0]);
    }
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        snprintf(body, sizeof body, "{" HELLO ",\"max_tokens\":5,%s}", passed[i]);
        json_decref(ask(served.port, "/v1/chat/completions", body, 200));
    }
    assert_refused(served.port, "/apply-template", "{" HELLO ",\"chat_template\":\"a\"}",
                   "chat_template");
    assert_refused(served.port, "/tokenize", "{" HELLO ",\"chat_template\":\"a\"}",
                   "chat_template");
    assert_refused(served.port, "/v1/completions",
                   "{\"prompt\":\"a\",\"guided_regex\":\"a\",\"max_tokens\":1}", "guided_regex");
}

static void assert_says(const char *more, const char *want) {
    char body[600];
    snprintf(body, sizeof body, "{" HELLO ",\"max_tokens\":12,\"ignore_eos\":true,%s}", more);
    json_t *json = ask(served.port, "/v1/chat/completions", body, 200);
    const json_t *choices = json_object_get(json, "choices");
    for (size_t i = 0; i < json_array_size(choices); i++)
        assert_string_equal(
            field_of(json_object_get(json_array_get(choices, i), "message"), "content"), want);
    json_decref(json);
}

/* OpenAI's smallest nucleus, where the library's 0 would leave all tokens in. */
static void a_top_p_of_0_takes_the_likeliest_token(void **state) {
    char want[500];
    (void)state;
    json_t *json = ask(served.port, "/v1/chat/completions",
                       "{" HELLO ",\"max_tokens\":12,\"ignore_eos\":true,\"temperature\":0}", 200);
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    snprintf(want, sizeof want, "%s", field_of(json_object_get(choice, "message"), "content"));
    json_decref(json);
    assert_says("\"temperature\":2,\"top_p\":0,\"n\":4,\"seed\":1", want);
    assert_says("\"temperature\":2,\"top_p\":1e-60,\"n\":4,\"seed\":1", want);
    assert_says("\"temperature\":2,\"top_p\":0.0,\"n\":2,\"seed\":7", want);
    json = ask(served.port, "/v1/responses",
               "{\"input\":\"a\",\"max_output_tokens\":2,\"temperature\":1.5,\"top_p\":0}", 200);
    assert_true(json_number_value(json_object_get(json, "top_p")) == 0); /* as it was sent */
    assert_true(json_number_value(json_object_get(json, "temperature")) == 1.5);
    json_decref(json);
}

/* ---- completions ---- */

#define COMPLETIONS "/v1/completions"

static const json_t *choice_of(const json_t *json, size_t index) {
    const json_t *choice = json_array_get(json_object_get(json, "choices"), index);
    if (!choice) fail_msg("no choice %zu", index);
    assert_int_equal(number_of(choice, "index"), index);
    return choice;
}

static void completions_take_four_forms_of_prompts(void **state) {
    (void)state;
    json_t *tokens = ask(served.port, "/tokenize", "{\"content\":\"She was a\"}", 200);
    json_t *text = ask(served.port, COMPLETIONS,
                       "{\"prompt\":\"She was a\",\"temperature\":0,\"max_tokens\":6}", 200);
    char *ids = json_dumps(json_object_get(tokens, "tokens"), JSON_COMPACT);
    char body[1000];
    snprintf(body, sizeof body, "{\"prompt\":%s,\"temperature\":0,\"max_tokens\":6}", ids);
    json_t *one = ask(served.port, COMPLETIONS, body, 200);
    snprintf(body, sizeof body, "{\"prompt\":[[%d],%s],\"temperature\":0,\"max_tokens\":6}", 70,
             ids);
    json_t *many = ask(served.port, COMPLETIONS, body, 200);
    json_t *texts =
        ask(served.port, COMPLETIONS,
            "{\"prompt\":[\"He\",\"She was a\"],\"temperature\":0,\"max_tokens\":6}", 200);
    const char *want = field_of(choice_of(text, 0), "text");
    assert_true(strlen(want) > 6);
    assert_string_equal(field_of(text, "object"), "text_completion");
    assert_string_equal(field_of(choice_of(text, 0), "finish_reason"), "length");
    assert_string_equal(field_of(choice_of(one, 0), "text"), want);
    assert_string_equal(field_of(choice_of(many, 1), "text"), want);
    assert_string_equal(field_of(choice_of(texts, 1), "text"), want);
    assert_int_equal(number_of(json_object_get(texts, "usage"), "completion_tokens"), 12);
    free(ids);
    json_decref(tokens);
    json_decref(text);
    json_decref(one);
    json_decref(many);
    json_decref(texts);
}

static void completions_have_16_tokens_unless_told(void **state) {
    (void)state;
    json_t *json =
        ask(served.port, COMPLETIONS, "{\"prompt\":\"She\",\"ignore_eos\":true,\"n\":2}", 200);
    assert_int_equal(number_of(json_object_get(json, "usage"), "completion_tokens"), 32);
    choice_of(json, 1);
    json_decref(json);
}

static double real_at(const json_t *list, size_t i) {
    const json_t *value = json_array_get(list, i);
    if (!json_is_number(value)) fail_msg("no number at %zu", i);
    return json_number_value(value);
}

/* The prompt's log-probabilities are those that the same tokens had when they were generated. */
static void completions_echo_exact_logprobs(void **state) {
    (void)state;
    json_t *made = ask(served.port, COMPLETIONS,
                       "{\"prompt\":\"She was\",\"temperature\":0,\"max_tokens\":8,\"logprobs\":2,"
                       "\"echo\":true}",
                       200);
    const json_t *first = choice_of(made, 0), *lists = json_object_get(first, "logprobs");
    const json_t *tokens = json_object_get(lists, "tokens");
    json_t *prompt = json_pack("{s:s,s:b,s:i,s:i}", "prompt", field_of(first, "text"), "echo", 1,
                               "max_tokens", 0, "logprobs", 1);
    char *body = json_dumps(prompt, 0);
    json_t *read = ask(served.port, COMPLETIONS, body, 200);
    const json_t *again = json_object_get(choice_of(read, 0), "logprobs");
    const size_t n = json_array_size(tokens);
    assert_string_equal(field_of(choice_of(read, 0), "text"), field_of(first, "text"));
    assert_string_equal(field_of(choice_of(read, 0), "finish_reason"), "length");
    assert_int_equal(number_of(json_object_get(read, "usage"), "completion_tokens"), 0);
    assert_true(n >= 9);
    assert_true(json_equal(tokens, json_object_get(again, "tokens")));
    assert_true(
        json_equal(json_object_get(lists, "text_offset"), json_object_get(again, "text_offset")));
    assert_true(json_is_null(json_array_get(json_object_get(again, "token_logprobs"), 0)));
    assert_true(json_is_null(json_array_get(json_object_get(again, "top_logprobs"), 0)));
    for (size_t i = 1; i < n; i++) {
        const char *name = json_string_value(json_array_get(tokens, i));
        const json_t *top = json_array_get(json_object_get(again, "top_logprobs"), i);
        double was = real_at(json_object_get(lists, "token_logprobs"), i);
        double is = real_at(json_object_get(again, "token_logprobs"), i);
        /* a position alone and one of many are rounded in another order */
        if (was - is > 0.01 || is - was > 0.01 || is > 0)
            fail_msg("token %zu '%s': %g, then %g", i, name, was, is);
        assert_true(json_number_value(json_object_get(top, name)) == is);
    }
    free(body);
    json_decref(prompt);
    json_decref(made);
    json_decref(read);
}

static void completions_score_lists_of_ids(void **state) {
    (void)state;
    json_t *json = ask(served.port, COMPLETIONS,
                       "{\"model\":\"demo\",\"prompt\":[[70,71,72],[100]],\"echo\":true,"
                       "\"max_tokens\":1,\"logprobs\":1,\"temperature\":0,\"seed\":1234}",
                       200);
    const json_t *lists = json_object_get(choice_of(json, 0), "logprobs");
    assert_int_equal(json_array_size(json_object_get(lists, "token_logprobs")), 4);
    assert_int_equal(json_array_size(json_object_get(lists, "top_logprobs")), 4);
    lists = json_object_get(choice_of(json, 1), "logprobs");
    assert_int_equal(json_array_size(json_object_get(lists, "tokens")), 2);
    json_decref(json);
}

static void completions_refuse_by_name(void **state) {
    (void)state;
    assert_refused(served.port, COMPLETIONS, "{}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"\"}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":{}}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[\"a\",7]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[1,\"a\"]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[[1],[]]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[4096]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[-1]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[1.5]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":[1e300]}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\\u0000b\"}", "prompt");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\",\"best_of\":2}", "best_of");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":21}", "logprobs");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":true}", "logprobs");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\",\"echo\":1}", "echo");
    assert_refused(served.port, COMPLETIONS, "{\"prompt\":\"a\",\"top_k\":-2}", "top_k");
    json_decref(ask(served.port, COMPLETIONS,
                    "{\"prompt\":\"a\",\"top_k\":-1,\"n_predict\":-1,\"suffix\":null,"
                    "\"logprobs\":null,\"best_of\":1,\"unknown\":[{}]}",
                    200));
}

/* The ids of a text. */
static json_t *ids_of(const char *text) {
    json_t *given = json_pack("{s:s}", "content", text);
    char *body = json_dumps(given, 0);
    json_t *made = ask(served.port, "/tokenize", body, 200);
    json_t *ids = json_incref(json_object_get(made, "tokens"));
    free(body);
    json_decref(given);
    json_decref(made);
    return ids;
}

/* A token that stops is not in the text; beside the model's own end it may be any. */
static void answers_stop_at_given_tokens(void **state) {
    static const char *const more[] = { "", ",\"ignore_eos\":true" };
    char body[500];
    (void)state;
    json_t *whole = ask(served.port, COMPLETIONS,
                        "{\"prompt\":\"She was\",\"temperature\":0,\"max_tokens\":12,"
                        "\"logprobs\":0,\"ignore_eos\":true}",
                        200);
    const json_t *choice = choice_of(whole, 0);
    const json_t *tokens = json_object_get(json_object_get(choice, "logprobs"), "tokens");
    const char *third = json_string_value(json_array_get(tokens, 3));
    json_t *ids = ids_of(third);
    assert_int_equal(json_array_size(ids), 1);
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body,
                 "{\"prompt\":\"She was\",\"temperature\":0,\"max_tokens\":12,"
                 "\"stop_token_ids\":[%d,0]%s}",
                 (int)json_integer_value(json_array_get(ids, 0)), more[i]);
        json_t *json = ask(served.port, COMPLETIONS, body, 200);
        const char *text = field_of(choice_of(json, 0), "text");
        assert_string_equal(field_of(choice_of(json, 0), "finish_reason"), "stop");
        assert_true(strlen(text) > 0);
        assert_memory_equal(text, field_of(choice, "text"), strlen(text));
        assert_true(number_of(json_object_get(json, "usage"), "completion_tokens") <= 4);
        json_decref(json);
    }
    json_decref(ids);
    json_decref(whole);
}

/* The model's end is by far the likeliest token here. */
static void min_tokens_are_made_where_they_are_max_tokens(void **state) {
    static const struct {
        const char *more;
        int n;
    } asked[] = { { "", 1 },
                  { ",\"min_tokens\":6", 6 },
                  { ",\"min_tokens\":6,\"stop\":[\"e\"]", 6 },
                  { ",\"min_tokens\":6,\"ignore_eos\":true", 6 },
                  { ",\"min_tokens\":2,\"ignore_eos\":true", 6 } };
    char body[500];
    (void)state;
    json_t *ids = ids_of("<|endoftext|>");
    assert_int_equal(json_array_size(ids), 1);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        snprintf(body, sizeof body,
                 "{\"prompt\":\"She was\",\"temperature\":0,\"max_tokens\":6,\"logit_bias\":{"
                 "\"%d\":100}%s}",
                 (int)json_integer_value(json_array_get(ids, 0)), asked[i].more);
        json_t *json = ask(served.port, COMPLETIONS, body, 200);
        assert_int_equal(number_of(json_object_get(json, "usage"), "completion_tokens"),
                         asked[i].n);
        json_decref(json);
    }
    json_decref(ids);
}

/* ---- streams ---- */

/* Only the last event before [DONE] has them. */
static void assert_timed(const char *path, const char *body, json_int_t n_generated) {
    struct events e = ask_stream(served.port, path, body);
    assert_true(e.done);
    for (int i = 0; i + 1 < e.n; i++)
        assert_null(json_object_get(e.list[i], "timings"));
    const json_t *timings = json_object_get(e.list[e.n - 1], "timings");
    assert_int_equal(number_of(timings, "predicted_n"), n_generated);
    assert_true(json_number_value(json_object_get(timings, "predicted_ms")) > 0);
    assert_true(json_number_value(json_object_get(timings, "predicted_per_second")) > 0);
    release_events(&e);
}

static void timings_are_on_the_last_event_and_count_all_answers(void **state) {
#define TIMED "\"max_tokens\":5,\"ignore_eos\":true"
#define USAGE ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
    (void)state;
    assert_timed("/v1/chat/completions", "{" HELLO "," TIMED ",\"stream\":true}", 5);
    assert_timed("/v1/chat/completions", "{" HELLO "," TIMED ",\"n\":3,\"stream\":true}", 15);
    assert_timed("/v1/chat/completions", "{" HELLO "," TIMED ",\"n\":3" USAGE, 15);
    assert_timed(COMPLETIONS, "{\"prompt\":\"a\"," TIMED ",\"stream\":true}", 5);
    assert_timed(COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]," TIMED ",\"n\":2,\"stream\":true}", 20);
    assert_timed(COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]," TIMED ",\"n\":2" USAGE, 20);
    static const char *const whole[][2] = {
        { "/v1/chat/completions", "{" HELLO "," TIMED ",\"n\":3}" },
        { COMPLETIONS, "{\"prompt\":[\"a\",\"b\",\"c\"]," TIMED "}" },
    };
    for (int i = 0; i < 2; i++) {
        json_t *json = ask(served.port, whole[i][0], whole[i][1], 200);
        assert_int_equal(number_of(json_object_get(json, "timings"), "predicted_n"), 15);
        json_decref(json);
    }
}

static void completions_stream_what_they_answer(void **state) {
    static const char more[] =
        "\"prompt\":[\"She was\",\"He\"],\"temperature\":0,\"max_tokens\":9,\"echo\":true";
    char body[500], text[2][2000] = { "", "" };
    const char *finish[2] = { NULL, NULL };
    (void)state;
    snprintf(body, sizeof body, "{%s}", more);
    json_t *whole = ask(served.port, COMPLETIONS, body, 200);
    snprintf(body, sizeof body, "{%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
             more);
    struct events e = ask_stream(served.port, COMPLETIONS, body);
    assert_true(e.done);
    for (int i = 0; i < e.n; i++) {
        const json_t *choices = json_object_get(e.list[i], "choices");
        if (json_array_size(choices) == 0) {
            assert_int_equal(i, e.n - 1);
            const json_t *usage = json_object_get(e.list[i], "usage");
            assert_int_equal(number_of(usage, "completion_tokens"), 18);
            assert_int_equal(number_of(usage, "prompt_tokens"),
                             number_of(json_object_get(whole, "usage"), "prompt_tokens"));
            continue;
        }
        const json_t *choice = json_array_get(choices, 0);
        const json_int_t index = number_of(choice, "index");
        assert_in_range(index, 0, 1);
        assert_null(finish[index]); /* it is on the last */
        finish[index] = json_string_value(json_object_get(choice, "finish_reason"));
        strcat(text[index], field_of(choice, "text"));
        assert_true(field_of(choice, "text")[0]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(text[i], field_of(choice_of(whole, i), "text"));
        assert_string_equal(finish[i], "length");
    }
    json_decref(whole);
    release_events(&e);
}

/* ---- tokens ---- */

static void tokens_come_and_go(void **state) {
    (void)state;
    static const char text[] = "\xc3\x84 caf\xc3\xa9, \xe2\x82\xac 5<|endoftext|>";
    json_t *given = json_pack("{s:s,s:b}", "content", text, "with_pieces", 1);
    char *body = json_dumps(given, 0);
    json_t *pieces = ask(served.port, "/tokenize", body, 200);
    json_object_del(given, "with_pieces");
    free(body);
    body = json_dumps(given, 0);
    json_t *made = ask(served.port, "/tokenize", body, 200);
    const json_t *tokens = json_object_get(made, "tokens");
    const size_t n = json_array_size(tokens);
    assert_int_equal(number_of(made, "count"), n);
    assert_int_equal(number_of(made, "max_model_len"), 256);
    for (size_t i = 0; i < n; i++)
        assert_true(
            json_equal(json_object_get(json_array_get(json_object_get(pieces, "tokens"), i), "id"),
                       json_array_get(tokens, i)));
    json_t *back =
        ask(served.port, "/v1/detokenize", (free(body), body = json_dumps(made, 0)), 200);
    assert_string_equal(field_of(back, "content"), text);
    assert_string_equal(field_of(back, "prompt"), text);
    free(body);
    json_decref(given);
    json_decref(pieces);
    json_decref(made);
    json_decref(back);
}

static void templates_can_be_seen(void **state) {
    (void)state;
    json_t *json = ask(served.port, "/apply-template", "{" HELLO "}", 200);
    assert_string_equal(field_of(json, "prompt"),
                        "<|im_start|>user\nShe was<|im_end|>\n<|im_start|>assistant\n");
    json_decref(json);
    json = ask(served.port, "/apply-template", "{" HELLO ",\"add_generation_prompt\":false}", 200);
    assert_string_equal(field_of(json, "prompt"), "<|im_start|>user\nShe was<|im_end|>\n");
    json_decref(json);
    json = ask(served.port, "/tokenize", "{" HELLO ",\"return_token_strs\":true}", 200);
    assert_int_equal(json_array_size(json_object_get(json, "token_strs")),
                     number_of(json, "count"));
    json_decref(json);
}

#define BEGUN                                                                                      \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Who?\"},{\"role\":\"assistant\",\"content\":"  \
    "\"She was <|im_end|>\"}],\"max_tokens\":9,\"temperature\":0"

/* The prompt ends where the message's text does, and the answer is what comes behind it. */
static void an_answer_that_was_begun_goes_on(void **state) {
    static const char more[] = "{" BEGUN ",\"continue_final_message\":true}";
    char body[1000];
    (void)state;
    json_t *shown = ask(served.port, "/apply-template", more, 200);
    assert_string_equal(field_of(shown, "prompt"), "<|im_start|>user\nWho?<|im_end|>\n"
                                                   "<|im_start|>assistant\nShe was <|im_end|>");
    json_t *tokens = ask(served.port, "/tokenize", more, 200);
    char *ids = json_dumps(json_object_get(tokens, "tokens"), JSON_COMPACT);
    snprintf(body, sizeof body, "{\"prompt\":%s,\"max_tokens\":9,\"temperature\":0}", ids);
    json_t *want = ask(served.port, COMPLETIONS, body, 200);
    json_t *chat = ask(served.port, "/v1/chat/completions", more, 200);
    json_t *message = ask(served.port, "/v1/messages", "{" BEGUN "}", 200);
    const char *text = field_of(choice_of(want, 0), "text");
    const json_t *usage = json_object_get(message, "usage");
    assert_true(strlen(text) > 8);
    assert_int_equal(number_of(usage, "input_tokens") + number_of(usage, "cache_read_input_tokens"),
                     number_of(tokens, "count"));
    assert_int_equal(number_of(json_object_get(chat, "usage"), "prompt_tokens"),
                     number_of(tokens, "count"));
    assert_string_equal(field_of(json_object_get(choice_of(chat, 0), "message"), "content"), text);
    assert_string_equal(field_of(json_array_get(json_object_get(message, "content"), 0), "text"),
                        text);
    struct events e = ask_stream(served.port, "/v1/chat/completions",
                                 "{" BEGUN ",\"continue_final_message\":true,\"stream\":true}");
    char streamed[500] = "";
    for (int i = 0; i < e.n; i++) {
        const json_t *delta = json_object_get(choice_of(e.list[i], 0), "delta");
        const char *piece = json_string_value(json_object_get(delta, "content"));
        if (piece) strcat(streamed, piece);
    }
    assert_string_equal(streamed, text);
    assert_refused(served.port, "/v1/chat/completions",
                   "{" HELLO ",\"continue_final_message\":true}", "continue_final_message");
    assert_refused(served.port, "/v1/chat/completions",
                   "{" BEGUN ",\"continue_final_message\":true,\"add_generation_prompt\":true}",
                   "continue_final_message");
    free(ids);
    release_events(&e);
    json_decref(shown);
    json_decref(tokens);
    json_decref(want);
    json_decref(chat);
    json_decref(message);
}

static void tokens_refuse_by_name(void **state) {
    (void)state;
    assert_refused(served.port, "/tokenize", "{}", "prompt");
    assert_refused(served.port, "/tokenize", "{\"content\":7}", "content");
    assert_refused(served.port, "/tokenize", "{\"prompt\":[\"a\"]}", "prompt");
    assert_refused(served.port, "/tokenize", "{\"messages\":[]}", "messages");
    assert_refused(served.port, "/tokenize", "{\"content\":\"a\",\"with_pieces\":\"yes\"}",
                   "with_pieces");
    assert_refused(served.port, "/detokenize", "{}", "tokens");
    assert_refused(served.port, "/detokenize", "{\"tokens\":[\"a\"]}", "tokens");
    assert_refused(served.port, "/detokenize", "{\"tokens\":[1,99999999]}", "tokens");
    assert_refused(served.port, "/apply-template", "{}", "messages");
    json_t *json = ask(served.port, "/detokenize", "{\"tokens\":[]}", 200);
    assert_string_equal(field_of(json, "content"), "");
    json_decref(json);
}

/* lm-evaluation-harness tokenizes by the server where this is answered. */
static void tokenizers_say_their_ends(void **state) {
    (void)state;
    json_t *json = ask(served.port, "/tokenizer_info", NULL, 200);
    assert_string_equal(field_of(json, "eos_token"), "<|endoftext|>");
    assert_true(json_is_null(json_object_get(json, "bos_token")));
    assert_int_equal(number_of(json, "model_max_length"), 256);
    json_decref(json);
}

/* ---- messages ---- */

#define MESSAGES "/v1/messages"
#define HI       "\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"She was\"}]"

static void messages_answer_and_count(void **state) {
    (void)state;
    json_t *json = ask(served.port, MESSAGES,
                       "{" HI ",\"system\":\"Be short.\",\"max_tokens\":5,\"temperature\":0}", 200);
    const json_t *usage = json_object_get(json, "usage");
    const json_t *block = json_array_get(json_object_get(json, "content"), 0);
    assert_string_equal(field_of(json, "type"), "message");
    assert_string_equal(field_of(json, "role"), "assistant");
    assert_string_equal(field_of(json, "stop_reason"), "max_tokens");
    assert_true(json_is_null(json_object_get(json, "stop_sequence")));
    assert_string_equal(field_of(block, "type"), "text");
    assert_int_equal(number_of(usage, "output_tokens"), 5);
    json_t *counted =
        ask(served.port, "/v1/messages/count_tokens", "{" HI ",\"system\":\"Be short.\"}", 200);
    assert_int_equal(number_of(counted, "input_tokens"),
                     number_of(usage, "input_tokens") +
                         number_of(usage, "cache_read_input_tokens"));
    json_decref(json);
    json_decref(counted);
}

/* The prompt as the template wrote it, from its tokens' count and a question to /apply-template
 * with the same conversation in OpenAI's words. */
static void messages_become_the_same_conversation(void **state) {
    (void)state;
    json_t *theirs = ask(
        served.port, "/v1/messages/count_tokens",
        "{\"model\":\"demo\",\"system\":[{\"type\":\"text\",\"text\":\"Be \"},{\"type\":\"text\","
        "\"text\":\"short.\"}],\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":"
        "\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},"
        "{\"type\":\"text\",\"text\":\"Yes?\"}]},{\"role\":\"user\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"Go on, \"},{\"type\":\"text\",\"text\":\"please\"}]}]}",
        200);
    json_t *ours = ask(served.port, "/tokenize",
                       "{\"messages\":[{\"role\":\"system\",\"content\":\"Be short.\"},{\"role\":"
                       "\"user\",\"content\":\"Hello\"},{\"role\":\"assistant\",\"content\":"
                       "\"Yes?\"},{\"role\":\"user\",\"content\":\"Go on, please\"}]}",
                       200);
    assert_int_equal(number_of(theirs, "input_tokens"), number_of(ours, "count"));
    json_decref(theirs);
    json_decref(ours);
}

static void messages_stop_at_their_sequence(void **state) {
    (void)state;
    json_t *whole = ask(served.port, MESSAGES, "{" HI ",\"max_tokens\":30,\"temperature\":0}", 200);
    const char *text = field_of(json_array_get(json_object_get(whole, "content"), 0), "text");
    char stop[8] = { 0 };
    assert_true(strlen(text) > 20);
    memcpy(stop, text + 10, 5);
    json_t *body = json_pack("{s:s,s:[{s:s,s:s}],s:i,s:i,s:[s,s]}", "model", "demo", "messages",
                             "role", "user", "content", "She was", "max_tokens", 30, "temperature",
                             0, "stop_sequences", "@@@@", stop);
    char *given = json_dumps(body, 0);
    json_t *json = ask(served.port, MESSAGES, given, 200);
    assert_string_equal(field_of(json, "stop_reason"), "stop_sequence");
    assert_string_equal(field_of(json, "stop_sequence"), stop);
    free(given);
    json_decref(body);
    json_decref(whole);
    json_decref(json);
}

static void messages_stream_blocks(void **state) {
    static const char more[] = HI ",\"max_tokens\":12,\"temperature\":0";
    static const char *const first[] = { "message_start", "ping", "content_block_start",
                                         "content_block_delta" };
    static const char *const last[] = { "content_block_stop", "message_delta", "message_stop" };
    char body[500], text[2000] = "";
    (void)state;
    snprintf(body, sizeof body, "{%s}", more);
    json_t *whole = ask(served.port, MESSAGES, body, 200);
    snprintf(body, sizeof body, "{%s,\"stream\":true}", more);
    struct events e = ask_stream(served.port, MESSAGES, body);
    assert_in_range(e.n, 7, 999);
    assert_false(e.done); /* no [DONE] in this dialect */
    for (int i = 0; i < e.n; i++) {
        assert_non_null(e.names[i]);
        assert_string_equal(e.names[i], field_of(e.list[i], "type"));
        if (i < 4) assert_string_equal(e.names[i], first[i]);
        if (i >= e.n - 3) assert_string_equal(e.names[i], last[i - e.n + 3]);
        if (strcmp(e.names[i], "content_block_delta") != 0) continue;
        assert_int_equal(number_of(e.list[i], "index"), 0);
        const json_t *delta = json_object_get(e.list[i], "delta");
        assert_string_equal(field_of(delta, "type"), "text_delta");
        strcat(text, field_of(delta, "text"));
    }
    const json_t *end = e.list[e.n - 2], *start = json_object_get(e.list[0], "message");
    assert_string_equal(field_of(json_object_get(end, "delta"), "stop_reason"), "max_tokens");
    assert_int_equal(number_of(json_object_get(end, "usage"), "output_tokens"), 12);
    assert_int_equal(number_of(json_object_get(end, "timings"), "predicted_n"), 12);
    assert_true(number_of(json_object_get(start, "usage"), "input_tokens") > 5);
    assert_string_equal(text,
                        field_of(json_array_get(json_object_get(whole, "content"), 0), "text"));
    json_decref(whole);
    release_events(&e);
}

/* A template with tools and thinking, beside the one of the other tests. */
static int open_with_tools(struct served *s, char **template) {
    struct file_map file;
    if (file_map_open(&file, "tests/fixtures/chat/qwen3.jinja", &s->err) != REEL_OK)
        fail_msg("%s", s->err.text);
    *template = strndup((const char *)file.bytes, file.size);
    file_map_close(&file);
    s->options.context = 768;
    s->options.sessions = 1;
    s->sources[0] = (struct served_source){ .name = "tools", .chat_template = *template };
    if (!served_open(s)) fail_msg("%s", s->err.text);
    return s->port;
}

static const char calling_theirs[] =
    "{\"max_tokens\":3,\"tools\":[{\"name\":\"weather\",\"description\":\"of a city\","
    "\"input_schema\":{\"type\":\"object\"}}],\"thinking\":{\"type\":\"disabled\"},\"messages\":[{"
    "\"role\":\"user\",\"content\":\"Rome?\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
    "\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"weather\","
    "\"input\":{\"city\":\"Rome\"}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
    "\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"text\",\"text\":\"rain\"}]},{\"type\":"
    "\"text\",\"text\":\"And now?\"}]}]}";

static const char calling_ours[] =
    "{\"max_tokens\":3,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\","
    "\"parameters\":{\"type\":\"object\"},\"description\":\"of a city\"}}],"
    "\"chat_template_kwargs\":{\"enable_thinking\":false},\"messages\":[{\"role\":\"user\","
    "\"content\":\"Rome?\"},{\"role\":\"assistant\",\"content\":\"I look.\",\"tool_calls\":[{"
    "\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":"
    "\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":"
    "\"rain\"},{\"role\":\"user\",\"content\":\"And now?\"}]}";

static void messages_with_tools_are_the_same_prompt(void **state) {
    (void)state;
    struct served s = { 0 };
    char *template = NULL;
    const int port = open_with_tools(&s, &template);
    json_t *ours = ask(port, "/v1/chat/completions", calling_ours, 200);
    json_t *theirs = ask(port, MESSAGES, calling_theirs, 200);
    const json_int_t n = number_of(json_object_get(ours, "usage"), "prompt_tokens");
    /* the session holds all ids of the second prompt: they are those of the first */
    assert_int_equal(number_of(json_object_get(theirs, "usage"), "input_tokens"), 0);
    assert_int_equal(number_of(json_object_get(theirs, "usage"), "cache_read_input_tokens"), n);
    json_decref(ours);
    json_decref(theirs);
    served_close(&s);
    free(template);
}

/* 400 in Anthropic's form, whose message names this field. */
static void assert_message_refused(const char *more, const char *field) {
    char body[1000];
    snprintf(body, sizeof body, "{\"model\":\"demo\",%s}", more);
    json_t *json = ask(served.port, MESSAGES, body, 400);
    const json_t *error = json_object_get(json, "error");
    char quoted[64];
    snprintf(quoted, sizeof quoted, "'%s'", field);
    assert_string_equal(field_of(json, "type"), "error");
    assert_string_equal(field_of(error, "type"), "invalid_request_error");
    if (!strstr(field_of(error, "message"), quoted))
        fail_msg("no %s in '%s' for %s", quoted, field_of(error, "message"), body);
    json_decref(json);
}

static void messages_refuse_by_name(void **state) {
    (void)state;
#define USER(content) "\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":" content "}]"
    assert_message_refused("\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]", "max_tokens");
    assert_message_refused("\"max_tokens\":0,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
                           "max_tokens");
    assert_message_refused("\"max_tokens\":3", "messages");
    assert_message_refused("\"max_tokens\":3,\"messages\":[]", "messages");
    assert_message_refused("\"max_tokens\":3,\"messages\":[7]", "messages");
    assert_message_refused(USER("7"), "messages");
    assert_message_refused(USER("[7]"), "messages");
    assert_message_refused(USER("[{\"type\":\"image\"}]"), "messages");
    assert_message_refused(USER("[{\"type\":\"text\"}]"), "messages");
    assert_message_refused(USER("[{\"type\":\"tool_use\"}]"), "messages");
    assert_message_refused(USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"x\"}]"), "messages");
    assert_message_refused("\"max_tokens\":3,\"messages\":[{\"role\":\"assistant\",\"content\":[{"
                           "\"type\":\"tool_use\",\"id\":\"x\",\"name\":\"y\",\"input\":{}}]}]",
                           "messages");
    json_decref(ask(served.port, MESSAGES,
                    "{\"max_tokens\":3,\"messages\":[{\"role\":\"assistant\",\"content\":\" \"}]}",
                    400));
    assert_message_refused(USER("\"a\"") ",\"system\":7", "system");
    assert_message_refused(USER("\"a\"") ",\"tool_choice\":{\"type\":\"any\"}", "tool_choice");
    assert_message_refused(USER("\"a\"") ",\"tool_choice\":{\"type\":\"auto\","
                                         "\"disable_parallel_tool_use\":1}",
                           "disable_parallel_tool_use");
    assert_message_refused(USER("\"a\"") ",\"output_config\":7", "output_config");
    assert_message_refused(USER("\"a\"") ",\"tools\":[{\"name\":\"x\"}]", "tools");
    assert_message_refused(USER("\"a\"") ",\"thinking\":{\"type\":\"maybe\"}", "thinking");
    assert_message_refused(USER("\"a\"") ",\"stop_sequences\":[\"\"]", "stop");
    assert_message_refused(USER("\"a\"") ",\"output_config\":{\"format\":{}}", "output_config");
    json_t *json = ask(served.port, MESSAGES, "{\"model\":\"none\"}", 404);
    assert_string_equal(field_of(json_object_get(json, "error"), "type"), "not_found_error");
    json_decref(json);
}

/* ---- responses ---- */

#define RESPONSES "/v1/responses"

static const json_t *first_text(const json_t *response) {
    const json_t *item = json_array_get(json_object_get(response, "output"), 0);
    assert_string_equal(field_of(item, "type"), "message");
    return json_array_get(json_object_get(item, "content"), 0);
}

/* A schema's numbers are written into prompts and repeated in answers as they were given. */
static void integers_stay_integers(void **state) {
    (void)state;
    struct served s = { 0 };
    char *template = NULL;
    const int port = open_with_tools(&s, &template);
    json_t *shown =
        ask(port, "/apply-template",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":"
            "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
            "\"maximum\":7,\"minimum\":-9007199254740993,\"step\":0.5}}}]}",
            200);
    const char *prompt = field_of(shown, "prompt");
    if (!strstr(prompt, "\"maximum\": 7,") || !strstr(prompt, "-9007199254740993") ||
        !strstr(prompt, "0.5"))
        fail_msg("%s", prompt);
    json_t *json = ask(port, RESPONSES,
                       "{\"input\":\"a\",\"max_output_tokens\":2,\"tools\":[{\"type\":\"function\","
                       "\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"maximum\":7}}]}",
                       200);
    const json_t *schema =
        json_object_get(json_array_get(json_object_get(json, "tools"), 0), "parameters");
    assert_true(json_is_integer(json_object_get(schema, "maximum")));
    assert_true(json_is_integer(json_object_get(json, "max_output_tokens")));
    json_decref(shown);
    json_decref(json);
    served_close(&s);
    free(template);
}

static void responses_answer_as_chat_does(void **state) {
    (void)state;
    json_t *chat = ask(served.port, "/v1/chat/completions",
                       "{\"messages\":[{\"role\":\"system\",\"content\":\"Be short.\"},{\"role\":"
                       "\"user\",\"content\":\"She was\"}],\"max_tokens\":9,\"temperature\":0}",
                       200);
    json_t *json =
        ask(served.port, RESPONSES,
            "{\"input\":\"She was\",\"instructions\":\"Be short.\",\"max_output_tokens\":9,"
            "\"temperature\":0,\"metadata\":{\"a\":\"b\"},\"store\":true}",
            200);
    const json_t *usage = json_object_get(json, "usage");
    assert_string_equal(field_of(first_text(json), "text"),
                        field_of(json_object_get(choice_of(chat, 0), "message"), "content"));
    assert_string_equal(field_of(json, "object"), "response");
    assert_string_equal(field_of(json, "status"), "incomplete");
    assert_string_equal(field_of(json_object_get(json, "incomplete_details"), "reason"),
                        "max_output_tokens");
    assert_string_equal(field_of(json_object_get(json, "metadata"), "a"), "b");
    assert_int_equal(number_of(usage, "output_tokens"), 9);
    assert_int_equal(number_of(usage, "input_tokens"),
                     number_of(json_object_get(chat, "usage"), "prompt_tokens"));
    json_decref(chat);
    json_decref(json);
}

static void responses_with_calls_are_the_same_prompt(void **state) {
    (void)state;
    struct served s = { 0 };
    char *template = NULL;
    const int port = open_with_tools(&s, &template);
    json_t *ours = ask(port, "/v1/chat/completions", calling_ours, 200);
    json_t *theirs =
        ask(port, RESPONSES,
            "{\"max_output_tokens\":3,\"tools\":[{\"type\":\"function\",\"name\":\"weather\","
            "\"parameters\":{\"type\":\"object\"},\"description\":\"of a city\"}],\"reasoning\":{"
            "\"effort\":\"none\"},\"input\":[{\"role\":\"user\",\"content\":\"Rome?\"},{\"type\":"
            "\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
            "\"I look.\"}]},{\"type\":\"function_call\",\"call_id\":\"t1\",\"name\":\"weather\","
            "\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"},{\"type\":\"function_call_output\","
            "\"call_id\":\"t1\",\"output\":\"rain\"},{\"role\":\"user\",\"content\":[{\"type\":"
            "\"input_text\",\"text\":\"And now?\"}]}]}",
            200);
    const json_t *usage = json_object_get(theirs, "usage");
    const json_int_t n = number_of(json_object_get(ours, "usage"), "prompt_tokens");
    assert_int_equal(number_of(usage, "input_tokens"), n);
    /* the session holds all ids of the second prompt: they are those of the first */
    assert_int_equal(number_of(json_object_get(usage, "input_tokens_details"), "cached_tokens"), n);
    json_decref(ours);
    json_decref(theirs);
    served_close(&s);
    free(template);
}

static void responses_stream_in_order(void **state) {
    static const char more[] = "\"input\":\"She was\",\"max_output_tokens\":12,\"temperature\":0";
    static const char *const first[] = { "response.created", "response.in_progress",
                                         "response.output_item.added",
                                         "response.content_part.added",
                                         "response.output_text.delta" };
    static const char *const last[] = { "response.output_text.done", "response.content_part.done",
                                        "response.output_item.done", "response.incomplete" };
    char body[500], text[2000] = "";
    (void)state;
    snprintf(body, sizeof body, "{%s}", more);
    json_t *whole = ask(served.port, RESPONSES, body, 200);
    const char *want = field_of(first_text(whole), "text");
    snprintf(body, sizeof body, "{%s,\"stream\":true}", more);
    struct events e = ask_stream(served.port, RESPONSES, body);
    assert_in_range(e.n, 9, 999);
    assert_false(e.done);
    for (int i = 0; i < e.n; i++) {
        assert_non_null(e.names[i]);
        assert_string_equal(e.names[i], field_of(e.list[i], "type"));
        assert_int_equal(number_of(e.list[i], "sequence_number"), i);
        if (i < 5) assert_string_equal(e.names[i], first[i]);
        if (i >= e.n - 4) assert_string_equal(e.names[i], last[i - e.n + 4]);
        if (strcmp(e.names[i], "response.output_text.delta") != 0) continue;
        assert_int_equal(number_of(e.list[i], "output_index"), 0);
        assert_int_equal(number_of(e.list[i], "content_index"), 0);
        assert_true(json_is_array(json_object_get(e.list[i], "logprobs")));
        strcat(text, field_of(e.list[i], "delta"));
    }
    const json_t *end = json_object_get(e.list[e.n - 1], "response");
    const json_t *item = json_object_get(e.list[e.n - 2], "item");
    assert_string_equal(text, want);
    assert_string_equal(field_of(e.list[e.n - 4], "text"), want);
    assert_string_equal(field_of(first_text(end), "text"), want);
    assert_true(json_equal(item, json_array_get(json_object_get(end, "output"), 0)));
    assert_string_equal(field_of(item, "id"), field_of(e.list[4], "item_id"));
    assert_int_equal(number_of(json_object_get(end, "usage"), "output_tokens"), 12);
    json_decref(whole);
    release_events(&e);
}

/* The tokens of a list of log-probabilities, joined; each has so many most likely ones. */
static void join_tokens(char *text, size_t most, const json_t *list, size_t n_top) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i);
        const size_t n = strlen(text);
        snprintf(text + n, most - n, "%s", field_of(token, "token"));
        assert_true(json_number_value(json_object_get(token, "logprob")) <= 0);
        assert_int_equal(json_array_size(json_object_get(token, "top_logprobs")), n_top);
    }
}

/* They are those of the chat API, in the part, the deltas and the ends of a stream. */
static void responses_have_logprobs(void **state) {
    static const char more[] = "\"input\":\"She was\",\"max_output_tokens\":12,\"temperature\":0,"
                               "\"include\":[\"reasoning.encrypted_content\","
                               "\"message.output_text.logprobs\"],\"top_logprobs\":2";
    char body[500], text[2000] = "", streamed[2000] = "";
    size_t n = 0;
    (void)state;
    json_t *chat = ask(served.port, "/v1/chat/completions",
                       "{" HELLO ",\"max_tokens\":12,\"temperature\":0,\"logprobs\":true,"
                       "\"top_logprobs\":2}",
                       200);
    const json_t *want =
        json_object_get(json_object_get(choice_of(chat, 0), "logprobs"), "content");
    snprintf(body, sizeof body, "{%s}", more);
    json_t *whole = ask(served.port, RESPONSES, body, 200);
    const json_t *part = first_text(whole), *list = json_object_get(part, "logprobs");
    join_tokens(text, sizeof text, list, 2);
    assert_string_equal(text, field_of(part, "text"));
    assert_true(json_equal(list, want));
    assert_int_equal(number_of(whole, "top_logprobs"), 2);
    snprintf(body, sizeof body, "{%s,\"stream\":true}", more);
    struct events e = ask_stream(served.port, RESPONSES, body);
    for (int i = 0; i < e.n; i++) {
        const json_t *given = json_object_get(e.list[i], "logprobs");
        if (strcmp(e.names[i], "response.output_text.done") == 0)
            assert_true(json_equal(given, list));
        if (strcmp(e.names[i], "response.output_text.delta") != 0) continue;
        join_tokens(streamed, sizeof streamed, given, 2);
        for (size_t k = 0; k < json_array_size(given); k++)
            assert_true(json_equal(json_array_get(given, k), json_array_get(list, n++)));
    }
    assert_int_equal(n, json_array_size(list));
    assert_string_equal(streamed, text);
    const json_t *end = json_object_get(e.list[e.n - 1], "response");
    assert_true(json_equal(json_object_get(first_text(end), "logprobs"), list));
    json_decref(chat);
    json_decref(whole);
    release_events(&e);
    whole = ask(served.port, RESPONSES, "{\"input\":\"She\",\"max_output_tokens\":3}", 200);
    assert_int_equal(json_array_size(json_object_get(first_text(whole), "logprobs")), 0);
    json_decref(whole);
}

static void responses_refuse_by_name(void **state) {
    const int port = served.port;
    (void)state;
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"include\":\"all\"}", "include");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"top_logprobs\":21}", "top_logprobs");
    assert_refused(port, RESPONSES, "{}", "input");
    assert_refused(port, RESPONSES, "{\"input\":[]}", "input");
    assert_refused(port, RESPONSES, "{\"input\":[7]}", "input");
    assert_refused(port, RESPONSES, "{\"input\":[{\"role\":\"user\"}]}", "input");
    assert_refused(port, RESPONSES, "{\"input\":[{\"role\":\"king\",\"content\":\"a\"}]}", "input");
    assert_refused(port, RESPONSES, "{\"input\":[{\"type\":\"item_reference\"}]}", "input");
    assert_refused(port, RESPONSES, "{\"input\":[{\"type\":\"function_call\"}]}", "input");
    assert_refused(port, RESPONSES,
                   "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
                   "input");
    assert_refused(port, RESPONSES,
                   "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"x\",\"output\":"
                   "\"\"}]}",
                   "input");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"previous_response_id\":\"resp_1\"}",
                   "previous_response_id");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"background\":true}", "background");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"truncation\":\"auto\"}", "truncation");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"truncation\":7}", "truncation");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"parallel_tool_calls\":7}",
                   "parallel_tool_calls");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"max_output_tokens\":0}",
                   "max_output_tokens");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"metadata\":7}", "metadata");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"text\":7}", "text");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"instructions\":[]}", "instructions");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}]}",
                   "tools");
    assert_refused(port, RESPONSES, "{\"input\":\"a\",\"tool_choice\":\"required\"}",
                   "tool_choice");
    assert_refused(port, RESPONSES,
                   "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_object\"}}}",
                   "text.format");
}

/* ---- thoughts and calls ---- */

/* Thinking is written [so], a call ~name^{}`. */
static const char small_template[] =
    "{%- if tools -%}T{%- endif -%}{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
    "{%- if m.reasoning_content -%}[{{ m.reasoning_content }}]{%- endif -%}{{- m.content -}}"
    "{%- for c in m.tool_calls -%}~{{ c.function.name }}^{{ c.function.arguments | tojson }}`"
    "{%- endfor -%}{%- else -%}{{ m.content }}{%- endif -%}{{- '\\n' -}}{%- endfor -%}";

/* A request whose answer is these tokens: a bias that falls from each to the next makes them the
 * most likely ones, and a penalty takes away those that were said. */
static char *scripted(int port, const char *const *pieces, int n, const char *more) {
    json_t *bias = json_object();
    for (int i = 0; i < n; i++) {
        char body[100], key[32];
        snprintf(body, sizeof body, "{\"content\":\"%s\"}", pieces[i]);
        json_t *tokens = ask(port, "/tokenize", body, 200);
        assert_int_equal(number_of(tokens, "count"), 1);
        snprintf(key, sizeof key, "%d",
                 (int)json_integer_value(json_array_get(json_object_get(tokens, "tokens"), 0)));
        json_object_set_new(bias, key, json_integer(100 - 15 * i));
        json_decref(tokens);
    }
    json_t *request = json_loads(more, 0, NULL);
    assert_non_null(request);
    json_object_set_new(request, "logit_bias", bias);
    json_object_set_new(request, "repetition_penalty", json_integer(100));
    json_object_set_new(request, "temperature", json_integer(0));
    char *text = json_dumps(request, 0);
    json_decref(request);
    return text;
}

/* The same request with "stream": the events of this name, joined at this member of "delta" or
 * "delta" itself. */
static void assert_streamed(int port, const char *path, const char *body, const char *type,
                            const char *member, const char *want) {
    char text[200] = "";
    json_t *request = json_loads(body, 0, NULL);
    json_object_set_new(request, "stream", json_true());
    char *given = json_dumps(request, 0);
    struct events e = ask_stream(port, path, given);
    for (int i = 0; i < e.n; i++) {
        const json_t *delta = json_object_get(e.list[i], "delta");
        if (member) delta = json_object_get(delta, member);
        if (strcmp(field_of(e.list[i], "type"), type) == 0 && json_is_string(delta))
            strcat(text, json_string_value(delta));
    }
    assert_string_equal(text, want);
    release_events(&e);
    free(given);
    json_decref(request);
}

static void thoughts_are_blocks_and_items(void **state) {
    static const char *const pieces[] = { "[", " She", "]", " yes" };
    (void)state;
    struct served s = { .sources = { { .name = "small", .chat_template = small_template } } };
    if (!served_open(&s)) fail_msg("%s", s.err.text);
    char *body =
        scripted(s.port, pieces, 4,
                 "{\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    json_t *json = ask(s.port, MESSAGES, body, 200);
    const json_t *content = json_object_get(json, "content");
    assert_int_equal(json_array_size(content), 2);
    assert_string_equal(field_of(json_array_get(content, 0), "type"), "thinking");
    assert_string_equal(field_of(json_array_get(content, 0), "thinking"), " She");
    assert_string_equal(field_of(json_array_get(content, 1), "text"), " yes");
    assert_streamed(s.port, MESSAGES, body, "content_block_delta", "thinking", " She");
    assert_streamed(s.port, MESSAGES, body, "content_block_delta", "text", " yes");
    json_decref(json);
    free(body);
    body = scripted(s.port, pieces, 4,
                    "{\"max_output_tokens\":4,\"input\":\"a\",\"include\":[\"message.output_text."
                    "logprobs\"]}");
    json = ask(s.port, RESPONSES, body, 200);
    const json_t *output = json_object_get(json, "output");
    assert_int_equal(json_array_size(output), 2);
    assert_string_equal(field_of(json_array_get(output, 0), "type"), "reasoning");
    const json_t *message = json_array_get(output, 1);
    assert_string_equal(field_of(message, "type"), "message");
    const json_t *part = json_array_get(json_object_get(message, "content"), 0);
    const json_t *tokens = json_object_get(part, "logprobs"); /* none of the thought's */
    assert_int_equal(json_array_size(tokens), 1);
    assert_string_equal(field_of(json_array_get(tokens, 0), "token"), " yes");
    assert_streamed(s.port, RESPONSES, body, "response.reasoning_text.delta", NULL, " She");
    assert_streamed(s.port, RESPONSES, body, "response.output_text.delta", NULL, " yes");
    json_decref(json);
    free(body);
    served_close(&s);
}

static void calls_are_blocks_and_items(void **state) {
    static const char *const pieces[] = { "~", "w", "^", "{", "}", "`" };
    (void)state;
    struct served s = { .sources = { { .name = "small", .chat_template = small_template } } };
    if (!served_open(&s)) fail_msg("%s", s.err.text);
    char *body = scripted(s.port, pieces, 6,
                          "{\"max_tokens\":6,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                          "\"tools\":[{\"name\":\"w\",\"input_schema\":{}}]}");
    json_t *json = ask(s.port, MESSAGES, body, 200);
    const json_t *call = json_array_get(json_object_get(json, "content"), 0);
    assert_string_equal(field_of(json, "stop_reason"), "tool_use");
    assert_string_equal(field_of(call, "type"), "tool_use");
    assert_string_equal(field_of(call, "name"), "w");
    assert_true(json_is_object(json_object_get(call, "input")));
    assert_streamed(s.port, MESSAGES, body, "content_block_delta", "partial_json", "{}");
    json_decref(json);
    free(body);
    body = scripted(s.port, pieces, 6,
                    "{\"max_output_tokens\":6,\"input\":\"a\",\"tools\":[{\"type\":\"function\","
                    "\"name\":\"w\",\"parameters\":{}}]}");
    json = ask(s.port, RESPONSES, body, 200);
    const json_t *item = json_array_get(json_object_get(json, "output"), 0);
    assert_string_equal(field_of(json, "status"), "completed");
    assert_string_equal(field_of(item, "type"), "function_call");
    assert_string_equal(field_of(item, "name"), "w");
    assert_string_equal(field_of(item, "arguments"), "{}");
    assert_streamed(s.port, RESPONSES, body, "response.function_call_arguments.delta", NULL, "{}");
    json_decref(json);
    free(body);
    served_close(&s);
}

/* Behind the call the model would go on with " yes". */
static void there_may_be_one_call_alone(void **state) {
    static const char *const pieces[] = { "~", "w", "^", "{", "}", "`", " yes" };
    static const char chat[] =
        "{\"max_tokens\":7,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{"
        "\"type\":\"function\",\"function\":{\"name\":\"w\",\"parameters\":{}}}],"
        "\"parallel_tool_calls\":%s}";
    char more[500];
    (void)state;
    struct served s = { .sources = { { .name = "small", .chat_template = small_template } } };
    if (!served_open(&s)) fail_msg("%s", s.err.text);
    for (int one = 0; one < 2; one++) {
        snprintf(more, sizeof more, chat, one ? "false" : "true");
        char *body = scripted(s.port, pieces, 7, more);
        json_t *json = ask(s.port, "/v1/chat/completions", body, 200);
        const json_t *message = json_object_get(choice_of(json, 0), "message");
        assert_int_equal(number_of(json_object_get(json, "usage"), "completion_tokens"),
                         one ? 6 : 7);
        assert_string_equal(field_of(choice_of(json, 0), "finish_reason"), "tool_calls");
        assert_int_equal(json_array_size(json_object_get(message, "tool_calls")), 1);
        json_decref(json);
        json_t *request = json_loads(body, 0, NULL);
        json_object_set_new(request, "stream", json_true());
        char *given = json_dumps(request, 0);
        struct events e = ask_stream(s.port, "/v1/chat/completions", given);
        bool said = false;
        for (int i = 0; i < e.n; i++)
            said = said || json_is_string(json_object_get(
                               json_object_get(choice_of(e.list[i], 0), "delta"), "content"));
        assert_int_equal(said, !one);
        assert_string_equal(field_of(choice_of(e.list[e.n - 1], 0), "finish_reason"), "tool_calls");
        release_events(&e);
        free(given);
        free(body);
        json_decref(request);
    }
    char *body = scripted(s.port, pieces, 7,
                          "{\"max_tokens\":7,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                          "\"tools\":[{\"name\":\"w\",\"input_schema\":{}}],\"tool_choice\":{"
                          "\"type\":\"auto\",\"disable_parallel_tool_use\":true}}");
    json_t *json = ask(s.port, MESSAGES, body, 200);
    assert_string_equal(field_of(json, "stop_reason"), "tool_use");
    assert_int_equal(json_array_size(json_object_get(json, "content")), 1);
    assert_int_equal(number_of(json_object_get(json, "usage"), "output_tokens"), 6);
    json_decref(json);
    free(body);
    body = scripted(s.port, pieces, 7,
                    "{\"max_output_tokens\":7,\"input\":\"a\",\"parallel_tool_calls\":false,"
                    "\"tools\":[{\"type\":\"function\",\"name\":\"w\",\"parameters\":{}}]}");
    json = ask(s.port, RESPONSES, body, 200);
    assert_int_equal(json_array_size(json_object_get(json, "output")), 1);
    assert_true(json_is_false(json_object_get(json, "parallel_tool_calls")));
    assert_string_equal(field_of(json, "truncation"), "disabled");
    json_decref(json);
    free(body);
    served_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_answers_whole),
        cmocka_unit_test(chat_refuses_by_name),
        cmocka_unit_test(what_is_not_kept_is_refused_by_name),
        cmocka_unit_test(a_top_p_of_0_takes_the_likeliest_token),
        cmocka_unit_test(completions_take_four_forms_of_prompts),
        cmocka_unit_test(completions_have_16_tokens_unless_told),
        cmocka_unit_test(completions_echo_exact_logprobs),
        cmocka_unit_test(completions_score_lists_of_ids),
        cmocka_unit_test(completions_refuse_by_name),
        cmocka_unit_test(answers_stop_at_given_tokens),
        cmocka_unit_test(min_tokens_are_made_where_they_are_max_tokens),
        cmocka_unit_test(completions_stream_what_they_answer),
        cmocka_unit_test(timings_are_on_the_last_event_and_count_all_answers),
        cmocka_unit_test(tokens_come_and_go),
        cmocka_unit_test(templates_can_be_seen),
        cmocka_unit_test(an_answer_that_was_begun_goes_on),
        cmocka_unit_test(tokens_refuse_by_name),
        cmocka_unit_test(tokenizers_say_their_ends),
        cmocka_unit_test(messages_answer_and_count),
        cmocka_unit_test(messages_become_the_same_conversation),
        cmocka_unit_test(messages_with_tools_are_the_same_prompt),
        cmocka_unit_test(messages_stop_at_their_sequence),
        cmocka_unit_test(messages_stream_blocks),
        cmocka_unit_test(messages_refuse_by_name),
        cmocka_unit_test(integers_stay_integers),
        cmocka_unit_test(responses_answer_as_chat_does),
        cmocka_unit_test(responses_with_calls_are_the_same_prompt),
        cmocka_unit_test(responses_stream_in_order),
        cmocka_unit_test(responses_have_logprobs),
        cmocka_unit_test(responses_refuse_by_name),
        cmocka_unit_test(thoughts_are_blocks_and_items),
        cmocka_unit_test(calls_are_blocks_and_items),
        cmocka_unit_test(there_may_be_one_call_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
