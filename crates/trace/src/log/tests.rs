use super::*;
use std::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("log")
    }

    fn log(&self, options: LogOptions) -> Log {
        Log::create_with(self.path(), &options).unwrap()
    }
}

fn small(vcpus: u32, readers: u32) -> LogOptions {
    LogOptions { words_per_ring: 1 << 10, reserve: 64, readers, wait_limit: LONG, ..LogOptions::new(vcpus) }
}

/// All segments as (ring, ticket, continuation, words), and what ended the reading.
type Read = (Vec<(u32, u64, bool, Vec<u64>)>, String);

fn read_all(reader: &mut MergedReader) -> Read {
    let mut all = Vec::new();
    loop {
        match reader.next(LONG).unwrap() {
            Next::Segment(s) => all.push((s.ring, s.ticket, s.continuation, s.words.to_vec())),
            Next::Idle => return (all, "idle".to_owned()),
            Next::End { cut } => return (all, format!("end cut={cut}")),
            Next::Failed(reason) => return (all, format!("failed {reason:?}")),
        }
    }
}

#[test]
fn segments_come_in_ticket_order_whatever_the_ring() {
    let dir = Dir::new();
    let log = dir.log(small(2, 1));
    let mut reader = MergedReader::attach(&log).unwrap();
    let mut writers: Vec<_> = (0..3).map(|ring| log.writer(ring).unwrap()).collect();
    for (ring, word) in [(1, 10), (0, 20), (2, 30), (1, 40)] {
        writers[ring].begin();
        writers[ring].push(word);
        writers[ring].push_slice(&[word + 1, word + 2]);
    }
    writers[1].begin_continuation();
    for w in &mut writers {
        w.finish();
    }
    let (all, end) = read_all(&mut reader);
    let expected = vec![
        (1, 0, false, vec![10, 11, 12]),
        (0, 1, false, vec![20, 21, 22]),
        (2, 2, false, vec![30, 31, 32]),
        (1, 3, false, vec![40, 41, 42]),
        (1, 4, true, vec![]),
    ];
    assert_eq!((all, end.as_str()), (expected, "end cut=false"));
    assert_eq!(log.stats().tickets, 5);
    assert_eq!(log.stats().lost(), 0);
    assert!(!writers[0].failed());
}

#[test]
fn a_segment_goes_on_until_it_is_long_or_another_has_begun() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut reader = MergedReader::attach(&log).unwrap();
    let mut writer = log.writer(0).unwrap();
    let mut other = log.writer(1).unwrap();
    for word in 1..=4 {
        writer.go_on(3);
        writer.push(word);
    }
    other.begin();
    other.push(10);
    for word in 5..=6 {
        writer.go_on(3);
        writer.push(word);
    }
    writer.finish();
    other.finish();
    let expected = vec![
        (0, 0, false, vec![1, 2]),
        (0, 1, false, vec![3, 4]),
        (1, 2, false, vec![10]),
        (0, 3, false, vec![5, 6]),
    ];
    assert_eq!(read_all(&mut reader), (expected, "end cut=false".to_owned()));
}

#[test]
fn an_open_segment_holds_back_later_ones() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut reader = MergedReader::attach(&log).unwrap();
    let mut first = log.writer(0).unwrap();
    let mut second = log.writer(1).unwrap();
    first.begin();
    second.begin();
    second.close();
    assert!(matches!(reader.next(Duration::from_millis(5)).unwrap(), Next::Idle));
    first.close();
    assert!(matches!(reader.next(SECOND).unwrap(), Next::Segment(s) if s.ticket == 0));
    assert!(matches!(reader.next(SECOND).unwrap(), Next::Segment(s) if s.ticket == 1));
}

