/* Templates for answers; see fuzz_answer.c and fuzz_answer_reader.c. */
#ifndef REEL_TESTS_ANSWER_TEMPLATES_H
#define REEL_TESTS_ANSWER_TEMPLATES_H

/* Templates that differ in how calls are written: JSON between tags, tags alone, a name and JSON,
 * a list, and nothing around. */
#define TURNS(call, prompt)                                                                        \
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>\n"                 \
    "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}{% if m.tool_calls %}" call  \
    "{% endif %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>" prompt           \
    "{% endif %}{% if tools %}{% endif %}"
#define EACH(words) "{% for c in m.tool_calls %}" words "{% endfor %}"
static const char *const templates[] = {
    TURNS(EACH("<tool_call>\n<function={{ c.function.name }}>\n"
               "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n"
               "</parameter>\n{% endfor %}</function>\n</tool_call>\n"),
          "{% if enable_thinking %}<think>\n{% endif %}"),
    TURNS(EACH("<tool_call>\n{{ c.function | tojson }}\n</tool_call>\n"), ""),
    TURNS(EACH("[CALL]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"), ""),
    TURNS("[CALLS] [" EACH("{{ c.function | tojson }}{% if not loop.last %}, {% endif %}") "]", ""),
    TURNS(EACH("{{ c.function | tojson }}"), ""),
};
#define N_TEMPLATES (sizeof templates / sizeof *templates)

#endif
