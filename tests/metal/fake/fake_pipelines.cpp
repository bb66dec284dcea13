/* Libraries, function constants and pipelines. The kernels were compiled with the library; the source that
 * the host passes is only looked at. */
#include "metal/fake/fake_objects.h"

namespace
{
enum { MATH_SAFE = 0, MATH_FAST = 2 };

struct compile_options : fake_object {
    compile_options() : fake_object("MTLCompileOptions") {}
    long math = MATH_FAST;
};

struct library : fake_object {
    library() : fake_object("FakeLibrary") {}
    bool is_fast = false, has_system_scope = false;
};

struct constant_values : fake_object {
    constant_values() : fake_object("MTLFunctionConstantValues") {}
    unsigned values[METAL_CONSTANTS] = {};
};

struct function : fake_object {
    function() : fake_object("FakeFunction") {}
    const emulated_kernel *kernel = nullptr;
    bool has_system_scope = false;
    unsigned constants[METAL_CONSTANTS] = {};
};

bool begins_with(const std::string &text, const char *start)
{
    return text.rfind(start, 0) == 0;
}

fake_object *device_new_library(
    device_object *, SEL, string *source, compile_options *options, fake_object **out_error)
{
    if (creation_fails()) {
        set_error(out_error, 3, "the source does not compile");
        return nullptr;
    }
    if (!is_live(source) || !options || source->text.find("kernel void matmul(") == std::string::npos)
        violate("the source has no kernels");
    const bool has_system_scope = begins_with(source->text, "#define METAL_SYSTEM_SCOPE\n");
    if (has_system_scope && control.refuses_system_scope) {
        set_error(out_error, 3, "use of undeclared identifier 'coherent'");
        return nullptr;
    }
    library *made = new library;
    made->is_fast = options->math != MATH_SAFE;
    made->has_system_scope = has_system_scope;
    if (options->math == MATH_FAST)
        violate("kernels need infinities and NaN");
    if (made->is_fast != begins_with(source->text, "#define METAL_FAST_MATH\n"))
        violate("a library whose source and options differ");
    return made;
}

fake_object *library_new_function(
    library *self, SEL, string *name, constant_values *values, fake_object **out_error)
{
    const emulated_kernel *kernel = find_kernel(name->text, self->is_fast);
    if (creation_fails() || !kernel) {
        set_error(out_error, 3, "there is no function " + name->text);
        return nullptr;
    }
    if (self->is_fast && (name->text == "sample" || name->text == "begin" || name->text == "append"))
        violate("%s must be exact", name->text.c_str());
    control.fast_functions += self->is_fast;
    function *made = new function;
    made->kernel = kernel;
    made->has_system_scope = self->has_system_scope;
    memcpy(made->constants, values->values, sizeof made->constants);
    return made;
}

fake_object *device_new_pipeline(device_object *, SEL, function *from, fake_object **out_error)
{
    if (creation_fails()) {
        set_error(out_error, 3, "no pipeline");
        return nullptr;
    }
    pipeline *made = new pipeline;
    made->kernel = from->kernel;
    made->has_system_scope = from->has_system_scope;
    memcpy(made->constants, from->constants, sizeof made->constants);
    return made;
}

fake_object *new_compile_options(fake_class *, SEL)
{
    return creation_fails() ? nullptr : new compile_options;
}

void options_fast_math(compile_options *self, SEL, bool on)
{
    self->math = on ? MATH_FAST : MATH_SAFE;
}

void options_math_mode(compile_options *self, SEL, long mode)
{
    self->math = mode;
}

fake_object *new_constant_values(fake_class *, SEL)
{
    return creation_fails() ? nullptr : new constant_values;
}

void set_constant(constant_values *self, SEL, const void *value, unsigned long type, unsigned long index)
{
    if (type != 33 || index >= METAL_CONSTANTS)
        violate("function constant %lu of type %lu", index, type);
    else
        memcpy(&self->values[index], value, sizeof(unsigned));
}

unsigned long pipeline_threads(pipeline *, SEL)
{
    return control.most_threads;
}

unsigned long pipeline_width(pipeline *, SEL)
{
    return control.simd_width;
}

__attribute__((constructor)) void add_methods()
{
    add("FakeDevice", "newLibraryWithSource:options:error:", device_new_library);
    add("FakeDevice", "newComputePipelineStateWithFunction:error:", device_new_pipeline);
    add("MTLCompileOptions", "new", new_compile_options, true);
    add("MTLCompileOptions", "setFastMathEnabled:", options_fast_math);
    add("MTLCompileOptions", "setMathMode:", options_math_mode);
    add("MTLFunctionConstantValues", "new", new_constant_values, true);
    add("MTLFunctionConstantValues", "setConstantValue:type:atIndex:", set_constant);
    add("FakeLibrary", "newFunctionWithName:constantValues:error:", library_new_function);
    add("FakePipeline", "maxTotalThreadsPerThreadgroup", pipeline_threads);
    add("FakePipeline", "threadExecutionWidth", pipeline_width);
}
} // namespace
