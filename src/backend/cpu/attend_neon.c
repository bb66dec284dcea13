#define ISA(name) neon_##name
enum { LANES_1 = 64, LANES_2 = 32, LANES_3 = 16, LANES_4 = 16 };
#include "backend/cpu/attend_template.h"
