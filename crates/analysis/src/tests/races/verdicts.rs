//! The verdicts of triage: small ones one by one, and shares of right ones over models of stock drivers.

use super::*;

type Code = fn(&mut Race, u64) -> &mut Race;

/// The kernel may call the driver at any time.
const CHART: &str = "
chart device
  key device
  state here
  callback run(request) from caller: in any
  callback probe(device) from prober: in any
";

impl Race {
    /// Races of functions that a chart knows.
    fn placed() -> Race {
        Race { guest: Guest::with(locks().charts(CHART), &["drcheck"]), at: F }
    }

    /// mov rax,[rdi+offset]; mov rcx,[rax]
    fn follow(&mut self, addr: u64) -> &mut Race {
        self.run(
            &[0x48, 0x8b, 0x47, offset(addr), 0x48, 0x8b, 0x08],
            &[(0, addr, 8, false), (1, STACK - 64, 8, false)],
        )
    }

    /// mov rax,[rdi+offset]; test rax,rax; jz +3; mov rcx,[rax]
    fn look_and_follow(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x48, 0x8b, 0x47, offset(addr), 0x48, 0x85, 0xc0, 0x74, 0x03], &[(0, addr, 8, false)]);
        self.run(&[0x48, 0x8b, 0x08], &[(0, STACK - 64, 8, false)])
    }

    /// A slot is looked at, and emptied: the same, then mov qword [rdi+offset],0
    fn empty_slot(&mut self, addr: u64) -> &mut Race {
        let code = [0x48, 0xc7, 0x47, offset(addr), 0, 0, 0, 0];
        self.look_and_follow(addr).run(&code, &[(0, addr, 8, true)])
    }

    /// mov rax,[rdi+offset]; call *rax
    fn call_pointer(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x48, 0x8b, 0x47, offset(addr), 0xff, 0xd0], &[(0, addr, 8, false)])
    }

    /// mov [rdi+offset],rax
    fn point(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x48, 0x89, 0x47, offset(addr)], &[(0, addr, 8, true)])
    }

    /// mov dword [rdi+offset],7
    fn set(&mut self, addr: u64) -> &mut Race {
        self.run(&[0xc7, 0x47, offset(addr), 7, 0, 0, 0], &[(0, addr, 4, true)])
    }

    /// The index of an array is read, and written again.
    fn next(&mut self, addr: u64) -> &mut Race {
        self.read(addr).write(addr)
    }

    /// mov eax,[rdi+offset]; mov ecx,[rsi+rax*4]
    fn index(&mut self, addr: u64) -> &mut Race {
        self.run(
            &[0x8b, 0x47, offset(addr), 0x8b, 0x0c, 0x86],
            &[(0, addr, 4, false), (1, STACK - 64, 4, false)],
        )
    }

    /// An array is accessed at its index, which is counted on: mov eax,[rdi+offset]; mov ecx,[rsi+rax*4];
    /// inc eax; mov [rdi+offset],eax
    fn take_next(&mut self, addr: u64) -> &mut Race {
        self.index(addr).run(&[0xff, 0xc0, 0x89, 0x47, offset(addr)], &[(1, addr, 4, true)])
    }

    /// The first element of a list is taken: mov rax,[rdi+offset]; mov rcx,[rax+8]; mov [rdi+offset],rcx
    fn take_first(&mut self, addr: u64) -> &mut Race {
        self.run(
            &[0x48, 0x8b, 0x47, offset(addr), 0x48, 0x8b, 0x48, 8, 0x48, 0x89, 0x4f, offset(addr)],
            &[(0, addr, 8, false), (1, STACK - 64, 8, false), (2, addr, 8, true)],
        )
    }

    /// An array is walked up to a number: mov ecx,[rsi+rax*4]; inc eax; cmp [rdi+offset],eax; jg -10
    fn walk(&mut self, addr: u64) -> &mut Race {
        self.run(
            &[0x8b, 0x0c, 0x86, 0xff, 0xc0, 0x39, 0x47, offset(addr), 0x7f, 0xf6],
            &[(0, STACK - 64, 4, false), (2, addr, 4, false)],
        )
    }

    /// The same without an array: nop; nop; nop; inc eax; cmp [rdi+offset],eax; jg -10
    fn tell(&mut self, addr: u64) -> &mut Race {
        self.run(
            &[0x90, 0x90, 0x90, 0xff, 0xc0, 0x39, 0x47, offset(addr), 0x7f, 0xf6],
            &[(4, addr, 4, false)],
        )
    }

    /// mov dword [rdi+offset],0
    fn reset(&mut self, addr: u64) -> &mut Race {
        self.run(&[0xc7, 0x47, offset(addr), 0, 0, 0, 0], &[(0, addr, 4, true)])
    }

    /// test byte [rdi+offset],4; jz +0
    fn test_bit(&mut self, addr: u64) -> &mut Race {
        self.run(&[0xf6, 0x47, offset(addr), 4, 0x74, 0], &[(0, addr, 1, false)])
    }

    /// or byte [rdi+offset],2
    fn set_bit(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x80, 0x4f, offset(addr), 2], &[(0, addr, 1, false), (0, addr, 1, true)])
    }

    /// movzx eax,word [rdi+offset]; mov [rsi],ax
    fn show(&mut self, addr: u64) -> &mut Race {
        let copied = [(0, addr, 2, false), (1, STACK - 64, 2, true)];
        self.run(&[0x0f, 0xb7, 0x47, offset(addr), 0x66, 0x89, 0x06], &copied)
    }

    /// mov [rdi+offset],ax
    fn set_short(&mut self, addr: u64) -> &mut Race {
        self.run(&[0x66, 0x89, 0x47, offset(addr)], &[(0, addr, 2, true)])
    }

    /// mov eax,[rdi+offset]; imul eax,eax,10; cmp eax,5; jb +0
    fn scale(&mut self, addr: u64) -> &mut Race {
        let code = [0x8b, 0x47, offset(addr), 0x6b, 0xc0, 10, 0x83, 0xf8, 5, 0x72, 0];
        self.run(&code, &[(0, addr, 4, false)])
    }

    /// The verdicts on the races of two tasks.
    fn verdicts(one: Code, other: Code) -> Vec<String> {
        Race::placed().judged(one, other)
    }

    fn judged(mut self, one: Code, other: Code) -> Vec<String> {
        let race = &mut self;
        race.at = G;
        race.enter(Who::Task(9), 0).test_pointer(WORD).enter(Who::Task(8), 0).test_pointer(WORD);
        race.at = F;
        one(race.enter(Who::Task(0), 0), WORD);
        other(race.enter(Who::Task(1), 1), WORD);
        // The run of the last access ends.
        race.guest.back(0);
        self.findings().into_iter().map(|found| found.triage.expect("races are judged")).collect()
    }

    /// The verdict on the only race of two tasks.
    fn verdict(one: Code, other: Code) -> String {
        let found = Race::verdicts(one, other);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }
}

