/*
 * The matrix behind attention that makes its queries itself. Each head multiplies its columns, whose weights are there
 * before attention is done; the workgroup that ends last adds up what all heads have, in their order, and adds it to the
 * row: sooner than a dispatch of its own would have begun. A workgroup has one head.
 */
layout(std430, binding = BIND_TABLE) readonly buffer Table { matrix matrices[]; };

const uint HEAD_BLOCKS = HEAD_DIM < 32 ? 1 : HEAD_DIM / 32;
/* Rows of an invocation, and of how many of them the weights are asked for early. */
const uint OUTPUT_ROWS = (COLUMNS + THREADS - 1) / THREADS;
const uint MOST_AHEAD = HEAD_BLOCKS < 4 ? 4 / HEAD_BLOCKS : 1;
const uint OUTPUT_AHEAD = OUTPUT_ROWS < MOST_AHEAD ? OUTPUT_ROWS : MOST_AHEAD;

matrix output_matrix;
packed_block output_ahead[OUTPUT_AHEAD * HEAD_BLOCKS];

packed_block output_block(uint row, uint b)
{
    return load_block(type, output_matrix.codes, output_matrix.high, output_matrix.scales,
        gl_NumWorkGroups.x * HEAD_BLOCKS, row, first_head * HEAD_BLOCKS + b);
}

void ask_for_output()
{
    output_matrix = matrices[arguments.to];
    type = has_one_type() ? only_type() : output_matrix.type;
    [[unroll]] for (uint i = 0; i < OUTPUT_AHEAD * HEAD_BLOCKS; i++) {
        uint row = i / HEAD_BLOCKS * THREADS + tid;
        if (row < COLUMNS)
            output_ahead[i] = output_block(row, i % HEAD_BLOCKS);
    }
}

/* Where head `head`'s sums are, behind what splits have left. */
uint sums_at(uint head)
{
    return (gl_NumWorkGroups.x << arguments.splits_shift) * (HEAD_DIM + 2) + head * COLUMNS;
}

void multiply_output()
{
    [[unroll]] for (uint n = 0; n < OUTPUT_ROWS; n++) {
        uint row = n * THREADS + tid;
        float sum = 0;
        if (row >= COLUMNS)
            continue;
        [[unroll]] for (uint b = 0; b < HEAD_BLOCKS; b++) {
            packed_block block;
            if (n < OUTPUT_AHEAD)
                block = output_ahead[n * HEAD_BLOCKS + b];
            else
                block = output_block(row, b);
            sum += dot_block(block, first_head * HEAD_BLOCKS + b, b);
        }
        partials[sums_at(first_head) + row] = sum;
    }
}

/* Over all heads, eight on their way at once. */
float sum_of_heads(uint row)
{
    float sum = 0;
    for (uint head = 0; head < gl_NumWorkGroups.x; head += 8) {
        float eight[8];
        [[unroll]] for (uint j = 0; j < 8; j++)
            eight[j] = head + j < gl_NumWorkGroups.x ? partials[sums_at(head + j) + row] : 0.0;
        [[unroll]] for (uint j = 0; j < 8; j++)
            sum += eight[j];
    }
    return sum;
}

/* What attention has given is in `rows`. */
void add_output()
{
    barrier();
    [[unroll]] for (uint k = 0; k < HELD; k++)
        held[k] = four_at(0, k) < HEAD_DIM / 4 ? four_of_row(0, 4 * four_at(0, k)) : vec4(0);
    type = has_one_type() ? only_type() : output_matrix.type;
    keep_bytes();
    barrier();
    multiply_output();
    if (!is_last_of(gl_NumWorkGroups.x, gl_NumWorkGroups.x))
        return;
    for (uint row = tid; row < COLUMNS; row += THREADS) {
        float bias = output_matrix.bias == ROW_NOTHING ? 0.0 : vectors[output_matrix.bias + row];
        arena[output_matrix.to + row] += sum_of_heads(row) + bias;
    }
}
