/*
 * Computes the queries and the token's own key and value from the input row, for fused attention: each workgroup
 * computes its rows in less time than a separate dispatch takes. Rows of a matrix are divided into pieces of one or
 * more blocks, and the pieces of all rows are distributed over all invocations. Their partial sums are stored in
 * `parts` and added in the same order as in matvec.comp: neighbours first.
 */
const bool HAS_NORM = true, HAS_MEAN = false;
#define MOST_BYTES 1024
#define MOST_BLOCKS 32
#include "input.glsl"

const uint BLOCKS = COLUMNS / 32;
const uint EACH_PIECE = 1u << (HEADS_AND_LANES >> ATTEND_PIECE & 7u); /* blocks */
const uint PIECES = (BLOCKS + EACH_PIECE - 1) / EACH_PIECE;           /* pieces of a row */
/* Pieces of one invocation, and the number of them that are loaded ahead. */
const uint PIECES_EACH = ((HEADS + 2) * HEAD_DIM * PIECES + THREADS - 1) / THREADS;
const uint AHEAD = HEADS_AND_LANES >> ATTEND_AHEAD;

packed_block pieces_ahead[AHEAD * EACH_PIECE];

void begin_input()
{
    x_at = token.x;
    norm_at = token.norm;
    norm_epsilon = token.epsilon;
    hold_input(0);
}

/* Rows are numbered as in `rows`. Matrix 0 computes queries, 1 the key, 2 the value. */
uint matrix_of(uint row) { return row < HEADS ? 0 : row - HEADS + 1; }
uint first_row_of(uint row) { return (row < HEADS ? first_head + row : kv_head) * HEAD_DIM; }
uint type_of(uint row) { return has_one_type() ? only_type() : token.types >> (8 * matrix_of(row)) & 0xffu; }
uint piece_at(uint first, uint n) { return first + n * THREADS + tid; }
uint block_at(uint piece, uint b) { return piece % PIECES * EACH_PIECE + b; }

/* Loads up to AHEAD pieces from `first` on, limited to pieces from .. count - 1. */
void load_pieces(uint first, uint from, uint count)
{
    [[unroll]] for (uint n = 0; n < AHEAD; n++) {
        uint piece = piece_at(first, n), row = piece / (PIECES * HEAD_DIM), inside = piece / PIECES - row * HEAD_DIM;
        uint i = matrix_of(row), codes = i == 0 ? token.codes[0] : i == 1 ? token.codes[1] : token.codes[2],
             high = i == 0 ? token.high[0] : i == 1 ? token.high[1] : token.high[2],
             scales = i == 0 ? token.scales[0] : i == 1 ? token.scales[1] : token.scales[2];
        type = type_of(row);
        [[unroll]] for (uint b = 0; b < EACH_PIECE; b++) {
            if (piece >= from && piece < count && block_at(piece, b) < BLOCKS)
                pieces_ahead[n * EACH_PIECE + b] =
                    load_block(type, codes, high, scales, BLOCKS, first_row_of(row) + inside, block_at(piece, b));
        }
    }
}

/* Pairwise summation of `count` numbers: whether number `i` is one that another is added to at `level`. These loops
 * have a constant number of iterations, so that they are unrolled and arrays stay in registers. */
bool is_joined(uint i, uint level, uint count) { return (i & ((2u << level) - 1)) == 0 && i + (1u << level) < count; }

/* The sums of the pieces loaded ahead; loads the next ones. */
void multiply_pieces(uint first, uint count)
{
    packed_block now[AHEAD * EACH_PIECE];
    [[unroll]] for (uint i = 0; i < AHEAD * EACH_PIECE; i++)
        now[i] = pieces_ahead[i];
    if (PIECES_EACH > AHEAD)
        load_pieces(first + AHEAD * THREADS, 0, count);
    [[unroll]] for (uint n = 0; n < AHEAD; n++) {
        uint piece = piece_at(first, n);
        float of_blocks[EACH_PIECE];
        if (piece >= count)
            continue;
        type = type_of(piece / (PIECES * HEAD_DIM));
        [[unroll]] for (uint b = 0; b < EACH_PIECE; b++) {
            uint block = block_at(piece, b);
            of_blocks[b] = block < BLOCKS ? dot_block(now[n * EACH_PIECE + b], block, block) : 0.0;
        }
        [[unroll]] for (uint level = 0; level < 3; level++) {
            [[unroll]] for (uint b = 0; b < EACH_PIECE; b++) {
                if (is_joined(b, level, EACH_PIECE))
                    of_blocks[b] += of_blocks[b + (1u << level)];
            }
        }
        parts[piece] = of_blocks[0];
    }
}

/* Computes `count` pieces, the first of which are already loaded. */
void project(uint count)
{
    norm_input(moments_of_input(), 0);
    store_bytes();
    barrier();
    uint first = 0;
    do {
        multiply_pieces(first, count);
        first += AHEAD * THREADS;
    } while (PIECES_EACH > AHEAD && first < count);
    barrier();
}

float projected(uint row, uint column)
{
    uint at = (row * HEAD_DIM + column) * PIECES, i = matrix_of(row),
         bias = i == 0 ? token.bias[0] : i == 1 ? token.bias[1] : token.bias[2];
    float of_pieces[PIECES];
    [[unroll]] for (uint n = 0; n < PIECES; n++)
        of_pieces[n] = parts[at + n];
    [[unroll]] for (uint level = 0; level < 5; level++) {
        [[unroll]] for (uint n = 0; n < PIECES; n++) {
            if (is_joined(n, level, PIECES))
                of_pieces[n] += of_pieces[n + (1u << level)];
        }
    }
    return bias == NO_OPERAND ? of_pieces[0] : of_pieces[0] + vectors[bias + first_row_of(row) + column];
}
