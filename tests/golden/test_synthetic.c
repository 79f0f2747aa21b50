/* Synthetic weights: the bits Python made (tools/synthetic.py > tests/golden/synthetic_bits.txt),
 * and the folders reel_synthesize writes. */
#include "base/sha256.h"
#include "model/safetensors.h"
#include "model/synthetic.h"
#include "model/weights.h"
#include "reel_measure.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SHAPE "tests/golden/models/q3-a.json"

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

/* A config that has a tensor of this name with these sizes. */
static struct model_config config_for(int rows, int columns) {
    return (struct model_config){ .hidden = columns,
                                  .n_layers = 28,
                                  .n_heads = 1,
                                  .n_kv_heads = 1,
                                  .head_dim = columns,
                                  .intermediate = columns,
                                  .vocab = rows,
                                  .qk_norm = true };
}

/* The recipe of a tensor by name; sizes are then set to those wanted. */
static struct synthetic_tensor find_recipe(const char *name, int rows, int columns) {
    struct model_config config = config_for(rows, columns);
    for (int i = 0; i < synthetic_tensor_count(&config); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(&config, i, &t);
        if (strcmp(t.name, name) == 0) return t;
    }
    fail_msg("no tensor \"%s\"", name);
    return (struct synthetic_tensor){ 0 };
}

static void the_bits_equal_those_of_the_python_twin(void **state) {
    (void)state;
    FILE *f = fopen("tests/golden/synthetic_bits.txt", "r");
    assert_non_null(f);
    uint64_t seed = 0;
    char name[100], digest[100], hex[SHA256_HEX];
    int rows = 0, columns = 0, n_lines = 0;
    while (fscanf(f, "%" SCNx64 " %99s %d %d %99s", &seed, name, &rows, &columns, digest) == 5) {
        struct synthetic_tensor t = find_recipe(name, rows, columns);
        size_t n = (size_t)rows * (size_t)columns;
        uint16_t *bits = malloc(n * sizeof *bits);
        assert_non_null(bits);
        synthetic_fill(&t, seed, 0, n, bits);
        sha256_hex(bits, n * sizeof *bits, hex);
        assert_string_equal(hex, digest);
        free(bits);
        n_lines++;
    }
    assert_int_equal(n_lines, 18);
    fclose(f);
}

static void pieces_give_the_bits_of_the_whole(void **state) {
    (void)state;
    struct synthetic_tensor t = find_recipe("model.layers.3.mlp.up_proj.weight", 10, 100);
    uint16_t whole[1000], piece[1000];
    synthetic_fill(&t, 7, 0, 1000, whole);
    for (size_t first = 0; first < 1000; first += 333)
        synthetic_fill(&t, 7, first, first + 333 < 1000 ? 333 : 1000 - first, piece + first);
    assert_memory_equal(whole, piece, sizeof whole);
}

static void values_are_spread_as_said_and_never_zero(void **state) {
    (void)state;
    enum { N = 1 << 18, COLUMNS = 1024 };
    static uint16_t bits[N];
    static const char *const names[] = { "model.layers.0.mlp.down_proj.weight",
                                         "model.embed_tokens.weight", "model.norm.weight" };
    static const double mean[] = { 0, 0, 1 }, spread[] = { 0.75 / 32, 1.0 / 32, 0.108 };
    for (int i = 0; i < 3; i++) {
        struct synthetic_tensor t = find_recipe(names[i], 300, COLUMNS);
        double sum = 0, squares = 0;
        synthetic_fill(&t, 1, 0, N, bits);
        for (int j = 0; j < N; j++) {
            assert_true(bits[j] & 0x7fff);
            double d = (double)bf16_to_f32(bits[j]) - mean[i];
            sum += d;
            squares += d * d;
        }
        assert_true(fabs(sum / N) < 0.01 * spread[i]);
        assert_true(fabs(sqrt(squares / N) / spread[i] - 1) < 0.01);
    }
}

static void every_named_shape_is_a_valid_config(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct buffer names = { 0 };
    require(synthetic_shape_names(&names, &err), &err);
    int n = 0;
    for (char *name = strtok(names.bytes, ", "); name; name = strtok(NULL, ", "), n++) {
        struct buffer text = { 0 };
        bool found = false;
        require(synthetic_shape_config(&text, name, &found, &err), &err);
        assert_true(found);
        struct reel_memory_file file = { "config.json", text.bytes, text.size };
        struct model_source source = { 0 };
        struct model_config config;
        require(model_source_open_memory(&source, name, &file, 1, &err), &err);
        require(model_config_read(&config, &source, &err), &err);
        assert_int_equal(config.stop_ids[0], SYNTHETIC_END_OF_TURN);
        model_source_release(&source);
        buffer_release(&text);
    }
    assert_int_equal(n, 18);
    buffer_release(&names);
}

/* ---- folders --------------------------------------------------------------------------------- */

