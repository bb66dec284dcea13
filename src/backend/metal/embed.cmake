# Writes the files INPUTS as one text to SOURCE, and this text and a final zero as numbers to OUTPUT.
file(WRITE ${SOURCE} "")
foreach(input ${INPUTS})
  file(READ ${input} text)
  file(APPEND ${SOURCE} "${text}")
endforeach()
file(READ ${SOURCE} source HEX)
string(REGEX REPLACE "(..)" "0x\\1," source "${source}")
file(WRITE ${OUTPUT} "${source}0\n")
