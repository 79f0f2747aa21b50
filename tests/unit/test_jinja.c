/* The template engine beside its goldens: marks, limits, values, threads. */
#include "jinja/jinja.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct jinja_template *opened(const char *text) {
    struct jinja_template *template = NULL;
    struct reel_error err;
    if (jinja_template_open(&template, "t", text, strlen(text), NULL, &err) != REEL_OK)
        fail_msg("%s: %s", text, err.text);
    return template;
}

/* x is foreign, bos is the template's own. */
static struct jinja_values *marked_values(void) {
    static const char list[] = "[{\"role\": \"user\", \"content\": \"aXb\", \"n\": 5, \"d\": {}}]";
    struct jinja_values *v = NULL;
    assert_int_equal(jinja_values_open(&v, NULL, NULL), REEL_OK);
    jinja_variable(v, "x", jinja_text(v, "aXb <c>", 7, JINJA_FOREIGN));
    jinja_variable(v, "bos", jinja_text(v, "<s>", 3, JINJA_OWN));
    jinja_variable(v, "messages", jinja_json_text(v, "messages", list, sizeof list - 1));
    jinja_variable(v, "n", jinja_int(v, 7));
    jinja_variable(v, "yes", jinja_bool(v, true));
    jinja_variable(v, "nil", jinja_none(v));
    return v;
}

/* The output with foreign runs in brackets. */
static void marked_text(const char *source, char *out, size_t cap) {
    struct jinja_template *template = opened(source);
    struct jinja_values *values = marked_values();
    struct jinja_output text;
    struct reel_error err;
    if (jinja_render(&text, template, values, NULL, &err) != REEL_OK)
        fail_msg("%s: %s", source, err.text);
    size_t at = 0, n = 0;
    for (int i = 0; i < text.n_runs; i++) {
        const struct jinja_run *run = &text.runs[i];
        assert_true(run->n_bytes > 0);
        assert_true(i == 0 || run->own != run[-1].own);
        n += (size_t)snprintf(out + n, cap - n, run->own ? "%.*s" : "[%.*s]", (int)run->n_bytes,
                              text.text + at);
        at += run->n_bytes;
    }
    out[n] = '\0';
    assert_int_equal(at, text.n_bytes);
    assert_int_equal(text.text[at], 0);
    jinja_output_release(&text);
    jinja_values_close(values);
    jinja_template_close(template);
}

