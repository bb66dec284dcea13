#define ISA(name) avx512_##name
#include "backend/cpu/recurrent_template.h"
