# make check is what CI runs, apart from installing the programs that tests trace.

GO ?= go
PREFIX ?= /usr/local
ZSHDIR ?= site-functions
PURE = ./symbols/... ./fetch/... ./output/... ./probe/insn/... ./probe/asm/... ./probe/plan/... ./probe/ring/... \
	./probe/survey ./probe/planner ./probe/order ./probe/threads ./probe/mailbox ./probe/triggers ./probe/instances ./probe/regs ./probe/sayer
# Packages that aren't pure, but have tests of what several goroutines use.
SHARED = ./probe/engine ./probe/memory
FUZZTIME ?= 10s
VERSION := $(shell sed -n 's/^const Version = "\(.*\)"$$/\1/p' cmd/kprobe/cli/version.go)
REVISION := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
DEB = kprobe_$(VERSION)_amd64.deb

.PHONY: build test race lint generate check fuzz bench install uninstall deb clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w -X kprobe/cmd/kprobe/cli.Revision=$(REVISION)" -o kprobe ./cmd/kprobe

test:
	$(GO) test ./...

race:
	$(GO) test -race -short $(PURE) $(SHARED)

lint:
	@test -z "$$(gofmt -l cmd fetch internal output probe symbols)" || { gofmt -l cmd fetch internal output probe symbols; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

generate:
	$(GO) run ./internal/gendocs

check: lint test race

fuzz:
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

bench:
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...

# install copies what make build has made, so that root needs no Go.
install:
	@test -x kprobe || { echo "there is no ./kprobe yet: run make build first, as yourself"; exit 1; }
	install -D -m 755 kprobe $(DESTDIR)$(PREFIX)/bin/kprobe
	for m in man/*.[15]; do install -D -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/} || exit 1; done
	install -D -m 644 completions/kprobe.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kprobe
	install -D -m 644 completions/_kprobe $(DESTDIR)$(PREFIX)/share/zsh/$(ZSHDIR)/_kprobe
	install -D -m 644 completions/kprobe.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kprobe.fish

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/kprobe
	for m in man/*.[15]; do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kprobe
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/$(ZSHDIR)/_kprobe
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kprobe.fish

# deb makes a package that apt installs: apt install ./kprobe_*.deb
deb: build
	rm -rf deb.tmp $(DEB)
	$(MAKE) install DESTDIR=deb.tmp PREFIX=/usr ZSHDIR=vendor-completions
	gzip -9n deb.tmp/usr/share/man/man*/*
	install -d deb.tmp/DEBIAN
	printf '%s\n' 'Package: kprobe' 'Version: $(VERSION)' 'Architecture: amd64' 'Section: utils' 'Priority: optional' \
	  'Maintainer: the kprobe developers <kprobe@localhost>' \
	  'Description: kernel-style kprobes for processes' \
	  ' kprobe traces any instruction of a running x86-64 Linux process: entries,' \
	  ' returns and lines, with arguments and variables, at about ten nanoseconds' \
	  ' a hit. It needs only the right to trace the process.' > deb.tmp/DEBIAN/control
	dpkg-deb --build --root-owner-group deb.tmp $(DEB)
	rm -rf deb.tmp

clean:
	rm -rf kprobe deb.tmp kprobe_*.deb