static void each_byte_knows_whose_it_is(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "a{{ x }}b", "a[aXb <c>]b" },
        { "{{ bos }}{{ x }}", "<s>[aXb <c>]" },
        { "{{ 'u' + x + 'v' }}", "u[aXb <c>]v" },
        { "{{ 'u' ~ x ~ bos ~ 1 }}", "u[aXb <c>]<s>1" },
        { "{{ ('u' + x + 'v')[0:3] }}", "u[aX]" },
        { "{{ ('u' + x + 'v')[::-1] }}", "v[>c< bXa]u" },
        { "{{ ('u' + x + 'v')[-2:] }}", "[>]v" },
        { "{{ ('u' ~ x)|upper }}", "U[AXB <C>]" },
        { "{{ (x ~ 'Uv').lower() }}", "[axb <c>]uv" },
        { "{{ ('  u ' ~ x)|trim }}", "u [aXb <c>]" },
        { "{{ x|replace('X', '<s>') }}", "[a]<s>[b <c>]" },
        { "{{ 'a-b'|replace('-', x) }}", "a[aXb <c>]b" },
        { "{{ ('u,' ~ x ~ ',v').split(',')|join('|') }}", "u|[aXb <c>]|v" },
        { "{{ [bos, x, 'v']|join(x) }}", "<s>[aXb <c>aXb <c>aXb <c>]v" },
        { "{{ '%s-%s' % (x, bos) }}", "[aXb <c>]-<s>" },
        { "{{ '%5s|'|format(x[:1]) }}", "[    a]|" },
        { "{{ '{}+{}'.format(bos, x) }}", "<s>+[aXb <c>]" },
        { "{{ x|e }}", "[aXb &lt;c&gt;]" },
        { "{{ x|tojson }}", "[\"aXb <c>\"]" },
        { "{{ 'w'|tojson }}", "\"w\"" },
        { "{{ messages|tojson }}",
          "[[{\"role\": \"user\", \"content\": \"aXb\", \"n\": 5, \"d\": {}}]]" },
        { "{{ {'k': bos}|tojson }}", "{\"k\": \"<s>\"}" },
        { "{{ [x[:1], 'w']|tojson }}", "[[\"a\", ]\"w\"[]]" },
        { "{{ [x[:1]] }}", "[['a']]" },
        { "{{ n }}{{ 7 }}", "[7]7" },
        { "{{ n + 1 }}{{ 7 + 1 }}", "[8]8" },
        { "{{ messages[0].n * 2 }}{{ messages|length }}{{ yes }}{{ nil }}", "[101TrueNone]" },
        { "{{ x|length }}{{ 'abc'|length }}", "[7]3" },
        { "{{ x.find('X') }}{{ x.index('b') }}", "[12]" },
        { "{% set y %}u{{ x }}v{% endset %}{{ y }}", "u[aXb <c>]v" },
        { "{% macro m(z) %}({{ z }}){% endmacro %}{{ m(x) }}", "([aXb <c>])" },
        { "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ x }}!{% endcall %}",
          "<[aXb <c>]!>" },
        { "{% filter upper %}u{{ x }}{% endfilter %}", "U[AXB <C>]" },
        { "{% for m in messages %}<{{ m.role }}>{{ loop.index }}{% endfor %}", "<[user]>1" },
        { "{% for k in messages[0] %}{{ k }}{% endfor %}", "[rolecontentnd]" },
        { "{% for c in 'u' ~ x[:2] %}{{ c }}.{% endfor %}", "u.[a].[X]." },
        { "{% set ns = namespace(t='') %}{% for c in [bos, x] %}{% set ns.t = ns.t + c %}"
          "{% endfor %}{{ ns.t }}",
          "<s>[aXb <c>]" },
        { "{{ x|int(5) }}{{ '3'|int }}{{ (x ~ '')|string|list|first }}", "53[a]" },
        { "{{ x.splitlines()[0] }}{{ x.partition('X') | join('.') }}", "[aXb <c>a].[X].[b <c>]" },
        { "{{ ('u\n' ~ x)|indent(2) }}", "u[\n]  [aXb <c>]" },
        { "{{ x|truncate(5, true, bos, 0) }}", "[aX]<s>" },
        { "{{ x.zfill(9) }}{{ x.center(9, '-') }}", "[00aXb <c>-aXb <c>-]" },
        { "{{ bos * 2 }}{{ x[:1] * 2 }}", "<s><s>[aa]" },
        { "{{ ('u' ~ x)|list|reverse|join }}", "[>c< bXa]u" },
        { "{{ x|urlencode }}", "[aXb%20%3Cc%3E]" },
        { "{{ ('o' ~ x[:1])|capitalize }}{{ ('o ' ~ x[:1])|title }}", "O[a]O [A]" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[400];
        marked_text(cases[i][0], out, sizeof out);
        if (strcmp(out, cases[i][1]) != 0)
            fail_msg("%s\n  found  %s\n  wanted %s", cases[i][0], out, cases[i][1]);
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Opens and renders; the status of what failed first. */
static enum reel_status outcome(const char *text, size_t n, const struct jinja_limits *limits,
                                struct reel_error *err) {
    struct jinja_template *template = NULL;
    struct jinja_values *values = NULL;
    struct jinja_output out = { 0 };
    enum reel_status status = jinja_template_open(&template, "t", text, n, limits, err);
    if (status == REEL_OK) status = jinja_values_open(&values, limits, err);
    if (status == REEL_OK) status = jinja_render(&out, template, values, NULL, err);
    jinja_output_release(&out);
    jinja_values_close(values);
    jinja_template_close(template);
    return status;
}

static void hostile_templates_end_in_an_error(void **state) {
    (void)state;
    static const char *const templates[] = {
        "{% set s = ' ' * 1000000 %}{% for i in range(99999) %}{% set t = s|trim %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 'x' * 1000000000 * 1000000000 }}",
        "{{ [0] * 1000000000 }}",
        "{{ range(1000000000)|list }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{{ a }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s ~ 'y' %}"
        "{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l|tojson }}",
        "{% set ns = namespace(l=(1,)) %}{% for i in range(99) %}{% set ns.l = (ns.l, ns.l) %}"
        "{% endfor %}{{ {ns.l: 1} }}",
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] "
        "%}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}"
        "{% endfor %}{{ ns.l|tojson }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%.999999999f' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'x'.center(999999999999) }}",
        "{{ 'x'.zfill(999999999999) }}",
        "{{ 'x'|indent(999999999999) }}",
        "{{ 'x\tx'.expandtabs(999999999999) }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ [1]|batch(99999999999, 0)|list }}",
        "{{ 'abc'|slice(99999999999)|list }}",
        "{% set s = 'ab' * 1000000 %}{% for i in range(99999) %}{% if 'abb' in s %}{% endif %}"
        "{% endfor %}",
        "{% set s = 'ab' * 1000000 %}{% for i in range(99999) %}{% if s == s ~ '' %}{% endif %}"
        "{% endfor %}",
    };
    struct jinja_limits limits = jinja_default_limits();
    limits.memory_bytes /= 8; /* for the sake of time */
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct reel_error err = { 0 };
        double from = seconds();
        limits.steps = i ? 1 << 18 : jinja_default_limits().steps;
        enum reel_status status = outcome(templates[i], strlen(templates[i]), &limits, &err);
        if (status == REEL_OK) fail_msg("%s: rendered", templates[i]);
        if (!strstr(err.text, "limit") && !strstr(err.text, "Range too big"))
            fail_msg("%s: %s", templates[i], err.text);
        assert_int_equal(strncmp(err.text, "t:1: ", 5), 0);
        if (seconds() - from > 20) fail_msg("%s: took %.1f s", templates[i], seconds() - from);
    }
}

