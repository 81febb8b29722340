# `make test` is everything that must hold before a change lands; `make test ONLY=gate` runs one step of it.
.PHONY: test fuzz bench clean

test:
	@scripts/test $(if $(ONLY),"$(ONLY)")

fuzz:
	@fuzz/run

bench:
	@bench/run checkers
	@bench/run gate

clean:
	cargo clean
