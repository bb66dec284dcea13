salvo_fuzz(fuzz_tokenizer SOURCES fuzz_tokenizer.c ../unit/text_sample.c ../unit/gguf_sample.c DICTIONARY tokenizer.dict)
salvo_fuzz(fuzz_template SOURCES fuzz_template.c SEEDS ../templates/families DICTIONARY template.dict)
