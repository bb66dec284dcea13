/*
 * An Objective-C runtime for the fake Metal: objects with reference counts and autorelease pools, classes
 * with methods that are found by selector. A message to an object that is gone ends the program.
 */
#ifndef TESTS_METAL_FAKE_OBJC_H
#define TESTS_METAL_FAKE_OBJC_H

#include <map>
#include <string>

struct fake_class;

struct fake_object {
    explicit fake_object(const char *class_name);
    virtual ~fake_object();
    fake_class *isa;
    int references = 1;
};

typedef const std::string *fake_selector; /* interned */

struct fake_method {
    void (*function)();
    std::string encoding;
    unsigned arguments;
    std::string selector;
};

/* A class is an object whose class has the methods of the class itself. */
struct fake_class : fake_object {
    fake_class(const char *given_name, fake_class *meta);
    std::string name;
    std::map<fake_selector, fake_method> methods;
};

/* Selectors that no class has, and whose methods have other types; nullptr: none. */
const char *hidden_method();
const char *changed_method();

fake_class *find_class(const char *name); /* made when it is first asked for */
fake_selector find_selector(const char *name);
bool is_live(const void *object);
unsigned long live_objects();

/* Adds the object to the innermost pool. */
template <class Object> Object *autoreleased(Object *object);
void add_to_pool(fake_object *object);
void release(fake_object *object);

template <class Object> Object *autoreleased(Object *object)
{
    add_to_pool(object);
    return object;
}

/* ---- Type encodings, with offsets as the real runtime writes them ---- */

struct metal_size_argument {
    unsigned long width, height, depth;
};

template <class Type> struct encoding_of {
    static std::string text() { return "@"; } /* objects */
};
#define ENCODES(type, written)                        \
    template <> struct encoding_of<type> {            \
        static std::string text() { return written; } \
    };
ENCODES(void, "v")
ENCODES(bool, "B")
ENCODES(unsigned long, "Q")
ENCODES(long, "q")
ENCODES(double, "d")
ENCODES(const char *, "r*")
ENCODES(void *, "^v")
ENCODES(const void *, "r^v")
ENCODES(fake_object **, "^@")
ENCODES(metal_size_argument, "{?=QQQ}")

void add_method(fake_class *to, const char *selector, const fake_method &method);

template <class Result, class Self, class... Arguments>
void add(const char *class_name, const char *selector,
    Result (*function)(Self *, fake_selector, Arguments...), bool of_class = false)
{
    unsigned offset = 16;
    std::string text = encoding_of<Result>::text() + std::to_string(16 + 8 * sizeof...(Arguments)) + "@0:8";
    ((text += encoding_of<Arguments>::text() + std::to_string(offset), offset += 8), ...);
    fake_class *to = find_class(class_name);
    add_method(of_class ? to->isa : to, selector,
        {(void (*)())function, text, 2 + (unsigned)sizeof...(Arguments), selector});
}

[[noreturn]] void fail_runtime(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
