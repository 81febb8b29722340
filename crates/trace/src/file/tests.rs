use super::*;
use crate::event::{Access, Head, Kind};
use crate::source::{Source, SourceEnd, Step};
use std::path::Path;

fn meta() -> TraceMeta {
    TraceMeta {
        driver: "e1000".to_owned(),
        kernel_release: "6.1.0".to_owned(),
        hooks: (0..200).map(|i| format!("hook_{i}")).collect(),
        vcpus: 2,
        ..TraceMeta::default()
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Makes `count` segments, each with one block and up to eight accesses, like those of a driver.
fn segments(count: u64) -> Vec<(u32, u64, bool, Vec<u64>)> {
    let mut state = 42;
    (0..count)
        .map(|ticket| {
            let mut words = vec![Head::encode(Kind::Block, 0, random(&mut state) % 3000)];
            for insn in 0..random(&mut state) % 9 {
                let addr = 0xffff_8880_0000_0000 | random(&mut state) & 0xfff_fff8;
                let access = Access { addr, size: 8, store: insn % 2 == 0, io: false, insn: insn as u16 };
                words.push(access.encode());
            }
            (ticket as u32 % 3, ticket, ticket % 7 == 3, words)
        })
        .collect()
}

fn write(path: &Path, segments: &[(u32, u64, bool, Vec<u64>)]) {
    let mut writer = TraceWriter::create(path, &meta()).unwrap();
    for (ring, ticket, continuation, words) in segments {
        writer.segment(*ring, *ticket, *continuation, words).unwrap();
    }
    writer.finish(RunSummary { outcome: "completed".to_owned(), ..RunSummary::default() }).unwrap();
}

fn read(path: &Path) -> (u64, Result<Ending, FileError>) {
    let mut reader = TraceReader::open(path).unwrap();
    let mut count = 0;
    loop {
        match reader.next() {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Ok(reader.ending().unwrap().clone())),
            Err(error) => return (count, Err(error)),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let all = segments(100_000);
    write(&path, &all);
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.meta(), &meta());
    for (ring, ticket, continuation, words) in &all {
        let segment = reader.next().unwrap().unwrap();
        assert_eq!((segment.ring, segment.ticket, segment.continuation), (*ring, *ticket, *continuation));
        assert_eq!(segment.words, words);
    }
    assert_eq!(reader.next().unwrap(), None);
    let words = all.iter().map(|s| s.3.len() as u64).sum::<u64>();
    assert!(matches!(reader.ending(), Some(Ending::Complete { summary, totals })
            if summary.outcome == "completed" && totals.segments == 100_000 && totals.words == words && totals.chunks > 10));
}

#[test]
fn an_empty_trace_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &[]);
    assert!(matches!(read(&path), (0, Ok(Ending::Complete { .. }))));
}

#[test]
fn a_trace_cut_anywhere_reads_up_to_the_cut_and_says_where_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let all = segments(60_000);
    write(&path, &all);
    let bytes = std::fs::read(&path).unwrap();
    let mut state = 7;
    let preamble = 20 + serde_json::to_vec(&meta()).unwrap().len() as u64;
    let mut best = 0;
    for _ in 0..100 {
        let cut = preamble + random(&mut state) % (bytes.len() as u64 - preamble - 20);
        std::fs::write(&path, &bytes[..cut as usize]).unwrap();
        let (count, ending) = read(&path);
        let Ending::Truncated { last_ticket, offset } = ending.unwrap() else { panic!("cut at {cut}") };
        assert_eq!(last_ticket, count.checked_sub(1));
        assert!(offset <= cut && cut - offset < 300_000);
        best = best.max(count);
    }
    assert!(best > 30_000);
}

#[test]
fn a_cut_in_the_preamble_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &segments(10));
    let bytes = std::fs::read(&path).unwrap();
    for cut in [1, 7, 8, 19, 20, 100] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let error = TraceReader::open(&path).err().unwrap();
        assert!(matches!(error, FileError::NoPreamble { offset, .. } if offset == cut as u64), "{error}");
    }
    for other in [&b""[..], b"\x7fELF and more", b"G\0"] {
        std::fs::write(&path, other).unwrap();
        assert!(matches!(TraceReader::open(&path), Err(FileError::NotATrace { .. })));
    }
}

#[test]
fn a_newer_format_is_refused_in_a_clear_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &[]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, bytes).unwrap();
    let error = TraceReader::open(&path).err().unwrap().to_string();
    assert!(error.contains("written by a newer guardrail (format 9, this one reads up to 2)"), "{error}");
}

#[test]
fn a_trace_of_the_first_format_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &segments(100));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(read(&path), (100, Ok(Ending::Complete { .. }))));
}

#[test]
fn corruption_is_told_with_its_offset_after_the_good_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &segments(60_000));
    let bytes = std::fs::read(&path).unwrap();
    let mut state = 3;
    let preamble = 20 + serde_json::to_vec(&meta()).unwrap().len();
    for _ in 0..60 {
        let at = preamble + random(&mut state) as usize % (bytes.len() - preamble - 20);
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (random(&mut state) % 8);
        std::fs::write(&path, bad).unwrap();
        let (count, ending) = read(&path);
        match ending {
            Err(FileError::Corrupt { offset, .. }) => {
                assert!(offset as usize <= at && at - (offset as usize) < 300_000);
                assert!(count < 60_000 || at > bytes.len() / 2);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn random_bytes_after_a_preamble_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &segments(2000));
    let bytes = std::fs::read(&path).unwrap();
    let mut state = 99;
    for _ in 0..2000 {
        let mut bad = bytes.clone();
        for _ in 0..1 + random(&mut state) % 6 {
            let at = random(&mut state) as usize % bad.len();
            bad[at] = random(&mut state) as u8;
        }
        if let Ok(mut reader) = TraceReader::from_input(std::io::Cursor::new(bad), "memory") {
            let _ = reader.seek(random(&mut state) % 3000);
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}

#[test]
fn seeking_finds_any_ticket_with_and_without_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &segments(60_000));
    let bytes = std::fs::read(&path).unwrap();
    for cut in [0, 30] {
        std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
        let mut reader = TraceReader::open(&path).unwrap();
        for ticket in [59_999, 0, 30_000, 30_001, 12] {
            reader.seek(ticket).unwrap();
            assert_eq!(reader.next().unwrap().unwrap().ticket, ticket);
        }
        reader.seek(60_000).unwrap();
        assert_eq!(reader.next().unwrap(), None);
    }
}

#[test]
fn a_full_disk_is_told() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let error = TraceWriter::create("/dev/full", &meta()).err().unwrap();
    assert!(matches!(error, FileError::DiskFull { offset: 0, .. }), "{error}");
}

#[test]
fn segments_must_come_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(dir.path().join("trace"), &meta()).unwrap();
    writer.segment(0, 5, false, &[]).unwrap();
    assert!(matches!(writer.segment(0, 5, false, &[]), Err(FileError::OutOfOrder { ticket: 5, last: 5 })));
}

#[test]
fn as_a_source_a_cut_file_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &segments(30_000));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1000]).unwrap();
    let mut reader = TraceReader::open(&path).unwrap();
    let mut count = 0;
    let end = loop {
        match reader.step().unwrap() {
            Step::Segment(segment) => {
                assert_eq!(segment.ticket, count);
                count += 1;
            }
            Step::Idle => panic!("a file is never idle"),
            Step::End(end) => break end,
        }
    };
    assert!(matches!(end, SourceEnd::Cut(text) if text.contains(&(count - 1).to_string())));
}
