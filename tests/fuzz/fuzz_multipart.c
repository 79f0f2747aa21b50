/* A form: the first line is its Content-Type, the rest the body. */
#include "server/multipart.h"
#include "server/transcription_form.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct multipart form;
    static struct transcription_form fields;
    struct reel_error err = { 0 };
    const char *param = NULL;
    const uint8_t *line = n ? memchr(data, '\n', n) : NULL;
    if (!line || memchr(data, '\0', (size_t)(line - data))) return 0;
    const size_t n_type = (size_t)(line - data), n_body = n - n_type - 1;
    char *type = strndup((const char *)data, n_type), *body = malloc(n_body ? n_body : 1);
    if (!type || !body) abort();
    memcpy(body, line + 1, n_body);
    enum reel_status status = multipart_read(&form, type, body, n_body, &err);
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
    size_t sum = 0;
    for (int i = 0; status == REEL_OK && i < form.n_parts; i++) {
        const struct multipart_part *part = &form.parts[i];
        if (part->bytes < body || part->bytes + part->n_bytes > body + n_body) abort();
        if (!part->name[0] || strlen(part->filename) >= sizeof part->filename) abort();
        sum += part->n_bytes;
    }
    if (status == REEL_OK && sum > n_body) abort();
    if (status == REEL_OK) {
        status = transcription_form_read(&fields, &form, &param, &err);
        if (status != REEL_OK && (status != REEL_E_ARGUMENT || !param || !err.text[0])) abort();
    }
    free(type);
    free(body);
    return 0;
}
