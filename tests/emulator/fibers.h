/*
 * Fibers that run device code on the host: every thread of a block is a fiber that runs until it has to wait
 * for others, at a barrier or in an exchange of 32 neighbouring threads. cuda/emulator.h and metal/msl.h give
 * it the names of CUDA and of Metal.
 *
 *     emulate({.blocks = 3, .threads = 64, .shared_bytes = 1024}, [&] { kernel(arguments); });
 *
 * Blocks run one after the other, or all at once (`together`) where they wait for each other: loops that wait
 * must call yield. `seed` varies the order of threads and blocks, which finds barriers that are missing:
 * results must not depend on it. Memory is that of one thread, so that fences do nothing and weak orders are
 * not found. Dynamic shared memory is emulator_shared(). A barrier that cannot complete ends the program with
 * a message.
 *
 * A clock goes on by emulator_round_ns, 0 unless a test sets it, with each round of the scheduler. It runs
 * while a block stalls: from round `stall_round` on block `stalled` is not run until no other block has
 * anything left to do.
 */
#ifndef TESTS_EMULATOR_FIBERS_H
#define TESTS_EMULATOR_FIBERS_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <vector>

struct emulator_index {
    unsigned x = 0, y = 0, z = 0;
};

inline emulator_index emulator_thread, emulator_place, emulator_block_size, emulator_grid_size;
inline uint64_t emulator_time = 1, emulator_round_ns;
inline unsigned emulator_launches;

/* ---- Fibers ---- */

struct emulator_options {
    unsigned blocks, threads;
    size_t shared_bytes;
    unsigned seed;
    bool together;
    unsigned stall_round = 0, stalled = 0; /* rounds count from 1; 0: no block stalls */
};

/*
 * Stores the registers that a function keeps below the stack pointer, the stack pointer in `*out_from`, and
 * goes on where `to` was stored. longjmp would do, but AddressSanitizer makes a system call of each.
 */
extern "C" void emulator_switch(void **out_from, void *to);
#if defined(__aarch64__)
enum { EMULATOR_SAVED_WORDS = 20, EMULATOR_SAVED_RETURN = 1 };
asm(R"(
    .pushsection .text
    .weak emulator_switch
    .type emulator_switch, %function
emulator_switch:
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret
    .size emulator_switch, .-emulator_switch
    .popsection
)");
#elif defined(__x86_64__)
enum { EMULATOR_SAVED_WORDS = 8, EMULATOR_SAVED_RETURN = 6 }; /* one more: functions align their stack so */
asm(R"(
    .pushsection .text
    .weak emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, .-emulator_switch
    .popsection
)");
#else
#error "fibers need a switch between stacks for this CPU"
#endif

/* A barrier of some threads: early threads wait until the generation changes. */
struct emulator_meeting {
    uint32_t mask = 0; /* of lanes */
    unsigned arrived = 0, generation = 0;
    uint64_t values[2][32];
};

struct emulator_fiber {
    void *at = nullptr; /* its stack pointer while another runs */
    unsigned thread = 0, block = 0;
    bool started = false;
};

/* Why a fiber cannot run. The scheduler looks at all of them in each round: they lie close together. */
struct emulator_wait {
    const emulator_meeting *awaited = nullptr;
    unsigned generation = 0;
    bool ended = false;
};

struct emulator_block {
    emulator_meeting barriers[16];
    std::vector<std::vector<emulator_meeting>> warps; /* a meeting for each mask that was used */
    std::vector<uint8_t> shared;
    unsigned live = 0;
};

class emulator_machine
{
  public:
    emulator_machine(const emulator_options &given_options, std::function<void()> given_kernel)
        : options(given_options), kernel(std::move(given_kernel)), random(options.seed * 2654435761u + 1)
    {
    }

    unsigned rounds() const { return round; }

    void run()
    {
        emulator_machine *outer = current();
        current() = this;
        emulator_launches++;
        emulator_block_size = {options.threads, 1, 1};
        emulator_grid_size = {options.blocks, 1, 1};
        blocks.resize(options.blocks);
        unsigned at_once = options.together ? options.blocks : 1;
        fibers.resize(static_cast<size_t>(at_once) * options.threads);
        waits.resize(fibers.size());
        take_stacks();
        unsigned first_block = next_random() % options.blocks;
        for (unsigned i = 0; i < options.blocks; i += at_once) {
            for (unsigned j = 0; j < at_once; j++)
                start_block((first_block + i + j) % options.blocks, j);
            run_fibers();
        }
        give_stacks_back();
        current() = outer;
    }

    static emulator_machine *&current()
    {
        static emulator_machine *machine;
        return machine;
    }

    /* Whether the running thread is the last to come, for which the others wait. */
    bool meet(emulator_meeting &meeting, unsigned count)
    {
        if (++meeting.arrived >= count) {
            meeting.arrived = 0;
            meeting.generation++;
            return true;
        }
        waits[number_of(running)] = {&meeting, meeting.generation, false};
        yield();
        return false;
    }

