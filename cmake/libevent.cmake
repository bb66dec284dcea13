# libevent and OpenSSL for `salvo serve`. Without libevent the command is left out, without OpenSSL its TLS.
# libevent is linked statically where there is a static library, so that the program runs on machines without it; OpenSSL is
# not, since it gets security fixes.
find_library(LIBEVENT_LIBRARY NAMES libevent_core.a event_core)
find_library(LIBEVENT_OPENSSL_LIBRARY NAMES libevent_openssl.a event_openssl)
find_path(LIBEVENT_INCLUDE event2/bufferevent.h)
find_library(SSL_LIBRARY ssl)
find_library(CRYPTO_LIBRARY crypto)
find_path(SSL_INCLUDE openssl/ssl.h)
if(LIBEVENT_LIBRARY AND LIBEVENT_INCLUDE)
  add_library(libevent UNKNOWN IMPORTED)
  set_target_properties(libevent PROPERTIES IMPORTED_LOCATION ${LIBEVENT_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LIBEVENT_INCLUDE})
  if(LIBEVENT_OPENSSL_LIBRARY AND SSL_LIBRARY AND CRYPTO_LIBRARY AND SSL_INCLUDE)
    add_library(libevent-tls UNKNOWN IMPORTED)
    set_target_properties(libevent-tls PROPERTIES IMPORTED_LOCATION ${LIBEVENT_OPENSSL_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${SSL_INCLUDE} INTERFACE_COMPILE_DEFINITIONS SALVO_TLS
      INTERFACE_LINK_LIBRARIES "libevent;${SSL_LIBRARY};${CRYPTO_LIBRARY}")
    message(STATUS "salvo serve: with TLS")
  else()
    message(STATUS "salvo serve: without TLS (OpenSSL was not found: libssl-dev)")
  endif()
else()
  message(STATUS "salvo serve: left out (libevent was not found: libevent-dev)")
endif()
