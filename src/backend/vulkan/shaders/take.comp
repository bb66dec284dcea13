#version 450
/*
 * The first dispatch of a plan: takes the next step from the host's ring, or advances a repeated step by one token. Its
 * cost is the latency of reads, especially from host memory. It therefore loads all parts of a small step at once into
 * shared memory, so that it waits for the ring once. With EMBEDS the step has one token, and its embedding is looked up
 * here as well, which saves a dispatch that would read the step again.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(std430, binding = BIND_RING_STATE) buffer RingState {
    ring_state state;
    uint next[]; /* the next position of each slot */
};
layout(std430, binding = BIND_RING) readonly buffer Ring { uint ring[]; };
layout(std430, binding = BIND_TOKENS) buffer Tokens { int tokens[]; };
layout(std430, binding = BIND_HOST_TOKENS) readonly buffer HostTokens { int host_tokens[]; };
layout(std430, binding = BIND_STEP_WORDS) buffer Current { uint current[]; }; /* the running step as words */
#ifdef EMBEDS
#include "blocks.glsl"
layout(std430, binding = BIND_ARENA) writeonly buffer Arena { float arena[]; };
layout(push_constant) uniform Push { take_arguments arguments; embed_token token; };
shared int given_id; /* id from the host */
#else
layout(push_constant) uniform Push { take_arguments arguments; };
#endif

/* The parts of a step; the first WINDOW words of each part are loaded before its size is known. */
const uint HEADER_AND_RUNS = 0, ROWS = 1, OUTPUTS = 2, PAGES = 3, PARTS = 4, WINDOW = 128;

shared uint window[PARTS * WINDOW];
shared uint reached[WINDOW]; /* the first WINDOW entries of `next` */
shared uint taken, left; /* `state` at the beginning */
shared uint stop, going_on; /* going_on: runs of a step that repeats which have not ended */

uint tid, from;
bool repeats;

uint part_at(uint part)
{
    return part == HEADER_AND_RUNS ? 0
           : part == ROWS          ? arguments.words_at
           : part == OUTPUTS       ? arguments.outputs_at
                                   : arguments.pages_at;
}

/* Word `i` of a part of the step: from the ring or, if it is repeated, from the running step. */
uint word_of(uint part, uint i)
{
    if (i < WINDOW)
        return window[part * WINDOW + i];
    return repeats ? current[part_at(part) + i] : ring[from + part_at(part) + i];
}

uint header_word(uint i) { return window[i]; }
uint run_at(uint run, uint i) { return HEADER_WORDS + run * RUN_WORDS + i; }
uint run_word(uint run, uint i) { return word_of(HEADER_AND_RUNS, run_at(run, i)); }

void set_run_word(uint run, uint i, uint value)
{
    uint at = run_at(run, i);
    if (at < WINDOW)
        window[at] = value;
    else
        current[at] = value;
}

void load_step()
{
    for (uint i = tid; i < WINDOW; i += THREADS) {
        uint words_ahead[PARTS];
        [[unroll]] for (uint part = 0; part < PARTS; part++)
            words_ahead[part] = ring[from + min(part_at(part) + i, arguments.entry_words - 1)];
        [[unroll]] for (uint part = 0; part < PARTS; part++)
            window[part * WINDOW + i] = words_ahead[part];
    }
}

/* The next position of a slot. */
uint reached_by(uint slot) { return slot < WINDOW ? reached[slot] : next[slot]; }

/* Whether a run continues from a token that the previous step did not reach, or samples behind one. */
bool misses_position(uint run)
{
    if (run_word(run, RUN_SOURCE) != SOURCE_LAST)
        return false;
    return reached_by(run_word(run, RUN_SLOT)) != run_word(run, RUN_FIRST) + header_word(SAMPLES_ONLY_WORD);
}

void store_part(uint part, uint count)
{
    for (uint i = tid; i < count; i += THREADS)
        current[part_at(part) + i] = word_of(part, i);
}

/* Copies the ids that the host wrote, at the positions of the rows. */
void take_ids(uint count)
{
    for (uint row = tid; row < count; row += THREADS) {
        uint run = word_of(ROWS, row * ROW_WORDS), position = word_of(ROWS, row * ROW_WORDS + 1),
             place = run_word(run, RUN_SLOT) * (arguments.context + 1) + position;
        if (run_word(run, RUN_SOURCE) != SOURCE_LAST) {
            int id = host_tokens[place];
            tokens[place] = id;
#ifdef EMBEDS
            given_id = id;
#endif
        }
    }
}

void take_next()
{
    load_step();
    barrier();
    if (tid == 0 && header_word(RUNS_WORD) == 1 && misses_position(0))
        stop = 1;
    take_ids(header_word(TOKENS_WORD));
    store_part(ROWS, header_word(TOKENS_WORD) * ROW_WORDS);
    store_part(OUTPUTS, header_word(OUTPUTS_WORD));
    store_part(PAGES, header_word(RUNS_WORD) * arguments.pages_stride);
}