    bool meet_block(unsigned barrier, unsigned count)
    {
        return meet(blocks[running->block].barriers[barrier], count);
    }

    /* The same, and whether any says so. */
    bool meet_block_any(unsigned barrier, unsigned count, bool says)
    {
        emulator_meeting &meeting = blocks[running->block].barriers[barrier];
        uint64_t &any = meeting.values[meeting.generation % 2][0];
        any = (meeting.arrived ? any : 0) | says;
        meet(meeting, count);
        return any;
    }

    /* All threads of `size` neighbouring blocks, which must run together. */
    void meet_cluster(unsigned size)
    {
        if (!options.together)
            fail("a cluster whose blocks run one after the other");
        clusters.resize(options.blocks); /* once: no thread waits yet */
        meet(clusters[running->block / size], size * options.threads);
    }

    uint8_t *shared_of(unsigned block) { return blocks[block].shared.data(); }

    unsigned live_threads() const { return blocks[running->block].live; }

    emulator_meeting &warp_meeting(uint32_t mask)
    {
        std::vector<emulator_meeting> &warp = blocks[running->block].warps[running->thread / 32];
        for (emulator_meeting &meeting : warp) {
            if (meeting.mask == mask)
                return meeting;
        }
        if (warp.size() == warp.capacity())
            fail("a warp meets in more ways than there is room for");
        warp.emplace_back();
        warp.back().mask = mask;
        return warp.back();
    }

    /* The values of the lanes of `mask`, valid until the next but one exchange. `work` runs with them, once
     * for all lanes, when the last has come. */
    template <class Work> const uint64_t *do_together(uint32_t mask, uint64_t value, Work work)
    {
        const unsigned lane = running->thread % 32, count = static_cast<unsigned>(__builtin_popcount(mask));
        if (!(mask >> lane & 1))
            fail("a lane is not in its own mask");
        emulator_meeting &meeting = warp_meeting(mask);
        uint64_t *values = meeting.values[meeting.generation % 2];
        values[lane] = value;
        if (meeting.arrived + 1 == count)
            work(static_cast<const uint64_t *>(values));
        meet(meeting, count);
        return values;
    }

    const uint64_t *exchange(uint32_t mask, uint64_t value)
    {
        return do_together(mask, value, [](const uint64_t *) {});
    }

    /* The next fiber of the round goes on; after the last, the scheduler. */
    void yield()
    {
        emulator_fiber *own = running, *next = next_fiber();
        if (next)
            make_running(*next);
        emulator_switch(&own->at, next ? next->at : scheduler);
    }

    uint8_t *shared() { return blocks[running->block].shared.data(); }

    size_t shared_bytes() const { return options.shared_bytes; }

  private:
    /* The tops of stacks are at different places of the processor's caches. */
    enum { STACK = 64 * 1024 + 17 * 64, MEETINGS = 8, STALLED_ROUND_NS = 2000000 };

    [[noreturn]] static void fail(const char *why)
    {
        fprintf(stderr, "emulator: %s (block %u, thread %u)\n", why, emulator_place.x, emulator_thread.x);
        abort();
    }

    /* Stacks of the last machine, for the next one: the system would clear new pages. */
    struct kept_stacks {
        uint8_t *first = nullptr;
        size_t bytes = 0;
    };

    static kept_stacks &kept()
    {
        static kept_stacks stacks;
        return stacks;
    }

    void take_stacks()
    {
        taken = kept();
        kept() = {};
        const size_t needed = fibers.size() * STACK;
        if (taken.bytes < needed) {
            if (taken.bytes)
                munmap(taken.first, taken.bytes);
            void *memory = mmap(
                nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED)
                fail("no memory for stacks");
            taken = {static_cast<uint8_t *>(memory), needed};
        }
        stacks = taken.first;
    }

    void give_stacks_back()
    {
        if (kept().bytes) /* of a machine within this one */
            munmap(kept().first, kept().bytes);
        kept() = taken;
    }

    unsigned next_random()
    {
        random = random * 1664525u + 1013904223u;
        return random >> 8;
    }

    void start_block(unsigned number, unsigned place)
    {
        emulator_block &block = blocks[number];
        block.live = options.threads;
        block.shared.assign(options.shared_bytes, 0xa5);
        block.warps.resize((options.threads + 31) / 32);
        for (std::vector<emulator_meeting> &warp : block.warps)
            warp.reserve(MEETINGS); /* they are pointed at */
        for (unsigned i = 0; i < options.threads; i++) {
            emulator_fiber &fiber = fibers[static_cast<size_t>(place) * options.threads + i];
            fiber.thread = i;
            fiber.block = number;
            fiber.started = false;
            waits[number_of(&fiber)] = {};
        }
    }

