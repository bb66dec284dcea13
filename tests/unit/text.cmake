salvo_test(test_text_tokenizer SOURCES test_text_tokenizer.c LABELS quick one_thread)
salvo_test(test_text_hostile SOURCES test_text_hostile.c LABELS quick one_thread)
salvo_test(test_text_vectors SOURCES test_text_vectors.c LABELS quick one_thread)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
salvo_test(test_text_split SOURCES test_text_split.c LABELS quick one_thread LIBRARIES ${PCRE2_LIBRARY})
set_tests_properties(test_text_tokenizer test_text_split PROPERTIES TIMEOUT 120)

# Against llama.cpp, through a program that tokenizes many texts at once.
add_executable(text_tool text_tool.c)
target_link_libraries(text_tool PRIVATE sized-text)
salvo_python_test(test_text_llama test_text_llama.py $<TARGET_FILE:text_tool> 4000)
set_tests_properties(test_text_llama PROPERTIES COST 40) # begins before shorter ones
