//! Races between contexts, and what keeps them apart.

mod verdicts;

use super::guest::*;
use guardrail_finding::{Finding, Severity};
use guardrail_knowledge::effect::{Effect, LockKind, LockMode, SyncOp, When};

/// A word of the module that contexts share.
const WORD: u64 = SLOTS + 8;
/// Another shared word, which serves as a sequence counter.
const SEQ: u64 = SLOTS + 16;
const LOCK: u64 = SLOTS + 24;

/// The guest's kernel with spin locks.
fn locks() -> Kernel {
    let (kind, mode, when) = (LockKind::Spin, LockMode::Exclusive, When::Always);
    let lock = SyncOp::Lock { kind, key: arg(0), mode, when, tries: false };
    let (readers, shared) = (LockKind::Rw, LockMode::Shared);
    let read_lock = SyncOp::Lock { kind: readers, key: arg(0), mode: shared, when, tries: false };
    kernel()
        .function("_raw_spin_lock", [Effect::Sync(lock)])
        .function("_raw_spin_unlock", [Effect::Sync(SyncOp::Unlock { kind, key: arg(0), mode })])
        .function("_raw_read_lock", [Effect::Sync(read_lock)])
}

/// A context that runs driver code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Task(u64),
    Softirq,
    Hardirq,
}

/// The displacement by which code accesses `addr`: rdi holds the base of the words.
fn offset(addr: u64) -> u8 {
    addr as u8 & 0x7f
}

struct Race {
    guest: Guest,
    at: u64,
}

impl Race {
    fn new(tool: &str) -> Race {
        Race { guest: Guest::with(locks(), &[tool]), at: F }
    }

    /// The kernel calls `f` in a context, on a vCPU.
    fn enter(&mut self, who: Who, cpu: u32) -> &mut Race {
        let (task, stack, count) = match who {
            Who::Task(n) => (TASK + n * 0x1_0000, STACK + n * 0x1_0000, 0),
            Who::Softirq => (TASK, STACK + 0x70_0000 + u64::from(cpu) * 0x1_0000, 0x101),
            Who::Hardirq => (TASK, STACK + 0x90_0000 + u64::from(cpu) * 0x1_0000, 0x1_0001),
        };
        self.guest.enter_as(cpu, task, stack, count, who != Who::Hardirq);
        self
    }

    fn run(&mut self, bytes: &[u8], accesses: &[(u16, u64, u8, bool)]) -> &mut Race {
        self.guest.block(self.at, bytes);
        for &(insn, addr, size, store) in accesses {
            self.guest.access(insn, addr, size, store);
        }
        self.at += bytes.len() as u64;
        self
    }

    fn read(&mut self, addr: u64) -> &mut Race {
        // mov eax,[rdi+offset]; mov ecx,[rax]
        self.run(&[0x8b, 0x47, offset(addr), 0x8b, 0x08], &[(0, addr, 4, false), (1, STACK - 64, 4, false)])
    }

    /// mov [rdi+offset],eax
    fn write(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x89, 0x47, offset(addr)], &[(0, addr, 4, true)])
    }

    /// inc dword [rdi+offset]
    fn count(&mut self, addr: u64) -> &mut Race {
        self.run(&[0xff, 0x47, offset(addr)], &[(0, addr, 4, false), (0, addr, 4, true)])
    }

    /// lock inc dword [rdi+offset]
    fn atomic(&mut self, addr: u64) -> &mut Race {
        self.run(&[0xf0, 0xff, 0x47, offset(addr)], &[(0, addr, 4, false), (0, addr, 4, true)])
    }

    fn call(&mut self, name: &str, args: &[u64]) -> &mut Race {
        self.guest.called(self.at, name, args);
        self.at += 5;
        self.run(&[0x90], &[])
    }

    fn lock(&mut self) -> &mut Race {
        self.call("_raw_spin_lock", &[LOCK])
    }

    fn unlock(&mut self) -> &mut Race {
        self.call("_raw_spin_unlock", &[LOCK])
    }

    /// A run in which all contexts have touched the word, so that nothing is initialization any more.
    fn shared(tool: &str) -> Race {
        let mut race = Race::new(tool);
        // The code is in another function, so that what follows is distinguished.
        race.at = G;
        race.enter(Who::Task(9), 0).read(WORD).enter(Who::Task(8), 0).read(WORD);
        race.at = F;
        race
    }

    /// The races, without those with accesses that only made the word shared.
    fn findings(self) -> Vec<Finding> {
        let early = |stack: &[guardrail_finding::Frame]| stack.first().is_some_and(|f| f.function == "g");
        let findings = self.guest.finish().findings;
        findings
            .into_iter()
            .filter(|f| f.kind == "data-race")
            .filter(|f| !early(&f.stack) && f.other.as_ref().is_some_and(|o| !early(&o.stack)))
            .collect()
    }
}

