#version 450
/* Row ops, executed one after the other from a table: one workgroup takes a row through all of them. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "blocks.glsl"

layout(std430, binding = BIND_ARENA) coherent buffer Arena { float arena[]; };
layout(std430, binding = BIND_VECTORS) readonly buffer Vectors { float vectors[]; };
layout(std430, binding = BIND_TABLE) readonly buffer Table { row_op ops[]; };
layout(std430, binding = BIND_ROUNDED) buffer Rounded { uint rounded[]; };
layout(std430, binding = BIND_KEYS) buffer Keys { uint keys[]; };
layout(std430, binding = BIND_VALUES) buffer Values { uint values[]; };
layout(std430, binding = BIND_RECURRENT) buffer Recurrent { float recurrent[]; };
layout(std430, binding = BIND_TOKENS) readonly buffer Tokens { int tokens[]; };
layout(std430, binding = BIND_ROPES) readonly buffer Ropes { float ropes[]; };
layout(push_constant) uniform Push { rows_arguments arguments; };

const uint OP_EMBED = 0, OP_RMS_NORM = 1, OP_LAYER_NORM = 2, OP_L2_NORM = 3, OP_ROPE = 5, OP_KV_APPEND = 6, OP_GLU = 8,
           OP_ADD = 9, OP_MUL = 10, OP_LERP = 11, OP_TOKEN_SHIFT = 12, OP_RWKV_KEY = 13, OP_RWKV_BONUS = 15,
           OP_SELECT_ROWS = 16, OP_SOFTCAP = 17;

shared float sums[1024];
shared uint largest[1024];

uint tid;

/* The sum over 2^`shift` neighbouring invocations, a team; each of them gets it. */
float team_sum(float value, uint shift)
{
    uint team = 1u << shift;
    barrier();
    sums[tid] = value;
    barrier();
    for (uint step = team / 2; step > 0; step /= 2) {
        if ((tid & (team - 1)) < step)
            sums[tid] += sums[tid + step];
        barrier();
    }
    return sums[tid & ~(team - 1)];
}

/* log2 of the invocations that share a group of columns: all, or as many as the group has columns. */
uint team_shift(uint group)
{
    uint shift = 0;
    while ((2u << shift) <= THREADS && (1u << shift) < group)
        shift++;
    return shift;
}

float vector_or_row(row_op op, uint column, uint row)
{
    return op.weight_is_scratch != 0 ? arena[op.weight + row * op.columns + column] : vectors[op.weight + column];
}

void embed(row_op op, uint row)
{
    uint run = row_run(row);
    uint id = uint(tokens[runs[run].slot * (header.context + 1) + row_position(row)]);
    if (id < op.first_row || id >= op.first_row + op.row_count)
        return;
    for (uint i = tid; i < (op.columns + 3) / 4; i += THREADS) {
        vec4 four = dequantized(op.type, op.codes, op.high, op.scales, op.columns, id - op.first_row, i);
        for (uint j = 0; j < 4 && 4 * i + j < op.columns; j++) {
            precise float scaled = four[j] * op.number;
            arena[op.to + row * op.columns + 4 * i + j] = scaled;
        }
    }
}

