/* Templates of tests/templates/tools, each in the form of a family of models, and answers that such a model
 * writes. */
#ifndef TESTS_TOOL_FAMILIES_H
#define TESTS_TOOL_FAMILIES_H

#include <salvo/tools.h>

struct tool_family {
    const char *name; /* of the file */
    const char *form;
    bool described;       /* the template does not list tools */
    const char *answer;   /* with calls */
    const char *expected; /* content, reasoning in (), calls in [] */
    bool one_call;        /* the family writes one call in an answer */
};

extern const struct tool_family tool_families[];
extern const size_t tool_family_count;

/* Tools that the answers call: look(place, days), sort(order), stop(). */
extern const char tool_family_tools[];

/* The form of a template; aborts if it cannot be opened. */
struct salvo_tool_form *tool_family_open(const char *name);

#endif
