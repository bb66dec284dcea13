"""A driver that fails a call: one line that names the call and the device, and exit status 1; `auto` says so and goes on
with the CPU. Too little memory, a device that binds little at once, a damaged cache."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

CALLS = """vkCreateDevice vkCreateSemaphore vkCreateBuffer vkAllocateMemory vkBindBufferMemory vkMapMemory vkCreateShaderModule vkCreateComputePipelines
vkCreateDescriptorPool vkAllocateDescriptorSets vkCreateCommandPool vkAllocateCommandBuffers vkBeginCommandBuffer
vkEndCommandBuffer vkCreateFence vkQueueSubmit vkWaitForFences vkResetFences vkCreatePipelineCache
vkCreateDescriptorSetLayout vkCreatePipelineLayout""".split()


class Checks:
    def __init__(self, salvo, make_model, driver, lavapipe, folder):
        self.salvo, self.make_model, self.folder = salvo, make_model, folder
        self.environment = dict(os.environ, FAILING_DRIVER_OF=lavapipe, SALVO_VULKAN_ICD=driver, XDG_CACHE_HOME=folder,
                                SALVO_CUDA_LIBRARY="none")
        self.model = self.make("llama-tiny", "F32")

    def make(self, shape, mix):
        path = os.path.join(self.folder, f"{shape}-{mix}.gguf")
        subprocess.run([self.make_model, shape, mix, path], check=True)
        return path

    def run(self, *arguments, **environment):
        return subprocess.run([self.salvo, *arguments], env=dict(self.environment, **environment), capture_output=True,
                              timeout=300, check=False)

    def evaluate(self, *arguments, backend="vulkan", model=None, **environment):
        """A batch of one token needs the fewest pipelines: lavapipe compiles each of them again in every process."""
        return self.run("eval", "--backend", backend, "-m", model or self.model, "--tokens", "1,2,3", "-c", "16", "-b", "1",
                        *arguments, **environment)

    def every_call(self):
        for call in CALLS:
            result = self.evaluate("-q", FAILING_DRIVER_CALL=call)
            error = result.stderr.decode()
            assert result.returncode == 1, (call, result.returncode, error)
            assert f"{call} on " in error and error.count("\n") == 1, (call, error)

    def calls_before_there_is_a_device(self):
        for call in ("vkCreateInstance", "vkEnumeratePhysicalDevices"):
            result = self.evaluate(FAILING_DRIVER_CALL=call)
            error = result.stderr.decode()
            assert result.returncode == 1 and f"{call} failed" in error and "has no device" in error, (call, error)

    def calls_that_can_be_done_without(self):
        expected = self.evaluate("--logits", "-").stdout
        for call in ("vkGetPipelineCacheData", "vkEnumerateDeviceExtensionProperties"):
            result = self.evaluate("--logits", "-", FAILING_DRIVER_CALL=call)
            assert expected and result.stdout == expected, (call, result.stderr)

    def a_profile_is_one_json_document(self):
        result = self.run("bench", "--backend", "vulkan", "-m", self.model, "-p", "4,9", "-n", "2", "-d", "0,3", "-r", "1", "-q",
                          "--profile", "--json")
        assert result.returncode == 0, result.stderr
        profiles = json.loads(result.stdout)["profiles"]
        assert [(profile["depth"], profile["tokens"]) for profile in profiles] == [(0, 4), (0, 9), (0, 1), (3, 4), (3, 9), (3, 1)]
        assert all(profile["phases"] for profile in profiles)

    def calls_of_measurements(self):
        bench = ("bench", "--backend", "vulkan", "-m", self.model, "-p", "0", "-n", "2", "-r", "1", "-q")
        for call in ("vkCreateQueryPool", "vkGetQueryPoolResults"):
            result = self.run(*bench, "--profile", FAILING_DRIVER_CALL=call)
            assert result.returncode == 1 and f"{call} on " in result.stderr.decode(), (call, result.stderr)
            result = self.run(*bench, FAILING_DRIVER_CALL=call)  # idle time is not printed
            assert result.returncode == 0, (call, result.stderr)

    def auto_goes_on_with_the_cpu(self):
        """Only if no backend was named, and with a message."""
        expected = self.evaluate(backend="cpu").stdout
        assert expected
        for said, lacking in (("vkCreateBuffer on ", {"FAILING_DRIVER_CALL": "vkCreateBuffer"}),
                              ("has 5 MB free of ", {"FAILING_DRIVER_FREE": "5000000"})):
            result = self.evaluate(backend="auto", FAILING_DRIVER_GPU="1", **lacking)
            error = result.stderr.decode()
            assert result.returncode == 0 and result.stdout == expected, error
            assert said in error and "going on with cpu" in error, error

    def too_little_memory(self):
        """The error names the memory requested and the memory free."""
        result = self.evaluate("-q", FAILING_DRIVER_FREE="5000000")
        error = result.stderr.decode()
        assert result.returncode == 1 and error.count("\n") == 1, error
        assert "8 MB for staging: " in error and "has 5 MB free of " in error, error

    def matrices_in_parts(self):
        """Cut by rows, they give the same bits."""
        for mix, most in (("F32", "270000"), ("Q4_K", "70000"), ("Q8_0", "70000")):
            model, size = self.make("llama-256", mix), ("-c", "16", "-b", "4")
            results, dispatches = [], []
            for limit in ({}, {"FAILING_DRIVER_RANGE": most}):
                results.append(self.evaluate("--logits", "-", "-q", *size, model=model, **limit))
                shown = self.run("info", "--program", "--backend", "vulkan", "-m", model, *size, **limit).stdout.decode()
                dispatches.append(int(re.search(r"plan for 1 tokens: .*?(\d+) dispatches", shown).group(1)))
            assert results[1].returncode == 0, (mix, results[1].stderr)
            assert results[0].stdout and results[0].stdout == results[1].stdout, mix
            assert dispatches[0] < dispatches[1], (mix, dispatches)

    def attention_that_multiplies(self):
        """A GPU's attention makes a token's query, key and value itself where it can bind all that it needs for that: the
        same bits as from dispatches of their own. So many tokens that there are two splits."""
        ids = ",".join(str(i * 37 % 331) for i in range(66))
        common = ("--backend", "vulkan", "-m", self.make("llama-256", "Q4_0"), "-c", "80", "-b", "1")
        results, attends = [], []
        for limit in ({}, {"FAILING_DRIVER_RANGE": "70000"}):
            environment = dict(limit, FAILING_DRIVER_GPU="1", SALVO_VULKAN_DISABLE="halves")
            results.append(self.run("eval", "--tokens", ids, "--all", "--logits", "-", "-q", *common, **environment))
            attends.append(b"attend rms_norm" in self.run("info", "--program", *common, **environment).stdout)
        assert attends == [True, False], attends
        assert results[0].returncode == results[1].returncode == 0, (results[0].stderr, results[1].stderr)
        assert results[0].stdout and results[0].stdout == results[1].stdout

    def weights_without_a_copy(self):
        """The mapped file itself, or a copy of it where the device refuses: the same bits."""
        for mix in ("F32", "F16"):
            model, results = self.make("llama-256", mix), []
            for environment in ({}, {"SALVO_VULKAN_DISABLE": "host-import"},
                                {"FAILING_DRIVER_CALL": "vkGetMemoryHostPointerPropertiesEXT"}):
                shown = self.run("info", "--program", "--backend", "vulkan", "-m", model, "-c", "16", "-b", "1",
                                 **environment).stdout.decode()
                imported = int(re.search(r"in the mapped file: (\d+) bytes", shown).group(1))
                assert (imported > 0) == (not environment), shown
                results.append(self.evaluate("--logits", "-", model=model, **environment))
            assert results[0].stdout and results[0].stdout == results[1].stdout == results[2].stdout, mix

    def damaged_cache(self):
        expected = self.evaluate().stdout
        kept = glob.glob(os.path.join(self.folder, "salvo", "vulkan-*"))
        assert kept and expected, "no pipeline cache was kept"
        for place, bytes_there in ((40, b"damaged" * 100), (0, b"not a cache"), (8, b"\xff" * 8)):
            with open(kept[0], "r+b") as file:
                file.seek(place)
                file.write(bytes_there)
            result = self.evaluate()
            assert result.returncode == 0 and result.stdout == expected, result.stderr
        os.truncate(kept[0], 100)
        assert self.evaluate().stdout == expected


def main(salvo, make_model, driver):
    drivers = glob.glob("/usr/lib/*/libvulkan_lvp.so")
    if not drivers:
        print("lavapipe is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(salvo, make_model, driver, drivers[0], folder)
        assert checks.evaluate().returncode == 0, checks.evaluate().stderr
        checks.every_call()
        checks.calls_before_there_is_a_device()
        checks.calls_that_can_be_done_without()
        checks.a_profile_is_one_json_document()
        checks.calls_of_measurements()
        checks.auto_goes_on_with_the_cpu()
        checks.too_little_memory()
        checks.matrices_in_parts()
        checks.attention_that_multiplies()
        checks.weights_without_a_copy()
        checks.damaged_cache()
    return 0


sys.exit(main(*sys.argv[1:]))
