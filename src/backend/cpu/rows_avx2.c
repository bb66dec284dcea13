#define ISA(name) avx2_##name
#include "backend/cpu/rows_template.h"
