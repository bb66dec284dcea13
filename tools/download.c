#include "download.h"

#include "command.h"
#include "http_retry.h"
#include "hub.h"
#include "measure.h"
#include "progress.h"
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum verdict { CONTINUE, RESTART, CHANGED, FAILED };

enum { MOST_RESTARTS = 2 };

struct transfer {
    const struct download *download; /* expected name, size and checksum */
    int descriptor;
    char sha256[SHA256_TEXT]; /* expected, or as the server says; "": unknown */
    bool has_size;
    uint64_t size;            /* expected, or as the server says */
    char identity[HTTP_TEXT]; /* of the file that the bytes so far belong to: a SHA-256 or an ETag */
    struct sha256 hash;       /* of the bytes so far */
    uint64_t received;        /* bytes so far */
    uint64_t resumed;         /* bytes of `received` from an earlier process */
    bool is_joined;           /* the bytes so far came in more than one answer */
    uint64_t limit;           /* bytes that the disk has room for */
    double start;
    enum verdict verdict; /* of the last answer */
};

/* The bytes that may still be written beside `path`; false if the system does not tell. */
static bool free_space(const char *path, uint64_t *out)
{
    char folder[PATH_MAX];
    struct statvfs disk;
    snprintf(folder, sizeof folder, "%s", path);
    if (statvfs(dirname(folder), &disk) != 0)
        return false;
    *out = (uint64_t)disk.f_bavail * disk.f_frsize;
    return true;
}

int check_free_space(const char *path, uint64_t needed)
{
    char a[32], b[32];
    uint64_t available;
    if (free_space(path, &available) && needed > available)
        return failure("not enough space for the model: %s needed, %s free at %s", format_bytes(needed, a),
            format_bytes(available, b), path);
    return EXIT_DONE;
}

/* ---- The identity of an unfinished file, beside it ---- */

static bool identity_path(const struct transfer *transfer, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s.etag", transfer->download->part) < PATH_MAX;
}

static void forget_identity(const struct transfer *transfer)
{
    char path[PATH_MAX];
    if (identity_path(transfer, path))
        unlink(path);
}

static void read_identity(struct transfer *transfer)
{
    char path[PATH_MAX];
    FILE *file = identity_path(transfer, path) ? fopen(path, "re") : NULL;
    if (!file)
        return;
    if (!fgets(transfer->identity, sizeof transfer->identity, file))
        transfer->identity[0] = 0;
    fclose(file);
}

static void write_identity(struct transfer *transfer, const char *identity)
{
    char path[PATH_MAX];
    struct salvo_file *file;
    if (identity != transfer->identity)
        snprintf(transfer->identity, sizeof transfer->identity, "%s", identity);
    forget_identity(transfer);
    if (!*identity || !identity_path(transfer, path) || salvo_file_open(path, true, &file) != SALVO_OK)
        return;
    (void)salvo_file_write(file, identity, strlen(identity));
    (void)salvo_file_commit(file);
    salvo_file_close(file);
}

/* ---- The unfinished file ---- */