const PAIRS: [(Who, Who); 6] = [
    (Who::Task(0), Who::Task(1)),
    (Who::Task(0), Who::Softirq),
    (Who::Task(0), Who::Hardirq),
    (Who::Softirq, Who::Hardirq),
    (Who::Softirq, Who::Task(2)),
    (Who::Hardirq, Who::Task(2)),
];

#[test]
fn each_pair_of_contexts_races_and_its_locked_twin_does_not() {
    for (a, b) in PAIRS {
        for cpu in [0, 1] {
            let mut race = Race::shared("drcheck");
            race.enter(a, 0).write(WORD).enter(b, cpu).write(WORD);
            let found = race.findings();
            assert_eq!(found.len(), 1, "{a:?} {b:?} {found:?}");
            assert!(!is_benign(&found[0]), "{a:?} {b:?}");
            let mut race = Race::shared("drcheck");
            race.enter(a, 0).lock().write(WORD).unlock().enter(b, cpu).lock().write(WORD).unlock();
            assert_eq!(race.findings(), [], "{a:?} {b:?}");
        }
    }
}

#[test]
fn a_report_shows_both_sides_and_why_nothing_orders_them() {
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0).lock().write(WORD).unlock().enter(Who::Hardirq, 0).read(WORD);
    let found = race.findings();
    let finding = &found[0];
    assert_eq!(
        finding.message,
        "data race on slots+0x8: read of 4 bytes in f (hardirq) and write of 4 bytes in f (process)"
    );
    let other = finding.other.as_ref().expect("a race has another side");
    assert_eq!((finding.context.level.as_str(), other.context.level.as_str()), ("hardirq", "process"));
    assert_eq!(other.context.locks[0].name, "slots+0x18");
    assert_eq!(
        finding.triage.as_deref(),
        Some("undecided: it takes an interrupt or a poll that the driver may have switched off")
    );
    assert_eq!(
        finding.notes,
        [
            "no lock is common: f (hardirq) holds nothing, f (process) holds spinlock slots+0x18",
            "f (hardirq) can interrupt f (process) on the same CPU: interrupts are on there",
        ]
    );
}

#[test]
fn a_lock_that_is_held_twice_is_shown_once() {
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0);
    for _ in 0..2 {
        race.guest.called(race.at, "_raw_read_lock", &[LOCK]);
        race.at += 5;
    }
    race.write(WORD).enter(Who::Hardirq, 0).read(WORD);
    let found = race.findings();
    let other = found[0].other.as_ref().expect("a race has another side");
    assert_eq!(other.context.locks.len(), 1, "{:?}", other.context.locks);
}

