/* GGUF: what is read, and one bad file for every rule. */
#include "model/gguf.h"

#include "../support/model_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct opened {
    struct gguf gguf;
    struct tensor_file file;
    struct guarded bytes; /* end at an unreadable page */
    struct reel_error err;
    enum reel_status status;
};

static struct opened open_bytes(const struct bytes *b) {
    struct opened o = { .bytes = guarded_copy(b->data, b->n) };
    struct reel_memory_file one = { "m.gguf", o.bytes.bytes, o.bytes.n };
    struct model_source source;
    assert_int_equal(model_source_open_memory(&source, "mem.gguf", &one, 1, &o.err), REEL_OK);
    o.status = gguf_open(&o.gguf, &o.file, &source, &o.err);
    model_source_release(&source);
    return o;
}

static void close_opened(struct opened *o) {
    tensor_file_release(&o->file);
    gguf_release(&o->gguf);
    guarded_release(&o->bytes);
}

static void expect(const char *what, const struct bytes *b, enum reel_status status,
                   const char *says) {
    struct opened o = open_bytes(b);
    if (o.status != status || !strstr(o.err.text, says) || !strstr(o.err.text, "mem.gguf"))
        fail_msg("%s: status %d, \"%s\", expected %d with %s", what, o.status, o.err.text, status,
                 says);
    assert_int_equal(o.gguf.n_values, 0);
    assert_int_equal(o.file.n_tensors, 0);
    close_opened(&o);
}

/* A valid file with one value of every type. */
static void all_values(struct bytes *b, uint32_t version) {
    bytes_gguf_header(b, version, 0, 14);
    static const struct {
        const char *key;
        enum gguf_type type;
        size_t n;
    } scalars[] = {
        { "u8", GGUF_U8, 1 },   { "i8", GGUF_I8, 1 },   { "u16", GGUF_U16, 2 },
        { "i16", GGUF_I16, 2 }, { "u32", GGUF_U32, 4 }, { "i32", GGUF_I32, 4 },
        { "u64", GGUF_U64, 8 }, { "i64", GGUF_I64, 8 },
    };
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        bytes_text(b, scalars[i].key);
        bytes_u32(b, scalars[i].type);
        bytes_add(b, "\xff\xff\xff\xff\xff\xff\xff\xff", scalars[i].n);
    }
    bytes_gguf_f32(b, "f32", 1.5f);
    bytes_text(b, "f64");
    bytes_u32(b, GGUF_F64);
    double x = -0.1;
    bytes_add(b, &x, 8);
    bytes_text(b, "bool");
    bytes_u32(b, GGUF_BOOL);
    bytes_add(b, "\1", 1);
    bytes_gguf_text(b, "text", "h\xc3\xa9");
    bytes_text(b, "list");
    bytes_u32(b, GGUF_ARRAY);
    bytes_u32(b, GGUF_I16);
    bytes_u64(b, 2);
    bytes_add(b, "\xfe\xff\x07\x00", 4);
    bytes_text(b, "texts");
    bytes_u32(b, GGUF_ARRAY);
    bytes_u32(b, GGUF_STRING);
    bytes_u64(b, 3);
    bytes_text(b, "one");
    bytes_text(b, "");
    bytes_text(b, "three");
}

static void check_numbers(const struct gguf *g) {
    static const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        { "u8", 255 }, { "i8", -1 },           { "u16", 65535 },     { "i16", -1 },
        { "i32", -1 }, { "u32", 4294967295u }, { "u64", INT64_MAX }, { "i64", -1 },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int64_t value = 7;
        assert_int_equal(gguf_get_int(g, numbers[i].key, INT64_MIN, INT64_MAX, true, &value, NULL),
                         REEL_OK);
        assert_true(value == numbers[i].value);
    }
    double x = 0;
    assert_int_equal(gguf_get_real(g, "f32", true, &x, NULL), REEL_OK);
    assert_true(x == 1.5);
    assert_int_equal(gguf_get_real(g, "f64", true, &x, NULL), REEL_OK);
    assert_true(x == -0.1);
    assert_int_equal(gguf_get_real(g, "i8", true, &x, NULL), REEL_OK);
    assert_true(x == -1);
}

