//! Any text as the log of a kernel with guarded drivers, as `guardrail guard --log` reads it.
//!
//! Input: lines. A byte from 0x80 on stands for a line or a part of one that the runtime prints.

#![no_main]

use guardrail_guard::violations::{findings, is_violation};

const PARTS: [&str; 20] = [
    "\n[    3.141592] guardrail: violation: write of 8 bytes at ffff88ba1ffb5390 by ",
    "\nguardrail: violation: call of 0000000000000000 by ",
    "\n6,99,100,-;guardrail: fault: endless loop by ",
    "\n[    3.141592][  T88] guardrail: ",
    "report+0x1/0x1d0 [guardrail_test]",
    "f+0x10/0x20 [e1000]",
    ": domain 1 holds read, needs write\n",
    ": domain 1 holds read, needs icall\n",
    ": domain 2\n",
    "\nguardrail: call trace of insmod[93] on CPU 0:\n",
    "\nguardrail:   do_one_initcall+0x56/0x220\n",
    "\nguardrail: target: slab kmalloc-128 start ffff88ba1ffb5380 pointer offset 16 size 128\n",
    "\nguardrail: target: user memory\n",
    "\nguardrail: domain 2 (other) holds write there\n",
    " by ",
    ": domain ",
    "needs ",
    " of ",
    " on CPU ",
    "guardrail: ",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut log = String::new();
    for &byte in data {
        match PARTS.get(usize::from(byte.wrapping_sub(0x80))) {
            Some(part) => log.push_str(part),
            None => log.push(char::from(byte)),
        }
    }
    let findings = findings(&log);
    let marks = log.lines().filter(|line| is_violation(line) || line.contains("guardrail: fault: ")).count();
    assert!(findings.len() <= marks, "each finding has a line");
    assert!(findings.iter().map(|finding| finding.count).sum::<u64>() <= marks as u64);
    assert!(findings.iter().all(|finding| !finding.id.is_empty() && finding.stack.len() <= 64));
});
