# Tuplane: `make help` lists the targets.
CHECKS  := --release --config .config/checks.toml
NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)
DENY    := $(shell cargo deny --version >/dev/null 2>&1 && echo yes)
TARGET  := $(or $(CARGO_TARGET_DIR),target)
SKIPS   := $(TARGET)/skipped-tests

.PHONY: help demo test test-long lint doc bench paper install build

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## build the three binaries in release mode
	cargo build --release --workspace

demo: build ## build, then run the main job on three local agents and show what came of it
	@$(TARGET)/release/tuplane-testbed demo

test: ## all tests, real agents included; says at the end which were skipped and why
	@mkdir -p $(TARGET) && rm -f $(SKIPS)
	cargo build --workspace $(CHECKS)
ifeq ($(NEXTEST),yes)
	TUPLANE_SKIPS=$(abspath $(SKIPS)) cargo nextest run --workspace $(CHECKS) --no-fail-fast $(EVERY)
	TUPLANE_SKIPS=$(abspath $(SKIPS)) cargo nextest run --workspace --features tuplane-agent/shuttle --lib $(CHECKS) shuttle
else
	TUPLANE_SKIPS=$(abspath $(SKIPS)) cargo test --workspace $(CHECKS) --no-fail-fast
	TUPLANE_SKIPS=$(abspath $(SKIPS)) cargo test --workspace --features tuplane-agent/shuttle --lib $(CHECKS) shuttle
endif
	@if [ -s $(SKIPS) ]; then echo "skipped:"; sort $(SKIPS) | uniq -c; else echo "no test was skipped"; fi

test-long: ## all tests, with 20,000 cases of every property, a minute for each live measurement, and those that take minutes (they need nextest)
	TUPLANE_LONG=1 PROPTEST_CASES=20000 $(MAKE) test EVERY='--run-ignored all'

lint: doc ## formatting, clippy, documentation, licences, and what each package may depend on
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(CHECKS) -- -D warnings
	sh .config/arrows.sh
ifeq ($(DENY),yes)
	cargo deny check --config .config/deny.toml
else
	@echo "cargo-deny is not installed: licences, advisories and sources of libraries were not checked"
endif

doc: ## documentation of our packages, private items included
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(CHECKS) --document-private-items

bench: build ## print one JSON line per workload
	@$(TARGET)/release/tuplane-testbed bench

paper: ## repeat the POTUS publication's experiments on the simulator; results go to results/
	cargo build --release -p tuplane-testbed
	@$(TARGET)/release/tuplane-testbed paper potus

install: ## install tuplane, tuplane-agent and tuplane-testbed into cargo's bin folder
	cargo install --locked --path ctl
	cargo install --locked --path agent
	cargo install --locked --path testbed