static void every_value_type_is_read(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct bytes b = { 0 };
        all_values(&b, version);
        struct opened o = open_bytes(&b);
        assert_int_equal(o.status, REEL_OK);
        check_numbers(&o.gguf);
        bool yes = false;
        assert_int_equal(gguf_get_bool(&o.gguf, "bool", true, &yes, NULL), REEL_OK);
        assert_true(yes);
        const char *text = NULL;
        size_t n = 0;
        assert_int_equal(gguf_get_text(&o.gguf, "text", true, &text, &n, NULL), REEL_OK);
        assert_int_equal(n, 3);
        assert_memory_equal(text, "h\xc3\xa9", 3);
        const struct gguf_value *list = gguf_find(&o.gguf, "list");
        int64_t element = 0;
        assert_true(gguf_value_int(list, 0, &element) && element == -2);
        assert_true(gguf_value_int(list, 1, &element) && element == 7);
        assert_false(gguf_value_int(list, 2, &element));
        assert_null(gguf_find(&o.gguf, "lis"));
        assert_null(gguf_find(&o.gguf, "listt"));
        close_opened(&o);
        bytes_release(&b);
    }
}

static void a_list_of_texts_is_walked_to_its_end(void **state) {
    (void)state;
    static const char *const expected[] = { "one", "", "three" };
    struct bytes b = { 0 };
    all_values(&b, 3);
    struct opened o = open_bytes(&b);
    const struct gguf_value *texts = gguf_find(&o.gguf, "texts");
    const unsigned char *cursor = texts->bytes;
    const char *text = NULL;
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(gguf_next_text(texts, &cursor, &text, &n));
        assert_int_equal(n, strlen(expected[i]));
        assert_memory_equal(text, expected[i], n);
    }
    assert_false(gguf_next_text(texts, &cursor, &text, &n));
    const struct gguf_value *list = gguf_find(&o.gguf, "list");
    cursor = list->bytes;
    assert_false(gguf_next_text(list, &cursor, &text, &n));
    close_opened(&o);
    bytes_release(&b);
}

static void typed_reads_say_what_is_wrong(void **state) {
    (void)state;
    struct bytes b = { 0 };
    all_values(&b, 3);
    struct opened o = open_bytes(&b);
    struct reel_error err = { 0 };
    int64_t i = 5;
    double x = 5;
    bool yes = false;
    const char *text = NULL;
    size_t n = 0;
    assert_int_equal(gguf_get_int(&o.gguf, "none", 0, 9, false, &i, &err), REEL_OK);
    assert_true(i == 5);
    assert_int_equal(gguf_get_int(&o.gguf, "none", 0, 9, true, &i, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "\"none\" is missing"));
    assert_int_equal(gguf_get_int(&o.gguf, "u8", 0, 254, true, &i, &err), REEL_E_LIMIT);
    assert_non_null(strstr(err.text, "\"u8\" is 255, allowed are 0 to 254"));
    assert_int_equal(gguf_get_int(&o.gguf, "f32", 0, 9, true, &i, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "\"f32\" must be an integer"));
    assert_int_equal(gguf_get_int(&o.gguf, "list", -9, 9, true, &i, &err), REEL_E_FORMAT);
    assert_int_equal(gguf_get_int(&o.gguf, "bool", 0, 9, true, &i, &err), REEL_E_FORMAT);
    assert_int_equal(gguf_get_real(&o.gguf, "text", true, &x, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "\"text\" must be a number, found a text"));
    assert_int_equal(gguf_get_real(&o.gguf, "list", true, &x, &err), REEL_E_FORMAT);
    assert_int_equal(gguf_get_bool(&o.gguf, "u8", true, &yes, &err), REEL_E_FORMAT);
    assert_int_equal(gguf_get_text(&o.gguf, "u8", true, &text, &n, &err), REEL_E_FORMAT);
    assert_true(i == 5 && x == 5 && !yes && !text);
    close_opened(&o);
    bytes_release(&b);
}

