set(gguf_sample gguf_sample.c)

salvo_test(test_gguf_read SOURCES test_gguf_read.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_hostile SOURCES test_gguf_hostile.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_damage SOURCES test_gguf_damage.c ${gguf_sample} LABELS quick)
target_link_options(test_gguf_damage PRIVATE -Wl,--wrap=calloc)
salvo_test(test_gguf_writer SOURCES test_gguf_writer.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_split SOURCES test_gguf_split.c ${gguf_sample} LABELS quick)
salvo_test(test_gguf_faults SOURCES ../faults/test_gguf_faults.c ${gguf_sample} LABELS quick)

# Python is taken from where the set-up script puts it, unless told otherwise; without it the test is skipped.
if(DEFINED ENV{SALVO_PYTHON})
  set(salvo_python_default $ENV{SALVO_PYTHON})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(salvo_python_default $ENV{XDG_CACHE_HOME}/salvo/venv/bin/python)
else()
  set(salvo_python_default $ENV{HOME}/.cache/salvo/venv/bin/python)
endif()
set(SALVO_PYTHON ${salvo_python_default} CACHE FILEPATH "a Python with the packages gguf and numpy, for tests")

add_executable(gguf_interop gguf_interop.c)
target_include_directories(gguf_interop PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(gguf_interop PRIVATE salvo-lib)
add_test(NAME test_gguf_interop COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python.sh ${SALVO_PYTHON}
  ${CMAKE_CURRENT_SOURCE_DIR}/test_gguf_interop.py $<TARGET_FILE:gguf_interop>)
set_tests_properties(test_gguf_interop PROPERTIES SKIP_RETURN_CODE 77)
