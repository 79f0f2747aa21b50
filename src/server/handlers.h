/* Every handler of the list in routes.c. */
#ifndef REEL_SERVER_HANDLERS_H
#define REEL_SERVER_HANDLERS_H

#include "server/exchange.h"

void handle_page(struct exchange *x);   /* page_api.c */
void handle_health(struct exchange *x); /* status_api.c */
void handle_ready(struct exchange *x);
void handle_metrics(struct exchange *x); /* metrics.c */
void handle_models(struct exchange *x);
void handle_model(struct exchange *x);
void handle_chat(struct exchange *x);        /* chat_api.c */
void handle_completions(struct exchange *x); /* completions_api.c */
void handle_tokenize(struct exchange *x);    /* tokens_api.c */
void handle_detokenize(struct exchange *x);
void handle_tokenizer_info(struct exchange *x);
void handle_apply_template(struct exchange *x);
void handle_embeddings(struct exchange *x); /* embed_api.c */
void handle_messages(struct exchange *x);   /* messages_api.c */
void handle_count_tokens(struct exchange *x);
void handle_responses(struct exchange *x);      /* responses_api.c */
void handle_rerank(struct exchange *x);         /* rerank_api.c */
void handle_transcriptions(struct exchange *x); /* transcriptions.c */
void handle_realtime(struct exchange *x);       /* realtime.c */

#endif
