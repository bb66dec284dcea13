/*
 * libcurl, opened when a command first needs it: salvo builds without its headers and runs without the
 * library. The numbers below are part of libcurl's binary interface, which has been the same since 7.16.
 */
#ifndef TOOLS_CURL_LIBRARY_H
#define TOOLS_CURL_LIBRARY_H

enum curl_option {
    CURL_WRITE_DATA = 10001,
    CURL_URL = 10002,
    CURL_RANGE = 10007,
    CURL_ERROR_BUFFER = 10010,
    CURL_USER_AGENT = 10018,
    CURL_LOW_SPEED_LIMIT = 19, /* bytes in a second */
    CURL_LOW_SPEED_TIME = 20,  /* seconds below the limit that end a transfer */
    CURL_HTTP_HEADER = 10023,
    CURL_HEADER_DATA = 10029,
    CURL_CA_FILE = 10065,
    CURL_CONNECT_TIMEOUT = 78,
    CURL_CA_FOLDER = 10097,
    CURL_NO_SIGNAL = 99,
    CURL_PROTOCOLS = 181,
    CURL_PROXY_CA_FILE = 10246,
    CURL_WRITE_FUNCTION = 20011,
    CURL_HEADER_FUNCTION = 20079,
};

enum { CURL_HTTP_AND_HTTPS = 3, CURL_GLOBAL_ALL = 3, CURL_ERROR_SIZE = 256 };

enum curl_information { CURL_REDIRECT_URL = 0x10001f, CURL_CONNECT_TIME = 0x300005 };

enum curl_code {
    CURL_OK = 0,
    CURL_UNSUPPORTED_PROTOCOL = 1,
    CURL_MALFORMED_URL = 3,
    CURL_NO_PROXY_ADDRESS = 5,
    CURL_NO_ADDRESS = 6,
    CURL_NO_CONNECTION = 7,
    CURL_TIMED_OUT = 28,
    CURL_BAD_CERTIFICATE = 60,
    CURL_BAD_CA_FILE = 77,
};

struct curl_library {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_perform)(void *easy);
    int (*easy_getinfo)(void *easy, int information, ...);
    const char *(*easy_strerror)(int code);
    void (*easy_cleanup)(void *easy);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
};

/* NULL after an error message if the machine has no libcurl. $SALVO_CURL_LIBRARY may name the file. */
const struct curl_library *curl_library(void);

#endif
