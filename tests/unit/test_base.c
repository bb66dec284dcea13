#include "cmocka_test.h"

#include "base/arena.h"
#include "base/atomic_file.h"
#include "base/buffer.h"
#include "base/checked.h"
#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/string_map.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void errors_stay_one_line_and_gain_context(void **state)
{
    (void)state;
    assert_int_equal(fail(SALVO_ERROR_FORMAT, "key '%s'", "a\nb"), SALVO_ERROR_FORMAT);
    assert_string_equal(salvo_error(), "key 'a?b'");
    assert_int_equal(fail_within(SALVO_ERROR_IO, "%s: ", "f.gguf"), SALVO_ERROR_IO);
    assert_string_equal(salvo_error(), "f.gguf: key 'a?b'");
    assert_int_equal(fail_within(SALVO_ERROR_IO, "%s: ", "f.gguf"), SALVO_ERROR_IO); /* once is enough */
    assert_string_equal(salvo_error(), "f.gguf: key 'a?b'");
}

static void allocation_failures_can_be_injected(void **state)
{
    (void)state;
    char *first, *second;
    memory_fail_at(2);
    assert_int_equal(NEW(&first, 8), SALVO_OK);
    assert_int_equal(NEW(&second, 8), SALVO_ERROR_MEMORY);
    assert_null(second);
    assert_int_equal(NEW(&second, 8), SALVO_OK);
    memory_fail_at(0);
    memory_free(first);
    memory_free(second);
}

static void an_array_grows_by_doubling(void **state)
{
    (void)state;
    uint64_t *numbers = NULL;
    size_t capacity = 0;
    const uint64_t before = memory_count();
    for (uint64_t i = 0; i < 5000; i++) {
        assert_int_equal(GROW(&numbers, i, &capacity), SALVO_OK);
        assert_true(i < capacity);
        numbers[i] = i;
    }
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(numbers[i], i);
    assert_true(memory_count() - before <= 13);
    const size_t full = capacity;
    memory_fail_at(1);
    assert_int_equal(GROW(&numbers, full, &capacity), SALVO_ERROR_MEMORY);
    memory_fail_at(0);
    assert_int_equal(capacity, full);
    assert_int_equal(numbers[4999], 4999);
    memory_free(numbers);
}

static void arena_memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    struct arena arena = {0};
    for (size_t size = 1; size < 200000; size = size * 3 + 1) {
        unsigned char *bytes;
        assert_int_equal(ARENA_NEW(&arena, &bytes, size), SALVO_OK);
        assert_int_equal((uintptr_t)bytes % sizeof(max_align_t) % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 0xff, size);
    }
    /* Many small pieces, of which the last of a block does not reach beyond it. */
    static unsigned char *pieces[300];
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(ARENA_NEW(&arena, &pieces[i], 1000), SALVO_OK);
        for (size_t j = 0; j < i; j++)
            assert_true(pieces[i] + 1000 <= pieces[j] || pieces[j] + 1000 <= pieces[i]);
        memset(pieces[i], (int)i, 1000);
    }
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(pieces[i][999], i & 0xff);
    double *numbers;
    assert_int_equal(ARENA_NEW(&arena, &numbers, SIZE_MAX / 4), SALVO_ERROR_MEMORY);
    assert_null(numbers);
    arena_free(&arena);
    assert_null(arena.blocks);
}

