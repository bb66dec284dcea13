#include "backend/metal/objc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct objc_runtime objc;

/* ---- The table as data ---- */

/* The type encoding of the runtime, without qualifiers, offsets and names. */
#define TYPE(type)                    \
    _Generic((type){0}, objc_id       \
             : "@", objc_id_place     \
             : "^@", objc_count       \
             : "Q", long              \
             : "q", bool              \
             : "B", double            \
             : "d", objc_text         \
             : "*", objc_bytes        \
             : "^v", struct objc_size \
             : "{QQQ}")

struct objc_entry {
    enum objc_class receiver;
    const char *selector;
    const char *types[6]; /* result, arguments; NULL behind the last */
};

#define TELL0(name, receiver, selector)          {receiver, selector, {"v"}},
#define TELL1(name, receiver, selector, a)       {receiver, selector, {"v", TYPE(a)}},
#define TELL2(name, receiver, selector, a, b)    {receiver, selector, {"v", TYPE(a), TYPE(b)}},
#define TELL3(name, receiver, selector, a, b, c) {receiver, selector, {"v", TYPE(a), TYPE(b), TYPE(c)}},
#define CALL0(name, receiver, selector, r)       {receiver, selector, {TYPE(r)}},
#define CALL1(name, receiver, selector, r, a)    {receiver, selector, {TYPE(r), TYPE(a)}},
#define CALL2(name, receiver, selector, r, a, b) {receiver, selector, {TYPE(r), TYPE(a), TYPE(b)}},
#define CALL3(name, receiver, selector, r, a, b, c) \
    {receiver, selector, {TYPE(r), TYPE(a), TYPE(b), TYPE(c)}},
#define CALL4(name, receiver, selector, r, a, b, c, d) \
    {receiver, selector, {TYPE(r), TYPE(a), TYPE(b), TYPE(c), TYPE(d)}},
static const struct objc_entry entries[OBJC_CALL_COUNT] = {
    OBJC_CALLS(TELL0, TELL1, TELL2, TELL3, CALL0, CALL1, CALL2, CALL3, CALL4)};

/* ---- Opening ---- */

static struct {
    void *(*get_class)(const char *name);
    void *(*register_selector)(const char *name);
    void *(*class_of)(void *object);
    void *(*find_method)(void *class, void *selector);
    const char *(*type_encoding)(void *method);
} runtime;

/* POSIX defines the conversion of a symbol to a function. */
static bool find_symbol(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);
    memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char *find_symbols(void *library, void *metal)
{
    static char why[128];
    const struct {
        void *library;
        const char *name;
        void *function;
    } symbols[] = {
        {library, "objc_msgSend", &objc.send},
        {library, "objc_autoreleasePoolPush", &objc.push_pool},
        {library, "objc_autoreleasePoolPop", &objc.pop_pool},
        {library, "objc_getClass", &runtime.get_class},
        {library, "sel_registerName", &runtime.register_selector},
        {library, "object_getClass", &runtime.class_of},
        {library, "class_getInstanceMethod", &runtime.find_method},
        {library, "method_getTypeEncoding", &runtime.type_encoding},
        {metal, "MTLCopyAllDevices", &objc.copy_devices},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (!find_symbol(symbols[i].library, symbols[i].name, symbols[i].function)) {
            snprintf(why, sizeof why, "the Objective-C runtime has no %s", symbols[i].name);
            return why;
        }
    }
    return NULL;
}

static const char *find_classes(void)
{
    const struct {
        const char *name;
        objc_id *class;
    } classes[] = {{"NSString", &objc.string_class}, {"NSError", &objc.error_class},
        {"MTLCompileOptions", &objc.compile_options_class},
        {"MTLFunctionConstantValues", &objc.constants_class}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        *classes[i].class = runtime.get_class(classes[i].name);
        if (!*classes[i].class)
            return "Foundation or Metal lacks a class";
    }
    objc.residency_descriptor_class = runtime.get_class("MTLResidencySetDescriptor");
    for (size_t i = 0; i < OBJC_CALL_COUNT; i++)
        objc.selectors[i] = runtime.register_selector(entries[i].selector);
    return NULL;
}

const char *objc_open(void)
{
    const char *named = getenv("SALVO_METAL_LIBRARY");
    void *library = NULL, *metal = NULL;
    if (named) {
        library = metal = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return "the library that SALVO_METAL_LIBRARY names cannot be opened";
    } else {
#ifdef __APPLE__
        /* Without CoreGraphics a program without windows finds no default device. */
        library = dlopen("/usr/lib/libobjc.A.dylib", RTLD_NOW | RTLD_GLOBAL);
        if (!dlopen("/System/Library/Frameworks/Foundation.framework/Foundation", RTLD_NOW | RTLD_GLOBAL) ||
            !dlopen("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics", RTLD_NOW | RTLD_GLOBAL))
            return "Foundation or CoreGraphics cannot be opened";
        metal = dlopen("/System/Library/Frameworks/Metal.framework/Metal", RTLD_NOW | RTLD_GLOBAL);
        if (!library || !metal)
            return "libobjc or Metal cannot be opened";
#else
        return "Metal is a part of macOS";
#endif
    }
    const char *why = find_symbols(library, metal);
    return why ? why : find_classes();
}

/* ---- Checking ---- */

/*
 * Reduces a type encoding to its types: "{?=QQQ}24" to "{QQQ}". Qualifiers (rnNoORV), offsets, names of
 * structs and the mark of blocks are left out.
 */
static void reduce_encoding(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (; *text && used + 1 < size; text++) {
        if (*text == '{') {
            out[used++] = *text;
            const char *members = strchr(text, '=');
            text = members ? members : text;
        } else if (!strchr("rnNoORV0123456789?", *text)) {
            out[used++] = *text;
        }
    }
    out[used] = 0;
}

static enum salvo_status check_entry(const struct objc_entry *entry, void *class)
{
    char found[64], wanted[64];
    void *method = runtime.find_method(class, objc.selectors[entry - entries]);
    const char *encoding = method ? runtime.type_encoding(method) : NULL;
    if (!encoding)
        return fail(SALVO_ERROR_UNSUPPORTED, "Metal has no method %s here", entry->selector);
    int used = snprintf(wanted, sizeof wanted, "%s@:", entry->types[0]);
    for (int i = 1; i < 6 && entry->types[i]; i++)
        used += snprintf(wanted + used, sizeof wanted - (size_t)used, "%s", entry->types[i]);
    reduce_encoding(encoding, found, sizeof found);
    if (strcmp(found, wanted) != 0)
        return fail(SALVO_ERROR_UNSUPPORTED, "Metal's method %s has the types %s (%s), not %s",
            entry->selector, found, encoding, wanted);
    return SALVO_OK;
}

enum salvo_status objc_check_instances(enum objc_class receiver, objc_id class)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < OBJC_CALL_COUNT; i++) {
        if (entries[i].receiver == receiver)
            TRY(check_entry(&entries[i], class));
    }
cleanup:
    return status;
}

enum salvo_status objc_check(enum objc_class receiver, objc_id object)
{
    return objc_check_instances(receiver, runtime.class_of(object));
}

bool objc_understands(objc_id object, enum objc_call call)
{
    return runtime.find_method(runtime.class_of(object), objc.selectors[call]) != NULL;
}

const char *objc_string_text(objc_id string)
{
    const char *text = string ? objc_utf8(string) : NULL;
    return text ? text : "";
}
