"""A driver that fails a call: one line that names the call and the device, and exit status 1; `auto` says so and goes on
with the CPU. Too little memory, a device that binds little at once, a damaged cache."""
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

        def run(call, **more):
            environment = dict(base, FAILING_DRIVER_CALL=call, SALVO_CUDA_LIBRARY="none")
            environment.update(more)
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

        expected = run("")
        assert expected.returncode == 0, expected.stderr
        on_the_cpu = subprocess.run([salvo, "eval", "--backend", "cpu"] + command[4:], capture_output=True, text=True,
                                    check=True).stdout
        for call in CALLS:
            result = run(call)
            assert result.returncode == 1, (call, result.returncode, result.stderr)
            assert f"{call} on " in result.stderr and result.stderr.count("\n") == 1, (call, result.stderr)

        # Only where nobody named the backend does the CPU take over, and it is said.
        command[3] = "auto"
        result = run("vkCreateBuffer", FAILING_DRIVER_GPU="1")
        assert result.returncode == 0 and "vkCreateBuffer on " not in result.stdout, result.stderr
        command.remove("-q")
        for lacking in ({"FAILING_DRIVER_CALL": "vkCreateBuffer"}, {"FAILING_DRIVER_FREE": "5000000"}):
            result = run("", FAILING_DRIVER_GPU="1", **lacking)
            said = lacking.get("FAILING_DRIVER_CALL", "5 MB free of")
            assert result.returncode == 0 and said in result.stderr, result.stderr
            assert "going on with cpu" in result.stderr and result.stdout == on_the_cpu, result.stderr
        command[3] = "vulkan"
        command.append("-q")

        # What was asked for, and what was free.
        result = run("", FAILING_DRIVER_FREE="5000000")
        assert result.returncode == 1 and "8 MB for staging" in result.stderr, result.stderr
        assert "has 5 MB free of " in result.stderr and result.stderr.count("\n") == 1, result.stderr

        # Matrices larger than what can be bound at once.
        large = os.path.join(folder, "large.gguf")
        for mix in ("F32", "Q4_K"):
            subprocess.run([make_model, "llama-256", mix, large], check=True)
            result = subprocess.run(
                [salvo, "verify", "--backend", "vulkan", "--against", "cpu", "-m", large, "-c", "48", "-b", "4"],
                env=dict(base, FAILING_DRIVER_RANGE="270000"), capture_output=True, text=True, timeout=600, check=False)
            assert result.returncode == 0, (mix, result.stdout, result.stderr)

        kept = glob.glob(os.path.join(folder, "salvo", "vulkan-*"))
        assert kept, "no pipeline cache was kept"
        with open(kept[0], "r+b") as file:
            file.seek(40)
            file.write(b"damaged" * 100)
        result = run("")
        assert result.returncode == 0 and result.stdout == expected.stdout, result.stderr
    return 0


sys.exit(main(*sys.argv[1:]))
