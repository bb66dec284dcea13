/* TLS of the server's connections; without OpenSSL in the build tls_open fails and says so. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct bufferevent;
struct event_base;
struct tls;

/* Reads both PEM files and checks that they belong together. */
struct tls *tls_open(const char *key_file, const char *cert_file, char *error, size_t room);
void tls_close(struct tls *tls);
/* A buffered connection that owns the descriptor; NULL if memory is short, then the descriptor is open still.
 */
struct bufferevent *tls_accept(struct tls *tls, struct event_base *base, int fd);
/* Sends the client the end of the TLS stream. */
void tls_finish(struct bufferevent *connection);

#endif
