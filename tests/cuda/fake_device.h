/* Another device than the driver without a GPU has: devices are looked at once in a program. */
#ifndef TESTS_CUDA_FAKE_DEVICE_H
#define TESTS_CUDA_FAKE_DEVICE_H

#include "backend/cuda/cuda_driver.h"

#include <string.h>

enum {
    FAKE_MULTIPROCESSORS = 3,
    FAKE_SHARED = 232448,   /* bytes of a block, as an H200 has them */
    MIDDLE_SHARED = 166912, /* an A100 */
    LITTLE_SHARED = 101376, /* GeForce RTX 30, 40 and 50 */
};

static inline void set_fake_device(int shared_bytes, int multiprocessors)
{
    const struct cuda_device *found = cuda_device_at(0);
    struct cuda_device *device;
    memcpy(&device, &found, sizeof device); /* the backend never changes what it has found */
    device->shared_bytes = shared_bytes;
    device->multiprocessors = multiprocessors;
}

#endif