/* A team computes a group of columns. All teams have the same number of iterations, because of the barriers. */
void normalise(row_op op, uint row)
{
    uint shift = team_shift(op.group), team = 1u << shift, teams = THREADS >> shift, groups = op.groups,
         lane = tid & (team - 1);
    uint x = op.x + row * op.columns, out_at = op.to + row * op.columns;
    for (uint first = 0; first < groups; first += teams) {
        uint group = first + (tid >> shift), begin = group * op.group;
        uint end = group < groups ? begin + op.group : begin;
        float sum = 0, mean = 0, scale;
        if (op.kind == OP_LAYER_NORM) {
            for (uint i = begin + lane; i < end; i += team)
                sum += arena[x + i];
            mean = team_sum(sum, shift) / float(op.group);
            sum = 0;
        }
        for (uint i = begin + lane; i < end; i += team) {
            float value = arena[x + i] - mean;
            if (op.kind == OP_L2_NORM && op.weight != NO_OPERAND)
                value *= vectors[op.weight + i];
            sum += value * value;
        }
        sum = team_sum(sum, shift);
        if (op.kind == OP_L2_NORM) {
            float size = sqrt(sum);
            scale = 1.0 / (size < op.number ? op.number : size);
        } else {
            scale = 1.0 / sqrt(sum / float(op.group) + op.number);
        }
        for (uint i = begin + lane; i < end; i += team) {
            float value = (arena[x + i] - mean) * scale;
            if (op.kind == OP_RMS_NORM)
                value *= op.weight == NO_OPERAND ? 1.0 : vectors[op.weight + (i - begin)];
            else if (op.weight != NO_OPERAND)
                value *= vectors[op.weight + i];
            if (op.kind == OP_LAYER_NORM)
                value += vectors[op.bias + i];
            arena[out_at + i] = value;
        }
        barrier();
    }
}

/* cos and sin of a position: the product of its two table entries (multiple of 256, remainder). */
vec2 angle_of(uint table, uint pairs, uint pair, uint position)
{
    uint lower = table + ((position & 255u) * pairs + pair) * 2;
    uint upper = table + ((256 + (position >> 8)) * pairs + pair) * 2;
    float cl = ropes[lower], sl = ropes[lower + 1], cu = ropes[upper], su = ropes[upper + 1];
    return vec2(cl * cu - sl * su, sl * cu + cl * su);
}

void rotate(row_op op, uint row)
{
    uint pairs = op.dimensions / 2, position = row_position(row);
    for (uint i = tid; i < pairs * op.groups; i += THREADS) {
        uint index = quotient(i, pairs), pair = i - index * pairs;
        uint head = op.to + row * op.columns + index * op.group;
        uint a = head + (op.halves != 0 ? pair : 2 * pair), b = a + (op.halves != 0 ? pairs : 1);
        vec2 angle = angle_of(op.rope, pairs, pair, position);
        float left = arena[a], right = arena[b];
        arena[a] = left * angle.x - right * angle.y;
        arena[b] = right * angle.x + left * angle.y;
    }
}

/* Stores up to 32 elements as int8; returns the bits of their scale. */
uint append_group(uint x, uint count, uint at, bool is_key)
{
    float most = 0;
    for (uint i = 0; i < count; i++) {
        float magnitude = abs(arena[x + i]);
        most = isnan(magnitude) || magnitude > most ? magnitude : most;
    }
    uint scale = half_bits(most * (1.0 / 127.0));
    float value = half_value(scale), inverse = 1.0 / value;
    bool usable = value > 0.0 && !isinf(value) && !isnan(value);
    for (uint i = 0; i < count; i += 4) {
        uint word = 0;
        for (uint j = 0; j < 4; j++) {
            float scaled = usable ? clamp(arena[x + i + j] * inverse, -127.0, 127.0) : 0.0;
            word |= (uint(int(roundEven(scaled))) & 0xffu) << (8 * j);
        }
        if (is_key)
            keys[at + i / 4] = word;
        else
            values[at + i / 4] = word;
    }
    return usable ? scale : value == 0.0 ? 0u : 0x7e00u;
}

