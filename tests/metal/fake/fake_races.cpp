/*
 * Compares the accesses of dispatches that no barrier separates, of the threadgroups of one dispatch, and of
 * the threads of a threadgroup between two of its barriers, in buffers and in threadgroup memory. Exchanges
 * within a simdgroup order no memory. The compiler calls the functions at the end of this file at each access
 * of a kernel.
 */
#include "emulator/fibers.h"
#include "metal/fake/fake_objects.h"

#include <algorithm>

namespace
{
enum { CACHED_PAGES = 4096, IGNORED_PAGES = 4096 };

struct cached_page {
    uintptr_t page;
    uint64_t version;
    buffer *holder;
};
cached_page page_cache[CACHED_PAGES];

/* Pages of memory that is not compared: weights in the mapped file, constants, locals. Most accesses are to
 * these. */
uintptr_t ignored_pages[IGNORED_PAGES];
uint64_t ignored_version; /* of the buffers */

uint64_t dispatch_number; /* from 1 on since the last barrier */
uint64_t barrier_number = 1;
bool is_compared; /* the running dispatch */
bool race_was_found;

/* State of the running threadgroup. A barrier orders one of the two memories; intervals are never used again.
 */
uint32_t device_interval, threadgroup_interval;
unsigned running_group; /* from 1 on; 0: none has begun */
uint8_t *threadgroup_bytes;
size_t threadgroup_size;
std::vector<word_uses> threadgroup_words;
std::string running_name;

uintptr_t page_of(const void *address)
{
    return (uintptr_t)address / BUFFER_ALIGNMENT;
}

/* The buffer that begins before the end of a page and nearest to it; nullptr: none does. Buffers begin at
 * pages of their own, so that a page of the cache has one buffer at most. */
buffer *buffer_of(uintptr_t page)
{
    cached_page &known = page_cache[page % CACHED_PAGES];
    if (known.page != page || known.version != buffer::version) {
        auto found = buffer::all().upper_bound((const uint8_t *)((page + 1) * BUFFER_ALIGNMENT - 1));
        known = {page, buffer::version, found == buffer::all().begin() ? nullptr : (--found)->second};
    }
    return known.holder;
}

bool is_same_thread(const word_use &a, const word_use &b)
{
    return a.group == b.group && a.thread == b.thread;
}

/* Replaces an earlier access; a thread keeps the bytes that it has accessed in this interval. */
void replace(word_use &known, const word_use &user)
{
    const uint16_t before = is_same_thread(known, user) && known.interval == user.interval ? known.bytes : 0;
    known = user;
    known.bytes |= before;
}

bool overlap(const word_use &a, const word_use &b)
{
    if (a.group == 0)
        return false;
    return a.group != b.group || (a.thread != b.thread && a.interval == b.interval && (a.bytes & b.bytes));
}

/* Keeps readers of two threadgroups, or else of two threads of an interval: one of them differs from any
 * writer. */
void add_reader(word_uses &uses, const word_use &user)
{
    const auto is_replaced = [&](const word_use &known) {
        return known.group == 0 || is_same_thread(known, user) ||
               (known.group == user.group && known.interval != user.interval);
    };
    if (is_replaced(uses.reader))
        replace(uses.reader, user);
    else if (is_replaced(uses.other_reader) || uses.other_reader.group == uses.reader.group)
        replace(uses.other_reader, user);
}

/* Adds an access of a word; who has used it before in a way that conflicts, or nullptr. */
const word_use *add_use(word_uses &uses, const word_use &user, bool writes)
{
    if (overlap(uses.writer, user))
        return &uses.writer;
    if (writes && overlap(uses.reader, user))
        return &uses.reader;
    if (writes && overlap(uses.other_reader, user))
        return &uses.other_reader;
    if (writes)
        replace(uses.writer, user);
    else
        add_reader(uses, user);
    return nullptr;
}

/* Accesses `bytes` bytes from byte `first` on of some memory. */
void note_words(std::vector<word_uses> &words, size_t first, size_t bytes, uint32_t interval, bool writes)
{
    for (size_t at = first; at < first + bytes && at / 4 < words.size();) {
        const size_t word = at / 4, end = std::min(first + bytes, 4 * word + 4);
        const word_use user = {dispatch_number << 32 | running_group, interval, (uint16_t)emulator_thread.x,
            (uint16_t)((1u << (end - 4 * word)) - (1u << at % 4))};
        word_uses &uses = words[word];
        if (uses.barrier != barrier_number)
            uses = {{}, {}, {}, barrier_number};
        const word_use *other = add_use(uses, user, writes);
        if (other) {
            race_was_found = true;
            is_compared = false;
            violate("%s, threadgroup %u, thread %u, %s byte %zu of %zu of %s that another %s uses without a "
                    "barrier",
                running_name.c_str(), running_group - 1, emulator_thread.x, writes ? "writes" : "reads", at,
                4 * words.size(), &words == &threadgroup_words ? "threadgroup memory" : "a buffer",
                other->group == user.group               ? "thread"
                : other->group >> 32 == user.group >> 32 ? "threadgroup"
                                                         : "dispatch");
            return;
        }
        at = end;
    }
}

__attribute__((noinline)) void note_buffer_access(const uint8_t *address, size_t bytes, bool writes)
{
    const uintptr_t page = page_of(address);
    buffer *holder = buffer_of(page);
    if (!holder || !holder->is_owned || page > page_of(holder->bytes + holder->size)) {
        ignored_pages[page % IGNORED_PAGES] = page;
        return;
    }
    if (address < holder->bytes || address >= holder->bytes + holder->size)
        return;
    if (holder->words.empty())
        holder->words.resize(holder->size / 4 + 1);
    note_words(holder->words, (size_t)(address - holder->bytes), bytes, device_interval, writes);
}

__attribute__((always_inline)) inline void note_access(const void *at, size_t bytes, bool writes)
{
    if (!is_compared)
        return;
    const uint8_t *address = (const uint8_t *)at;
    const uintptr_t page = page_of(address);
    if ((size_t)(address - threadgroup_bytes) < threadgroup_size)
        note_words(
            threadgroup_words, (size_t)(address - threadgroup_bytes), bytes, threadgroup_interval, writes);
    else if (ignored_pages[page % IGNORED_PAGES] != page)
        note_buffer_access(address, bytes, writes);
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
    running_group = 0;
    is_compared = control.records_races && !race_was_found;
    if (ignored_version != buffer::version)
        memset(ignored_pages, 0, sizeof ignored_pages);
    ignored_version = buffer::version;
}

/* Threadgroups run one after the other. */
void begin_race_thread()
{
    if (running_group == emulator_place.x + 1)
        return;
    running_group = emulator_place.x + 1;
    threadgroup_bytes = emulator_shared();
    threadgroup_size = emulator_machine::current()->shared_bytes();
    threadgroup_words.assign(threadgroup_size / 4, {});
    pass_barrier(true, true);
}

void end_race_dispatch()
{
    is_compared = false;
}

void pass_barrier(bool orders_device, bool orders_threadgroup)
{
    device_interval += orders_device;
    threadgroup_interval += orders_threadgroup;
}

void note_element(const float *at, bool writes)
{
    note_access(at, sizeof *at, writes);
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
