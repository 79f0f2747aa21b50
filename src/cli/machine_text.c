#include "cli/machine_text.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum reel_status machine_read(json_t **devices, const struct cli_args *args,
                              struct reel_error *err) {
    const struct reel_devices_options options = { .size = sizeof options,
                                                  .nvrtc_dir = cli_text(args, "nvrtc-dir", NULL) };
    char *text = NULL;
    *devices = NULL;
    enum reel_status status = reel_devices(&options, &text, err);
    if (status == REEL_OK)
        status = json_read(devices, "the list of devices", text, strlen(text), err);
    reel_free(text);
    return status;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text ? text : "unknown";
}

static double gigabytes(const json_t *object, const char *key) {
    return (double)json_integer_value(json_object_get(object, key)) / 1e9;
}

static void print_gpu(const json_t *gpu) {
    const json_t *power = json_object_get(gpu, "power_w"), *link = NULL;
    size_t i = 0;
    printf("gpu:%-10lld %s, %lld SMs, compute capability %s, %.1f GB",
           json_integer_value(json_object_get(gpu, "index")), text_of(gpu, "name"),
           json_integer_value(json_object_get(gpu, "sms")), text_of(gpu, "compute"),
           gigabytes(gpu, "memory_bytes"));
    if (json_object_get(gpu, "memory_free_bytes"))
        printf(", %.1f GB free", gigabytes(gpu, "memory_free_bytes"));
    printf("\n               driver %s (CUDA %s), NVRTC %s", text_of(gpu, "driver"),
           text_of(gpu, "cuda"), json_object_get(gpu, "nvrtc") ? text_of(gpu, "nvrtc") : "missing");
    if (power) printf(", %.0f W", json_real_value(power));
    json_array_foreach(json_object_get(gpu, "links"), i, link) {
        printf("%s gpu:%lld", i ? "," : ", can share a model with", json_integer_value(link));
    }
    printf("%s\n", json_is_true(json_object_get(gpu, "usable")) ? "" : ", cannot be used");
}

void machine_print(const json_t *devices) {
    const json_t *cpu = json_object_get(devices, "cpu");
    const json_t *gpus = json_object_get(devices, "gpus"), *value = NULL;
    size_t i = 0;
    printf("processor      %s, %lld cores\n", text_of(cpu, "name"),
           json_integer_value(json_object_get(cpu, "cores")));
    printf("memory         %.1f GB, %.1f GB available\n", gigabytes(cpu, "memory_bytes"),
           gigabytes(cpu, "memory_available_bytes"));
    printf("CPU paths     ");
    json_array_foreach(json_object_get(cpu, "paths"), i, value) {
        printf(" %s", json_string_value(value));
    }
    printf("\n");
    json_array_foreach(gpus, i, value) { print_gpu(value); }
    json_array_foreach(json_object_get(devices, "notes"), i, value) {
        printf("note           %s\n", json_string_value(value));
    }
}
