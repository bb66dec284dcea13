/* For device code on the emulator, which has halves of its own. */
#include "cuda/emulator_numbers.h"
