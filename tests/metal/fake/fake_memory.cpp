/* Buffers in the host's memory, and sets of them that stay resident. */
#include "metal/fake/fake_objects.h"

#include <cstdlib>
#include <unistd.h>

uint64_t buffer::version = 1;

std::map<const uint8_t *, buffer *> &buffer::all()
{
    static auto *buffers = new std::map<const uint8_t *, buffer *>;
    return *buffers;
}

buffer::~buffer()
{
    all().erase(bytes);
    version++;
    if (is_owned)
        free(bytes);
}

residency_set::~residency_set()
{
    if (is_resident)
        control.resident -= buffers.size();
    for (buffer *each : buffers)
        ::release(each);
}

namespace
{
fake_object *add_buffer(void *bytes, size_t size, bool is_owned)
{
    buffer *made = new buffer;
    made->bytes = (uint8_t *)bytes;
    made->size = size;
    made->is_owned = is_owned;
    buffer::all()[made->bytes] = made;
    buffer::version++;
    return made;
}

fake_object *device_new_buffer(device_object *, SEL, unsigned long size, unsigned long options)
{
    void *bytes;
    if (creation_fails() || size > control.largest_buffer)
        return nullptr;
    if (size == 0)
        violate("a buffer of 0 bytes");
    if (options != 0)
        violate("buffers are shared with the host, not of options %lu", options);
    if (posix_memalign(&bytes, BUFFER_ALIGNMENT, size ? size : 1))
        fail_runtime("no memory");
    memset(bytes, 0xa5, size); /* new memory is not zero */
    return add_buffer(bytes, size, true);
}

fake_object *device_new_no_copy(
    device_object *, SEL, void *bytes, unsigned long size, unsigned long, fake_object *deallocator)
{
    const unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);
    if (creation_fails() || size > control.largest_buffer)
        return nullptr;
    if ((uintptr_t)bytes % page || size % page || size == 0 || deallocator)
        violate("a buffer without a copy at %p, of %lu bytes: not whole pages", bytes, size);
    return add_buffer(bytes, size, false);
}

void *buffer_contents(buffer *self, SEL)
{
    return self->bytes;
}

/* ---- Residency ---- */

fake_object *new_residency_descriptor(fake_class *, SEL)
{
    return creation_fails() ? nullptr : new fake_object("MTLResidencySetDescriptor");
}

fake_object *device_new_residency_set(device_object *, SEL, fake_object *descriptor, fake_object **out_error)
{
    if (creation_fails()) {
        set_error(out_error, 3, "no residency set");
        return nullptr;
    }
    if (!is_live(descriptor))
        violate("a residency set without a descriptor");
    return new residency_set;
}

void add_allocation(residency_set *self, SEL, buffer *added)
{
    added->references++;
    self->buffers.push_back(added);
    self->is_committed = false;
}

void commit_residency(residency_set *self, SEL)
{
    self->is_committed = true;
}

void request_residency(residency_set *self, SEL)
{
    if (!self->is_committed)
        violate("residency is requested before the set is committed");
    if (!self->is_resident)
        control.resident += self->buffers.size();
    self->is_resident = true;
}

void add_residency_set(queue *self, SEL, residency_set *set)
{
    self->residency = set;
}

__attribute__((constructor)) void add_methods()
{
    add("FakeDevice", "newBufferWithLength:options:", device_new_buffer);
    add("FakeDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", device_new_no_copy);
    add("FakeBuffer", "contents", buffer_contents);
    add("MTLResidencySetDescriptor", "new", new_residency_descriptor, true);
    add("FakeDevice", "newResidencySetWithDescriptor:error:", device_new_residency_set);
    add("FakeResidencySet", "addAllocation:", add_allocation);
    add("FakeResidencySet", "commit", commit_residency);
    add("FakeResidencySet", "requestResidency", request_residency);
    add("FakeQueue", "addResidencySet:", add_residency_set);
}
} // namespace
