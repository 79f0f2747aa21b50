#include "support/kv_rows.h"

#include "kernels/kv_layout.h"
#include "model/dtype.h"

#include <math.h>
#include <string.h>

enum { MOST = 256, POISON_BYTE = 0xff };

static unsigned value_at(const struct kv_rows *r, int is_v, int p, int i) {
    const int form = (int)r->form;
    return is_v ? kv_v_byte(form, r->dim, p, i) : kv_k_byte(form, p, i);
}

void kv_row_round(const struct kv_rows *r, int is_v, float *row) {
    uint8_t codes[MOST];
    if (r->form == KV_BF16) return;
    const float scale = kv_quantise(r->form, row, r->dim, r->given[is_v], codes);
    for (int i = 0; i < r->dim; i++)
        row[i] = scale * kv_code_value(r->form, codes[i]);
}

void kv_row_put(const struct kv_rows *r, unsigned char *piece, int is_v, int p, const float *row) {
    uint8_t codes[MOST];
    if (r->form != KV_BF16) {
        const float scale = kv_quantise(r->form, row, r->dim, r->given[is_v], codes);
        memcpy(piece + kv_scale_byte(r->dim, is_v, p), &scale, sizeof scale);
    }
    for (int i = 0; i < r->dim; i++) {
        const uint16_t half = bf16_from_f32(row[i]);
        const void *value = r->form == KV_BF16 ? (const void *)&half : &codes[i];
        memcpy(piece + value_at(r, is_v, p, i), value, kv_form_code_bytes(r->form));
    }
}

void kv_row_get(const struct kv_rows *r, const unsigned char *piece, int is_v, int p, float *row) {
    float scale = 1;
    if (r->form != KV_BF16) memcpy(&scale, piece + kv_scale_byte(r->dim, is_v, p), sizeof scale);
    for (int i = 0; i < r->dim; i++) {
        uint16_t bits = 0;
        memcpy(&bits, piece + value_at(r, is_v, p, i), kv_form_code_bytes(r->form));
        row[i] =
            r->form == KV_BF16 ? bf16_to_f32(bits) : scale * kv_code_value(r->form, (uint8_t)bits);
    }
}

bool kv_row_poisoned(const struct kv_rows *r, const unsigned char *piece, int is_v, int p) {
    bool poisoned = true;
    for (int i = 0; i < r->dim; i++)
        for (size_t b = 0; b < kv_form_code_bytes(r->form); b++)
            poisoned = poisoned && piece[value_at(r, is_v, p, i) + b] == POISON_BYTE;
    for (unsigned b = 0; b < 4 && r->form != KV_BF16; b++)
        poisoned = poisoned && piece[kv_scale_byte(r->dim, is_v, p) + b] == POISON_BYTE;
    return poisoned;
}

int kv_row_differs(const struct kv_rows *r, int is_v, const float *row, const float *want) {
    float largest = 0;
    for (int i = 0; i < r->dim; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    for (int i = 0; i < r->dim; i++) {
        const float size = fabsf(want[i]);
        float step = size / 100 + 1e-6f;
        if (r->form == KV_INT8) step = largest * 1.02f / 127;
        if (r->form == KV_FP8) step = size / 7 + fmaxf(largest / 448, r->given[is_v]) * 0x1p-9f;
        if (is_v) step = r->form == KV_BF16 ? 0 : size * 0x1p-20f;
        if (!(fabsf(row[i] - want[i]) <= step)) return i;
    }
    return -1;
}

double kv_rows_factor(const struct kv_rows *r) {
    static const double factors[KV_FORMS] = { 1, 1.5, 4 };
    return factors[r->form];
}
