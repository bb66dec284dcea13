/*
 * Metal without a GPU: objects of fake_objc.h, buffers in the host's memory, kernels on the emulator. A
 * command buffer runs when the host waits for it, not when it is committed, so that the host cannot rely on
 * work that is not done. Dispatches between two barriers run in random order, and their accesses must not
 * conflict. SALVO_METAL_LIBRARY makes salvo open it; tests choose failures through fake_metal.h.
 */
#include "metal/fake_metal.h"
#include "emulator/fibers.h"
#include "metal/fake/emulated_kernels.h"
#include "metal/fake/fake_objc.h"

#include <algorithm>
#include <cstdarg>
#include <memory>
#include <unistd.h>
#include <vector>

namespace
{

enum { MOST_THREADGROUP_MEMORY = 32768, MOST_THREADS = 1024 };

fake_metal new_control()
{
    fake_metal fresh = {};
    const char *races = getenv("SALVO_FAKE_METAL_RACES");
    fresh.memory = 4ul << 30;
    fresh.largest_buffer = 2ul << 30;
    fresh.error_code = 2;
    fresh.records_races = !races || races[0] != '0';
    return fresh;
}

fake_metal control = new_control();

void violate(const char *format, ...) __attribute__((format(printf, 1, 2)));

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

unsigned seed = 1;

unsigned next_random()
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* ---- Foundation ---- */

struct string : fake_object {
    explicit string(std::string given) : fake_object("NSString"), text(std::move(given)) {}
    std::string text;
};

struct array : fake_object {
    array() : fake_object("NSArray") {}
    ~array() override
    {
        for (fake_object *item : items)
            ::release(item);
    }
    std::vector<fake_object *> items;
};

struct error : fake_object {
    error(unsigned long given_code, std::string given)
        : fake_object("NSError"), code(given_code), text(std::move(given))
    {
    }
    unsigned long code;
    std::string text;
};

void set_error(fake_object **out, unsigned long code, const std::string &text)
{
    if (out)
        *out = autoreleased(new error(code, text));
}

/* ---- Memory ---- */

/* Who has read or written a word since the last barrier: dispatch and threadgroup, from 1 on. */
struct word_uses {
    uint64_t writer, reader, other_reader, barrier;
};

struct buffer;
enum { BUFFER_ALIGNMENT = 16384, CACHED_PAGES = 4096 };
struct cached_page {
    uintptr_t page;
    uint64_t version;
    buffer *holder;
};
cached_page page_cache[CACHED_PAGES];
uint64_t buffers_version = 1; /* changes with the list of buffers */

struct buffer : fake_object {
    buffer() : fake_object("FakeBuffer") {}
    ~buffer() override
    {
        all().erase(bytes);
        buffers_version++;
        if (is_owned)
            free(bytes);
    }
    static std::map<const uint8_t *, buffer *> &all()
    {
        static auto *buffers = new std::map<const uint8_t *, buffer *>;
        return *buffers;
    }
    uint8_t *bytes = nullptr;
    size_t size = 0;
    bool is_owned = false;
    std::vector<word_uses> words; /* made when a kernel uses the buffer */
};

/* ---- Races ---- */

uint64_t running_dispatch; /* from 1 on since the last barrier; 0: no kernel runs */
uint64_t barrier_number = 1;
std::string running_name;
bool race_was_found;

/* The buffer that has this byte; nullptr: none has. Buffers begin at pages of their own, so that a page of
 * the cache has one buffer at most. */
buffer *buffer_at(const uint8_t *address)
{
    const uintptr_t page = (uintptr_t)address / BUFFER_ALIGNMENT;
    cached_page &known = page_cache[page % CACHED_PAGES];
    if (known.page != page || known.version != buffers_version) {
        auto found = buffer::all().upper_bound((const uint8_t *)((page + 1) * BUFFER_ALIGNMENT - 1));
        known = {page, buffers_version, found == buffer::all().begin() ? nullptr : (--found)->second};
    }
    buffer *holder = known.holder;
    return holder && address >= holder->bytes && address < holder->bytes + holder->size ? holder : nullptr;
}

void note_access(const void *at, size_t bytes, bool writes)
{
    if (!running_dispatch || !control.records_races || race_was_found)
        return;
    const uint8_t *address = (const uint8_t *)at;
    buffer *holder = buffer_at(address);
    if (!holder || !holder->is_owned)
        return;
    if (holder->words.empty())
        holder->words.resize(holder->size / 4 + 1);
    const uint64_t user = running_dispatch << 32 | (emulator_place.x + 1);
    const size_t first = (size_t)(address - holder->bytes) / 4,
                 last = (size_t)(address - holder->bytes + bytes - 1) / 4;
    for (size_t word = first; word <= last && word < holder->words.size(); word++) {
        word_uses &uses = holder->words[word];
        if (uses.barrier != barrier_number)
            uses = {0, 0, 0, barrier_number};
        const bool conflicts = (uses.writer && uses.writer != user) ||
                               (writes && ((uses.reader && uses.reader != user) ||
                                              (uses.other_reader && uses.other_reader != user)));
        if (conflicts) {
            race_was_found = true;
            violate(
                "%s, threadgroup %u, %s byte %zu of a buffer of %zu that another %s uses without a barrier",
                running_name.c_str(), emulator_place.x, writes ? "writes" : "reads", address - holder->bytes,
                holder->size,
                (uses.writer ? uses.writer : uses.reader) >> 32 == running_dispatch ? "threadgroup"
                                                                                    : "dispatch");
            return;
        }
        if (writes)
            uses.writer = user;
        else if (!uses.reader || uses.reader == user)
            uses.reader = user;
        else
            uses.other_reader = user;
    }
}

/* ---- Pipelines ---- */

enum { MATH_SAFE = 0, MATH_RELAXED = 1, MATH_FAST = 2 };

struct compile_options : fake_object {
    compile_options() : fake_object("MTLCompileOptions") {}
    long math = MATH_FAST;
};

struct library : fake_object {
    library() : fake_object("FakeLibrary") {}
    bool is_fast = false;
};

struct constant_values : fake_object {
    constant_values() : fake_object("MTLFunctionConstantValues") {}
    unsigned values[METAL_CONSTANTS] = {};
};

struct function : fake_object {
    function() : fake_object("FakeFunction") {}
    const emulated_kernel *kernel = nullptr;
    unsigned constants[METAL_CONSTANTS] = {};
};

struct pipeline : fake_object {
    pipeline() : fake_object("FakePipeline") {}
    const emulated_kernel *kernel = nullptr;
    unsigned constants[METAL_CONSTANTS] = {};
};

/* ---- Commands ---- */

struct binding {
    buffer *from = nullptr;
    size_t offset = 0;
    std::vector<uint8_t> bytes; /* set by setBytes */
};

struct command {
    bool is_barrier = false;
    pipeline *state = nullptr;
    binding bindings[MOST_BINDINGS];
    metal_size_argument groups = {}, threads = {};
    size_t threadgroup_memory = 0;
};

struct event : fake_object {
    event() : fake_object("FakeEvent") {}
    unsigned long value = 0;
};

enum { NOT_ENQUEUED = 0, COMMITTED = 2, COMPLETED = 4, FAILED = 5 };

struct command_buffer : fake_object {
    command_buffer() : fake_object("FakeCommandBuffer") {}
    ~command_buffer() override
    {
        if (failure)
            ::release(failure);
    }
    std::vector<command> commands;
    unsigned long status = NOT_ENQUEUED;
    bool is_encoding = false, is_lost = false;
    event *signals = nullptr;
    unsigned long signal_value = 0;
    error *failure = nullptr;
    double seconds = 0;
};

struct encoder : fake_object {
    encoder() : fake_object("FakeEncoder") {}
    command_buffer *to = nullptr;
    bool has_ended = false;
    command next;
};

/* Keeps its buffers. */
struct residency_set : fake_object {
    residency_set() : fake_object("FakeResidencySet") {}
    ~residency_set() override
    {
        if (is_resident)
            control.resident -= buffers.size();
        for (buffer *each : buffers)
            ::release(each);
    }
    std::vector<buffer *> buffers;
    bool is_committed = true, is_resident = false;
};

struct queue : fake_object {
    queue() : fake_object("FakeQueue") {}
    std::vector<command_buffer *> waiting; /* committed, not run; each is referenced */
    residency_set *residency = nullptr;    /* lives as long as command buffers run */
};

queue *only_queue;

void *place_of(const binding &from)
{
    if (!from.bytes.empty())
        return (void *)from.bytes.data();
    if (!from.from)
        return nullptr;
    if (!is_live(from.from))
        fail_runtime("a command uses a buffer that is gone");
    return from.from->bytes + from.offset;
}

void run_dispatch(const command &each)
{
    kernel_call call = {};
    if (!is_live(each.state))
        fail_runtime("a command uses a pipeline that is gone");
    for (unsigned i = 0; i < MOST_BINDINGS; i++)
        call.bindings[i] = place_of(each.bindings[i]);
    call.groups[0] = (unsigned)each.groups.width;
    call.groups[1] = (unsigned)each.groups.height;
    call.groups[2] = (unsigned)each.groups.depth;
    set_function_constants(each.state->constants);
    set_matrix_order(next_random());
    running_dispatch++;
    running_name = each.state->kernel->name;
    const emulator_options options = {.blocks = call.groups[0] * call.groups[1] * call.groups[2],
        .threads = (unsigned)each.threads.width,
        .shared_bytes = each.threadgroup_memory,
        .seed = next_random(),
        .together = false};
    emulate(options, [&] { each.state->kernel->run(call); });
    control.dispatches++;
}

/* The dispatches between two barriers, in random order. */
void run_together(std::vector<const command *> &together)
{
    barrier_number++;
    running_dispatch = 0;
    race_was_found = false;
    for (size_t i = together.size(); i > 1; i--)
        std::swap(together[i - 1], together[next_random() % i]);
    for (const command *each : together)
        run_dispatch(*each);
    running_dispatch = 0;
    together.clear();
}

bool is_quick(const command &each)
{
    const bool quick = !each.is_barrier && strcmp(each.state->kernel->name, "matmul") == 0 &&
                       each.state->constants[METAL_CONSTANT_ROWS] == control.quick_rows &&
                       each.state->constants[METAL_CONSTANT_SIMDGROUPS] == control.quick_simdgroups;
    control.quick_dispatches += quick;
    return quick;
}

void run_command_buffer(command_buffer *commands)
{
    std::vector<const command *> together;
    if (only_queue->residency && !is_live(only_queue->residency))
        fail_runtime("the queue's residency set is gone");
    if (commands->is_lost) {
        commands->status = FAILED;
        commands->failure = new error(control.error_code, "the fake device failed");
        return;
    }
    for (const command &each : commands->commands) {
        if (each.is_barrier)
            run_together(together);
        else
            together.push_back(&each);
        commands->seconds += is_quick(each) ? 1e-7 : 1e-6;
    }
    run_together(together);
    commands->status = COMPLETED;
    if (commands->signals && is_live(commands->signals))
        commands->signals->value = commands->signal_value;
}

/* Runs the next command buffer; false: none waits. */
bool run_next()
{
    if (!only_queue || only_queue->waiting.empty())
        return false;
    command_buffer *first = only_queue->waiting.front();
    only_queue->waiting.erase(only_queue->waiting.begin());
    run_command_buffer(first);
    ::release(first);
    return true;
}

/* ---- Methods ---- */

typedef fake_selector SEL;

struct device_object : fake_object {
    device_object() : fake_object("FakeDevice") {}
};

device_object *only_device()
{
    static device_object *only = new device_object;
    return only;
}

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

fake_object *device_name(device_object *, SEL)
{
    return autoreleased(new string("Emulated Apple GPU"));
}
bool device_unified(device_object *, SEL)
{
    return true;
}
bool device_family(device_object *, SEL, long family)
{
    return family == 1007;
}
unsigned long device_largest(device_object *, SEL)
{
    return control.largest_buffer;
}
unsigned long device_memory(device_object *, SEL)
{
    return control.memory;
}

fake_object *device_new_queue(device_object *, SEL)
{
    if (creation_fails())
        return nullptr;
    only_queue = new queue;
    return only_queue;
}

fake_object *device_new_event(device_object *, SEL)
{
    return creation_fails() ? nullptr : new event;
}

fake_object *device_new_buffer(device_object *, SEL, unsigned long size, unsigned long options)
{
    if (creation_fails() || size > control.largest_buffer)
        return nullptr;
    if (size == 0)
        violate("a buffer of 0 bytes");
    if (options != 0)
        violate("buffers are shared with the host, not of options %lu", options);
    buffer *made = new buffer;
    if (posix_memalign((void **)&made->bytes, BUFFER_ALIGNMENT, size ? size : 1))
        fail_runtime("no memory");
    memset(made->bytes, 0xa5, size); /* nobody may rely on zeros */
    made->size = size;
    made->is_owned = true;
    buffer::all()[made->bytes] = made;
    buffers_version++;
    return made;
}

fake_object *device_new_no_copy(
    device_object *, SEL, void *bytes, unsigned long size, unsigned long, fake_object *deallocator)
{
    const unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);
    if (creation_fails() || size > control.largest_buffer)
        return nullptr;
    if ((uintptr_t)bytes % page || size % page || size == 0 || deallocator)
        violate("a buffer without a copy at %p, of %lu bytes: not whole pages", bytes, size);
    buffer *made = new buffer;
    made->bytes = (uint8_t *)bytes;
    made->size = size;
    buffer::all()[made->bytes] = made;
    buffers_version++;
    return made;
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
    library *made = new library;
    made->is_fast = options->math != MATH_SAFE;
    if (options->math == MATH_FAST)
        violate("kernels need infinities and NaN");
    if (made->is_fast != (source->text.find("#define METAL_FAST_MATH\n") == 0))
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
    return MOST_THREADS;
}
unsigned long pipeline_width(pipeline *, SEL)
{
    return 32;
}
void *buffer_contents(buffer *self, SEL)
{
    return self->bytes;
}