/* Saved files hold checksums: these values were computed from the definition in Python. */
static void checksums_of_files_never_change(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t expected;
    } cases[] = {
        {"", UINT64_C(0x0000000000000000)},
        {"a", UINT64_C(0x95da58fd31e4fab1)},
        {"12345678", UINT64_C(0xa70b49e0047c6441)},
        {"a session's tokens", UINT64_C(0x70f1f33f41e366d4)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(checksum64(cases[i].text, strlen(cases[i].text)), cases[i].expected);
}

static void string_map_finds_what_was_added(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static char keys[COUNT][16];
    struct string_map map;
    assert_int_equal(string_map_open(&map, COUNT), SALVO_OK);
    uint32_t value;
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof keys[i], "key-%u", i);
        assert_int_equal(string_map_add(&map, keys[i], strlen(keys[i]), i, &value), SALVO_OK);
        assert_int_equal(value, i);
    }
    assert_int_equal(string_map_add(&map, "key-7", 5, 9999, &value), SALVO_OK);
    assert_int_equal(value, 7);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(string_map_find(&map, keys[i], strlen(keys[i])), i);
    assert_int_equal(string_map_find(&map, "key-", 4), UINT32_MAX);
    assert_int_equal(string_map_find(&map, "", 0), UINT32_MAX);
    string_map_close(&map);
}

/* A table stays half empty, so that a search ends: what does not fit is refused. */
static void a_full_string_map_refuses_more(void **state)
{
    (void)state;
    static char keys[100][8];
    struct string_map map;
    uint32_t value, added = 0;
    assert_int_equal(string_map_open(&map, 10), SALVO_OK);
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof keys[i], "%u", i);
        if (string_map_add(&map, keys[i], strlen(keys[i]), i, &value) == SALVO_OK)
            added++;
        else
            assert_non_null(strstr(salvo_error(), "hash collisions"));
    }
    assert_in_range(added, 10, map.mask / 2 + 1);
    for (uint32_t i = 0; i < added; i++) /* what is there is still found, and may be added again */
        assert_int_equal(string_map_add(&map, keys[i], strlen(keys[i]), i, &value), SALVO_OK);
    assert_int_equal(string_map_find(&map, keys[99], 2), UINT32_MAX);
    string_map_close(&map);
}

/* Each open file has a place in a table that a signal handler reads; closing gives it back. */
static void so_many_files_can_be_open_at_once(void **state)
{
    (void)state;
    enum { MOST = 256 };
    static struct mapped_file files[MOST];
    struct mapped_file more;
    char path[] = "/tmp/salvo-many-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, "0123456789", 10), 10);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST; i++)
            assert_int_equal(mapped_file_open(path, &files[i]), SALVO_OK);
        assert_int_equal(mapped_file_open(path, &more), SALVO_ERROR_UNSUPPORTED);
        assert_non_null(strstr(salvo_error(), "256 files"));
        for (int i = 0; i < MOST; i++) {
            assert_int_equal(mapped_file_check(&files[i]), SALVO_OK);
            mapped_file_close(&files[i]);
        }
    }
    close(descriptor);
    unlink(path);
}

static void a_cut_file_reads_as_zeros_and_is_reported(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-cut-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    static const char bytes[70000] = {1, 2, 3};
    assert_int_equal(write(descriptor, bytes, sizeof bytes), (ssize_t)sizeof bytes);
    struct mapped_file file;
    assert_int_equal(mapped_file_open(path, &file), SALVO_OK);
    assert_int_equal(file.size, sizeof bytes);
    assert_int_equal(file.data[2], 3);
    assert_int_equal(mapped_file_check(&file), SALVO_OK);
    assert_int_equal(ftruncate(descriptor, 0), 0);
    unsigned sum = 0;
    for (size_t i = 0; i < file.size; i++)
        sum += file.data[i];
    assert_int_equal(sum, 0);
    assert_int_equal(mapped_file_check(&file), SALVO_ERROR_IO);
    assert_non_null(strstr(salvo_error(), "cut"));
    mapped_file_close(&file);
    close(descriptor);
    unlink(path);
}

