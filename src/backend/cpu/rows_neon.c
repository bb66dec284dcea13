#define ISA(name) neon_##name
#include "backend/cpu/rows_template.h"
