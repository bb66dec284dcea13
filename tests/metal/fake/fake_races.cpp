/* Compares the accesses of dispatches that no barrier separates, and of the threadgroups of one dispatch. The
 * compiler calls the functions at the end of this file at each access of a kernel. */
#include "emulator/fibers.h"
#include "metal/fake/fake_objects.h"

namespace
{
enum { CACHED_PAGES = 4096 };

struct cached_page {
    uintptr_t page;
    uint64_t version;
    buffer *holder;
};
cached_page page_cache[CACHED_PAGES];

uint64_t dispatch_number; /* from 1 on since the last barrier */
uint64_t barrier_number = 1;
bool is_running, race_was_found;
std::string running_name;

/* The buffer that has this byte; nullptr: none has. Buffers begin at pages of their own, so that a page of
 * the cache has one buffer at most. */
buffer *buffer_at(const uint8_t *address)
{
    const uintptr_t page = (uintptr_t)address / BUFFER_ALIGNMENT;
    cached_page &known = page_cache[page % CACHED_PAGES];
    if (known.page != page || known.version != buffer::version) {
        auto found = buffer::all().upper_bound((const uint8_t *)((page + 1) * BUFFER_ALIGNMENT - 1));
        known = {page, buffer::version, found == buffer::all().begin() ? nullptr : (--found)->second};
    }
    buffer *holder = known.holder;
    return holder && address >= holder->bytes && address < holder->bytes + holder->size ? holder : nullptr;
}

void note_access(const void *at, size_t bytes, bool writes)
{
    if (!is_running || !control.records_races || race_was_found)
        return;
    const uint8_t *address = (const uint8_t *)at;
    buffer *holder = buffer_at(address);
    if (!holder || !holder->is_owned)
        return;
    if (holder->words.empty())
        holder->words.resize(holder->size / 4 + 1);
    const uint64_t user = dispatch_number << 32 | (emulator_place.x + 1);
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
                (uses.writer ? uses.writer : uses.reader) >> 32 == dispatch_number ? "threadgroup"
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
} // namespace

void begin_races()
{
    barrier_number++;
    dispatch_number = 0;
    race_was_found = false;
}

void begin_race_dispatch(const char *name)
{
    dispatch_number++;
    running_name = name;
    is_running = true;
}

void end_race_dispatch()
{
    is_running = false;
}

extern "C" {

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
