/* Attention of many tokens: runs of all lengths, pages in any order, every type of cache. */
#ifndef TESTS_CUDA_CHECK_ATTEND_H
#define TESTS_CUDA_CHECK_ATTEND_H

#include "cuda/check_device.h"

typedef void attend_kernel(const cuda_machine *, const cuda_flash);

#define ATTEND_KERNELS(X)      \
    X(salvo_flash_f16_64)      \
    X(salvo_flash_f16_128)     \
    X(salvo_flash_f16_128_few) \
    X(salvo_flash_any)         \
    X(salvo_flash_halves_64) X(salvo_flash_halves_128) X(salvo_flash_append_64) X(salvo_flash_append_128)

/* An H200 without its warpgroups, an RTX 4090, and devices with and without warpgroups that few queries
 * occupy. */
constexpr cuda_room large_room = {232448, 132, false}, small_room = {101376, 128, false},
                    wide_room = {232448, 1, true}, narrow_room = {232448, 1, false},
                    split_room = {232448, 132, true};

#define DECLARE(name) \
    extern "C" __global__ void name(const cuda_machine *machine, const __grid_constant__ cuda_flash flash);
ATTEND_KERNELS(DECLARE)
#undef DECLARE

inline attend_kernel *find_attend_kernel(const char *name)
{
#define FIND(kernel)            \
    if (!strcmp(name, #kernel)) \
        return kernel;
    ATTEND_KERNELS(FIND)
#undef FIND
    printf("no kernel %s\n", name);
    exit(2);
}

/* A cache of keys or of values: bytes as the device has them, and the numbers that they represent. */
struct test_cache {
    enum tensor_type type;
    uint32_t pages, heads, head_dim;
    size_t head_bytes;
    std::vector<uint8_t> bytes;
    std::vector<float> values; /* [pages][heads][256][head_dim] */

    test_cache(numbers &random, enum tensor_type type_, uint32_t pages_, uint32_t heads_, uint32_t head_dim_,
        float size)
        : type(type_), pages(pages_), heads(heads_), head_dim(head_dim_),
          values(random.vector((size_t)pages_ * heads_ * PAGE_POSITIONS * head_dim_, size))
    {
        const size_t elements = (size_t)PAGE_POSITIONS * head_dim, groups = (head_dim + 31) / 32;
        const size_t element = type == TYPE_F32 ? 4 : type == TYPE_F16 ? 2 : 1;
        head_bytes = elements * element + (type == TYPE_Q8_0 ? PAGE_POSITIONS * groups * 2 : 0);
        bytes.assign((size_t)pages * heads * head_bytes, 0);
        for (size_t i = 0; i < values.size(); i++)
            set(i, values[i]);
    }

    /* Element i, rounded to the type. Scales of bytes are made up: 1/64 and 1/32 in turn. */
    void set(size_t i, float value)
    {
        const size_t elements = (size_t)PAGE_POSITIONS * head_dim, groups = (head_dim + 31) / 32;
        uint8_t *head = bytes.data() + i / elements * head_bytes;
        const size_t at = i % elements, position = at / head_dim, group = at % head_dim / 32;
        if (type == TYPE_F32) {
            memcpy(head + at * 4, &value, 4);
        } else if (type == TYPE_F16) {
            const uint16_t half = f16_from_f32(value);
            memcpy(head + at * 2, &half, 2);
            value = f16_to_f32(half);
        } else {
            const float scale = (position + group) % 2 ? 1 / 64.0f : 1 / 32.0f;
            const uint16_t half = f16_from_f32(scale);
            const int8_t byte = (int8_t)std::nearbyint(std::fmax(-127.0f, std::fmin(127.0f, value / scale)));
            memcpy(head + at, &byte, 1);
            memcpy(head + elements + (position * groups + group) * 2, &half, 2);
            value = scale * (float)byte;
        }
        values[i] = value;
    }

    size_t at(uint32_t page, uint32_t head, uint32_t position) const
    {
        return (((size_t)page * heads + head) * PAGE_POSITIONS + position) * head_dim;
    }
};

/* Ropes and the append inside attention: the elements that a rope takes as a pair. */
enum append_kind { APPENDED_BEFORE, APPENDS_NEIGHBOURS, APPENDS_HALVES };

struct attend_case {
    std::vector<test_run> runs;
    enum tensor_type type;
    uint32_t heads, kv_heads, head_dim, window;
    float cap;
    float size;    /* of queries */
    bool with_nan; /* the last value of the first run is none */
    append_kind append = APPENDED_BEFORE;
};

inline std::string attend_name(const attend_case &c)
{
    std::string name = std::string("attend ") + tensor_type_info(c.type)->name + " heads " +
                       std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " of " +
                       std::to_string(c.head_dim) + ", runs";
    for (const test_run &run : c.runs)
        name += " " + std::to_string(run.first) + "+" + std::to_string(run.count);
    name += c.window ? " window " + std::to_string(c.window) : "";
    name += c.append == APPENDS_HALVES ? ", appends, halves" : c.append ? ", appends" : "";
    return name + (c.cap != 0 ? " cap" : "") + (c.with_nan ? " NaN" : "");
}

struct attend_setup {
    uint32_t pages_per_slot = 0, pages = 0;
    test_machine *machine;
    test_cache *keys, *values;

    attend_setup(const attend_case &c, numbers &random)
    {
        uint32_t slots = 0;
        for (const test_run &run : c.runs) {
            const uint32_t needed = (run.first + run.count + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
            pages_per_slot = std::max(pages_per_slot, needed + 1);
            slots = std::max(slots, run.slot + 1);
        }
        pages = pages_per_slot * (uint32_t)c.runs.size();
        machine = new test_machine(c.runs, slots, pages_per_slot * PAGE_POSITIONS, pages_per_slot);
        std::vector<uint32_t> order(pages);
        for (uint32_t i = 0; i < pages; i++)
            order[i] = i;
        for (uint32_t i = pages; i > 1; i--)
            std::swap(order[i - 1], order[random.below(i)]);
        for (size_t i = 0; i < c.runs.size(); i++) {
            for (uint32_t j = 0; j < pages_per_slot; j++)
                machine->pages_of(i)[j] = order[i * pages_per_slot + j];
        }
        keys = new test_cache(random, c.type, pages, c.kv_heads, c.head_dim, 1);
        values = new test_cache(random, c.type, pages, c.kv_heads, c.head_dim, 1);
        /* Memory beyond a run's last position is not written. */
        for (size_t i = 0; i < c.runs.size(); i++) {
            const uint32_t end = c.runs[i].first + c.runs[i].count;
            for (uint32_t p = end; c.type != TYPE_Q8_0 && p < pages_per_slot * PAGE_POSITIONS; p++)
                spoil(c, i, p);
        }
        if (c.with_nan)
            spoil(c, 0, c.runs[0].first + c.runs[0].count - 1);
    }

    attend_setup(const attend_setup &) = delete;
    attend_setup &operator=(const attend_setup &) = delete;

    ~attend_setup()
    {
        delete machine;
        delete keys;
        delete values;
    }

    void spoil(const attend_case &c, size_t run, uint32_t position)
    {
        const uint32_t page = machine->pages_of(run)[position / PAGE_POSITIONS];
        for (uint32_t head = 0; head < c.kv_heads; head++) {
            for (uint32_t d = 0; d < c.head_dim; d++)
                values->set(values->at(page, head, position % PAGE_POSITIONS) + d, NAN);
        }
    }
};

/* One query by the definition. */
inline void reference_attend(const attend_case &c, attend_setup &setup, size_t run, uint32_t position,
    uint32_t head, const float *q, float scale, double *out)
{
    const uint32_t kv_head = head / (c.heads / c.kv_heads);
    const uint32_t begin = c.window && position + 1 > c.window ? position + 1 - c.window : 0;
    std::vector<double> scores;
    double largest = -INFINITY, sum = 0;
    for (uint32_t p = begin; p <= position; p++) {
        const float *k = &setup.keys->values[setup.keys->at(
            setup.machine->pages_of(run)[p / PAGE_POSITIONS], kv_head, p % PAGE_POSITIONS)];
        double score = 0;
        for (uint32_t d = 0; d < c.head_dim; d++)
            score += (double)q[d] * k[d];
        score *= scale;
        scores.push_back(c.cap != 0 ? c.cap * std::tanh(score / c.cap) : score);
        largest = std::fmax(largest, scores.back());
    }
    for (uint32_t d = 0; d < c.head_dim; d++)
        out[d] = 0;
    for (uint32_t p = begin; p <= position; p++) {
        const float *v = &setup.values->values[setup.values->at(
            setup.machine->pages_of(run)[p / PAGE_POSITIONS], kv_head, p % PAGE_POSITIONS)];
        const double weight = std::exp(scores[p - begin] - largest);
        sum += weight;
        for (uint32_t d = 0; d < c.head_dim; d++)
            out[d] += weight * v[d];
    }
    for (uint32_t d = 0; d < c.head_dim; d++)
        out[d] /= sum;
}

inline cuda_attend make_attend(const attend_case &c, uint64_t q, uint64_t out, uint64_t keys, uint64_t values)
{
    cuda_attend attend = {};
    attend.q = q;
    attend.out = out;
    attend.keys = keys;
    attend.values = values;
    attend.heads = c.heads;
    attend.kv_heads = c.kv_heads;
    attend.head_dim = c.head_dim;
    attend.window = c.window;
    attend.kv_type = c.type;
    attend.scale = 1 / std::sqrt((float)c.head_dim);
    attend.cap = c.cap;
    return attend;
}

/* The same bytes. A NaN that was appended equals any other: devices choose its bits. */
inline bool caches_agree(
    const attend_case &c, const std::vector<uint8_t> &cache, const std::vector<uint8_t> &expected)
{
    bool agree = cache.size() == expected.size();
    for (size_t i = 0; agree && i < cache.size(); i += 2) {
        uint16_t half, wanted;
        memcpy(&half, &cache[i], 2);
        memcpy(&wanted, &expected[i], 2);
        agree =
            half == wanted || (c.append && std::isnan(f16_to_f32(half)) && std::isnan(f16_to_f32(wanted)));
    }
    return agree;
}

/* Rows of a step before ropes and append. The cache of `setup` gets the rotated keys and the values, and
 * `keys` and `values` are the cache without them. */
struct raw_rows {
    enum { ROPES = 2, QUERIES = 1, KEYS = 0 };
    std::vector<float> q, k, v, cosines, sines;
    std::vector<uint8_t> keys, values;

    raw_rows(const attend_case &c, attend_setup &setup, numbers &random, std::vector<float> &rotated_q)
    {
        if (c.append == APPENDED_BEFORE)
            return;
        const size_t tokens = setup.machine->tokens;
        q = rotated_q;
        k = random.vector(tokens * c.kv_heads * c.head_dim);
        v = random.vector(k.size());
        cosines = random.vector(tokens * ROPES * c.head_dim / 2);
        sines = random.vector(cosines.size());
        const size_t row = (size_t)c.kv_heads * c.head_dim;
        if (c.with_nan)
            std::fill_n(v.begin() + (long)((c.runs[0].count - 1) * row), row, NAN);
        std::vector<float> rotated_k = k;
        for (uint32_t t = 0; t < tokens; t++) {
            rotate(c, t, QUERIES, &rotated_q[(size_t)t * c.heads * c.head_dim], c.heads);
            rotate(c, t, KEYS, &rotated_k[t * row], c.kv_heads);
        }
        put(c, setup, std::vector<float>(k.size(), NAN), std::vector<float>(k.size(), NAN));
        keys = setup.keys->bytes;
        values = setup.values->bytes;
        put(c, setup, rotated_k, v);
    }

    void rotate(const attend_case &c, uint32_t token, uint32_t rope, float *x, uint32_t heads) const
    {
        const uint32_t pairs = c.head_dim / 2;
        for (uint32_t i = 0; i < heads * pairs; i++) {
            const uint32_t pair = i % pairs;
            float *head = x + (size_t)i / pairs * c.head_dim,
                  &first = head[c.append == APPENDS_HALVES ? pair : 2 * pair],
                  &second = head[c.append == APPENDS_HALVES ? pair + pairs : 2 * pair + 1];
            const size_t angle = ((size_t)token * ROPES + rope) * pairs + pair;
            const float left = first, right = second;
            first = std::fmaf(left, cosines[angle], -(right * sines[angle]));
            second = std::fmaf(right, cosines[angle], left * sines[angle]);
        }
    }

    static void put(
        const attend_case &c, attend_setup &setup, const std::vector<float> &k, const std::vector<float> &v)
    {
        size_t from = 0;
        for (size_t run = 0; run < c.runs.size(); run++) {
            for (uint32_t i = 0; i < c.runs[run].count * c.kv_heads; i++, from += c.head_dim) {
                const uint32_t position = c.runs[run].first + i / c.kv_heads;
                const uint32_t page = setup.machine->pages_of(run)[position / PAGE_POSITIONS];
                const size_t at = setup.keys->at(page, i % c.kv_heads, position % PAGE_POSITIONS);
                for (uint32_t d = 0; d < c.head_dim; d++) {
                    setup.keys->set(at + d, k[from + d]);
                    setup.values->set(at + d, v[from + d]);
                }
            }
        }
    }
};

/* Whether teams of blocks, by `teams`, agree with single blocks, by `alone`, in the bits of results whose
 * context is short, and in no others: their sums have another order. */
inline bool teams_agree(
    const attend_case &c, const std::vector<float> &teams, const std::vector<float> &alone)
{
    const uint32_t each = c.heads / c.kv_heads, row = c.heads * c.head_dim;
    bool agree = true;
    size_t first = 0;
    for (const test_run &run : c.runs) {
        for (uint32_t i = 0; i < run.count * c.heads; i++) {
            const uint32_t token = i / c.heads, query = token * each + i % c.heads % each,
                           begin = query / FLASH_QUERIES * FLASH_QUERIES, /* queries of its block */
                last = std::min(begin + FLASH_QUERIES, run.count * each) - 1,
                           position = run.first + begin / each, end = run.first + last / each + 1,
                           seen = c.window && position + 1 > c.window ? position + 1 - c.window : 0,
                           steps = (end + FLASH_KEYS - 1) / FLASH_KEYS - seen / FLASH_KEYS;
            const bool divides = end > FLASH_LONG_CONTEXT && steps > FLASH_WARPS;
            const size_t at = (first + token) * row + i % c.heads * c.head_dim;
            agree &= std::isnan(alone[at]) ||
                     (memcmp(&teams[at], &alone[at], c.head_dim * sizeof(float)) != 0) == divides;
        }
        first += run.count;
    }
    return agree;
}

inline void check_attend(
    checks &results, const attend_case &c, uint64_t seed, const cuda_room &room = large_room)
{
    numbers random(seed);
    attend_setup setup(c, random);
    const uint32_t tokens = setup.machine->tokens, capacity = tokens + 5, row = c.heads * c.head_dim;
    std::vector<float> q = random.vector((size_t)tokens * row, c.size);
    const raw_rows raw(c, setup, random, q);
    const bool appends = c.append != APPENDED_BEFORE;
    const device_array<float> q_array(appends ? raw.q : q), out_array((size_t)capacity * row), k(raw.k),
        v(raw.v), cosines(raw.cosines), sines(raw.sines);
    const device_array<uint8_t> keys(appends ? raw.keys : setup.keys->bytes),
        values(appends ? raw.values : setup.values->bytes);
    cuda_flash flash = {
        make_attend(c, q_array.address, out_array.address, keys.address, values.address), {}, 0, 0};
    cuda_attend &attend = flash.attend;
    if (appends) {
        attend.appends = 1;
        attend.k = k.address;
        attend.v = v.address;
        attend.halves = c.append == APPENDS_HALVES;
        attend.rope_q = raw_rows::QUERIES;
        attend.rope_k = raw_rows::KEYS;
        setup.machine->machine.cosines = cosines.address;
        setup.machine->machine.sines = sines.address;
        setup.machine->machine.rope_count = raw_rows::ROPES;
        setup.machine->machine.rope_pairs = c.head_dim / 2;
    }
    const bool rounds = c.head_dim % 32 == 0 && !c.with_nan;
    const uint32_t rounding = room.warpgroups && seed % 2 ? ROUNDING_F16 : ROUNDING_Q8;
    const device_array<uint8_t> packed_input(cuda_packed_input_bytes(rounding, row, capacity));
    if (rounds)
        flash.rounded = cuda_packed_input_at(rounding, row, capacity, packed_input.address);
    flash.rounded.grouped = rounding == ROUNDING_F16 ? (capacity + 7) / 8 * 8 : 0;
    cuda_launch launch = cuda_flash_launch(&flash, capacity, (uint32_t)c.runs.size() + 2, &room);
    const cuda_flash single_flash = flash;
    const cuda_launch single_launch = launch;
    const bool splits = &room == &split_room,
               right_kernel = !splits || cuda_flash_split(&flash, &launch, &room);
    const cuda_machine *device = setup.machine->upload();
    launch_cluster() = flash.splits;
    launch_kernel(launch, find_attend_kernel(launch.kernel), device, flash);
    device_wait();
    const std::vector<float> out = out_array.get();
    launch_kernel(launch, find_attend_kernel(launch.kernel), device, flash);
    device_wait();
    launch_cluster() = 0;
    const std::vector<float> again = out_array.get();

    double worst = 0;
    bool whole = out_array.guard_is_whole() && packed_input.guard_is_whole() && keys.guard_is_whole() &&
                 values.guard_is_whole() && caches_agree(c, keys.get(), setup.keys->bytes) &&
                 caches_agree(c, values.get(), setup.values->bytes);
    const std::vector<uint8_t> bytes = packed_input.get();
    for (uint32_t t = 0; rounds && t < tokens; t++)
        whole &= packed_input_is_right(flash.rounded, bytes, packed_input.address, t, row,
            &out[(size_t)t * row], setup.machine->is_early(t));
    std::vector<double> reference(c.head_dim);
    for (size_t run = 0, first = 0; run < c.runs.size(); first += c.runs[run++].count) {
        for (uint32_t t = 0; t < c.runs[run].count; t++) {
            for (uint32_t head = 0; head < c.heads; head++) {
                const size_t at = (first + t) * row + head * c.head_dim;
                reference_attend(
                    c, setup, run, c.runs[run].first + t, head, &q[at], attend.scale, reference.data());
                worst = std::fmax(worst, row_error(&out[at], reference.data(), c.head_dim));
            }
        }
    }
    for (size_t i = (size_t)tokens * row; i < out.size(); i++)
        whole &= is_poison(out[i]);
    bool same = !memcmp(out.data(), again.data(), out.size() * 4);
    if (splits) {
        launch_kernel(single_launch, find_attend_kernel(single_launch.kernel), device, single_flash);
        device_wait();
        same &= teams_agree(c, out, out_array.get());
    }
    results.report(attend_name(c) + (splits ? ", " + std::to_string(flash.splits) + " blocks" : ""),
        worst < 3e-5 && whole && same && right_kernel, worst,
        !whole          ? "wrote where it must not, or rounding"
        : !same         ? "other bits the second time, or by teams"
        : !right_kernel ? "one block"
                        : "");
}

/* With warpgroups: blocks that are full, nearly empty, with runs of different lengths, over several pages. */
inline void check_wide_attends(checks &results)
{
    uint64_t seed = 3000;
    const auto check = [&](const attend_case &c) { check_attend(results, c, seed++, wide_room); };
    for (uint32_t head_dim : {64, 128}) {
        check({{{0, 0, 130}}, TYPE_F16, 1, 1, head_dim, 0, 0, 1, false});
        check({{{0, 250, 40}, {2, 0, 3}}, TYPE_F16, 8, 2, head_dim, 0, 0, 1, false});
        check({{{1, 300, 50}}, TYPE_F16, 3, 1, head_dim, 40, 0, 2, false});
        check({{{0, 33, 70}}, TYPE_F16, 2, 1, head_dim, 0, 5, 4, false});
        check({{{0, 30, 60}, {1, 0, 4}}, TYPE_F16, 3, 1, head_dim, 0, 0, 1, true});
        check({{{0, 10, 140}}, TYPE_F16, 1, 1, head_dim, 0, 0, 1e-20f, false});
        check({{{0, 700, 129}}, TYPE_F16, 1, 1, head_dim, 0, 0, 60, false});
        /* All keys of the first step but the last are seen by all queries. */
        check({{{0, FLASH_WIDE_STEP / head_dim - 2, 130}}, TYPE_F16, 1, 1, head_dim, 0, 0, 1, false});
    }
    for (uint32_t count : {64, 128, 300, 512}) {
        for (uint32_t first : {0, 1, 255, 700}) {
            for (uint32_t head_dim : {64, 128}) {
                if (!ON_DEVICE)
                    continue;
                check({{{0, first, count}, {1, 17, 3}}, TYPE_F16, 9, 3, head_dim, 0, 0, 1, false});
                check({{{0, first, count}}, TYPE_F16, 4, 4, head_dim, 100, 0, 1, false});
                check({{{0, first, count}}, TYPE_F16, 32, 8, head_dim, 0, 0, 1, false});
            }
        }
    }
}

/* With ropes and the append inside: runs of one token and of more, positions of this step in several steps of
 * keys and in several pages, more heads than a block has queries, windows, with one slot and with two. */
inline void check_appends(checks &results)
{
    uint64_t seed = 5000;
    for (uint32_t head_dim : {64, 128}) {
        for (append_kind append : {APPENDS_NEIGHBOURS, APPENDS_HALVES}) {
            const auto check_in = [&](attend_case c, const cuda_room &room) {
                c.append = append;
                check_attend(results, c, seed++, room);
            };
            const auto check = [&](const attend_case &c) {
                check_in(c, seed % 3 ? narrow_room : seed % 2 ? small_room : large_room);
            };
            check({{{0, 0, 7}}, TYPE_F16, 3, 1, head_dim, 0, 0, 1, false});
            check({{{0, 250, 20}, {2, 0, 3}}, TYPE_F16, 4, 2, head_dim, 0, 0, 1, false});
            check({{{0, 3, 1}, {1, 40, 1}, {2, 600, 1}, {3, 255, 1}, {4, 256, 1}, {5, 0, 1}}, TYPE_F16, 9, 3,
                head_dim, 0, 0, 1, false});
            check({{{1, 100, 9}}, TYPE_F16, 2, 2, head_dim, 40, 5, 2, false});
            check({{{0, 5, 60}}, TYPE_F16, 2, 1, head_dim, 7, 0, 1, false});
            check({{{0, 20, 3}, {1, 31, 2}}, TYPE_F16, 40, 1, head_dim, 0, 0, 1, false});
            check({{{0, 30, 9}, {1, 0, 4}}, TYPE_F16, 3, 1, head_dim, 0, 0, 1, true});
            /* Runs of one token in plans of more rows: all of them, and beside a prompt; one, five and eight
             * queries of a KV head. */
            std::vector<test_run> ones;
            for (uint32_t i = 0; i < FLASH_ONE_ROWS; i++)
                ones.push_back({i, (i * 37 + 300) % 310, 1});
            check({ones, TYPE_F16, 4, 4, head_dim, 40, 0, 1, true});
            check({{{0, 33, 1}, {1, 100, 9}, {2, 64, 1}, {3, 31, 1}, {4, 0, 5}}, TYPE_F16, 16, 2, head_dim, 0,
                5, 2, false});
            check({{{1, 129, 1}, {0, 32, 1}, {2, 250, 15}}, TYPE_F16, 5, 1, head_dim, 33, 0, 60, false});
            ones[1].first = 1500;
            ones[2].first = FLASH_LONG_CONTEXT;
            check_in({ones, TYPE_F16, 3, 1, head_dim, 0, 0, 1, false}, split_room);
            /* Blocks that divide the keys: fewer steps than one block has warps, and more, and windows. */
            check_in({{{0, 127, 1}, {1, 128, 1}, {2, 1500, 1}, {3, 0, 1}}, TYPE_F16, 9, 3, head_dim, 0, 0, 1,
                         false},
                split_room);
            check_in({{{0, 500, 9}, {2, 255, 3}}, TYPE_F16, 4, 2, head_dim, 0, 5, 4, false}, split_room);
            check_in({{{1, 700, 5}, {0, 130, 1}}, TYPE_F16, 2, 1, head_dim, 300, 0, 1, false}, split_room);
            check_in({{{0, 390, 2}, {1, 20, 1}}, TYPE_F16, 40, 2, head_dim, 0, 0, 1, true}, split_room);
            /* Contexts that are just long or just not, and a run with both. */
            const uint32_t first = FLASH_LONG_CONTEXT;
            check_in({{{0, first - 1, 1}, {2, first, 1}, {1, first - 9, 14}}, TYPE_F16, 9, 3, head_dim, 0, 0,
                         1, false},
                split_room);
            for (uint32_t window : {4 * FLASH_KEYS, 5 * FLASH_KEYS}) /* as many steps as warps, and more */
                check_in({{{1, 13 * FLASH_KEYS - 1, 1}}, TYPE_F16, 2, 2, head_dim, window, 0, 1, false},
                    split_room);
            if (ON_DEVICE) {
                std::vector<test_run> many;
                for (uint32_t i = 0; i < 70; i++)
                    many.push_back({i, i * 7, i % 3 ? 1u : 6u});
                check_in(
                    {{{0, 3000, 1}, {1, 4000, 1}}, TYPE_F16, 32, 8, head_dim, 0, 0, 1, false}, split_room);
                check({many, TYPE_F16, 32, 8, head_dim, 0, 0, 1, false});
                check({{{0, 3000, 128}}, TYPE_F16, 9, 3, head_dim, 0, 0, 1, false});
            }
        }
    }
}

inline void check_attends(checks &results)
{
    check_appends(results);
    uint64_t seed = 1000;
    if (has_kernel((const void *)salvo_flash_halves_64))
        check_wide_attends(results);
    for (enum tensor_type type : {TYPE_F16, TYPE_F32, TYPE_Q8_0}) {
        check_attend(results, {{{0, 0, 7}}, type, 3, 1, 64, 0, 0, 1, false}, seed++);
        check_attend(results, {{{0, 250, 20}, {2, 0, 3}}, type, 4, 2, 32, 0, 0, 1, false}, seed++);
        check_attend(results, {{{1, 100, 9}}, type, 2, 2, 64, 40, 0, 2, false}, seed++);
        check_attend(results, {{{0, 33, 5}}, type, 2, 1, 128, 0, 5, 4, false}, seed++);
        check_attend(results, {{{0, 30, 12}}, type, 6, 2, 80, 0, 0, 1, false}, seed++);
        check_attend(
            results, {{{0, 250, 20}, {2, 0, 3}}, type, 4, 2, 128, 0, 0, 1, false}, seed++, small_room);
        check_attend(results, {{{1, 200, 9}}, type, 6, 2, 96, 40, 5, 2, false}, seed++, small_room);
        check_attend(results, {{{0, 3, 1}, {1, 40, 1}, {2, 600, 1}}, type, 9, 3, 24, 0, 0, 1, false}, seed++);
        check_attend(results, {{{0, 20, 2}}, type, 2, 1, 160, 0, 0, 1, false}, seed++);
        if (type != TYPE_Q8_0)
            check_attend(results, {{{0, 30, 9}, {1, 0, 4}}, type, 3, 1, 64, 0, 0, 1, true}, seed++);
        check_attend(results, {{{0, 10, 4}}, type, 2, 1, 64, 0, 0, 1e-20f, false}, seed++);
        check_attend(results, {{{0, 10, 4}}, type, 2, 1, 64, 0, 0, 300, false}, seed++);
        for (uint32_t count : {1, 5, 64, 300, 512}) {
            for (uint32_t first : {0, 1, 255, 700}) {
                for (uint32_t head_dim : {16, 64, 96, 128}) {
                    if (ON_DEVICE) {
                        check_attend(results,
                            {{{0, first, count}, {1, 17, 3}}, type, 9, 3, head_dim, 0, 0, 1, false}, seed++);
                        check_attend(
                            results, {{{0, first, count}}, type, 4, 4, head_dim, 100, 0, 1, false}, seed++);
                    }
                }
            }
        }
    }
    if (ON_DEVICE) {
        std::vector<test_run> many;
        for (uint32_t i = 0; i < 70; i++)
            many.push_back({i, i * 7, i % 3 ? 1u : 6u});
        check_attend(results, {many, TYPE_F16, 9, 3, 64, 0, 0, 1, false}, seed++);
    }
}

#if ON_DEVICE
inline void time_attend(const char *what, const attend_case &c, const cuda_room &room = large_room)
{
    numbers random(3);
    attend_setup setup(c, random);
    const uint32_t tokens = setup.machine->tokens, row = c.heads * c.head_dim;
    const device_array<float> q(random.vector((size_t)tokens * row)), out((size_t)tokens * row);
    const device_array<uint8_t> keys(setup.keys->bytes), values(setup.values->bytes);
    cuda_flash flash = {make_attend(c, q.address, out.address, keys.address, values.address), {}, 0, 0};
    const cuda_launch launch = cuda_flash_launch(&flash, tokens, (uint32_t)c.runs.size(), &room);
    const cuda_machine *device = setup.machine->upload();
    const double time =
        time_of([&] { launch_kernel(launch, find_attend_kernel(launch.kernel), device, flash); });
    printf("%-44s T %4u from %5u  %8.2f us  grid %u x %u\n", what, tokens, c.runs[0].first, time,
        launch.grid_x, launch.grid_y);
}

inline void time_attends()
{
    for (enum tensor_type type : {TYPE_F16, TYPE_F32, TYPE_Q8_0}) {
        const std::string name = std::string(tensor_type_info(type)->name);
        time_attend(
            ("SmolLM-135M attention " + name).c_str(), {{{0, 0, 64}}, type, 9, 3, 64, 0, 0, 1, false});
        time_attend(
            ("SmolLM-135M attention " + name).c_str(), {{{0, 0, 512}}, type, 9, 3, 64, 0, 0, 1, false});
        time_attend(
            ("SmolLM-135M attention " + name).c_str(), {{{0, 3584, 512}}, type, 9, 3, 64, 0, 0, 1, false});
        time_attend(("Llama-1B attention " + name).c_str(), {{{0, 0, 512}}, type, 32, 8, 64, 0, 0, 1, false});
        time_attend(
            ("Llama-1B attention " + name).c_str(), {{{0, 3584, 512}}, type, 32, 8, 64, 0, 0, 1, false});
        time_attend(
            ("head_dim 128 attention " + name).c_str(), {{{0, 0, 512}}, type, 32, 8, 128, 0, 0, 1, false});
        std::vector<test_run> eight;
        for (uint32_t i = 0; i < 8; i++)
            eight.push_back({i, 1000, 1});
        time_attend(("8 sessions " + name).c_str(), {eight, type, 9, 3, 64, 0, 0, 1, false});
    }
}
#endif

#endif
