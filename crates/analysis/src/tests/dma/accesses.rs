//! The driver uses memory that a device has.

use super::run::*;

#[test]
fn a_buffer_that_is_mapped_used_and_unmapped_in_order_is_silent() {
    let mut r = Run::new();
    r.write(HEAP).map(HEAP, 100, TO).read(HEAP).write(HEAP + 100).unmap(HEAP, 100, TO).write(HEAP);
    r.map(HEAP, 100, FROM).unmap(HEAP, 100, FROM).read(HEAP);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_write_to_what_the_device_reads_is_a_race() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO).write(HEAP + 99).unmap(HEAP, 100, TO);
    assert_eq!(
        r.found(),
        [
            "dma-race: write of 1 byte at offset 99 of a 100-byte buffer mapped DMA_TO_DEVICE, which the device may be reading"
        ]
    );
}

#[test]
fn a_mapping_that_the_driver_goes_on_using_is_reported_a_few_times() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO);
    for _ in 0..20 {
        r.write(HEAP);
    }
    let report = r.g.finish();
    assert_eq!(report.findings.iter().map(|f| f.count).collect::<Vec<_>>(), [1, 1, 1, 17]);
    assert_eq!(report.findings[3].notes.len(), 1);
}

#[test]
fn findings_that_are_taken_back_hide_none() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO);
    for _ in 0..10 {
        r.write(HEAP);
    }
    r.sync(SYNC_DEVICE, HEAP, 100, TO).write(HEAP + 7);
    let found = r.found();
    assert_eq!(found.iter().filter(|f| f.starts_with("dma-race")).count(), 1, "{found:?}");
    assert!(found[0].contains("at offset 7 of"), "{found:?}");
}

#[test]
fn a_write_is_undecided_until_a_register_is_written_or_the_buffer_unmapped() {
    let undecided = "undecided: a synchronization for the device may follow, which makes it right";
    for unmaps in [true, false] {
        let mut r = Run::new();
        r.map(HEAP, 100, TO).write(HEAP);
        assert_eq!(r.g.verdicts(), [Some(undecided.to_owned())]);
        if unmaps {
            r.unmap(HEAP, 100, TO);
        } else {
            r.called("iowrite32", &[1, HEAP + 0x1000]);
        }
        assert_eq!(r.g.verdicts(), [None], "unmaps: {unmaps}");
    }
}

#[test]
fn a_write_is_in_doubt_until_a_register_is_written_or_the_buffer_unmapped() {
    let found = |in_doubt| [("dma-race".to_owned(), in_doubt)];
    for unmaps in [true, false] {
        let mut r = Run::new();
        r.map(HEAP, 100, TO).write(HEAP);
        assert_eq!(r.g.doubts(), found(true));
        if unmaps {
            r.unmap(HEAP, 100, TO);
        } else {
            r.called("iowrite32", &[1, HEAP + 0x1000]);
        }
        assert_eq!(r.g.doubts(), found(false), "unmaps: {unmaps}");
    }
}

#[test]
fn a_copy_by_the_kernel_is_the_drivers_write() {
    let mut r = Run::new();
    r.map(HEAP, 100, BOTH);
    r.called("memcpy", &[HEAP + 90, HEAP + 0x1000, 20]).unmap(HEAP, 100, BOTH);
    assert_eq!(
        r.found(),
        [
            "dma-race: write of 20 bytes at offset 90 of a 100-byte buffer mapped DMA_BIDIRECTIONAL, which the device may be reading and writing"
        ]
    );
}

#[test]
fn a_read_before_the_unmapping_sees_what_was_there_before() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).read(HEAP + 4).write(HEAP).unmap(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-direction: read of 4 bytes at offset 4 of a 100-byte buffer mapped DMA_FROM_DEVICE, which the device may be writing",
            "dma-race: write of 1 byte at offset 0 of a 100-byte buffer mapped DMA_FROM_DEVICE, which the device may be writing",
        ]
    );
}

#[test]
fn a_synchronized_part_is_the_cpus_until_it_is_given_back() {
    let mut r = Run::new();
    r.map(HEAP, 4096, FROM).sync(SYNC_CPU, HEAP, 60, FROM).read(HEAP + 56);
    r.sync(SYNC_DEVICE, HEAP, 60, FROM).unmap(HEAP, 4096, FROM);
    assert_eq!(r.found(), NONE);
    let mut r = Run::new();
    r.map(HEAP, 4096, FROM).sync(SYNC_CPU, HEAP, 60, FROM).read(HEAP + 60);
    r.sync(SYNC_DEVICE, HEAP, 60, FROM).read(HEAP).unmap(HEAP, 4096, FROM);
    assert_eq!(r.found().len(), 2);
}

#[test]
fn what_is_handed_over_behind_the_write_was_no_race() {
    for (size, count) in [(8, 0), (2, 1)] {
        let mut r = Run::new();
        r.map(HEAP, 100, BOTH).write(HEAP + 4).sync(SYNC_DEVICE, HEAP, size, BOTH).unmap(HEAP, 100, BOTH);
        assert_eq!(r.found().len(), count);
    }
    // or byte [rdi], 1: it writes what it has read.
    let mut r = Run::new();
    r.map(HEAP, 100, BOTH).block(&[0x80, 0x0f, 0x01]).g.load(0, HEAP, 1).store(0, HEAP, 1);
    r.sync(SYNC_DEVICE, HEAP, 8, BOTH).unmap(HEAP, 100, BOTH);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_look_at_the_devices_flag_may_be_a_synchronization() {
    let mut r = Run::skipping();
    r.map(HEAP, 100, FROM).block(READ1).g.load(0, DEV + SKIP, 1);
    r.read(HEAP).unmap(HEAP, 100, FROM);
    assert_eq!(r.found(), NONE);
    // A call that follows says exactly what is synchronized.
    let mut r = Run::skipping();
    r.map(HEAP, 100, FROM).block(READ1).g.load(0, DEV + SKIP, 1);
    r.sync(SYNC_CPU, HEAP, 40, FROM).read(HEAP).read(HEAP + 40).unmap(HEAP, 100, FROM);
    assert_eq!(r.found().len(), 1);
}
