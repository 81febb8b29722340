//! Any text as the log of a guest's kernel: its findings are bounded, and their fingerprints are set.
//!
//! Input: lines. A byte from 0x80 on stands for a line or a part of one that the kernel prints, so that whole
//! splats are frequent.

#![no_main]

use guardrail_kernel_log::{MARK, findings, has_mark, splats};

const PARTS: [&str; 24] = [
    "\n------------[ cut here ]------------\n",
    "\nCall Trace:\n",
    "\n <TASK>\n",
    "\n </TASK>\n",
    "\n <IRQ>\n",
    "\n </IRQ>\n",
    "\nRIP: 0010:demo+0x1/0x2 [demo]\n",
    "\n demo_init+0x1f/0x30 [demo]\n",
    "\n ? kfree+0x1/0x2\n",
    "\nWARNING: CPU: 1 PID: 88 at a.c:1 f+0x1/0x2 [demo]\n",
    "\nWARNING: a.c:13 at f+0xe/0x20 [demo], CPU#0: insmod/112\n",
    "\nkernel BUG at ",
    "\nBUG: KFENCE: use-after-free read in ",
    "\nBUG: KASAN: ",
    "\nBUG: unable to handle ",
    "\nOops: ",
    "\nCPU: 1 UID: 0 PID: 88 Comm: insmod Tainted: G\n",
    "\nallocated by task 1 on cpu 0:\n",
    "\nkfence-#1: 0x1-0x2, size=32, cache=kmalloc-32\n",
    "\nINFO: task demo:88 blocked for\n",
    "\nlist_add corruption",
    "\n---[ end trace 0000000000000000 ]---\n",
    "\nKernel panic - not syncing: ",
    "\n[    3.141592][  T88] ",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut log = format!("{MARK}demo\n");
    for &byte in data {
        match PARTS.get(usize::from(byte.wrapping_sub(0x80))) {
            Some(part) => log.push_str(part),
            None => log.push(char::from(byte)),
        }
    }
    assert!(has_mark(&log));
    let splats = splats(&log);
    let findings = findings(&log, &["demo"]);
    assert!(findings.len() <= splats.len() && findings.len() <= 256);
    assert!(findings.iter().all(|finding| !finding.id.is_empty() && finding.stack.len() <= 65));
});
