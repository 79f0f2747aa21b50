/* Tests of what libcurl does: a build without it has one test in their place, which says why it is
 * skipped. To be included behind cmocka.h. */
#ifndef REEL_TESTS_WITHOUT_CURL_H
#define REEL_TESTS_WITHOUT_CURL_H

#ifdef REEL_WITH_CURL
enum { BUILT_WITH_CURL = 1 };
#else
enum { BUILT_WITH_CURL = 0 };
#endif

static void pull_is_tested(void **state) {
    (void)state;
    print_message("this build has no libcurl\n");
    skip();
}

/* What main() returns then. */
static inline int without_curl(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(pull_is_tested) };
    return cmocka_run_group_tests_name("without libcurl", tests, NULL, NULL);
}

#endif
