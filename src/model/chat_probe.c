/* Finds how a template writes thinking and calls: conversations with known words are rendered, and
 * what stands around these words is read off. What is found of calls is then tried: the reader
 * (chat_answer.c) must get the very calls out of the rendering that went into it, else none are
 * read with this template. */
#include "base/memory.h"
#include "jinja/jinja.h"
#include "model/chat_answer.h"
#include "model/chat_json.h"
#include "model/chat_span.h"
#include "model/chat_template.h"

#include <stdio.h>
#include <string.h>

#define QUESTION  "reelquestion"
#define ANSWER    "reelanswer"
#define REASONING "reelreasoning"
#define FUNCTION  "reelfunction"
#define KEY_A     "reelkeya"
#define KEY_B     "reelkeyb"
#define VALUE_A   "reelvaluea"
#define VALUE_B   "reelvalueb"
#define NUMBER    "7531"

#define TEXT(key) "\"" key "\":{\"type\":\"string\",\"description\":\"d\"}"
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"reeltool\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{" TEXT(KEY_A) "," TEXT(
        KEY_B) "},"
               "\"required\":[\"" KEY_A "\"]}}}]";

/* Ids have nine characters, as Mistral's templates want. */
#define ID "reelid00"
#define CALL(id, name, a, b)                                                                       \
    "{\"type\":\"function\",\"id\":\"" ID id "\",\"function\":{\"name\":\"" name                   \
    "\",\"arguments\":{\"" KEY_A "\":" a ",\"" KEY_B "\":" b "}}}"
#define KNOWN(id) CALL(id, FUNCTION, "\"" VALUE_A "\"", "\"" VALUE_B "\"")
static const char one_call[] = "[" KNOWN("1") "]";
static const char two_calls[] = "[" KNOWN("1") "," KNOWN("2") "]";
static const char numeric_call[] = "[" CALL("1", FUNCTION, "\"" VALUE_A "\"", NUMBER) "]";

/* Others to try the reader with, and what it must hand out: nothing of the words above may have
 * gone into the syntax. */
#define OTHER(id, name) CALL(id, name, "\"x y\"", "\"{z}\"")
#define READ(name)                                                                                 \
    "{\"name\": \"" name "\", \"arguments\": {\"" KEY_A "\": \"x y\", \"" KEY_B "\": \"{z}\"}}"
static const char *const others[] = { "[" OTHER("7", "first_f") "]",
                                      "[" OTHER("8", "first_f") "," OTHER("9", "second_f") "]" };
static const char *const others_read[] = { "[" READ("first_f") "]",
                                           "[" READ("first_f") ", " READ("second_f") "]" };

struct probe {
    struct chat_template *chat;
    const char *tools; /* NULL where the template has none */
    struct reel_error *err;
    enum reel_status status; /* the first failure: memory running out, nothing else */
};

static const struct reel_message question = { .role = "user", .content = QUESTION };

/* A rendered text, the caller's to free. NULL when the template fails. */
static char *render(struct probe *p, const struct reel_message *messages, int n,
                    const struct reel_chat_options *options) {
    struct chat_text text = { 0 };
    struct reel_error why = { 0 };
    if (p->status != REEL_OK) return NULL;
    enum reel_status status = chat_render_probe(p->chat, messages, n, options, &text, &why);
    if (status == REEL_E_MEMORY) p->status = err_set(p->err, status, "%s", why.text);
    size_t n_bytes;
    char *out = status == REEL_OK ? buffer_detach(&text.text, &n_bytes) : NULL;
    chat_text_release(&text);
    return out;
}

/* What follows the question in a conversation of it and, unless NULL, an answer. */
static char *render_answer(struct probe *p, const struct reel_message *answer,
                           const char *its_tools, enum reel_thinking thinking) {
    struct reel_message messages[2] = { question };
    struct reel_chat_options options = { .size = sizeof options,
                                         .thinking = thinking,
                                         .tools = its_tools,
                                         .no_generation_prompt = answer != NULL };
    if (answer) messages[1] = *answer;
    char *text = render(p, messages, answer ? 2 : 1, &options);
    const char *at = text ? span_find_last(span_of(text), QUESTION) : NULL;
    if (!at) {
        mem_free(text);
        return NULL;
    }
    at += strlen(QUESTION);
    memmove(text, at, strlen(at) + 1);
    return text;
}

