/* Python's operators. Integers that leave 64 bits are refused. */
#include "jinja/text.h"

#include "base/checked.h"

#include <math.h>

static const char *const symbols[] = { "+", "-", "*", "/", "//", "%", "**" };

static struct value beyond(struct job *job) {
    return fail(job, REEL_E_LIMIT, "an integer beyond 64 bits, which is the limit");
}

static struct value wrong_types(struct job *job, enum operator op, struct value a, struct value b) {
    if (a.kind == V_UNDEFINED) return fail_undefined(job, a);
    if (b.kind == V_UNDEFINED) return fail_undefined(job, b);
    if (a.kind == V_BIG || b.kind == V_BIG) return beyond(job);
    return fail_python(job, "unsupported operand types for %s: '%s' and '%s'", symbols[op],
                       type_name(a), type_name(b));
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static struct value int_power(struct job *job, int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) return fail_python(job, "0.0 cannot be raised to a negative power");
        return v_float(pow((double)base, (double)exponent));
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return beyond(job);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return beyond(job);
    }
    return v_int(result);
}

static struct value operate_ints(struct job *job, enum operator op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool over = false;
    if (b == 0 && op == OP_DIV) return fail_python(job, "division by zero");
    if (b == 0 && (op == OP_FLOORDIV || op == OP_MOD))
        return fail_python(job, "integer division or modulo by zero");
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIV:
        return v_float((double)a / (double)b);
    case OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        result = over ? 0 : floor_div(a, b);
        break;
    case OP_MOD:
        result = b == -1 ? 0 : a - floor_div(a, b) * b;
        break;
    case OP_POW:
        return int_power(job, a, b);
    }
    return over ? beyond(job) : v_int(result);
}

static double float_mod(double a, double b) {
    double rest = fmod(a, b);
    if (rest != 0) return (b < 0) != (rest < 0) ? rest + b : rest;
    return copysign(0.0, b);
}

