/*
 * The ops as data: operands, rows, in-place rules, parameters and tolerance of each kind. Builder, printer,
 * lowering and `verify` read this table; op.h defines what an op computes.
 */
#ifndef PROGRAM_OP_TABLE_H
#define PROGRAM_OP_TABLE_H

#include "program/op.h"

enum operand_kind {
    OPERAND_NONE,
    OPERAND_ROWS,           /* scratch that an earlier op wrote, of the shape of the op's other rows */
    OPERAND_VECTOR,         /* a weight of one row: one element per column of the rows */
    OPERAND_VECTOR_OR_ROWS, /* either */
    OPERAND_MATRIX,         /* a weight that is multiplied */
    OPERAND_TABLE,          /* a weight whose rows are looked up */
    OPERAND_TOKENS,         /* the program's tokens */
};

enum operand_flags {
    OPERAND_OPTIONAL = 1,
    OPERAND_IN_PLACE = 2,      /* may be the buffer that the op writes */
    OPERAND_OTHER_COLUMNS = 4, /* the build_ function checks the number of columns */
    OPERAND_TOKEN_ROWS = 8,    /* rows of tokens, whatever rows the op has */
};

struct operand {
    const char *name;
    enum operand_kind kind;
    unsigned flags;
};

/* How the op uses op.out. */
enum out_kind {
    OUT_WRITTEN,  /* scratch; every live row gets new values */
    OUT_ADDED,    /* scratch; the result is added to it */
    OUT_MATMUL,   /* added with `accumulate`, written without */
    OUT_IN_PLACE, /* it is the first input */
    OUT_TOKENS,   /* the program's tokens */
    OUT_NONE,
};

enum state_kind {
    STATE_NONE,
    STATE_APPENDED, /* cache: writes the positions of its rows */
    STATE_READ,     /* cache: reads positions that kv_append wrote before in the step */
    STATE_REPLACED, /* recurrent state: reads it and writes its successor */
};

struct state_operand {
    const char *name;
    enum state_kind kind;
};

enum op_rows { OP_ROWS_ANY, OP_ROWS_TOKENS, OP_ROWS_OUTPUTS };

enum parameter_kind {
    PARAMETER_POSITIVE,     /* float > 0 */
    PARAMETER_NOT_NEGATIVE, /* float >= 0 */
    PARAMETER_GROUP,  /* uint32_t: columns of a group, a divisor of all columns; hidden for all columns */
    PARAMETER_NUMBER, /* uint32_t, checked by the build_ function */
    PARAMETER_ROUNDING,
    PARAMETER_ACTIVATION,
    PARAMETER_FLAG, /* bool */
};

/* When the printer leaves a parameter out. */
enum parameter_hidden { HIDDEN_NEVER, HIDDEN_AT_ZERO, HIDDEN_AT_ONE };

struct parameter {
    const char *name;
    enum parameter_kind kind;
    size_t offset; /* in struct op */
    enum parameter_hidden hidden;
    bool is_joined; /* printed without a comma: "heads 9 of 64" */
};

/* Whether a row op can run on the columns of one head, inside the phase of a wkv7. */
enum head_scope {
    HEAD_SCOPE_NONE,
    HEAD_SCOPE_COLUMN, /* each column on its own */
    HEAD_SCOPE_GROUP,  /* where its groups divide a head */
    HEAD_SCOPE_HEAD,   /* where it has the heads of the wkv7 */
};

enum { OP_MAX_PARAMETERS = 7 };

struct op_info {
    const char *name;
    float tolerance; /* of matmul: op_tolerance */
    enum op_rows rows;
    struct operand inputs[OP_MAX_INPUTS]; /* op.inputs, in the order of the build_ function */
    enum out_kind out;
    struct state_operand states[OP_MAX_STATES]; /* op.states */
    struct parameter parameters[OP_MAX_PARAMETERS];
    bool has_own_phase;      /* not a row op: lowering gives it a phase of its own */
    bool reads_previous_row; /* of the run: in a batch, all rows of its input are written before */
    enum head_scope head_scope;
};

extern const struct op_info op_infos[OP_KIND_COUNT];

/* How far two backends may differ. Matmul: it depends on the rounding. */
float op_tolerance(const struct op *op);

const char *rounding_name(enum rounding rounding);

/* Whether the op adds its result to op.out. */
bool op_adds(const struct op *op);

#endif
