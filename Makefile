# Short names for CMake, Ninja and CTest commands. Each target first installs its requirements (scripts/setup).
PREFIX ?= /usr/local
DESTDIR ?=
export DESTDIR
export SALVO_PYTHON ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/salvo/venv/bin/python
FUZZ_SECONDS ?= 600
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CTEST = ctest --output-on-failure --no-tests=error -j $(JOBS)
build = cmake --preset $(1) && cmake --build build-$(1) $(2)
OTHER = $(if $(filter x86_64,$(shell uname -m)),aarch64,x86_64)

.DEFAULT_GOAL = all
.NOTPARALLEL:
.PHONY: all run test test-all test-cuda test-vulkan mutate lint bench fuzz soak package install clean help

all: ## build the optimised program, build/salvo
	@scripts/setup build
	@[ -e build/build.ninja ] || cmake --preset release
	@cmake --build build --target salvo salvo-shared salvo-static
	@cat build/backends.txt

run: all ## fetch the default model and ask it a question
	@$(if $(SALVO_MODEL),,scripts/setup model)
	build/salvo run --chat --stats --temp 0 -n 200 -p 'What is the capital of France, and what is it known for?' < /dev/null
	@echo 'Talk to it: build/salvo chat'

test: ## all tests but the slow ones
	@scripts/setup test
	cmake --preset release -DSALVO_TESTS=ON
	cmake --build build
	$(CTEST) --test-dir build -LE 'slow|soak'

test-all: ## longer tests: slow tests, AddressSanitizer and UBSan (clang), TSan (gcc), the other CPU, macOS (link only), short fuzzing
	@scripts/setup all
	cmake --preset release -DSALVO_TESTS=ON
	cmake --build build
	$(call build,macos,--target salvo)
	$(call build,asan)
	$(call build,tsan,--target salvo quick-tests)
	$(call build,$(OTHER),--target salvo salvo-shared salvo-static quick-tests)
	cmake --preset fuzz -DSALVO_FUZZ_SECONDS=20
	cmake --build build-fuzz --target fuzz-targets
	$(CTEST) --test-dir build -L slow
	$(CTEST) --test-dir build-asan -L quick
	$(CTEST) --test-dir build-tsan -L quick -LE one_thread
	$(CTEST) --test-dir build-$(OTHER) -L quick -LE long
	$(CTEST) --test-dir build-fuzz -L fuzz

test-cuda: ## the CUDA backend: on an emulator, and on a GPU where there is one (then also compute-sanitizer)
	@scripts/setup test
	cmake --preset release -DSALVO_TESTS=ON
	cmake --build build
	$(CTEST) --test-dir build -L cuda
	@tests/cuda/on_cuda_device build || [ $$? = 77 ]

test-vulkan: ## the Vulkan backend: on lavapipe with validation layers, and on a GPU where there is one
	@scripts/setup test
	cmake --preset release -DSALVO_TESTS=ON
	cmake --build build
	$(CTEST) --test-dir build -L vulkan
	@tests/vulkan/on_vulkan_device build $(JOBS) || [ $$? = 77 ]

mutate: ## put single mistakes into a copy of the tree and report those that no test notices (hours)
	@scripts/setup test
	@tests/mutate -j $(JOBS)

lint: ## clang-format, clang-tidy, cppcheck, shellcheck, and checks of includes, symbols and sizes
	@scripts/setup lint
	@scripts/lint $(JOBS)

bench: ## time the default model, the tokenizer and the kernels
	@scripts/setup test
	@bench/run

fuzz: ## run every fuzz target for FUZZ_SECONDS (600), from the corpus of earlier runs
	@scripts/setup fuzz
	cmake --preset fuzz -DSALVO_FUZZ_SECONDS=$(FUZZ_SECONDS)
	cmake --build build-fuzz --target fuzz-targets
	$(CTEST) --test-dir build-fuzz -L fuzz
	@sed -n 's/.*Testing: \(.*\)/\1:/p; s/^stat::number_of_executed_units: */  executions: /p' \
		build-fuzz/Testing/Temporary/LastTest.log

SHAPES = tests/shapes/fuzz-shapes --seed $(SEED) --jobs $(JOBS)
SEED ?= 10000
SERVE_SECONDS ?= 1800
SOAK_SERVE = SALVO_SOURCE=$(CURDIR) tests/run_python tests/server/soak_serve.py

soak: ## hours: the longest tests of Vulkan, 10000 requests on each scheduler and from Python, a thousand turns on Metal, random model shapes from SEED (10000) on, load on the server under ASan and TSan, equal tarballs of two builds, the interface of the last tag, half an hour of every fuzz target
	@scripts/setup all
	cmake --preset release -DSALVO_TESTS=ON
	cmake --build build
	$(call build,asan,--target fuzz-shapes salvo)
	$(call build,tsan,--target salvo)
	$(CTEST) --test-dir build -L soak
	SALVO_SOURCE=$(CURDIR) tests/run_python tests/server/slow_readers.py build/salvo
	ASAN_OPTIONS=quarantine_size_mb=16 $(SOAK_SERVE) build-asan/salvo $(SERVE_SECONDS)
	$(SOAK_SERVE) build-tsan/salvo $(SERVE_SECONDS)
	SALVO_SOURCE=$(CURDIR) tests/run_python tests/python/soak_generations.py build/libsalvo.so.1 build/tests/models/make-words-model
	scripts/check-reproducible aarch64
	scripts/check-reproducible x86_64
	scripts/check-abi
	build/tests/models/test_scheduler 1 10000
	build/tests/models/test_orders 1 3000
	build/$(SHAPES) --backend cpu --count 5000
	ASAN_OPTIONS=detect_leaks=0 build-asan/$(SHAPES) --backend cpu --count 500
	SALVO_CUDA_LIBRARY=build/tests/cuda/libfake-cuda.so build/$(SHAPES) --backend cuda --count 300
	SALVO_METAL_LIBRARY=build/tests/metal/libfake-metal.so build/tests/metal/test_metal_long
	SALVO_METAL_LIBRARY=build/tests/metal/libfake-metal.so build/$(SHAPES) --backend metal --count 40
	build/$(SHAPES) --backend vulkan --count 40
	SALVO_VULKAN_DISABLE=processor build/$(SHAPES) --backend vulkan --count 10
	@$(MAKE) fuzz FUZZ_SECONDS=1800

package: ## Debian packages with all CUDA architectures, in build-package/
	@scripts/setup build
	@scripts/package

install: all ## install program, man pages, headers and library under PREFIX (/usr/local); DESTDIR is honoured
	cmake --install build --prefix "$(PREFIX)"

clean: ## remove all build folders
	rm -rf $(patsubst %,build%,"" -debug -asan -tsan -fuzz -coverage -mutate -x86_64 -aarch64 -macos -package -tarball)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '%-16s %s\n' "$$target" "$$text"; done
