/* The instructions of AMX by Intel's manual, and kernels_amx.c compiled with them. Products of bf16
 * are added in another order than the processor does. */
#include "tests/support/emulated_amx.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, MOST_ROWS = 16, MOST_BYTES = 64 };

static _Thread_local struct {
    bool configured;
    int rows[TILES], bytes[TILES];
    uint8_t tiles[TILES][MOST_ROWS][MOST_BYTES];
} amx;

static void must(bool right, const char *what) {
    if (right) return;
    (void)fprintf(stderr, "AMX: %s\n", what);
    abort();
}

static void emulated_loadconfig(const void *config) {
    const uint8_t *bytes = config;
    memset(&amx, 0, sizeof amx);
    amx.configured = true;
    must(bytes[0] == 1, "palette");
    for (int i = 0; i < TILES; i++) {
        amx.bytes[i] = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8;
        amx.rows[i] = bytes[48 + i];
        must(amx.bytes[i] <= MOST_BYTES && amx.rows[i] <= MOST_ROWS, "a tile's size");
        must((amx.bytes[i] == 0) == (amx.rows[i] == 0), "a tile of no rows or no columns");
    }
}

static void in_use(int tile) {
    must(amx.configured && amx.rows[tile] > 0, "a tile that is not configured");
}

static void emulated_loadd(int tile, const void *from, size_t stride) {
    in_use(tile);
    memset(amx.tiles[tile], 0, sizeof amx.tiles[tile]);
    for (int r = 0; r < amx.rows[tile]; r++)
        memcpy(amx.tiles[tile][r], (const uint8_t *)from + (size_t)r * stride,
               (size_t)amx.bytes[tile]);
}

static void emulated_stored(int tile, void *to, size_t stride) {
    in_use(tile);
    for (int r = 0; r < amx.rows[tile]; r++)
        memcpy((uint8_t *)to + (size_t)r * stride, amx.tiles[tile][r], (size_t)amx.bytes[tile]);
}

static void emulated_zero(int tile) {
    in_use(tile);
    memset(amx.tiles[tile], 0, sizeof amx.tiles[tile]);
}

/* sum [rows of a, lanes of b] */
static void fit(int sum, int a, int b) {
    in_use(sum), in_use(a), in_use(b);
    must(sum != a && sum != b && a != b, "one tile twice");
    must(amx.rows[sum] == amx.rows[a] && amx.bytes[sum] == amx.bytes[b] &&
             amx.bytes[a] == 4 * amx.rows[b],
         "tiles that do not fit each other");
}

static void emulated_dpbsud(int sum, int a, int b) {
    fit(sum, a, b);
    for (int m = 0; m < amx.rows[sum]; m++)
        for (int n = 0; n < amx.bytes[sum]; n += 4) {
            int32_t total;
            memcpy(&total, amx.tiles[sum][m] + n, 4);
            for (int k = 0; k < amx.bytes[a]; k++)
                total += (int8_t)amx.tiles[a][m][k] * amx.tiles[b][k / 4][n + k % 4];
            memcpy(amx.tiles[sum][m] + n, &total, 4);
        }
}

static float bf16_at(const uint8_t *p) { return bf16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

static void emulated_dpbf16ps(int sum, int a, int b) {
    fit(sum, a, b);
    for (int m = 0; m < amx.rows[sum]; m++)
        for (int n = 0; n < amx.bytes[sum]; n += 4) {
            float total;
            memcpy(&total, amx.tiles[sum][m] + n, 4);
            for (int k = 0; k < amx.bytes[a]; k += 2)
                total += bf16_at(amx.tiles[a][m] + k) * bf16_at(amx.tiles[b][k / 4] + n + k % 4);
            memcpy(amx.tiles[sum][m] + n, &total, 4);
        }
}

static void emulated_release(void) { amx.configured = false; }

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#undef _tile_release
#define _tile_loadconfig emulated_loadconfig
#define _tile_loadd      emulated_loadd
#define _tile_stored     emulated_stored
#define _tile_zero       emulated_zero
#define _tile_dpbsud     emulated_dpbsud
#define _tile_dpbf16ps   emulated_dpbf16ps
#define _tile_release    emulated_release

#define kernels_amx_set emulated_amx_set
#include "cpu/kernels_amx.c"