static void numbers_that_are_not_finite_are_refused(void **state) {
    (void)state;
    const float odd[] = { NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 3; i++) {
        struct bytes b = { 0 };
        bytes_gguf_header(&b, 3, 0, 1);
        bytes_gguf_f32(&b, "x", odd[i]);
        struct opened o = open_bytes(&b);
        assert_int_equal(o.status, REEL_OK);
        double x = 0;
        assert_int_equal(gguf_get_real(&o.gguf, "x", true, &x, &o.err), REEL_E_FORMAT);
        assert_non_null(strstr(o.err.text, "\"x\" is not a finite number"));
        close_opened(&o);
        bytes_release(&b);
    }
}

static void shapes_are_turned_to_outermost_first(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_gguf_header(&b, 3, 3, 0);
    bytes_gguf_tensor(&b, "z", 2, (uint64_t[]){ 64, 3 }, 3, 0); /* q4_1: 3 rows of 40 bytes */
    bytes_gguf_tensor(&b, "i", 1, (uint64_t[]){ 2 }, 26, 128);
    bytes_gguf_tensor(&b, "a", 3, (uint64_t[]){ 2, 3, 5 }, 0, 160);
    bytes_pad(&b, 32);
    bytes_zeros(&b, 160 + 120);
    struct opened o = open_bytes(&b);
    assert_string_equal(o.err.text, "");
    assert_int_equal(o.file.n_tensors, 2);
    const struct tensor *z = tensor_find(&o.file, "z"), *a = tensor_find(&o.file, "a");
    assert_int_equal(z->shape[0], 3);
    assert_int_equal(z->shape[1], 64);
    assert_int_equal(z->n_bytes, 120);
    assert_int_equal(a->shape[0], 5);
    assert_int_equal(a->shape[2], 2);
    assert_ptr_equal(z->data, o.bytes.bytes + o.bytes.n - 280);
    assert_ptr_equal(a->data, o.bytes.bytes + o.bytes.n - 120);
    assert_string_equal(tensor_find_ignored(&o.file, "i")->what, "type I32");
    close_opened(&o);
    bytes_release(&b);
}

/* ---- bad files ------------------------------------------------------------------------------- */

/* Other readers took memory for as many as a header says (CVE-2024-21802, CVE-2024-23605). */
static void cve_2024_21802_bad_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *magic;
        uint32_t version;
        uint64_t n_tensors, n_values;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "GGUE", 3, 0, 0, REEL_E_FORMAT, "GGUF" },
        { "ggjt", 3, 0, 0, REEL_E_FORMAT, "GGUF" },
        { "GGUF", 0, 0, 0, REEL_E_UNSUPPORTED, "version 0" },
        { "GGUF", 1, 0, 0, REEL_E_UNSUPPORTED, "version 1" },
        { "GGUF", 4, 0, 0, REEL_E_UNSUPPORTED, "version 4" },
        { "GGUF", 0x03000000, 0, 0, REEL_E_UNSUPPORTED, "big-endian" },
        { "GGUF", 0x02000000, 0, 0, REEL_E_UNSUPPORTED, "big-endian" },
        { "GGUF", 3, TENSOR_MAX_COUNT + 1, 0, REEL_E_LIMIT, "tensors" },
        { "GGUF", 3, UINT64_MAX, 0, REEL_E_LIMIT, "tensors" },
        { "GGUF", 3, UINT32_MAX, 0, REEL_E_LIMIT, "tensors" },
        { "GGUF", 3, UINT64_C(1) << 31, 0, REEL_E_LIMIT, "tensors" },
        { "GGUF", 3, UINT64_C(1) << 63, 0, REEL_E_LIMIT, "tensors" },
        { "GGUF", 3, 0, UINT32_MAX, REEL_E_LIMIT, "keys" },
        { "GGUF", 3, 0, UINT64_C(1) << 63, REEL_E_LIMIT, "keys" },
        { "GGUF", 3, 0, 65537, REEL_E_LIMIT, "keys" },
        { "GGUF", 3, 0, UINT64_MAX, REEL_E_LIMIT, "keys" },
        { "GGUF", 3, 1, 0, REEL_E_FORMAT, "tensor" },
        { "GGUF", 3, TENSOR_MAX_COUNT, 0, REEL_E_FORMAT, "tensor" },
        { "GGUF", 3, 0, 1, REEL_E_FORMAT, "key" },
        { "GGUF", 3, 0, 65536, REEL_E_FORMAT, "key" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        bytes_gguf_header(&b, cases[i].version, cases[i].n_tensors, cases[i].n_values);
        memcpy(b.data, cases[i].magic, 4);
        expect(cases[i].says, &b, cases[i].status, cases[i].says);
        bytes_release(&b);
    }
}

