set(gguf_sample gguf_sample.c)

salvo_test(test_gguf_read SOURCES test_gguf_read.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_hostile SOURCES test_gguf_hostile.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_damage SOURCES test_gguf_damage.c ${gguf_sample} LABELS quick)
target_link_options(test_gguf_damage PRIVATE -Wl,--wrap=calloc)
salvo_test(test_gguf_writer SOURCES test_gguf_writer.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_split SOURCES test_gguf_split.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_faults SOURCES ../faults/test_gguf_faults.c ${gguf_sample} LABELS quick)
