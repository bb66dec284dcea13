salvo_fuzz(fuzz_grammar SOURCES fuzz_grammar.c ../grammar/grammar_sample.c SEEDS seeds-grammar DICTIONARY grammar.dict)
salvo_fuzz(fuzz_tools SOURCES fuzz_tools.c ../grammar/tool_families.c SEEDS seeds-tools DICTIONARY tools.dict)
