/* Every mutation of the kernels finds the text that it changes: only a share of them is compiled
 * and tried in a run, so a kernel that was edited would show late. */
#include "support/mutations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *text_of(const char *file) {
    char path[200];
    snprintf(path, sizeof path, "kernels/%s", file);
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static bool fits(const struct mutation_list *list, const struct mutation *m) {
    bool all = true;
    for (const struct fake_patch *p = m->patches; p->file; p++) {
        char *text = text_of(p->file);
        const int n = text ? count(text, p->from) : 0;
        free(text);
        if (n == 1 || (n > 1 && p->everywhere)) continue;
        print_error("%s, \"%s\": found %d times in kernels/%s: %s\n", list->name, m->what, n,
                    p->file, p->from);
        all = false;
    }
    return all;
}

static void every_mutation_finds_its_place_in_the_kernels(void **state) {
    (void)state;
    int n = 0, wrong = 0;
    for (const struct mutation_list *const *list = mutation_lists; *list; list++)
        for (int i = 0; i < (*list)->n; i++, n++)
            wrong += !fits(*list, &(*list)->all[i]);
    printf("%d mutations\n", n);
    assert_true(n > 100);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mutation_finds_its_place_in_the_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
