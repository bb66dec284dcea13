#include "metal/fake/fake_objc.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

void fail_runtime(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("fake Objective-C: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* ---- Objects ---- */

namespace
{
struct runtime {
    std::set<const void *> live;
    std::map<std::string, std::unique_ptr<std::string>> selectors;
    std::map<std::string, fake_class *> classes;
    std::vector<std::vector<fake_object *>> pools;
    unsigned long objects = 0; /* without classes */
};

runtime &state()
{
    static runtime *all = new runtime; /* lives as long as the process */
    return *all;
}
} // namespace

fake_object::fake_object(const char *class_name) : isa(class_name ? find_class(class_name) : nullptr)
{
    state().live.insert(this);
    state().objects += class_name != nullptr;
}

fake_object::~fake_object()
{
    state().live.erase(this);
    state().objects--;
}

fake_class::fake_class(const char *given_name, fake_class *meta) : fake_object(nullptr), name(given_name)
{
    isa = meta;
}

fake_class *find_class(const char *name)
{
    fake_class *&found = state().classes[name];
    if (!found)
        found = new fake_class(name, new fake_class((std::string(name) + " class").c_str(), nullptr));
    return found;
}

fake_selector find_selector(const char *name)
{
    std::unique_ptr<std::string> &found = state().selectors[name];
    if (!found)
        found = std::make_unique<std::string>(name);
    return found.get();
}

bool is_live(const void *object)
{
    return state().live.count(object) != 0;
}

unsigned long live_objects()
{
    return state().objects;
}

void add_to_pool(fake_object *object)
{
    if (state().pools.empty())
        fail_runtime("an object of %s is autoreleased without a pool", object->isa->name.c_str());
    state().pools.back().push_back(object);
}

void release(fake_object *object)
{
    if (--object->references == 0)
        delete object;
}

void add_method(fake_class *to, const char *selector, const fake_method &method)
{
    to->methods[find_selector(selector)] = method;
}

/* ---- The functions of libobjc ---- */

extern "C" {

void *objc_getClass(const char *name)
{
    auto found = state().classes.find(name);
    return found == state().classes.end() ? nullptr : found->second;
}

void *sel_registerName(const char *name)
{
    return (void *)find_selector(name);
}

void *object_getClass(void *object)
{
    return object ? ((fake_object *)object)->isa : nullptr;
}

static bool is_named(const char *selector, const std::string &name)
{
    return selector && name == selector;
}

static fake_method *find_method(fake_class *type, fake_selector selector)
{
    for (fake_class *at : {type, find_class("NSObject")}) {
        auto found = at->methods.find(selector);
        if (found != at->methods.end())
            return &found->second;
    }
    return nullptr;
}

void *class_getInstanceMethod(void *of, void *selector)
{
    const bool is_hidden = is_named(hidden_method(), *(fake_selector)selector);
    return is_hidden ? nullptr : find_method((fake_class *)of, (fake_selector)selector);
}

const char *method_getTypeEncoding(void *method)
{
    const fake_method *known = (fake_method *)method;
    return is_named(changed_method(), known->selector) ? "f20@0:8f16" : known->encoding.c_str();
}

void *objc_autoreleasePoolPush()
{
    state().pools.emplace_back();
    return (void *)state().pools.size();
}

void objc_autoreleasePoolPop(void *pool)
{
    if ((size_t)pool != state().pools.size())
        fail_runtime("pools are not popped in order");
    std::vector<fake_object *> objects = std::move(state().pools.back());
    state().pools.pop_back();
    for (fake_object *object : objects)
        release(object);
}

static unsigned long answer_nil()
{
    return 0;
}

/* The function that a message calls. */
void *fake_objc_find(fake_object *self, fake_selector selector)
{
    if (!self)
        return (void *)answer_nil;
    if (!is_live(self))
        fail_runtime("%s is sent to an object that is gone", selector->c_str());
    const bool ends = *selector == "release", is_hidden = is_named(hidden_method(), *selector);
    fake_method *method = find_method(self->isa, selector);
    if (!method || (is_hidden && !ends))
        fail_runtime("%s does not understand %s", self->isa->name.c_str(), selector->c_str());
    return (void *)method->function;
}
}

/* Keeps all registers that can have arguments, finds the function and jumps to it. */
#if defined(__aarch64__)
asm(R"(
.text
.globl objc_msgSend
.type objc_msgSend, %function
objc_msgSend:
    stp x29, x30, [sp, #-224]!
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    bl fake_objc_find
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    br x16
.size objc_msgSend, .-objc_msgSend
)");
#elif defined(__x86_64__)
asm(R"(
.text
.globl objc_msgSend
.type objc_msgSend, @function
objc_msgSend:
    pushq %rbp
    movq %rsp, %rbp
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    subq $128, %rsp
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    call fake_objc_find@PLT
    movq %rax, %r11
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    addq $128, %rsp
    popq %r9
    popq %r8
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    popq %rbp
    jmp *%r11
.size objc_msgSend, .-objc_msgSend
)");
#endif
