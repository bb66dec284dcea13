salvo_test(test_gguf_read SOURCES test_gguf_read.c LABELS quick one_thread)
salvo_test(test_gguf_hostile SOURCES test_gguf_hostile.c LABELS quick one_thread)
salvo_test(test_gguf_damage SOURCES test_gguf_damage.c LABELS quick one_thread)
target_link_options(test_gguf_damage PRIVATE -Wl,--wrap=calloc)
salvo_test(test_gguf_writer SOURCES test_gguf_writer.c LABELS quick one_thread)
salvo_test(test_gguf_split SOURCES test_gguf_split.c LABELS quick one_thread)
salvo_test(test_gguf_faults SOURCES ../faults/test_gguf_faults.c LABELS quick one_thread)

# The Python package gguf reads the files of our writer, and our reader its files.
add_executable(gguf_interop gguf_interop.c)
target_include_directories(gguf_interop PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(gguf_interop PRIVATE salvo-lib)
salvo_python_test(test_gguf_interop test_gguf_interop.py $<TARGET_FILE:gguf_interop>)

salvo_test(test_make_model SOURCES test_make_model.c LIBRARIES model-maker LABELS quick one_thread)