static bool refuse(struct transfer *transfer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the message in place of the progress line, and ends the download. */
static bool refuse(struct transfer *transfer, const char *format, ...)
{
    char line[HTTP_URL + HTTP_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    progress_clear();
    failure("%s: %s", transfer->download->name, line);
    transfer->verdict = FAILED;
    return false;
}

static bool refuse_by_errno(struct transfer *transfer, const char *action)
{
    char size[32];
    return refuse(transfer, "cannot %s: %s; %s are kept, and the next pull continues there", action,
        strerror(errno), format_bytes(transfer->received, size));
}

static void expect(struct transfer *transfer)
{
    const struct download *download = transfer->download;
    memcpy(transfer->sha256, download->sha256, sizeof transfer->sha256);
    transfer->has_size = download->has_size;
    transfer->size = download->size;
}

static bool start_again(struct transfer *transfer)
{
    if (transfer->received && ftruncate(transfer->descriptor, 0) != 0)
        return refuse_by_errno(transfer, "empty the file");
    write_identity(transfer, "");
    sha256_begin(&transfer->hash);
    transfer->received = transfer->resumed = 0;
    transfer->is_joined = false;
    transfer->start = seconds_now();
    expect(transfer);
    return true;
}

/* Reads the state that an earlier process has left. */
static bool open_part(struct transfer *transfer)
{
    static char buffer[1 << 16];
    const struct download *download = transfer->download;
    transfer->descriptor = open(download->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (transfer->descriptor < 0)
        return refuse(transfer, "%s: cannot be written: %s", download->part, strerror(errno));
    sha256_begin(&transfer->hash);
    for (;;) {
        const ssize_t got = read(transfer->descriptor, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return refuse_by_errno(transfer, "read the unfinished file");
        if (got == 0)
            break;
        sha256_add(&transfer->hash, buffer, (size_t)got);
        transfer->received += (uint64_t)got;
    }
    transfer->resumed = transfer->received;
    transfer->is_joined = transfer->received > 0;
    transfer->start = seconds_now();
    expect(transfer);
    read_identity(transfer);
    /* Without a checksum or an ETag nothing tells that the rest belongs to these bytes. */
    const bool is_usable = *download->sha256 || *transfer->identity;
    if (transfer->received && (!is_usable || (download->has_size && transfer->received > download->size)))
        return start_again(transfer);
    return true;
}

static bool write_all(struct transfer *transfer, const char *data, size_t size)
{
    while (size) {
        const ssize_t written = pwrite(transfer->descriptor, data, size, (off_t)transfer->received);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return refuse_by_errno(transfer, "write");
        sha256_add(&transfer->hash, data, (size_t)written);
        transfer->received += (uint64_t)written;
        data += written;
        size -= (size_t)written;
    }
    return true;
}

static void show_progress(const struct transfer *transfer)
{
    const double seconds = seconds_now() - transfer->start;
    const double speed = seconds > 0 ? (double)(transfer->received - transfer->resumed) / seconds : 0;
    const char *name = transfer->download->name;
    char bar[32], done[32], size[32], rate[32], left[32] = "";
    format_bytes(transfer->received, done);
    format_bytes((uint64_t)speed, rate);
    if (!transfer->has_size) {
        progress_show("%s %s, %s/s", name, done, rate);
        return;
    }
    if (speed > 0) {
        const uint64_t wait = (uint64_t)((double)(transfer->size - transfer->received) / speed);
        snprintf(left, sizeof left, ", %" PRIu64 " %s left", wait < 120 ? wait : wait / 60,
            wait < 120 ? "s" : "min");
    }
    const double share = transfer->size ? (double)transfer->received / (double)transfer->size : 1;
    progress_show("%s %s %s of %s, %s/s%s", name, progress_bar(share, bar), done,
        format_bytes(transfer->size, size), rate, left);
}

/* ---- Answers ---- */

static bool give_up(struct transfer *transfer, enum verdict verdict)
{
    transfer->verdict = verdict;
    return false;
}

/* The server has another file than the expected one, or than the one whose download was begun. */
static bool differs(struct transfer *transfer, bool from_expected, const char *what, const char *found)
{
    if (!from_expected)
        return give_up(transfer, RESTART);
    if (transfer->download->is_listed)
        return give_up(transfer, CHANGED);
    return refuse(transfer, "the server has another file, with %s %s", what, found);
}

/* Compares the server's headers with the expected size and checksum. */
static bool check_server_sum(struct transfer *transfer, const char *sha256)
{
    if (*transfer->sha256 && strcmp(sha256, transfer->sha256) != 0)
        return differs(transfer, *transfer->download->sha256, "SHA-256", sha256);
    snprintf(transfer->sha256, sizeof transfer->sha256, "%s", sha256);
    return true;
}

static bool check_server_size(struct transfer *transfer, uint64_t size)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, size);
    if (transfer->has_size && size != transfer->size)
        return differs(transfer, transfer->download->has_size, "size", text);
    if (!transfer->has_size && size > transfer->received &&
        check_free_space(transfer->download->part, size - transfer->received) != EXIT_DONE)
        return give_up(transfer, FAILED);
    transfer->has_size = true;
    transfer->size = size;
    return true;
}

static bool begin(void *user, const struct http_reply *reply)
{
    struct transfer *transfer = user;
    const bool is_part = reply->status == 206;
    const bool has_sum = sha256_is_valid(reply->linked_etag, strlen(reply->linked_etag));
    const char *identity = has_sum ? reply->linked_etag : reply->etag;
    if (reply->is_encoded)
        return refuse(transfer, "the server sends the file compressed, which was not asked for");
    if (is_part && (!reply->has_range || reply->from != transfer->received))
        return give_up(transfer, RESTART);
    if (is_part && *transfer->identity && strcmp(transfer->identity, identity) != 0)
        return give_up(transfer, RESTART);
    if (!is_part && transfer->received && !start_again(transfer)) /* the server sends the whole file */
        return false;
    if (has_sum && !check_server_sum(transfer, reply->linked_etag))
        return false;
    if (reply->has_linked_size && !check_server_size(transfer, reply->linked_size))
        return false;
    transfer->is_joined |= is_part;
    if (is_part)
        return check_server_size(transfer, reply->total);
    if (reply->has_length && !check_server_size(transfer, reply->length))
        return false;
    if (!*transfer->download->sha256)
        write_identity(transfer, identity);
    return true;
}

static bool body(void *user, const char *data, size_t size)
{
    static const char magic[] = "GGUF";
    struct transfer *transfer = user;
    const uint64_t most = transfer->has_size ? transfer->size : transfer->limit;
    for (size_t i = 0; transfer->received + i < 4 && i < size; i++) {
        if (data[i] == magic[transfer->received + i])
            continue;
        return start_again(transfer) && refuse(transfer, "not a GGUF file: it begins with other bytes");
    }
    if (transfer->received > most || size > most - transfer->received) {
        return start_again(transfer) &&
               refuse(transfer, "the server sends more than %" PRIu64 " bytes%s", most,
                   transfer->has_size ? ", which is the size of the file"
                                      : ", all that the disk has room for");
    }
    if (!write_all(transfer, data, size))
        return false;
    show_progress(transfer);
    return true;
}

/* ---- Requests ---- */

static bool is_whole(const struct transfer *transfer)
{
    return transfer->has_size && transfer->received == transfer->size;
}

/* Asks for the rest of the file. A body that ends too early counts as a cut connection. */
static enum http_result request_rest(
    struct transfer *transfer, struct http_request *request, struct http_reply *reply, char *error)
{
    *request = (struct http_request){.url = transfer->download->url,
        .token = hub_token(),
        .endpoint = hub_endpoint(),
        .from = transfer->received,
        .if_range =
            sha256_is_valid(transfer->identity, strlen(transfer->identity)) ? NULL : transfer->identity,
        .timeout = transfer->download->timeout,
        .begin = begin,
        .body = body,
        .user = transfer};
    transfer->verdict = CONTINUE;
    enum http_result result = http_get(request, reply, error);
    const bool has_body = reply->status == 200 || reply->status == 206;
    if (result == HTTP_DONE && has_body && transfer->has_size && !is_whole(transfer)) {
        snprintf(error, HTTP_TEXT, "only %" PRIu64 " of %" PRIu64 " bytes were sent", transfer->received,
            transfer->size);
        return HTTP_BROKEN;
    }
    if (result == HTTP_DONE && reply->status == 416) /* for a range that is not in the file */
        transfer->verdict = RESTART;
    return result;
}

/* Requests until all bytes are there. */
static enum verdict receive(struct transfer *transfer)
{
    struct http_request request;
    struct http_reply reply;
    char error[HTTP_URL + HTTP_TEXT];
    uint64_t best = transfer->received;
    unsigned tries = 0, restarts = 0;
    while (!is_whole(transfer)) {
        enum http_result result = request_rest(transfer, &request, &reply, error);
        if (transfer->verdict == CHANGED || transfer->verdict == FAILED)
            return transfer->verdict;
        if (transfer->verdict == RESTART) {
            if (++restarts > MOST_RESTARTS) {
                refuse(transfer, "the server answers requests for the rest of the file wrongly");
                return FAILED;
            }
            if (!start_again(transfer))
                return FAILED;
            continue;
        }
        if (result == HTTP_DONE && (reply.status == 200 || reply.status == 206))
            return CONTINUE;
        const bool was_reached = best > transfer->resumed || transfer->received > best;
        tries = transfer->received > best ? 0 : tries + 1;
        best = transfer->received > best ? transfer->received : best;
        const bool may_retry =
            http_may_retry(&request, result, &reply) || (result == HTTP_UNREACHABLE && was_reached);
        if (!may_retry || tries > HTTP_TRIES) {
            progress_clear();
            http_complain(&request, result, &reply, error);
            return FAILED;
        }
        http_pause(&reply, tries);
    }
    return CONTINUE;
}

/* Downloads the file, and once more from its beginning if parts were joined and the result is wrong. */
static enum verdict fetch(struct transfer *transfer, char sum[SHA256_TEXT])
{
    for (bool is_second = false;; is_second = true) {
        enum verdict verdict = receive(transfer);
        if (verdict != CONTINUE)
            return verdict;
        char expected[SHA256_TEXT];
        memcpy(expected, transfer->sha256, sizeof expected);
        sha256_end(&transfer->hash, sum);
        if (!*expected || strcmp(sum, expected) == 0)
            return CONTINUE;
        const bool may_retry = transfer->is_joined && !is_second;
        if (!start_again(transfer))
            return FAILED;
        if (!may_retry) {
            refuse(transfer, "the server has sent a file with SHA-256 %s, not %s", sum, expected);
            return FAILED;
        }
    }
}

enum download_result download(struct download *download)
{
    struct transfer transfer = {.download = download, .descriptor = -1, .limit = UINT64_MAX};
    char sum[SHA256_TEXT];
    (void)free_space(download->part, &transfer.limit);
    enum verdict verdict = open_part(&transfer) ? fetch(&transfer, sum) : FAILED;
    progress_clear();
    if (verdict == CONTINUE && fsync(transfer.descriptor) != 0) {
        refuse_by_errno(&transfer, "write");
        verdict = FAILED;
    }
    if (verdict == CONTINUE) {
        forget_identity(&transfer);
        memcpy(download->sha256, sum, sizeof sum);
        download->has_size = true;
        download->size = transfer.received;
    }
    if (transfer.descriptor >= 0)
        close(transfer.descriptor);
    return verdict == CONTINUE ? DOWNLOAD_DONE : verdict == CHANGED ? DOWNLOAD_CHANGED : DOWNLOAD_FAILED;
}