struct place {
    char parent[64], folder[80];
};

static struct place make_place(void) {
    struct place p = { .parent = "/tmp/reel-synthetic-XXXXXX" };
    assert_non_null(mkdtemp(p.parent));
    snprintf(p.folder, sizeof p.folder, "%s/model", p.parent);
    return p;
}

static int count_entries(const char *folder) {
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void remove_place(const struct place *p) {
    static const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors" };
    char path[200];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", p->folder, names[i]);
        unlink(path);
    }
    rmdir(p->folder);
    assert_int_equal(rmdir(p->parent), 0); /* nothing else was left there */
}

static void a_folder_holds_a_whole_model(void **state) {
    (void)state;
    struct place p = make_place();
    struct reel_error err = { 0 };
    require(reel_synthesize(p.folder, SHAPE, 1, NULL, NULL, &err), &err);
    assert_int_equal(count_entries(p.folder), 3);
    assert_int_equal(count_entries(p.parent), 1);
    struct stat st;
    assert_int_equal(stat(p.folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);

    struct model_source source = { 0 };
    struct model_config config;
    struct tensor_file tensors = { 0 };
    struct weights weights = { 0 };
    require(model_source_open(&source, p.folder, &err), &err);
    require(model_config_read(&config, &source, &err), &err);
    require(safetensors_open(&tensors, &source, &err), &err);
    require(weights_map(&weights, &config, &tensors, false, &err), &err);
    assert_int_equal(tensors.n_tensors, 2 * 11 + 2);
    assert_int_equal(weights.main_type, DTYPE_BF16);

    uint16_t row[64];
    struct synthetic_tensor t = find_recipe("model.embed_tokens.weight", 320, 64);
    synthetic_fill(&t, 1, 5 * 64, 64, row);
    assert_memory_equal(weights.embedding.data + 5 * weights.embedding.row_bytes, row, sizeof row);

    weights_release(&weights);
    tensor_file_release(&tensors);
    model_source_release(&source);
    remove_place(&p);
}

static void an_existing_folder_is_refused_and_left_alone(void **state) {
    (void)state;
    struct place p = make_place();
    struct reel_error err = { 0 };
    assert_int_equal(mkdir(p.folder, 0755), 0);
    assert_int_equal(reel_synthesize(p.folder, SHAPE, 1, NULL, NULL, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, p.folder));
    assert_int_equal(count_entries(p.folder), 0);
    remove_place(&p);
}

static void an_unknown_shape_is_refused_with_the_known_ones(void **state) {
    (void)state;
    struct place p = make_place();
    struct reel_error err = { 0 };
    assert_int_equal(reel_synthesize(p.folder, "qwen3-0.9b", 1, NULL, NULL, &err),
                     REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "qwen3-0.9b"));
    assert_non_null(strstr(err.text, "smollm2-135m"));
    remove_place(&p);
}

static bool stop_at_once(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    *(uint64_t *)user = total;
    return done != 0;
}

static void a_cancelled_writing_leaves_nothing_behind(void **state) {
    (void)state;
    struct place p = make_place();
    struct reel_error err = { 0 };
    uint64_t total = 0;
    assert_int_equal(reel_synthesize(p.folder, SHAPE, 1, stop_at_once, &total, &err),
                     REEL_E_CANCELLED);
    assert_true(total > 100000);
    remove_place(&p);
}

static void the_device_compiler_accepts_the_generator(void **state) {
    (void)state;
    if (system("nvcc --version >/dev/null 2>&1") != 0) {
        print_message("nvcc is not installed\n");
        skip();
    }
    struct place p = make_place();
    char path[200], command[500];
    snprintf(path, sizeof path, "%s/fill.cu", p.parent);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#include \"kernels/synthetic.h\"\n"
               "extern \"C\" __global__ void fill(unsigned short *out, unsigned long long key) {\n"
               "    out[threadIdx.x] = synthetic_bf16(key, threadIdx.x, 0.0f, 1.0f);\n"
               "}\n");
    fclose(f);
    snprintf(command, sizeof command, "nvcc -I. -arch=compute_75 -ptx -o /dev/null %s", path);
    int code = system(command);
    unlink(path);
    remove_place(&p);
    assert_int_equal(code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_equal_those_of_the_python_twin),
        cmocka_unit_test(pieces_give_the_bits_of_the_whole),
        cmocka_unit_test(values_are_spread_as_said_and_never_zero),
        cmocka_unit_test(every_named_shape_is_a_valid_config),
        cmocka_unit_test(a_folder_holds_a_whole_model),
        cmocka_unit_test(an_existing_folder_is_refused_and_left_alone),
        cmocka_unit_test(an_unknown_shape_is_refused_with_the_known_ones),
        cmocka_unit_test(a_cancelled_writing_leaves_nothing_behind),
        cmocka_unit_test(the_device_compiler_accepts_the_generator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