/* `n` times `open`, then as often `close`. */
static void nested_ends_in_an_error(const char *open, const char *middle, const char *close,
                                    const char *begin, const char *end) {
    size_t n = 100000, size = n * (strlen(open) + strlen(close)) + 200;
    char *text = malloc(size), *p = text;
    assert_non_null(text);
    p += sprintf(p, "%s", begin);
    for (size_t i = 0; i < n; i++)
        p += sprintf(p, "%s", open);
    p += sprintf(p, "%s", middle);
    for (size_t i = 0; i < n; i++)
        p += sprintf(p, "%s", close);
    p += sprintf(p, "%s", end);
    struct reel_error err = { 0 };
    struct jinja_limits limits = jinja_default_limits();
    limits.source_bytes = 64 << 20;
    assert_int_equal(outcome(text, (size_t)(p - text), &limits, &err), REEL_E_LIMIT);
    free(text);
}

static void deep_nesting_ends_in_an_error(void **state) {
    (void)state;
    nested_ends_in_an_error("(", "1", ")", "{{ ", " }}");
    nested_ends_in_an_error("[", "1", "]", "{{ ", " }}");
    nested_ends_in_an_error("{1:", "1", "}", "{{ ", " }}");
    nested_ends_in_an_error("f(", "1", ")", "{{ ", " }}");
    nested_ends_in_an_error("not ", "1", "", "{{ ", " }}");
    nested_ends_in_an_error("- ", "1", "", "{{ ", " }}");
    nested_ends_in_an_error("1 + ", "1", "", "{{ ", " }}");
    nested_ends_in_an_error("1 if 1 else ", "1", "", "{{ ", " }}");
    nested_ends_in_an_error("a", "", "|upper", "{{ ", " }}");
    nested_ends_in_an_error("", "a", ".b", "{{ ", " }}");
    nested_ends_in_an_error("", "a", "[0]", "{{ ", " }}");
    nested_ends_in_an_error("", "a", "()", "{{ ", " }}");
    nested_ends_in_an_error("{% if 1 %}", "1", "{% endif %}", "", "");
    nested_ends_in_an_error("{% for i in x %}", "1", "{% endfor %}", "", "");
    nested_ends_in_an_error("{% elif 1 %}", "1", "", "{% if 1 %}", "{% endif %}");
    nested_ends_in_an_error("{% macro m() %}", "1", "{% endmacro %}", "", "");
}

