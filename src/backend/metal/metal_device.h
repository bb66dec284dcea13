/* Devices, buffers and pipelines of Metal. */
#ifndef METAL_DEVICE_H
#define METAL_DEVICE_H

#include "backend/metal/metal_shared.h"
#include "backend/metal/objc.h"

enum { METAL_NAME_BYTES = 96 };

/* A device that can run the kernels: unified memory, simdgroups as of Apple7. */
struct metal_physical {
    objc_id handle;
    char name[METAL_NAME_BYTES];
    uint64_t working_set;
};

/* Devices are found once. */
uint32_t metal_device_count(void);
const struct metal_physical *metal_device_at(uint32_t number); /* NULL beyond the last */
const char *metal_why_none(void);
const char *metal_unusable(uint32_t index); /* why a device is left out; NULL beyond the last such device */

struct metal_buffer {
    objc_id handle;
    uint8_t *bytes;
    uint64_t size;
};

struct metal_device {
    const struct metal_physical *physical;
    uint64_t working_set, largest_buffer; /* in bytes; the system may change the first */
    objc_id queue, event;
    objc_id library, fast_library; /* fast_library: NULL where the compiler has no math modes */
    objc_id residency;             /* the set of all buffers; NULL: there are no such sets, before macOS 15 */
    bool shows_ids;                /* kernels can store for the host while their command buffer runs */
    uint64_t objects;              /* made so far: buffers and pipelines */
};

enum salvo_status metal_device_open(uint32_t number, struct metal_device *out);
void metal_device_close(struct metal_device *device);

/* A buffer that every command buffer of the queue may use; then makes all of them resident. Both do nothing
 * without residency sets. */
void metal_keep_resident(const struct metal_device *device, const struct metal_buffer *buffer);
void metal_request_residency(const struct metal_device *device);

/* The error of a call of Metal, with its own text. */
enum salvo_status metal_fail(const struct metal_device *device, const char *call, objc_id error);

/* Memory that host and device share; `what` names it in errors. */
enum salvo_status metal_buffer_open(
    struct metal_device *device, uint64_t size, const char *what, struct metal_buffer *out);
/* Whole pages of the host's memory, which outlive the buffer. */
enum salvo_status metal_buffer_map(
    struct metal_device *device, const uint8_t *bytes, uint64_t size, struct metal_buffer *out);
void metal_buffer_close(struct metal_buffer *buffer);

/* A kernel with its function constants, from the fast library where it is one of the kernels of that. */
struct metal_pipeline {
    const char *kernel;
    uint32_t constants[METAL_CONSTANTS];
    objc_id handle;
};

enum salvo_status metal_pipeline_open(
    struct metal_device *device, uint32_t threads, struct metal_pipeline *in_out);

/* Bytes of a page, which no-copy buffers are multiples of. */
uint64_t metal_page(void);

#endif