#[test]
fn four_writers_and_three_readers_lose_nothing_and_agree() {
    const RECORDS: u64 = 30_000;
    let dir = Dir::new();
    let log = dir.log(small(3, 3));
    let readers: Vec<_> = (0..3)
        .map(|i| {
            let mut reader = MergedReader::attach(&log).unwrap();
            std::thread::spawn(move || {
                let mut hash = 0u64;
                let mut next = [0u64; 4];
                let mut segments = 0u64;
                loop {
                    match reader.next(LONG).unwrap() {
                        Next::Segment(s) => {
                            segments += 1;
                            for e in [u64::from(s.ring), s.ticket].iter().chain(s.words) {
                                hash = hash.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ e;
                            }
                            // Each record is a length and that many copies of its number; none may be
                            // cut or missing.
                            let mut words = s.words;
                            while let [n, rest @ ..] = words {
                                let (record, rest) = rest.split_at(*n as usize);
                                assert!(record.iter().all(|&w| w == next[s.ring as usize]));
                                next[s.ring as usize] += 1;
                                words = rest;
                            }
                        }
                        Next::End { cut: false } => break,
                        other => panic!("{other:?}"),
                    }
                    if i == 1 && segments.is_multiple_of(4096) {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
                assert_eq!(next, [RECORDS; 4]);
                (hash, segments)
            })
        })
        .collect();
    let writers: Vec<_> = (0..4)
        .map(|ring| {
            let mut w = log.writer(ring).unwrap();
            std::thread::spawn(move || {
                let mut random = u64::from(ring) + 1;
                let mut open = false;
                for i in 0..RECORDS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if !open || random.is_multiple_of(5) {
                        w.begin();
                        open = true;
                    }
                    let n = if random % 1000 == 1 { 400 } else { random >> 32 & 7 };
                    let mut record = vec![i; n as usize + 1];
                    record[0] = n;
                    w.push_slice(&record);
                    if random.is_multiple_of(11) {
                        w.close();
                        open = false;
                    }
                }
                w.finish();
            })
        })
        .collect();
    for w in writers {
        w.join().unwrap();
    }
    let results: Vec<_> = readers.into_iter().map(|r| r.join().unwrap()).collect();
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
    let stats = log.stats();
    assert_eq!(stats.tickets, results[0].1);
    assert!(stats.rings.iter().any(|r| r.waits > 0), "the rings are small enough to fill up");
}

#[test]
fn a_segment_longer_than_the_ring_goes_on_in_continuations() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut reader = MergedReader::attach(&log).unwrap();
    let writer = std::thread::spawn({
        let log = log.clone();
        move || {
            let mut w = log.writer(0).unwrap();
            w.begin();
            (0..5000).for_each(|i| w.push(i));
            w.finish();
            log.writer(1).unwrap().finish();
        }
    });
    let (all, end) = read_all(&mut reader);
    writer.join().unwrap();
    assert_eq!(end, "end cut=false");
    assert_eq!(
        all.iter().flat_map(|s| s.3.iter().copied()).collect::<Vec<_>>(),
        (0..5000).collect::<Vec<_>>()
    );
    assert!(all.len() > 5000 / 513);
    assert!(!all[0].2 && all[1..].iter().all(|s| s.2));
    assert!(all.iter().all(|s| s.3.len() <= 512));
}

#[test]
fn a_reader_that_stalls_fails_the_log_within_the_limit() {
    let dir = Dir::new();
    let log = dir.log(LogOptions { wait_limit: Duration::from_millis(100), ..small(1, 1) });
    let _reader = MergedReader::attach(&log).unwrap();
    let mut w = log.writer(0).unwrap();
    let begun = Instant::now();
    while !w.failed() {
        w.begin();
        (0..50).for_each(|i| w.push(i));
    }
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(log.failed(), Some(FailReason::ReaderStalled));
    w.begin();
    w.push(1);
    w.begin_urgent();
    w.push_urgent(&[1]);
    w.close();
}

#[test]
fn what_was_published_before_a_failure_is_read_first() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut w = log.writer(0).unwrap();
    w.begin();
    w.push(7);
    w.close();
    log.fail(FailReason::Stopped);
    log.fail(FailReason::Tracer);
    w.begin();
    w.push(8);
    w.close();
    let (all, end) = read_all(&mut MergedReader::attach(&log).unwrap());
    assert_eq!(all, vec![(0, 0, false, vec![7])]);
    assert_eq!(end, "failed Stopped");
    assert!(w.failed());
}

#[test]
fn when_the_last_reader_leaves_the_log_fails() {
    let dir = Dir::new();
    let log = dir.log(small(1, 2));
    let readers = [MergedReader::attach(&log).unwrap(), MergedReader::attach(&log).unwrap()];
    assert!(matches!(MergedReader::attach(&log), Err(LogError::TooManyReaders { readers: 2 })));
    assert_eq!(log.readers_attached(), 2);
    let mut w = log.writer(0).unwrap();
    w.begin();
    drop(readers);
    (0..5000).for_each(|i| w.push(i));
    assert_eq!(log.failed(), Some(FailReason::ReadersGone));
}

