/*
 * The objects of the Metal without a GPU, and the functions that its files share. fake_foundation.cpp has
 * strings, arrays and errors, fake_memory.cpp buffers and residency, fake_pipelines.cpp libraries and
 * pipelines, fake_commands.cpp command buffers and encoders, fake_execution.cpp their execution,
 * fake_races.cpp the comparison of accesses, fake_visibility.cpp what the host sees before a command buffer
 * ends. SALVO_METAL_LIBRARY makes salvo open it; tests choose failures through fake_metal.h.
 */
#ifndef TESTS_METAL_FAKE_OBJECTS_H
#define TESTS_METAL_FAKE_OBJECTS_H

#include "metal/fake/emulated_kernels.h"
#include "metal/fake/fake_objc.h"
#include "metal/fake_metal.h"

#include <cstdint>
#include <cstring>
#include <vector>

typedef fake_selector SEL;

/* ---- Foundation ---- */

extern fake_metal control;

void violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool creation_fails();
unsigned next_random();

struct string : fake_object {
    explicit string(std::string given) : fake_object("NSString"), text(std::move(given)) {}
    std::string text;
};

struct error : fake_object {
    error(unsigned long given_code, std::string given)
        : fake_object("NSError"), code(given_code), text(std::move(given))
    {
    }
    unsigned long code;
    std::string text;
};

void set_error(fake_object **out, unsigned long code, const std::string &text);

struct device_object : fake_object {
    device_object() : fake_object("FakeDevice") {}
};

/* ---- Memory ---- */

enum { BUFFER_ALIGNMENT = 16384 };

/* An access of a word. */
struct word_use {
    uint64_t group;    /* dispatch and threadgroup, from 1 on; 0: none */
    uint32_t interval; /* between two barriers of the threadgroup */
    uint16_t thread;
    uint16_t bytes; /* a bit for each of the four */
};

/* Who has read or written a word since the last barrier between dispatches. */
struct word_uses {
    word_use writer, reader, other_reader;
    uint64_t barrier;
};

/* The contents of a buffer while a command buffer that has begun is interrupted. */
struct views {
    std::vector<uint8_t> host, device;
    std::vector<uint8_t> published; /* of a coherent buffer: at the last fence of the whole system */
};

struct buffer : fake_object {
    buffer() : fake_object("FakeBuffer") {}
    ~buffer() override;
    static std::map<const uint8_t *, buffer *> &all();
    static uint64_t version; /* changes with the list of all */
    uint8_t *bytes = nullptr;
    size_t size = 0;
    bool is_owned = false;
    bool is_coherent = false;     /* a kernel stores for the host in it */
    std::vector<word_uses> words; /* made when a kernel uses the buffer */
    views seen;
};

/* Keeps its buffers. */
struct residency_set : fake_object {
    residency_set() : fake_object("FakeResidencySet") {}
    ~residency_set() override;
    std::vector<buffer *> buffers;
    bool is_committed = true, is_resident = false;
};

/* ---- Pipelines ---- */

struct pipeline : fake_object {
    pipeline() : fake_object("FakePipeline") {}
    const emulated_kernel *kernel = nullptr;
    bool has_system_scope = false;
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

struct queue;

struct command_buffer : fake_object {
    explicit command_buffer(queue *given) : fake_object("FakeCommandBuffer"), from(given) {}
    ~command_buffer() override;
    queue *from;
    std::vector<command> commands;
    size_t next = 0; /* command to run */
    unsigned long status = NOT_ENQUEUED;
    unsigned long known_from = 0; /* the wait for an event from which on the host sees the status */
    bool is_encoding = false, is_lost = false;
    event *signals = nullptr;
    unsigned long signal_value = 0;
    error *failure = nullptr;
    double seconds = 0;
};

struct queue : fake_object {
    queue();
    ~queue() override;
    static std::set<queue *> &all();
    std::vector<command_buffer *> waiting; /* committed, not complete; each is referenced */
    residency_set *residency = nullptr;    /* lives as long as command buffers run */
};

/* ---- Races ---- */

/* The dispatches that follow have no barrier between them. */
void begin_races();
void begin_race_dispatch(const char *name);
void begin_race_thread();
void end_race_dispatch();

/* ---- Visibility ---- */

/* A command buffer begins that may be interrupted; the host goes on, then the device; the command buffer
 * ends. */
void visibility_begin();
void visibility_to_host();
void visibility_to_device();
void visibility_end();

#endif
