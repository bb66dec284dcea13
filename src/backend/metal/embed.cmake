# Writes the files INPUTS and a final zero as numbers to OUTPUT.
set(source)
foreach(input ${INPUTS})
  file(READ ${input} text HEX)
  string(APPEND source ${text})
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," source "${source}")
file(WRITE ${OUTPUT} "${source}0\n")
