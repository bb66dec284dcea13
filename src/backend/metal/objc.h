/*
 * Metal through the Objective-C runtime, opened at run time: no header or library of Apple is needed to
 * build, and the same program runs where there is none. objc_calls.h lists the messages; each becomes a
 * function objc_NAME(receiver, arguments). The environment variable SALVO_METAL_LIBRARY names one library
 * that has all symbols, for tests.
 */
#ifndef METAL_OBJC_H
#define METAL_OBJC_H

#include "backend/metal/objc_calls.h"
#include "base/status.h"

typedef struct objc_object *objc_id;
typedef objc_id *objc_id_place;
typedef unsigned long objc_count; /* NSUInteger, uint64_t and enums of Metal */
typedef const char *objc_text;
typedef void *objc_bytes; /* with or without const, which is not a part of the type that is checked */

struct objc_size {
    objc_count width, height, depth;
};

/* The classes of receivers. Metal's own are private: an object shows its class when the first one exists. */
enum objc_class {
    OBJC_STRING_CLASS,
    OBJC_COMPILE_OPTIONS_CLASS,
    OBJC_CONSTANTS_CLASS,
    OBJC_STRING,
    OBJC_ARRAY,
    OBJC_ERROR,
    OBJC_DEVICE,
    OBJC_COMPILE_OPTIONS,
    OBJC_CONSTANTS,
    OBJC_LIBRARY,
    OBJC_PIPELINE,
    OBJC_BUFFER,
    OBJC_QUEUE,
    OBJC_COMMAND_BUFFER,
    OBJC_ENCODER,
    OBJC_EVENT,
    OBJC_MATH_OPTIONS, /* the compile options, the device and the queue, from macOS 15 on */
    OBJC_RESIDENCY_DEVICE,
    OBJC_RESIDENCY_QUEUE,
    OBJC_RESIDENCY_SET,
    OBJC_RESIDENCY_DESCRIPTOR_CLASS,
    OBJC_CLASS_COUNT
};

#define CALL_NUMBER(name, ...) OBJC_##name,
enum objc_call {
    OBJC_CALLS(CALL_NUMBER, CALL_NUMBER, CALL_NUMBER, CALL_NUMBER, CALL_NUMBER, CALL_NUMBER, CALL_NUMBER,
        CALL_NUMBER, CALL_NUMBER) OBJC_CALL_COUNT
};
#undef CALL_NUMBER

typedef void (*objc_function)(void);

struct objc_runtime {
    objc_function send; /* objc_msgSend, called through the type of each message */
    void *selectors[OBJC_CALL_COUNT];
    objc_id string_class, compile_options_class, constants_class, error_class;
    objc_id residency_descriptor_class; /* NULL: this macOS has no residency sets */
    void *(*push_pool)(void);
    void (*pop_pool)(void *pool);
    objc_id (*copy_devices)(void);
};
extern struct objc_runtime objc;

/* Opens the libraries, before any other call; NULL, or why Metal is not there. */
const char *objc_open(void);

/* Compares the messages of the table that this object receives with the methods of its class: an error names
 * a selector that is missing or has other types. The second function does so before there is an object. */
enum salvo_status objc_check(enum objc_class receiver, objc_id object);
enum salvo_status objc_check_instances(enum objc_class receiver, objc_id class);

/* Whether the object has the method of this message. */
bool objc_understands(objc_id object, enum objc_call call);

/* A text of an NSString, valid until the pool is popped; "" for nil. */
const char *objc_string_text(objc_id string);

/* clang-format off */
#define OBJC_TELL0(name, receiver, selector)                                                    \
    static inline void objc_##name(objc_id self)                                           \
    { ((void (*)(objc_id, void *))objc.send)(self, objc.selectors[OBJC_##name]); }
#define OBJC_TELL1(name, receiver, selector, A)                                                 \
    static inline void objc_##name(objc_id self, A a)                                      \
    { ((void (*)(objc_id, void *, A))objc.send)(self, objc.selectors[OBJC_##name], a); }
#define OBJC_TELL2(name, receiver, selector, A, B)                                              \
    static inline void objc_##name(objc_id self, A a, B b)                                 \
    { ((void (*)(objc_id, void *, A, B))objc.send)(self, objc.selectors[OBJC_##name], a, b); }
#define OBJC_TELL3(name, receiver, selector, A, B, C)                                           \
    static inline void objc_##name(objc_id self, A a, B b, C c)                            \
    { ((void (*)(objc_id, void *, A, B, C))objc.send)(self, objc.selectors[OBJC_##name], a, b, c); }
#define OBJC_CALL0(name, receiver, selector, R)                                                 \
    static inline R objc_##name(objc_id self)                                              \
    { return ((R (*)(objc_id, void *))objc.send)(self, objc.selectors[OBJC_##name]); }
#define OBJC_CALL1(name, receiver, selector, R, A)                                              \
    static inline R objc_##name(objc_id self, A a)                                         \
    { return ((R (*)(objc_id, void *, A))objc.send)(self, objc.selectors[OBJC_##name], a); }
#define OBJC_CALL2(name, receiver, selector, R, A, B)                                           \
    static inline R objc_##name(objc_id self, A a, B b)                                    \
    { return ((R (*)(objc_id, void *, A, B))objc.send)(self, objc.selectors[OBJC_##name], a, b); }
#define OBJC_CALL3(name, receiver, selector, R, A, B, C)                                        \
    static inline R objc_##name(objc_id self, A a, B b, C c)                               \
    { return ((R (*)(objc_id, void *, A, B, C))objc.send)(self, objc.selectors[OBJC_##name], a, b, c); }
#define OBJC_CALL4(name, receiver, selector, R, A, B, C, D)                                     \
    static inline R objc_##name(objc_id self, A a, B b, C c, D d)                          \
    { return ((R (*)(objc_id, void *, A, B, C, D))objc.send)(self, objc.selectors[OBJC_##name], a, b, c, d); }
/* clang-format on */
OBJC_CALLS(OBJC_TELL0, OBJC_TELL1, OBJC_TELL2, OBJC_TELL3, OBJC_CALL0, OBJC_CALL1, OBJC_CALL2, OBJC_CALL3,
    OBJC_CALL4)

#endif