#[test]
fn a_race_is_one_finding_whichever_side_came_first() {
    let ids: Vec<String> = [false, true]
        .into_iter()
        .map(|turned| {
            let mut race = Race::shared("drcheck");
            let (a, b) = (race.at, race.at + 2);
            for (who, at) in if turned { [(1, b), (2, a)] } else { [(1, a), (2, b)] } {
                race.at = at;
                race.enter(Who::Task(who), 0).write(WORD);
            }
            let found = race.findings();
            assert_eq!(found.len(), 1);
            found[0].id.clone()
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn readers_do_not_race() {
    let mut race = Race::new("drcheck");
    for task in 0..4 {
        race.enter(Who::Task(task), 0).read(WORD);
    }
    assert_eq!(race.findings(), []);
}

#[test]
fn neighbors_in_a_word_do_not_race() {
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0).write(WORD).enter(Who::Task(1), 0).write(WORD + 4);
    assert_eq!(race.findings(), []);
}

#[test]
fn initialization_is_forgiven_where_locks_hand_it_over() {
    let fresh = |hand_over: bool| {
        let mut race = Race::new("drcheck");
        race.enter(Who::Task(0), 0).write(WORD);
        if hand_over {
            race.lock().unlock();
        }
        race.enter(Who::Task(1), 0);
        if hand_over {
            race.lock().unlock();
        }
        race.read(WORD);
        race.findings().len()
    };
    assert_eq!(fresh(true), 0);
    assert_eq!(fresh(false), 1);
    // What is not initialization is reported.
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0).write(WORD).lock().unlock();
    race.enter(Who::Task(1), 0).lock().unlock().read(WORD);
    assert_eq!(race.findings().len(), 1);
}

#[test]
fn memory_that_is_freed_and_allocated_again_is_new() {
    let mut race = Race::new("drcheck");
    race.enter(Who::Task(0), 0);
    let alloc = |race: &mut Race| {
        race.guest.hooked(race.at, "kmalloc", &[64, GFP_KERNEL], HEAP);
        race.at += 5;
        race.run(&[0x90], &[]);
    };
    alloc(&mut race);
    race.write(HEAP);
    race.guest.hooked(race.at, "kfree", &[HEAP], 0);
    race.at += 5;
    race.run(&[0x90], &[]);
    race.enter(Who::Task(1), 0);
    alloc(&mut race);
    race.write(HEAP);
    assert_eq!(race.findings(), []);
}

#[test]
fn objects_are_named_with_their_offset() {
    let mut race = Race::new("drcheck");
    race.enter(Who::Task(0), 0);
    race.guest.hooked(race.at, "kmalloc", &[64, GFP_KERNEL], HEAP);
    race.at += 5;
    race.write(HEAP + 16).enter(Who::Task(1), 0).write(HEAP + 16);
    let found = race.findings();
    assert!(found[0].message.starts_with("data race on offset 16 of a 64-byte slab object: "));
    assert_eq!(found[0].object.as_ref().and_then(|o| o.offset), Some(16));
}

#[test]
fn atomics_race_with_plain_updates_alone() {
    type Step = fn(&mut Race, u64) -> &mut Race;
    let cases: [(Step, Step, usize); 5] = [
        (Race::atomic, Race::atomic, 0),
        (Race::atomic, Race::read, 0),
        (Race::atomic, Race::write, 0),
        (Race::atomic, Race::count, 1),
        (Race::count, Race::count, 1),
    ];
    for (i, (a, b, expected)) in cases.into_iter().enumerate() {
        let mut race = Race::shared("drcheck");
        a(race.enter(Who::Task(0), 0), WORD);
        b(race.enter(Who::Softirq, 1), WORD);
        assert_eq!(race.findings().len(), expected, "case {i}");
    }
}

#[test]
fn counters_are_judged_and_not_hidden() {
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0).count(WORD).enter(Who::Softirq, 1).count(WORD);
    let found = race.findings();
    assert_eq!(found[0].triage.as_deref(), Some("likely benign: statistics counter"));
    assert_eq!(found[0].severity, Severity::Note);
}

