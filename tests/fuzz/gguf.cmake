salvo_fuzz(fuzz_gguf SOURCES fuzz_gguf.c ../unit/gguf_sample.c SEEDS seeds DICTIONARY gguf.dict)
