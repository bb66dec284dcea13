/* The compiled kernels that the build embeds: for every kind of device, one image for each .cu. */
#ifndef CUDA_CUDA_IMAGES_H
#define CUDA_CUDA_IMAGES_H

struct cuda_image {
    const char *name; /* of the file, without its ending */
    const unsigned char *bytes;
};

extern const struct cuda_image cuda_images[]; /* ends with a name of NULL */

#endif