static void each_limit_can_be_set(void **state) {
    (void)state;
    static const char loop[] = "{% for i in range(999) %}{{ [i, i] }}{% endfor %}";
    struct reel_error err = { 0 };
    struct jinja_limits limits = jinja_default_limits();
    assert_int_equal(outcome(loop, strlen(loop), &limits, &err), REEL_OK);
    limits.steps = 1000;
    assert_int_equal(outcome(loop, strlen(loop), &limits, &err), REEL_E_LIMIT);
    assert_string_equal(err.text, "t:1: more than 1000 steps, which is the limit");
    limits = jinja_default_limits();
    limits.output_bytes = 100;
    assert_int_equal(outcome(loop, strlen(loop), &limits, &err), REEL_E_LIMIT);
    assert_string_equal(err.text, "t:1: more than 100 bytes of output, which is the limit");
    limits = jinja_default_limits();
    limits.memory_bytes = 40000;
    assert_int_equal(outcome(loop, strlen(loop), &limits, &err), REEL_E_LIMIT);
    assert_non_null(strstr(err.text, "40000 bytes of memory"));
    limits = jinja_default_limits();
    limits.source_bytes = 10;
    assert_int_equal(outcome(loop, strlen(loop), &limits, &err), REEL_E_LIMIT);
    limits = jinja_default_limits();
    limits.parse_depth = 3;
    assert_int_equal(outcome("{{ ((((1)))) }}", 15, &limits, &err), REEL_E_LIMIT);
}

/* ---- values and templates -------------------------------------------------------------------- */

static void what_is_refused_says_so(void **state) {
    (void)state;
    static const struct {
        const char *template;
        enum reel_status status;
        const char *words;
    } cases[] = {
        { "\n{% include 'x' %}", REEL_E_UNSUPPORTED, "t:2: the tag 'include'" },
        { "{% extends 'x' %}", REEL_E_UNSUPPORTED, "the tag 'extends'" },
        { "{% import 'x' as y %}", REEL_E_UNSUPPORTED, "the tag 'import'" },
        { "{% block x %}{% endblock %}", REEL_E_UNSUPPORTED, "the tag 'block'" },
        { "{% autoescape true %}{% endautoescape %}", REEL_E_UNSUPPORTED, "'autoescape'" },
        { "{{ x|wordwrap }}", REEL_E_FORMAT, "No filter named 'wordwrap'" },
        { "\xff", REEL_E_FORMAT, "UTF-8" },
        { "{{ raise_exception('only user') }}", REEL_E_ARGUMENT,
          "the template refuses: only user" },
        { "{{ [1]|map('string') }}", REEL_E_FORMAT, "|list makes a list of it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reel_error err = { 0 };
        enum reel_status status = outcome(cases[i].template, strlen(cases[i].template), NULL, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].words))
            fail_msg("%s: %d %s", cases[i].template, status, err.text);
    }
}