#[test]
fn verdicts_say_what_follows_from_the_value() {
    let follows = "harmful: the other side follows the pointer without a look at whether there is one";
    let lost = "harmful: one side sets a number that the other side counts, and one of the two is lost";
    assert_eq!(Race::verdict(Race::point, Race::follow), follows);
    assert_eq!(Race::verdict(Race::follow, Race::point), follows);
    assert_eq!(Race::verdict(Race::count, Race::set), lost);
    assert_eq!(Race::verdict(Race::set, Race::count), lost);
    assert_ne!(Race::verdict(Race::point, Race::look_and_follow), follows);
    assert_eq!(Race::verdict(Race::point, Race::call_pointer), "likely benign: pointer to a function");
    let bounds = "harmful: the value bounds a loop over an array of the other side";
    assert_eq!(Race::verdict(Race::walk, Race::reset), bounds);
    assert_eq!(Race::verdict(Race::reset, Race::walk), bounds);
    assert_ne!(Race::verdict(Race::tell, Race::reset), bounds);
    assert_eq!(
        Race::verdict(Race::next, Race::write),
        "harmful: two sides write a value that leads to memory"
    );
    assert_eq!(
        Race::verdict(Race::write, Race::write),
        "undecided: nothing is known of what follows from the value"
    );
}

#[test]
fn what_no_chart_knows_is_not_harmful() {
    let race = Race::new("drcheck");
    let expected = "undecided: no chart says when the kernel calls one of the sides";
    assert_eq!(race.judged(Race::point, Race::follow), [expected]);
}