void append(row_op op, uint row)
{
    uint heads = op.groups, place = pool_position(row_run(row), row_position(row));
    uint page = place / PAGE_POSITIONS, inside = place % PAGE_POSITIONS;
    for (uint i = tid; i < heads * 2; i += THREADS) {
        bool is_key = i < heads;
        uint head = is_key ? i : i - heads;
        uint x = (is_key ? op.x : op.y) + row * op.columns + head * op.group;
        uint at = ((page * heads + head) * PAGE_POSITIONS + inside) * op.head_words;
        if (op.type == TYPE_Q8_0) {
            uint scale_word = 0;
            for (uint g = 0; g * 32 < op.group; g++) {
                uint scale = append_group(x + g * 32, min(32, op.group - g * 32), at + g * 8, is_key);
                scale_word |= scale << (16 * (g & 1u));
                if ((g & 1u) == 1 || (g + 1) * 32 >= op.group) {
                    if (is_key)
                        keys[at + op.group / 4 + g / 2] = scale_word;
                    else
                        values[at + op.group / 4 + g / 2] = scale_word;
                    scale_word = 0;
                }
            }
            continue;
        }
        for (uint j = 0; j < op.head_words; j++) {
            uint word = op.type == TYPE_F32 ? floatBitsToUint(arena[x + j])
                                            : half_bits(arena[x + 2 * j]) | half_bits(arena[x + 2 * j + 1]) << 16;
            if (is_key)
                keys[at + j] = word;
            else
                values[at + j] = word;
        }
    }
}

void shift_row(row_op op, uint row)
{
    uint run = row_run(row), slot = runs[run].slot;
    uint before = (slot * RECURRENT_VERSIONS + runs[run].read_version) * arguments.recurrent_elements + op.state;
    uint after = (slot * RECURRENT_VERSIONS + runs[run].write_version) * arguments.recurrent_elements + op.state;
    bool first = row == runs[run].first_row, last = row + 1 == runs[run].first_row + runs[run].count;
    bool from_zero = runs[run].first == 0;
    for (uint i = tid; i < op.columns; i += THREADS) {
        float x = arena[op.x + row * op.columns + i];
        float previous = !first ? arena[op.x + (row - 1) * op.columns + i] : from_zero ? 0.0 : recurrent[before + i];
        arena[op.to + row * op.columns + i] = previous;
        if (last)
            recurrent[after + i] = x;
    }
}

void add_bonus(row_op op, uint row)
{
    uint shift = team_shift(op.group), team = 1u << shift, teams = THREADS >> shift, heads = op.groups,
         lane = tid & (team - 1);
    uint base = row * op.columns;
    for (uint first = 0; first < heads; first += teams) {
        uint head = first + (tid >> shift), begin = head * op.group, end = head < heads ? begin + op.group : begin;
        float sum = 0;
        for (uint i = begin + lane; i < end; i += team)
            sum += arena[op.y + base + i] * arena[op.z + base + i] * vectors[op.weight + i];
        sum = team_sum(sum, shift);
        for (uint i = begin + lane; i < end; i += team)
            arena[op.to + base + i] = arena[op.x + base + i] + sum * arena[op.u + base + i];
        barrier();
    }
}

/* Elementwise ops. */
void each_column(row_op op, uint row)
{
    uint source = op.kind == OP_SELECT_ROWS ? output_row(row) : row;
    for (uint i = tid; i < op.columns; i += THREADS) {
        uint at = row * op.columns + i;
        float x = arena[op.x + source * op.columns + i], result = x;
        if (op.kind == OP_GLU)
            result = activate(op.activation, x) * arena[op.y + at];
        else if (op.kind == OP_ADD)
            result = arena[op.to + at] + x;
        else if (op.kind == OP_MUL)
            result = x * arena[op.y + at];
        else if (op.kind == OP_LERP)
            result = x + (arena[op.y + at] - x) * vector_or_row(op, i, row);
        else if (op.kind == OP_RWKV_KEY)
            result = x * ((arena[op.y + at] - 1.0) * vectors[op.weight + i] + 1.0);
        else if (op.kind == OP_SOFTCAP)
            result = op.number * stable_tanh(x / op.number);
        arena[op.to + at] = result;
    }
}