/* Keeps a piece of text; empty ones too. */
static void keep(struct probe *p, char **out, struct span s) {
    if (p->status != REEL_OK || *out) return;
    p->status = mem_text(out, s.at, s.n, "a template's words", p->err);
}

/* ---- where two texts part -------------------------------------------------------------------- */

static bool opens_tag(char c) { return c == '<' || c == '['; }
static bool closes_tag(char c) { return c == '>' || c == ']'; }

/* Bytes that both begin with; never up to the middle of a tag. */
static size_t common_head(struct span a, struct span b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.at[n] == b.at[n])
        n++;
    if (n == a.n || n == b.n) return n;
    for (size_t i = n; i > 0 && !closes_tag(a.at[i - 1]); i--)
        if (a.at[i - 1] == '<') return i - 1;
    return n;
}

/* Bytes that both end with; from the first tag that begins in them, where they do not hold one of
 * the two whole. */
static size_t common_tail(struct span a, struct span b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.at[a.n - 1 - n] == b.at[b.n - 1 - n])
        n++;
    if (n == a.n || n == b.n) return n;
    while (n > 0 && !opens_tag(a.at[a.n - n]))
        n--;
    return n;
}

static struct span before(struct span s, const char *end) {
    return (struct span){ s.at, (size_t)(end - s.at) };
}

static struct span behind(struct span s, const char *at) {
    return (struct span){ at, (size_t)(s.at + s.n - at) };
}

static struct span without_tail(struct span s, size_t n) { return (struct span){ s.at, s.n - n }; }

static const char *find_behind(struct span s, const char *at, const char *word) {
    return at ? span_find(behind(s, at), word) : NULL;
}

/* ---- thinking -------------------------------------------------------------------------------- */

/* The last tag that begins before the end of s, and what follows it. */
static struct span last_tag(struct span s) {
    for (size_t i = s.n; i > 0; i--)
        if (opens_tag(s.at[i - 1])) return behind(s, s.at + i - 1);
    return (struct span){ s.at, 0 };
}

static void find_thinking_words(struct probe *p, const char *prompt) {
    const struct reel_message thought = { .role = "assistant",
                                          .content = ANSWER,
                                          .reasoning = REASONING };
    struct chat_syntax *syntax = &p->chat->syntax;
    char *text = render_answer(p, &thought, NULL, REEL_THINKING_DEFAULT);
    struct span all = span_of(text);
    const char *reasoning = text ? span_find(all, REASONING) : NULL;
    const char *answer = find_behind(all, reasoning, ANSWER);
    if (answer) {
        struct span head = before(all, reasoning);
        struct span open = behind(head, head.at + common_head(head, span_of(prompt)));
        if (span_without_blanks(open).n == 0) open = last_tag(head);
        struct span close = before(behind(all, reasoning + strlen(REASONING)), answer);
        open = span_without_blanks(open);
        close = span_without_blanks(close);
        if (open.n && close.n) {
            keep(p, &syntax->think_open, open);
            keep(p, &syntax->think_close, close);
        }
    }
    mem_free(text);
}

static bool ends_inside(const struct chat_syntax *syntax, const char *prompt) {
    const char *open = prompt ? span_find_last(span_of(prompt), syntax->think_open) : NULL;
    return open && !strstr(open + strlen(syntax->think_open), syntax->think_close);
}

