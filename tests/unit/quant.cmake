salvo_test(test_half SOURCES test_half.c LABELS quick one_thread)
salvo_test(test_quant SOURCES test_quant.c LABELS quick one_thread)
salvo_test(test_mix SOURCES test_mix.c LABELS quick one_thread)

# Against the Python package gguf and llama.cpp's quantiser, through a program that turns blocks to floats and back.
add_executable(quant_tool quant_tool.c)
target_include_directories(quant_tool PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(quant_tool PRIVATE _GNU_SOURCE)
target_link_libraries(quant_tool PRIVATE salvo-lib)
salvo_python_test(test_quant_reference test_quant_reference.py $<TARGET_FILE:quant_tool>)
