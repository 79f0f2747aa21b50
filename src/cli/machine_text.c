#include "cli/machine_text.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum reel_status machine_read(json_t **devices, struct reel_error *err) {
    char *text = NULL;
    *devices = NULL;
    enum reel_status status = reel_devices(&text, err);
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
    json_array_foreach(gpus, i, value) { printf("gpu:%-10zu %s\n", i, text_of(value, "name")); }
    json_array_foreach(json_object_get(devices, "notes"), i, value) {
        printf("note           %s\n", json_string_value(value));
    }
}