#[test]
fn what_is_read_again_under_the_lock_is_judged_double_checked() {
    for reader_first in [false, true] {
        let mut race = Race::shared("drcheck");
        let write = |race: &mut Race| {
            race.enter(Who::Task(1), 1).lock().write(WORD).unlock();
        };
        let read = |race: &mut Race| {
            race.enter(Who::Task(2), 0).read(WORD).lock().read(WORD).unlock();
        };
        if reader_first {
            read(&mut race);
            write(&mut race);
        } else {
            write(&mut race);
            read(&mut race);
        }
        let found = race.findings();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].triage.as_deref(),
            Some("likely benign: double-checked, read again under the lock"),
            "{reader_first}"
        );
    }
}

#[test]
fn a_race_is_in_doubt_until_the_run_of_its_reader_is_over() {
    let found = |in_doubt| [("data-race".to_owned(), in_doubt)];
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(1), 1).lock().write(WORD).unlock();
    race.guest.doubts();
    race.enter(Who::Task(2), 0).read(WORD);
    assert_eq!(race.guest.doubts(), found(true));
    race.guest.leave_at(race.at);
    assert_eq!(race.guest.doubts(), found(false));
    // Nothing that follows takes a race of two writes back.
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(1), 1).write(WORD);
    race.guest.doubts();
    race.enter(Who::Task(2), 0).write(WORD);
    assert!(race.guest.doubts().contains(&("data-race".to_owned(), false)));
}

#[test]
fn a_reader_between_two_looks_at_a_sequence_is_synchronized() {
    for looks in [true, false] {
        for writer_first in [false, true] {
            let mut race = Race::new("drcheck");
            let write = |race: &mut Race| {
                race.enter(Who::Softirq, 1).lock().count(SEQ).write(WORD).count(SEQ).unlock();
            };
            let read = |race: &mut Race| {
                race.enter(Who::Task(2), 0).read(SEQ).read(WORD);
                if looks {
                    race.read(SEQ);
                }
            };
            if writer_first {
                write(&mut race);
                read(&mut race);
            } else {
                read(&mut race);
                write(&mut race);
            }
            let found = race.findings();
            assert_eq!(found.is_empty(), looks, "writer first: {writer_first}: {found:?}");
        }
    }
}

#[test]
fn what_a_plain_flag_hands_over_is_reported_once_with_the_flag() {
    let mut race = Race::new("drcheck");
    race.at = G;
    for task in [8, 9] {
        race.enter(Who::Task(task), 0).read(WORD).read(SEQ);
    }
    race.at = F;
    race.enter(Who::Task(0), 0).write(WORD).write(SEQ).enter(Who::Softirq, 1).read(SEQ).read(WORD);
    let found = race.findings();
    let against = |f: &&Finding| f.context.level == "softirq";
    let found: Vec<&Finding> = found.iter().filter(against).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].message.starts_with("data race on slots+0x10"));
    assert_eq!(
        found[0].triage.as_deref(),
        Some("likely benign: flag or index that hands over what was written before it")
    );
    // The flag does not hand over what was written after it.
    let mut race = Race::new("drcheck");
    race.enter(Who::Task(0), 0).write(SEQ).write(WORD).enter(Who::Softirq, 1).read(SEQ).read(WORD);
    assert_eq!(race.findings().len(), 2);
}

#[test]
fn the_lockset_alone_knows_no_order_and_forgives_the_first_user() {
    let mut race = Race::new("drcheck:klockset");
    race.enter(Who::Task(0), 0).write(WORD).enter(Who::Task(1), 0).read(WORD);
    assert_eq!(race.findings(), []);
    let mut race = Race::new("drcheck:klockset");
    race.enter(Who::Task(0), 0).write(WORD).enter(Who::Task(1), 0).lock().write(WORD).unlock();
    race.enter(Who::Softirq, 0).write(WORD);
    let found = race.findings();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].context.level, "softirq");
    let mut race = Race::new("drcheck:klockset");
    for task in 0..3 {
        race.enter(Who::Task(task), 0).lock().write(WORD).unlock();
    }
    assert_eq!(race.findings(), []);
}

