# The front door. Everything else is CMake (see CMakePresets.json).
.PHONY: run build install deb deb-check check asan tsan model drill-edge drill-ledger drill-ledger-drain drill-ledger-sim drill-mailbox drill-replica drill-rewarder architectures drill-wallet soak fuzz bench lint format docs clean
.DEFAULT_GOAL := build
JOBS ?= $(shell nproc)
prefix ?= /usr/local

run: build            ## build and start everything with embedded defaults
	@build/release/ron up $(ARGS)

build:                ## build/release/ron
	@tools/setup build
	@tools/build release

install:              ## into DESTDIR and prefix (default /usr/local)
	@[ -x build/release/ron ] || $(MAKE) build
	@cmake --install build/release --prefix $(prefix) >/dev/null
	@echo "installed into $(DESTDIR)$(prefix)"

deb:                  ## build/deb/ron_<version>_<arch>.deb
	@tools/setup deb
	@tools/deb

deb-check: deb        ## install, start, remove, return and purge it on a minimal Debian 12 (root)
	@tools/deb_check

check:                ## build and run every test
	@tools/setup check
	@tools/check

drill-replica:        ## kills, stops, cuts and promotes at random under load, for DRILL_SECONDS (180); then judges the history
	@tools/setup check
	@tools/build debug
	@SRC=$(CURDIR) RON=$(CURDIR)/build/debug/ron tests/crash/replica/drill --seconds $(or $(DRILL_SECONDS),180) $(if $(SEED),--seed $(SEED))
	@SRC=$(CURDIR) RON=$(CURDIR)/build/debug/ron tests/crash/replica/mailbox_drill --seconds $(or $(DRILL_SECONDS),180) $(if $(SEED),--seed $(SEED))
	@SRC=$(CURDIR) RON=$(CURDIR)/build/debug/ron tests/crash/replica/mailbox_full_disk

asan tsan:            ## the core suites under a sanitizer
	@tools/setup check
	@tools/build $@
	@ctest --test-dir build/$@ --output-on-failure -j$(JOBS) -L 'unit|prop|sim'

model:                ## every interleaving model and Spin model, deeper than in check
	@tools/setup check
	@tools/build debug
	@RON_MODEL_SECONDS=$(or $(MODEL_SECONDS),20) ctest --test-dir build/debug --output-on-failure -j$(JOBS) -L model

drill-ledger:         ## kill -9 the ledger ROUNDS times (500) under load, then verify what is left
	@tools/build release
	@ROUNDS=$(or $(ROUNDS),500) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/ledger/kill.test

drill-ledger-drain:   ## SIGTERM to the ledger DRAINS times (10000) under load: no outcome is left open, nothing is left behind
	@tools/build release
	@DRAINS=$(or $(DRAINS),10000) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/ledger/drain.test

drill-ledger-sim:     ## power fails in SEEDS (a million) random histories of a ledger on a simulated disk, from SEED (1) on, on every core
	@tools/build debug t.sim.ledger.power_cut
	@each=$$(($(or $(SEEDS),1000000) / $(JOBS))); seq 0 $$(($(JOBS) - 1)) | xargs -P $(JOBS) -I{} sh -c \
		"SEED=\$$(($(or $(SEED),1) + {} * $$each)) SEEDS=$$each build/debug/t.sim.ledger.power_cut"

drill-mailbox:        ## kill -9 the mailbox KILLS times (1000), change its shards CHANGES times (60), SIGTERM it DRAINS times (1000), stop it for 10 s, crowd it, under load, then judge the histories; SEEDS (1000000) simulated lives; its memory for DRILL_SECONDS (300)
	@tools/build release
	@KILLS=$(or $(KILLS),1000) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/mailbox/kill9.test
	@CHANGES=$(or $(CHANGES),60) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/mailbox/reshard.test
	@KINDS=drain ROUNDS=$(or $(DRAINS),1000) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/mailbox/chaos.test
	@KINDS="pause consumers revoked" STOP_SECONDS=10 ROUNDS=30 RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/mailbox/chaos.test
	@tools/build debug t.sim.mailbox.power t.sim.mailbox.idx t.sim.mailbox.reshard
	@for sim in power idx reshard; do MAILBOX_SEEDS=$(or $(SEEDS),1000000) build/debug/t.sim.mailbox.$$sim || exit 1; done
	@bench/rows/mailbox steady --seconds $(or $(DRILL_SECONDS),300)

drill-edge:           ## kill -9 and SIGTERM to the edge ROUNDS times each (1000) while it fills, evicts and swaps, for DRILL_SECONDS (3600) at most each; SEEDS (100000) histories of its fills against a second telling of the rules; a story of STEPS steps (200000)
	@tools/build release
	@ROUNDS=$(or $(ROUNDS),1000) DRILL_SECONDS=$(or $(DRILL_SECONDS),3600) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/edge/ends.test
	@tools/build debug m.edge.story
	@SEEDS=$(or $(SEEDS),100000) build/debug/m.edge.story
	@STEPS=$(or $(STEPS),200000) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/e2e/edge/story.test

drill-wallet: build   ## memory of a wallet with full caches under load, for DRILL_SECONDS (300; 3600: an hour): within 2 per cent
	@bench/rows/wallet steady --seconds $(or $(DRILL_SECONDS),300)

drill-rewarder:       ## kill -9 the rewarder and the ledger KILLS times (1000), EPOCHS (20 million) random epochs against the slow reference
	@tools/build release
	@KILLS=$(or $(KILLS),1000) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/rewarder/kill.test
	@tools/build debug t.prop.rewarder.allocation
	@RON_EPOCHS=$(or $(EPOCHS),20000000) $(if $(SEED),RON_SEED=$(SEED)) build/debug/t.prop.rewarder.allocation

soak:                 ## everything under mixed load for SOAK_SECONDS (86400): memory, descriptors and threads stay flat
	@tools/build release
	@SOAK_SECONDS=$(or $(SOAK_SECONDS),86400) RON=$(CURDIR)/build/release/ron SRC=$(CURDIR) tests/crash/soak

architectures:        ## the reward calculus on aarch64 and s390x (emulated): the same bytes as here. Installs 400 MB of compilers
	@tools/setup architectures
	@SRC=$(CURDIR) tests/interop/rewarder/architectures

fuzz:                 ## every fuzzer for FUZZ_SECONDS each
	@tools/setup check
	@tools/build fuzz
	@tools/fuzz $(or $(FUZZ_SECONDS),60)

bench:                ## side by side with the peers; ROW=name for one row
	@tools/setup bench
	@tools/build release all bench
	@bench/peers $(ROW)

lint:                 ## layers, shell scripts, format; clang-tidy and cppcheck, which take long: tools/lint deep, tools/lint analyze
	@tools/setup check
	@tools/lint

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

docs:                 ## regenerate docs/gen and the example configuration from the tables
	@tools/build debug
	@tools/gen_docs

clean:
	rm -rf build
