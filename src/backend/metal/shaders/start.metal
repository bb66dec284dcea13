/* The beginning of the source: the types that all files after this one use, the shared structs among them. */
#ifdef METAL_SYSTEM_SCOPE /* memory that host and device see alike, from macOS 15 on */
#pragma METAL internals : enable
#endif
#include <metal_stdlib>
using namespace metal;