#[test]
fn a_writer_waits_for_readers_that_have_not_come_yet() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let writer = std::thread::spawn({
        let log = log.clone();
        move || {
            let mut w = log.writer(0).unwrap();
            for i in 0..3000 {
                w.begin();
                w.push(i);
            }
            w.finish();
            log.writer(1).unwrap().finish();
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    let (all, end) = read_all(&mut MergedReader::attach(&log).unwrap());
    writer.join().unwrap();
    assert_eq!((all.len(), end.as_str()), (3000, "end cut=false"));
}

#[test]
fn without_readers_rings_wrap_freely() {
    let dir = Dir::new();
    let log = dir.log(small(1, 0));
    let mut w = log.writer(0).unwrap();
    for i in 0..100_000u64 {
        if i.is_multiple_of(1000) {
            w.begin();
        }
        w.push(i);
    }
    w.finish();
    assert_eq!(log.failed(), None);
    assert!(log.stats().rings[0].words > 100_000);
    assert_eq!(log.stats().rings[0].waits, 0);
}

#[test]
fn a_dead_producer_gives_a_cut_end_after_what_is_published() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut reader = MergedReader::attach(&log).unwrap();
    let mut first = log.writer(0).unwrap();
    let mut second = log.writer(1).unwrap();
    first.begin();
    first.push(1);
    first.begin();
    // Stays open, so the reader sees a ticket gap before the next segment of the other ring.
    second.begin();
    second.close();
    let waiter = std::thread::spawn(move || read_all(&mut reader));
    std::thread::sleep(Duration::from_millis(20));
    log.mark_producer_dead();
    let (all, end) = waiter.join().unwrap();
    assert_eq!(all, vec![(0, 0, false, vec![1])]);
    assert_eq!(end, "end cut=true");
}

#[test]
fn urgent_segments_use_the_reserve_and_never_wait() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut w = log.writer(0).unwrap();
    // One word is the header, so this fills the part for ordinary segments exactly.
    for _ in 0..2 {
        w.begin();
        (0..479).for_each(|i| w.push(i));
    }
    w.close();
    assert_eq!(log.stats().rings[0].words, 1024 - 64);
    for i in 0..16 {
        w.begin_urgent();
        w.push_urgent(&[i, i, i]);
        w.close();
    }
    assert_eq!(log.failed(), None);
    assert_eq!(log.stats().rings[0].waits, 0);
    w.begin_urgent();
    assert_eq!(log.failed(), Some(FailReason::UrgentOverflow));
    assert!(log.stats().lost() > 0);
    let (all, end) = read_all(&mut MergedReader::attach(&log).unwrap());
    assert_eq!(all.len(), 18);
    assert_eq!(all[17].3, vec![15; 3]);
    assert_eq!(end, "failed UrgentOverflow");
}

#[test]
fn an_urgent_record_that_does_not_fit_is_not_half_published() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut w = log.writer(0).unwrap();
    w.begin_urgent();
    w.push_urgent(&[0; 500]);
    w.push_urgent(&[1; 100]);
    assert_eq!(log.failed(), Some(FailReason::UrgentOverflow));
    w.close();
    assert_eq!(log.stats().rings[0].words, 0);
}

#[test]
fn a_record_too_long_for_any_segment_fails_the_log() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut w = log.writer(0).unwrap();
    w.begin();
    w.push_slice(&[0; 513]);
    assert_eq!(log.failed(), Some(FailReason::RecordTooLong));
}

#[test]
fn a_push_without_begin_still_gets_a_ticket() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut w = log.writer(0).unwrap();
    w.push(5);
    w.close();
    let mut reader = MergedReader::attach(&log).unwrap();
    assert!(matches!(reader.next(SECOND).unwrap(), Next::Segment(s) if s.words == [5] && !s.continuation));
}

#[test]
fn a_sleeping_reader_is_woken_soon() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut reader = MergedReader::attach(&log).unwrap();
    let waiter = std::thread::spawn(move || {
        assert!(matches!(reader.next(LONG).unwrap(), Next::Segment(_)));
        Instant::now()
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut w = log.writer(0).unwrap();
    w.begin();
    let closed = Instant::now();
    w.close();
    let woken = waiter.join().unwrap();
    assert!(woken.saturating_duration_since(closed) < SECOND);
}

#[test]
fn only_one_writer_per_ring_and_only_rings_that_exist() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let _w = log.writer(0).unwrap();
    assert!(matches!(log.writer(0), Err(LogError::WriterTaken { ring: 0 })));
    assert!(matches!(log.writer(2), Err(LogError::NoSuchRing { ring: 2, rings: 2 })));
}

