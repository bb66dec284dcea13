#include "metal/fake/fake_objects.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace
{
fake_metal new_control()
{
    fake_metal fresh = {};
    const char *races = getenv("SALVO_FAKE_METAL_RACES");
    fresh.memory = 4ul << 30;
    fresh.largest_buffer = 2ul << 30;
    fresh.most_threads = 1024;
    fresh.simd_width = 32;
    fresh.has_unified_memory = fresh.is_apple7 = 1;
    fresh.error_code = 2;
    fresh.dispatch_ns = 1000;
    fresh.most_parts = 64;
    fresh.idle_kernel = find_idle_kernel({});
    fresh.records_races = !races || races[0] != '0';
    return fresh;
}

unsigned seed = 1;
} // namespace

fake_metal control = new_control();

void violate(const char *format, ...)
{
    char text[sizeof control.first_violation];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "fake Metal: %s\n", text);
    if (control.violations++ == 0)
        memcpy(control.first_violation, text, sizeof text);
}

bool creation_fails()
{
    return ++control.creations == control.fail_creation;
}

unsigned next_random()
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

void set_error(fake_object **out, unsigned long code, const std::string &text)
{
    if (out)
        *out = autoreleased(new error(code, text));
}

const char *hidden_method()
{
    return control.hidden_method;
}

const char *changed_method()
{
    return control.changed_method;
}

/* ---- Methods ---- */

namespace
{
struct array : fake_object {
    array() : fake_object("NSArray") {}
    ~array() override
    {
        for (fake_object *item : items)
            ::release(item);
    }
    std::vector<fake_object *> items;
};

void object_release(fake_object *self, SEL)
{
    ::release(self);
}

fake_object *object_retain(fake_object *self, SEL)
{
    self->references++;
    return self;
}

fake_object *string_with(fake_class *, SEL, const char *text)
{
    return autoreleased(new string(text));
}
const char *string_text(string *self, SEL)
{
    return self->text.c_str();
}
unsigned long array_count(array *self, SEL)
{
    return self->items.size();
}

fake_object *array_at(array *self, SEL, unsigned long index)
{
    if (index >= self->items.size())
        fail_runtime("item %lu of an array of %zu", index, self->items.size());
    return self->items[index];
}

long error_code(error *self, SEL)
{
    return (long)self->code;
}
fake_object *error_text(error *self, SEL)
{
    return autoreleased(new string(self->text));
}

/* ---- The device ---- */

device_object *only_device()
{
    static device_object *only = new device_object;
    return only;
}

fake_object *device_name(device_object *, SEL)
{
    return autoreleased(new string("Emulated Apple GPU"));
}
bool device_unified(device_object *, SEL)
{
    return control.has_unified_memory != 0;
}
bool device_family(device_object *, SEL, long family)
{
    return family == 1007 && control.is_apple7;
}
unsigned long device_largest(device_object *, SEL)
{
    return control.largest_buffer;
}
unsigned long device_memory(device_object *, SEL)
{
    return control.memory;
}

__attribute__((constructor)) void add_methods()
{
    add("NSObject", "release", object_release);
    add("NSObject", "retain", object_retain);
    add("NSString", "stringWithUTF8String:", string_with, true);
    add("NSString", "UTF8String", string_text);
    add("NSArray", "count", array_count);
    add("NSArray", "objectAtIndex:", array_at);
    add("NSError", "code", error_code);
    add("NSError", "localizedDescription", error_text);
    add("FakeDevice", "name", device_name);
    add("FakeDevice", "hasUnifiedMemory", device_unified);
    add("FakeDevice", "supportsFamily:", device_family);
    add("FakeDevice", "maxBufferLength", device_largest);
    add("FakeDevice", "recommendedMaxWorkingSetSize", device_memory);
}
} // namespace

/* ---- Functions that the library exports, besides the runtime's ---- */

extern "C" {

void *MTLCopyAllDevices(void)
{
    array *made = new array;
    only_device()->references++;
    made->items.push_back(only_device());
    return made;
}

struct fake_metal *fake_metal_control(void)
{
    control.live_objects = live_objects();
    return &control;
}
}
