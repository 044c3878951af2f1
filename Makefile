# `make` builds the library and the command; `make help` lists the other targets.

LIBRARY = target/release/libcachealloc.so
PREFIX ?= /usr/local
# The profile of the tests: all assertions are on, and tests may switch off single rules.
CHECKED = --profile checked

# Most tests wait for their processes, so twice as many tests run at once as there are processors.
export RUST_TEST_THREADS ?= $(shell expr 2 '*' $$(nproc))

# Random tests are the same in every run; another seed gives others.
export PROPTEST_RNG_SEED ?= 1

# Tests start Python hundreds of times, and pyenv's shim starts about thirty programs each time.
PYTHON_FOLDER = $(shell python3 -c 'import os, sys; print(os.path.dirname(sys.executable))')
test test-long: export PATH := $(if $(findstring /shims/,$(shell command -v python3)),$(PYTHON_FOLDER):)$(PATH)

.DEFAULT_GOAL := build
.PHONY: build library command install uninstall dist deb wheel release check test test-long test-aarch64 test-weak test-pythons viewer-test pictures gpu-test bench bench-traces bench-fit demo samples fmt clean help

build: library command ## build the library and the command: target/release/libcachealloc.so, target/release/cachealloc

library: ## build the library only
	cargo build --release -p cachealloc-preload

command: ## build the command only
	cargo build --release -p cachealloc-cli

# Build first, as a user: `make && sudo make install`.
install: ## put both where they are found: PREFIX=/usr/local, DESTDIR= for packages
	scripts/package/install.sh "$(DESTDIR)$(PREFIX)"

uninstall: ## take them away again
	scripts/package/install.sh --remove "$(DESTDIR)$(PREFIX)"

# Each package target also updates the checksums of all packages: target/dist/SHA256SUMS.
dist: build ## a tarball that runs where it is unpacked: target/dist/*.tar.gz
	scripts/package/dist.sh && scripts/package/checksums.sh

deb: build ## a Debian package: target/dist/*.deb
	scripts/package/deb.sh && scripts/package/checksums.sh

wheel: build ## a wheel for pip, with a Python module: target/dist/*.whl
	scripts/package/wheel.py && scripts/package/checksums.sh

release: ## all packages of a clean tree, and what would be tagged; ARGS=--tag sets the tag
	scripts/package/release.sh $(ARGS)

check: ## formatting and lints, warnings denied
	scripts/check.sh

# Everything is built once, with the features by which tests switch off single rules.
SWITCHES = --features cachealloc-core/break-rules,cachealloc-preload/break-rules
ALL = $(CHECKED) --workspace $(SWITCHES)

test: ## the fast tier, minutes: at least one test of every kind; needs no GPU
	scripts/tools.sh
	scripts/check.sh
	cargo build -q $(ALL)
	cargo test -q --no-fail-fast $(ALL)

test-long: export TEST_TIER = long
test-long: library ## every test at full counts, the library as users get it, and the other processor; needs no GPU
	scripts/tools.sh --long
	scripts/check.sh --other
	cargo test -q $(CHECKED) -p cachealloc-core
	cargo build -q $(ALL)
	cargo test -q --no-fail-fast $(ALL) -- --include-ignored --skip storm::
	cargo test -q $(ALL) --test it -- --include-ignored storm::
	scripts/report/test.py target/checked/cachealloc

test-aarch64: ## the tests that can run under qemu, and the packages, for aarch64
	scripts/test-aarch64.sh $(ARGS)

test-weak: ## the lock-free parts under Miri, which reorders what a processor may
	scripts/test-weak.sh $(ARGS)

test-pythons: ## Python's stacks in interpreters built from SOURCES="..."
	scripts/test-pythons.sh $(SOURCES)

viewer-test: ## snapshots in PyTorch's own viewer: VIEWER=MemoryViz.js [SNAPSHOTS="..."] [D3=node_modules/d3]
	$(if $(SNAPSHOTS),,cargo build -q $(CHECKED) -p simulated-driver -p cachealloc-preload -p cachealloc-tests \
		--features cachealloc-preload/break-rules)
	scripts/report/viewer-test.mjs --viewer "$(VIEWER)" --d3 "$(D3)" $(SNAPSHOTS)

gpu-test: library ## programs on this machine's GPU, without and with the library; ARGS="--only ..."
	cargo build -q $(ALL)
	scripts/gpu run hazards programs --lib $(LIBRARY) $(ARGS)

bench: library bench-traces ## memory of real traces on the simulated driver, then times on this machine's GPU if it has one
	@if command -v nvcc >/dev/null; then scripts/bench/gpu.sh --lib $(LIBRARY) $(ARGS) && scripts/bench/graphs.sh --lib $(LIBRARY); \
	else echo "bench: no nvcc here, so no times on a GPU"; fi

bench-traces: library ## peak reserved / peak live of real traces, beside PyTorch's allocator
	cargo build --release -p simulated-driver -p cachealloc-tests
	scripts/bench/traces.py --sim "$$(scripts/sim-dir.sh release)"

bench-fit: build ## what `cachealloc fit` says of real traces, beside real runs on the simulated driver
	cargo build --release -p simulated-driver -p cachealloc-tests
	scripts/bench/fit.py --sim "$$(scripts/sim-dir.sh release)" --replay target/release/replay

pictures: ## docs/report.png and docs/top.png, by Chromium; [REVIEW=DIR] every screen, to be looked at
	cargo build --profile checked -p cachealloc-preload -p cachealloc-cli -p simulated-driver
	scripts/report/pictures.py $(if $(REVIEW),--review "$(REVIEW)")

demo: ## run a sample under the library, on the GPU or, without one, on the simulated driver
	cargo build --profile demo -p cachealloc-preload -p cachealloc-cli -p simulated-driver
	scripts/demo.sh

samples: ## build the samples that this machine has compilers for, into target/samples
	scripts/samples.sh

fmt: ## format the sources
	cargo fmt --all

clean: ## remove everything that was built
	cargo clean

help: ## print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 26