fake_object *queue_command_buffer(queue *, SEL)
{
    return creation_fails() ? nullptr : autoreleased(new command_buffer);
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

void commit(command_buffer *self, SEL)
{
    if (self->is_encoding || self->status != NOT_ENQUEUED)
        violate("a command buffer is committed twice, or before its encoder has ended");
    self->status = COMMITTED;
    self->is_lost = ++control.commits == control.lose_commit;
    self->references++;
    only_queue->waiting.push_back(self);
}

void wait_until_completed(command_buffer *self, SEL)
{
    while (self->status < COMPLETED && run_next()) {
    }
}

unsigned long buffer_status(command_buffer *self, SEL)
{
    return self->status;
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

bool event_wait(event *self, SEL, unsigned long value, unsigned long)
{
    while (self->value < value && run_next()) {
    }
    return self->value >= value;
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
    add("FakeDevice", "newCommandQueue", device_new_queue);
    add("FakeDevice", "newSharedEvent", device_new_event);
    add("FakeDevice", "newBufferWithLength:options:", device_new_buffer);
    add("FakeDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", device_new_no_copy);
    add("FakeDevice", "newLibraryWithSource:options:error:", device_new_library);
    add("FakeDevice", "newComputePipelineStateWithFunction:error:", device_new_pipeline);
    add("MTLCompileOptions", "new", new_compile_options, true);
    add("MTLCompileOptions", "setFastMathEnabled:", options_fast_math);
    add("MTLCompileOptions", "setMathMode:", options_math_mode);
    add("MTLResidencySetDescriptor", "new", new_residency_descriptor, true);
    add("FakeDevice", "newResidencySetWithDescriptor:error:", device_new_residency_set);
    add("FakeResidencySet", "addAllocation:", add_allocation);
    add("FakeResidencySet", "commit", commit_residency);
    add("FakeResidencySet", "requestResidency", request_residency);
    add("FakeQueue", "addResidencySet:", add_residency_set);
    add("MTLFunctionConstantValues", "new", new_constant_values, true);
    add("MTLFunctionConstantValues", "setConstantValue:type:atIndex:", set_constant);
    add("FakeLibrary", "newFunctionWithName:constantValues:error:", library_new_function);
    add("FakePipeline", "maxTotalThreadsPerThreadgroup", pipeline_threads);
    add("FakePipeline", "threadExecutionWidth", pipeline_width);
    add("FakeBuffer", "contents", buffer_contents);
    add("FakeQueue", "commandBufferWithUnretainedReferences", queue_command_buffer);
    add("FakeCommandBuffer", "computeCommandEncoderWithDispatchType:", new_encoder);
    add("FakeCommandBuffer", "encodeSignalEvent:value:", encode_signal);
    add("FakeCommandBuffer", "commit", commit);
    add("FakeCommandBuffer", "waitUntilCompleted", wait_until_completed);
    add("FakeCommandBuffer", "status", buffer_status);
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
    add("FakeEvent", "waitUntilSignaledValue:timeoutMS:", event_wait);
}

} // namespace

const char *hidden_method()
{
    return control.hidden_method;
}

const char *changed_method()
{
    return control.changed_method;
}

/* ---- What the library exports, beside the runtime ---- */

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

#define COUNTED(bytes)                                \
    void __sanitizer_cov_load##bytes(const void *at)  \
    {                                                 \
        note_access(at, bytes, false);                \
    }                                                 \
    void __sanitizer_cov_store##bytes(const void *at) \
    {                                                 \
        note_access(at, bytes, true);                 \
    }
COUNTED(1)
COUNTED(2)
COUNTED(4)
COUNTED(8)
COUNTED(16)
}
