//! What the user brings to a run: a program in syzkaller's form, and the archive of a root file system.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guardrail_vm::heard::brought(bytes));
