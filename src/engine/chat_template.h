/* Inside of the chat templates of salvo.h. */
#ifndef ENGINE_CHAT_TEMPLATE_H
#define ENGINE_CHAT_TEMPLATE_H

#include <salvo/salvo.h>

/* The bytes of a text before the first token that ends an answer; all of them if it has none. */
size_t chat_template_before_end(const struct salvo_template *chat, struct salvo_text text);

#endif