#[test]
fn a_slot_that_the_devices_handler_empties_is_not_two_writers() {
    let two = "harmful: two sides write a value that leads to memory";
    for (who, level, expected) in [(Who::Hardirq, "(hardirq)", false), (Who::Task(3), "(process)", true)] {
        let mut race = Race::placed();
        race.at = G;
        race.enter(Who::Task(9), 0).test_pointer(WORD).enter(Who::Task(8), 0).test_pointer(WORD);
        race.enter(who, 1).empty_slot(WORD).guest.back(0);
        // Another function fills it.
        race.at = F;
        race.enter(Who::Softirq, 0).point(WORD).guest.back(0);
        let found = race.guest.finish().findings;
        let verdicts: Vec<_> = found
            .into_iter()
            .filter(|found| found.message.contains(level))
            .map(|found| found.triage)
            .collect();
        assert!(!verdicts.is_empty());
        assert_eq!(verdicts.iter().any(|verdict| verdict.as_deref() == Some(two)), expected, "{verdicts:?}");
    }
}

/// Models of races in stock drivers, each with what the judgment by hand says: a fault follows, or none does.
/// `tests/corpus/races.toml` has the races, of which these have the instructions that matter.
const MODELS: [(&str, bool, Code, Code); 22] = [
    ("tulip: driver data that open follows, and probe sets", true, Race::follow, Race::point),
    (
        "8139cp: transmit takes a descriptor, and a new MTU resets the index",
        true,
        Race::take_next,
        Race::reset,
    ),
    ("vmxnet3: transmit takes an index that resume sets", true, Race::take_next, Race::write),
    (
        "e100: transmit takes a command block, and new ring sizes replace it",
        true,
        Race::take_first,
        Race::point,
    ),
    ("e100: the same two, and the list is emptied", true, Race::take_first, Race::clear),
    ("e100: blocks are counted, and their number is set", true, Race::count, Race::set),
    ("e100: the pool that open follows, and probe makes", true, Race::point, Race::follow),
    ("igb: the watchdog follows a vector that is replaced", true, Race::follow, Race::clear),
    ("igb: the watchdog walks rings, and their number is set", true, Race::walk, Race::reset),
    ("igb: the same number ends a loop over nothing", false, Race::tell, Race::reset),
    ("mptsas: a list is walked while an entry is taken off", true, Race::follow, Race::take_first),
    ("e1000: statistics that two sides count", false, Race::count, Race::count),
    ("e1000: the speed is set, and shown", false, Race::set_short, Race::show),
    ("e1000: the factor of a timeout is set, and used", false, Race::write, Race::scale),
    ("e1000: a function is replaced, and called", false, Race::point, Race::call_pointer),
    ("e1000: an index with one writer", false, Race::write, Race::index),
    ("e1000: the interrupt says that the link is to be looked at", false, Race::set, Race::test),
    ("e1000: two sides store the same type of medium", false, Race::set, Race::set),
    ("e1000e: a bit is set, and another one tested", false, Race::set_bit, Race::test_bit),
    ("e1000e: ethtool and the watchdog set flow control", false, Race::write, Race::write),
    ("pcnet32: a word chooses messages", false, Race::write, Race::test),
    ("i2c_i801: two sides store the time of the last use", false, Race::point, Race::point),
];

#[test]
fn most_verdicts_on_models_of_stock_races_are_right() {
    let (mut right, mut wrong, mut found, mut missed) = (0, Vec::new(), 0, Vec::new());
    for (model, harmful, one, other) in MODELS {
        let mut seen = false;
        for (one, other) in [(one, other), (other, one)] {
            let verdicts = Race::verdicts(one, other);
            assert!(!verdicts.is_empty(), "no race: {model}");
            let said = verdicts.iter().any(|verdict| verdict.starts_with("harmful"));
            seen |= said;
            right += usize::from(said && harmful);
            if said && !harmful {
                wrong.push((model, verdicts));
            }
        }
        // A cause is found in one order of its two sides, or in the other.
        found += usize::from(harmful && seen);
        if harmful && !seen {
            missed.push(model);
        }
    }
    assert!(right * 100 >= 80 * (right + wrong.len()), "precision: {right} right, and wrong: {wrong:?}");
    assert!(found * 100 >= 95 * (found + missed.len()), "recall: {found} found, and missed: {missed:?}");
}
