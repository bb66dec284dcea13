/* HTML escapes, which few chat templates use but jinja2 knows. */
#ifndef TEXT_JINJA_ESCAPE_H
#define TEXT_JINJA_ESCAPE_H

#include "text/jinja/value.h"

enum salvo_status text_escaped(struct text *text, struct string string);

#endif
