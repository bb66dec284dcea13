/*
 * fuzz-shapes: random well-formed models from end to end on a backend. Each runs in a process of its own, so
 * that a crash is one failure and names its seed. A file is run or refused as not supported; anything else
 * fails.
 */
#include "shape_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_JOBS = 64, MOST_REASONS = 64, SECONDS_OF_A_CASE = 1500, SKIPPED = 77 };

struct job {
    pid_t process; /* 0: none */
    uint64_t seed;
    int pipe;
    char path[128];
};

struct reason {
    char text[256];
    unsigned count;
};

struct report {
    unsigned run, refused, failed, reason_count;
    struct reason reasons[MOST_REASONS];
};

static const char *backend = "cpu", *keep = NULL;
static char folder[64] = "/tmp/salvo-shapes-XXXXXX";

/* ---- One case ---- */

/* In the child: the result goes through the pipe, which has room for all of it. */
static int run_here(const struct job *job)
{
    const struct shape_case made = shape_case_make(job->seed);
    alarm(SECONDS_OF_A_CASE); /* a hang ends before the time limit of ctest, so that its seed is printed */
    const struct shape_result result = shape_run(&made, backend, job->path);
    return write(job->pipe, &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1;
}

static bool start(struct job *job, uint64_t seed)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    *job = (struct job){.seed = seed, .pipe = ends[1]};
    snprintf(job->path, sizeof job->path, "%s/%llu.gguf", folder, (unsigned long long)seed);
    if (keep)
        snprintf(job->path, sizeof job->path, "%s", keep);
    fflush(NULL);
    job->process = fork();
    if (job->process == 0) {
        close(ends[0]);
        exit(run_here(job));
    }
    close(ends[1]);
    job->pipe = ends[0];
    return job->process > 0;
}

/* ---- What came of it ---- */

/* The message without its file and numbers, so that equal reasons are counted together. */
static void shorten(const char *message, char *out, size_t size)
{
    const char *colon = strstr(message, ".gguf: ");
    size_t used = 0;
    for (const char *at = colon ? colon + 7 : message; *at && used + 1 < size; at++) {
        if (*at >= '0' && *at <= '9') {
            if (!used || out[used - 1] != 'N')
                out[used++] = 'N';
        } else {
            out[used++] = *at;
        }
    }
    out[used] = 0;
}

static void count_refusal(struct report *report, const char *message)
{
    char text[sizeof report->reasons[0].text];
    shorten(message, text, sizeof text);
    report->refused++;
    unsigned i = 0;
    while (i < report->reason_count && strcmp(report->reasons[i].text, text) != 0)
        i++;
    if (i == MOST_REASONS)
        i--;
    if (i == report->reason_count)
        memcpy(report->reasons[report->reason_count++].text, text, sizeof text);
    report->reasons[i].count++;
}

static void finish(const struct job *job, int status, struct report *report)
{
    struct shape_result result = {SHAPE_FAILED, ""};
    char description[512];
    if (read(job->pipe, &result, sizeof result) != (ssize_t)sizeof result || status != 0) {
        result.outcome = SHAPE_FAILED;
        if (WIFSIGNALED(status))
            snprintf(result.text, sizeof result.text, "killed by %s", strsignal(WTERMSIG(status)));
        else
            snprintf(result.text, sizeof result.text, "exit status %d", WEXITSTATUS(status));
    }
    close(job->pipe);
    if (!keep)
        unlink(job->path);
    if (result.outcome == SHAPE_RAN) {
        report->run++;
    } else if (result.outcome == SHAPE_REFUSED) {
        count_refusal(report, result.text);
    } else {
        const struct shape_case made = shape_case_make(job->seed);
        shape_case_describe(&made, description, sizeof description);
        printf("FAILED: fuzz-shapes --backend %s --seed %llu --count 1\n  %s\n  %s\n", backend,
            (unsigned long long)job->seed, description, result.text);
        fflush(stdout);
        report->failed++;
    }
}

static void wait_for_one(struct job *jobs, struct report *report)
{
    int status;
    const pid_t process = wait(&status);
    for (unsigned i = 0; i < MOST_JOBS; i++) {
        if (jobs[i].process && jobs[i].process == process) {
            jobs[i].process = 0;
            finish(&jobs[i], status, report);
        }
    }
}

static void print_report(const struct report *report)
{
    printf("%s: %u files, %u run, %u refused, %u failed\n", backend,
        report->run + report->refused + report->failed, report->run, report->refused, report->failed);
    for (unsigned i = 0; i < report->reason_count; i++)
        printf("  refused %u: %s\n", report->reasons[i].count, report->reasons[i].text);
}

/* ---- */

/* Asked in a process of its own: drivers do not survive a fork. */
static bool has_device(void)
{
    int status = 0;
    const pid_t process = fork();
    if (process == 0) {
        bool found = false;
        for (size_t i = 0; i < salvo_device_count(); i++) {
            struct salvo_device device = SALVO_DEVICE_INIT;
            found |= salvo_device_at(i, &device) == SALVO_OK && strcmp(device.backend, backend) == 0;
        }
        _exit(found ? 0 : 1);
    }
    return process > 0 && waitpid(process, &status, 0) == process && status == 0;
}

static int usage(void)
{
    fprintf(stderr,
        "usage: fuzz-shapes [--backend cpu|cuda|metal|vulkan] [--seed FIRST] [--count N] [--jobs N] "
        "[--keep FILE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    unsigned long long seed = 1, count = 100, jobs = 1;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage();
        if (strcmp(argv[i], "--backend") == 0)
            backend = argv[i + 1];
        else if (strcmp(argv[i], "--keep") == 0)
            keep = argv[i + 1];
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--count") == 0)
            count = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--jobs") == 0)
            jobs = strtoull(argv[i + 1], NULL, 10);
        else
            return usage();
    }
    if (!count || !jobs || jobs > MOST_JOBS || (keep && count > 1))
        return usage();
    if (!has_device()) {
        printf("skipped: backend '%s' has no device\n", backend);
        return SKIPPED;
    }
    if (!mkdtemp(folder)) {
        fprintf(stderr, "fuzz-shapes: %s: %s\n", folder, strerror(errno));
        return 1;
    }
    struct report report = {0};
    struct job running[MOST_JOBS] = {{0}};
    unsigned long long started = 0, busy = 0;
    while (started < count || busy) {
        unsigned i = 0;
        while (i < jobs && running[i].process)
            i++;
        if (started < count && i < jobs) {
            if (!start(&running[i], seed + started++)) {
                fprintf(stderr, "fuzz-shapes: cannot start a process: %s\n", strerror(errno));
                return 1;
            }
            busy++;
        } else {
            wait_for_one(running, &report);
            busy--;
        }
    }
    rmdir(folder);
    print_report(&report);
    return report.failed != 0;
}
