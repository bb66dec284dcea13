/* Programs under the GPU-assisted checks of the Khronos layer, which check every access of a shader: none is
 * outside of its buffer. One test shows that the checks notice such an access. */
#include "vulkan_test.h"

#include "backend/vulkan/vulkan_executor.h"
#include "engine/engine.h"

#include <stdlib.h>

static void programs_stay_within_their_buffers(void **state)
{
    (void)state;
    assert_verified(made_model("llama-mini", "Q4_K"), SALVO_KV_F16);
    assert_verified(made_model("rwkv7-256", "Q8_0"), SALVO_KV_AUTO);
}

/* Also the programs of llama-odd: floats, and rows that no block fits. */
static void sampling_stays_within_its_buffers(void **state)
{
    (void)state;
    const struct salvo_sampler sampler = {.size = sizeof(struct salvo_sampler),
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.9f,
        .min_p = 0.01f,
        .repeat_penalty = 1.1f,
        .repeat_last_n = 64};
    struct fixture fixture = fixture_open(made_model("llama-odd", "Q4_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
            .backend = "vulkan",
            .context = 300,
            .batch = 280,
            .sessions = 2});
    struct salvo_session *sessions[2] = {fixture.session};
    int32_t *ids = some_ids(270, fixture.vocabulary, 2), chosen[2];
    enum salvo_status statuses[2];
    ASSERT_OK(salvo_session_open(fixture.engine, &sessions[1]));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_set_sampler(sessions[i], &sampler));
        ASSERT_OK(salvo_session_set_bias(sessions[i], 3, -1));
        ASSERT_OK(salvo_session_feed(sessions[i], ids, i ? 5 : 270)); /* the first goes over a page */
    }
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(salvo_engine_next(sessions, 2, chosen, statuses));
        ASSERT_OK(salvo_session_next(sessions[0], &chosen[0])); /* alone: the plan for one token */
    }
    free(ids);
    salvo_session_close(sessions[1]);
    fixture_close(&fixture);
}

/* Norms from a buffer that is too small: the layer must report this, or the tests above would prove nothing.
 */
static void an_access_outside_of_a_buffer_is_noticed(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-odd", "Q4_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .backend = "vulkan"});
    struct executor *executor = fixture.engine->executor;
    struct vulkan_plan *plan = &executor->single;
    const struct vulkan_device *device = &executor->device;
    const VkDescriptorBufferInfo small = {executor->ring_state.handle, 0, VK_WHOLE_SIZE};
    const int32_t id = 1;
    for (uint32_t i = 0; i < plan->dispatch_count; i++) {
        const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = plan->sets[i],
            .dstBinding = BIND_VECTORS,
            .descriptorCount = 1,
            .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .pBufferInfo = &small};
        device->call.UpdateDescriptorSets(device->handle, 1, &write, 0, NULL);
    }
    ASSERT_OK(vulkan_plan_record(executor, plan, 0, plan->dispatch_count, 1, plan->commands, VK_NULL_HANDLE));
    const uint64_t before = vulkan_validation_messages();
    (void)salvo_session_feed(fixture.session, &id, 1);
    assert_true(vulkan_validation_messages() > before);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_stay_within_their_buffers),
        cmocka_unit_test(sampling_stays_within_its_buffers),
        cmocka_unit_test(no_validation_messages),
        cmocka_unit_test(an_access_outside_of_a_buffer_is_noticed),
    };
    return RUN_VULKAN_TESTS(tests);
}
