#include "cli/vector_out.h"

#include "base/json.h"
#include "base/memory.h"
#include "cli/input.h"
#include "cli/output_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numpy's format 1.0: magic, version, length of the header, header, values ---- */

enum { NPY_PREFIX = 10, NPY_ALIGN = 64 };

static enum reel_status npy_header(struct vector_out *out, struct reel_error *err) {
    char header[2 * NPY_ALIGN];
    const int n = snprintf(header, sizeof header,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", out->n,
                           out->dimensions);
    /* spaces and a line feed up to a whole number of 64 bytes */
    const int whole = (NPY_PREFIX + n + 1 + NPY_ALIGN - 1) / NPY_ALIGN * NPY_ALIGN - NPY_PREFIX;
    const char prefix[NPY_PREFIX] = { '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)whole, 0 };
    memset(header + n, ' ', (size_t)(whole - n));
    header[whole - 1] = '\n';
    enum reel_status status = buffer_append(&out->bytes, prefix, sizeof prefix, err);
    return status == REEL_OK ? buffer_append(&out->bytes, header, (size_t)whole, err) : status;
}

/* ---- text ---- */

/* A name as JSON, which jansson escapes; null for a file's name that is not UTF-8. */
static enum reel_status add_name(struct vector_out *out, struct reel_error *err) {
    const bool is_text = input_check("", out->model, strlen(out->model), NULL) == REEL_OK;
    json_t *name = is_text ? json_string(out->model) : json_null();
    char *text = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    enum reel_status status =
        text ? buffer_text(&out->bytes, text, err) : err_memory(err, "a name as JSON", 0);
    free(text);
    json_decref(name);
    return status;
}

/* A vector with a number that is none spoils every search it is in. */
static enum reel_status check_values(const struct vector_out *out, const float *values,
                                     struct reel_error *err) {
    for (int i = 0; i < out->dimensions; i++)
        if (!isfinite(values[i]))
            return err_set(err, REEL_E_MISMATCH, "text %d: value %d of its vector is %g",
                           out->written + 1, i + 1, (double)values[i]);
    return REEL_OK;
}

/* Nine digits bring back every float32. */
static enum reel_status add_values(struct vector_out *out, const float *values,
                                   const char *separator, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; status == REEL_OK && i < out->dimensions; i++) {
        char number[32];
        const int n =
            snprintf(number, sizeof number, "%s%.9g", i ? separator : "", (double)values[i]);
        status = buffer_append(&out->bytes, number, (size_t)n, err);
    }
    return status;
}

static enum reel_status add_object(struct vector_out *out, const struct vector_row *row,
                                   struct reel_error *err) {
    enum reel_status status =
        buffer_printf(&out->bytes, err, "{\"index\": %d, \"tokens\": %d, %s\"embedding\": [",
                      out->written, row->tokens, row->truncated ? "\"truncated\": true, " : "");
    if (status == REEL_OK) status = add_values(out, row->values, ", ", err);
    return status == REEL_OK ? buffer_text(&out->bytes, "]}", err) : status;
}

/* ---- all of them ---- */

enum reel_status vector_out_begin(struct vector_out *out, struct reel_error *err) {
    if (out->format == VECTORS_NPY) return npy_header(out, err);
    if (out->format != VECTORS_JSON) return REEL_OK;
    enum reel_status status = buffer_text(&out->bytes, "{\"model\": ", err);
    if (status == REEL_OK) status = add_name(out, err);
    if (status != REEL_OK) return status;
    return buffer_printf(&out->bytes, err,
                         ", \"dimensions\": %d, \"normalised\": %s, \"embeddings\": [",
                         out->dimensions, out->normalised ? "true" : "false");
}

enum reel_status vector_out_add(struct vector_out *out, const struct vector_row *row,
                                struct reel_error *err) {
    enum reel_status status = check_values(out, row->values, err);
    if (status != REEL_OK) return status;
    switch (out->format) {
    case VECTORS_NPY: /* the machines that reel runs on are little-endian */
        status = buffer_append(&out->bytes, row->values,
                               (size_t)out->dimensions * sizeof *row->values, err);
        break;
    case VECTORS_TEXT:
        status = add_values(out, row->values, " ", err);
        if (status == REEL_OK) status = buffer_text(&out->bytes, "\n", err);
        break;
    case VECTORS_JSONL:
        status = add_object(out, row, err);
        if (status == REEL_OK) status = buffer_text(&out->bytes, "\n", err);
        break;
    case VECTORS_JSON:
        status = buffer_text(&out->bytes, out->written ? ",\n" : "\n", err);
        if (status == REEL_OK) status = add_object(out, row, err);
        break;
    }
    out->written++;
    return status;
}

static enum reel_status print(struct vector_out *out, struct reel_error *err) {
    const size_t n = out->bytes.size;
    out->bytes.size = 0;
    if (fwrite(out->bytes.bytes, 1, n, stdout) == n && fflush(stdout) == 0) return REEL_OK;
    return err_set(err, REEL_E_IO, "standard output: %s", strerror(errno));
}

enum reel_status vector_out_flush(struct vector_out *out, struct reel_error *err) {
    if (out->path || out->format == VECTORS_NPY || out->bytes.size == 0) return REEL_OK;
    return print(out, err);
}

enum reel_status vector_out_end(struct vector_out *out, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (out->format == VECTORS_JSON) status = buffer_text(&out->bytes, "\n]}\n", err);
    if (status != REEL_OK) return status;
    if (out->path) return output_file_write(out->path, out->bytes.bytes, out->bytes.size, err);
    return out->bytes.size ? print(out, err) : REEL_OK;
}

void vector_out_release(struct vector_out *out) { buffer_release(&out->bytes); }
