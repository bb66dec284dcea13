#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, SYSTEMD_FIRST = 3, UNSENT_IN_KERNEL = 16 * 1024 };

static bool prepare(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static int port_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address)->sin6_port);
    return 0;
}

static int open_address(const struct addrinfo *info, int port)
{
    struct sockaddr_storage address;
    memcpy(&address, info->ai_addr, info->ai_addrlen);
    if (address.ss_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
    else if (address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
    const int fd = socket(info->ai_family, SOCK_STREAM, 0);
    if (fd < 0)
        return -1;
    const int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.ss_family == AF_INET6) /* "::" is meant for both families */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (prepare(fd) && bind(fd, (const struct sockaddr *)&address, info->ai_addrlen) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

/* A name may be listed twice with the same address. */
static bool listed_before(const struct addrinfo *list, const struct addrinfo *info)
{
    for (; list != info; list = list->ai_next) {
        if (list->ai_addrlen == info->ai_addrlen &&
            memcmp(list->ai_addr, info->ai_addr, info->ai_addrlen) == 0)
            return true;
    }
    return false;
}

bool listen_tcp(const char *host, int port, struct listen_sockets *out, char *error, size_t room)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *list = NULL;
    *out = (struct listen_sockets){0};
    if (port < 0 || port > 65535) {
        snprintf(error, room, "port %d: must be 0 to 65535", port);
        return false;
    }
    const int failure = getaddrinfo(host, NULL, &hints, &list);
    if (failure) {
        snprintf(error, room, "host '%s': %s", host, gai_strerror(failure));
        return false;
    }
    int first_error = 0;
    for (const struct addrinfo *info = list; info && out->count < LISTEN_LIMIT; info = info->ai_next) {
        if (listed_before(list, info))
            continue;
        const int fd = open_address(info, out->port ? out->port : port);
        if (fd < 0) {
            /* Another program listens on this port at one of the addresses: some clients would reach
             * that program. */
            if (errno == EADDRINUSE || !first_error)
                first_error = errno;
            continue;
        }
        out->fds[out->count++] = fd;
        out->port = port_of(fd);
    }
    freeaddrinfo(list);
    if (out->count && first_error != EADDRINUSE)
        return true;
    listen_close(out);
    snprintf(error, room, "cannot listen on %s port %d: %s", host, port, strerror(first_error));
    return false;
}

bool listen_add_tcp(const char *host, int port, struct listen_sockets *sockets, char *error, size_t room)
{
    struct listen_sockets more;
    if (!listen_tcp(host, port, &more, error, room))
        return false;
    for (size_t i = 0; i < more.count; i++) {
        if (sockets->count < LISTEN_LIMIT)
            sockets->fds[sockets->count++] = more.fds[i];
        else
            close(more.fds[i]);
    }
    return true;
}

/* 0 if nothing listens on the path and it is free now, or errno. */
static int free_path(const struct sockaddr_un *address)
{
    struct stat info;
    if (lstat(address->sun_path, &info) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISSOCK(info.st_mode))
        return EEXIST;
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0)
        return errno;
    int failure = prepare(fd) ? 0 : errno;
    if (!failure)
        failure = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? EADDRINUSE : errno;
    close(fd);
    if (failure == EAGAIN) /* its queue is full: something listens */
        return EADDRINUSE;
    if (failure != ECONNREFUSED)
        return failure;
    return unlink(address->sun_path) == 0 ? 0 : errno;
}

bool listen_unix(const char *path, struct listen_sockets *out, char *error, size_t room)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info = {0};
    int fd = -1;
    *out = (struct listen_sockets){0};
    if (!*path || strlen(path) >= sizeof address.sun_path) {
        snprintf(error, room, "Unix socket: its path must have 1 to %zu bytes: '%s'",
            sizeof address.sun_path - 1, path);
        return false;
    }
    memcpy(address.sun_path, path, strlen(path));
    int failure = free_path(&address);
    if (!failure) {
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || !prepare(fd) || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
            failure = errno;
    }
    if (!failure &&
        (listen(fd, BACKLOG) != 0 || lstat(path, &info) != 0 || !(out->unix_path = strdup(path)))) {
        failure = errno;
        unlink(path);
    }
    if (failure) {
        if (fd >= 0)
            close(fd);
        snprintf(error, room, "Unix socket '%s': %s", path, strerror(failure));
        return false;
    }
    out->unix_device = info.st_dev;
    out->unix_inode = info.st_ino;
    out->fds[out->count++] = fd;
    return true;
}

static bool number_of(const char *name, long *out)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text || !*text)
        return false;
    errno = 0;
    *out = strtol(text, &end, 10);
    return !*end && !errno && *out >= 0;
}

bool listen_systemd(struct listen_sockets *out, char *error, size_t room)
{
    long pid = 0, count = 0;
    *out = (struct listen_sockets){0};
    const bool given =
        number_of("LISTEN_PID", &pid) && pid == (long)getpid() && number_of("LISTEN_FDS", &count);
    unsetenv("LISTEN_PID"); /* not for programs that this one starts */
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!given)
        return true;
    if (count > LISTEN_LIMIT) {
        snprintf(error, room, "LISTEN_FDS: %ld sockets, at most %d are served", count, LISTEN_LIMIT);
        return false;
    }
    for (long i = 0; i < count; i++) {
        const int fd = SYSTEMD_FIRST + (int)i;
        int listens = 0, type = 0;
        socklen_t size = sizeof listens, type_size = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens ||
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 || type != SOCK_STREAM ||
            !prepare(fd)) {
            snprintf(error, room, "LISTEN_FDS: descriptor %d is not a listening stream socket", fd);
            return false;
        }
        out->fds[out->count++] = fd;
        if (!out->port)
            out->port = port_of(fd);
    }
    return true;
}

void listen_close(struct listen_sockets *sockets)
{
    struct stat info;
    for (size_t i = 0; i < sockets->count; i++)
        close(sockets->fds[i]);
    /* Another server may have replaced the file. */
    if (sockets->unix_path && lstat(sockets->unix_path, &info) == 0 && info.st_dev == sockets->unix_device &&
        info.st_ino == sockets->unix_inode)
        unlink(sockets->unix_path);
    free(sockets->unix_path);
    sockets->count = 0;
    sockets->unix_path = NULL;
}

int listen_accept(int fd)
{
    const int accepted = accept(fd, NULL, NULL);
    if (accepted < 0)
        return -1;
    if (!prepare(accepted)) {
        const int failure = errno;
        close(accepted);
        errno = failure;
        return -1;
    }
    /* On a Unix socket these fail, which is right. */
    const int on = 1, unsent = UNSENT_IN_KERNEL;
    setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef TCP_NOTSENT_LOWAT
    /* A slow reader's bytes stay here, where they are counted, and not in the kernel. */
    setsockopt(accepted, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
#endif
    return accepted;
}

void listen_peer(int fd, char *out, size_t room)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    char text[INET6_ADDRSTRLEN] = "?";
    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0) {
        snprintf(out, room, "?");
    } else if (address.ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
        snprintf(out, room, "%s:%d", text, ntohs(four->sin_port));
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
        snprintf(out, room, "[%s]:%d", text, ntohs(six->sin6_port));
    } else {
        snprintf(out, room, "unix");
    }
}
