#include "cli/chart.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool chart_is_unicode(void) {
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    const char *value = NULL;
    for (int i = 0; i < 3 && !(value && value[0]); i++)
        value = getenv(names[i]);
    const char *dot = value ? strchr(value, '.') : NULL;
    return dot && (strncasecmp(dot, ".utf-8", 6) == 0 || strncasecmp(dot, ".utf8", 5) == 0);
}

static enum reel_status repeat(struct buffer *out, const char *text, int n,
                               struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = buffer_text(out, text, err);
    return status;
}

static double within(double value, double most) {
    return value > 0 ? value < most ? value : most : 0; /* not a number: 0 */
}

enum reel_status chart_bar(struct buffer *out, double share, int width, bool fill, bool unicode,
                           struct reel_error *err) {
    static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    const int n = (int)lround(within(share, 1) * width * (unicode ? 8 : 1));
    const int whole = unicode ? n / 8 : n, rest = unicode ? n % 8 : 0;
    enum reel_status status = repeat(out, unicode ? "█" : "#", whole, err);
    if (status == REEL_OK) status = buffer_text(out, eighths[rest], err);
    if (status == REEL_OK && fill) status = repeat(out, " ", width - whole - (rest > 0), err);
    return status;
}

enum reel_status chart_columns(struct buffer *out, const double *values, int n, bool unicode,
                               struct reel_error *err) {
    static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const marks[] = { "_", "_", ".", ".", "-", "-", "=", "#" };
    enum reel_status status = REEL_OK;
    double most = 0;
    for (int i = 0; i < n; i++)
        most = values[i] > most ? values[i] : most;
    for (int i = 0; i < n && status == REEL_OK; i++) {
        const int level = most > 0 ? (int)lround(within(values[i] / most, 1) * 7) : 0;
        const char *mark = unicode ? blocks[level] : marks[level];
        status = buffer_text(out, values[i] >= 0 ? mark : " ", err);
    }
    return status;
}

void chart_number(double value, char *out, size_t n) {
    char digits[48];
    const int decimals = !(value > 0) ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(digits, sizeof digits, "%.*f", decimals, within(value, 1e15));
    const size_t length = strlen(digits);
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < n; i++) {
        out[used++] = digits[i];
        const size_t left = length - i - 1;
        if (decimals == 0 && left > 0 && left % 3 == 0 && used + 1 < n) out[used++] = ',';
    }
    if (n > 0) out[used] = '\0';
}

/* ---- a curve --------------------------------------------------------------------------------- */

#define LABEL_COLUMNS 10 /* of the numbers at the left, with the axis */

/* Dots: with Unicode each character is two dots wide and four high (braille), else one is a dot. */
struct raster {
    unsigned char *cells; /* [rows * columns]; bits of braille */
    bool *points;         /* [rows * columns] a measured value lies here */
    int columns, rows, wide, high;
};

static void put_dot(struct raster *r, int x, int y, bool is_point) {
    static const unsigned char bits[4][2] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };
    if (x < 0 || y < 0 || x >= r->columns * r->wide || y >= r->rows * r->high) return;
    const int at = y / r->high * r->columns + x / r->wide;
    r->cells[at] |= bits[y % r->high][x % r->wide];
    if (is_point) r->points[at] = true;
}

static double top_of(double most) {
    if (most <= 0) return 1;
    const double power = pow(10, floor(log10(most)));
    for (int i = 10; i <= 100; i += 5) /* 1, 1.5, 2, ... times a power of ten */
        if (power * i / 10 >= most * (1 - 1e-9)) return power * i / 10;
    return most;
}

static void draw(struct raster *r, const struct chart_curve *c, double most_x, double most_y) {
    const int across = r->columns * r->wide - 1, down = r->rows * r->high - 1;
    for (int i = 0; i < c->n_points; i++) {
        const struct chart_point from = c->points[i], to = c->points[i + (i + 1 < c->n_points)];
        const int x = (int)lround(from.x / most_x * across);
        const int end = (int)lround(to.x / most_x * across);
        for (int at = x; at <= end; at++) {
            const double part = end > x ? (double)(at - x) / (end - x) : 0;
            const double y = from.y + (to.y - from.y) * part;
            put_dot(r, at, down - (int)lround(y / most_y * down), false);
        }
        put_dot(r, x, down - (int)lround(from.y / most_y * down), true);
    }
}

