/* strftime_now: the names of days and months are English, whatever the locale. */
#include "jinja/filter.h"

#include <stdio.h>

static const char *const days[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
                                    "Thursday", "Friday", "Saturday" };
static const char *const months[] = { "January",   "February", "March",    "April",
                                      "May",       "June",     "July",     "August",
                                      "September", "October",  "November", "December" };

static void put_number(struct sink *out, int value, int width, char pad) {
    char text[16];
    if (pad == '-')
        snprintf(text, sizeof text, "%d", value);
    else
        snprintf(text, sizeof text, pad == ' ' ? "%*d" : "%0*d", width, value);
    sink_word(out, text, false);
}

static int hour12(const struct tm *t) { return t->tm_hour % 12 ? t->tm_hour % 12 : 12; }

/* The week of the year whose first day is `first` (0 Sunday, 1 Monday). */
static int week(const struct tm *t, int first) {
    return (t->tm_yday + 7 - (t->tm_wday - first + 7) % 7) / 7;
}

static void put_code(struct sink *out, const struct tm *t, char code, char pad) {
    switch (code) {
    case 'Y':
        put_number(out, t->tm_year + 1900, 4, '-');
        break;
    case 'y':
        put_number(out, t->tm_year % 100, 2, pad);
        break;
    case 'm':
        put_number(out, t->tm_mon + 1, 2, pad);
        break;
    case 'd':
        put_number(out, t->tm_mday, 2, pad);
        break;
    case 'e':
        put_number(out, t->tm_mday, 2, (char)(pad == '0' ? ' ' : pad));
        break;
    case 'H':
        put_number(out, t->tm_hour, 2, pad);
        break;
    case 'I':
        put_number(out, hour12(t), 2, pad);
        break;
    case 'M':
        put_number(out, t->tm_min, 2, pad);
        break;
    case 'S':
        put_number(out, t->tm_sec, 2, pad);
        break;
    case 'j':
        put_number(out, t->tm_yday + 1, 3, pad);
        break;
    case 'U':
        put_number(out, week(t, 0), 2, pad);
        break;
    case 'W':
        put_number(out, week(t, 1), 2, pad);
        break;
    case 'w':
        put_number(out, t->tm_wday, 1, '-');
        break;
    case 'u':
        put_number(out, t->tm_wday ? t->tm_wday : 7, 1, '-');
        break;
    case 'p':
        sink_word(out, t->tm_hour < 12 ? "AM" : "PM", false);
        break;
    case 'A':
        sink_word(out, days[t->tm_wday], false);
        break;
    case 'a':
        sink_put(out, days[t->tm_wday], 3, false);
        break;
    case 'B':
        sink_word(out, months[t->tm_mon], false);
        break;
    case 'b':
    case 'h':
        sink_put(out, months[t->tm_mon], 3, false);
        break;
    default:
        fail_python(out->job, "strftime_now: the code %%%c is not supported", code);
    }
}

/* The codes that stand for several others. */
static const char *several(char code) {
    switch (code) {
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'F':
        return "%Y-%m-%d";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'R':
        return "%H:%M";
    case 'r':
        return "%I:%M:%S %p";
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    default:
        return NULL;
    }
}

static void put_codes(struct sink *out, const struct tm *t, const char *codes) {
    for (; *codes; codes++) {
        if (*codes == '%')
            put_code(out, t, *++codes, '0');
        else
            sink_put(out, codes, 1, false);
    }
}

struct value text_strftime(struct job *job, const struct text *format) {
    struct sink out = { .job = job };
    struct tm local;
    const struct tm *t = job->now;
    if (!t) {
        time_t now = time(NULL);
        t = localtime_r(&now, &local);
    }
    if (!t) return fail_python(job, "the clock's time cannot be read");
    if (!job_look(job, format->n * 24)) return v_failed();
    for (size_t i = 0; i < format->n && !job->failed; i++) {
        if (format->bytes[i] != '%' || i + 1 >= format->n) {
            sink_part(&out, format, i, i + 1);
            continue;
        }
        char pad = '0', code = format->bytes[++i];
        if ((code == '-' || code == '_') && i + 1 < format->n) {
            pad = (char)(code == '-' ? '-' : ' ');
            code = format->bytes[++i];
        }
        if (code == '%' || code == 'n' || code == 't')
            sink_put(&out, code == '%' ? "%" : code == 'n' ? "\n" : "\t", 1, false);
        else if (several(code))
            put_codes(&out, t, several(code));
        else
            put_code(&out, t, code, pad);
    }
    if (format->foreign) sink_own_to_foreign(&out, 0); /* what it makes of the clock too */
    return sink_value(&out);
}
