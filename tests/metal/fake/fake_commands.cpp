/* Command buffers and encoders: commands are checked when they are encoded, and run later
 * (fake_execution.cpp). */
#include "metal/fake/fake_objects.h"

#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

command_buffer::~command_buffer()
{
    if (failure)
        ::release(failure);
}

namespace
{
enum { MOST_THREADGROUP_MEMORY = 32768, MOST_THREADS = 1024 };

struct encoder : fake_object {
    encoder() : fake_object("FakeEncoder") {}
    command_buffer *to = nullptr;
    bool has_ended = false;
    command next;
};

fake_object *queue_command_buffer(queue *self, SEL)
{
    return creation_fails() ? nullptr : autoreleased(new command_buffer(self));
}

fake_object *new_encoder(command_buffer *self, SEL, unsigned long dispatch_type)
{
    if (creation_fails())
        return nullptr;
    if (self->status != NOT_ENQUEUED || self->is_encoding || dispatch_type != 1)
        violate("an encoder of type %lu, while another one encodes or after the commit", dispatch_type);
    encoder *made = new encoder;
    made->to = self;
    self->is_encoding = true;
    control.encoders++;
    return autoreleased(made);
}

void encode_signal(command_buffer *self, SEL, event *signals, unsigned long value)
{
    if (self->is_encoding || self->status != NOT_ENQUEUED)
        violate("an event is signalled while an encoder encodes");
    self->signals = signals;
    self->signal_value = value;
}

void cut_file()
{
    struct stat found;
    if (stat(control.cut_file, &found) != 0 || truncate(control.cut_file, found.st_size - 1) != 0)
        fail_runtime("no file to cut");
}

void commit(command_buffer *self, SEL)
{
    if (self->is_encoding || self->status != NOT_ENQUEUED)
        violate("a command buffer is committed twice, or before its encoder has ended");
    self->status = COMMITTED;
    self->is_lost = ++control.commits == control.lose_commit;
    self->references++;
    self->from->waiting.push_back(self);
    control.most_waiting = std::max<unsigned long>(control.most_waiting, self->from->waiting.size());
    if (control.commits == control.cut_commit)
        cut_file();
}

fake_object *buffer_error(command_buffer *self, SEL)
{
    return self->failure;
}

double buffer_start(command_buffer *, SEL)
{
    return 1;
}

double buffer_end(command_buffer *self, SEL)
{
    return 1 + self->seconds;
}

bool is_open(const encoder *self)
{
    if (self->has_ended)
        violate("a command after endEncoding");
    return !self->has_ended;
}

void set_pipeline(encoder *self, SEL, pipeline *state)
{
    if (is_open(self))
        self->next.state = state;
}

void set_buffer(encoder *self, SEL, buffer *from, unsigned long offset, unsigned long index)
{
    if (!is_open(self))
        return;
    if (index >= MOST_BINDINGS || !is_live(from) || offset >= from->size || offset % 4) {
        violate("buffer %lu at offset %lu", index, offset);
        return;
    }
    self->next.bindings[index] = binding();
    self->next.bindings[index].from = from;
    self->next.bindings[index].offset = offset;
}

void set_bytes(encoder *self, SEL, const void *bytes, unsigned long size, unsigned long index)
{
    if (!is_open(self))
        return;
    if (index >= MOST_BINDINGS || size == 0 || size > 4096) {
        violate("%lu bytes at index %lu", size, index);
        return;
    }
    self->next.bindings[index] = binding();
    self->next.bindings[index].bytes.assign((const uint8_t *)bytes, (const uint8_t *)bytes + size);
}

void set_threadgroup_memory(encoder *self, SEL, unsigned long size, unsigned long index)
{
    if (!is_open(self))
        return;
    if (size > MOST_THREADGROUP_MEMORY || size % 16 || index != 0)
        violate("threadgroup memory of %lu bytes at index %lu", size, index);
    self->next.threadgroup_memory = size;
}

void dispatch(encoder *self, SEL, metal_size_argument groups, metal_size_argument threads)
{
    if (!is_open(self))
        return;
    const pipeline *state = self->next.state;
    if (!state || !is_live(state)) {
        violate("a dispatch without a pipeline");
        return;
    }
    for (unsigned i = 0; i < state->kernel->bindings; i++) {
        if (!self->next.bindings[i].from && self->next.bindings[i].bytes.empty())
            violate("%s: index %u is not bound", state->kernel->name, i);
    }
    if (!groups.width || !groups.height || !groups.depth || !threads.width || threads.width % 32 ||
        threads.width > MOST_THREADS || threads.height != 1 || threads.depth != 1)
        violate("%s: %lu x %lu x %lu groups of %lu threads", state->kernel->name, groups.width, groups.height,
            groups.depth, threads.width);
    if (state->kernel->has_threadgroup_memory && !self->next.threadgroup_memory)
        violate("%s has no threadgroup memory", state->kernel->name);
    self->next.groups = groups;
    self->next.threads = threads;
    self->to->commands.push_back(self->next);
}

void barrier(encoder *self, SEL, unsigned long scope)
{
    if (!is_open(self))
        return;
    if (scope != 1)
        violate("a barrier of scope %lu", scope);
    if (++control.barriers == control.ignore_barrier)
        return;
    command added;
    added.is_barrier = true;
    self->to->commands.push_back(added);
}

void end_encoding(encoder *self, SEL)
{
    if (!is_open(self))
        return;
    self->has_ended = true;
    self->to->is_encoding = false;
}

__attribute__((constructor)) void add_methods()
{
    add("FakeQueue", "commandBufferWithUnretainedReferences", queue_command_buffer);
    add("FakeCommandBuffer", "computeCommandEncoderWithDispatchType:", new_encoder);
    add("FakeCommandBuffer", "encodeSignalEvent:value:", encode_signal);
    add("FakeCommandBuffer", "commit", commit);
    add("FakeCommandBuffer", "error", buffer_error);
    add("FakeCommandBuffer", "GPUStartTime", buffer_start);
    add("FakeCommandBuffer", "GPUEndTime", buffer_end);
    add("FakeEncoder", "setComputePipelineState:", set_pipeline);
    add("FakeEncoder", "setBuffer:offset:atIndex:", set_buffer);
    add("FakeEncoder", "setBytes:length:atIndex:", set_bytes);
    add("FakeEncoder", "setThreadgroupMemoryLength:atIndex:", set_threadgroup_memory);
    add("FakeEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", dispatch);
    add("FakeEncoder", "memoryBarrierWithScope:", barrier);
    add("FakeEncoder", "endEncoding", end_encoding);
}
} // namespace
