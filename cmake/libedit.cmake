# Line editing for `salvo chat`, where libedit is found; without it lines are read as the terminal gives them.
find_library(LIBEDIT_LIBRARY NAMES edit)
find_path(LIBEDIT_INCLUDE histedit.h)
if(LIBEDIT_LIBRARY AND LIBEDIT_INCLUDE)
  add_library(libedit UNKNOWN IMPORTED)
  set_target_properties(libedit PROPERTIES IMPORTED_LOCATION ${LIBEDIT_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${LIBEDIT_INCLUDE} INTERFACE_COMPILE_DEFINITIONS SALVO_LIBEDIT)
endif()
