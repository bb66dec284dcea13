salvo_fuzz(fuzz_tokenizer SOURCES fuzz_tokenizer.c ../unit/text_sample.c ../unit/gguf_sample.c DICTIONARY tokenizer.dict)
