#include "base/decimal.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything here avoids the decimal point, which the locale may have changed. */
static bool reads_back(double value, const char *digits, size_t n, int exponent) {
    char text[40];
    snprintf(text, sizeof text, "%.*se%d", (int)n, digits, exponent - (int)n + 1);
    return strtod(text, NULL) == value;
}

static bool digits_above(char *digits, size_t n) {
    while (n && digits[n - 1] == '9')
        digits[--n] = '0';
    if (n == 0) return false;
    digits[n - 1]++;
    return true;
}

size_t decimal_shortest(double value, char digits[18], int *exponent) {
    for (size_t n = 1; n <= 17; n++) {
        char text[40];
        size_t k = 0;
        snprintf(text, sizeof text, "%.*e", (int)n - 1, value);
        const char *e = strchr(text, 'e');
        for (const char *p = text; p < e; p++)
            if (isdigit((unsigned char)*p)) digits[k++] = *p;
        digits[k] = '\0';
        *exponent = (int)strtol(e + 1, NULL, 10);
        if (reads_back(value, digits, n, *exponent)) return n;
        char above[18];
        memcpy(above, digits, sizeof above);
        if (digits_above(above, n) && reads_back(value, above, n, *exponent)) {
            memcpy(digits, above, sizeof above);
            return n;
        }
    }
    return 17; /* 17 digits always read back */
}
