#include "metal/fake/emulated_kernels.h"

/* One compilation serves libraries with and without it: set_system_scope. */
#define METAL_SYSTEM_SCOPE
#include <metal_stdlib>

#include <tuple>
#include <type_traits>

namespace
{
/* Both libraries. */
namespace exact
{
#include "metal/fake/kernel_sources.h"
}
#define METAL_FAST_MATH
namespace fast_math
{
#include "metal/fake/kernel_sources.h"
}
using namespace metal;

/* ---- Arguments of a kernel, by their types; buffers are in the order of their indices ---- */

template <class Type> struct argument;

template <class Type> struct argument<Type *> {
    enum { IS_BINDING = 1, IS_FOR_HOST = std::is_volatile<Type>::value, IS_MEMORY = 0 };
    static Type *take(const kernel_call &call, unsigned &next) { return (Type *)call.bindings[next++]; }
};

template <class Type> struct argument<const Type &> {
    enum { IS_BINDING = 1, IS_FOR_HOST = 0, IS_MEMORY = 0 };
    static const Type &take(const kernel_call &call, unsigned &next)
    {
        return *(const Type *)call.bindings[next++];
    }
};

template <class Type> struct argument<metal::threadgroup_memory<Type>> {
    enum { IS_BINDING = 0, IS_FOR_HOST = 0, IS_MEMORY = 1 };
    static metal::threadgroup_memory<Type> take(const kernel_call &, unsigned &)
    {
        return {(Type *)emulator_shared()};
    }
};

template <> struct argument<uint3> { /* threadgroup_position_in_grid */
    enum { IS_BINDING = 0, IS_FOR_HOST = 0, IS_MEMORY = 0 };
    static uint3 take(const kernel_call &call, unsigned &)
    {
        const unsigned place = emulator_place.x;
        uint3 result = {place % call.groups[0], place / call.groups[0] % call.groups[1],
            place / call.groups[0] / call.groups[1]};
        return result;
    }
};

template <> struct argument<uint> { /* thread_index_in_threadgroup */
    enum { IS_BINDING = 0, IS_FOR_HOST = 0, IS_MEMORY = 0 };
    static uint take(const kernel_call &, unsigned &) { return emulator_thread.x; }
};

template <auto Kernel> struct caller;

template <class... Arguments, void (*Kernel)(Arguments...)> struct caller<Kernel> {
    static void run(const kernel_call &call)
    {
        unsigned next = 0;
        std::tuple<Arguments...> arguments{argument<Arguments>::take(call, next)...};
        std::apply(Kernel, arguments);
    }
    static constexpr unsigned host_bindings()
    {
        unsigned bits = 0, next = 0;
        ((bits |= (unsigned)argument<Arguments>::IS_FOR_HOST << next,
             next += argument<Arguments>::IS_BINDING),
            ...);
        return bits;
    }
    static constexpr emulated_kernel entry(const char *name)
    {
        return {name, (0 + ... + (unsigned)argument<Arguments>::IS_BINDING), host_bindings(),
            (false || ... || argument<Arguments>::IS_MEMORY), run};
    }
};

#define KERNEL(name)                                                             \
    {                                                                            \
        caller<exact::name>::entry(#name), caller<fast_math::name>::entry(#name) \
    }

const emulated_kernel kernels[][2] = {KERNEL(append), KERNEL(attend), KERNEL(begin), KERNEL(bonus),
    KERNEL(each_column), KERNEL(embed), KERNEL(join_parts), KERNEL(matmul), KERNEL(matmul_tiles),
    KERNEL(normalise), KERNEL(rotate), KERNEL(sample), KERNEL(shift), KERNEL(wkv7)};
} // namespace

const emulated_kernel *find_kernel(const std::string &name, bool is_fast)
{
    for (const emulated_kernel(&entry)[2] : kernels) {
        if (name == entry[is_fast].name)
            return &entry[is_fast];
    }
    return nullptr;
}

const char *find_idle_kernel(const std::set<std::string> &have_run)
{
    for (const emulated_kernel(&entry)[2] : kernels) {
        if (!have_run.count(entry[0].name))
            return entry[0].name;
    }
    return nullptr;
}

void set_function_constants(const unsigned values[METAL_CONSTANTS])
{
    exact::set_constants(values);
    fast_math::set_constants(values);
}

void set_matrix_order(unsigned seed)
{
    metal::choose_matrix_order(seed);
}

void set_system_scope(bool is_there)
{
    metal::has_system_scope = is_there;
}
