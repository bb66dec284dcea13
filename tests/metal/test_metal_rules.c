/* Each rule of Metal that the emulator checks is broken once, by the calls of the backend. Races are the
 * subject of test_metal_barriers. */
#include "backend/metal/metal_device.h"
#include "metal/find_fake_metal.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONCURRENT = 1, BYTES = 4096, SERIAL = 0, SCOPE_TEXTURES = 2 };

/* A device with an encoder in the innermost pool. */
struct bench {
    struct metal_device device;
    struct metal_buffer buffer;
    struct metal_pipeline pipeline;
    void *pool;
    objc_id commands, encoder;
};

static struct bench bench_open(void)
{
    struct bench bench = {.pipeline = {.kernel = "normalise"}};
    assert_true(metal_device_count() > 0);
    ASSERT_OK(metal_device_open(0, &bench.device));
    ASSERT_OK(metal_buffer_open(&bench.device, BYTES, "a test", &bench.buffer));
    ASSERT_OK(metal_pipeline_open(&bench.device, 32, &bench.pipeline));
    bench.pool = objc.push_pool();
    bench.commands = objc_command_buffer(bench.device.queue);
    bench.encoder = objc_encoder(bench.commands, CONCURRENT);
    assert_int_equal(0, fake_metal()->violations);
    return bench;
}

static void bench_close(struct bench *bench)
{
    objc.pop_pool(bench->pool);
    objc_release(bench->pipeline.handle);
    metal_buffer_close(&bench->buffer);
    metal_device_close(&bench->device);
}

/* ---- Rules whose violation is counted ---- */

static void encode_after_the_end(struct bench *bench)
{
    objc_end_encoding(bench->encoder);
    objc_set_pipeline(bench->encoder, bench->pipeline.handle);
}

static void commit_while_encoding(struct bench *bench)
{
    objc_commit(bench->commands);
    objc_wait_until_completed(bench->commands);
}

static void commit_twice(struct bench *bench)
{
    objc_end_encoding(bench->encoder);
    objc_commit(bench->commands);
    objc_wait_until_completed(bench->commands);
    objc_commit(bench->commands);
    objc_wait_until_completed(bench->commands);
}

static void open_a_second_encoder(struct bench *bench)
{
    (void)objc_encoder(bench->commands, CONCURRENT);
}

static void open_a_serial_encoder(struct bench *bench)
{
    objc_end_encoding(bench->encoder);
    (void)objc_encoder(bench->commands, SERIAL);
}

static void signal_while_encoding(struct bench *bench)
{
    objc_encode_signal(bench->commands, bench->device.event, 1);
}

static void map_no_whole_page(struct bench *bench)
{
    objc_release(objc_new_buffer_without_copy(
        bench->device.physical->handle, bench->buffer.bytes, metal_page() - 16, 0, NULL));
}

static void map_within_a_page(struct bench *bench)
{
    objc_release(objc_new_buffer_without_copy(
        bench->device.physical->handle, bench->buffer.bytes + 64, metal_page(), 0, NULL));
}

static void make_an_empty_buffer(struct bench *bench)
{
    objc_release(objc_new_buffer(bench->device.physical->handle, 0, 0));
}

static void bind_beyond_the_end(struct bench *bench)
{
    objc_set_buffer(bench->encoder, bench->buffer.handle, BYTES, 1);
}

static void bind_within_a_word(struct bench *bench)
{
    objc_set_buffer(bench->encoder, bench->buffer.handle, 2, 1);
}

static void pass_too_many_bytes(struct bench *bench)
{
    static uint8_t bytes[4097];
    objc_set_bytes(bench->encoder, bytes, sizeof bytes, 0);
}

static void take_too_much_threadgroup_memory(struct bench *bench)
{
    objc_set_threadgroup_memory(bench->encoder, 32768 + 16, 0);
}

static void take_odd_threadgroup_memory(struct bench *bench)
{
    objc_set_threadgroup_memory(bench->encoder, 24, 0);
}

static void dispatch_without_a_pipeline(struct bench *bench)
{
    objc_dispatch(bench->encoder, (struct objc_size){1, 1, 1}, (struct objc_size){32, 1, 1});
}

static void dispatch_without_buffers(struct bench *bench)
{
    objc_set_pipeline(bench->encoder, bench->pipeline.handle);
    objc_dispatch(bench->encoder, (struct objc_size){1, 1, 1}, (struct objc_size){32, 1, 1});
}

static void dispatch_of_no_groups(struct bench *bench)
{
    objc_set_pipeline(bench->encoder, bench->pipeline.handle);
    objc_set_threadgroup_memory(bench->encoder, 256, 0);
    for (objc_count i = 0; i < 8; i++)
        objc_set_buffer(bench->encoder, bench->buffer.handle, 0, i);
    objc_dispatch(bench->encoder, (struct objc_size){1, 0, 1}, (struct objc_size){32, 1, 1});
}

