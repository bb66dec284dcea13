#include "curl_library.h"

#include "command.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t member;
} functions[] = {
    {"curl_global_init", offsetof(struct curl_library, global_init)},
    {"curl_easy_init", offsetof(struct curl_library, easy_init)},
    {"curl_easy_setopt", offsetof(struct curl_library, easy_setopt)},
    {"curl_easy_perform", offsetof(struct curl_library, easy_perform)},
    {"curl_easy_getinfo", offsetof(struct curl_library, easy_getinfo)},
    {"curl_easy_strerror", offsetof(struct curl_library, easy_strerror)},
    {"curl_easy_cleanup", offsetof(struct curl_library, easy_cleanup)},
    {"curl_slist_append", offsetof(struct curl_library, slist_append)},
    {"curl_slist_free_all", offsetof(struct curl_library, slist_free_all)},
};

static void *open_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};
    const char *given = getenv("SALVO_CURL_LIBRARY");
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

const struct curl_library *curl_library(void)
{
    static struct curl_library found;
    static bool ready;
    if (ready)
        return &found;
    void *library = open_library();
    if (!library) {
        failure("downloads need libcurl, which this machine does not have; on Debian and Ubuntu: apt install "
                "curl");
        return NULL;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function) {
            failure("libcurl has no function %s", functions[i].name);
            return NULL;
        }
        memcpy((char *)&found + functions[i].member, &function, sizeof function);
    }
    if (found.global_init(CURL_GLOBAL_ALL) != CURL_OK) {
        failure("libcurl cannot be initialised");
        return NULL;
    }
    ready = true;
    return &found;
}