static void probe_thinking(struct probe *p) {
    struct chat_syntax *syntax = &p->chat->syntax;
    const struct span source = { p->chat->source, p->chat->source_bytes };
    char *prompts[3];
    for (int i = 0; i < 3; i++)
        prompts[i] = render_answer(p, NULL, NULL, (enum reel_thinking)i);
    find_thinking_words(p, prompts[0] ? prompts[0] : "");
    syntax->thinks = syntax->think_open || span_find(source, "</think>");
    keep(p, &syntax->think_open, span_of("<think>"));
    keep(p, &syntax->think_close, span_of("</think>"));
    for (int i = 0; i < 3; i++) {
        if (p->status == REEL_OK) syntax->opens_thinking[i] = ends_inside(syntax, prompts[i]);
        syntax->thinks = syntax->thinks || syntax->opens_thinking[i];
        mem_free(prompts[i]);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* One rendered call: where it begins, its name, where its arguments end. */
struct seen_call {
    const char *start, *end;
};

static bool is_text(struct json_span value, const char *text) {
    return json_span_kind(value) == '"' && json_span_is(value, text);
}

/* Names of the members that hold name and arguments. */
static bool find_keys(struct probe *p, struct json_span object) {
    struct chat_call_words *w = &p->chat->syntax.words;
    struct json_span key, value;
    struct span name = { NULL, 0 }, arguments = { NULL, 0 };
    size_t cursor = 0;
    if (json_span_member(object, "function", &value) && json_span_kind(value) == '{')
        object = value;
    while (json_span_next_member(object, &cursor, &key, &value)) {
        const struct span word = { key.at + 1, key.n_bytes - 2 };
        const char kind = json_span_kind(value);
        if (is_text(value, FUNCTION))
            name = word;
        else if ((kind == '{' || kind == '"') &&
                 span_find((struct span){ value.at, value.n_bytes }, KEY_A))
            arguments = word;
    }
    if (!name.at || !arguments.at) return false;
    keep(p, &w->name_key, name);
    keep(p, &w->arguments_key, arguments);
    return true;
}

/* The object that begins at `at`, when it is JSON and holds `word`; its end, or NULL. `text` keeps
 * the copy that `object` points into. */
static const char *read_object(struct probe *p, struct span s, const char *at, const char *word,
                               char **text, struct json_span *object) {
    size_t n = span_object_bytes(behind(s, at));
    if (n == 0 || !span_find((struct span){ at, n }, word)) return NULL;
    mem_free(*text);
    *text = NULL;
    p->status = mem_text(text, at, n, "a call", p->err);
    if (p->status != REEL_OK) return NULL;
    enum reel_status status = json_span_open(object, "a call", *text, NULL);
    if (status == REEL_E_MEMORY) p->status = err_memory(p->err, "a call", n);
    if (status != REEL_OK) return NULL;
    return at + n;
}

/* {"name": ..., "arguments": ...} around the name: the outermost that holds both. */
static bool see_json(struct probe *p, struct span s, struct seen_call *seen) {
    const char *name = span_find(s, FUNCTION);
    struct json_span object;
    char *text = NULL;
    bool found = false;
    for (const char *at = s.at; name && at < name && !found && p->status == REEL_OK; at++) {
        if (*at != '{') continue;
        const char *end = read_object(p, s, at, FUNCTION, &text, &object);
        if (!end || !find_keys(p, object)) continue;
        *seen = (struct seen_call){ at, end };
        found = true;
    }
    mem_free(text);
    return found;
}

/* The name, words, the arguments as JSON. */
static bool see_named(struct probe *p, struct span s, struct seen_call *seen) {
    const char *name = span_find(s, FUNCTION), *name_end = name ? name + strlen(FUNCTION) : NULL;
    const char *at = find_behind(s, name_end, "{");
    struct json_span object;
    char *text = NULL;
    const char *end = at ? read_object(p, s, at, KEY_A, &text, &object) : NULL;
    mem_free(text);
    if (!end) return false;
    struct span words = before(behind(s, name_end), at); /* up to an id, which varies */
    const char *id = span_find(words, ID);
    keep(p, &p->chat->syntax.words.name_end, id ? before(words, id) : words);
    *seen = (struct seen_call){ name, end };
    return true;
}

/* The name, and each argument between tags. */
static bool see_tagged(struct probe *p, struct span s, struct seen_call *seen) {
    struct chat_call_words *w = &p->chat->syntax.words;
    const char *name = span_find(s, FUNCTION);
    const char *name_end = name ? name + strlen(FUNCTION) : NULL;
    const char *key_a = find_behind(s, name_end, KEY_A), *value_a = find_behind(s, key_a, VALUE_A);
    const char *key_b = find_behind(s, value_a, KEY_B), *value_b = find_behind(s, key_b, VALUE_B);
    if (!value_b) return false;
    struct span to_key = before(behind(s, name_end), key_a);
    struct span to_value = before(behind(s, key_a + strlen(KEY_A)), value_a);
    struct span to_next = before(behind(s, value_a + strlen(VALUE_A)), key_b);
    size_t open = common_tail(to_key, to_next);
    while (open > 0 && !opens_tag(to_next.at[to_next.n - open]))
        open--;
    if (open == 0 || span_without_blanks(to_value).n == 0) return false;
    struct span close = without_tail(to_next, open);
    keep(p, &w->name_end, without_tail(to_key, open));
    keep(p, &w->key_open, behind(to_next, to_next.at + close.n));
    keep(p, &w->key_close, to_value);
    keep(p, &w->value_close, close);
    struct span rest = behind(s, value_b + strlen(VALUE_B));
    if (span_without_blanks(close).n == 0 || !span_take_loose(&rest, close)) return false;
    *seen = (struct seen_call){ name, rest.at };
    return true;
}

static bool see(struct probe *p, enum chat_call_kind kind, struct span s, struct seen_call *seen) {
    switch (kind) {
    case CHAT_CALLS_JSON:
        return see_json(p, s, seen);
    case CHAT_CALLS_NAMED:
        return see_named(p, s, seen);
    case CHAT_CALLS_TAGGED:
        return see_tagged(p, s, seen);
    case CHAT_CALLS_NONE:
        break;
    }
    return false;
}

static void release_words(struct chat_call_words *w) {
    char *const all[] = { w->before,      w->open,     w->close,         w->between,
                          w->after,       w->name_end, w->key_open,      w->key_close,
                          w->value_close, w->name_key, w->arguments_key, w->key_close_typed };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    *w = (struct chat_call_words){ 0 };
}

/* Renderings of a turn, behind the question; NULL where the template fails. */
struct turns {
    char *prompt, *text; /* what opens an answer; an answer of text */
    char *one, *two;     /* answers of calls, */
    char *numeric;       /* with a number for an argument, */
    char *other[2];      /* of others, to try the reader with */
};

/* Where an answer's own words begin in the turn with one call. */
static size_t answer_start(const struct turns *t) {
    size_t prompt = t->prompt ? strlen(t->prompt) : 0;
    const char *at = t->text ? strstr(t->text, ANSWER) : NULL;
    size_t text = at ? (size_t)(at - t->text) : 0, start = 0;
    if (prompt && strncmp(t->one, t->prompt, prompt) == 0) start = prompt;
    if (text > start && strncmp(t->one, t->text, text) == 0) start = text;
    if (start == 0 && t->prompt) start = common_head(span_of(t->one), span_of(t->prompt));
    return start;
}

/* Bytes at the end of a turn that are not the answer's: those after a text too. */
static size_t turn_end(const struct turns *t, struct span rest) {
    const char *at = t->text ? strstr(t->text, ANSWER) : NULL;
    return at ? common_tail(rest, span_of(at + strlen(ANSWER))) : 0;
}

/* `head` stands before the first call, `rest` behind it, `join` between two (at NULL: no second
 * one is written). */
static void keep_frame(struct probe *p, const struct turns *t, struct span head, struct span join,
                       struct span rest) {
    struct chat_call_words *w = &p->chat->syntax.words;
    size_t end = turn_end(t, rest);
    if (!join.at) {
        keep(p, &w->before, (struct span){ "", 0 });
        keep(p, &w->open, head);
        keep(p, &w->close, without_tail(rest, end));
        keep(p, &w->between, (struct span){ "", 0 });
        keep(p, &w->after, (struct span){ "", 0 });
        return;
    }
    size_t open = common_tail(head, join);
    join = without_tail(join, open);
    size_t close = common_head(join, without_tail(rest, end));
    keep(p, &w->before, without_tail(head, open));
    keep(p, &w->open, behind(head, head.at + head.n - open));
    keep(p, &w->close, before(rest, rest.at + close));
    keep(p, &w->between, behind(join, join.at + close));
    keep(p, &w->after, without_tail(behind(rest, rest.at + close), end));
}

/* Whether the reader gets `calls` out of the turn that they were rendered to. */
static bool reads_back(struct probe *p, const struct turns *t, const char *turn,
                       const char *calls) {
    const size_t start = answer_start(t);
    const struct reel_chat_options options = { .size = sizeof options,
                                               .tools = tools,
                                               .no_generation_prompt = true };
    struct chat_answer answer;
    struct reel_error why = { 0 };
    if (p->status != REEL_OK || strncmp(turn, t->one, start) != 0) return false;
    struct span all = behind(span_of(turn), turn + start);
    all = without_tail(all, turn_end(t, all));
    enum reel_status status = chat_answer_read(&answer, p->chat, &options, all.at, all.n, &why);
    if (status == REEL_E_MEMORY) p->status = err_set(p->err, status, "%s", why.text);
    if (status != REEL_OK) return false;
    bool same =
        answer.tool_calls && strcmp(answer.tool_calls, calls) == 0 && answer.content[0] == '\0';
    chat_answer_release(&answer);
    return same;
}

/* How a value that is no text is introduced, where that differs: string="false". */
static void find_typed_close(struct probe *p, const struct turns *t) {
    struct chat_call_words *w = &p->chat->syntax.words;
    struct span all = span_of(t->numeric);
    const char *key = t->numeric ? span_find(all, KEY_B) : NULL;
    for (const char *at = key; (at = find_behind(all, at, KEY_B)); at += strlen(KEY_B))
        key = at; /* the last: tools may have come before */
    const char *value = find_behind(all, key, NUMBER);
    if (!value) return;
    struct span close = before(behind(all, key + strlen(KEY_B)), value);
    if (close.n == strlen(w->key_close) && memcmp(close.at, w->key_close, close.n) == 0) return;
    if (span_without_blanks(close).n > 0 && close.n < 100) keep(p, &w->key_close_typed, close);
}

static bool try_kind(struct probe *p, enum chat_call_kind kind, const struct turns *t) {
    struct chat_syntax *syntax = &p->chat->syntax;
    const size_t start = answer_start(t);
    struct span one = behind(span_of(t->one), t->one + start), join = { NULL, 0 };
    struct seen_call first, again, second;
    release_words(&syntax->words);
    if (!see(p, kind, one, &first)) return false;
    if (t->two && strncmp(t->two, t->one, start) == 0) {
        struct span two = behind(span_of(t->two), t->two + start);
        if (see(p, kind, two, &again) && see(p, kind, behind(two, again.end), &second))
            join = before(behind(two, again.end), second.start);
    }
    keep_frame(p, t, before(one, first.start), join, behind(one, first.end));
    syntax->calls = kind;
    if (kind == CHAT_CALLS_TAGGED && p->status == REEL_OK) find_typed_close(p, t);
    return t->other[0] && reads_back(p, t, t->other[0], others_read[0]) &&
           (!join.at || (t->other[1] && reads_back(p, t, t->other[1], others_read[1])));
}

static char *render_calls(struct probe *p, const char *content, const char *calls) {
    const struct reel_message called = { .role = "assistant",
                                         .content = content,
                                         .tool_calls = calls };
    return render_answer(p, &called, p->tools, REEL_THINKING_DEFAULT);
}

static void render_turns(struct probe *p, struct turns *t, const char *content) {
    const struct reel_message text = { .role = "assistant", .content = ANSWER };
    t->prompt = render_answer(p, NULL, p->tools, REEL_THINKING_DEFAULT);
    t->text = render_answer(p, &text, p->tools, REEL_THINKING_DEFAULT);
    t->one = render_calls(p, content, one_call);
    t->two = render_calls(p, content, two_calls);
    t->numeric = render_calls(p, content, numeric_call);
    for (int i = 0; i < 2; i++)
        t->other[i] = render_calls(p, content, others[i]);
}

static void release_turns(struct turns *t) {
    char *const all[] = {
        t->prompt, t->text, t->one, t->two, t->numeric, t->other[0], t->other[1]
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (; text && (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* False when the words around calls are not found with this content besides them. */
static bool find_calls(struct probe *p, const char *content) {
    struct chat_syntax *syntax = &p->chat->syntax;
    struct turns t = { 0 };
    bool found = false;
    render_turns(p, &t, content);
    if (t.one && strstr(t.one, FUNCTION)) {
        syntax->writes_calls = true;
        syntax->drops_calls = t.two && count(t.two, FUNCTION) <= count(t.one, FUNCTION);
        for (int kind = CHAT_CALLS_JSON; kind <= CHAT_CALLS_TAGGED; kind++)
            if (!found && p->status == REEL_OK) found = try_kind(p, (enum chat_call_kind)kind, &t);
    }
    release_turns(&t);
    if (found) return true;
    syntax->calls = CHAT_CALLS_NONE;
    release_words(&syntax->words);
    return false;
}

/* Some templates write a second, empty answer where the content is not missing. */
static void probe_calls(struct probe *p) {
    if (!find_calls(p, "")) (void)find_calls(p, NULL);
}

/* ---- missing contents ------------------------------------------------------------------------ */

/* Whether message `index` becomes a word more when its content is missing than when it is empty. */
static bool prints_none(struct probe *p, struct reel_message *messages, int n, int index) {
    const struct reel_chat_options options = { .size = sizeof options, .tools = p->tools };
    messages[index].content = "";
    char *empty = render(p, messages, n, &options);
    messages[index].content = NULL;
    char *missing = render(p, messages, n, &options);
    bool prints = empty && missing && count(missing, "None") > count(empty, "None");
    mem_free(empty);
    mem_free(missing);
    return prints;
}

static void probe_missing_contents(struct probe *p) {
    struct chat_syntax *syntax = &p->chat->syntax;
    const char *calls = syntax->writes_calls ? one_call : NULL;
    for (int role = CHAT_SYSTEM; role <= CHAT_TOOL; role++) {
        struct reel_message system[] = { { .role = "system" }, question };
        struct reel_message turns[] = {
            question,
            { .role = "assistant", .tool_calls = calls },
            { .role = "tool", .name = FUNCTION, .tool_call_id = "reelid001" }
        };
        if (role == CHAT_TOOL) turns[1].content = "";
        syntax->prints_none[role] = role == CHAT_SYSTEM ? prints_none(p, system, 2, 0)
                                                        : prints_none(p, turns, role, role - 1);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum reel_status chat_probe(struct chat_template *chat, struct reel_error *err) {
    struct probe p = { .chat = chat, .err = err };
    if (chat->with_tools || jinja_template_reads(chat->parsed, "tools")) p.tools = tools;
    probe_thinking(&p);
    if (p.status == REEL_OK) probe_calls(&p);
    if (p.status == REEL_OK) probe_missing_contents(&p);
    return p.status;
}

void chat_syntax_release(struct chat_syntax *syntax) {
    mem_free(syntax->think_open);
    mem_free(syntax->think_close);
    release_words(&syntax->words);
    *syntax = (struct chat_syntax){ 0 };
}

static struct span shown(const char *words) { return span_without_blanks(span_of(words)); }

void chat_syntax_describe_calls(const struct chat_syntax *syntax, char *line, size_t n_bytes) {
    const struct chat_call_words *w = &syntax->words;
    static const char *const kinds[] = { "none", "JSON", "name and JSON", "tags" };
    if (syntax->calls == CHAT_CALLS_NONE) {
        snprintf(line, n_bytes, "%s", syntax->writes_calls ? "not read" : "none");
        return;
    }
    struct span before_all = shown(w->before), open = shown(w->open), close = shown(w->close);
    struct span after = shown(w->after);
    if (before_all.n + open.n + close.n + after.n == 0) {
        snprintf(line, n_bytes, "%s, nothing around it", kinds[syntax->calls]);
        return;
    }
    snprintf(line, n_bytes, "%s, written %.*s%.*s...%.*s%.*s", kinds[syntax->calls],
             (int)before_all.n, before_all.at, (int)open.n, open.at, (int)close.n, close.at,
             (int)after.n, after.at);
    for (char *c = line; *c; c++)
        if (*c == '\n') *c = ' ';
}
