salvo_fuzz(fuzz_grammar SOURCES fuzz_grammar.c ../grammar/grammar_sample.c SEEDS seeds-grammar DICTIONARY grammar.dict)
