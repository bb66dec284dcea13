#define ISA(name) avx512_##name
#include "backend/cpu/rows_template.h"