/* No page is missing as a whole, so there is no signal. */
static void a_file_cut_within_its_last_page_is_reported(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-cut-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, "0123456789", 10), 10);
    struct mapped_file file;
    assert_int_equal(mapped_file_open(path, &file), SALVO_OK);
    assert_int_equal(mapped_file_check(&file), SALVO_OK);
    assert_int_equal(ftruncate(descriptor, 5), 0);
    assert_int_equal(mapped_file_check(&file), SALVO_ERROR_IO);
    assert_non_null(strstr(salvo_error(), "cut"));
    mapped_file_close(&file);
    close(descriptor);
    unlink(path);
    assert_int_equal(mapped_file_open("", &file), SALVO_ERROR_IO);
    assert_non_null(strstr(salvo_error(), "empty"));
}

static void an_atomic_file_appears_only_when_committed(void **state)
{
    (void)state;
    char folder[] = "/tmp/salvo-atomic-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    struct atomic_file file;
    assert_int_equal(atomic_file_open(path, &file), SALVO_OK);
    assert_int_equal(atomic_file_write(&file, "abc", 3), SALVO_OK);
    assert_int_equal(access(path, F_OK), -1);
    atomic_file_abandon(&file);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(atomic_file_open(path, &file), SALVO_OK);
    assert_int_equal(atomic_file_write(&file, "abc", 3), SALVO_OK);
    assert_int_equal(atomic_file_commit(&file), SALVO_OK);
    assert_int_equal(access(path, R_OK), 0);
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* no temporary file was left */
    assert_int_equal(atomic_file_open("/nonexistent/x", &file), SALVO_ERROR_IO);
}

