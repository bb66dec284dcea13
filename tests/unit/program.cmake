set(gguf_model gguf_model.c gguf_sample.c)

salvo_test(test_program SOURCES test_program.c ${gguf_model} LABELS quick one_thread)
salvo_test(test_program_rwkv SOURCES test_program_rwkv.c ${gguf_model} LABELS quick one_thread)
salvo_test(test_placement SOURCES test_placement.c ${gguf_model} LABELS quick one_thread)
salvo_test(test_arch SOURCES test_arch.c ${gguf_model} LABELS quick one_thread)
salvo_test(test_arch_rwkv SOURCES test_arch_rwkv.c ${gguf_model} LABELS quick one_thread)
