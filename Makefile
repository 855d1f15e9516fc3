# Thin on purpose: what needs thought is in xtask/ (cargo xtask help).

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

PREFIX   ?= /usr/local
DESTDIR  ?=
CARGO    ?= cargo
VERSION  := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The number in the SONAME of the library for C.
ABI      := $(shell sed -n 's/^const ABI: u32 = \(.*\);/\1/p' crates/array_c/build.rs)
RUST     := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
TARGET   := $(or $(CARGO_TARGET_DIR),target)
BINARY   := $(TARGET)/release/superpage
SOURCES  := Cargo.toml $(wildcard Cargo.lock crates/*/Cargo.toml) \
            $(shell find crates/*/src -name '*.rs')

bin      := $(DESTDIR)$(PREFIX)/bin
man      := $(DESTDIR)$(PREFIX)/share/man/man1
bash     := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zsh      := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fish     := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
systemd  := $(DESTDIR)$(PREFIX)/lib/systemd/system
library  := $(DESTDIR)$(PREFIX)/lib/superpage
c_library := $(DESTDIR)$(PREFIX)/lib/libsuperpage_c.so
share    := $(DESTDIR)$(PREFIX)/share/superpage
config   := $(DESTDIR)/etc/superpage/superpage.toml

.PHONY: help tools build demo test test-kernels test-programs bench install uninstall clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 21

# xtask cannot look for what it is itself built with.
tools:
	@command -v $(CARGO) >/dev/null || \
	    { echo "cargo is missing: install Rust $(RUST) or later" >&2; exit 1; }
	@command -v cc >/dev/null || \
	    { echo "no C linker (cc): install gcc, on Debian 'apt-get install gcc'" >&2; exit 1; }
	@printf '%s\n' "cargo $(RUST)" "$$($(CARGO) --version)" | sort -CV || \
	    { echo "$$($(CARGO) --version) is too old: rust-version is $(RUST)" >&2; exit 1; }

build: tools ## the release binary, target/release/superpage
	$(CARGO) build --release

demo: tools ## set up, build, and show the main job on this machine
	$(CARGO) xtask setup
	$(CARGO) build --release
	$(BINARY) lab demo --out demo-out

test: tools ## the whole gate: formatting, clippy, tidy, documentation, every test
	$(CARGO) xtask test

test-kernels: tools ## the live tests on Debian's newest 6.12 and newest unstable kernel, in guests
	$(CARGO) xtask test-kernels

test-programs: tools ## programs from elsewhere with and without Superpage, half an hour; keeps the rows and the page
	$(CARGO) xtask test-programs --keep

bench: tools ## time sampling, splitting and verification per huge page
	$(CARGO) bench --workspace --bench '*'

# `sudo make install` after `make build` needs no cargo: the binary is then up to date.
$(BINARY): $(SOURCES)
	$(CARGO) build --release
	@touch -c $@

install: $(BINARY) ## to PREFIX (/usr/local) under DESTDIR: binary, libraries, man pages, completions, unit, dashboard
	install -D -m 755 $(BINARY) $(bin)/superpage
	install -d $(library)
	install -m 644 $(dir $(BINARY))libsuperpage.so $(dir $(BINARY))libsuperpage_malloc.so $(library)
	install -m 644 $(dir $(BINARY))libsuperpage_c.so $(c_library).$(ABI).$(VERSION)
	ln -sf libsuperpage_c.so.$(ABI).$(VERSION) $(c_library).$(ABI)
	ln -sf libsuperpage_c.so.$(ABI) $(c_library)
	install -D -m 644 crates/array_c/include/superpage.h $(DESTDIR)$(PREFIX)/include/superpage.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' crates/array_c/superpage.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/superpage.pc
	install -d $(man)
	$(BINARY) man $(man)
	chmod 644 $(man)/superpage*.1
	$(BINARY) completions bash | install -D -m 644 /dev/stdin $(bash)/superpage
	$(BINARY) completions zsh | install -D -m 644 /dev/stdin $(zsh)/_superpage
	$(BINARY) completions fish | install -D -m 644 /dev/stdin $(fish)/superpage.fish
	sed 's|/usr/bin/superpage|$(PREFIX)/bin/superpage|' packaging/superpage.service | \
	    install -D -m 644 /dev/stdin $(systemd)/superpage.service
	install -D -m 644 packaging/grafana/superpage.json $(share)/grafana/superpage.json
	install -D -m 644 packaging/superpage.toml $(share)/superpage.toml
	test -e $(config) || install -D -m 644 packaging/superpage.toml $(config)

uninstall: ## what install put there, but for /etc/superpage, which may have been edited
	rm -f $(bin)/superpage $(library)/libsuperpage*.so $(man)/superpage.1 $(man)/superpage-*.1
	rm -f $(bash)/superpage $(zsh)/_superpage $(fish)/superpage.fish
	rm -f $(c_library) $(c_library).$(ABI) $(c_library).$(ABI).$(VERSION) $(DESTDIR)$(PREFIX)/include/superpage.h
	rm -f $(DESTDIR)$(PREFIX)/lib/pkgconfig/superpage.pc
	rm -f $(systemd)/superpage.service $(share)/grafana/superpage.json $(share)/superpage.toml

clean: ## remove what was built
	$(CARGO) clean
	rm -rf demo-out