/* A row as int8: [columns / 4] words of codes, then a scale for each 32, then for each the two sums of 16 codes. */
void round_row(row_op op, uint row)
{
    uint blocks = op.columns / 32, x = op.x + row * op.columns, at = row * (op.columns / 4 + 2 * blocks);
    for (uint first = 0; first < blocks; first += THREADS / 8) {
        uint block = first + tid / 8, part = tid & 7u;
        vec4 four = vec4(0);
        uint most = 0;
        if (block < blocks) {
            for (uint j = 0; j < 4; j++) {
                four[j] = arena[x + block * 32 + part * 4 + j];
                most = max(most, floatBitsToUint(four[j]) & 0x7fffffffu);
            }
        }
        barrier();
        largest[tid] = most;
        barrier();
        for (uint j = 0; j < 8; j++)
            most = max(most, largest[(tid & ~7u) + j]);
        vec2 scale = byte_scale(most);
        int sum = 0;
        uint word = 0;
        for (uint j = 0; j < 4; j++) {
            precise float scaled = four[j] * scale.y;
            int code = scale.y != 0.0 ? int(roundEven(scaled)) : 0;
            sum += code;
            word |= (uint(code) & 0xffu) << (8 * j);
        }
        barrier();
        sums[tid] = float(sum);
        barrier();
        if (block < blocks) {
            rounded[at + block * 8 + part] = word;
            if (part == 0) {
                int low = int(sums[tid] + sums[tid + 1] + sums[tid + 2] + sums[tid + 3]);
                int upper = int(sums[tid + 4] + sums[tid + 5] + sums[tid + 6] + sums[tid + 7]);
                rounded[at + op.columns / 4 + block] = floatBitsToUint(scale.x);
                rounded[at + op.columns / 4 + blocks + block] = (uint(low) & 0xffffu) | uint(upper) << 16;
            }
        }
    }
}

/* A row as halves, multiplied by a power of two that brings the largest element near the upper end of their range. */
void round_row_to_halves(row_op op, uint row)
{
    uint x = op.x + row * op.columns, at = row * (op.columns / 2 + ROW_HALVES_WORDS), most = 0;
    for (uint i = tid; i < op.columns; i += THREADS)
        most = max(most, floatBitsToUint(arena[x + i]) & 0x7fffffffu);
    largest[tid] = most;
    barrier();
    for (uint step = THREADS / 2; step > 0; step /= 2) {
        if (tid < step)
            largest[tid] = max(largest[tid], largest[tid + step]);
        barrier();
    }
    most = largest[0];
    bool is_finite = most < 0x7f800000u;
    /* 2^14 <= largest * range < 2^15. The exponents are limited so that neither range is subnormal. */
    uint range = clamp(268 - (most >> 23), 1u, 253u) << 23;
    for (uint i = tid; i < op.columns / 2; i += THREADS) {
        precise vec2 pair = vec2(arena[x + 2 * i], arena[x + 2 * i + 1]) * uintBitsToFloat(range);
        rounded[at + i] = half_bits(pair.x) | half_bits(pair.y) << 16;
    }
    if (tid == 0)
        rounded[at + op.columns / 2] = is_finite ? 0x7f000000u - range : 0x7fc00000u;
}

void run_ops(uint row)
{
    for (uint i = 0; i < arguments.op_count; i++) {
        row_op op = ops[arguments.first_op + i];
        switch (op.kind) {
        case OP_EMBED:
            embed(op, row);
            break;
        case OP_RMS_NORM:
        case OP_LAYER_NORM:
        case OP_L2_NORM:
            normalise(op, row);
            break;
        case OP_ROPE:
            rotate(op, row);
            break;
        case OP_KV_APPEND:
            append(op, row);
            break;
        case OP_TOKEN_SHIFT:
            shift_row(op, row);
            break;
        case OP_RWKV_BONUS:
            add_bonus(op, row);
            break;
        case ROW_ROUND:
            round_row(op, row);
            break;
        case ROW_HALVES:
            round_row_to_halves(op, row);
            break;
        default:
            each_column(op, row);
        }
        memoryBarrierBuffer();
        barrier();
    }
}

void main()
{
    tid = gl_LocalInvocationIndex;
    for (uint row = gl_WorkGroupID.x; row < live_rows(arguments.row_kind); row += gl_NumWorkGroups.x)
        run_ops(row);
}
