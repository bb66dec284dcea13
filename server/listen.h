/* Sockets that listen: on addresses, on a path, or passed by systemd. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LISTEN_LIMIT = 8 };

struct listen_sockets {
    int fds[LISTEN_LIMIT];
    size_t count;
    int port;        /* 0 if none listens on TCP */
    char *unix_path; /* to be removed at the end, or NULL */
    dev_t unix_device;
    ino_t unix_inode;
};

/* All addresses of the name, with the same port. */
bool listen_tcp(const char *host, int port, struct listen_sockets *out, char *error, size_t room);
/* Also listens on another port. */
bool listen_add_tcp(const char *host, int port, struct listen_sockets *sockets, char *error, size_t room);
/* A file of a socket that nothing listens on is replaced, any other file is an error. */
bool listen_unix(const char *path, struct listen_sockets *out, char *error, size_t room);
/* The sockets of LISTEN_FDS, which is meant for the process LISTEN_PID; none without these variables. */
bool listen_systemd(struct listen_sockets *out, char *error, size_t room);
void listen_close(struct listen_sockets *sockets);

/* A connection that does not block, or -1 with errno. */
int listen_accept(int fd);
/* "address:port", or "unix". */
void listen_peer(int fd, char *out, size_t room);

#endif
