/*
 * Before a command buffer has ended, the host sees only stores to buffers that a kernel declares `volatile`,
 * up to the last fence of the whole system. The device sees all stores of the host. Only command buffers that
 * are interrupted pay for it.
 */
#include "metal/fake/fake_objects.h"

#include <algorithm>

namespace
{
template <class Function> void for_each_buffer(Function function)
{
    for (auto &entry : buffer::all()) {
        if (entry.second->is_owned)
            function(*entry.second);
    }
}

enum { PIECE = 4096 };

/* Stores of the host to a part of a buffer reach the device. */
void pass_on_writes(buffer &each, size_t first, size_t count)
{
    if (memcmp(each.bytes + first, each.seen.host.data() + first, count) == 0)
        return;
    for (size_t i = first; i < first + count; i++) {
        if (each.bytes[i] != each.seen.host[i])
            each.seen.device[i] = each.seen.published[i] = each.seen.host[i] = each.bytes[i];
    }
}
} // namespace

void visibility_begin()
{
    for_each_buffer([](buffer &each) {
        each.seen.host.assign(each.bytes, each.bytes + each.size);
        each.seen.published = each.seen.host;
    });
}

void visibility_to_host()
{
    for_each_buffer([](buffer &each) {
        each.seen.device.assign(each.bytes, each.bytes + each.size);
        if (each.is_coherent)
            each.seen.host = each.seen.published;
        memcpy(each.bytes, each.seen.host.data(), each.size);
    });
}

void visibility_to_device()
{
    for_each_buffer([](buffer &each) {
        if (each.seen.device.empty())
            return; /* made meanwhile */
        for (size_t first = 0; first < each.size; first += PIECE)
            pass_on_writes(each, first, std::min<size_t>(PIECE, each.size - first));
        memcpy(each.bytes, each.seen.device.data(), each.size);
    });
}

void visibility_end()
{
    for_each_buffer([](buffer &each) { each.seen = views(); });
}

void fence_of_system()
{
    for_each_buffer([](buffer &each) {
        if (each.is_coherent && !each.seen.published.empty())
            each.seen.published.assign(each.bytes, each.bytes + each.size);
    });
}
