#define ISA(name) neon_##name
#include "backend/cpu/recurrent_template.h"
