#define ISA(name) avx2_##name
#include "backend/cpu/recurrent_template.h"
