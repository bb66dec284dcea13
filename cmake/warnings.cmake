# The same warnings for every target, and sanitizers when asked for.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow
  "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>" -Wpointer-arith
  -Wcast-qual -Wvla -Wundef -Wno-missing-field-initializers)
# Newer compilers refuse these; older ones only warn.
set(refused -Werror=implicit-function-declaration -Werror=implicit-int -Werror=int-conversion
  -Werror=incompatible-pointer-types)
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${refused}>")
if(SALVO_WERROR)
  add_compile_options(-Werror)
endif()
if(SALVO_SANITIZE)
  add_compile_options(-fsanitize=${SALVO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -UNDEBUG) # sanitizer builds also check our own assertions
  add_link_options(-fsanitize=${SALVO_SANITIZE})
endif()
