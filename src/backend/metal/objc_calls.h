/*
 * Every message that the backend sends: name of the wrapper, class of the receiver, selector, result and
 * argument types. The wrappers, the selectors and the check of the types come from this table alone.
 *
 *     CALLn(name, class, "selector:", result, n argument types)    TELLn: the same without a result
 *
 * `class` is an enum objc_class. The messages of OBJC_MATH_OPTIONS and OBJC_RESIDENCY_... exist from macOS 15
 * on. The users of the table pass their macros for TELLn and CALLn.
 */
#define OBJC_CALLS(TELL0, TELL1, TELL2, TELL3, CALL0, CALL1, CALL2, CALL3, CALL4)                            \
    TELL0(release, OBJC_BUFFER, "release")                                                                   \
    CALL0(retain, OBJC_COMMAND_BUFFER, "retain", objc_id)                                                    \
    CALL1(string, OBJC_STRING_CLASS, "stringWithUTF8String:", objc_id, objc_text)                            \
    CALL0(utf8, OBJC_STRING, "UTF8String", objc_text)                                                        \
    CALL0(array_count, OBJC_ARRAY, "count", objc_count)                                                      \
    CALL1(array_item, OBJC_ARRAY, "objectAtIndex:", objc_id, objc_count)                                     \
    CALL0(error_code, OBJC_ERROR, "code", long)                                                              \
    CALL0(error_text, OBJC_ERROR, "localizedDescription", objc_id)                                           \
    CALL0(device_name, OBJC_DEVICE, "name", objc_id)                                                         \
    CALL0(has_unified_memory, OBJC_DEVICE, "hasUnifiedMemory", bool)                                         \
    CALL1(supports_family, OBJC_DEVICE, "supportsFamily:", bool, long)                                       \
    CALL0(largest_buffer, OBJC_DEVICE, "maxBufferLength", objc_count)                                        \
    CALL0(working_set, OBJC_DEVICE, "recommendedMaxWorkingSetSize", objc_count)                              \
    CALL0(new_queue, OBJC_DEVICE, "newCommandQueue", objc_id)                                                \
    CALL0(new_event, OBJC_DEVICE, "newSharedEvent", objc_id)                                                 \
    CALL2(new_buffer, OBJC_DEVICE, "newBufferWithLength:options:", objc_id, objc_count, objc_count)          \
    CALL4(new_buffer_without_copy, OBJC_DEVICE,                                                              \
        "newBufferWithBytesNoCopy:length:options:deallocator:", objc_id, objc_bytes, objc_count, objc_count, \
        objc_id)                                                                                             \
    CALL3(new_library, OBJC_DEVICE, "newLibraryWithSource:options:error:", objc_id, objc_id, objc_id,        \
        objc_id_place)                                                                                       \
    CALL2(new_pipeline, OBJC_DEVICE, "newComputePipelineStateWithFunction:error:", objc_id, objc_id,         \
        objc_id_place)                                                                                       \
    CALL0(new_compile_options, OBJC_COMPILE_OPTIONS_CLASS, "new", objc_id)                                   \
    TELL1(set_fast_math, OBJC_COMPILE_OPTIONS, "setFastMathEnabled:", bool)                                  \
    TELL1(set_math_mode, OBJC_MATH_OPTIONS, "setMathMode:", long)                                            \
    CALL0(new_constants, OBJC_CONSTANTS_CLASS, "new", objc_id)                                               \
    TELL3(                                                                                                   \
        set_constant, OBJC_CONSTANTS, "setConstantValue:type:atIndex:", objc_bytes, objc_count, objc_count)  \
    CALL3(new_function, OBJC_LIBRARY, "newFunctionWithName:constantValues:error:", objc_id, objc_id,         \
        objc_id, objc_id_place)                                                                              \
    CALL0(most_threads, OBJC_PIPELINE, "maxTotalThreadsPerThreadgroup", objc_count)                          \
    CALL0(simd_width, OBJC_PIPELINE, "threadExecutionWidth", objc_count)                                     \
    CALL0(contents, OBJC_BUFFER, "contents", objc_bytes)                                                     \
    CALL0(command_buffer, OBJC_QUEUE, "commandBufferWithUnretainedReferences", objc_id)                      \
    CALL1(encoder, OBJC_COMMAND_BUFFER, "computeCommandEncoderWithDispatchType:", objc_id, objc_count)       \
    TELL2(encode_signal, OBJC_COMMAND_BUFFER, "encodeSignalEvent:value:", objc_id, objc_count)               \
    TELL0(commit, OBJC_COMMAND_BUFFER, "commit")                                                             \
    TELL0(wait_until_completed, OBJC_COMMAND_BUFFER, "waitUntilCompleted")                                   \
    CALL0(status, OBJC_COMMAND_BUFFER, "status", objc_count)                                                 \
    CALL0(buffer_error, OBJC_COMMAND_BUFFER, "error", objc_id)                                               \
    CALL0(start_time, OBJC_COMMAND_BUFFER, "GPUStartTime", double)                                           \
    CALL0(end_time, OBJC_COMMAND_BUFFER, "GPUEndTime", double)                                               \
    TELL1(set_pipeline, OBJC_ENCODER, "setComputePipelineState:", objc_id)                                   \
    TELL3(set_buffer, OBJC_ENCODER, "setBuffer:offset:atIndex:", objc_id, objc_count, objc_count)            \
    TELL3(set_bytes, OBJC_ENCODER, "setBytes:length:atIndex:", objc_bytes, objc_count, objc_count)           \
    TELL2(                                                                                                   \
        set_threadgroup_memory, OBJC_ENCODER, "setThreadgroupMemoryLength:atIndex:", objc_count, objc_count) \
    TELL2(dispatch, OBJC_ENCODER, "dispatchThreadgroups:threadsPerThreadgroup:", struct objc_size,           \
        struct objc_size)                                                                                    \
    TELL1(barrier, OBJC_ENCODER, "memoryBarrierWithScope:", objc_count)                                      \
    TELL0(end_encoding, OBJC_ENCODER, "endEncoding")                                                         \
    CALL2(wait_for_event, OBJC_EVENT, "waitUntilSignaledValue:timeoutMS:", bool, objc_count, objc_count)     \
    CALL0(new_residency_descriptor, OBJC_RESIDENCY_DESCRIPTOR_CLASS, "new", objc_id)                         \
    CALL2(new_residency_set, OBJC_RESIDENCY_DEVICE, "newResidencySetWithDescriptor:error:", objc_id,         \
        objc_id, objc_id_place)                                                                              \
    TELL1(add_allocation, OBJC_RESIDENCY_SET, "addAllocation:", objc_id)                                     \
    TELL0(commit_residency, OBJC_RESIDENCY_SET, "commit")                                                    \
    TELL0(request_residency, OBJC_RESIDENCY_SET, "requestResidency")                                         \
    TELL1(add_residency_set, OBJC_RESIDENCY_QUEUE, "addResidencySet:", objc_id)
