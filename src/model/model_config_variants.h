/* What a config.json can say that changes the maths and that reel does not do. */
#ifndef REEL_MODEL_MODEL_CONFIG_VARIANTS_H
#define REEL_MODEL_MODEL_CONFIG_VARIANTS_H

#include "base/buffer.h"
#include "base/json.h"
#include "model/model_config.h"

/* Refuses, by name, every key of the language model's object whose value reel does not do, and says
 * the value found and those allowed. `name` is the file in messages. Asks config->family alone. */
enum reel_status model_config_refuse(const struct model_config *config, const json_t *object,
                                     const char *name, struct reel_error *err);

/* Refuses a key, with its value, that an object inside, `where`, must not have. */
enum reel_status model_config_refuse_key(const char *where, const char *key, const json_t *value,
                                         const char *name, struct reel_error *err);

/* Appends, separated by spaces, the keys of the object that are neither known here nor empty (null,
 * false, 0, "", [] or {}): whoever wrote them may have meant maths that no one here knows. */
enum reel_status model_config_unknown(const json_t *object, struct buffer *out,
                                      struct reel_error *err);

#endif
