/* The same over TLS, with OpenSSL as client. */
#include "http_fixture.h"

#include "cmocka_test.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define H "Host: x\r\n"

struct files {
    char folder[40], key[64], cert[64], other_key[64];
};

static void write_key(EVP_PKEY *key, const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

static int make_files(void **state)
{
    struct files *files = calloc(1, sizeof *files);
    snprintf(files->folder, sizeof files->folder, "/tmp/salvo-tls-XXXXXX");
    assert_non_null(mkdtemp(files->folder));
    snprintf(files->key, sizeof files->key, "%s/key.pem", files->folder);
    snprintf(files->cert, sizeof files->cert, "%s/cert.pem", files->folder);
    snprintf(files->other_key, sizeof files->other_key, "%s/other.pem", files->folder);
    EVP_PKEY *key = EVP_EC_gen("P-256"), *other = EVP_EC_gen("P-256");
    write_key(key, files->key);
    write_key(other, files->other_key);
    X509 *cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(
        X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *file = fopen(files->cert, "w");
    assert_non_null(file);
    PEM_write_X509(file, cert);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
    *state = files;
    return 0;
}

static int remove_files(void **state)
{
    struct files *files = *state;
    unlink(files->key);
    unlink(files->cert);
    unlink(files->other_key);
    rmdir(files->folder);
    free(files);
    return 0;
}

struct tls_client {
    SSL_CTX *context;
    SSL *ssl;
    int fd;
};

static void open_tls(const struct fixture *fixture, struct tls_client *client)
{
    client->fd = client_open(fixture);
    client->context = SSL_CTX_new(TLS_client_method());
    client->ssl = SSL_new(client->context);
    SSL_set_fd(client->ssl, client->fd);
    assert_int_equal(SSL_connect(client->ssl), 1);
}

static void close_tls(struct tls_client *client)
{
    SSL_free(client->ssl);
    SSL_CTX_free(client->context);
    close(client->fd);
}

static void send_tls(const struct tls_client *client, const char *text)
{
    assert_int_equal(SSL_write(client->ssl, text, (int)strlen(text)), (int)strlen(text));
}

static char *read_tls(const struct tls_client *client)
{
    size_t size = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    for (;;) {
        if (capacity - size < 2) {
            char *larger = realloc(text, capacity *= 2);
            assert_non_null(larger);
            text = larger;
        }
        const int count = SSL_read(client->ssl, text + size, (int)(capacity - size - 1));
        if (count <= 0) /* the server has said goodbye: nothing was cut */
            assert_int_equal(SSL_get_error(client->ssl, count), SSL_ERROR_ZERO_RETURN);
        if (count <= 0)
            break;
        size += (size_t)count;
    }
    text[size] = 0;
    return text;
}

static void start(struct fixture *fixture, const struct files *files)
{
    fixture_init(fixture);
    fixture->options.tls_key_file = files->key;
    fixture->options.tls_cert_file = files->cert;
    fixture_start(fixture);
}

static void test_requests(void **state)
{
    struct fixture fixture;
    struct tls_client client;
    start(&fixture, *state);
    open_tls(&fixture, &client);
    send_tls(&client, "POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello"
                      "GET /stream?pieces=5000 HTTP/1.1\r\n" H "\r\n"
                      "GET /echo HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    char *answer = read_tls(&client);
    assert_int_equal(count_text(answer, "HTTP/1.1 200 OK\r\n"), 3);
    assert_non_null(strstr(answer, "\r\n\r\nhello"));
    assert_int_equal(count_text(answer, "3e8\r\nxxx"), 5000);
    free(answer);
    close_tls(&client);
    const struct http_counters counters = fixture_counters(&fixture);
    assert_true(counters.unsent_most < HTTP_UNSENT_LIMIT + 2000);
    fixture_stop(&fixture);
}

static void test_large_body(void **state)
{
    enum { SIZE = 500000 };
    struct fixture fixture;
    struct tls_client client;
    start(&fixture, *state);
    open_tls(&fixture, &client);
    char *body = malloc(SIZE + 1);
    memset(body, 'b', SIZE);
    body[SIZE] = 0;
    char head[100];
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\n" H "Connection: close\r\nContent-Length: %d\r\n\r\n",
        SIZE);
    send_tls(&client, head);
    send_tls(&client, body);
    char *answer = read_tls(&client);
    assert_string_equal(strstr(answer, "\r\n\r\n") + 4, body);
    free(answer);
    free(body);
    close_tls(&client);
    fixture_stop(&fixture);
}

static void test_client_vanishes(void **state)
{
    struct fixture fixture;
    struct tls_client client;
    start(&fixture, *state);
    open_tls(&fixture, &client);
    send_tls(&client, "GET /hold HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 1);
    close_tls(&client); /* without goodbye */
    fixture_wait(&fixture, &fixture.closed, 1);

    open_tls(&fixture, &client);
    send_tls(&client, "GET /hold HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 2);
    SSL_shutdown(client.ssl);
    fixture_wait(&fixture, &fixture.closed, 2);
    close_tls(&client);

    open_tls(&fixture, &client);
    send_tls(&client, "GET /stream?pieces=100000 HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 3);
    client_reset(client.fd);
    client.fd = -1;
    fixture_wait(&fixture, &fixture.closed, 3);
    close_tls(&client);
    fixture_wait_counter(&fixture, offsetof(struct http_counters, connections), 0);
    assert_int_equal(fixture_count(&fixture, &fixture.closed), 3);
    fixture_stop(&fixture);
}

/* Bytes that are no TLS end the connection, and one that stays silent ends with the server. */
static void test_no_tls(void **state)
{
    struct fixture fixture;
    start(&fixture, *state);
    const int silent = client_open(&fixture);
    char *answer = client_exchange(&fixture, "GET /echo HTTP/1.1\r\n" H "\r\n");
    assert_null(strstr(answer, "HTTP/1.1"));
    free(answer);
    assert_int_equal(fixture_count(&fixture, &fixture.handled), 0);
    fixture_stop(&fixture);
    close(silent);
}

static void test_drain(void **state)
{
    struct fixture fixture;
    struct tls_client client;
    start(&fixture, *state);
    open_tls(&fixture, &client);
    send_tls(&client, "GET /hold HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 1);
    fixture_drain(&fixture);
    fixture_release(&fixture);
    char *answer = read_tls(&client);
    assert_non_null(strstr(answer, "\r\n\r\nreleased"));
    free(answer);
    close_tls(&client);
    fixture_join(&fixture);
}

static void test_bad_files(void **state)
{
    const struct files *files = *state;
    struct http_options options = {.tls_key_file = files->other_key, .tls_cert_file = files->cert};
    char error[256] = "";
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, files->other_key));
    options.tls_cert_file = "/does/not/exist";
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, "/does/not/exist"));
    options = (struct http_options){.tls_key_file = files->cert, .tls_cert_file = files->cert};
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, files->cert));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_large_body),
        cmocka_unit_test(test_client_vanishes),
        cmocka_unit_test(test_no_tls),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