#define RAW(text)   text, sizeof text - 1
#define HUGE_LENGTH "\xff\xff\xff\xff\xff\xff\xff\xff"

/* Among them what reports to llama.cpp of 2026 named: an alignment without an upper bound, lists
 * whose elements' type was not looked at. */
static void bad_values_are_refused_by_key(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t type;
        const char *raw;
        size_t n;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "", GGUF_U8, RAW("\0"), REEL_E_FORMAT, "empty key" },
        { "k", 13, RAW("\0"), REEL_E_FORMAT, "\"k\" has value type 13" },
        { "k", UINT32_MAX, RAW("\0"), REEL_E_FORMAT, "\"k\" has value type" },
        { "k", GGUF_BOOL, RAW("\2"), REEL_E_FORMAT, "\"k\" is a boolean of value 2" },
        { "k", GGUF_U8, RAW(""), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_U16, RAW("\1"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_U32, RAW("\1\1\1"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_F32, RAW("\1\1\1"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_U64, RAW("\1\1\1\1\1\1\1"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_F64, RAW("\1\1\1\1\1\1\1"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_STRING, RAW("\1\0\0\0\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_STRING, RAW("\1\0\0\0\0\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_STRING, RAW(HUGE_LENGTH "abc"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_STRING, RAW("\xff\xff\xff\xff\xff\xff\xff\x7f"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\0\0\0\0\1\0\0\0\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\0\0\0\0\1\0\0\0\0\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\0\0\0\0" HUGE_LENGTH), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\x04\0\0\0\x01\0\0\0\0\0\0\x40\0\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\x0a\0\0\0\x01\0\0\0\0\0\0\x20\0\0\0\0"), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\x0d\0\0\0\1\0\0\0\0\0\0\0\0"), REEL_E_FORMAT, "value type 13" },
        { "k", GGUF_ARRAY, RAW("\x09\0\0\0\1\0\0\0\0\0\0\0\0"), REEL_E_UNSUPPORTED,
          "\"k\" is a list of lists" },
        { "k", GGUF_ARRAY, RAW("\x08\0\0\0" HUGE_LENGTH), REEL_E_FORMAT, "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\x08\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), REEL_E_FORMAT,
          "\"k\"" },
        { "k", GGUF_ARRAY, RAW("\x08\0\0\0\1\0\0\0\0\0\0\0" HUGE_LENGTH), REEL_E_FORMAT, "\"k\"" },
        { "general.alignment", GGUF_U32, RAW("\0\0\0\0"), REEL_E_LIMIT, "general.alignment" },
        { "general.alignment", GGUF_U32, RAW("\4\0\0\0"), REEL_E_LIMIT, "general.alignment" },
        { "general.alignment", GGUF_U32, RAW("\x18\0\0\0"), REEL_E_FORMAT, "powers of two" },
        { "general.alignment", GGUF_U32, RAW("\0\0\0\x80"), REEL_E_LIMIT, "general.alignment" },
        { "general.alignment", GGUF_I32, RAW("\xff\xff\xff\xff"), REEL_E_LIMIT,
          "general.alignment" },
        { "general.alignment", GGUF_U64, RAW(HUGE_LENGTH), REEL_E_LIMIT, "general.alignment" },
        { "general.alignment", GGUF_F32, RAW("\0\0\0\x42"), REEL_E_FORMAT, "an integer" },
        { "general.alignment", GGUF_STRING, RAW("\0\0\0\0\0\0\0\0"), REEL_E_FORMAT, "an integer" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        char what[64];
        bytes_gguf_header(&b, 3, 0, 1);
        bytes_text(&b, cases[i].key);
        bytes_u32(&b, cases[i].type);
        bytes_add(&b, cases[i].raw, cases[i].n);
        snprintf(what, sizeof what, "value case %zu", i);
        expect(what, &b, cases[i].status, cases[i].says);
        bytes_release(&b);
    }
}

static void a_key_given_twice_is_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_gguf_header(&b, 3, 0, 3);
    bytes_gguf_u32(&b, "twice", 1);
    bytes_gguf_u32(&b, "once", 1);
    bytes_gguf_u32(&b, "twice", 1);
    expect("twice", &b, REEL_E_FORMAT, "\"twice\"");
    bytes_release(&b);
}

static const char long_name[] =
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";

/* Other readers let sizes wrap in a sum or a product (CVE-2025-53630, CVE-2026-27940,
 * CVE-2026-33298), believed a number of dimensions (reports to llama.cpp of 2026), or read behind
 * the end of a file that was shorter than a tensor (CVE-2026-7482). */
static void cve_2025_53630_bad_tensors_are_refused_by_name(void **state) {
    (void)state;
    enum { F32 = 0, Q4_0 = 2, Q8_0 = 8, Q4_K = 12, I64 = 27 };
    const uint64_t big = UINT64_C(1) << 62, most = UINT64_MAX, word = UINT32_MAX;
    const struct {
        const char *name;
        int rank;
        uint64_t extents[5];
        uint32_t type;
        uint64_t offset;
        size_t data;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "", 1, { 8 }, F32, 0, 32, REEL_E_LIMIT, "name of 0 bytes" },
        { long_name, 1, { 8 }, F32, 0, 32, REEL_E_LIMIT, "nnnn" },
        { "t", 5, { 1, 1, 1, 1, 8 }, F32, 0, 32, REEL_E_LIMIT, "\"t\" has 5 dimensions" },
        { "t", -1, { 0 }, F32, 0, 32, REEL_E_LIMIT, "\"t\" has 4294967295 dimensions" },
        { "t", INT32_MIN, { 0 }, F32, 0, 32, REEL_E_LIMIT, "\"t\" has 2147483648 dimensions" },
        /* types */
        { "t", 1, { 8 }, 4, 0, 32, REEL_E_UNSUPPORTED, "\"t\" has the unknown type 4" },
        { "t", 1, { 8 }, 5, 0, 32, REEL_E_UNSUPPORTED, "\"t\" has the unknown type 5" },
        { "t", 1, { 8 }, 31, 0, 32, REEL_E_UNSUPPORTED, "\"t\"" },
        { "t", 1, { 8 }, UINT32_MAX, 0, 32, REEL_E_UNSUPPORTED, "\"t\"" },
        { "t", 1, { 256 }, 9, 0, 320, REEL_E_UNSUPPORTED, "\"t\" has type Q8_1" },
        { "t", 1, { 256 }, 15, 0, 320, REEL_E_UNSUPPORTED, "Q8_K" },
        { "t", 1, { 256 }, 16, 0, 320, REEL_E_UNSUPPORTED, "IQ2_XXS" },
        { "t", 1, { 256 }, 29, 0, 320, REEL_E_UNSUPPORTED, "IQ1_M" },
        { "t", 1, { 256 }, 34, 0, 320, REEL_E_UNSUPPORTED, "TQ1_0" },
        { "t", 1, { 256 }, 41, 0, 320, REEL_E_UNSUPPORTED, "Q1_0" },
        { "t", 1, { 256 }, 43, 0, 320, REEL_E_UNSUPPORTED, "\"t\" has the unknown type 43" },
        /* shapes */
        { "t", 1, { 128 }, 10, 0, 96, REEL_E_FORMAT, "multiple of the 256 of Q2_K" },
        { "t", 1, { 128 }, 11, 0, 96, REEL_E_FORMAT, "multiple of the 256 of Q3_K" },
        { "t", 1, { 16 }, 20, 0, 96, REEL_E_FORMAT, "multiple of the 32 of IQ4_NL" },
        { "t", 1, { 128 }, 23, 0, 96, REEL_E_FORMAT, "multiple of the 256 of IQ4_XS" },
        { "t", 1, { 16 }, 39, 0, 96, REEL_E_FORMAT, "multiple of the 32 of MXFP4" },
        { "t", 1, { 32 }, 40, 0, 96, REEL_E_FORMAT, "multiple of the 64 of NVFP4" },
        { "t", 1, { 31 }, Q8_0, 0, 64, REEL_E_FORMAT, "\"t\" has rows of 31" },
        { "t", 2, { 16, 2 }, Q4_0, 0, 64, REEL_E_FORMAT, "multiple of the 32 of Q4_0" },
        { "t", 2, { 576, 1 }, Q4_K, 0, 640, REEL_E_FORMAT, "multiple of the 256 of Q4_K" },
        { "t", 0, { 0 }, Q8_0, 0, 64, REEL_E_FORMAT, "\"t\"" },
        { "t", 1, { big }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 1, { most }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 2, { 8, big }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 4, { 65536, 65536, 65536, 65536 }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 2, { 8, most }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 2, { 0, most }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 3, { 2, most, 0 }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 1, { word }, F32, 0, 64, REEL_E_FORMAT, "\"t\" needs 17179869180 bytes" },
        { "t", 2, { 1, word }, F32, 0, 64, REEL_E_FORMAT, "\"t\" needs 17179869180 bytes" },
        { "t", 2, { word, word }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 4, { word, word, word, word }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 2, { word + 1, word + 1 }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 1, { word }, Q8_0, 0, 64, REEL_E_FORMAT, "\"t\" has rows of 4294967295" },
        { "t", 1, { UINT64_C(1) << 31 }, F32, 0, 64, REEL_E_FORMAT, "\"t\" needs 8589934592" },
        { "t", 1, { UINT64_C(1) << 63 }, F32, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 1, { big / 4 }, I64, 0, 64, REEL_E_FORMAT, "overflows" },
        { "t", 1, { big / 4 }, F32, 0, 64, REEL_E_FORMAT, "\"t\" needs" },
        /* places */
        { "t", 1, { 8 }, F32, 32, 64, REEL_E_FORMAT, "\"t\" has offset 32, expected 0" },
        { "t", 1, { 8 }, F32, 1, 64, REEL_E_FORMAT, "\"t\" has offset 1" },
        { "t", 1, { 8 }, F32, word, 64, REEL_E_FORMAT, "\"t\" has offset 4294967295" },
        { "t", 1, { 8 }, F32, UINT64_C(1) << 63, 64, REEL_E_FORMAT, "\"t\" has offset" },
        { "t", 1, { 8 }, F32, most, 64, REEL_E_FORMAT, "\"t\" has offset" },
        { "t", 1, { 8 }, F32, most - 31, 64, REEL_E_FORMAT, "\"t\" has offset" },
        { "t", 1, { 8 }, F32, 0, 31, REEL_E_FORMAT, "\"t\" needs 32 bytes" },
        { "t", 1, { 8 }, F32, 0, 0, REEL_E_FORMAT, "\"t\" needs 32 bytes" },
        { "t", 1, { 64 }, Q8_0, 0, 67, REEL_E_FORMAT, "\"t\" needs 68 bytes" },
        { "t", 1, { 8 }, I64, 0, 63, REEL_E_FORMAT, "\"t\" needs 64 bytes" },
        { "t", 1, { 256 }, 10, 0, 83, REEL_E_FORMAT, "\"t\" needs 84 bytes" },
        { "t", 1, { 256 }, 11, 0, 109, REEL_E_FORMAT, "\"t\" needs 110 bytes" },
        { "t", 1, { 64 }, 20, 0, 35, REEL_E_FORMAT, "\"t\" needs 36 bytes" },
        { "t", 1, { 256 }, 23, 0, 135, REEL_E_FORMAT, "\"t\" needs 136 bytes" },
        { "t", 1, { 64 }, 39, 0, 33, REEL_E_FORMAT, "\"t\" needs 34 bytes" },
        { "t", 1, { 64 }, 40, 0, 35, REEL_E_FORMAT, "\"t\" needs 36 bytes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        char what[64];
        bytes_gguf_header(&b, 3, 1, 0);
        bytes_gguf_tensor(&b, cases[i].name, cases[i].rank, cases[i].extents, cases[i].type,
                          cases[i].offset);
        if (cases[i].data) bytes_pad(&b, 32);
        bytes_zeros(&b, cases[i].data);
        snprintf(what, sizeof what, "tensor case %zu", i);
        expect(what, &b, cases[i].status, cases[i].says);
        bytes_release(&b);
    }
}

static void two_tensors_neither_overlap_nor_share_a_name(void **state) {
    (void)state;
    static const struct {
        const char *second;
        uint64_t offset;
        const char *says;
    } cases[] = {
        { "b", 0, "\"b\" has offset 0, expected 32" },
        { "b", 16, "\"b\" has offset 16" },
        { "b", 64, "\"b\" has offset 64" },
        { "a", 32, "\"a\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        bytes_gguf_header(&b, 3, 2, 0);
        bytes_gguf_tensor(&b, "a", 1, (uint64_t[]){ 5 }, 0, 0);
        bytes_gguf_tensor(&b, cases[i].second, 1, (uint64_t[]){ 5 }, 0, cases[i].offset);
        bytes_pad(&b, 32);
        bytes_zeros(&b, 128);
        expect(cases[i].says, &b, REEL_E_FORMAT, cases[i].says);
        bytes_release(&b);
    }
}

static void a_zero_byte_in_a_name_is_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_gguf_header(&b, 3, 1, 0);
    bytes_u64(&b, 3);
    bytes_add(&b, "a\0b", 3);
    bytes_u32(&b, 0);
    bytes_u32(&b, 0);
    bytes_u64(&b, 0);
    bytes_zeros(&b, 64);
    expect("zero byte", &b, REEL_E_FORMAT, "\"a");
    bytes_release(&b);
}

static void a_file_cut_at_any_byte_is_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    mini_gguf(&b, &(struct mini){ .head = true });
    for (size_t n = 0; n < b.n; n++) {
        struct bytes cut = { .data = b.data, .n = n };
        expect("cut", &cut, REEL_E_FORMAT, "mem.gguf");
    }
    bytes_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_type_is_read),
        cmocka_unit_test(a_list_of_texts_is_walked_to_its_end),
        cmocka_unit_test(typed_reads_say_what_is_wrong),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(shapes_are_turned_to_outermost_first),
        cmocka_unit_test(cve_2024_21802_bad_headers_are_refused),
        cmocka_unit_test(bad_values_are_refused_by_key),
        cmocka_unit_test(a_key_given_twice_is_refused),
        cmocka_unit_test(cve_2025_53630_bad_tensors_are_refused_by_name),
        cmocka_unit_test(two_tensors_neither_overlap_nor_share_a_name),
        cmocka_unit_test(a_zero_byte_in_a_name_is_refused),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
