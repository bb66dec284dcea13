#include "base/mapped_file.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

/*
 * The handler may run on any thread at any time, so it reads a fixed table without locks: a range is
 * published by its `end` and withdrawn by zeroing it.
 */
enum { MAX_GUARDS = 256 };

static struct guard {
    _Atomic uintptr_t begin, end; /* end 0: free */
    atomic_bool cut;
    bool taken;     /* under guard_lock */
    int descriptor; /* for the current length of the file */
} guards[MAX_GUARDS];

static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous_action;
static uintptr_t page_size;

/* Uses a system call where possible: other threads may be reading the page, which is not a data race then. */
static bool put_zeros(char *page)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
#if defined(__linux__)
    return syscall(SYS_mmap, page, page_size, PROT_READ, flags, -1, 0) != -1;
#else
    return mmap(page, page_size, PROT_READ, flags, -1, 0) != MAP_FAILED;
#endif
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    for (int i = 0; i < MAX_GUARDS; i++) {
        uintptr_t end = atomic_load(&guards[i].end);
        if (end == 0 || address >= end || address < atomic_load(&guards[i].begin))
            continue;
        char *page = (char *)info->si_addr - (address & (page_size - 1));
        if (!put_zeros(page))
            break;
        atomic_store(&guards[i].cut, true);
        errno = saved_errno;
        return;
    }

    /* Another address: do what would happen without this handler. */
    if (previous_action.sa_flags & SA_SIGINFO) {
        previous_action.sa_sigaction(signal_number, info, context);
    } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
        previous_action.sa_handler(signal_number);
    } else {
        signal(SIGBUS, SIG_DFL); /* the faulting instruction runs again and ends the process */
    }
    errno = saved_errno;
}

static enum salvo_status guard_range(const void *data, size_t size, int descriptor, int *out)
{
    static bool installed;
    int found = -1;
    pthread_mutex_lock(&guard_lock);
    if (!installed) {
        page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
        struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
        action.sa_sigaction = on_bus_error;
        sigemptyset(&action.sa_mask);
        installed = sigaction(SIGBUS, &action, &previous_action) == 0;
    }
    for (int i = 0; i < MAX_GUARDS && found < 0; i++) {
        if (!guards[i].taken)
            found = i;
    }
    if (found >= 0) {
        guards[found].taken = true;
        guards[found].descriptor = descriptor;
        atomic_store(&guards[found].cut, false);
        atomic_store(&guards[found].begin, (uintptr_t)data);
        atomic_store(&guards[found].end, (uintptr_t)data + size);
    }
    pthread_mutex_unlock(&guard_lock);
    *out = found;
    if (found < 0)
        return fail(SALVO_ERROR_UNSUPPORTED, "more than %d files are open at once", MAX_GUARDS);
    return SALVO_OK;
}

enum salvo_status mapped_file_open(const char *path, struct mapped_file *out)
{
    enum salvo_status status = SALVO_OK;
    int descriptor = -1;
    struct stat information;
    *out = (struct mapped_file){.guard = -1};

    if (!*path)
        TRY(fail(SALVO_ERROR_IO, "the name of the file to read is empty"));
    descriptor =
        open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO would wait for a writer */
    if (descriptor < 0 || fstat(descriptor, &information) != 0)
        TRY(fail(SALVO_ERROR_IO, "%s: %s", path, strerror(errno)));
    if (!S_ISREG(information.st_mode))
        TRY(fail(SALVO_ERROR_IO, "%s: not a regular file", path));
    TRY(memory_copy_string(path, &out->path));
    out->device = information.st_dev;
    out->inode = information.st_ino;
    out->data = (const uint8_t *)"";
    if (information.st_size > 0) {
        size_t size = (size_t)information.st_size;
        void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (data == MAP_FAILED)
            TRY(fail(SALVO_ERROR_IO, "%s: cannot map %zu bytes: %s", path, size, strerror(errno)));
        out->data = out->mapping = data;
        out->size = size;
        TRY(guard_range(data, size, descriptor, &out->guard));
        descriptor = -1; /* owned by the guard */
    }

cleanup:
    if (descriptor >= 0)
        close(descriptor);
    if (status != SALVO_OK)
        mapped_file_close(out);
    return status;
}

/* The missing end of the last page reads as zeros without a signal, and system calls get no signal: so the
 * length is compared, too. */
static bool was_cut(const struct mapped_file *file)
{
    const struct guard *guard = &guards[file->guard];
    struct stat information;
    return atomic_load(&guard->cut) ||
           (fstat(guard->descriptor, &information) == 0 && (uint64_t)information.st_size < file->size);
}

enum salvo_status mapped_file_check(const struct mapped_file *file)
{
    if (file->guard >= 0 && was_cut(file))
        return fail(SALVO_ERROR_IO, "%s: the file was cut while it was in use: it had %zu bytes", file->path,
            file->size);
    return SALVO_OK;
}

bool mapped_file_is_at(const struct mapped_file *file, const char *path)
{
    struct stat information;
    return file->path && stat(path, &information) == 0 && information.st_dev == file->device &&
           information.st_ino == file->inode;
}

void mapped_file_close(struct mapped_file *file)
{
    if (file->guard >= 0) {
        pthread_mutex_lock(&guard_lock);
        atomic_store(&guards[file->guard].end, 0);
        close(guards[file->guard].descriptor);
        guards[file->guard].taken = false;
        pthread_mutex_unlock(&guard_lock);
    }
    if (file->mapping)
        munmap(file->mapping, file->size);
    memory_free(file->path);
    *file = (struct mapped_file){.guard = -1};
}

void mapped_file_release(const struct mapped_file *file, size_t offset, size_t size)
{
    /* Only whole pages inside the range: neighbouring data may be in use. */
    size_t mask = (size_t)sysconf(_SC_PAGESIZE) - 1;
    size_t begin = (offset + mask) & ~mask;
    size_t end = (offset + size) & ~mask;
    if (offset + size == file->size)
        end = file->size;
    if (begin < end && end <= file->size)
        madvise((char *)file->mapping + begin, end - begin, MADV_DONTNEED);
}