static void values_are_built_piece_by_piece(void **state) {
    (void)state;
    struct jinja_template *template = opened("{{ m }}{{ m.b[1] }}{{ j.n }}{{ z is defined }}");
    struct jinja_values *v = NULL;
    struct jinja_output out;
    json_t *tree = json_pack("{s: [i, b, n, f]}", "n", 5, 1, 0.5);
    assert_int_equal(jinja_values_open(&v, NULL, NULL), REEL_OK);
    struct jinja_value *map = jinja_map(v), *list = jinja_list(v);
    jinja_list_append(v, list, jinja_int(v, 1));
    jinja_list_append(v, list, jinja_text(v, "t\0u", 3, JINJA_FOREIGN));
    jinja_map_set(v, map, "a", jinja_none(v));
    jinja_map_set(v, map, "b", list);
    jinja_variable(v, "m", jinja_bool(v, false));
    jinja_variable(v, "m", map);
    jinja_variable(v, "j", jinja_json(v, tree));
    for (int i = 0; i < 2; i++) { /* the same values again */
        static const char wanted[] =
            "{'a': None, 'b': [1, 't\\x00u']}t\0u[5, True, None, 0.5]False";
        assert_int_equal(jinja_render(&out, template, v, NULL, NULL), REEL_OK);
        assert_int_equal(out.n_bytes, sizeof wanted - 1);
        assert_memory_equal(out.text, wanted, sizeof wanted);
        jinja_output_release(&out);
    }
    assert_true(jinja_template_reads(template, "z"));
    assert_false(jinja_template_reads(template, "b"));
    json_decref(tree);
    jinja_values_close(v);
    jinja_template_close(template);
}

static void the_first_failure_of_building_is_kept(void **state) {
    (void)state;
    struct jinja_template *template = opened("{{ x }}");
    struct jinja_values *v = NULL;
    struct jinja_output out;
    struct reel_error err;
    assert_int_equal(jinja_values_open(&v, NULL, NULL), REEL_OK);
    assert_null(jinja_json_text(v, "tools", "[1,]", 4));
    struct jinja_value *list = jinja_list(v);
    jinja_list_append(v, list, jinja_text(v, "\xff", 1, JINJA_FOREIGN));
    jinja_variable(v, "x", list);
    assert_int_equal(jinja_render(&out, template, v, NULL, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "tools"));
    assert_null(out.text);
    jinja_values_close(v);
    jinja_template_close(template);
}

static void bad_json_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",    "[",        "]",  "{",  "{1: 2}", "[1 2]",     "[1,]",   "{\"a\"}",
        "nul", "01",       "1.", "-",  "\"a",    "\"\\x\"",   "\"\n\"", "\"\\ud800\"",
        "1 2", "{\"a\":}", "+1", "1e", ".5",     "\"\\u12\"", "tru",    "--1"
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct jinja_values *v = NULL;
        assert_int_equal(jinja_values_open(&v, NULL, NULL), REEL_OK);
        if (jinja_json_text(v, "j", texts[i], strlen(texts[i]))) fail_msg("%s", texts[i]);
        jinja_values_close(v);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static const char shared_source[] =
    "{% macro m(x, y='d') %}{{ x|upper }}{{ y }}{% endmacro %}"
    "{% for i in range(20) %}{{ m('abc' ~ i) }}{{ 'é'[0] }}{{ {'a': 1}['a'] }}{% endfor %}";

static void *render_often(void *template) {
    for (int i = 0; i < 50; i++) {
        struct jinja_values *v = NULL;
        struct jinja_output out;
        assert_int_equal(jinja_values_open(&v, NULL, NULL), REEL_OK);
        assert_int_equal(jinja_render(&out, template, v, NULL, NULL), REEL_OK);
        assert_int_equal(strncmp(out.text,
                                 "ABC0d\xc3\xa9"
                                 "1ABC1d",
                                 13),
                         0);
        jinja_output_release(&out);
        jinja_values_close(v);
    }
    return NULL;
}

static void threads_share_a_template(void **state) {
    (void)state;
    struct jinja_template *template = opened(shared_source);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, template), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    jinja_template_close(template);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_knows_whose_it_is),
        cmocka_unit_test(hostile_templates_end_in_an_error),
        cmocka_unit_test(deep_nesting_ends_in_an_error),
        cmocka_unit_test(each_limit_can_be_set),
        cmocka_unit_test(what_is_refused_says_so),
        cmocka_unit_test(values_are_built_piece_by_piece),
        cmocka_unit_test(the_first_failure_of_building_is_kept),
        cmocka_unit_test(bad_json_is_refused),
        cmocka_unit_test(threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