/* As CPython's float_floor_div: exact where a plain division would round up. */
static double float_floor_div(double a, double b) {
    double quotient = (a - float_mod(a, b)) / b;
    if (quotient == 0) return copysign(0.0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct value operate_floats(struct job *job, enum operator op, double a, double b) {
    if (b == 0 && op == OP_DIV) return fail_python(job, "float division by zero");
    if (b == 0 && op == OP_FLOORDIV) return fail_python(job, "float floor division by zero");
    if (b == 0 && op == OP_MOD) return fail_python(job, "float modulo");
    switch (op) {
    case OP_ADD:
        return v_float(a + b);
    case OP_SUB:
        return v_float(a - b);
    case OP_MUL:
        return v_float(a * b);
    case OP_DIV:
        return v_float(a / b);
    case OP_FLOORDIV:
        return v_float(float_floor_div(a, b));
    case OP_MOD:
        return v_float(float_mod(a, b));
    case OP_POW:
        break;
    }
    if (a == 0 && b < 0) return fail_python(job, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return fail_python(job, "a complex number, which templates here do not have");
    double result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b))
        return fail_python(job, "numerical result out of range");
    return v_float(result);
}

/* ---- texts and lists ------------------------------------------------------------------------- */

struct value beside_markup(struct job *job, const struct text *markup, struct value v) {
    if (!markup->safe || (is_text(v) && v.text->safe)) return v;
    const struct filter_entry *escape = filter_find("escape", 6);
    return filter_apply(job, escape, v, &(struct args){ 0 });
}

static struct value add_texts(struct job *job, struct value a, struct value b) {
    const bool safe = a.text->safe || b.text->safe;
    const struct value left = a;
    a = beside_markup(job, b.text, a);
    b = beside_markup(job, left.text, b);
    if (is_failed(a) || is_failed(b)) return v_failed();
    struct value sum = v_text(text_join(job, a.text, b.text));
    if (!is_failed(sum) && safe && !sum.text->safe) {
        sum = v_text(text_part(job, sum.text, 0, sum.text->n));
        if (!is_failed(sum)) sum.text->safe = true;
    }
    return sum;
}

static struct value add_lists(struct job *job, struct value a, struct value b) {
    struct list *sum = list_new(job, a.list->n + b.list->n);
    for (size_t i = 0; i < a.list->n; i++)
        if (!list_add(job, sum, a.list->items[i])) return v_failed();
    for (size_t i = 0; i < b.list->n; i++)
        if (!list_add(job, sum, b.list->items[i])) return v_failed();
    return a.kind == V_LIST ? v_list(sum) : v_tuple(sum);
}

static struct value repeat_text(struct job *job, const struct text *t, int64_t times) {
    size_t bytes = 0;
    if (times <= 0 || !t->n) return v_word(job, "", false);
    if (!size_mul(t->n, (size_t)times, &bytes) || bytes > job->limits.memory_bytes)
        return fail_limit(job, "bytes of memory", job->limits.memory_bytes);
    if (!job_look(job, bytes)) return v_failed();
    struct sink out = { .job = job, .safe = t->safe };
    for (int64_t i = 0; i < times && !job->failed; i++)
        sink_text(&out, t);
    return sink_value(&out);
}

static struct value repeat_list(struct job *job, struct value v, int64_t times) {
    struct list *out = list_new(job, 0);
    for (int64_t i = 0; v.list->n && i < times; i++)
        for (size_t k = 0; k < v.list->n; k++)
            if (!list_add(job, out, v.list->items[k])) return v_failed();
    return v.kind == V_LIST ? v_list(out) : v_tuple(out);
}

static bool is_sequence(struct value v) {
    return v.kind == V_TEXT || v.kind == V_LIST || v.kind == V_TUPLE;
}

static struct value repeat(struct job *job, struct value v, struct value times) {
    if (v.kind != V_TEXT) return repeat_list(job, v, as_int(times));
    struct value out = repeat_text(job, v.text, as_int(times));
    if (is_failed(out) || !times.foreign || !out.text->n) return out;
    /* How often is a foreign matter, whose word it is stays. */
    return out;
}

struct value operate(struct job *job, enum operator op, struct value a, struct value b) {
    if (is_failed(a) || is_failed(b) || !job_step(job, 1)) return v_failed();
    if (is_int(a) && is_int(b))
        return v_marked(operate_ints(job, op, as_int(a), as_int(b)), a.foreign || b.foreign);
    if (is_number(a) && is_number(b))
        return v_marked(operate_floats(job, op, as_float(a), as_float(b)), a.foreign || b.foreign);
    if (op == OP_MOD && is_text(a)) return text_percent(job, a.text, b);
    if (op == OP_ADD && a.kind == b.kind) {
        if (is_text(a)) return add_texts(job, a, b);
        if (a.kind == V_LIST || a.kind == V_TUPLE) return add_lists(job, a, b);
    }
    if (op == OP_ADD && is_text(a) && b.kind != V_UNDEFINED)
        return fail_python(job, "can only concatenate str (not \"%s\") to str", type_name(b));
    if (op == OP_MUL && is_sequence(a) && is_int(b)) return repeat(job, a, b);
    if (op == OP_MUL && is_sequence(b) && is_int(a)) return repeat(job, b, a);
    return wrong_types(job, op, a, b);
}

struct value negate(struct job *job, struct value v, bool minus) {
    if (is_failed(v)) return v;
    if (v.kind == V_FLOAT) return v_marked(v_float(minus ? -v.f : v.f), v.foreign);
    if (is_int(v)) {
        if (minus && as_int(v) == INT64_MIN) return beyond(job);
        return v_marked(v_int(minus ? -as_int(v) : as_int(v)), v.foreign);
    }
    if (v.kind == V_UNDEFINED) return fail_undefined(job, v);
    if (v.kind == V_BIG) return beyond(job);
    return fail_python(job, "bad operand type for unary %c: '%s'", minus ? '-' : '+', type_name(v));
}

bool compare(struct job *job, enum comparison op, struct value a, struct value b) {
    if (is_failed(a) || is_failed(b) || !job_step(job, 1)) return false;
    switch (op) {
    case CMP_EQ:
        return values_equal(job, a, b);
    case CMP_NE:
        return !values_equal(job, a, b) && !job->failed;
    case CMP_LT:
        return value_less(job, a, b, "<");
    case CMP_GT:
        return value_less(job, b, a, ">");
    case CMP_LE: /* not the opposite of > : NaN is neither */
        return value_less(job, a, b, "<=") || (!job->failed && values_equal(job, a, b));
    case CMP_GE:
        return value_less(job, b, a, ">=") || (!job->failed && values_equal(job, a, b));
    case CMP_IN:
        return value_contains(job, b, a);
    case CMP_NOT_IN:
        return !value_contains(job, b, a) && !job->failed;
    }
    return false;
}