/* Whether a run of a step that repeats has another token: it has chosen an id, no stop id (`finish` in sample.comp sets
 * the slot's next position), and it has room. */
bool continues(uint run)
{
    uint position = run_word(run, RUN_FIRST) + 1, limit = run_word(run, RUN_LIMIT);
    return run_word(run, RUN_LOGITS) == LOGITS_LAST && reached_by(run_word(run, RUN_SLOT)) == position &&
           position < arguments.context && (limit == 0 || position < limit);
}

/* Ends a step that repeats if the host has cancelled it, which is checked only now and then, or if no run continues. A
 * run that has ended computes its last token again among the others, with the same results; nothing is sampled. */
void check_end()
{
    for (uint i = tid; i < header_word(RUNS_WORD); i += THREADS) {
        if (continues(i))
            atomicAdd(going_on, 1);
        else
            set_run_word(i, RUN_LOGITS, LOGITS_NONE);
    }
    barrier();
    if (tid == 0 && (going_on == 0 || ((left & header_word(CANCEL_MASK_WORD)) == 0 &&
                                          ring[header_word(ENTRY_WORD) * arguments.entry_words + CANCELLED_WORD] != 0)))
        stop = 1;
}

/* A step that does nothing has no tokens, runs and outputs. */
void store_header_and_runs(uint word_count)
{
    for (uint i = tid; i < word_count; i += THREADS)
        current[i] = stop != 0 && i <= OUTPUTS_WORD ? 0 : word_of(HEADER_AND_RUNS, i);
}

void advance_run(uint run)
{
    uint written = run_word(run, RUN_WRITE_VERSION), position = run_word(run, RUN_FIRST) + 1;
    set_run_word(run, RUN_WRITE_VERSION, run_word(run, RUN_NEXT_VERSION));
    set_run_word(run, RUN_NEXT_VERSION, written);
    set_run_word(run, RUN_READ_VERSION, written);
    set_run_word(run, RUN_FIRST, position);
    current[arguments.words_at + run_word(run, RUN_FIRST_ROW) * ROW_WORDS + 1] = position;
}

#ifdef EMBEDS
int id_of_token()
{
    uint place = run_word(0, RUN_SLOT) * (arguments.context + 1) + run_word(0, RUN_FIRST);
    return !repeats && run_word(0, RUN_SOURCE) != SOURCE_LAST ? given_id : tokens[place];
}

void embed(uint id)
{
    if (id >= token.rows)
        return;
    for (uint i = tid; i < (token.columns + 3) / 4; i += THREADS) {
        vec4 four = dequantized(token.type, token.codes, token.high, token.scales, token.columns, id, i);
        for (uint j = 0; j < 4 && 4 * i + j < token.columns; j++) {
            precise float scaled = four[j] * token.scale;
            arena[token.to + 4 * i + j] = scaled;
        }
    }
}
#endif

void main()
{
    tid = gl_LocalInvocationIndex;
    for (uint i = tid; i < WINDOW; i += THREADS) {
        uint word = current[min(i, arguments.words_at - 1)], position = next[min(i, arguments.slots - 1)];
        window[i] = word;
        reached[i] = position;
    }
    if (tid == 0) {
        taken = state.taken;
        left = state.left;
        stop = state.left != 0 ? state.stopped : 0;
        going_on = 0;
    }
    barrier();
    repeats = left != 0;
    from = taken % RING_ENTRIES * arguments.entry_words;
    if (repeats)
        check_end();
    else
        take_next();
    barrier();
    uint live_runs = stop != 0 ? 0 : header_word(RUNS_WORD),
         word_count = HEADER_WORDS + header_word(RUNS_WORD) * RUN_WORDS;
    if (!repeats) {
        store_header_and_runs(word_count);
        memoryBarrierBuffer();
        barrier();
    }
    for (uint i = tid; i < live_runs; i += THREADS) {
        if (repeats) {
            if (run_word(i, RUN_LOGITS) != LOGITS_LAST)
                continue;
            advance_run(i);
        } else if (misses_position(i)) {
            /* Its rows are computed among the others; nothing is sampled or committed. */
            current[run_at(i, RUN_LOGITS)] = LOGITS_NONE;
            continue;
        }
        next[run_word(i, RUN_SLOT)] = run_word(i, RUN_FIRST) + run_word(i, RUN_COUNT);
    }
    barrier();
#ifdef EMBEDS
    /* Logits may lie where the embedding would go. */
    int id = live_runs != 0 && header_word(SAMPLES_ONLY_WORD) == 0 ? id_of_token() : -1;
#endif
    if (repeats)
        store_header_and_runs(min(word_count, WINDOW));
    if (tid == 0) {
        state.stopped = stop;
        state.left = (repeats ? left : header_word(REPEAT_WORD)) - 1;
        state.taken = taken + (repeats ? 0 : 1);
    }
#ifdef EMBEDS
    embed(uint(id));
#endif
}
