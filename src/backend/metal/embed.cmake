# Writes a line that defines METAL_FAST_MATH, then the files INPUTS and a final zero as numbers to OUTPUT.
string(HEX "#define METAL_FAST_MATH\n" source)
foreach(input ${INPUTS})
  file(READ ${input} text HEX)
  string(APPEND source ${text})
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," source "${source}")
file(WRITE ${OUTPUT} "${source}0\n")