    /* Never returns: the next block begins with a new stack. */
    static void enter()
    {
        emulator_machine *machine = current();
        machine->kernel();
        machine->waits[machine->number_of(machine->running)].ended = true;
        emulator_block &block = machine->blocks[machine->running->block];
        block.live--;
        emulator_meeting &all = block.barriers[0]; /* who has left does not hold up the others */
        if (block.live && all.arrived >= block.live) {
            all.arrived = 0;
            all.generation++;
        }
        machine->yield();
    }

    size_t number_of(const emulator_fiber *fiber) const { return static_cast<size_t>(fiber - fibers.data()); }

    /* Before a switch to it. */
    void make_running(emulator_fiber &fiber)
    {
        running = &fiber;
        emulator_thread.x = fiber.thread;
        emulator_place.x = fiber.block;
        waits[number_of(&fiber)].awaited = nullptr;
        if (!fiber.started)
            fiber.at = new_stack(number_of(&fiber));
        fiber.started = true;
    }

    /* The stack of a fiber, from which a switch goes to `enter`. */
    void *new_stack(size_t fiber)
    {
        void **words = reinterpret_cast<void **>(stacks + (fiber + 1) * STACK) - EMULATOR_SAVED_WORDS;
        std::memset(words, 0, EMULATOR_SAVED_WORDS * sizeof *words);
        words[EMULATOR_SAVED_RETURN] = reinterpret_cast<void *>(enter);
        return words;
    }

    bool can_run(size_t number) const
    {
        const emulator_wait &wait = waits[number];
        return !wait.ended && (!wait.awaited || wait.awaited->generation != wait.generation) &&
               !(stalls && fibers[number].block == options.stalled);
    }

    /* The next one of this round that can run, or nullptr. */
    emulator_fiber *next_fiber()
    {
        const size_t count = fibers.size();
        while (looked < count) {
            const size_t place = first + (backwards ? count - looked : looked);
            const size_t number = place < count ? place : place - count;
            looked++;
            if (can_run(number))
                return &fibers[number];
        }
        return nullptr;
    }

    /* One round of all fibers that can run, except the fibers of a stalled block; returns whether one ran. */
    bool run_round()
    {
        backwards = next_random() % 2;
        first = next_random() % fibers.size();
        looked = 0;
        emulator_fiber *next = next_fiber();
        if (!next)
            return false;
        make_running(*next);
        emulator_switch(&scheduler, next->at);
        return true;
    }

    void run_fibers()
    {
        for (bool stalled = false, any = true; any;) {
            round++;
            stalls = options.stall_round && round >= options.stall_round && !stalled;
            emulator_time += stalls ? uint64_t(STALLED_ROUND_NS) : emulator_round_ns;
            any = run_round();
            if (stalls && !any)
                stalled = any = true;
        }
        for (const emulator_fiber &fiber : fibers) {
            if (!waits[number_of(&fiber)].ended) {
                emulator_thread.x = fiber.thread;
                emulator_place.x = fiber.block;
                fail("threads wait for others that do not come");
            }
        }
    }

    emulator_options options;
    std::function<void()> kernel;
    unsigned random, round = 0;
    std::vector<emulator_block> blocks;
    std::vector<emulator_meeting> clusters;
    std::vector<emulator_fiber> fibers;
    std::vector<emulator_wait> waits; /* of each fiber */
    /* The round: how many fibers were looked at, from which one on, in which direction. */
    size_t looked = 0, first = 0;
    bool backwards = false, stalls = false;
    emulator_fiber *running = nullptr;
    kept_stacks taken;
    uint8_t *stacks = nullptr;
    void *scheduler = nullptr; /* its stack pointer while a fiber runs */
};

/* The number of rounds of the scheduler. */
inline unsigned emulate(const emulator_options &options, std::function<void()> kernel)
{
    emulator_machine machine(options, std::move(kernel));
    machine.run();
    return machine.rounds();
}

inline uint64_t emulator_time_ns()
{
    return emulator_time;
}

inline uint8_t *emulator_shared()
{
    return emulator_machine::current()->shared();
}

/* ---- Barriers and exchanges ---- */

inline bool emulator_bar_sync(unsigned barrier, unsigned threads)
{
    return emulator_machine::current()->meet_block(barrier, threads);
}

template <class Value> inline const uint64_t *emulator_exchange(uint32_t mask, Value value)
{
    uint64_t bits = 0;
    static_assert(sizeof value <= sizeof bits, "at most 8 bytes at once");
    memcpy(&bits, &value, sizeof value);
    return emulator_machine::current()->exchange(mask, bits);
}

template <class Value> inline Value emulator_value(const uint64_t *values, unsigned lane)
{
    Value value;
    memcpy(&value, &values[lane], sizeof value);
    return value;
}

template <class Value, class Join> inline Value emulator_reduce(uint32_t mask, Value value, Join join)
{
    const uint64_t *values = emulator_exchange(mask, value);
    bool first = true;
    Value result = value;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1))
            continue;
        Value other = emulator_value<Value>(values, lane);
        result = first ? other : join(result, other);
        first = false;
    }
    return result;
}

#endif
