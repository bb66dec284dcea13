#define ISA(name) avx512_##name
enum { LANES_1 = 64, LANES_2 = 64, LANES_3 = 64, LANES_4 = 64 };
#include "backend/cpu/attend_template.h"
