"""A driver that fails a call: one line that names the call and the device, and exit status 1. Then a damaged cache."""
import glob
import os
import subprocess
import sys
import tempfile

CALLS = """vkCreateBuffer vkAllocateMemory vkBindBufferMemory vkMapMemory vkCreateShaderModule vkCreateComputePipelines
vkCreateDescriptorPool vkAllocateDescriptorSets vkCreateCommandPool vkAllocateCommandBuffers vkBeginCommandBuffer
vkEndCommandBuffer vkCreateFence vkQueueSubmit vkWaitForFences vkResetFences vkCreatePipelineCache
vkCreateDescriptorSetLayout vkCreatePipelineLayout""".split()


def main(salvo, make_model, driver):
    drivers = glob.glob("/usr/lib/*/libvulkan_lvp.so")
    if not drivers:
        print("lavapipe is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        subprocess.run([make_model, "llama-tiny", "F32", model], check=True)
        base = dict(os.environ, FAILING_DRIVER_OF=drivers[0], SALVO_VULKAN_ICD=driver, XDG_CACHE_HOME=folder)
        command = [salvo, "eval", "--backend", "vulkan", "-m", model, "--tokens", "1,2,3", "-q"]

        def run(call):
            return subprocess.run(
                command, env=dict(base, FAILING_DRIVER_CALL=call), capture_output=True, text=True, timeout=300, check=False)

        expected = run("")
        assert expected.returncode == 0, expected.stderr
        for call in CALLS:
            result = run(call)
            assert result.returncode == 1, (call, result.returncode, result.stderr)
            assert f"{call} on " in result.stderr and result.stderr.count("\n") == 1, (call, result.stderr)

        kept = glob.glob(os.path.join(folder, "salvo", "vulkan-*"))
        assert kept, "no pipeline cache was kept"
        with open(kept[0], "r+b") as file:
            file.seek(40)
            file.write(b"damaged" * 100)
        result = run("")
        assert result.returncode == 0 and result.stdout == expected.stdout, result.stderr
    return 0


sys.exit(main(*sys.argv[1:]))
