/* The filters by name. */
#include "jinja/filter.h"

static const struct filter_entry filters[] = {
    { "abs", filter_abs, false },
    { "attr", filter_attr, false },
    { "batch", filter_batch, true },
    { "capitalize", filter_capitalize, false },
    { "center", filter_center, false },
    { "count", filter_length, false },
    { "d", filter_default, false },
    { "default", filter_default, false },
    { "dictsort", filter_dictsort, false },
    { "e", filter_escape, false },
    { "escape", filter_escape, false },
    { "first", filter_first, false },
    { "float", filter_float, false },
    { "forceescape", filter_forceescape, false },
    { "format", filter_format, false },
    { "groupby", filter_groupby, false },
    { "indent", filter_indent, false },
    { "int", filter_int, false },
    { "items", filter_items, true },
    { "join", filter_join, false },
    { "last", filter_last, false },
    { "length", filter_length, false },
    { "list", filter_list, false },
    { "lower", filter_lower, false },
    { "map", filter_map, true },
    { "max", filter_max, false },
    { "min", filter_min, false },
    { "reject", filter_reject, true },
    { "rejectattr", filter_rejectattr, true },
    { "replace", filter_replace, false },
    { "reverse", filter_reverse, false },
    { "round", filter_round, false },
    { "safe", filter_safe, false },
    { "select", filter_select, true },
    { "selectattr", filter_selectattr, true },
    { "slice", filter_slice, true },
    { "sort", filter_sort, false },
    { "string", filter_string, false },
    { "sum", filter_sum, false },
    { "title", filter_title, false },
    { "tojson", filter_tojson, false },
    { "trim", filter_trim, false },
    { "truncate", filter_truncate, false },
    { "unique", filter_unique, true },
    { "upper", filter_upper, false },
    { "urlencode", filter_urlencode, false },
    { "wordcount", filter_wordcount, false },
};

const struct filter_entry *filter_find(const char *name, size_t n) {
    struct text word = { .bytes = name, .n = n };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (text_is(&word, filters[i].name)) return &filters[i];
    return NULL;
}

struct value filter_apply(struct job *job, const struct filter_entry *filter, struct value in,
                          const struct args *args) {
    if (is_failed(in) || !job_step(job, 1)) return v_failed();
    if (filter->lazy) return generator_of(job, filter->fn, in, args);
    if (!job_enter(job)) return v_failed();
    struct value out = filter->fn(job, in, args);
    job_leave(job);
    return job->failed ? v_failed() : out;
}
