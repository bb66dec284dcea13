/*
 * Execution. A command buffer runs when the host waits for it, not when it is committed, so that the host
 * cannot rely on work that is not done; a wait without time runs a part of it. Dispatches between two
 * barriers run in random order, and their accesses must not conflict.
 */
#include "emulator/fibers.h"
#include "metal/fake/fake_objects.h"

#include <algorithm>
#include <climits>
#include <tuple>

std::set<queue *> &queue::all()
{
    static std::set<queue *> queues;
    return queues;
}

queue::queue() : fake_object("FakeQueue")
{
    all().insert(this);
}

queue::~queue()
{
    all().erase(this);
    if (!waiting.empty())
        violate("a queue is released while %zu of its command buffers run", waiting.size());
}

namespace
{
std::set<std::string> have_run;                                     /* names of kernels */
std::set<std::tuple<std::string, unsigned, unsigned>> variants_run; /* kernel, function constant, its value */
queue *interrupted; /* whose first command buffer has begun, while the host runs */

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

int has_run(const char *kernel, unsigned constant, unsigned value)
{
    return (int)variants_run.count({kernel, constant, value});
}

void note_run(const pipeline &state)
{
    if (have_run.insert(state.kernel->name).second)
        control.idle_kernel = find_idle_kernel(have_run);
    for (unsigned i = 0; i < METAL_CONSTANTS; i++)
        variants_run.emplace(state.kernel->name, i, state.constants[i]);
}

void run_dispatch(const command &each)
{
    kernel_call call = {};
    if (!is_live(each.state))
        fail_runtime("a command uses a pipeline that is gone");
    for (unsigned i = 0; i < MOST_BINDINGS; i++) {
        call.bindings[i] = place_of(each.bindings[i]);
        if (each.bindings[i].from && (each.state->kernel->host_bindings >> i & 1))
            each.bindings[i].from->is_coherent = true;
    }
    call.groups[0] = (unsigned)each.groups.width;
    call.groups[1] = (unsigned)each.groups.height;
    call.groups[2] = (unsigned)each.groups.depth;
    set_function_constants(each.state->constants);
    set_matrix_order(next_random());
    set_system_scope(each.state->has_system_scope);
    begin_race_dispatch(each.state->kernel->name);
    const emulator_options options = {.blocks = call.groups[0] * call.groups[1] * call.groups[2],
        .threads = (unsigned)each.threads.width,
        .shared_bytes = each.threadgroup_memory,
        .seed = next_random(),
        .together = false};
    emulate(options, [&] {
        begin_race_thread();
        each.state->kernel->run(call);
    });
    end_race_dispatch();
    control.dispatches++;
    note_run(*each.state);
}

/* The dispatches between two barriers, in random order. */
void run_together(std::vector<const command *> &together)
{
    begin_races();
    for (size_t i = together.size(); i > 1; i--)
        std::swap(together[i - 1], together[next_random() % i]);
    for (const command *each : together)
        run_dispatch(*each);
}

/* How many times as fast as others a command is. */
unsigned speed_of(const command &each)
{
    if (each.is_barrier || strcmp(each.state->kernel->name, "matmul") != 0 ||
        each.state->constants[METAL_CONSTANT_ROWS] != control.quick_rows ||
        each.state->constants[METAL_CONSTANT_SIMDGROUPS] != control.quick_simdgroups)
        return 1;
    if (each.state->constants[METAL_CONSTANT_SUMS] != control.quick_sums)
        return 5;
    control.quick_dispatches++;
    return 10;
}

unsigned long rows_of(const command &each)
{
    if (each.is_barrier || strcmp(each.state->kernel->name, "matmul") != 0)
        return 0;
    const unsigned *constants = each.state->constants;
    return each.groups.width * each.threads.width / constants[METAL_CONSTANT_LANES] *
           constants[METAL_CONSTANT_ROWS];
}

/* Runs the commands up to the next barrier, or to the end. */
void run_to_barrier(command_buffer *commands)
{
    std::vector<const command *> together;
    for (; commands->next < commands->commands.size(); commands->next++) {
        const command &each = commands->commands[commands->next];
        commands->seconds += 1e-9 * (double)control.dispatch_ns / speed_of(each);
        commands->seconds += 1e-9 * (double)(control.row_ns * rows_of(each));
        if (!each.is_barrier)
            together.push_back(&each);
        else if (!together.empty())
            break;
    }
    run_together(together);
}

unsigned long event_waits;

void complete(command_buffer *commands)
{
    commands->known_from = event_waits + 1;
    if (commands->is_lost) {
        commands->status = FAILED;
        commands->failure = new error(control.error_code, "the fake device failed");
        return;
    }
    commands->status = COMPLETED;
    control.longest_ns = std::max(control.longest_ns, (unsigned long)(1e9 * commands->seconds));
    if (commands->signals && is_live(commands->signals))
        commands->signals->value = commands->signal_value;
}

/* Runs the first command buffer up to a number of barriers; false: it has not ended. */
bool run_part(command_buffer *commands, unsigned long parts)
{
    queue *from = commands->from;
    if (from->residency && !is_live(from->residency))
        fail_runtime("the queue's residency set is gone");
    if (interrupted)
        visibility_to_device();
    else if (parts != ULONG_MAX)
        visibility_begin();
    const bool begins = !interrupted;
    interrupted = nullptr;
    for (; !commands->is_lost && commands->next < commands->commands.size(); parts--) {
        if (parts == 0) {
            visibility_to_host();
            interrupted = from;
            control.interruptions++;
            return false;
        }
        run_to_barrier(commands);
    }
    if (!begins || parts != ULONG_MAX)
        visibility_end();
    complete(commands);
    return true;
}

/* Runs the next command buffer of a queue, behind one of another queue that has begun; false: none waits, or
 * it has not ended. */
bool run_next(queue *from, unsigned long parts)
{
    if (interrupted && interrupted != from)
        run_next(interrupted, ULONG_MAX);
    if (!from || from->waiting.empty())
        return false;
    command_buffer *first = from->waiting.front();
    if (!run_part(first, parts))
        return false;
    from->waiting.erase(from->waiting.begin());
    ::release(first);
    return true;
}

/* ---- Methods ---- */

fake_object *device_new_queue(device_object *, SEL)
{
    return creation_fails() ? nullptr : new queue;
}

fake_object *device_new_event(device_object *, SEL)
{
    return creation_fails() ? nullptr : new event;
}

void wait_until_completed(command_buffer *self, SEL)
{
    while (self->status < COMPLETED && run_next(self->from, ULONG_MAX)) {
    }
    self->known_from = 0;
}

/* The host sees how a command buffer ended a moment after what it has signalled. */
unsigned long buffer_status(command_buffer *self, SEL)
{
    return self->known_from <= event_waits ? self->status : (unsigned long)COMMITTED;
}

/* The queue with a command buffer that signals the event; nullptr: there is none. */
queue *queue_of(const event *signalled)
{
    for (queue *each : queue::all()) {
        for (const command_buffer *waiting : each->waiting) {
            if (waiting->signals == signalled)
                return each;
        }
    }
    return nullptr;
}

bool event_wait(event *self, SEL, unsigned long value, unsigned long milliseconds)
{
    event_waits++;
    const unsigned long parts = milliseconds ? ULONG_MAX : 1 + next_random() % control.most_parts;
    while (self->value < value && run_next(queue_of(self), parts)) {
    }
    return self->value >= value;
}

__attribute__((constructor)) void add_methods()
{
    control.has_run = has_run;
    add("FakeDevice", "newCommandQueue", device_new_queue);
    add("FakeDevice", "newSharedEvent", device_new_event);
    add("FakeCommandBuffer", "waitUntilCompleted", wait_until_completed);
    add("FakeCommandBuffer", "status", buffer_status);
    add("FakeEvent", "waitUntilSignaledValue:timeoutMS:", event_wait);
}
} // namespace
