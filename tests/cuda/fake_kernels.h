/*
 * The kernels that fake_cuda.cpp launches. Device code of each group of kernels is a C++ file of its own, so
 * that a changed header recompiles only the groups that include it.
 */
#ifndef TESTS_CUDA_FAKE_KERNELS_H
#define TESTS_CUDA_FAKE_KERNELS_H

#include "cuda/emulator.h"

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

template <class T> T kernel_argument(void **given, int index)
{
    T value;
    memcpy(&value, given[index], sizeof value);
    return value;
}

template <class... Parameters, size_t... Index>
std::function<void()> bind_arguments(
    void (*kernel)(Parameters...), void **given, std::index_sequence<Index...>)
{
    auto values = std::make_tuple(kernel_argument<std::decay_t<Parameters>>(given, (int)Index)...);
    return [=] { std::apply(kernel, values); };
}

template <class... Parameters> struct binder {
    void (*kernel)(Parameters...);
    std::function<void()> operator()(void **given) const
    {
        return bind_arguments(kernel, given, std::index_sequence_for<Parameters...>());
    }
};

template <class... Parameters> binder<Parameters...> kernel_of(void (*kernel)(Parameters...))
{
    return {kernel};
}

struct fake_kernel {
    std::function<std::function<void()>(void **)> bind;
    bool together; /* its blocks wait for each other */
    bool wide = false;
};

using kernel_table = std::map<std::string, fake_kernel>;

#define FAKE_KERNEL(name)          \
    {                              \
#name,                     \
        {                          \
            kernel_of(name), false \
        }                          \
    }

void add_decode_kernels(kernel_table &table);
void add_flash_kernels(kernel_table &table);
void add_gemm_kernels(kernel_table &table);
void add_row_kernels(kernel_table &table);

#endif
