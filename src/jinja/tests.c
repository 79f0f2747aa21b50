/* Tests: what stands behind `is`. */
#include "jinja/filter.h"

#define TEST(name)                                                                                 \
    static struct value name(struct job *job, struct value in, const struct args *args)

/* The answer of a test without arguments. */
static struct value plainly(struct job *job, const struct args *args, bool answer) {
    if (args->n || args->n_keywords)
        return fail_python(job, "this test takes no arguments, %d were given",
                           args->n + args->n_keywords);
    return v_bool(answer);
}

TEST(test_defined) { return plainly(job, args, in.kind != V_UNDEFINED); }
TEST(test_undefined) { return plainly(job, args, in.kind == V_UNDEFINED); }
TEST(test_none) { return plainly(job, args, in.kind == V_NONE); }
TEST(test_boolean) { return plainly(job, args, in.kind == V_BOOL); }
TEST(test_true) { return plainly(job, args, in.kind == V_BOOL && in.b); }
TEST(test_false) { return plainly(job, args, in.kind == V_BOOL && !in.b); }
TEST(test_integer) { return plainly(job, args, in.kind == V_INT || in.kind == V_BIG); }
TEST(test_float) { return plainly(job, args, in.kind == V_FLOAT); }
TEST(test_number) { return plainly(job, args, is_number(in) || in.kind == V_BIG); }
TEST(test_string) { return plainly(job, args, is_text(in)); }
TEST(test_mapping) { return plainly(job, args, is_mapping(in)); }
TEST(test_iterable) { return plainly(job, args, is_iterable(in) || in.kind == V_LOOP); }
TEST(test_escaped) { return plainly(job, args, is_text(in) && in.text->safe); }
TEST(test_callable) {
    bool callable = in.kind == V_MACRO || in.kind == V_METHOD || in.kind == V_FUNCTION ||
                    in.kind == V_LOOP || in.kind == V_JOINER || in.kind == V_UNDEFINED;
    return plainly(job, args, callable);
}
TEST(test_sequence) {
    bool sequence = is_text(in) || in.kind == V_LIST || in.kind == V_TUPLE || in.kind == V_DICT ||
                    in.kind == V_RANGE || in.kind == V_UNDEFINED;
    return plainly(job, args, sequence);
}

/* Every letter is of one case, and there is one. */
static struct value test_case(struct job *job, struct value in, const struct args *args,
                              bool upper) {
    struct value v = value_str(job, in);
    if (is_failed(v) || !job_look(job, v.text->n)) return v_failed();
    bool any = false;
    for (size_t i = 0, size = 0; i < v.text->n; i += size) {
        uint32_t c = char_at(v.text, i, &size);
        if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return plainly(job, args, false);
        any |= upper ? is_upper(c) : is_lower(c);
    }
    return plainly(job, args, any);
}
TEST(test_lower) { return test_case(job, in, args, false); }
TEST(test_upper) { return test_case(job, in, args, true); }

TEST(test_odd) {
    struct value rest = operate(job, OP_MOD, in, v_int(2));
    return is_failed(rest) ? rest : plainly(job, args, values_equal(job, rest, v_int(1)));
}
TEST(test_even) {
    struct value rest = operate(job, OP_MOD, in, v_int(2));
    return is_failed(rest) ? rest : plainly(job, args, values_equal(job, rest, v_int(0)));
}
TEST(test_divisibleby) {
    struct value by;
    if (!args_bind(job, args, "divisibleby", "num", 1, &by)) return v_failed();
    struct value rest = operate(job, OP_MOD, in, by);
    return is_failed(rest) ? rest : v_bool(values_equal(job, rest, v_int(0)));
}
TEST(test_sameas) {
    struct value other;
    if (!args_bind(job, args, "sameas", "other", 1, &other)) return v_failed();
    return v_bool(values_same(in, other));
}
TEST(test_filter) {
    if (!is_text(in)) return plainly(job, args, false);
    return plainly(job, args, filter_find(in.text->bytes, in.text->n) != NULL);
}
TEST(test_test) {
    if (!is_text(in)) return plainly(job, args, false);
    return plainly(job, args, test_find(in.text->bytes, in.text->n) != NULL);
}

static struct value test_compare(struct job *job, struct value in, const struct args *args,
                                 enum comparison op) {
    struct value other;
    if (!args_bind(job, args, "a comparison", "other", 1, &other)) return v_failed();
    bool holds = compare(job, op, in, other);
    return job->failed ? v_failed() : v_bool(holds);
}
TEST(test_in) { return test_compare(job, in, args, CMP_IN); }
TEST(test_eq) { return test_compare(job, in, args, CMP_EQ); }
TEST(test_ne) { return test_compare(job, in, args, CMP_NE); }
TEST(test_lt) { return test_compare(job, in, args, CMP_LT); }
TEST(test_le) { return test_compare(job, in, args, CMP_LE); }
TEST(test_gt) { return test_compare(job, in, args, CMP_GT); }
TEST(test_ge) { return test_compare(job, in, args, CMP_GE); }

static const struct test_entry tests[] = {
    { "odd", test_odd },
    { "even", test_even },
    { "divisibleby", test_divisibleby },
    { "defined", test_defined },
    { "undefined", test_undefined },
    { "filter", test_filter },
    { "test", test_test },
    { "none", test_none },
    { "boolean", test_boolean },
    { "false", test_false },
    { "true", test_true },
    { "integer", test_integer },
    { "float", test_float },
    { "lower", test_lower },
    { "upper", test_upper },
    { "string", test_string },
    { "mapping", test_mapping },
    { "number", test_number },
    { "sequence", test_sequence },
    { "iterable", test_iterable },
    { "callable", test_callable },
    { "sameas", test_sameas },
    { "escaped", test_escaped },
    { "in", test_in },
    { "==", test_eq },
    { "eq", test_eq },
    { "equalto", test_eq },
    { "!=", test_ne },
    { "ne", test_ne },
    { ">", test_gt },
    { "gt", test_gt },
    { "greaterthan", test_gt },
    { "ge", test_ge },
    { ">=", test_ge },
    { "<", test_lt },
    { "lt", test_lt },
    { "lessthan", test_lt },
    { "<=", test_le },
    { "le", test_le },
};

const struct test_entry *test_find(const char *name, size_t n) {
    struct text word = { .bytes = name, .n = n };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (text_is(&word, tests[i].name)) return &tests[i];
    return NULL;
}
