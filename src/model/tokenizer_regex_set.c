/* Sets of code points as sorted lists of the places where membership changes. */
#include "model/tokenizer_regex_parts.h"

#include "base/memory.h"

#include <string.h>

void set_release(struct code_set *set) {
    mem_free(set->at);
    *set = (struct code_set){ 0 };
}

bool set_range(struct code_set *to, uint32_t first, uint32_t last) {
    uint32_t *at = mem_alloc(2 * sizeof *at);
    if (!at) return false;
    set_release(to);
    at[0] = first;
    at[1] = last + 1;
    *to = (struct code_set){ at, 2 };
    return true;
}

bool set_combine(struct code_set *to, const struct code_set *with, enum set_operation operation) {
    uint32_t *at = mem_alloc((to->n + with->n + 1) * sizeof *at);
    size_t i = 0, k = 0, n = 0;
    if (!at) return false;
    while (i < to->n || k < with->n) {
        uint32_t x = i < to->n ? to->at[i] : UINT32_MAX;
        if (k < with->n && with->at[k] < x) x = with->at[k];
        if (i < to->n && to->at[i] == x) i++;
        if (k < with->n && with->at[k] == x) k++;
        bool in_first = i & 1, in_second = k & 1; /* an odd number of changes went by */
        bool in = operation == SET_OR ? in_first || in_second : in_first && in_second;
        if (in != (n & 1)) at[n++] = x;
    }
    set_release(to);
    *to = (struct code_set){ at, n };
    return true;
}

bool set_complement(struct code_set *set) {
    bool from_zero = set->n && set->at[0] == 0;
    bool to_end = set->n && set->at[set->n - 1] == UNICODE_END;
    uint32_t *at = mem_alloc((set->n + 2) * sizeof *at);
    size_t n = 0;
    if (!at) return false;
    if (!from_zero) at[n++] = 0;
    for (size_t i = from_zero; i < set->n - to_end; i++)
        at[n++] = set->at[i];
    if (!to_end) at[n++] = UNICODE_END;
    set_release(set);
    *set = (struct code_set){ at, n };
    return true;
}

static bool range_is(const struct unicode_range *range, uint32_t categories, unsigned classes) {
    return (categories >> range->category & 1) || (range->classes & classes);
}

bool set_property(struct code_set *to, uint32_t categories, unsigned classes) {
    size_t n = 0;
    bool in = false;
    for (int i = 0; i < n_unicode_ranges; i++)
        if (range_is(&unicode_ranges[i], categories, classes) != in) {
            in = !in;
            n++;
        }
    uint32_t *at = mem_alloc((n + in + 1) * sizeof *at);
    if (!at) return false;
    set_release(to);
    *to = (struct code_set){ at, n + in };
    in = false;
    for (int i = 0; i < n_unicode_ranges; i++)
        if (range_is(&unicode_ranges[i], categories, classes) != in) {
            in = !in;
            *at++ = unicode_ranges[i].first;
        }
    if (in) *at = UNICODE_END;
    return true;
}

bool set_has(const struct code_set *set, uint32_t c) {
    size_t low = 0, high = set->n; /* changes at or before c */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->at[middle] <= c)
            low = middle + 1;
        else
            high = middle;
    }
    return low & 1;
}

bool set_equal(const struct code_set *a, const struct code_set *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->at, b->at, a->n * sizeof *a->at) == 0);
}
