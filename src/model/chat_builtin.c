/* Built-in templates. They write what models of their kinds were trained on, for conversations of
 * system, user and assistant; none has tools, because the wording of those is each model's own. */
#include "model/chat_template.h"

#include <string.h>

#define CHATML_TURN                                                                                \
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"

/* Thinking of earlier answers is left out; what stands in the answer counts as well. */
#define CHATML_WITHOUT_THINKING                                                                    \
    "{% for message in messages %}"                                                                \
    "{% if message.role == 'assistant' and '</think>' in message.content %}"                       \
    "{{ '<|im_start|>assistant\\n' + message.content.split('</think>')[-1].lstrip('\\n') + "       \
    "'<|im_end|>\\n' }}"                                                                           \
    "{% else %}" CHATML_TURN "{% endif %}{% endfor %}"                                             \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"

static const struct chat_builtin builtins[] = {
    { "chatml", "{% for message in messages %}" CHATML_TURN "{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    /* the system's text stands before the first question */
    { "gemma",
      "{{ bos_token }}{% set ns = namespace(system='') %}"
      "{% for message in messages %}{% if message.role == 'system' %}"
      "{% set ns.system = message.content | trim + '\\n\\n' %}{% else %}"
      "{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' + "
      "ns.system + message.content | trim + '<end_of_turn>\\n' }}"
      "{% set ns.system = '' %}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}" },
    { "llama3", "{{ bos_token }}{% for message in messages %}"
                "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + "
                "message.content | trim + '<|eot_id|>' }}{% endfor %}"
                "{% if add_generation_prompt %}"
                "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}" },
    { "mistral",
      "{{ bos_token }}{% set ns = namespace(system='') %}"
      "{% for message in messages %}{% if message.role == 'system' %}"
      "{% set ns.system = message.content + '\\n\\n' %}"
      "{% elif message.role == 'assistant' %}{{ ' ' + message.content | trim + eos_token }}"
      "{% else %}{{ '[INST] ' + ns.system + message.content + ' [/INST]' }}"
      "{% set ns.system = '' %}{% endif %}{% endfor %}" },
    { "phi3", "{% for message in messages %}"
              "{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
    { "qwen3",
      CHATML_WITHOUT_THINKING "{% if enable_thinking is defined and enable_thinking is false %}"
                              "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}" },
    /* thinking is off where nobody asks for it, as in the family's small sizes */
    { "qwen3.5", CHATML_WITHOUT_THINKING
      "{% if enable_thinking is defined and enable_thinking is true %}{{ '<think>\\n' }}"
      "{% else %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}" },
    { "smollm2",
      "{% if messages[0].role != 'system' %}"
      "{{ '<|im_start|>system\\nYou are a helpful AI assistant.<|im_end|>\\n' }}{% endif %}"
      "{% for message in messages %}" CHATML_TURN "{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    /* also TinyLlama's */
    { "zephyr",
      "{% for message in messages %}"
      "{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
};

const struct chat_builtin *chat_builtin_find(const char *name) {
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(builtins[i].name, name) == 0) return &builtins[i];
    return NULL;
}
