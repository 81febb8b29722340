//! Undefined bytes that a device may read.

use super::run::*;
use guardrail_finding::Severity;

const LIST: u64 = HEAP + 0x50_0000;
const HOLE: &str =
    "dma-uninit: 8 of 64 bytes mapped for the device to read were not initialized, the first at offset 8";
const TAIL: &str =
    "dma-uninit: 63 of 64 bytes mapped for the device to read were not initialized, all from offset 1";
const EMPTY: &str = "dma-uninit: none of 64 bytes mapped for the device to read was initialized";

/// A run in which the driver has 64 undefined bytes.
fn allocated(mut r: Run) -> Run {
    r.call("kmalloc", &[64, GFP_KERNEL], HEAP);
    r
}

fn run() -> Run {
    allocated(Run::new())
}

impl Run {
    /// mov [rdi], rax
    fn write8(&mut self, at: u64) -> &mut Run {
        self.block(&[0x48, 0x89, 0x07]).g.store(0, at, 8);
        self
    }

    /// Writes all of the buffer but its second word.
    fn write_but_one(&mut self) -> &mut Run {
        (0..8).filter(|&i| i != 1).for_each(|i| {
            self.write8(HEAP + i * 8);
        });
        self
    }
}

/// The findings with their judgment: kinds and messages, then severities and whether they are likely benign.
fn judged(mut r: Run) -> Vec<(String, Severity, bool)> {
    r.g.unload();
    let findings = r.g.finish().findings;
    findings
        .iter()
        .map(|f| {
            assert!(f.origin.is_some() && f.object.is_some() && !f.shadow.is_empty());
            let benign = f.triage.as_deref().is_some_and(|triage| triage.starts_with("likely benign"));
            (format!("{}: {}", f.kind, f.message), f.severity, benign)
        })
        .collect()
}

#[test]
fn bytes_that_were_left_out() {
    for tools in [&["dmacheck"][..], &["dmcheck", "dmacheck"], &["dmacheck", "dmcheck"]] {
        let mut r = allocated(Run::with(tools));
        r.write_but_one().map(HEAP, 64, TO).unmap(HEAP, 64, TO).call("kfree", &[HEAP], 0);
        assert_eq!(judged(r), [(HOLE.to_owned(), Severity::Error, false)], "{tools:?}");
        let mut r = allocated(Run::with(tools));
        r.write_but_one().write8(HEAP + 8).map(HEAP, 64, TO).unmap(HEAP, 64, TO).call("kfree", &[HEAP], 0);
        assert_eq!(r.found(), NONE);
    }
}

#[test]
fn nothing_else_is_said_where_dmcheck_was_not_asked_for() {
    let mut r = run();
    r.block(READ_AND_BRANCH).g.load(0, HEAP, 4);
    r.at += 0x40;
    r.call("kmalloc", &[32, GFP_KERNEL], HEAP + 0x1000).read(HEAP + 0x1000 + 32);
    assert_eq!(r.found(), NONE);
}

#[test]
fn an_end_that_was_not_written_may_not_be_sent() {
    let mut r = run();
    r.write(HEAP).map(HEAP, 64, TO).unmap(HEAP, 64, TO);
    // Only the mapped part counts.
    r.write(HEAP + 4).map(HEAP + 4, 1, TO).unmap(HEAP + 4, 1, TO);
    assert_eq!(judged(r), [(TAIL.to_owned(), Severity::Warning, true)]);
}

#[test]
fn what_the_device_writes_is_initialized() {
    for dir in [FROM, BOTH] {
        let mut r = run();
        r.map(HEAP, 64, dir).unmap(HEAP, 64, dir).map(HEAP, 64, TO).unmap(HEAP, 64, TO);
        assert_eq!(r.found(), NONE);
    }
    let mut r = run();
    r.write(HEAP).map(HEAP, 64, BOTH).unmap(HEAP, 64, BOTH);
    assert_eq!(judged(r), [(TAIL.to_owned(), Severity::Warning, true)]);
}

