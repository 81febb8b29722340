# `make test` is everything that must hold before a change lands.
.PHONY: test check-style fuzz bench clean

test:
	@scripts/test

fuzz:
	@fuzz/run

bench:
	@bench/check
	@bench/guard

clean:
	cargo clean