static enum reel_status put_cell(struct buffer *out, const struct raster *r, int at, bool unicode,
                                 struct reel_error *err) {
    if (r->points[at]) return buffer_text(out, unicode ? "●" : "o", err);
    if (!r->cells[at]) return buffer_text(out, " ", err);
    if (!unicode) return buffer_text(out, ".", err);
    const char braille[] = { (char)0xe2, (char)(0xa0 | (r->cells[at] >> 6)),
                             (char)(0x80 | (r->cells[at] & 0x3f)), '\0' };
    return buffer_text(out, braille, err);
}

static enum reel_status put_row(struct buffer *out, const struct raster *r, int row, double most_y,
                                bool unicode, struct reel_error *err) {
    char label[32] = "";
    if (row == 0) chart_number(most_y, label, sizeof label);
    if (row == r->rows - 1) snprintf(label, sizeof label, "0");
    enum reel_status status =
        buffer_printf(out, err, "%*s %s", LABEL_COLUMNS - 2, label, unicode ? "│" : "|");
    int last = r->columns - 1; /* no blanks at the end of a line */
    while (last >= 0 && !r->cells[row * r->columns + last])
        last--;
    for (int i = 0; i <= last && status == REEL_OK; i++)
        status = put_cell(out, r, row * r->columns + i, unicode, err);
    return status == REEL_OK ? buffer_text(out, "\n", err) : status;
}

static enum reel_status put_axis(struct buffer *out, const struct chart_curve *c, int columns,
                                 double most_x, struct reel_error *err) {
    char most[32];
    chart_number(most_x, most, sizeof most);
    const int free_columns = columns - 1 - (int)strlen(most), name = (int)strlen(c->x_name);
    const bool named = free_columns >= name + 4; /* else it would stick to the numbers */
    const int before = named ? (free_columns - name) / 2 : 0;
    const int after = free_columns - before - (named ? name : 0);
    enum reel_status status =
        buffer_printf(out, err, "%*s %s", LABEL_COLUMNS - 2, "", c->unicode ? "└" : "+");
    if (status == REEL_OK) status = repeat(out, c->unicode ? "─" : "-", columns, err);
    if (status == REEL_OK)
        status = buffer_printf(out, err, "\n%*s0%*s%s%*s%s\n", LABEL_COLUMNS, "", before, "",
                               named ? c->x_name : "", after, "", most);
    return status;
}

enum reel_status chart_plot(struct buffer *out, const struct chart_curve *c,
                            struct reel_error *err) {
    const int columns = c->columns - LABEL_COLUMNS > 10 ? c->columns - LABEL_COLUMNS : 10;
    struct raster r = {
        .columns = columns, .rows = c->rows, .wide = c->unicode ? 2 : 1, .high = c->unicode ? 4 : 1
    };
    const size_t n = (size_t)columns * (size_t)c->rows;
    double most_x = 0, most_y = 0;
    for (int i = 0; i < c->n_points; i++) {
        most_x = c->points[i].x > most_x ? c->points[i].x : most_x;
        most_y = c->points[i].y > most_y ? c->points[i].y : most_y;
    }
    most_x = most_x > 0 ? most_x : 1;
    most_y = top_of(most_y);
    enum reel_status status = mem_zeroed(&r.cells, n, sizeof *r.cells, "a plot", err);
    if (status == REEL_OK) status = mem_zeroed(&r.points, n, sizeof *r.points, "a plot", err);
    if (status == REEL_OK) draw(&r, c, most_x, most_y);
    for (int row = 0; row < c->rows && status == REEL_OK; row++)
        status = put_row(out, &r, row, most_y, c->unicode, err);
    if (status == REEL_OK) status = put_axis(out, c, columns, most_x, err);
    mem_free(r.cells);
    mem_free(r.points);
    return status;
}