#[test]
fn damaged_files_are_refused() {
    let dir = Dir::new();
    let path = dir.path();
    drop(dir.log(small(1, 1)));
    let good = std::fs::read(&path).unwrap();
    assert!(Log::open(&path).is_ok());
    assert!(matches!(Log::create(&path, 1, 1 << 10), Err(LogError::Io { .. })), "never overwrites");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        matches!(Log::open(&path), Err(LogError::NotALog { .. }))
    };
    assert!(refused(&good[..good.len() - 1]));
    assert!(refused(&good[..100]));
    assert!(refused(b""));
    for word in 0..7 {
        if word == 5 {
            continue; // Every value of this word is a valid time limit.
        }
        let mut bad = good.clone();
        bad[word * 8..word * 8 + 8].copy_from_slice(&0x4321_8765_0fed_cba9u64.to_le_bytes());
        assert!(refused(&bad), "word {word}");
    }
    assert!(matches!(Log::open("/dev/null"), Err(LogError::NotALog { .. })));
}

#[test]
fn impossible_options_are_refused() {
    let dir = Dir::new();
    for options in [
        LogOptions { words_per_ring: 1000, ..small(1, 1) },
        LogOptions { words_per_ring: 1 << 40, ..small(1, 1) },
        small(0, 1),
        small(1000, 1),
        small(1, 9),
    ] {
        assert!(matches!(Log::create_with(dir.path(), &options), Err(LogError::BadOptions { .. })));
    }
}

#[test]
fn whatever_stands_in_shared_memory_the_reader_survives() {
    let dir = Dir::new();
    let mut random = 88_172_645_463_325_252u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..400 {
        let path = dir.0.path().join(round.to_string());
        let log = Log::create_with(&path, &small(1, 1)).unwrap();
        let mut reader = MergedReader::attach(&log).unwrap();
        let mut w = log.writer(0).unwrap();
        for i in 0..40 {
            w.begin();
            (0..i % 5).for_each(|j| w.push(j));
        }
        w.finish();
        for _ in 0..1 + next() % 8 {
            let value = match next() % 4 {
                0 => next(),
                1 => next() % 2048,
                2 => u64::MAX - next() % 8,
                _ => next() & 0xffff_ff00_000f_ffff,
            };
            match next() % 4 {
                0 => log.control(0).published.store(value, Relaxed),
                1 => log.control(1).published.store(value, Relaxed),
                _ => log.map.data(0)[(next() % 100) as usize].store(value, Relaxed),
            }
        }
        log.control(1).ended.store(1, Relaxed);
        for _ in 0..200 {
            match reader.next(Duration::ZERO) {
                Ok(Next::Segment(s)) => assert!(s.words.len() < 1 << 20),
                Ok(Next::Idle) => {}
                Ok(Next::End { .. } | Next::Failed(_)) | Err(_) => break,
            }
        }
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_broken_reader_cannot_make_the_writer_overwrite() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let _reader = MergedReader::attach(&log).unwrap();
    log.control(0).tails[0].store(1 << 50, Relaxed);
    let mut w = log.writer(0).unwrap();
    w.begin();
    assert_eq!(log.failed(), Some(FailReason::BadTail));
}

/// The writing side of the test below. It runs in a process of its own.
#[test]
#[ignore = "a part of another test"]
fn child_writer() {
    let Some(path) = std::env::var_os("GUARDRAIL_TEST_LOG") else { return };
    let log = Log::open(path).unwrap();
    let mut w = log.writer(0).unwrap();
    for i in 0..50_000u64 {
        w.begin();
        w.push(i);
        w.push(!i);
    }
    w.finish();
    log.writer(1).unwrap().finish();
}

#[test]
fn two_processes_share_a_log() {
    let dir = Dir::new();
    let log = dir.log(small(1, 1));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "log::tests::child_writer"])
        .env("GUARDRAIL_TEST_LOG", dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (all, end) = read_all(&mut MergedReader::attach(&log).unwrap());
    assert!(child.wait().unwrap().success());
    assert_eq!((all.len(), end.as_str()), (50_000, "end cut=false"));
    assert!(all.iter().enumerate().all(|(i, s)| s.3 == [i as u64, !(i as u64)]));
}
