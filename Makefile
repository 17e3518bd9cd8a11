# The two commands that matter: `make demo` and `make test`. Everything else is CMake; see CONTRIBUTING.md.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS ?= 2
CXX_FILES = $(shell git ls-files 'src/*.cpp' 'src/*.hpp' 'include/*.hpp' 'examples/cpp/*.cpp' 'tests/*.cpp' 'tests/*.hpp' 'bench/*.cpp' 'bench/*.hpp' 'fuzz/*.cpp' 'fuzz/*.hpp' 'python/native/*.cpp')

.PHONY: help setup configure build weights test demo python python-test wheel format check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    install what is needed, build, optimise three real inputs, print the table"
	@echo "make test    install what is needed, build, run all tests"
	@echo "make build   build/bin/cleave, the release command"
	@echo "make python  the Python package in python/, for use with PYTHONPATH (its interpreter: build/venv/bin/python)"
	@echo "make python-test    its tests; those of PyTorch run when TORCH=1 installs it or it is there"
	@echo "make wheel   the same as a wheel, in build/dist"
	@echo "make setup | weights | check | format | clean"

setup:
	@tools/setup

configure: setup
	@test -f build/build.ninja || cmake --preset release >build-configure.log 2>&1 \
	  || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log

build: configure
	@ninja -C build -j $(JOBS) --quiet

# The weights of the ONNX examples are generated, not committed (docs/decisions/0002-onnx-example-weights.md).
weights: setup
	@python3 tools/make_weights examples/gpt2_block.weights.txt

test: build weights
	@ctest --test-dir build -j $(TEST_JOBS) --output-on-failure --no-tests=error --output-log build/ctest.log

demo: build weights
	@tools/demo

python: build
	@tools/python_env $(if $(TORCH),--torch)
	@grep -q CLEAVE_PYTHON:BOOL=ON build/CMakeCache.txt || \
	  cmake -S . -B build -DCLEAVE_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/build/venv/bin/python >/dev/null
	@ninja -C build -j $(JOBS) --quiet _native _native_stub

python-test: python weights
	@CLEAVE=$(CURDIR)/build/bin/cleave PYTHONPATH=$(CURDIR)/python $(CURDIR)/build/venv/bin/python -W ignore -m unittest discover -q -s tests/python -p '*_test.py'

wheel: python
	@rm -rf build/dist
	@$(CURDIR)/build/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w build/dist .

format: setup
	@clang-format-19 -i $(CXX_FILES)

check: setup
	@python3 tools/check_rooms
	@bad=$$(for f in $(CXX_FILES); do clang-format-19 --dry-run --Werror $$f >/dev/null 2>&1 || echo "  $$f"; done); \
	  test -z "$$bad" || { echo "not formatted (run \`make format\`):"; echo "$$bad"; exit 1; }
	@if command -v ruff >/dev/null; then ruff check --quiet tools python examples; fi

clean:
	@rm -rf build build-wheel