static void wait_for_textures(struct bench *bench)
{
    objc_barrier(bench->encoder, SCOPE_TEXTURES);
}

static void request_what_is_not_committed(struct bench *bench)
{
    metal_keep_resident(&bench->device, &bench->buffer);
    objc_request_residency(bench->device.residency);
}

static void violations_are_counted(void **state)
{
    (void)state;
    static const struct {
        void (*violate)(struct bench *bench);
        const char *text;
    } rules[] = {{encode_after_the_end, "a command after endEncoding"},
        {commit_while_encoding, "committed twice, or before its encoder has ended"},
        {commit_twice, "committed twice, or before its encoder has ended"},
        {open_a_second_encoder, "while another one encodes"}, {open_a_serial_encoder, "an encoder of type 0"},
        {signal_while_encoding, "signalled while an encoder encodes"}, {map_no_whole_page, "not whole pages"},
        {map_within_a_page, "not whole pages"}, {make_an_empty_buffer, "a buffer of 0 bytes"},
        {bind_beyond_the_end, "buffer 1 at offset 4096"}, {bind_within_a_word, "buffer 1 at offset 2"},
        {pass_too_many_bytes, "4097 bytes at index 0"},
        {take_too_much_threadgroup_memory, "threadgroup memory of 32784 bytes"},
        {take_odd_threadgroup_memory, "threadgroup memory of 24 bytes"},
        {dispatch_without_a_pipeline, "without a pipeline"}, {dispatch_without_buffers, "is not bound"},
        {dispatch_of_no_groups, "1 x 0 x 1 groups"}, {wait_for_textures, "a barrier of scope 2"},
        {request_what_is_not_committed, "before the set is committed"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct bench bench = bench_open();
        rules[i].violate(&bench);
        if (fake_metal()->violations == 0 || !strstr(fake_metal()->first_violation, rules[i].text))
            fail_msg("'%s' is not reported", rules[i].text);
        fake_metal()->violations = 0;
        bench_close(&bench);
    }
}

/* ---- Rules whose violation ends the program ---- */

static void use_after_release(struct bench *bench)
{
    objc_release(bench->buffer.handle);
    (void)objc_contents(bench->buffer.handle);
}

/* Command buffers and encoders belong to the pool. */
static void keep_past_the_pool(struct bench *bench)
{
    objc.pop_pool(bench->pool);
    objc_end_encoding(bench->encoder);
}

static void make_without_a_pool(struct bench *bench)
{
    objc.pop_pool(bench->pool);
    (void)objc_command_buffer(bench->device.queue);
}

static void pop_in_another_order(struct bench *bench)
{
    (void)objc.push_pool();
    objc.pop_pool(bench->pool);
}

/* A command buffer does not keep what its commands use. */
static void release_a_buffer_in_use(struct bench *bench)
{
    objc_set_pipeline(bench->encoder, bench->pipeline.handle);
    objc_set_threadgroup_memory(bench->encoder, 256, 0);
    for (objc_count i = 0; i < 8; i++)
        objc_set_buffer(bench->encoder, bench->buffer.handle, 0, i);
    objc_dispatch(bench->encoder, (struct objc_size){1, 1, 1}, (struct objc_size){32, 1, 1});
    objc_end_encoding(bench->encoder);
    objc_commit(bench->commands);
    objc_release(bench->buffer.handle);
    objc_wait_until_completed(bench->commands);
}

static void ask_what_no_class_has(struct bench *bench)
{
    (void)objc_most_threads(bench->buffer.handle);
}

/* A child that does this aborts with an error that has the text. */
static void check_abort(void (*violate)(struct bench *bench), const char *text)
{
    int result, ends[2];
    char said[256] = "";
    assert_int_equal(0, pipe(ends));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bench bench = bench_open();
        if (dup2(ends[1], STDERR_FILENO) < 0)
            _exit(2);
        signal(SIGABRT, SIG_DFL);
        violate(&bench);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(child, waitpid(child, &result, 0));
    assert_true(read(ends[0], said, sizeof said - 1) >= 0);
    close(ends[0]);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT);
    if (!strstr(said, text))
        fail_msg("'%s' instead of '%s'", said, text);
}

static void objects_that_are_gone_end_the_program(void **state)
{
    (void)state;
    check_abort(use_after_release, "contents is sent to an object that is gone");
    check_abort(keep_past_the_pool, "endEncoding is sent to an object that is gone");
    check_abort(make_without_a_pool, "autoreleased without a pool");
    check_abort(pop_in_another_order, "pools are not popped in order");
    check_abort(release_a_buffer_in_use, "a command uses a buffer that is gone");
    check_abort(ask_what_no_class_has, "does not understand maxTotalThreadsPerThreadgroup");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(violations_are_counted),
        cmocka_unit_test(objects_that_are_gone_end_the_program),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
