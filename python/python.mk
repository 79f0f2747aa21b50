# The package reel of Python.
# PYTHON: of make python, with the package cffi; of make wheel, with venv
PYTHON ?= python3
WHEEL_TARGETS ?= x86_64 aarch64

.PHONY: python package wheel
# In the source tree: python/ on the search path and REEL_LIBRARY=build/release/libreel.so are then enough.
python: python/reel/_bindings.py
python/reel/_bindings.py: python/make_bindings.py include/reel.h include/reel_speech.h include/reel_measure.h
	$(call say,PY)
	$(Q)$(PYTHON) $< include $@
wheel:
	@PYTHON=$(PYTHON) python/build_wheel.sh $(WHEEL_TARGETS)

# Where pip puts NVRTC, of the extras cuda13 and cuda12: the library and the command of a package are linked with these folders
# beside it, $(1) being site-packages, so that the loader finds it for both, after LD_LIBRARY_PATH and before the system's.
NVRTC_OF_PIP = $(1)/nvidia/cu13/lib:$(1)/nvidia/cuda_nvrtc/lib

# The library and the command of a package that is compiled where it is installed (setup.py), which tests take, too.
package: $(B)/package/libreel.so $(B)/package/bin/reel
$(B)/package/libreel.so: $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,-z,relro,-z,now $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) \
	    -Wl,-rpath,'$(call NVRTC_OF_PIP,$$ORIGIN/..)' -o $@
$(B)/package/bin/reel: $(CLI_OBJ) $(INTERNAL)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -pie -Wl,-z,relro,-z,now $(LINK_OPT) $(LDFLAGS) $^ $(CLI_LIBS) $(LDLIBS) \
	    -Wl,-rpath,'$(call NVRTC_OF_PIP,$$ORIGIN/../..)' -o $@

# A wheel has the command's code in the library, so that what both need is there once; bin/reel calls it.
# python/build_wheel.sh asks for these, with WHEEL=1, another compiler and static libraries.
ifdef WHEEL
$(B)/src/cli/main.o: CFLAGS += -Wno-missing-prototypes '-Dmain=REEL_API reel_command_main'
$(B)/wheel/libreel.so: $(LIB_OBJ) $(CLI_OBJ) python/exports.map
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,libreel.so -Wl,-z,relro,-z,now -Wl,--version-script=python/exports.map $(LDFLAGS) \
	    $(filter %.o,$^) $(CLI_LIBS) $(LDLIBS) -Wl,-rpath,'$$ORIGIN/lib:$(call NVRTC_OF_PIP,$$ORIGIN/..)' -o $@
$(B)/wheel/reel: python/command.c $(B)/wheel/libreel.so
	$(call say,LD)
	$(Q)$(CC) -std=c17 -O2 -pie -fPIE $(LDFLAGS) $^ -Wl,-rpath,'$$ORIGIN/..' -o $@
endif