#[test]
fn a_stack_of_ones_own_is_not_looked_at() {
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0).write(STACK - 128).enter(Who::Softirq, 0).write(STACK - 128);
    race.enter(Who::Task(0), 0).write(0x1000).enter(Who::Softirq, 0).write(0x1000);
    assert_eq!(race.findings(), []);
}

impl Race {
    /// mov eax,[rdi+offset]; test eax,eax; jz +0
    fn test(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x8b, 0x47, offset(addr), 0x85, 0xc0, 0x74, 0x00], &[(0, addr, 4, false)])
    }

    /// xor eax,eax; mov [rdi+offset],rax
    fn clear(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x31, 0xc0, 0x48, 0x89, 0x47, offset(addr)], &[(1, addr, 8, true)])
    }

    /// mov rax,[rdi+offset]; test rax,rax; jz +0
    fn test_pointer(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x48, 0x8b, 0x47, offset(addr), 0x48, 0x85, 0xc0, 0x74, 0x00], &[(0, addr, 8, false)])
    }
}

fn is_benign(finding: &Finding) -> bool {
    finding.triage.as_deref().is_some_and(|triage| triage.starts_with("likely benign"))
}

#[test]
fn a_flag_whose_readers_decide_by_it_is_no_race_where_it_hands_over() {
    for early in [true, false] {
        for right in [true, false] {
            let mut race = Race::new("drcheck");
            if early {
                race.enter(Who::Softirq, 1).test(SEQ);
            }
            race.enter(Who::Task(0), 0);
            if right {
                race.write(WORD).write(SEQ);
            } else {
                race.write(SEQ).write(WORD);
            }
            race.enter(Who::Softirq, 1).test(SEQ).read(WORD);
            let found = race.findings();
            let open = found.iter().filter(|f| !is_benign(f)).count();
            assert_eq!((found.is_empty(), open), (right, usize::from(!right)), "{early}: {found:?}");
        }
    }
}

#[test]
fn order_by_a_flag_is_handed_on() {
    let mut race = Race::new("drcheck");
    // Each one reads the flag of the one before; the last one reads what the first one wrote.
    for task in 0..3 {
        race.enter(Who::Task(task), 0).test(SEQ).test(SEQ + 16);
    }
    race.enter(Who::Task(0), 0).write(WORD).write(SEQ);
    race.enter(Who::Task(1), 1).test(SEQ).write(SEQ + 16);
    race.enter(Who::Task(2), 0).test(SEQ + 16).write(WORD);
    let found = race.findings();
    assert!(found.iter().all(|f| f.severity != Severity::Error), "{found:?}");
}

#[test]
fn a_pointer_that_is_cleared_hands_nothing_over() {
    let mut race = Race::new("drcheck");
    race.enter(Who::Softirq, 1).test_pointer(SEQ);
    race.enter(Who::Task(0), 0).write(WORD).clear(SEQ).enter(Who::Softirq, 1).test_pointer(SEQ).read(WORD);
    let found = race.findings();
    assert_eq!(found.iter().filter(|f| !is_benign(f)).count(), 2, "{found:?}");
}

#[test]
fn pairs_of_instructions_of_two_functions_are_one_finding() {
    let mut race = Race::shared("drcheck");
    race.enter(Who::Task(0), 0).write(WORD).write(WORD).enter(Who::Softirq, 1).write(WORD).write(WORD);
    let found = race.findings();
    assert_eq!((found.len(), found[0].count > 1), (1, true), "{found:?}");
}

#[test]
fn a_word_that_is_counted_and_read_in_a_loop_is_no_sequence() {
    for writer_first in [false, true] {
        let mut race = Race::new("drcheck");
        let write = |race: &mut Race| {
            race.enter(Who::Softirq, 1).lock().count(WORD).unlock();
        };
        if writer_first {
            write(&mut race);
        }
        race.enter(Who::Task(2), 0).read(WORD).read(WORD).read(WORD);
        if !writer_first {
            write(&mut race);
        }
        assert_eq!(race.findings().len(), 1, "writer first: {writer_first}");
    }
}
