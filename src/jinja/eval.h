/* Evaluating a tree: the state of a running function, loops and macros. */
#ifndef REEL_JINJA_EVAL_H
#define REEL_JINJA_EVAL_H

#include "jinja/ast.h"
#include "jinja/text.h"

/* The slots of a function that runs, or ran: macros made in it keep it. */
struct frame {
    struct frame *outer; /* of the function around */
    struct value *slots;
};

struct machine {
    struct job *job;
    struct frame *frame;
    struct sink *out;
};

struct loop {
    const struct node *node;
    struct machine *machine; /* NULL once the loop has ended */
    struct frame *home;      /* where a recursive loop stands */
    struct value source;
    struct iter it;
    bool filtered; /* items still have to pass the loop's condition */
    int64_t index0;
    int64_t length;                      /* -1: not yet known */
    struct value current, before, after; /* `after` was looked at early */
    bool ended;                          /* nothing is left, as looking ahead found */
    struct list *changed;                /* what loop.changed last got; NULL: never called */
    int depth0;
};

struct macro {
    const struct node *node;
    struct frame *home;
};

struct value eval(struct machine *m, const struct node *node);

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED };
enum flow exec_body(struct machine *m, const struct node *first);
bool assign(struct machine *m, const struct node *target, struct value value);
bool scope_enter(struct machine *m, const struct scope *scope);
struct frame *frame_new(struct job *job, struct frame *outer, int n_slots);
struct value *slot_of(const struct machine *m, struct ref ref);
/* Arguments as a call gives them; `caller` is added as a keyword when it is given. */
bool eval_args(struct machine *m, const struct call_args *call, struct value caller,
               struct args *out);

/* loop.c */
enum flow exec_for(struct machine *m, const struct node *node);
struct value loop_attribute(struct job *job, struct value v, const struct text *name);
struct value loop_recurse(struct job *job, struct value v, const struct args *args);
struct value loop_cycle(struct job *job, struct value v, const struct args *args);
struct value loop_changed(struct job *job, struct value v, const struct args *args);

/* macro.c */
struct value macro_call(struct job *job, const struct macro *macro, const struct args *args);
struct value macro_attribute(struct job *job, struct value v, const struct text *name);

#endif