#[test]
fn a_buffer_that_is_filled_after_the_mapping_is_handed_over_by_a_sync() {
    let mut r = run();
    r.map(HEAP, 64, TO).unmap(HEAP, 64, TO);
    assert_eq!(judged(r), [(EMPTY.to_owned(), Severity::Error, false)]);
    let mut r = run();
    r.map(HEAP, 64, TO).sync(SYNC_CPU, HEAP, 16, TO).write8(HEAP).write8(HEAP + 8);
    r.sync(SYNC_DEVICE, HEAP, 16, TO).unmap(HEAP, 64, TO);
    assert_eq!(r.found(), NONE);
    // What the synchronization hands over counts like what a mapping hands over.
    let mut r = run();
    r.map(HEAP, 64, TO).sync(SYNC_CPU, HEAP, 24, TO).write8(HEAP).write8(HEAP + 16);
    r.sync(SYNC_DEVICE, HEAP, 24, TO).unmap(HEAP, 64, TO);
    assert_eq!(
        r.found(),
        [
            "dma-uninit: 8 of 24 bytes synchronized for the device to read were not initialized, the first at offset 8"
        ]
    );
}

#[test]
fn an_empty_buffer_is_in_doubt_until_it_is_taken_back() {
    let found = |in_doubt| [("dma-uninit".to_owned(), in_doubt)];
    let mut r = run();
    r.map(HEAP, 64, TO);
    assert_eq!(r.g.doubts(), found(true));
    r.unmap(HEAP, 64, TO);
    assert_eq!(r.g.doubts(), found(false));
    let mut r = run();
    r.map(HEAP, 64, TO);
    assert_eq!(r.g.doubts(), found(true));
    r.sync(SYNC_CPU, HEAP, 8, TO).write8(HEAP).sync(SYNC_DEVICE, HEAP, 8, TO).unmap(HEAP, 64, TO);
    assert_eq!(r.g.doubts(), []);
    // A buffer of which a part was written is reported for certain.
    let mut r = run();
    r.write8(HEAP).map(HEAP, 64, TO);
    assert_eq!(r.g.doubts(), found(false));
}

#[test]
fn a_sync_that_the_kernel_leaves_out_may_have_handed_over() {
    let mut r = allocated(Run::skipping());
    r.map(HEAP, 64, TO).block(READ1).g.load(0, DEV + SKIP, 1);
    r.at += 3;
    r.block(&[0x90]).unmap(HEAP, 64, TO);
    assert_eq!(r.found(), NONE);
}

#[test]
fn all_entries_of_a_list_count() {
    let other = HEAP + 0x1000;
    let mut r = run();
    r.call("kmalloc", &[64, GFP_KERNEL], other).write_but_one().write8(HEAP + 8);
    (0..8).filter(|&i| i != 3).for_each(|i| {
        r.write8(other + i * 8);
    });
    let entries = [(HEAP, 64), (other, 64)];
    r.map_list(LIST, &entries, TO).unmap_list(LIST, 2, &entries, TO);
    assert_eq!(
        judged(r),
        [(
            "dma-uninit: 8 of 128 bytes mapped for the device to read were not initialized, the first at offset 88"
                .to_owned(),
            Severity::Error,
            false
        )]
    );
    // The end of the first element is not the end.
    let mut r = run();
    r.write(HEAP);
    let entries = [(HEAP, 64), (other, 64)];
    r.map_list(LIST, &entries, TO).unmap_list(LIST, 2, &entries, TO);
    assert_eq!(judged(r)[0].1, Severity::Error);
    let mut r = run();
    r.map_list(LIST, &entries, FROM)
        .unmap_list(LIST, 2, &entries, FROM)
        .map(HEAP, 64, TO)
        .unmap(HEAP, 64, TO);
    assert_eq!(r.found(), NONE);
}

#[test]
fn ranges_that_wrap_are_survived() {
    let mut r = run();
    let entries = [(HEAP, u64::MAX), (HEAP + 32, u64::MAX - 1)];
    r.map_list(LIST, &entries, TO).map(HEAP, u64::MAX, TO).map(HEAP, 0, TO);
    r.sync(SYNC_DEVICE, HEAP, u64::MAX, TO);
    assert!(r.found().iter().any(|found| found.starts_with("dma-uninit")));
}
