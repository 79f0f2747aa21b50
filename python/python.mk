# The package reel of Python.
# PYTHON: of make python, with the package cffi; of make wheel, with venv
PYTHON ?= python3
WHEEL_TARGETS ?= x86_64 aarch64

.PHONY: python wheel
# In the source tree: python/ on the search path and REEL_LIBRARY=build/release/libreel.so are then enough.
python: python/reel/_bindings.py
python/reel/_bindings.py: python/make_bindings.py include/reel.h include/reel_speech.h include/reel_measure.h
	$(call say,PY)
	$(Q)$(PYTHON) $< include $@
wheel:
	@PYTHON=$(PYTHON) python/build_wheel.sh $(WHEEL_TARGETS)