/* The limit on the size of files makes a write fail, and is gone when the file is committed. */
static void an_atomic_file_whose_write_failed_is_not_committed(void **state)
{
    (void)state;
    static char bytes[1 << 16];
    char path[] = "/tmp/salvo-short-XXXXXX";
    int descriptor = mkstemp(path);
    assert_int_equal(write(descriptor, "old", 3), 3);
    close(descriptor);
    struct atomic_file file;
    struct rlimit before, small;
    struct stat information;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1 << 12, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(atomic_file_open(path, &file), SALVO_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(atomic_file_write(&file, bytes, sizeof bytes), SALVO_ERROR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(atomic_file_commit(&file), SALVO_ERROR_IO);
    assert_int_equal(stat(path, &information), 0);
    assert_int_equal(information.st_size, 3);
    unlink(path);
}

static void a_replaced_file_keeps_its_owner(void **state)
{
    (void)state;
    enum { OWNER = 1234, GROUP = 4321 };
    char path[] = "/tmp/salvo-owner-XXXXXX";
    int descriptor = mkstemp(path);
    close(descriptor);
    if (chown(path, OWNER, GROUP) != 0) { /* that takes a privilege */
        unlink(path);
        skip();
    }
    assert_int_equal(chmod(path, 0660), 0);
    struct atomic_file file;
    struct stat information;
    assert_int_equal(atomic_file_open(path, &file), SALVO_OK);
    assert_int_equal(atomic_file_commit(&file), SALVO_OK);
    assert_int_equal(stat(path, &information), 0);
    assert_int_equal(information.st_uid, OWNER);
    assert_int_equal(information.st_gid, GROUP);
    assert_int_equal(information.st_mode & 0777, 0660);
    unlink(path);
}

static void assert_not_replaced(const char *path, mode_t kind)
{
    struct atomic_file file;
    struct stat information;
    assert_int_equal(atomic_file_open(path, &file), SALVO_ERROR_IO);
    assert_non_null(strstr(salvo_error(), path));
    atomic_file_abandon(&file);
    assert_int_equal(lstat(path, &information), 0);
    assert_int_equal(information.st_mode & S_IFMT, kind);
}

static void an_atomic_file_replaces_regular_files_only(void **state)
{
    (void)state;
    char folder[] = "/tmp/salvo-atomic-XXXXXX", inner[64], target[64], link[64], odd[64];
    struct atomic_file file;
    struct stat information;
    assert_non_null(mkdtemp(folder));
    snprintf(inner, sizeof inner, "%s/inner", folder);
    snprintf(target, sizeof target, "%s/inner/target", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(odd, sizeof odd, "%s/fifo", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(symlink("inner/target", link), 0);
    assert_not_replaced(link, S_IFLNK); /* it leads nowhere */
    FILE *old = fopen(target, "wb");
    assert_non_null(old);
    fclose(old);
    assert_int_equal(atomic_file_open(link, &file), SALVO_OK);
    assert_int_equal(strncmp(file.temporary_path, inner, strlen(inner)), 0);
    assert_int_equal(atomic_file_write(&file, "abc", 3), SALVO_OK);
    assert_int_equal(atomic_file_commit(&file), SALVO_OK);
    assert_int_equal(lstat(link, &information), 0);
    assert_true(S_ISLNK(information.st_mode));
    assert_int_equal(lstat(target, &information), 0);
    assert_int_equal(information.st_size, 3);

    assert_int_equal(mkfifo(odd, 0600), 0);
    assert_not_replaced(odd, S_IFIFO);
    assert_not_replaced(inner, S_IFDIR);
    assert_int_equal(atomic_file_open("", &file), SALVO_ERROR_IO);
    assert_non_null(strstr(salvo_error(), "empty"));
    unlink(odd);
    unlink(link);
    unlink(target);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The library's calls come here instead of the system's. */
static unsigned umask_calls, folders_flushed;

mode_t umask(mode_t mask)
{
    umask_calls++;
    return mask;
}

int fsync(int fd)
{
    struct stat information;
    folders_flushed += fstat(fd, &information) == 0 && S_ISDIR(information.st_mode);
    return 0;
}

static mode_t mode_of(const char *path)
{
    struct stat information;
    assert_int_equal(stat(path, &information), 0);
    return information.st_mode & 07777;
}

static void write_file(const char *path, bool is_new, enum salvo_status expected)
{
    struct atomic_file file;
    assert_int_equal(is_new ? atomic_file_open_new(path, &file) : atomic_file_open(path, &file), expected);
    if (expected != SALVO_OK) {
        assert_non_null(strstr(salvo_error(), path));
        return;
    }
    assert_int_equal(fcntl(fileno(file.stream), F_GETFD), FD_CLOEXEC);
    assert_int_equal(atomic_file_commit(&file), SALVO_OK);
}

static void an_atomic_file_has_the_mode_of_the_one_before(void **state)
{
    (void)state;
    char folder[] = "/tmp/salvo-atomic-XXXXXX", path[64], plain[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(plain, sizeof plain, "%s/plain", folder);
    umask_calls = folders_flushed = 0;
    write_file(path, false, SALVO_OK);
    assert_int_equal(umask_calls, 0);
    assert_int_equal(folders_flushed, 1);
    FILE *other = fopen(plain, "wb"); /* any new file */
    assert_non_null(other);
    fclose(other);
    assert_int_equal(mode_of(path), mode_of(plain));
    assert_int_equal(chmod(path, 0602), 0); /* more than the umask leaves */
    write_file(path, false, SALVO_OK);
    assert_int_equal(mode_of(path), 0602);
    assert_int_equal(chmod(path, 0444), 0);
    write_file(path, false, SALVO_ERROR_IO);
    write_file(path, true, SALVO_ERROR_IO);
    unlink(path);
    unlink(plain);
    assert_int_equal(rmdir(folder), 0);
}

static void a_new_atomic_file_replaces_nothing(void **state)
{
    (void)state;
    char folder[] = "/tmp/salvo-atomic-XXXXXX", path[64];
    struct atomic_file first, second;
    struct stat information;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    assert_int_equal(atomic_file_open_new(path, &first), SALVO_OK);
    assert_int_equal(atomic_file_open_new(path, &second), SALVO_OK);
    assert_int_equal(atomic_file_write(&first, "first", 5), SALVO_OK);
    assert_int_equal(atomic_file_commit(&first), SALVO_OK);
    assert_int_equal(atomic_file_commit(&second), SALVO_ERROR_IO); /* it came in the meantime */
    assert_non_null(strstr(salvo_error(), "already"));
    assert_int_equal(stat(path, &information), 0);
    assert_int_equal(information.st_size, 5);
    assert_int_equal(information.st_nlink, 1);
    write_file(path, true, SALVO_ERROR_IO);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void an_atomic_file_may_have_the_longest_name(void **state)
{
    (void)state;
    char folder[] = "/tmp/salvo-atomic-XXXXXX", path[512];
    assert_non_null(mkdtemp(folder));
    int used = snprintf(path, sizeof path, "%s/", folder);
    memset(path + used, 'n', 255);
    path[used + 255] = 0;
    write_file(path, true, SALVO_OK);
    write_file(path, false, SALVO_OK);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void a_mapped_file_is_known_by_any_name(void **state)
{
    (void)state;
    char folder[] = "/tmp/salvo-mapped-XXXXXX", path[64], name[64];
    struct mapped_file file;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(name, sizeof name, "%s/link", folder);
    write_file(path, true, SALVO_OK);
    assert_int_equal(mapped_file_open(path, &file), SALVO_OK);
    assert_int_equal(link(path, name), 0);
    assert_true(mapped_file_is_at(&file, path));
    assert_true(mapped_file_is_at(&file, name));
    unlink(name);
    assert_int_equal(symlink("file", name), 0);
    assert_true(mapped_file_is_at(&file, name));
    write_file(path, false, SALVO_OK); /* another file has the name now */
    assert_false(mapped_file_is_at(&file, path));
    assert_false(mapped_file_is_at(&file, folder));
    mapped_file_close(&file);
    unlink(name);
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_int_equal(
        mapped_file_open(name, &file), SALVO_ERROR_IO); /* at once, though nothing writes to it */
    assert_non_null(strstr(salvo_error(), "not a regular file"));
    unlink(name);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void a_buffer_grows(void **state)
{
    (void)state;
    struct buffer buffer = {0};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer_append(&buffer, "0123456789", 10), SALVO_OK);
    assert_int_equal(buffer.size, 10000);
    assert_memory_equal(buffer.data + 9990, "0123456789", 10);
    assert_int_equal(buffer_reserve(&buffer, SIZE_MAX), SALVO_ERROR_MEMORY);
    buffer_free(&buffer);
    assert_int_equal(buffer_reserve(&buffer, 1000), SALVO_OK); /* more than twice what is there */
    assert_in_range(buffer.capacity, 1000, SIZE_MAX);
    buffer_free(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_one_line_and_gain_context),
        cmocka_unit_test(allocation_failures_can_be_injected),
        cmocka_unit_test(an_array_grows_by_doubling),
        cmocka_unit_test(arena_memory_is_zeroed_and_aligned),
        cmocka_unit_test(checksums_of_files_never_change),
        cmocka_unit_test(string_map_finds_what_was_added),
        cmocka_unit_test(a_full_string_map_refuses_more),
        cmocka_unit_test(a_cut_file_reads_as_zeros_and_is_reported),
        cmocka_unit_test(a_file_cut_within_its_last_page_is_reported),
        cmocka_unit_test(so_many_files_can_be_open_at_once),
        cmocka_unit_test(an_atomic_file_appears_only_when_committed),
        cmocka_unit_test(an_atomic_file_whose_write_failed_is_not_committed),
        cmocka_unit_test(a_replaced_file_keeps_its_owner),
        cmocka_unit_test(an_atomic_file_replaces_regular_files_only),
        cmocka_unit_test(an_atomic_file_has_the_mode_of_the_one_before),
        cmocka_unit_test(a_new_atomic_file_replaces_nothing),
        cmocka_unit_test(an_atomic_file_may_have_the_longest_name),
        cmocka_unit_test(a_mapped_file_is_known_by_any_name),
        cmocka_unit_test(a_buffer_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
