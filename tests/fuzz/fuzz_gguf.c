/* Any bytes are either a GGUF file, all of which can be looked at, or refused. */
#include "unit/gguf_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)open_and_touch(data, size);
    return 0;
}
