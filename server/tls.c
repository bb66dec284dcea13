#include "tls.h"

#include <stdio.h>

#ifdef SALVO_TLS

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

struct tls {
    SSL_CTX *context;
};

static void explain(const char *file, char *error, size_t room)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(error, room, "TLS: %s: %s", file, reason ? reason : "not usable");
    ERR_clear_error();
}

struct tls *tls_open(const char *key_file, const char *cert_file, char *error, size_t room)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls)
        tls->context = SSL_CTX_new(TLS_server_method());
    if (!tls || !tls->context) {
        snprintf(error, room, "TLS: out of memory");
        tls_close(tls);
        return NULL;
    }
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(tls->context, SSL_MODE_RELEASE_BUFFERS); /* idle connections hold less memory */
    const char *wrong = NULL;
    if (SSL_CTX_use_certificate_chain_file(tls->context, cert_file) != 1)
        wrong = cert_file;
    else if (SSL_CTX_use_PrivateKey_file(tls->context, key_file, SSL_FILETYPE_PEM) != 1 ||
             SSL_CTX_check_private_key(tls->context) != 1)
        wrong = key_file;
    if (wrong) {
        explain(wrong, error, room);
        tls_close(tls);
        return NULL;
    }
    return tls;
}

void tls_close(struct tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    free(tls);
}

struct bufferevent *tls_accept(struct tls *tls, struct event_base *base, int fd)
{
    SSL *ssl = SSL_new(tls->context);
    if (!ssl)
        return NULL;
    struct bufferevent *connection =
        bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!connection) {
        SSL_free(ssl);
        return NULL;
    }
    /* A client that closes its socket without farewell has closed it. */
    bufferevent_openssl_set_allow_dirty_shutdown(connection, 1);
    return connection;
}

void tls_finish(struct bufferevent *connection)
{
    SSL *ssl = bufferevent_openssl_get_ssl(connection);
    if (ssl && SSL_is_init_finished(ssl))
        SSL_shutdown(ssl);
    ERR_clear_error();
}

#else

struct tls *tls_open(const char *key_file, const char *cert_file, char *error, size_t room)
{
    (void)key_file, (void)cert_file;
    snprintf(error, room, "TLS: this build has none, since OpenSSL was not found");
    return NULL;
}

void tls_close(struct tls *tls)
{
    (void)tls;
}

struct bufferevent *tls_accept(struct tls *tls, struct event_base *base, int fd)
{
    (void)tls, (void)base, (void)fd;
    return NULL;
}

void tls_finish(struct bufferevent *connection)
{
    (void)connection;
}

#endif
