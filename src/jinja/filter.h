/* What the files of filters share. */
#ifndef REEL_JINJA_FILTER_H
#define REEL_JINJA_FILTER_H

#include "jinja/text.h"

/* filter_texts.c */
filter_fn filter_capitalize, filter_center, filter_default, filter_escape, filter_float,
    filter_forceescape, filter_format, filter_indent, filter_int, filter_lower, filter_replace,
    filter_round, filter_safe, filter_string, filter_title, filter_tojson, filter_trim,
    filter_truncate, filter_upper, filter_urlencode, filter_wordcount, filter_abs;

/* filter_lists.c */
filter_fn filter_attr, filter_batch, filter_dictsort, filter_first, filter_groupby, filter_items,
    filter_join, filter_last, filter_length, filter_list, filter_map, filter_max, filter_min,
    filter_reject, filter_rejectattr, filter_reverse, filter_select, filter_selectattr,
    filter_slice, filter_sort, filter_sum, filter_unique;

/* strftime.c: the time of the job, or the clock's. */
struct value text_strftime(struct job *job, const struct text *format);

/* An argument as Python would use it, or the fallback when it was not given. False after failing.
 */
bool arg_int(struct job *job, struct value v, const char *what, int64_t fallback, int64_t *out);
static inline bool arg_true(struct value v, bool fallback) {
    return is_given(v) ? value_true(v) : fallback;
}
/* str(v), or the fallback; NULL after failing. */
struct text *arg_text(struct job *job, struct value v, const char *fallback);

/* Python's int(): false when it raises. */
bool read_integer(struct job *job, struct value v, int base, struct value *out);

#endif
